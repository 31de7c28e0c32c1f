"""What a sweep found, in numbers."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dse.designs import calibrated, replace
from dse.designs.leaves import is_of_workload
from dse.doors import Study
from dse.errors import InputError
from dse.io import counted
from dse.spec.axes import Axis, Label
from dse.spec.output import Keep
from dse.sweep.grid.grid import Grid
from dse.sweep.progress import designs_per_second
from dse.sweep.reduce.keep import BlockResult
from dse.sweep.reduce.winners import best_of_each
from dse.sweep.results import writing
from dse.sweep.results.cautions import Cautions, cautions, named_entries, unmet_notes
from dse.sweep.results.constants import repeated_values
from dse.sweep.results.provenance import provenance
from dse.sweep.results.schema import CAUTIONS
from dse.sweep.results.work import unlike_work, work_line
from dse.sweep.store.manifest import Shard, reasons
from dse.types import Design

_BEST_SHOWN = 10


@dataclasses.dataclass(frozen=True)
class BestDesign:
    """One of the best designs of a sweep."""

    index: int
    labels: dict[str, Label]
    metrics: dict[str, float]
    value: float  #: of the first objective
    work: dict[str, Label] = dataclasses.field(default_factory=dict)
    #: what its steps or requests work on, by name, where that differs between designs and no axis states it


@dataclasses.dataclass(frozen=True)
class Summary(Cautions):
    """What a sweep found, in numbers."""

    study: Study
    n_designs: int
    n_feasible: int
    reasons: dict[str, int]  #: designs by infeasibility reason; one design may have several
    seconds: dict[str, float]
    #: trace, compile, run (division into blocks, evaluation and selection), write, total
    n_programs: int  #: programs compiled for it
    resumed: int  #: designs found finished by an earlier run
    redone: int  #: designs computed again because what an earlier run had left of them was damaged
    best: tuple[BestDesign, ...]  #: by the first objective; where axes move the workload the best of each
    objective: str
    keep: str  #: which designs are kept
    points: tuple[str, ...]  #: axes other than the mapping: of ``keep = "best"`` each of their points has one design
    works: tuple[str, ...]  #: those of them that move the workload, and so what a step does
    output: Path | None
    finished: str = ""  #: when the file was made, if it was there already
    shard: str = ""  #: the share of the sweep, if it was not the whole
    lacks: str = ""  #: what the stacks lack of the options that the sweep lists, in one line
    work: str = ""  #: what each step or request of all designs works on, in one line
    unmet: tuple[str, ...] = ()  #: how each constraint is missed where no design meets all, a line each
    n_unranked: int = 0  #: feasible designs an objective of which is no finite number: the model has failed there
    damaged: bool = False  #: whether there were results that were not as they had been written

    @property
    def written(self) -> Path:
        """Where the results are, of a run that writes them."""
        if self.output is None:
            raise ValueError("the results of this run were not written")
        return self.output

    @property
    def each_work(self) -> bool:
        """True if ``best`` holds one design of each workload: by a step's time the least work would win all."""
        return len({tuple(design.labels[name] for name in self.works) for design in self.best}) > 1

    @property
    def ranking(self) -> str:
        """How the best designs are ranked where axes move the workload, in words; empty where none does."""
        if not self.works or not self.best:
            return ""
        names = ", ".join(self.works)
        if self.each_work:
            rate = self.study.rate.replace("_", " ")
            order = f", most {rate} first" if _by_rate(self.study, self.objective) else ""
            return f"the best of each workload ({names}){order}"
        labels = {name: self.best[0].labels[name] for name in self.works}
        texts = map(_label_text, labels.values())
        workload_text = ", ".join(map(" ".join, zip(labels, texts, strict=True)))
        if self.keep.partition(":")[0] not in ("top", "pareto"):
            return f"{workload_text}: designs of no other workload can run"
        other = f'; maximize = "{self.study.rate}" compares workloads' if _by_rate(self.study, self.objective) else ""
        return f'all designs that are kept have {workload_text}{other}; keep = "best" keeps the best of each'

    @property
    def caution(self) -> str:
        """What a reader of the best designs must know, in one line; empty where there is nothing."""
        count, notes = len(self.design_cautions), []
        if count:
            notes.append(f"{count} of the {len(self.best)} best designs: {super().caution}")
        if self.n_unranked:
            notes.append(f"{counted(self.n_unranked, 'design')} can run without a finite objective: not ranked")
        return "; ".join(notes)

    @property
    def rate(self) -> float:
        """Evaluation rate of the run, designs/s (:func:`~dse.sweep.progress.designs_per_second`)."""
        return designs_per_second(self.n_designs - self.resumed, self.seconds.get("run", 0.0))


