"""A step in the form of the PyTorch profiler's traces (Kineto), one file a rank: what profiles of the same step have.

Kernels with stream, correlation, grid and the operator that launched them with its shapes; collectives with the
metadata that NCCL records; the step as ``ProfilerStep#``. Times are microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dse.designs import accelerator_of
from dse.errors import InputError
from dse.io import chrome_trace, counted
from dse.io.chrome_trace import MICROSECONDS, span
from dse.measured.profiles.kernels import KERNEL_NAMES
from dse.types import Design, Scope
from dse.views.trace import (
    FORWARD,
    INPUT_GRADIENT,
    RECOMPUTE,
    DeviceStep,
    RankPlace,
    TraceKernel,
    device_step,
    message_group,
    rank_place,
)

if TYPE_CHECKING:
    from dse.capabilities.trace import TraceRequest

#: Start of the step in a file, µs; process and thread of the host.
_START = 1e6
_HOST = (4000, 4000)

#: Number of the step, the first that profilers keep after one of waiting and one of warm-up.
_STEP = 2

#: Message → names of NCCL's kernel and of what PyTorch calls; element-wise operator → words of its kernel's name.
_COLLECTIVES, _NAMES = (KERNEL_NAMES["written"][table] for table in ("messages", "operators"))

#: Ranks of a group that are listed.
_LISTED_RANKS = 64


def write(
    step: DeviceStep,
    design: Design,
    rank: int,
    path: str | Path,
    device: str = "",
    metadata: Mapping[str, Any] | None = None,
    force: bool = False,
) -> None:
    """Write the step of a rank as a trace of the PyTorch profiler (JSON).

    Args:
        step: the step of a device of the rank's stage.
        design: its design.
        rank: the rank.
        path: JSON file.
        device: name of the accelerator, as a driver says it.
        metadata: metadata of the trace; with ``leaves``, a reader knows the design.
        force: replace a file that dse has not written.
    """
    place = rank_place(design, rank)
    head: dict[str, Any] = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": device}],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": place.world_size},
    }
    chrome_trace.write(events(step, design, place), metadata or {}, path, force, head)


def events(step: DeviceStep, design: Design, place: RankPlace) -> Iterator[dict[str, Any]]:
    """Yield the events of a rank, JSON-ready: names, the step, operators of the host and kernels of the device.

    Args:
        step: of a device of the rank's stage.
        design: its design.
        place: the rank.
    """
    for pid in (_HOST[0], 0):
        yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": _START, "args": {"name": "python"}}
    times_us = _START, _us(step.total)
    yield span(f"ProfilerStep#{_STEP}", "user_annotation", _HOST, times_us, {"External id": 1})
    for event_id, kernel in enumerate(step.kernels, 2):
        if kernel.shape is not None and kernel.family in ("matrix", "attention"):
            yield _host_operator(kernel, event_id)
        args: dict[str, Any] = {"External id": event_id, "device": 0, "context": 1, "stream": kernel.stream}
        args["correlation"] = event_id
        category = "gpu_memcpy" if kernel.family == "copy" else "kernel"
        if category == "kernel":
            args |= {"grid": _grid(kernel), "block": [256, 1, 1]}
        args |= _collective(kernel, design, place) if kernel.family in ("message", "wait") else {}
        times_us = _START + _us(kernel.start), _us(kernel.seconds)
        yield span(_name(kernel), category, (0, kernel.stream), times_us, args)


def _us(seconds: float) -> float:
    """Return seconds as microseconds, to the nanosecond."""
    return round(seconds * MICROSECONDS, 3)


def _name(kernel: TraceKernel) -> str:
    """Return the name of a kernel as PyTorch's traces have it."""
    if kernel.family in ("message", "wait"):
        tied = kernel.message is None or kernel.message.scope is Scope.tied_embedding
        kind = "all_reduce" if kernel.message is None or tied else kernel.message.kind
        return f"ncclDevKernel_{_COLLECTIVES[kind][0]}_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    if kernel.family == "copy":
        return "Memcpy HtoD (Pinned -> Device)"
    if kernel.family == "optimizer":
        return "void at::native::multi_tensor_apply_kernel<AdamFunctor>"
    is_forward = kernel.pass_name in (FORWARD, RECOMPUTE)
    if kernel.family == "attention" and kernel.label not in _NAMES:
        return f"void flash_{'fwd' if is_forward else 'bwd_dq_dk_dv_loop'}_kernel<{kernel.label}>"
    if kernel.family == "matrix":
        layout = "TNT" if is_forward else "NNT" if kernel.pass_name == INPUT_GRADIENT else "NTT"
        return f"nvjet_hsh_128x256_64x4_2x1_v_bz_{layout}"
    stem = _NAMES.get(kernel.label, f"triton_{kernel.label}")
    return f"void {stem}_{'forward' if is_forward else 'backward'}_kernel(...)"


