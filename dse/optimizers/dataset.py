"""The results of a search as labelled variables: searcher x seed x step, the best designs, the front.

The dimension of methods is called ``searcher``: ``method`` is a keyword of xarray's ``sel``.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from dse.io import outputs
from dse.optimizers.codesign.chip import DescentChip
from dse.optimizers.codesign.descent import Trace
from dse.optimizers.method_results import MethodResult, axis_columns, best_points
from dse.optimizers.multi_objective import MethodFront, merged_front
from dse.optimizers.outcome import SearchOutcome
from dse.optimizers.problem import Problem
from dse.optimizers.proofs import Proof
from dse.optimizers.space import Point
from dse.sweep.grid.grid import variable_name
from dse.sweep.results import writing
from dse.sweep.results.catalogue_numbers import label_numbers
from dse.sweep.results.dataset import described
from dse.sweep.results.labelled import Labelled, Variable, numbers
from dse.sweep.results.labels import coordinate, labels
from dse.sweep.results.provenance import provenance
from dse.sweep.results.schema import CAUTIONS
from dse.sweep.results.work import work_coordinates

#: Global attribute of the results of a descent that holds its outcome, and what that leaves out.
_OUTCOME, _RUN_FIELDS = "report", ("size", "seconds", "output", "finished")

#: What the best design of a seed is where there are several objectives.
_SEEDS_SEEK = (
    "each its own weighted geometric mean of the objectives; the best by each of them are on the front (front_*)"
)


def build(
    problem: Problem, method_results: list[MethodResult], summary: SearchOutcome, identity: dict[str, str]
) -> Labelled:
    """Return the results of a search as variables, coordinates and attributes, with units and long names.

    Args:
        problem: the space and the objectives.
        method_results: of each method.
        summary: the outcome of all methods.
        identity: global attributes that identify the search.
    """
    attributes = _attributes(problem, method_results, summary, identity)
    if (trace := method_results[0].trace) and (chip := method_results[0].chip):
        document = {name: value for name, value in dataclasses.asdict(summary).items() if name not in _RUN_FIELDS}
        return Labelled(
            _descent_variables(problem, trace, chip),
            _chip_coordinates(chip),
            attrs=attributes | {_OUTCOME: json.dumps(document)},
        )
    fixed = {variable_name(axis): coordinate((), axis, labels(axis)[0]) for axis in problem.grid.fixed}
    fixed |= {name: values for name, values in work_coordinates(problem.grid).items() if not values.dims}
    data = _history_variables(problem, method_results) | _best_variables(problem, method_results)
    if problem.n_objectives > 1:
        data |= _front_variables(problem, method_results) | _method_fronts(
            [summary.fronts[result.method] for result in method_results]
        )
    return Labelled(data, fixed | _coordinates(problem, method_results), attrs=attributes)


def _coordinates(problem: Problem, method_results: list[MethodResult]) -> dict[str, Variable]:
    """Return the coordinates ``searcher`` (method names) and ``seed`` (numbers)."""
    names = np.array([result.method for result in method_results])
    return {
        "searcher": Variable(("searcher",), names, {"long_name": "search method"}),
        "seed": numbers(("seed",), problem.spec.seeds, "seed of the method"),
    }


# --- of a descent -----------------------------------------------------------------------------------------


def _descent_variables(problem: Problem, trace: Trace, chip: DescentChip) -> dict[str, Variable]:
    """Return name → variable: history of a descent, leaves of its chip, elasticities, and its workloads."""
    study, (objective, *_) = problem.study, problem.program.objectives
    text, workloads, leaves = objective.expression.text, chip.workloads, chip.hardware
    units, elasticities = np.array([leaf.units for leaf in leaves]), [row.elasticity for row in chip.elasticities]
    hardware_text = "leaves of the hardware that was found, in the SI units of leaf_units"
    best, objective_units = trace.objective**objective.sign, study.units.get(text, "1")
    data = {
        "best_objective": numbers(("step", "start"), best, f"{text}, mean over workloads", objective_units),
        "total_evaluations": numbers(("step",), trace.evaluations, "evaluations of all starts so far"),
        "hardware": numbers(("leaf",), [leaf.value for leaf in leaves], hardware_text),
        "leaf_units": Variable(("leaf",), units, {"long_name": "SI units of hardware"}),
        "elasticity": numbers(("parameter",), elasticities, f"d ln {text} / d ln parameter, mappings held fixed"),
    }
    along = ("workload",)
    for name in workloads[0].metrics:
        values = [workload.metrics[name] for workload in workloads]
        data[name] = numbers(along, values, study.long_names[name], study.units[name])
    for name in workloads[0].mapping:
        names = np.array([workload.mapping[name] for workload in workloads])
        data[f"mapping_{name}"] = Variable(along, names, {"long_name": f"{name} of the best mapping"})
    return data


def _chip_coordinates(chip: DescentChip) -> dict[str, Variable]:
    """Return the coordinates ``leaf``, ``parameter`` and ``workload`` of a descent, all of names."""
    names = {
        "leaf": ([leaf.name for leaf in chip.hardware], "leaf of the hardware"),
        "parameter": ([row.leaf for row in chip.elasticities], "leaf of the design"),
        "workload": ([row.workload for row in chip.workloads], "workload"),
    }
    return {name: Variable((name,), np.array(texts), {"long_name": about}) for name, (texts, about) in names.items()}


def load_outcome(problem: Problem, target: Path, identity: dict[str, str]) -> SearchOutcome | None:
    """Return the outcome in the file of an earlier descent, None where there is none of this identity.

    None as well for other searches, and for a file that is missing or damaged.
    """
    if not problem.descent or not writing.is_intact(target):
        return None
    attributes = writing.attributes(target)
    if _OUTCOME not in attributes or any(attributes.get(name) != value for name, value in identity.items()):
        return None
    seconds = outputs.note_of(target).get("seconds")
    run_fields = {
        "size": problem.space.size,
        "seconds": seconds if isinstance(seconds, dict) else {},
        "output": target,
        "finished": writing.created(target),
    }
    try:
        return TypeAdapter(SearchOutcome).validate_python(json.loads(attributes[_OUTCOME]) | run_fields)
    except (TypeError, ValueError):  # under a seal, and nothing that a run has written: it is solved again
        return None


# --- of methods that propose designs ----------------------------------------------------------------------


def _history_variables(problem: Problem, method_results: list[MethodResult]) -> dict[str, Variable]:
    """Return name → variable of the best so far after each step, NaN after the end of shorter methods."""
    longest = max(result.progressed.steps for result in method_results)
    objectives = problem.program.objectives
    evaluations = np.zeros((len(method_results), longest), np.int64)
    violation, feasible_share, *best = (
        np.full((len(method_results), len(problem.spec.seeds), longest), np.nan, np.float32)
        for _ in range(2 + len(objectives))
    )
    for i, result in enumerate(method_results):
        history, steps = result.progressed.history, result.progressed.steps
        cumulative_evaluations = np.arange(1, steps + 1) * result.batch
        evaluations[i] = np.pad(cumulative_evaluations, (0, longest - steps), mode="edge")
        best_so_far = np.minimum.accumulate(history["objectives"], axis=0)
        for index, objective in enumerate(objectives):
            values = np.where(np.isfinite(best_so_far[:, :, index]), objective.sign * best_so_far[:, :, index], np.nan)
            best[index][i, :, :steps] = values.T
        violation[i, :, :steps] = history["violation"].T
        feasible_share[i, :, :steps] = (np.cumsum(history["feasible"], axis=0) / cumulative_evaluations[:, None]).T
    dims, about = ("searcher", "seed", "step"), [objective.expression for objective in objectives]
    return {
        "best_objective" + (f"_{index + 1}" if index else ""): numbers(
            dims, best[index], f"best feasible {expression.text} so far", expression.units
        )
        for index, expression in enumerate(about)
    } | {
        "evaluations": numbers(("searcher", "step"), evaluations, "evaluations of a seed so far"),
        "best_violation": numbers(dims, violation, "least violation so far, 0 when feasible"),
        "feasible_share": numbers(dims, feasible_share, "feasible share of the evaluations so far"),
    }


def _best_variables(problem: Problem, method_results: list[MethodResult]) -> dict[str, Variable]:
    """Return name → variable [searcher, seed]: axes and metrics of the best design after the polish."""
    sizes = {"searcher": len(method_results), "seed": len(problem.spec.seeds)}
    metrics = {
        name: np.concatenate([result.metrics[name] for result in method_results]) for name in problem.spec.sweep.metrics
    }
    counts = np.stack([result.evaluations + result.polish_evaluations for result in method_results]).astype(np.int64)
    violation = np.stack([result.polished.evaluation.violation for result in method_results])
    return _design_variables(problem, best_points(method_results), metrics, sizes) | {
        "total_evaluations": numbers(tuple(sizes), counts, "evaluations of a seed, including polishing"),
        "violation": numbers(tuple(sizes), violation, "violation of the best design, 0 when feasible"),
    }


def _front_variables(problem: Problem, method_results: list[MethodResult]) -> dict[str, Variable]:
    """Return ``front_`` name → variable [design] of the front of all methods, ordered by the first objective."""
    points = merged_front(method_results).points
    return _design_variables(problem, points, problem.metrics(points), {"design": len(points.digits)}, "front_")


def _method_fronts(fronts: list[MethodFront]) -> dict[str, Variable]:
    """Return designs (count) and hypervolume (share, NaN where unknown) of each method's front as variables."""
    size_text = "designs that no other evaluated design of the method dominates"
    share_text = (
        "share of the box, between the best of each objective and a tenth beyond the worst of the front of all "
        "methods, that the designs of the method dominate"
    )
    volumes = [np.nan if front.hypervolume is None else front.hypervolume for front in fronts]
    sizes = np.array([front.size for front in fronts], np.int64)
    return {
        "designs_on_front": numbers(("searcher",), sizes, size_text),
        "hypervolume": numbers(("searcher",), volumes, share_text),
    }