def of_part(grid: Grid, keep: Keep, result: BlockResult, **numbers: Any) -> Summary:
    """Return the summary of a sweep from all that is kept of it; ``numbers``: its fields that this cannot tell."""
    return _summary(
        grid,
        tuple(_best_designs(grid, result)),
        n_designs=grid.n_designs,
        **_counts(grid, result.counts),
        unmet=() if result.counts[0] else unmet_notes(grid),
        keep=str(keep),
        **numbers,
    )


def of_shard(grid: Grid, counts: np.ndarray, n_designs: int, shard: Shard, **numbers: Any) -> Summary:
    """Return the summary of a shard of ``n_designs``, without best designs; ``numbers``: its other fields."""
    return _summary(grid, (), n_designs=n_designs, **_counts(grid, counts), keep="", shard=str(shard), **numbers)


def _counts(grid: Grid, counts: np.ndarray) -> dict[str, Any]:
    """Return the fields of a summary that the counts of a part are."""
    by_reason = reasons(counts, grid.spec.study)
    return {"n_feasible": int(counts[0]), "reasons": by_reason, "n_unranked": int(counts[-1])}


def _summary(grid: Grid, best: tuple[BestDesign, ...], **fields: Any) -> Summary:
    """Return a summary with the fields that follow from the grid and its best designs, and others."""
    of_grid = {
        "study": grid.spec.study,
        "objective": grid.spec.objectives[0].expression.text,
        "points": tuple(axis.name for axis in _moving_axes(grid)),
        "works": works(grid),
        "lacks": grid.unsupported_note,
        "work": work_line(grid),
    }
    return Summary(best=best, **vars(_cautions(grid, best)) | of_grid | fields)


#: Attributes of a file without which it cannot be shown again.
_REQUIRED_ATTRIBUTES = (
    "best_designs",
    "best_values",
    "designs",
    "feasible_designs",
    "infeasible_by_reason",
    "objective",
    "keep",
)


def of_file(grid: Grid, target: Path, attributes: dict[str, Any]) -> Summary:
    """Return the summary of a sweep whose results are in a file; InputError where it lacks what a run writes."""
    for name in _REQUIRED_ATTRIBUTES:
        if name not in attributes:
            raise InputError(str(target), f"no attribute {name!r}", "what dse run wrote", "run it with --fresh")
    indices = [int(index) for index in attributes["best_designs"].split()]
    values = map(float, attributes["best_values"].split())
    return _summary(
        grid,
        tuple(_read_designs(grid, target, dict(zip(indices, values, strict=True)))),
        n_designs=int(attributes["designs"]),
        n_feasible=int(attributes["feasible_designs"]),
        reasons=json.loads(attributes["infeasible_by_reason"]),
        n_unranked=int(attributes.get("unranked_designs", 0)),
        seconds=dict.fromkeys(("trace", "compile", "run", "write", "total"), 0.0),
        n_programs=0,
        resumed=int(attributes["designs"]),
        redone=0,
        unmet=() if attributes["feasible_designs"] else unmet_notes(grid),
        objective=str(attributes["objective"]),
        keep=str(attributes["keep"]),
        output=target,
        finished=writing.created(target),
    )


def _moving_axes(grid: Grid) -> list[Axis]:
    """Return the axes other than the mapping that have several values."""
    return [axis for dimension in grid.dimensions if dimension.size > 1 for axis in dimension.axes]


def works(grid: Grid) -> tuple[str, ...]:
    """Return the names of the axes with several values that move the workload."""
    return tuple(axis.name for axis in _moving_axes(grid) if is_of_workload(axis.key))


def _by_rate(study: Study, objective: str) -> bool:
    """Return True if unlike workloads are ranked by the study's rate in place of its objective."""
    return bool(study.rate) and objective == study.objective


