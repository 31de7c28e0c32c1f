"""What ``dse trace --format`` writes besides the timeline of viewers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dse.designs.calibrated import accelerator_of
from dse.errors import InputError
from dse.io.quantities import counted
from dse.lab.exchange import chakra
from dse.views.trace import kineto
from dse.views.trace.kernels import device_step

if TYPE_CHECKING:
    from dse.cli.trace import TraceRequest


def write_chakra(request: TraceRequest) -> str:
    """Write the Chakra execution traces of all ranks, and say what is written."""
    ranks, nodes = chakra.write(request.step, request.design, request.description, request.output, request.force)
    return f"{nodes:,} nodes of {ranks:,} ranks"


def write_kineto(request: TraceRequest) -> str:
    """Write the step of one rank as the PyTorch profiler does, and say what is written."""
    place = kineto.place_of(request.design, request.rank)
    if request.rank >= place.world:
        raise InputError("--rank", str(request.rank), f"0 to {place.world - 1}", "name a rank of the design")
    step = device_step(request.design, place.stage, request.step)
    device = "NVIDIA " + (accelerator_of(request.system) or request.system).upper().replace("-", " ")
    kineto.write(step, request.design, request.rank, request.output, device, request.about, request.force)
    stages = len(request.step.plan.orders)
    return f"{counted(len(step.kernels), 'kernel')} of rank {request.rank}, stage {place.stage} of {stages}"
