"""``dse.evaluate`` and ``dse.serve``: explanation of one design."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from dse.capabilities.changes import Change, best_changes
from dse.capabilities.designs import DesignOptions, DesignRequest, chip_notes, leaf_values
from dse.io import percent
from dse.io.quantities import gib
from dse.reports import Column, Line, Option, Report, Table, capability
from dse.reports.options import Serving
from dse.reports.report import NOTHING_FEASIBLE

if TYPE_CHECKING:
    from dse.doors import Study
    from dse.measured.uncertainty.intervals import DesignIntervals
    from dse.views import Explanation

#: Names of the details of an explanation (:mod:`dse.views.sections`).
DETAILS = (
    "metrics", "time", "memory", "energy", "cost", "carbon", "run", "operators", "elasticities", "intervals",
    "cautions",
)  # fmt: skip

_Uncertainty = Annotated[bool, Option(flag="--uncertainty/--no-uncertainty")]


@capability("Ask", door="dse.doors.scalars:evaluate", details=DETAILS)
def evaluate(
    design: DesignOptions,
    serving: Serving = False,
    metric: str | None = None,
    uncertainty: _Uncertainty = True,
) -> Report:
    """Explain one design.

    Time, memory, energy, money and carbon of a training step, or of requests that are served; what bounds it, and the
    changes that buy most. Details have each by part, every operator, and what the metric depends on.

    Args:
        design: Options of the design.
        serving: Serve requests instead of training.
        metric: Metric whose elasticities are shown [default: step_time; of serving request_latency].
        uncertainty: 80 % intervals of times, rates, energy and peak memory.
    """
    from dse.doors import STUDIES

    return explained(design.request(STUDIES["serving" if serving else "training"]), metric, uncertainty)


@capability("Serve", door="dse.doors.scalars:serve", details=DETAILS)
def serve(
    design: DesignOptions,
    metric: str | None = None,
    uncertainty: _Uncertainty = True,
) -> Report:
    """Explain one serving design.

    Latency, throughput, memory, energy and money of requests that an engine serves, as dse evaluate --serving does.

    Args:
        design: Options of the design.
        metric: Metric whose elasticities are shown [default: step_time; of serving request_latency].
        uncertainty: 80 % intervals of times, rates, energy and peak memory.
    """
    from dse.doors import STUDIES

    return explained(design.request(STUDIES["serving"]), metric, uncertainty)


def explained(request: DesignRequest, metric: str | None, uncertainty: bool) -> Report:
    """Return the report of a design, with elasticities of a metric, and with or without intervals."""
    from dse.designs.calibrated import range_note
    from dse.views import explain
    from dse.views.sections import explanation_sections
    from dse.views.studies.notes import carbon_assumption, price_assumption

    design = request.design
    explanation = explain(design, metric, request.study)
    metrics = explanation.metrics
    uncalibrated, cautions = request.uncalibrated(metrics), request.cautions(metrics)
    intervals = _intervals(request, explanation) if uncertainty and explanation.has_step else None
    bounds = intervals.bounds if intervals else {}
    shown = [*([range_note(uncalibrated)] if uncalibrated else []), *cautions]
    sections = [Line(request.summary), *explanation_sections(explanation, design, bounds, shown)]
    changes = best_changes(explanation)
    place = max(i for i, section in enumerate(sections) if not section.show) + 1
    sections[place:place] = _change_sections(changes, explanation)
    if intervals:
        sections.append(Line(_interval_text(intervals, request.study), show="intervals"))
    # Tables have the notes on estimates with their totals.
    estimates = filter(None, (price_assumption(metrics, design), carbon_assumption(metrics, design)))
    document = {"design": leaf_values(design), **explanation.to_dict()}
    if uncertainty:
        names = list(bounds)
        document |= {"intervals": {name: list(bounds[name]) for name in names}}
        document |= {"interval_parts": {name: intervals.reasons(name) for name in names} if intervals else {}}
    document |= {"outside": uncalibrated, "cautions": [*cautions, *estimates], "changes": changes}
    document |= {"basis": _basis(request, uncalibrated, list(bounds))}
    notes = [*request.readings, *chip_notes(design)]
    return Report(document, sections, notes, status=0 if explanation.feasible else NOTHING_FEASIBLE)


def _change_sections(changes: list[Change], explanation: Explanation) -> list[Table | Line]:
    """Return the table of the changes that buy most, or with which a design can run; or a line that there are none."""
    metric = explanation.elasticity_of.replace("_", " ")
    if not changes and explanation.feasible:
        return [Line(f"no single change of the mapping improves {metric} by a per cent")]
    if not changes:
        return [Line("no change of one or two options of the mapping lets it run on these devices")]
    title = f"changes that improve {metric} most" if explanation.feasible else "changes with which it can run"
    columns = [Column(title, "change", left=True)]
    if explanation.has_step:
        columns.append(Column("gain", "gain", percent))
    return [Table("changes", [*columns, Column("memory", "memory", gib)], changes)]


def _intervals(request: DesignRequest, explanation: Explanation) -> DesignIntervals:
    """Evaluate the 80 % intervals of the headline metrics and totals of a design."""
    from dse.designs import accelerator_of
    from dse.designs.catalog import resolve
    from dse.measured.uncertainty.intervals import intervals
    from dse.views.studies import presentation_of

    study, metrics, presentation = request.study, explanation.metrics, presentation_of(request.study)
    names = dict.fromkeys((*presentation.headline(metrics), *presentation.summary, *study.totals))
    return intervals(
        request.design,
        {name: metrics[name] for name in names if name in metrics},
        resolve("software", request.stack),
        study,
        accelerator_of(request.system),
        resolve("workload", request.workload),
        request.system,
        request.set_leaves,
    )


def _interval_text(intervals: DesignIntervals, study: Study) -> str:
    """Return a line with the shares of each source in the variance of the first interval, "" without intervals."""
    from dse.measured.uncertainty.distance import PART_DESCRIPTIONS

    name = next(iter(intervals.bounds), "")
    parts = (f"{PART_DESCRIPTIONS[part]} {percent(share)}" for part, share in intervals.reasons(name).items())
    return f"80 % interval of {study.long_names[name]}, shares of its variance: {', '.join(parts)}" if name else ""


def _basis(request: DesignRequest, uncalibrated: list[str], names: list[str]) -> dict[str, Any]:
    """Return what predictions rest on: a label, reasons, sources of the fit, and a label for each metric.

    ``fitted``: within the rows that the stack was fitted to. ``extrapolated``: beyond them, for each reason given.
    ``uncalibrated``: nobody has fitted the stack. Money and carbon are ``estimated``: prices are not fitted. Values of
    the catalogue carry their confidence themselves.
    """
    from dse.designs.calibrated import ranges
    from dse.designs.catalog import entry
    from dse.measured.uncertainty.bills import METRICS

    sources = list(entry("software", request.stack).value("calibrated.sources") or ())
    label = "uncalibrated" if not ranges(request.stack) else "extrapolated" if uncalibrated else "fitted"
    labels = {metric: "estimated" if metric in METRICS else label for metric in names}
    return {"label": label, "why": uncalibrated, "sources": sources, "numbers": labels}
