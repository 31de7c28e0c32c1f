"""Protocol of all measured tables: rows to cases, cases to designs, designs to predictions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from dse.doors import TRAINING, Study
from dse.measured.names import Lookup
from dse.measured.table import Case, Row, Skip
from dse.model.recipes import RECIPES
from dse.sweep.engine.numpy_backend import evaluate_few
from dse.sweep.engine.point import Program
from dse.types import Design, Precision
from dse.types.trees import Structure, tree_map, tree_structure


@dataclasses.dataclass(frozen=True)
class Prediction:
    """Prediction of a configuration: its chosen design and metrics, or the reason of a skip."""

    case: Case
    design: Design | None = None
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    completed: dict[str, str] = dataclasses.field(default_factory=dict)  #: completed field → value
    note: str = ""
    skip: Skip | None = None
    stack: str = ""  #: slug of the software

    @property
    def chosen(self) -> Design:
        """The chosen design; only of a configuration with one, else an AssertionError."""
        assert self.design is not None, "no design was predicted"
        return self.design


class TableKind(NamedTuple):
    """A kind of measured tables, with the steps from rows to predictions."""

    name: str
    study: Study  #: study of its designs
    matches: Callable[[Sequence[str]], bool]  #: whether a table with these columns is of the kind
    read: Callable[[Sequence[str], list[Row]], list[Case]]  #: columns and rows → configurations with measurements
    complete: Callable[[Case, Lookup], Any]  #: completed configuration; raises :class:`Skip`
    predict: Callable[[Sequence[tuple[Case, Any]], Study], list[Prediction]]  #: all of them, in one batch
    metrics: Callable[[Case], Sequence[str]]  #: predicted metrics of a row


def evaluate_many(designs: Sequence[Design], study: Study = TRAINING) -> dict[str, np.ndarray]:
    """Evaluate the metrics of many designs, traced once per structure.

    Args:
        designs: of plain numbers, in any order of structures.
        study: study of the metrics.

    Returns:
        Metric → its values [designs] in SI units, in the order of the designs.

    >>> import dse
    >>> design = dse.design("gpt-3-13b", "selene", tp=8, micro_batch=1, recompute="full")
    >>> evaluate_many([design, design])["step_time"].shape
    (2,)
    """
    values_by_metric = {name: np.zeros(len(designs)) for name in study.units}
    for indices, stack in group_by_structure(designs):
        metrics = evaluate_batch(stack, study)
        for name in study.units:
            values_by_metric[name][indices] = getattr(metrics, name)
    return values_by_metric


def group_by_structure(designs: Sequence[Design]) -> Iterator[tuple[list[int], Design]]:
    """Group designs by their optional records.

    Args:
        designs: of plain numbers, in any order of structures.

    Returns:
        (indices, batch) of each structure, where a batch is a design whose leaves are arrays [designs].
    """
    indices_by_structure: dict[Structure, list[int]] = {}
    for index, design in enumerate(designs):
        indices_by_structure.setdefault(tree_structure(design), []).append(index)
    for indices in indices_by_structure.values():
        yield indices, tree_map(lambda *leaves: np.array(leaves, np.float32), *(designs[i] for i in indices))


def evaluate_batch(stack: Design, study: Study = TRAINING) -> Any:
    """Evaluate the metrics of a batch of designs.

    Args:
        stack: a batch of :func:`group_by_structure`.
        study: study of the metrics.

    Returns:
        Record of metrics in SI units, each an array [designs].
    """
    return evaluate_few(stack, {}, program=Program(study))[0]


def peak_rate(design: Design) -> float:
    """Return the dense peak of all devices of a design together at its precision, in FLOP/s.

    Args:
        design: with plain numbers as leaves.
    """
    recipe = RECIPES[Precision(int(design.mapping.precision))]
    return float(getattr(design.system.accelerator.matrix_rate, recipe.rate)) * float(design.system.n_devices)
