"""Exact optima and fronts of the suite, by enumeration with the sweep engine, and the file that keeps them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.search import suite
from dse import sweep
from dse.designs import catalog
from dse.io.files import code_digest
from dse.sweep import Grid

#: The optima as last enumerated.
FILE = Path(__file__).parent / "optima.json"


@dataclasses.dataclass(frozen=True)
class Optimum:
    """What enumeration says of a space."""

    specification_hash: str
    catalog_digest: str
    code_digest: str
    designs: int
    feasible: int
    index: int  #: of the best by the first objective, of equals the lowest
    value: float  #: its first objective, as written
    at: dict[str, Any]  #: what the axes are there
    front: list[list[float]]  #: [design][objective] where there are several, ascending by the first; else empty

    @property
    def feasible_share(self) -> float:
        """Share of the designs that can run and meet the constraints."""
        return self.feasible / self.designs


def enumerated(name: str) -> tuple[Optimum, dict[str, float]]:
    """The optimum of a space, computed now, and the seconds it took: trace, compile, run."""
    spec = sweep.read(suite.path(name))
    several = len(spec.objectives) > 1
    found, summary = sweep.execute(spec, False, keep="pareto" if several else "top:1")
    grid, _ = sweep.plan(spec, "top:1")
    best = summary.best[0]
    optimum = Optimum(
        **identity(grid),
        designs=summary.n_designs,
        feasible=summary.n_feasible,
        index=best.index,
        value=best.value,
        at=best.labels,
        front=_front(found, grid) if several else [],
    )
    return optimum, summary.seconds


def identity(grid: Grid) -> dict[str, str]:
    """What an optimum depends on."""
    return {
        "specification_hash": grid.spec.hash(),
        "catalog_digest": catalog.digest(grid.catalog_entries),
        "code_digest": code_digest(),
    }


def _front(found: Any, grid: Grid) -> list[list[float]]:
    columns = [found[objective.expression.text].values for objective in grid.spec.objectives]
    points = np.stack(columns, axis=1).astype(float)
    return points[np.argsort(points[:, 0])].tolist()


def stored() -> dict[str, Optimum]:
    """The optima of the file, by space."""
    document = json.loads(FILE.read_text(encoding="utf-8"))
    return {name: Optimum(**entry) for name, entry in document.items()}


def store(optima: dict[str, Optimum]) -> None:
    """Write the file."""
    rounded = {name: _rounded(optimum) for name, optimum in optima.items()}
    lines = [f'"{name}": {json.dumps(entry)}' for name, entry in rounded.items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _rounded(optimum: Optimum) -> dict[str, Any]:
    """With the nine digits that tell one float32 from another."""
    front = [[float(f"{value:.9g}") for value in point] for point in optimum.front]
    return dataclasses.asdict(optimum) | {"value": float(f"{optimum.value:.9g}"), "front": front}
