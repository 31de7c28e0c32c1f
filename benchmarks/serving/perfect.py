"""A design whose kernels run at their rates: what tools that count bytes and FLOPs alone make of it."""

from __future__ import annotations

import dataclasses

from dse.types import Design, Engine, paths

#: Times its memory that a device has: these tools hold any number of requests.
_MEMORIES = 16.0


def perfect(design: Design) -> Design:
    """The design with kernels and links at their rates, an engine that costs nothing beside them, and more memory."""
    accelerator, measured = design.system.accelerator, design.system.accelerator.kernels.attention
    kernels = dataclasses.replace(
        accelerator.kernels,
        matrix_efficiency=1.0,
        flash_efficiency=1.0,
        vector_efficiency=1.0,
        memory_efficiency=1.0,
        roofline_blend=0.0,
        fine=None,
        attention=measured and dataclasses.replace(measured, decode_memory=1.0),
    )
    larger = dataclasses.replace(accelerator.memory, capacity=_MEMORIES * accelerator.memory.capacity)
    links = {
        level: dataclasses.replace(getattr(design.system, level), latency=0.0, efficiency=1.0, ramp=0.0)
        for level in ("scale_up", "scale_out")
    }
    system = dataclasses.replace(
        design.system, accelerator=dataclasses.replace(accelerator, kernels=kernels, memory=larger), **links
    )
    times = [name for name, leaf in paths.leaves(Engine).items() if leaf["units"] == "s"]
    engine = Engine(
        **{
            **dict.fromkeys((*times, "narrow_expert", "runtime_memory", "cache_rereads"), 0.0),
            "kernel_slowdown": 1.0,
            "narrow_rate": 1.0,
        }
    )
    software = dataclasses.replace(design.software, engine=engine)
    requests = design.workload.requests
    assert requests is not None
    workload = dataclasses.replace(design.workload, requests=dataclasses.replace(requests, burst=0.0))
    if software.experts is not None:
        software = dataclasses.replace(software, experts=dataclasses.replace(software.experts, grouped_efficiency=1.0))
    return dataclasses.replace(design, workload=workload, system=system, software=software)
