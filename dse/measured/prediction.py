"""Protocol of all measured tables: rows to cases, cases to designs, designs to predictions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from dse.doors import TRAINING, Study
from dse.measured.names import Lookup
from dse.measured.table import Case, Row, Skip, cases_of, kind_rows
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
    """A kind of measured tables: what is particular to it.

    Its columns, metrics and figures are rows of ``kinds.toml``; reading, exclusion with a reason, prediction in one
    batch, errors and tables are common to all kinds.
    """

    name: str  #: its table of ``kinds.toml``
    study: Study  #: study of its designs
    #: Completed configurations → their predictions, metrics in SI units or skips, in one batch.
    predict: Callable[[Sequence[tuple[Case, Any]], Study], Sequence[Prediction | dict[str, float] | Skip]]
    #: Configuration → what ``predict`` needs of it: a design, or arguments of a formula; raises :class:`Skip`.
    complete: Callable[[Case, Lookup], Any] = lambda case, _: case.payload
    #: Rows → configurations with measurements; by default by the names of their figures.
    read: Callable[[list[Row]], list[Case]] | None = None

    def matches(self, columns: Iterable[str]) -> bool:
        """Return True where a table with these columns is of the kind."""
        names, row = set(columns), kind_rows(self.name)
        return all(names & set(keys) for keys in row.get("keys", [])) and not names & set(row.get("without", []))

    def cases(self, rows: list[Row]) -> list[Case]:
        """Return the configurations of the rows of a table, in order."""
        return cases_of(rows, self.name) if self.read is None else self.read(rows)

    def metrics(self, case: Case) -> Sequence[str]:
        """Return the predicted metrics of a configuration: those of its kind, else those that it measures."""
        return kind_rows(self.name).get("metrics") or [figure.name for figure in case.measurements]


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
        yield indices, stack_designs([designs[i] for i in indices])


def stack_designs(designs: Sequence[Design]) -> Design:
    """Return designs of one structure as a batch, whose leaves are arrays [designs].

    Args:
        designs: of plain numbers, with the same optional records.
    """
    return tree_map(lambda *leaves: np.array(leaves, np.float32), *designs)


def evaluate_batch(stack: Design, study: Study = TRAINING) -> Any:
    """Evaluate the metrics of a batch of designs.

    Args:
        stack: a batch of :func:`group_by_structure`.
        study: study of the metrics.

    Returns:
        Record of metrics in SI units, each an array [designs].
    """
    return evaluate_few(stack, {}, program=Program(study))[0]


def reason_text(bits: int, study: Study) -> str:
    """Return in words the reasons of bits of infeasibility, but those of memory."""
    return "; ".join(study.reason_meanings[name] for name in study.reasons_in(bits & ~int(study.memory_reasons)))


def peak_rate(design: Design) -> float:
    """Return the dense peak of all devices of a design together at its precision, in FLOP/s.

    Args:
        design: with plain numbers as leaves.
    """
    recipe = RECIPES[Precision(int(design.mapping.precision))]
    return float(getattr(design.system.accelerator.matrix_rate, recipe.rate)) * float(design.system.n_devices)
