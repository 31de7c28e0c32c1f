"""Claims on state that is kept outside of the device: hosts and drives."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from docs.make.studies.claim import LAW, Case, Claim, about, least, reached
from dse.types import Infeasible, Metrics

#: A host with 768 GB and twelve drives (Fuyou: Liao et al. 2024, section 5.1), of two Xeon Gold 5320: 26 cores and eight
#: channels of DDR4-2933 each (data sheet).
DRIVES = {
    "host.capacity": 768e9,
    "host.bandwidth": 25e9,
    "storage_capacity": 40e12,
    "storage_read": 28e9,
    "storage_write": 20e9,
    "host_memory_bandwidth": 375.4e9,
    "host_cores": 52,
}
OFFLOADED = dict(offload_weights=1.0, offload_activations=1.0, offload_optimizer=1.0, recompute="full")


def tuned_on_one(workload: str, **settings: Any) -> Case:
    """A model on one RTX 4090 whose state is all off the device."""
    return Case(
        workload,
        "rtx-4090",
        "fsdp",
        {
            "n_devices": 1,
            "precision": "fp16",
            "global_batch": 8,
            "micro_batch": 1,
            "gradient_bytes": 2.0,
            "reserve": 0.0,
            "seq_len": 1024,
            **OFFLOADED,
            **DRIVES,
            "offload_gradients": 1.0,
            "host_update": 1.0,
            **settings,
        },
    )


LARGE = tuned_on_one("gpt-3-175b", storage_optimizer=1.0)

_BATCH = dict(global_batch=32, micro_batch=32, storage_optimizer=1.0)
#: Fuyou (sections 4.1 to 4.3): updates while gradients come, groups read ahead and written behind, and activations
#: swapped as far as passes hide them, the rest computed again: half of the layers, the least time in tenths.
FUYOU = tuned_on_one(
    "gpt-3-13b",
    **_BATCH,
    storage_activations=1.0,
    recompute_share=0.5,
    update_overlap=1.0,
    pipeline_read=1,
    pipeline_write=1,
)
#: ZeRO-Infinity as DeepSpeed has it by default: an update after the backward pass, each group read, updated and written
#: in turn (``pipeline_read``, ``pipeline_write``); gradients copied at once in fp32 and kept on drives (``stage3.py``);
#: checkpoints copied at once to pageable memory (``activation_checkpointing/checkpointing.py``). Buffers of weights and
#: state on drives are page-locked (``swap_tensor``).
INFINITY_ON_ONE = tuned_on_one(
    "gpt-3-13b",
    **_BATCH,
    storage_weights=1.0,
    update_overlap=0.0,
    storage_gradients=1.0,
    gradient_depth=0,
    gradient_copy_bytes=4.0,
    activation_depth=0,
    pinned_activations=0,
)

#: Sixteen bytes a parameter (ZeRO-Infinity: Rajbhandari et al. 2021, section 1 and figure 1).
INFINITY = Case(
    "megatron-1t",
    "v100-sxm-32gb",
    "fsdp",
    dict(
        n_devices=800,
        tp=8,
        zero_stage=3,
        recompute="full",
        precision="fp16",
        micro_batch=1,
        global_batch=800,
        sequence_parallel=1,
        gradient_bytes=2.0,
    ),
)

#: With the optimiser on drives (figure 5a): groups read ahead and written behind (section 6.2), hosts of 48 cores, twelve
#: channels of DDR4-2666 and four of sixteen devices behind each link (DGX-2, data sheet). Five sequences of 1,024 a
#: device (table 1, from memory), which tp gathers for a replica.
INFINITY_ON_DRIVES = Case("megatron-1t", "v100-sxm-32gb", "deepspeed-zero-2021", {
    "n_devices": 512, "tp": 4, "zero_stage": 3, "precision": "fp16", "micro_batch": 20, "global_batch": 2560,
    "seq_len": 1024, "storage_gradients": 1.0, "gradient_copy_bytes": 4.0, "pipeline_read": 1, "pipeline_write": 1, "link_sharing": 4,
    "host_memory_bandwidth": 16e9, "host_cores": 3,
    "gradient_bytes": 2.0, "offload_gradients": 1.0, "host_update": 1.0, "storage_optimizer": 1.0,
    "sequence_parallel": 1, "overlap_dp": 1, **OFFLOADED, "offload_weights": 0.0, "storage_read": 1.6e9,
    "storage_write": 1.6e9, "host.capacity": 94e9,
})  # fmt: skip

#: Deep Optimizer States (Maurya et al. 2024): device and host share the optimiser.
SHARED = Case(
    "llama-13b",
    "h100",
    "fsdp",
    dict(n_devices=4, global_batch=4, seq_len=2048, zero_stage=3, recompute="full", offload_optimizer=1.0),
)


def fits(reasons: Metrics) -> bool:
    """Whether the devices have the memory."""
    return int(reasons.infeasible_reason) & Infeasible.memory == 0


def _infinity() -> tuple[float, ...]:
    found = (INFINITY.metrics(n_devices=n, global_batch=n) for n in (800, 400))
    return tuple(float(fits(one)) for one in found)


def petaflops(case: Case = INFINITY_ON_DRIVES) -> float:
    """Rate of model FLOPs in PFLOP/s."""
    found = case.metrics()
    return float(found.model_flops / found.step_time) / 1e15


def shared_updates() -> list[float]:
    """Step times by the share of the optimiser on the host, from 0 to 1 in tenths."""
    return [float(SHARED.metrics(host_update=share / 10.0).step_time) for share in range(11)]


def _shared() -> tuple[float, float]:
    """The best share, and the gain over all on the host."""
    times = shared_updates()
    return times.index(min(times)) / 10.0, times[-1] / min(times)


def by_share() -> list[Metrics]:
    """Metrics of Llama-7B by the share of everything that is off the device (Superpipeline: Abbasi et al. 2024)."""
    roomy = tuned_on_one("llama-7b", **{"system.accelerator.memory.capacity": 200e9})
    names = [name for name in OFFLOADED if name.startswith("offload")] + ["offload_gradients", "host_update"]
    return [roomy.metrics(**dict.fromkeys(names, share)) for share in (0.0, 0.25, 0.5, 0.75, 1.0)]


def _superpipeline() -> tuple[float, float]:
    """Memory saved, and the least ratio of step times from one share to the next."""
    rows = by_share()
    saved = 100.0 * (1.0 - float(rows[-1].peak_memory / rows[0].peak_memory))
    return saved, min(float(more.step_time / less.step_time) for less, more in itertools.pairwise(rows))


def _large() -> tuple[float, ...]:
    """Whether 175B runs with drives, and with host memory alone."""
    return tuple(float(LARGE.metrics(storage_optimizer=share).feasible) for share in (1.0, 0.0))


def _teraflops(case: Case) -> float:
    """Rate of model FLOPs in TFLOP/s."""
    return 1e3 * petaflops(case)


def _fuyou() -> tuple[float]:
    return (float(INFINITY_ON_ONE.metrics().step_time / FUYOU.metrics().step_time),)


def claims() -> Iterator[Claim]:
    """All of this file, in the order of the page."""
    yield Claim(
        "infinity-fits",
        "ZeRO-Infinity",
        "1T without offloading fits 800 V100, 400",
        "1, 0",
        _infinity,
        ((1.0, 1.0), (0.0, 0.0)),
        "{:.0f}, {:.0f}",
        cases=(INFINITY,),
    )
    yield Claim(
        "infinity-drives",
        "ZeRO-Infinity",
        "1T on 512 V100 with drives",
        "≥ 25 PFLOP/s",
        lambda: (petaflops(),),
        (reached(25.0),),
        "{:.1f}",
        cases=(INFINITY_ON_DRIVES,),
        why=lambda: (
            "DeepSpeed's stack was fitted to six rows of ZeRO 3 without tp; with the kernels of Megatron-LM's, another "
            f"tool's, it would be {petaflops(INFINITY_ON_DRIVES._replace(software='megatron-2021')):.0f}. Batch and "
            "sequence are from memory"
        ),
    )
    yield Claim(
        "shared-updates",
        "Deep Optimizer States",
        "best share on the host; gain",
        "0 to 1, ≤ 2.5",
        _shared,
        ((0.05, 0.95), (1.0, 2.5)),
        "{:.1f}, {:.2f}",
        LAW,
        "Theirs is of other models and hosts; 0 and 1 would be no optimum",
        cases=(SHARED,),
    )
    yield Claim(
        "superpipeline",
        "Superpipeline",
        "most memory saved; time by a quarter more off the device, least (≥ 1)",
        "60 %, –",
        _superpipeline,
        ((60.0, 100.0), least(1.0 - 1e-6)),
        "{:.0f} %, {:.2f}",
        LAW,
        "Theirs is what a run saved, ours what all off the device saves: 60 % lies on the way",
    )
    yield Claim(
        "fuyou-fits",
        "Fuyou",
        "175B on one 4090: with drives, host alone",
        "1, 0",
        _large,
        ((1.0, 1.0), (0.0, 0.0)),
        "{:.0f}, {:.0f}",
        cases=(LARGE,),
    )
    yield Claim(
        "fuyou-gain",
        "Fuyou",
        "13B over ZeRO-Infinity, ± 30 %",
        "3.5",
        _fuyou,
        (about(3.5, 0.3),),
        "{:.2f}",
        cases=(FUYOU, INFINITY_ON_ONE),
        why=lambda: (
            "ZeRO-Infinity's schedule gives {:.0f} of its 45 TFLOP/s, Fuyou's {:.0f} of 156: all of it is hidden, and "
            "what is left are kernels of Ada, which are priors".format(*map(_teraflops, (INFINITY_ON_ONE, FUYOU)))
        ),
    )