def _host_operator(kernel: TraceKernel, event_id: int) -> dict[str, Any]:
    """Return the event of the host's operator that launches a product or attention, with the shapes of its inputs."""
    work = kernel.shape
    assert work is not None, "an operator has a shape"
    rows, columns, depth, batch = (round(value) for value in work[1:5])
    is_forward = kernel.pass_name in (FORWARD, RECOMPUTE)
    if kernel.family == "attention" and kernel.label == "flash_attention":
        name = f"flash_attn::_flash_attn_{'forward' if is_forward else 'backward'}"
        dims = [[1, depth, batch, columns]]
    elif batch > 1:
        name, dims = "aten::bmm", [[batch, rows, depth], [batch, depth, columns]]
    else:
        name, dims = "aten::mm", [[rows, depth], [depth, columns]]
    args = {"External id": event_id, "Input Dims": dims, "Input type": ["c10::BFloat16"] * len(dims)}
    return span(name, "cpu_op", _HOST, (_START + max(_us(kernel.start) - 20.0, 0.0), 4.0), args)


def _grid(kernel: TraceKernel) -> list[int]:
    """Return the three counts of blocks of threads of a kernel."""
    work = kernel.shape
    if work is None:
        return [132, 1, 1]
    return [max(math.ceil(work.rows / 128), 1), max(math.ceil(work.columns / 256), 1), max(round(work.batch), 1)]


def _collective(kernel: TraceKernel, design: Design, place: RankPlace) -> dict[str, Any]:
    """Return the arguments that NCCL records of a collective or of a message to another stage: name → value."""
    message = kernel.message
    if message is None:  # the norm of all gradients
        return _nccl_args("allreduce", 1, 1, "Float", range(place.world_size), "norm")
    element, dtype = _element(message.scope, design)
    count = max(round(message.size / element), 1)
    name = _COLLECTIVES[message.kind][1]
    if kernel.peer:
        other = place.neighbour(kernel.peer)
        ends = (other, place.rank) if kernel.family == "wait" else (place.rank, other)
        args = _nccl_args("recv" if kernel.family == "wait" else "send", count, count, dtype, sorted(ends), "pp")
        return args | {"Src Rank": ends[0], "Dst Rank": ends[1], "Seq": kernel.number}
    if message.scope is Scope.tied_embedding:  # of the first and the last stage
        first = place.rank % place.ranks_per_stage
        return _nccl_args(
            "allreduce", count, count, dtype, [first, first + place.world_size - place.ranks_per_stage], "embedding"
        )
    ranks = message_group(message, design, place.stage).members(place)
    part = max(round(count / message.ranks), 1)
    n_sent, n_received = {"all_gather": (part, count), "reduce_scatter": (count, part)}.get(
        message.kind, (count, count)
    )
    return _nccl_args(name, n_sent, n_received, dtype, ranks, f"{message.dimension.name} {message.scope.name}")


def _nccl_args(name: str, n_sent: int, n_received: int, dtype: str, ranks: Sequence[int], group: str) -> dict[str, Any]:
    """Return the arguments that NCCL records: name → value; counts of elements, members and name of the group."""
    rank_list = ", ".join(map(str, ranks[:_LISTED_RANKS])) + (", ..." if len(ranks) > _LISTED_RANKS else "")
    return {
        "Collective name": name,
        "In msg nelems": n_sent,
        "Out msg nelems": n_received,
        "dtype": dtype,
        "Group size": len(ranks),
        "Process Group Name": group,
        "Process Group Ranks": f"[{rank_list}]",
    }


def _element(scope: Scope, design: Design) -> tuple[float, str]:
    """Return the bytes of an element of a message, and the name of its type."""
    if scope in (Scope.weights, Scope.expert_weights, Scope.tied_embedding):
        return (4.0, "Float") if float(design.software.gradient_message_bytes) > 2.0 else (2.0, "BFloat16")
    return 2.0, "BFloat16"


def write_kineto(request: TraceRequest) -> str:
    """Write the step of one rank as the PyTorch profiler does, and return what was written in words.

    Returns:
        Count of kernels, rank and stage, such as "512 kernels of rank 0, stage 0 of 4".

    Raises:
        InputError: for a rank that the design does not have.
    """
    place = rank_place(request.design, request.rank)
    if request.rank >= place.world_size:
        raise InputError("--rank", str(request.rank), f"0 to {place.world_size - 1}", "name a rank of the design")
    step = device_step(request.design, place.stage, request.step)
    device = "NVIDIA " + (accelerator_of(request.system) or request.system).upper().replace("-", " ")
    write(step, request.design, request.rank, request.output, device, request.about, request.force)
    stages = len(request.step.plan.orders)
    return f"{counted(len(step.kernels), 'kernel')} of rank {request.rank}, stage {place.stage} of {stages}"
