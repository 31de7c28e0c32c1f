"""Kernels of a trace matched to operators and messages of the predicted step.

Products by the shapes that launched them, else by their order; attention and element-wise kernels by name and pass;
collectives by kind, bytes and ranks, else by kind. Nothing is dropped: what is not matched is listed by name.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dse.lab.evidence.traces import KernelKind, RankTrace
from dse.measured.profiles.kernels import CLASSES, COPY_CLASS, KERNEL_NAMES, MESSAGE_CLASS, name_patterns
from dse.measured.profiles.messages import KINDS, TracedMessage
from dse.types import Scope
from dse.views.trace import FORWARD, RECOMPUTE, DeviceStep, TraceKernel

#: How a kernel was matched.
BY_SHAPE, BY_NAME, BY_ORDER, BY_KIND, UNMATCHED = "shape", "name", "order", "kind", ""

#: Sorts of element-wise kernels, by words of their names; the first that is found counts.
SORTS = name_patterns("sorts")

_BACKWARD = re.compile(r"bwd|backward|grad|dgrad|wgrad", re.IGNORECASE)

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


@dataclasses.dataclass(frozen=True, eq=False)
class MatchedTrace:
    """A trace with the class of each of its kernels."""

    trace: RankTrace
    classes: list[KernelClass]
    class_index: np.ndarray  #: index of the class of a kernel, -1 for none [kernels]
    shares: dict[str, float]  #: how → share of the kernels' time
    unmatched: dict[str, float]  #: name → s a step, longest first

    def of_classes(self, field: str) -> np.ndarray:
        """Return a field of each class [classes]."""
        return np.array([getattr(kernel_class, field) for kernel_class in self.classes])

    def is_family(self, *families: str) -> np.ndarray:
        """Return True for the classes of some families [classes]."""
        return np.isin(self.of_classes("family"), families)

    def of_kernels(self, class_values: Sequence[Any] | np.ndarray, unmatched_value: Any = False) -> np.ndarray:
        """Return the value of the class of each kernel [kernels], from those of the classes [classes]."""
        return np.array([*class_values, unmatched_value])[self.class_index]

    def sums(self, kernel_values: np.ndarray) -> np.ndarray:
        """Return the sum a step over the kernels of each class [classes], from values of the kernels [kernels]."""
        is_matched = self.class_index >= 0
        totals = np.bincount(self.class_index[is_matched], kernel_values[is_matched], len(self.classes))
        return np.asarray(totals / self.trace.n_steps)

    @property
    def product_share(self) -> float:
        """Share of the time of products that is matched, by their shapes or their order; 0 without products."""
        seconds, is_product = self.trace.seconds, self.trace.labels == _GEMM
        matched = float(seconds[is_product & (self.class_index >= 0)].sum())
        return matched / max(float(seconds[is_product].sum()), 1e-30)

    @functools.cached_property
    def launches(self) -> np.ndarray:
        """Number of kernels a step of each class [classes]."""
        return self.sums(np.ones(len(self.class_index)))

    @functools.cached_property
    def seconds(self) -> np.ndarray:
        """Measured s a step of the kernels of each class [classes]."""
        return self.sums(self.trace.seconds)

    @functools.cached_property
    def expected(self) -> np.ndarray:
        """Predicted s a step of as many kernels of each class as ran [classes]."""
        return self.launches * self.of_classes("seconds_per_kernel")


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
    is_product = kernel.family == "matrix" or kernel.label in ("attention_scores", "attention_context")
    if work is not None and is_product:
        return _product_key(round(work.batch), round(work.rows), round(work.columns), round(work.depth))
    if kernel.family == "attention" and kernel.label == "flash_attention":
        return "attention", "forward" if is_forward else "backward"
    return "elementwise", _sort(kernel.label), "forward" if is_forward else "backward"


def _product_key(batch: int, rows: int, columns: int, depth: int) -> tuple[Any, ...]:
    """Return the key of a matrix product, the same with rows and columns exchanged."""
    return "product", batch, min(rows, columns), max(rows, columns), depth


def _sort(name: str) -> str:
    """Return the sort of an element-wise operator, or its name where no word of a sort is in it."""
    sorts = (sort for sort, pattern in SORTS.items() if pattern.search(name))
    return KERNEL_NAMES["operator_sorts"].get(name) or next(sorts, name)


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
    unmatched = Counter[str]()
    for i in np.flatnonzero(class_index < 0):
        unmatched[trace.kinds[trace.kind_index[i]].name] += float(seconds[i]) / trace.n_steps  # type: ignore[assignment]
    return MatchedTrace(trace, classes, class_index, shares, dict(unmatched.most_common()))


def _match_kind(
    kind: KernelKind, index_by_key: Mapping[tuple[Any, ...], int], classes: list[KernelClass]
) -> tuple[int, str]:
    """Return the class index of a kind of kernels, -1 for none, and the method of matching, "" for none."""
    if kind.label == MESSAGE_CLASS:
        return _match_message(kind, index_by_key, classes)
    direction = "backward" if _BACKWARD.search(kind.name) else "forward"
    product = product_of(kind.dims) if kind.label != COPY_CLASS else None
    if product and product in index_by_key:
        return index_by_key[product], BY_SHAPE
    keys: list[tuple[Any, ...]] = [("copy",)] if kind.label == COPY_CLASS else []
    if kind.label == ATTENTION:
        keys.append(("attention", direction))
    if kind.label not in (COPY_CLASS, _GEMM):  # products without shapes perhaps by order
        sort = next((sort for sort, pattern in SORTS.items() if pattern.search(kind.name)), "")
        keys += [("optimizer",)] if sort == "optimizer" else []
        labels = (key[1] for key in index_by_key if key[0] == "elementwise" and key[1] in kind.name)
        keys += [("elementwise", name, direction) for name in (sort, *labels)]
    key = next((key for key in keys if key in index_by_key), None)
    return (index_by_key[key], BY_NAME) if key else (-1, UNMATCHED)


#: Indices of the classes of attention and of products.
ATTENTION, _GEMM = (list(CLASSES).index(name) for name in ("attention", "gemm"))


def product_of(dims: tuple[tuple[int, ...], ...]) -> tuple[Any, ...] | None:
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
    collective, n_bytes, ranks, *_ = kind.message or TracedMessage("")
    name = KINDS.get(collective.lower(), "")
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


def shapeless_products(trace: RankTrace) -> np.ndarray:
    """Return True for each kernel of a product whose operator has no shapes [kernels]."""
    is_shapeless = [kind.label == _GEMM and not kind.dims for kind in trace.kinds]
    return np.asarray(np.array(is_shapeless, bool)[trace.kind_index])


def _match_by_order(
    trace: RankTrace,
    device_step: DeviceStep,
    index_by_key: Mapping[tuple[Any, ...], int],
    class_index: np.ndarray,
    methods: np.ndarray,
) -> None:
    """Match products without shapes in order where as many are predicted: fill ``class_index`` and ``methods``."""
    positions = np.flatnonzero(shapeless_products(trace) & (class_index < 0))
    expected_keys = [key for kernel in device_step.kernels if (key := key_of(kernel))[0] == "product"]
    expected_classes = [index_by_key[key] for key in expected_keys]
    if len(positions) and len(expected_classes) and len(positions) == len(expected_classes) * trace.n_steps:
        class_index[positions] = expected_classes * trace.n_steps
        methods[positions] = BY_ORDER
