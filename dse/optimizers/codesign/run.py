"""Solve a co-design within its budget and keep what was found in a file, which is shown again where nothing changed."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dse.errors import InputError
from dse.io import outputs
from dse.io.files import search_digest
from dse.optimizers.codesign import descent, report
from dse.optimizers.codesign.descent import DescentBudget, DescentProblem, MachineElasticity, Trace
from dse.optimizers.codesign.problem import build
from dse.optimizers.codesign.report import Leaf, Mapped, Report
from dse.spec import codesign as codesign_spec
from dse.spec.codesign import SECTION, CodesignSpec
from dse.sweep.evaluation import stoppable
from dse.sweep.results import files as results
from dse.sweep.results import writing
from dse.sweep.results.files import Labelled, Variable
from dse.sweep.results.provenance import provenance
from dse.sweep.store import manifest

if TYPE_CHECKING:
    import xarray as xr

#: Global attribute of a file that holds the report as a JSON document.
_REPORT = "report"


@dataclasses.dataclass(frozen=True)
class CodesignOptions:
    """How a co-design is solved, besides what its specification says."""

    output: str | Path | bool | None = None  #: file of the results, by default the specification's; False writes none
    evaluations: int | None = None  #: budget of the model's evaluations, all starts together; for one step at least
    seconds: float | None = None  #: budget of the descent
    fresh: bool = False  #: solve again what an earlier run has finished
    force: bool = False  #: replace an output that dse has not written
    any_option: bool = False  #: offer options that the stack lacks too, whatever the specification says
    whole_stacks: bool = False  #: report a chip with a whole number of stacks, whatever the specification says


def run(spec: str | Path | CodesignSpec, output: str | Path | bool | None = None, **options: Any) -> xr.Dataset:
    """Solve a co-design and give its dataset.

    Args:
        spec: path of a specification with a section ``[codesign]``, or one that was read.
        output: file of the results, by default what the specification says; False writes none.
        **options: the other fields of :class:`CodesignOptions`.

    Returns:
        ``best_objective`` (of each start after each step), ``hardware`` and ``elasticity`` by leaf, and the metrics and
        the mapping of every workload.

    Raises InputError for bad input, and for hardware that runs nothing.
    """
    labelled, found = perform(spec, CodesignOptions(output, **options))
    if labelled is not None:
        return results.to_xarray(labelled)
    assert found.output is not None, "a report without results was read from a file"
    with results.open_results(found.output) as dataset:
        return dataset.load()


def perform(spec: str | Path | CodesignSpec, options: CodesignOptions) -> tuple[Labelled | None, Report]:
    """Solve as :func:`run` does, without xarray.

    Returns:
        Labelled arrays, None where an earlier run has left them in the file; and the report.
    """
    began = time.perf_counter()
    spec = _with(spec if isinstance(spec, CodesignSpec) else codesign_spec.read(spec), options)
    problem = build(spec)
    _check_budget(problem, options)
    target = outputs.target_of(options.output, spec.sweep.output)
    known = _identity(problem, options)
    if target:
        found = None if options.fresh else _finished(target, known)
        try:
            outputs.checked(target, options.force, [spec.sweep.file])
        except outputs.UnwritableFolderError:
            if found is None:  # else there is nothing to write
                raise
        if found:
            return None, found
    with outputs.disk_errors(target), stoppable():
        trace = descent.search(problem, budget=DescentBudget(options.evaluations, options.seconds))
        if not np.isfinite(trace.best):
            raise InputError(
                f"{spec.sweep.file}: {SECTION}",
                "no hardware that runs every workload",
                "hardware with a feasible mapping of each",
                "raise the budgets, allow more stacks, or widen the axes of the mapping",
            )
        found = dataclasses.replace(report.report(problem, trace, began), output=target)
        labelled = _labelled(problem, trace, found, known)
        if target:
            writing.write(labelled, target, spec.sweep.compression, options.force, [spec.sweep.file])
            writing.write_making(target, {"total": found.seconds}, options.force)
    return labelled, found


def _check_budget(problem: DescentProblem, options: CodesignOptions) -> None:
    """InputError for fewer evaluations than one step takes: it would take them all the same."""
    starts = problem.schedule.starts
    least = problem.inner.evaluations_a_step(starts)
    if options.evaluations is not None and options.evaluations < least:
        raise InputError(
            "--evaluations",
            f"{options.evaluations:,}",
            f"{least:,} or more: one step moves {starts} starts, and each tries every mapping",
            f"give more, give --seconds, or write fewer starts under [{SECTION}] and fewer values of its axes",
        )


def _with(spec: CodesignSpec, options: CodesignOptions) -> CodesignSpec:
    """The specification with what the options say in its place."""
    sweep, section = spec
    return CodesignSpec(
        dataclasses.replace(sweep, any_option=options.any_option or sweep.any_option),
        section.model_copy(update={"whole_stacks": options.whole_stacks or section.whole_stacks}),
    )


# --- the file ---------------------------------------------------------------------------------------------


def _identity(problem: DescentProblem, options: CodesignOptions) -> dict[str, str]:
    """Everything that the results depend on."""
    budget = {"evaluations": options.evaluations, "seconds": options.seconds}
    return manifest.circumstances(problem.inner.grid) | {
        "search_digest": search_digest(),
        "whole_stacks": "yes" if problem.whole_stacks else "no",
        "budget": json.dumps(budget),
        "compression_asked": problem.inner.grid.spec.compression,
    }


def _finished(target: Path, identity: dict[str, str]) -> Report | None:
    """The report of an earlier run of the same, if its file is there and whole."""
    if not writing.is_whole(target):
        return None
    attributes = writing.attributes(target)
    if _REPORT not in attributes or any(attributes.get(name) != value for name, value in identity.items()):
        return None
    told = outputs.note_of(target).get("seconds")
    spent = told.get("total", 0.0) if isinstance(told, dict) else 0.0
    try:
        found = _report(json.loads(attributes[_REPORT]))
    except (KeyError, TypeError):  # under a seal, and nothing that a run has written: it is solved again
        return None
    return dataclasses.replace(found, seconds=spent, output=target, finished=writing.created(target))


def _report(document: dict[str, Any]) -> Report:
    """The report that a document tells."""
    lists = {
        "hardware": [Leaf(**row) for row in document["hardware"]],
        "workloads": [Mapped(**row) for row in document["workloads"]],
        "elasticities": [MachineElasticity(**row) for row in document["elasticities"]],
    }
    return Report(**document | lists | {"seconds": 0.0})


def _labelled(problem: DescentProblem, trace: Trace, found: Report, identity: dict[str, str]) -> Labelled:
    """What was found as variables, and the report as a text; nothing in it differs from run to run."""
    grid = problem.inner.grid
    units = grid.spec.study.units
    sign = grid.spec.objectives[0].sign
    told = {name: value for name, value in found.as_dict().items() if name not in ("seconds", "output", "finished")}
    leaves = np.array([leaf.name for leaf in found.hardware])
    data = {
        "best_objective": Variable(
            ("step", "start"),
            trace.objective**sign,
            {"units": units.get(found.objective, "1"), "long_name": f"{found.objective}, mean over workloads"},
        ),
        "total_evaluations": Variable(
            ("step",), trace.evaluations, {"units": "1", "long_name": "evaluations of all starts so far"}
        ),
        "hardware": Variable(
            ("leaf",),
            np.array([leaf.value for leaf in found.hardware]),
            {"units": "1", "long_name": "leaves of the hardware that was found, in the SI units of leaf_units"},
        ),
        "leaf_units": Variable(
            ("leaf",), np.array([leaf.units for leaf in found.hardware]), {"long_name": "SI units of hardware"}
        ),
        "elasticity": Variable(
            ("parameter",),
            np.array([row.elasticity for row in found.elasticities]),
            {"units": "1", "long_name": f"d ln {found.objective} / d ln parameter, mappings held fixed"},
        ),
    }
    for name in found.workloads[0].metrics:
        about = {"units": units[name], "long_name": grid.spec.study.long_names[name]}
        data[name] = Variable(("workload",), np.array([row.metrics[name] for row in found.workloads]), about)
    for name in found.workloads[0].mapping:
        parts = np.array([row.mapping[name] for row in found.workloads])
        data[f"mapping_{name}"] = Variable(("workload",), parts, {"long_name": f"{name} of the best mapping"})
    coords = {
        "leaf": Variable(("leaf",), leaves, {"long_name": "leaf of the hardware"}),
        "parameter": Variable(
            ("parameter",), np.array([row.leaf for row in found.elasticities]), {"long_name": "leaf of the design"}
        ),
        "workload": Variable(
            ("workload",), np.array([row.workload for row in found.workloads]), {"long_name": "workload"}
        ),
    }
    attributes = {
        "title": found.title,
        "Conventions": "CF-1.11",
        "specification": grid.spec.text,
        **identity,
        "objective": found.objective,
        _REPORT: json.dumps(told),
        **provenance(grid),
    }
    return Labelled(data, coords, attrs=attributes)
