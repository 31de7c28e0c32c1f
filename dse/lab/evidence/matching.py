"""Kernels of a trace matched to operators and messages of the predicted step.

Products by the shapes that launched them, else by their order; attention and element-wise kernels by name and pass;
collectives by kind, bytes and ranks, else by kind. Nothing is dropped: what is not matched is listed by name.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from dse.lab.evidence.traces import MESSAGE_CLASS, KernelKind, RankTrace
from dse.measured.profiles.kernels import COPY_CLASS
from dse.types import Scope
from dse.views.trace import FORWARD, RECOMPUTE, DeviceStep, TraceKernel

#: How a kernel was matched.
BY_SHAPE, BY_NAME, BY_ORDER, BY_KIND, UNMATCHED = "shape", "name", "order", "kind", ""

#: Sorts of element-wise kernels, by words of their names; the first that is found counts.
SORTS = {
    "optimizer": re.compile(r"adam|multi_tensor|optimizer|lamb", re.IGNORECASE),
    "norm": re.compile(r"norm|cuComputeGradInput|cuComputePart", re.IGNORECASE),
    "rotary": re.compile(r"rope|rotary", re.IGNORECASE),
    "cross entropy": re.compile(r"entropy|nll|log_?softmax", re.IGNORECASE),
    "softmax": re.compile(r"softmax", re.IGNORECASE),
    "embedding": re.compile(r"embedding|index_?select|gather_?scatter", re.IGNORECASE),
    "activation": re.compile(r"glu|silu|gelu|relu|activation|sigmoid", re.IGNORECASE),
    "residual": re.compile(r"residual|add", re.IGNORECASE),
    "dropout": re.compile(r"dropout", re.IGNORECASE),
    "casts": re.compile(r"cast|quanti[sz]", re.IGNORECASE),
    "small kernels": re.compile(r"copy|cat|fill|transpose|elementwise|vectorized|reduce|small", re.IGNORECASE),
}

#: Operators of the ledger whose names have none of these words.
_SORT_OF = {"prediction_norms": "norm", "quantization": "casts", "embedding_dropout": "dropout"}

_BACKWARD = re.compile(r"bwd|backward|grad|dgrad|wgrad", re.IGNORECASE)

#: Collective of NCCL or PyTorch → kind of message.
_KINDS = {
    "allreduce": "all_reduce", "allgather": "all_gather", "allgather_base": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather", "reducescatter": "reduce_scatter",
    "reduce_scatter": "reduce_scatter", "reduce_scatter_base": "reduce_scatter", "all_gather": "all_gather",
    "reduce_scatter_tensor_coalesced": "reduce_scatter", "all_to_all": "all_to_all", "all_to_allv": "all_to_all",
    "alltoall_base": "all_to_all", "alltoall": "all_to_all", "send": "send", "recv": "recv", "sendrecv": "send",
}  # fmt: skip

#: Bytes of a message over those predicted, within which they are the same.
_BYTES = 1.1


class KernelClass(NamedTuple):
    """Kernels of the predicted step that a trace does not tell apart."""

    key: tuple[Any, ...]
    name: str  #: of operators or message
    family: str  #: of :class:`dse.views.trace.kernels.TraceKernel`
    n_kernels: int
    predicted_seconds: float  #: of all, a step
    has_forward: bool  #: whether some are of a forward
    compute_bound: bool
    level: str = ""  #: network of a message
    is_after_passes: bool = False  #: whether it belongs to no pass

    @property
    def seconds_per_kernel(self) -> float:
        """Predicted seconds of one kernel."""
        return self.predicted_seconds / self.n_kernels


class MatchedTrace(NamedTuple):
    """A trace with the class of each of its kernels."""

    trace: RankTrace
    classes: list[KernelClass]
    class_index: np.ndarray  #: index of the class of a kernel, -1 for none [kernels]
    shares: dict[str, float]  #: how → share of the kernels' time
    unmatched: dict[str, float]  #: name → s a step, longest first

    def launches(self, index: int) -> float:
        """Return the number of kernels a step of a class, by its index."""
        return float((self.class_index == index).sum()) / self.trace.n_steps

    def seconds(self, index: int) -> float:
        """Return the s a step of the kernels of a class, by its index."""
        return float(self.trace.seconds[self.class_index == index].sum()) / self.trace.n_steps


def classes_of(device_step: DeviceStep) -> list[KernelClass]:
    """Return the classes of the kernels of a predicted step, in order of their first kernels."""
    kernels_by_key: dict[tuple[Any, ...], list[TraceKernel]] = {}
    for kernel in device_step.kernels:
        kernels_by_key.setdefault(key_of(kernel), []).append(kernel)
    return [_kernel_class(key, kernels) for key, kernels in kernels_by_key.items()]


def _kernel_class(key: tuple[Any, ...], kernels: list[TraceKernel]) -> KernelClass:
    """Return the class of predicted kernels with one key; shape and message are those of the first."""
    first = kernels[0]
    names = dict.fromkeys(kernel.label for kernel in kernels)
    work, message = first.shape, first.message
    return KernelClass(
        key,
        ", ".join(names),
        first.family,
        len(kernels),
        sum(kernel.seconds for kernel in kernels),
        any(kernel.pass_name in (FORWARD, RECOMPUTE) for kernel in kernels),
        work is None or work.compute_bound > 0.5,
        message.level if message else "",
        not first.pass_name and first.micro_batch < 0,
    )


def key_of(kernel: TraceKernel) -> tuple[Any, ...]:
    """Return what a trace can tell of a predicted kernel: a tuple that begins with a word for its kind."""
    work, is_forward = kernel.shape, kernel.pass_name in (FORWARD, RECOMPUTE)
    if kernel.family == "wait":
        return ("recv",) if kernel.peer else ("norm",)
    if kernel.family == "message" and kernel.message is not None:
        kind = "all_reduce" if kernel.message.scope is Scope.tied_embedding else kernel.message.kind
        return "message", kind, round(kernel.message.size), round(kernel.message.ranks)
    if kernel.family in ("optimizer", "copy"):
        return (kernel.family,)
    if work is not None and (kernel.family == "matrix" or (kernel.family == "attention" and _is_product(kernel))):
        return _product_key(round(work.batch), round(work.rows), round(work.columns), round(work.depth))
    if kernel.family == "attention" and kernel.label == "flash_attention":
        return "attention", "forward" if is_forward else "backward"
    return "elementwise", _sort(kernel.label), "forward" if is_forward else "backward"


def _is_product(kernel: TraceKernel) -> bool:
    """Return True for an attention kernel that is a matrix product of its own."""
    return kernel.label in ("attention_scores", "attention_context")


def _product_key(batch: int, rows: int, columns: int, depth: int) -> tuple[Any, ...]:
    """Return the key of a matrix product, the same with rows and columns exchanged."""
    return "product", batch, min(rows, columns), max(rows, columns), depth


def _sort(name: str) -> str:
    """Return the sort of an element-wise operator, or its name where no word of a sort is in it."""
    if name in _SORT_OF:
        return _SORT_OF[name]
    return next((sort for sort, pattern in SORTS.items() if pattern.search(name)), name)


def match(trace: RankTrace, device_step: DeviceStep) -> MatchedTrace:
    """Return the trace with each kernel matched to a class of the predicted step of its stage."""
    classes = classes_of(device_step)
    index_by_key = {kernel_class.key: i for i, kernel_class in enumerate(classes)}
    class_and_method = [_match_kind(kind, index_by_key, classes) for kind in trace.kinds]
    class_index = np.array([index for index, _ in class_and_method], np.int64)[trace.kind_index]
    methods = np.array([method for _, method in class_and_method], object)[trace.kind_index]
    _match_by_order(trace, device_step, index_by_key, class_index, methods)
    seconds, total_seconds = trace.seconds, max(float(trace.seconds.sum()), 1e-30)
    shares = {
        method: float(seconds[methods == method].sum()) / total_seconds
        for method in (BY_SHAPE, BY_NAME, BY_ORDER, BY_KIND)
    }
    unmatched: dict[str, float] = {}
    for i in np.flatnonzero(class_index < 0):
        name = trace.kinds[trace.kind_index[i]].name
        unmatched[name] = unmatched.get(name, 0.0) + float(seconds[i]) / trace.n_steps
    return MatchedTrace(trace, classes, class_index, shares, dict(sorted(unmatched.items(), key=lambda item: -item[1])))


def _match_kind(
    kind: KernelKind, index_by_key: Mapping[tuple[Any, ...], int], classes: list[KernelClass]
) -> tuple[int, str]:
    """Return the class index of a kind of kernels, -1 for none, and the method of matching, "" for none."""
    if kind.label == MESSAGE_CLASS:
        return _match_message(kind, index_by_key, classes)
    if kind.label == COPY_CLASS:
        return index_by_key.get(("copy",), -1), BY_NAME if ("copy",) in index_by_key else UNMATCHED
    direction = "backward" if _BACKWARD.search(kind.name) else "forward"
    if key := _product_of(kind.dims):
        if key in index_by_key:
            return index_by_key[key], BY_SHAPE
        if kind.label == _GEMM:
            return -1, UNMATCHED
    if kind.label == _ATTENTION and ("attention", direction) in index_by_key:
        return index_by_key["attention", direction], BY_NAME
    if kind.label == _GEMM:
        return -1, UNMATCHED  # perhaps by order
    sort = next((sort for sort, pattern in SORTS.items() if pattern.search(kind.name)), "")
    if sort == "optimizer" and ("optimizer",) in index_by_key:
        return index_by_key["optimizer",], BY_NAME
    for name in (sort, *(key[1] for key in index_by_key if key[0] == "elementwise" and key[1] in kind.name)):
        if ("elementwise", name, direction) in index_by_key:
            return index_by_key["elementwise", name, direction], BY_NAME
    return -1, UNMATCHED


_ATTENTION, _GEMM = 1, 2


def _product_of(dims: tuple[tuple[int, ...], ...]) -> tuple[Any, ...] | None:
    """Return the key of the product of the first two inputs that can be multiplied, None where none can."""
    for first, second in itertools.pairwise(dims):
        if len(first) == len(second) == 2 and first[1] == second[0]:
            return _product_key(1, first[0], second[1], first[1])
        if len(first) == len(second) == 3 and first[0] == second[0] and first[2] == second[1]:
            return _product_key(first[0], first[1], second[2], first[2])
        if len(first) > 2 and len(second) == 2 and first[-1] in second:  # of a linear layer, whose weight is transposed
            rows = int(np.prod(first[:-1]))
            return _product_key(1, rows, second[0] if second[1] == first[-1] else second[1], first[-1])
    return None


def _match_message(
    kind: KernelKind, index_by_key: Mapping[tuple[Any, ...], int], classes: list[KernelClass]
) -> tuple[int, str]:
    """Return the class index of a collective, -1 for none, and the method of matching, "" for none."""
    collective, n_bytes, ranks = kind.message or ("", 0, 0)
    name = _KINDS.get(collective.lower(), "")
    if name == "recv":
        return index_by_key.get(("recv",), -1), BY_KIND if ("recv",) in index_by_key else UNMATCHED
    if name == "all_reduce" and 0 < n_bytes <= 64 and ("norm",) in index_by_key:
        return index_by_key["norm",], BY_KIND
    candidates = [i for i, kernel_class in enumerate(classes) if kernel_class.key[:2] == ("message", name)]
    exact = [
        i for i in candidates if ranks == classes[i].key[3] and n_bytes and _is_same_size(n_bytes, classes[i].key[2])
    ]
    if exact:
        return exact[0], BY_SHAPE
    candidates = [i for i in candidates if not ranks or ranks == classes[i].key[3]]
    return (candidates[0], BY_KIND) if len(candidates) == 1 and not n_bytes else (-1, UNMATCHED)


def _is_same_size(first: float, second: float) -> bool:
    """Return True where two numbers of bytes differ by at most 10 %."""
    return max(first, second) <= _BYTES * max(min(first, second), 1.0)


def _match_by_order(
    trace: RankTrace,
    device_step: DeviceStep,
    index_by_key: Mapping[tuple[Any, ...], int],
    class_index: np.ndarray,
    methods: np.ndarray,
) -> None:
    """Match products without shapes in order where as many are predicted: fill ``class_index`` and ``methods``."""
    labels = trace.labels
    shapeless = np.array([kind.label == _GEMM and not kind.dims for kind in trace.kinds], bool)[trace.kind_index]
    positions = np.flatnonzero(shapeless & (class_index < 0) & (labels == _GEMM))
    expected_classes = [index_by_key[key_of(kernel)] for kernel in _products(device_step)]
    if len(positions) and len(expected_classes) and len(positions) == len(expected_classes) * trace.n_steps:
        class_index[positions] = expected_classes * trace.n_steps
        methods[positions] = BY_ORDER


def _products(device_step: DeviceStep) -> Iterable[TraceKernel]:
    """Yield the predicted kernels that are matrix products, in order."""
    return (kernel for kernel in device_step.kernels if key_of(kernel)[0] == "product")