def _cautions(grid: Grid, best: Sequence[BestDesign]) -> Cautions:
    """Return :func:`cautions` of the best designs of a sweep."""
    designs = [
        (design.labels, design.metrics | {path: float(value) for path, value in leaves.items()}, member_grid.base)
        for design, (member_grid, leaves) in zip(best, _leaves(grid, [design.index for design in best]), strict=True)
    ]
    return cautions(grid, designs, [design.labels for design in best], grid.remarks)


def _leaves(grid: Grid, indices: Sequence[int]) -> list[tuple[Grid, dict[str, Any]]]:
    """Return, for each index of a design, the grid of its structure, and leaf path → value."""
    by_position: dict[int, tuple[Grid, dict[str, Any]]] = {}
    for positions, member_grid, index in grid.by_structure(np.array(indices, np.int64)):
        columns = member_grid.values(index)
        for row, position in enumerate(positions.tolist()):
            by_position[position] = member_grid, {path: column[row] for path, column in columns.items()}
    return [by_position[position] for position in range(len(indices))]


def named_designs(grid: Grid, indices: Sequence[int]) -> list[tuple[str, Design, str, str, str, str]]:
    """Return, for each index, a design with its names: a tuple of six.

    They are the labels that tell it apart (text), the design, and the names of stack, accelerator, workload and system,
    empty where it has none.
    """
    designs: list[tuple[str, Design, str, str, str, str]] = []
    accelerator_of = functools.cache(calibrated.accelerator_of)
    labels_by_design = [grid.labels(index) for index in indices]
    first = labels_by_design[0] if labels_by_design else {}
    distinct_axes = [name for name in first if len({labels.get(name) for labels in labels_by_design}) > 1]
    for labels, (member_grid, leaves) in zip(labels_by_design, _leaves(grid, indices), strict=True):
        design = replace(member_grid.base, {path: np.float32(value) for path, value in leaves.items()})
        entries = named_entries(grid, member_grid, labels)
        model, system, stack = (entries.get(key, "") for key in ("workload", "system", "software"))
        chip = entries.get("accelerator") or accelerator_of(system)
        name = ", ".join(f"{axis} {_label_text(labels.get(axis))}" for axis in distinct_axes)
        designs.append((name, design, stack, chip, model, system))
    return designs


def _label_text(label: Label | None) -> str:
    """Return a label as text, a number to six digits."""
    return f"{label:g}" if isinstance(label, float) else str(label)


def _best_designs(grid: Grid, result: BlockResult) -> Iterator[BestDesign]:
    """Yield the best designs, at most ten, by the first objective, of equals the one with the lowest index first.

    Where designs of several workloads are kept, the best one of each: the least work would win all places.
    """
    scores, study, objective = result.scores[0], grid.spec.study, grid.spec.objectives[0]
    candidates = np.flatnonzero(np.isfinite(scores))
    workload_numbers = _work_of(grid, result.index[candidates])
    if len(candidates) and np.ptp(workload_numbers) > 0:
        candidates = _least_of_each(workload_numbers, scores[candidates], result.index[candidates], candidates)
        if _by_rate(study, objective.expression.text):
            scores = -result.values[grid.spec.metrics.index(study.rate)]
    if len(candidates) > _BEST_SHOWN:
        bound = np.partition(scores[candidates], _BEST_SHOWN)[_BEST_SHOWN]
        candidates = candidates[scores[candidates] <= bound]
    for position in candidates[np.lexsort((result.index[candidates], scores[candidates]))][:_BEST_SHOWN]:
        metrics = dict(zip(grid.spec.metrics, map(float, result.values[:, position]), strict=True))
        index = int(result.index[position])
        value = objective.sign * float(result.scores[0, position])
        yield BestDesign(index, grid.labels(index), metrics, value, unlike_work(grid, index))


