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

from dse.lab.evidence.traces import OF_MESSAGES, RankTrace, SeenKernel
from dse.measured.profiles.kernels import COPY_CLASS
from dse.types import Scope
from dse.views.trace import FORWARD, RECOMPUTE, DeviceStep, TraceKernel

#: How a kernel was matched.
BY_SHAPE, BY_NAME, BY_ORDER, BY_KIND, NOT = "shape", "name", "order", "kind", ""

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
    number: int
    seconds: float  #: of all, a step
    forward: bool  #: whether some are of a forward
    compute_bound: bool
    level: str = ""  #: network of a message
    after: bool = False  #: whether it belongs to no pass

    @property
    def each(self) -> float:
        """Seconds of one of them."""
        return self.seconds / self.number


class Matched(NamedTuple):
    """A trace with the class of each kernel."""

    trace: RankTrace
    classes: list[KernelClass]
    of: np.ndarray  #: index of the class of a kernel, -1 for none [kernels]
    shares: dict[str, float]  #: how → share of the kernels' time
    unmatched: dict[str, float]  #: name → s a step, longest first

    def times(self, at: int) -> float:
        """Kernels of a class a step."""
        return float((self.of == at).sum()) / self.trace.steps

    def seconds(self, at: int) -> float:
        """Seconds of the kernels of a class a step."""
        return float(self.trace.seconds[self.of == at].sum()) / self.trace.steps


def classes_of(found: DeviceStep) -> list[KernelClass]:
    """Classes of the kernels of a predicted step, in order of their first kernels."""
    listed: dict[tuple[Any, ...], list[TraceKernel]] = {}
    for kernel in found.kernels:
        listed.setdefault(key_of(kernel), []).append(kernel)
    return [_class(key, own) for key, own in listed.items()]


def _class(key: tuple[Any, ...], own: list[TraceKernel]) -> KernelClass:
    first = own[0]
    names = dict.fromkeys(one.label for one in own)
    work, message = first.shape, first.message
    return KernelClass(
        key,
        ", ".join(names),
        first.family,
        len(own),
        sum(one.seconds for one in own),
        any(one.of_pass in (FORWARD, RECOMPUTE) for one in own),
        work is None or work.compute_bound > 0.5,
        message.level if message else "",
        not first.of_pass and first.micro_batch < 0,
    )


def key_of(kernel: TraceKernel) -> tuple[Any, ...]:
    """What a trace can know of a predicted kernel."""
    work, ahead = kernel.shape, kernel.of_pass in (FORWARD, RECOMPUTE)
    if kernel.family == "wait":
        return ("recv",) if kernel.peer else ("norm",)
    if kernel.family == "message" and kernel.message is not None:
        kind = "all_reduce" if kernel.message.scope is Scope.tied_embedding else kernel.message.kind
        return "message", kind, round(kernel.message.size), round(kernel.message.ranks)
    if kernel.family in ("optimizer", "copy"):
        return (kernel.family,)
    if work is not None and (kernel.family == "matrix" or (kernel.family == "attention" and _is_product(kernel))):
        return _shape(round(work.batch), round(work.rows), round(work.columns), round(work.depth))
    if kernel.family == "attention" and kernel.label == "flash_attention":
        return "attention", "forward" if ahead else "backward"
    return "elementwise", _sort(kernel.label), "forward" if ahead else "backward"


def _is_product(kernel: TraceKernel) -> bool:
    return kernel.label in ("attention_scores", "attention_context")


def _shape(batch: int, rows: int, columns: int, depth: int) -> tuple[Any, ...]:
    return "product", batch, min(rows, columns), max(rows, columns), depth


def _sort(name: str) -> str:
    if name in _SORT_OF:
        return _SORT_OF[name]
    return next((sort for sort, sign in SORTS.items() if sign.search(name)), name)


def match(trace: RankTrace, found: DeviceStep) -> Matched:
    """Match a trace to the predicted step of its stage."""
    classes = classes_of(found)
    at = {one.key: i for i, one in enumerate(classes)}
    ways = [_of_kind(kind, at, classes) for kind in trace.kinds]
    of = np.array([way[0] for way in ways], np.int64)[trace.kind]
    how = np.array([way[1] for way in ways], object)[trace.kind]
    _by_order(trace, found, at, of, how)
    seconds, whole = trace.seconds, max(float(trace.seconds.sum()), 1e-30)
    shares = {way: float(seconds[how == way].sum()) / whole for way in (BY_SHAPE, BY_NAME, BY_ORDER, BY_KIND)}
    left: dict[str, float] = {}
    for i in np.flatnonzero(of < 0):
        name = trace.kinds[trace.kind[i]].name
        left[name] = left.get(name, 0.0) + float(seconds[i]) / trace.steps
    return Matched(trace, classes, of, shares, dict(sorted(left.items(), key=lambda item: -item[1])))


