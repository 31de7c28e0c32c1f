"""What a sweep found, in numbers, and where its results come from."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import dse
from dse import catalog
from dse.model.accounts.feasibility import usable_memory
from dse.references import bibliography
from dse.spec.axes import Label
from dse.spec.sweep import Keep
from dse.study import Study
from dse.sweep.grid.grid import Grid
from dse.sweep.reduce.keep import Part
from dse.sweep.results import writing
from dse.sweep.store.manifest import Shard, reasons

_BEST_SHOWN = 10


@dataclasses.dataclass(frozen=True)
class BestDesign:
    """One of the best designs of a sweep."""

    index: int
    labels: dict[str, Label]
    metrics: dict[str, float]
    value: float  #: of the first objective


@dataclasses.dataclass(frozen=True)
class Summary:
    """What a sweep found, in numbers."""

    study: Study
    n_designs: int
    n_feasible: int
    reasons: dict[str, int]  #: designs by infeasibility reason; one design may have several
    seconds: dict[str, float]  #: trace, compile, run (evaluation and selection), write, total
    n_programs: int  #: programs compiled for it
    resumed: int  #: designs found finished by an earlier run
    redone: int  #: designs computed again because what an earlier run had left of them was damaged
    best: tuple[BestDesign, ...]  #: by the first objective
    objective: str
    keep: str  #: which designs are kept
    points: tuple[str, ...]  #: axes beside the mapping: of ``keep = "best"`` each of their points has one design
    output: Path | None
    finished: str = ""  #: when the file was made, if it was there already
    shard: str = ""  #: the share of the sweep, if it was not the whole
    lacks: str = ""  #: what the stacks lack of the options that the sweep lists, in one line
    damaged: bool = False  #: whether there were results that were not as they had been written

    @property
    def written(self) -> Path:
        """Where the results are, of a run that writes them."""
        if self.output is None:
            raise ValueError("the results of this run were not written")
        return self.output

    @property
    def caution(self) -> str:
        """What a reader of the best designs must know, in one line; empty where there is nothing."""
        found = [text for text in (self.study.caution(design.metrics) for design in self.best) if text]
        return f"{len(found)} of the {len(self.best)} best designs: {found[0]}" if found else ""

    @property
    def rate(self) -> float:
        """Designs a second, compilation and writing apart."""
        return (self.n_designs - self.resumed) / max(self.seconds.get("run", 0.0), 1e-9)


def of_part(grid: Grid, keep: Keep, part: Part, **others: Any) -> Summary:
    """The summary of everything that is kept of a sweep."""
    return Summary(
        study=grid.spec.study,
        n_designs=grid.n_designs,
        n_feasible=int(part.counts[0]),
        reasons=reasons(part.counts, grid.spec.study),
        best=tuple(_best_designs(grid, part)),
        objective=grid.spec.objectives[0].expression.text,
        keep=str(keep),
        points=_points(grid),
        lacks=grid.lacks,
        **others,
    )


def of_shard(grid: Grid, counts: np.ndarray, n_designs: int, shard: Shard, **others: Any) -> Summary:
    """The summary of a share of a sweep, of which only the numbers are known."""
    return Summary(
        study=grid.spec.study,
        n_designs=n_designs,
        n_feasible=int(counts[0]),
        reasons=reasons(counts, grid.spec.study),
        best=(),
        objective=grid.spec.objectives[0].expression.text,
        keep="",
        points=_points(grid),
        lacks=grid.lacks,
        shard=str(shard),
        **others,
    )


def of_file(grid: Grid, target: Path, attributes: dict[str, Any]) -> Summary:
    """The summary of a sweep whose results are in a file."""
    best = [int(index) for index in attributes["best_designs"].split()]
    values = map(float, attributes["best_values"].split())
    return Summary(
        study=grid.spec.study,
        n_designs=int(attributes["designs"]),
        n_feasible=int(attributes["feasible_designs"]),
        reasons=json.loads(attributes["infeasible_by_reason"]),
        seconds=dict.fromkeys(("trace", "compile", "run", "write", "total"), 0.0),
        n_programs=0,
        resumed=int(attributes["designs"]),
        redone=0,
        best=tuple(_read_designs(grid, target, dict(zip(best, values, strict=True)))),
        objective=str(attributes["objective"]),
        keep=str(attributes["keep"]),
        points=_points(grid),
        lacks=grid.lacks,
        output=target,
        finished=writing.created(target),
    )


def _points(grid: Grid) -> tuple[str, ...]:
    """Names of the axes beside the mapping that have several values."""
    return tuple(axis.name for one in grid.dimensions for axis in one.axes if one.size > 1)


def _best_designs(grid: Grid, part: Part) -> Iterator[BestDesign]:
    """The best designs by the first objective, of equals the one with the lowest index first."""
    scores = part.scores[0]
    near = np.flatnonzero(np.isfinite(scores))
    if len(near) > _BEST_SHOWN:
        bound = np.partition(scores[near], _BEST_SHOWN)[_BEST_SHOWN]
        near = near[scores[near] <= bound]
    for position in near[np.lexsort((part.index[near], scores[near]))][:_BEST_SHOWN]:
        metrics = dict(zip(grid.spec.metrics, map(float, part.values[:, position]), strict=True))
        index = int(part.index[position])
        yield BestDesign(index, grid.labels(index), metrics, grid.spec.objectives[0].sign * float(scores[position]))


def _read_designs(grid: Grid, target: Path, wanted: dict[int, float]) -> Iterator[BestDesign]:
    """These designs, by index with the objective's value, as they are in a file."""
    import netCDF4

    with netCDF4.Dataset(target) as file:
        file.set_auto_mask(False)
        if "index" in file.variables:
            order = {int(index): position for position, index in enumerate(file["index"][:])}
            places = {index: order[index] for index in wanted}
        elif "mapping" in file.dimensions:
            places = {index: index for index in wanted}
        else:
            places = {index: index // grid.table.n_mappings for index in wanted}
        found = {
            name: file[name][...].reshape(-1)[[places[index] for index in wanted]]
            for name in grid.spec.metrics if wanted and name in file.variables
        }  # fmt: skip
    for i, (index, value) in enumerate(wanted.items()):
        metrics = {name: float(found[name][i]) if name in found else 0.0 for name in grid.spec.metrics}
        yield BestDesign(index, grid.labels(index), metrics, value)


def _unverified(grid: Grid) -> list[str]:
    """Constants behind the sweep that are estimates, from memory or defaults, but for leaves that it sets itself."""
    own = {axis.key for axis in grid.fixed} | {path for one in grid.dimensions for path in one.columns}
    set_here = {path.partition(".")[2].removeprefix("accelerator.") for path in own}
    found = [constant for kind, slug in grid.used for constant in catalog.unverified(kind, slug)]
    return list(dict.fromkeys(str(constant) for constant in found if constant.field not in set_here))


def _capacity(grid: Grid) -> dict[str, float]:
    """Usable memory of a device as an attribute; none where axes move it or a chip makes it."""
    decides = {"system.accelerator.memory.capacity", "software.reserve"}
    swept = any(decides & set(dimension.columns) for dimension in grid.dimensions)
    generated = grid.base.system.accelerator.chip is not None
    return {} if swept or generated else {"memory_capacity_bytes": float(usable_memory(grid.base))}


def provenance(grid: Grid) -> dict[str, Any]:
    """Global attributes that tell what has made results and on whose data they rest."""
    sources = [source for kind, slug in grid.used for source, _ in catalog.provenance(kind, slug)]
    return {
        "source": f"dse {dse.__version__}",
        "sources": "\n".join(dict.fromkeys(sources)),
        "bibliography": bibliography(grid.used),
        "unverified_constants": "\n".join(_unverified(grid)),
    }


def attributes(grid: Grid, summary: Summary, identity: dict[str, str]) -> dict[str, Any]:
    """Global attributes: what was run, with what, and on whose data it rests; nothing that differs from run to run."""
    return {
        "title": grid.spec.title,
        "Conventions": "CF-1.11",
        "specification": grid.spec.text,
        **identity,
        **_capacity(grid),
        "objective": summary.objective,
        "designs": summary.n_designs,
        "feasible_designs": summary.n_feasible,
        "infeasible_by_reason": json.dumps(summary.reasons),
        "best_designs": " ".join(str(design.index) for design in summary.best),
        "best_values": " ".join(repr(design.value) for design in summary.best),
        **provenance(grid),
    }