def _work_of(grid: Grid, index: np.ndarray) -> np.ndarray:
    """Return [design] a number of its workload, 0 for all where the axes move none."""
    sizes = [
        dimension.size if any(is_of_workload(axis.key) for axis in dimension.axes) else 1
        for dimension in grid.dimensions
    ]
    if math.prod(sizes) == 1:
        return np.zeros(len(index), int)
    digits = np.unravel_index(index // grid.table.n_mappings, grid.shape)
    return np.ravel_multi_index([digit % size for digit, size in zip(digits, sizes, strict=True)], sizes)


def _least_of_each(group: np.ndarray, scores: np.ndarray, index: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return [group] the item of ``rows`` with the least score, of equals the one with the lowest index."""
    least = np.full(group.max() + 1, np.inf)
    np.minimum.at(least, group, scores)
    best = np.flatnonzero(scores == least[group].astype(scores.dtype))  # few are sorted
    return rows[best[best_of_each(group[best], scores[best], index[best])]]


def _read_designs(grid: Grid, target: Path, value_by_index: dict[int, float]) -> Iterator[BestDesign]:
    """Yield the designs of index → the objective's value, with metrics from a file, 0 for metrics it lacks.

    Raises InputError where the file has no such designs.
    """
    import netCDF4

    try:
        with netCDF4.Dataset(target) as file:
            file.set_auto_mask(False)
            metric_values = _metrics_at(grid, file, list(value_by_index))
    except (RuntimeError, IndexError, KeyError, ValueError) as error:
        raise InputError(
            str(target), f"not its best designs ({error})", "what dse run wrote", "run it with --fresh"
        ) from None
    for i, (index, value) in enumerate(value_by_index.items()):
        metrics = {name: float(metric_values[name][i]) if name in metric_values else 0.0 for name in grid.spec.metrics}
        yield BestDesign(index, grid.labels(index), metrics, value, unlike_work(grid, index))


def _metrics_at(grid: Grid, file: Any, indices: list[int]) -> dict[str, np.ndarray]:
    """Return metric → [design] values from an open file, in the order of ``indices``; empty without indices.

    Metrics that the file lacks are left out. Raises KeyError for a metric of a wrong type or a design that is not in
    the file, IndexError for an index beyond its last design, ValueError for a metric along further dimensions.
    """
    names = [name for name in grid.spec.metrics if indices and name in file.variables]
    for name, kinds in {"index": "iu", **dict.fromkeys(names, "biuf")}.items():
        if name in file.variables and np.dtype(file[name].dtype).kind not in kinds:
            raise KeyError(f"{name} of type {file[name].dtype}")
    if "index" in file.variables:
        row_by_index = {int(index): row for row, index in enumerate(file["index"][...].reshape(-1))}
        rows = [row_by_index[index] for index in indices]
    elif "mapping" in file.dimensions:
        rows = indices
    else:
        rows = [index // grid.table.n_mappings for index in indices]
    if not names:
        return {}
    all_dims = max((file[name].dimensions for name in names), key=len)  # those of the objective: see constants
    sizes = {dim: len(file.dimensions[dim]) for dim in all_dims}
    if max(rows) >= math.prod(sizes.values()):
        raise IndexError(f"design {max(rows):,} of {math.prod(sizes.values()):,}")
    position = np.unravel_index(rows, [*sizes.values()]) if sizes else ()
    return {
        name: repeated_values(np.asarray(file[name][...]), file[name].dimensions, all_dims, sizes)[position].reshape(-1)
        for name in names
    }


def _capacity(grid: Grid) -> dict[str, float]:
    """Return ``memory_capacity_bytes`` → usable memory of a device; empty where axes move it or a chip makes it."""
    decides = {"system.accelerator.memory.capacity", "software.reserve", "mapping.serving.memory_share"}
    swept = any(decides & set(dimension.columns) for dimension in grid.dimensions)
    generated = grid.base.system.accelerator.chip is not None
    return {} if swept or generated else {"memory_capacity_bytes": grid.spec.study.capacity_of(grid.base)}


def attributes(grid: Grid, summary: Summary, identity: dict[str, str]) -> dict[str, Any]:
    """Return the global attributes: what was run, with what, on whose data; nothing that differs between runs."""
    return {
        "title": grid.spec.title,
        CAUTIONS: "\n".join(summary.cautions),
        "Conventions": "CF-1.11",
        "specification": grid.spec.text,
        **identity,
        **_capacity(grid),
        "objective": summary.objective,
        "designs": summary.n_designs,
        **({"places": grid.n_indices} if grid.members else {}),
        "feasible_designs": summary.n_feasible,
        "infeasible_by_reason": json.dumps(summary.reasons),
        **({"unranked_designs": summary.n_unranked} if summary.n_unranked else {}),
        "best_designs": " ".join(str(design.index) for design in summary.best),
        "best_values": " ".join(repr(design.value) for design in summary.best),
        **provenance(grid),
    }