def _of_kind(kind: SeenKernel, at: Mapping[tuple[Any, ...], int], classes: list[KernelClass]) -> tuple[int, str]:
    """Class of a kind of kernels, and how it was found."""
    if kind.label == OF_MESSAGES:
        return _of_message(kind, at, classes)
    if kind.label == COPY_CLASS:
        return at.get(("copy",), -1), BY_NAME if ("copy",) in at else NOT
    back = "backward" if _BACKWARD.search(kind.name) else "forward"
    if key := _product_of(kind.dims):
        if key in at:
            return at[key], BY_SHAPE
        if kind.label == _GEMM:
            return -1, NOT
    if kind.label == _ATTENTION and ("attention", back) in at:
        return at["attention", back], BY_NAME
    if kind.label == _GEMM:
        return -1, NOT  # perhaps by order
    sort = next((sort for sort, sign in SORTS.items() if sign.search(kind.name)), "")
    if sort == "optimizer" and ("optimizer",) in at:
        return at["optimizer",], BY_NAME
    for name in (sort, *(key[1] for key in at if key[0] == "elementwise" and key[1] in kind.name)):
        if ("elementwise", name, back) in at:
            return at["elementwise", name, back], BY_NAME
    return -1, NOT


_ATTENTION, _GEMM = 1, 2


def _product_of(dims: tuple[tuple[int, ...], ...]) -> tuple[Any, ...] | None:
    """Shape of the product of the first two inputs that can be multiplied; a bias may stand before them."""
    for left, right in itertools.pairwise(dims):
        if len(left) == len(right) == 2 and left[1] == right[0]:
            return _shape(1, left[0], right[1], left[1])
        if len(left) == len(right) == 3 and left[0] == right[0] and left[2] == right[1]:
            return _shape(left[0], left[1], right[2], left[2])
        if len(left) > 2 and len(right) == 2 and left[-1] in right:  # of a linear layer, whose weight is transposed
            rows = int(np.prod(left[:-1]))
            return _shape(1, rows, right[0] if right[1] == left[-1] else right[1], left[-1])
    return None


def _of_message(kind: SeenKernel, at: Mapping[tuple[Any, ...], int], classes: list[KernelClass]) -> tuple[int, str]:
    collective, size, ranks = kind.message or ("", 0, 0)
    name = _KINDS.get(collective.lower(), "")
    if name == "recv":
        return at.get(("recv",), -1), BY_KIND if ("recv",) in at else NOT
    if name == "all_reduce" and 0 < size <= 64 and ("norm",) in at:
        return at["norm",], BY_KIND
    own = [i for i, one in enumerate(classes) if one.key[:2] == ("message", name)]
    exact = [i for i in own if ranks == classes[i].key[3] and size and _near(size, classes[i].key[2])]
    if exact:
        return exact[0], BY_SHAPE
    own = [i for i in own if not ranks or ranks == classes[i].key[3]]
    return (own[0], BY_KIND) if len(own) == 1 and not size else (-1, NOT)


def _near(one: float, other: float) -> bool:
    return max(one, other) <= _BYTES * max(min(one, other), 1.0)


def _by_order(
    trace: RankTrace, found: DeviceStep, at: Mapping[tuple[Any, ...], int], of: np.ndarray, how: np.ndarray
) -> None:
    """Products without shapes: one by one, where there are as many as predicted."""
    labels = trace.labels
    shapeless = np.array([kind.label == _GEMM and not kind.dims for kind in trace.kinds], bool)[trace.kind]
    place = np.flatnonzero(shapeless & (of < 0) & (labels == _GEMM))
    listed = [at[key_of(kernel)] for kernel in _products(found)]
    if len(place) and len(listed) and len(place) == len(listed) * trace.steps:
        of[place] = listed * trace.steps
        how[place] = BY_ORDER


def _products(found: DeviceStep) -> Iterable[TraceKernel]:
    return (one for one in found.kernels if key_of(one)[0] == "product")
