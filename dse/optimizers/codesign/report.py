"""What a co-design has found: the hardware, its best mapping of every workload, and what the design is short of."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dse.designs.leaves import known_leaves, short_name
from dse.optimizers.codesign import descent as codesign
from dse.optimizers.codesign import whole
from dse.optimizers.codesign.descent import DescentProblem, Trace
from dse.sweep.engine.numpy_backend import evaluate_few

#: Metrics of each workload that are reported with the objective.
_TOLD = ("step_time", "mfu", "tokens_per_second_per_device", "peak_memory", "energy_per_step", "average_power")

#: The model alone must give the objective of the search to this, relative.
_SAME = 1e-4


@dataclasses.dataclass(frozen=True)
class Leaf:
    """A leaf of the hardware."""

    name: str
    value: float  #: SI
    units: str


@dataclasses.dataclass(frozen=True)
class Mapped:
    """A workload on the hardware that was found."""

    workload: str
    objective: float
    mapping: dict[str, Any]
    metrics: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Report:
    """The result of a co-design; plain Python numbers in SI units."""

    title: str
    objective: str
    value: float  #: weighted geometric mean over the workloads, re-evaluated by the model alone
    hardware: list[Leaf]
    cost: float | None  #: USD of a chip, None without a budget of it
    active: list[str]  #: bounds and budgets that hold the design
    workloads: list[Mapped]
    elasticities: list[codesign.MachineElasticity]
    starts: list[float]  #: the least objective that each start met
    evaluations: int  #: of the model, a gradient as ``GRADIENT_COST`` of them
    seconds: float
    whole_stacks: list[dict[str, float | None]] = dataclasses.field(default_factory=list)
    #: whole numbers of stacks that were tried, and what each loses to the chip of continuous size; None where it
    #: cannot be built or runs nothing
    lacks: str = ""  #: what the stack lacks of the options that the specification lists
    notes: Sequence[str] = ()  #: how values without their units were read
    output: Path | None = None  #: the file that holds it
    finished: str = ""  #: when an earlier run has found it; empty where this one did

    def as_dict(self) -> dict[str, Any]:
        """Nested dictionaries and lists, ready for JSON."""
        return dataclasses.asdict(self) | {"elasticities": [row._asdict() for row in self.elasticities]}


def report(problem: DescentProblem, trace: Trace, began: float) -> Report:
    """The report of a finished search that began at this time of the performance counter."""
    trace = whole.roomy(problem, trace)
    tried = whole.rounded(problem, trace) if problem.whole_stacks else []
    trace = whole.better(trace, tried)
    spec, at = problem.inner.grid.spec, trace.coordinates
    points = codesign.leaves(problem.hardware, {path: np.array([value], np.float32) for path, value in at.items()})
    hardware = {path: float(value[0]) for path, value in points.items()}
    objective = spec.objectives[0]
    workloads = _mapped(problem, at, hardware)
    value = float(np.exp(problem.weights @ np.log([mapped.objective for mapped in workloads])))
    expected = trace.best**objective.sign
    assert abs(value / expected - 1.0) < _SAME, f"re-evaluated to {value:g}, searched {expected:g}"
    return Report(
        title=problem.title,
        objective=objective.expression.text,
        value=value,
        hardware=[Leaf(short_name(path), number, known_leaves()[path]["units"]) for path, number in hardware.items()],
        cost=float(problem.hardware.cost(at)) if problem.hardware.priced else None,
        active=[_shortened(text) for text in problem.hardware.active(at)],
        workloads=workloads,
        elasticities=[
            row._replace(leaf=short_name(row.leaf))
            for row in codesign.elasticities(problem, at)
            if abs(row.elasticity) > 1e-4 or abs(row.remapped or 0.0) > 1e-4
        ],
        starts=[float(best) ** objective.sign for best in trace.objective.min(axis=0)],
        evaluations=int(trace.evaluations[-1]),
        seconds=time.perf_counter() - began,
        whole_stacks=[one.as_dict() for one in tried],
        lacks=problem.inner.grid.lacks,
        notes=problem.notes,
    )


def _mapped(problem: DescentProblem, at: dict[str, float], hardware: dict[str, float]) -> list[Mapped]:
    """Each workload with its best mapping, evaluated by the model alone."""
    inner = problem.inner
    chosen = [mapping for mapping, _ in codesign.best_mappings(problem, at)]
    designs = [hardware | inner.values(workload, mapping) for workload, mapping in enumerate(chosen)]
    columns = {path: np.array([design[path] for design in designs], np.float32) for path in designs[0]}
    program = dataclasses.replace(inner.objective.program, metrics=tuple(sorted({*_TOLD, "feasible"})))
    metrics, (objective,) = evaluate_few(inner.grid.base, columns, program=program)
    assert np.all(metrics.feasible), "a best mapping that the model calls infeasible"
    sign = program.objectives[0].sign
    return [
        Mapped(
            _names(problem)[i],
            float(sign * objective[i]),
            inner.labels(mapping),
            {name: float(getattr(metrics, name)[i]) for name in _TOLD},
        )
        for i, mapping in enumerate(chosen)
    ]


def _names(problem: DescentProblem) -> list[str]:
    """What each point of the grid is called: its workload, and whatever else its dimensions say."""
    grid = problem.inner.grid
    if not grid.shape:
        return [str(grid.spec.names["workload"].labels[0])]
    digits = np.stack(np.unravel_index(np.arange(grid.n_points), grid.shape), axis=1)
    return [" ".join(str(d.axes[0].labels[i]) for d, i in zip(grid.dimensions, row, strict=True)) for row in digits]


def _shortened(text: str) -> str:
    path, _, rest = text.partition(" ")
    return f"{short_name(path)} {rest}" if path in known_leaves() else text