def _design_variables(
    problem: Problem, points: Point, metrics: dict[str, np.ndarray], sizes: dict[str, int], prefix: str = ""
) -> dict[str, Variable]:
    """Return ``prefix`` + name → variable of the axes and metrics of designs; ``sizes``: dimension → its length."""
    dims, shape = tuple(sizes), tuple(sizes.values())
    columns = [(axis, column.reshape(shape)) for axis, column in axis_columns(problem, points)]
    data = {prefix + variable_name(axis): coordinate(dims, axis, column) for axis, column in columns}
    for axis, column in columns:
        by_name = label_numbers(problem.grid, axis, column, dims)
        data |= {prefix + name: variable for name, variable in by_name.items()}
    for name, column in metrics.items():
        values, attrs = described(name, column, problem.study)
        data[prefix + name] = Variable(dims, values.reshape(shape), attrs)
    return data


def _attributes(
    problem: Problem, method_results: list[MethodResult], summary: SearchOutcome, identity: dict[str, str]
) -> dict[str, Any]:
    """Return name → value of the global attributes: specification, methods, objectives, best, data sources."""
    return {
        "title": problem.spec.sweep.title,
        CAUTIONS: "\n".join(summary.cautions),
        "Conventions": "CF-1.11",
        "specification": problem.spec.sweep.text,
        **identity,
        "methods": json.dumps(
            {result.method: problem.spec.options.get(result.method, {}) for result in method_results}
        ),
        "objective": summary.objectives[0],
        "objectives": json.dumps(summary.objectives),
        "best": json.dumps(summary.best),
        **({"seeds_seek": _SEEDS_SEEK} if problem.n_objectives > 1 else {}),
        "size": float(summary.size),
        **_proof_attributes(summary.proof),
        "infeasible_by_reason": json.dumps(summary.reasons),
        **provenance(problem.grid),
    }


def _proof_attributes(proof: Proof | None) -> dict[str, Any]:
    """Return ``proof_`` name → value of a proof, without what is None; empty without a proof."""
    if proof is None:
        return {}
    attributes = {"gap": proof.gap, "bound": proof.bound, "certificate": proof.certificate and proof.certificate.name}
    return {f"proof_{name}": attribute for name, attribute in attributes.items() if attribute is not None}
