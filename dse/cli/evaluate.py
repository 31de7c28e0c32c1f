"""``dse evaluate``: explanation of one design."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.text import Text

from dse.cli import cautions, show
from dse.cli.options import AnyOption, Devices, Json, Settings, Stack, System, Workload
from dse.cli.settings import raise_duplicate, settings_of
from dse.cli.status import NOTHING_FEASIBLE, report_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from dse.doors import Study
    from dse.measured.uncertainty.intervals import DesignIntervals
    from dse.measured.uncertainty.parts import MetricInterval
    from dse.types import Design
    from dse.views import Explanation
    from dse.views.explanation import OperatorRow, Reason, Share

#: Maximum number of printed elasticities; --json has all.
_TOP = 10

#: Seconds of a day, and the minimum number of days for a time in days.
_DAY, _DAYS = 86400.0, 2.0

#: Metrics printed in per cent.
_UTILISATIONS = ("mfu", "mfu_causal", "hfu")


@report_errors
def evaluate(
    workload: Workload,
    system: System,
    settings: Settings = None,
    n_devices: Devices = None,
    software: Stack = None,
    any_option: AnyOption = False,
    serving: Annotated[
        bool, typer.Option("--serving", help="Serve requests instead of training: --set concurrency=64, …")
    ] = False,
    metric: Annotated[
        str | None,
        typer.Option(help="Metric whose elasticities are shown [default: step_time; of serving request_latency]."),
    ] = None,
    uncertainty: Annotated[
        bool,
        typer.Option("--uncertainty/--no-uncertainty", help="80 % intervals of times, rates, energy and peak memory."),
    ] = True,
    as_json: Json = False,
) -> int:
    """Explain one design.

    Prints time, memory and energy by part, what bounds each operator, and what the metric depends on most: of a
    training step, or of requests that are served.
    """
    from dse.designs.calibrated import range_note
    from dse.doors import STUDIES
    from dse.doors.study import carbon_assumption, price_assumption
    from dse.views import explain

    study = STUDIES["serving" if serving else "training"]
    request = design_of(workload, system, settings, n_devices, software, any_option, study)
    design, stack = request.design, request.stack
    explanation = explain(design, metric, study)
    for text in (*request.readings, *cautions.chip_cautions(design)):
        show.note(text)
    range_cautions = cautions.range_cautions(design, stack, system, explanation.metrics)
    caution_texts = cautions.all_cautions(
        design, (workload, system, stack), request.set_leaves, explanation.metrics, study
    )
    with_intervals = uncertainty and explanation.has_step
    interval_set = _intervals(design, workload, stack, system, explanation, study, with_intervals, request.set_leaves)
    if as_json:
        estimate_notes = (price_assumption(explanation.metrics, design), carbon_assumption(explanation.metrics, design))
        caution_texts += filter(None, estimate_notes)  # the tables print them with the totals
        intervals = _document(interval_set) if uncertainty else {}
        show.document(
            {
                "design": leaf_values(design),
                **explanation.as_dict(),
                **intervals,
                "outside": range_cautions,
                "cautions": caution_texts,
            }
        )
    else:
        # An accelerator alone has another default than its systems.
        stack_note = "" if request.is_named else f"software: {stack} (default of {system})\n"
        show.console().print(Text(design_line(workload, system, stack, design, study) + stack_note), soft_wrap=True)
        if range_cautions:
            caution_texts = [range_note(range_cautions), *caution_texts]
        for text in caution_texts:
            show.console().print(Text(f"{text}\n", "yellow"), soft_wrap=True)
        _print(explanation, interval_set, design, study)
    return 0 if explanation.feasible else NOTHING_FEASIBLE


class EvaluateRequest(NamedTuple):
    """A design as stated by options."""

    design: Design
    stack: str  #: slug or name of the stack
    is_named: bool  #: whether the options name it; otherwise it is the system's default
    readings: list[str]  #: interpretation of plain numbers for leaves with units
    values: dict[str, float]  #: full path → value of the leaves set by options

    @property
    def set_leaves(self) -> frozenset[str]:
        """Full paths of the leaves set by options."""
        return frozenset(self.values)


def design_of(
    workload: str,
    system: str,
    settings: list[str] | None,
    n_devices: int | None,
    software: str | None,
    any_option: bool,
    study: Study,
    to_serve: str = "add --serving",
    tool: str = "",
) -> EvaluateRequest:
    """Build the design that the options state, with its stack and the leaves that they set.

    Args:
        workload: name in the catalogue.
        system: name of a system or an accelerator.
        settings: ``NAME=VALUE`` each.
        n_devices: None for the product of the degrees.
        software: name of the stack; None for the default.
        any_option: allow options that the stack lacks.
        study: study of the design.
        to_serve: fix in errors for leaves of serving.
        tool: name of the tool that the design is for, which prefers stacks.

    Raises:
        InputError: for unknown names, invalid values and options stated twice.
    """
    from dse.designs import design, leaf, leaf_path
    from dse.designs.catalog import SERVED_FORMAT, default_software, format_note
    from dse.designs.leaves import reading_note

    serves = study.name == "serving"
    values = settings_of(settings, study, to_serve=to_serve)
    for name, option, option_value in (("n_devices", "-n", n_devices), ("software", "--software", software)):
        if option_value is not None and name in values:
            raise_duplicate("--set", name, f"{option} {option_value}", f"--set {name}")
    n_devices, software = values.pop("n_devices", n_devices), values.pop("software", software)
    paths = {name: leaf_path(name, "--set", serves) for name in values}
    is_named = software is not None
    stack = software
    if stack is None:
        stack = default_software(system, serving=serves, workload=workload, tool=tool)
    kind = "serving" if serves else "training"
    complete_design = study.complete(design(workload, system, stack, n_devices, "--set", any_option, kind, **values))
    notes = [reading_note(name, paths[name], value) for name, value in values.items()]
    if serves and not set(SERVED_FORMAT) & set(paths.values()):
        notes.append(format_note([workload]))
    set_values = {path: leaf(complete_design, path) for path in paths.values()}
    return EvaluateRequest(complete_design, stack, is_named, list(filter(None, notes)), set_values)


def _intervals(
    design: Design,
    workload: str,
    software: str,
    system: str,
    explanation: Explanation,
    study: Study,
    enabled: bool,
    set_leaves: frozenset[str],
) -> DesignIntervals:
    """Evaluate the 80 % intervals of the headline metrics and totals of a design, empty where not ``enabled``."""
    from dse.designs import accelerator_of
    from dse.designs.catalog import resolve
    from dse.measured.uncertainty.intervals import DesignIntervals, intervals

    if not enabled:
        return DesignIntervals({}, {})
    metrics = explanation.metrics
    headline_metrics = {name: metrics[name] for name in (*study.headline(metrics), *study.totals) if name in metrics}
    return intervals(
        design,
        headline_metrics,
        resolve("software", software),
        study,
        accelerator_of(system),
        resolve("workload", workload),
        system,
        set_leaves,
    )


def _document(interval_set: DesignIntervals) -> dict[str, Any]:
    """Return JSON-ready ``intervals`` (metric → [low, high]) and ``interval_parts`` (metric → source → share)."""
    return {
        "intervals": {name: list(ends) for name, ends in interval_set.bounds.items()},
        "interval_parts": {name: interval_set.reasons(name) for name in interval_set.bounds},
    }


def _interval_note(interval_set: DesignIntervals, study: Study) -> str:
    """Return a line with the shares of each source in the variance of the first interval, "" without intervals."""
    from dse.measured.uncertainty.distance import PART_DESCRIPTIONS

    name = next(iter(interval_set.bounds), "")
    parts = (f"{PART_DESCRIPTIONS[part]} {show.percent(share)}" for part, share in interval_set.reasons(name).items())
    return f"80 % interval of {study.long_names[name]}, shares of its variance: {', '.join(parts)}" if name else ""


def leaf_values(design: Design) -> dict[str, float]:
    """Return full path → number of the leaves that a design has, choices by their number; absent ones are left out."""
    from dse.designs import leaf, leaves_of

    values = {path: leaf(design, path) for path in leaves_of(design)}
    return {path: float(value) for path, value in values.items() if value is not None}


def design_line(workload: str, system: str, software: str, design: Design, study: Study) -> str:
    """Return two lines on a design: model, system, stack and precision; devices, degrees and settings of its study."""
    from dse.designs import catalog
    from dse.types import Precision, choice_name

    m = design.mapping
    names = (
        catalog.resolve("workload", workload),
        system,
        software,
        choice_name(Precision(int(m.precision))),
    )
    degrees = [name for name in ("tp", "cp", "pp", "dp") if f"mapping.{name}" not in study.ignored_leaves]
    split = " x ".join(f"{name} {getattr(m, name):g}" for name in degrees)
    first = "{} on {}, {}, {}".format(*names)
    devices = "device" if design.system.n_devices == 1 else "devices"
    return f"{first}\n{design.system.n_devices:g} {devices}{_torus_text(design)} = {split}; {study.settings(design)}\n"


def _torus_text(design: Design) -> str:
    """Return the lengths of a torus slice's axes above 1 as `` (4 x 4 a slice)``, "" for other links and one device."""
    from dse.doors.study import torus_strides
    from dse.types import Topology

    links = design.system.scale_up.links
    if links is None or links.topology != float(Topology.torus):
        return ""
    edges = torus_strides(design)
    lengths = [high / low for low, high in itertools.pairwise(edges)]
    return f" ({' x '.join(f'{length:g}' for length in lengths if length > 1.0)} a slice)" if edges[-1] > 1.0 else ""


def print_obstacles(out: Console, reasons: Sequence[Reason]) -> None:
    """Print that a design cannot run, and each reason with its numbers."""
    from dse.types import Infeasible

    out.print(Text("cannot run", "bold red"))
    for reason in reasons:
        fix = " (--any-option allows it)" if reason.name == Infeasible.stack_lacks.name else ""
        out.print(Text(f"  {reason.meaning}: {reason.numbers}{fix}"), soft_wrap=True)


def _print(explanation: Explanation, interval_set: DesignIntervals, design: Design, study: Study) -> None:
    """Print an explanation: reasons, metrics, totals by part, operators, phases, layer, elasticities."""
    out, bounds = show.console(), interval_set.bounds
    metric = explanation.elasticity_of.replace("_", " ")
    if explanation.reasons:
        print_obstacles(out, explanation.reasons)
        out.print()
    if not explanation.has_step:
        out.print(Text(_no_step_note(explanation, design)), soft_wrap=True)
        return
    if explanation.caution:
        out.print(Text(explanation.caution, "yellow"), soft_wrap=True)
    columns = ["metric", "value", *(["80 % interval"] if bounds else [])]
    show.print_table(out, columns, _headline_rows(explanation, bounds, study), left=["metric"], prose=["metric"])
    if interval_note := _interval_note(interval_set, study):
        out.print(Text(interval_note), soft_wrap=True)
    for total, parts in explanation.waterfalls.items():
        if not any(part.value for part in parts):  # an accelerator with unknown dies has no bill
            continue
        _print_total(out, explanation, total, parts, study, bounds)
        if remark := study.remark(total, explanation.metrics, design):
            out.print(Text(remark), soft_wrap=True)
    show.heading(out, f"operators: {study.operators_of}")
    _print_operators(out, explanation.operators)
    if explanation.phases:
        show.heading(out, "engine steps: time by bound")
        _print_phases(out, explanation.phases)
    if explanation.layer:
        layer = ", ".join(f"{p.name.replace('_', ' ')} {show.seconds(p.value)}" for p in explanation.layer if p.value)
        bound = _pace_text(explanation)
        out.print(Text(f"Per layer and micro-batch: {layer}; {bound}."), soft_wrap=True)
    show.heading(out, f"elasticities of {metric}: d ln({metric}) / d ln(parameter)")
    _print_elasticities(out, explanation, metric)


def _pace_text(explanation: Explanation) -> str:
    """Return a clause on what sets the pace of a layer: the device, or the host, with the share of the step waited."""
    if not explanation.host_bound:
        return "the device sets the pace"
    waits = show.percent(explanation.metrics["step_time_host"] / explanation.metrics["step_time"])
    return f"launches take the host longer (host-bound): the device waits for {waits} of the step"


def _no_step_note(explanation: Explanation, design: Design) -> str:
    """Return a sentence on a step that is not possible, with the supported precisions if the precision is why."""
    from dse.types import Infeasible

    fix = "change the values named above"
    if any(reason.name == Infeasible.precision_unsupported.name for reason in explanation.reasons):
        fix = f"set precision to one of {', '.join(_precision_names(design))}"
    return f"This step is not possible, so it has no time, rate or utilisation: {fix}."


def _precision_names(design: Design) -> list[str]:
    """Return the names of the precisions that the matrix units of a design's accelerator support."""
    from dse.model import generated
    from dse.model.machine.rates import unsupported
    from dse.types import Precision, choice_name

    accelerator = generated(design).system.accelerator
    return [choice_name(precision) for precision in Precision if not unsupported(accelerator, float(precision))]


def _print_total(
    out: Console,
    explanation: Explanation,
    total: str,
    parts: list[Share],
    study: Study,
    bounds: dict[str, MetricInterval],
) -> None:
    """Print a total with its interval, for memory with the capacity, then the table of its parts."""
    units, value = study.units[total], explanation.metrics[total]
    format_by_unit = {"s": show.span if value > _DAYS * _DAY else show.seconds, "B": show.gib}
    text = format_by_unit.get(units, lambda number: show.quantity(number, units))
    capacity_note = f" of {show.gib(explanation.memory_capacity)}" if total == study.memory else ""
    interval_text = f" (80 %: {' to '.join(map(text, bounds[total]))})" if total in bounds else ""
    show.heading(out, f"{total.replace('_', ' ')}: {text(value)}{capacity_note}{interval_text}")
    _print_waterfall(out, parts, text)


def _headline_rows(explanation: Explanation, bounds: dict[str, MetricInterval], study: Study) -> list[list[str]]:
    """Return the rows of the main metrics: name, value and, where there are intervals, its 80 % interval."""
    rows = []
    for name in study.headline(explanation.metrics):

        def text(value: float, units: str = study.display_units[name], share: bool = name in _UTILISATIONS) -> str:
            return show.percent(value) if share else show.quantity(value, units)

        interval_text = " to ".join(map(text, bounds[name])) if name in bounds else ""
        rows.append([study.long_names[name], text(explanation.metrics[name]), *([interval_text] if bounds else [])])
    return rows


def _print_waterfall(out: Console, parts: list[Share], text: Callable[[float], str]) -> None:
    """Print a table of the parts that are not 0: value, share, bar."""
    rows = [
        [part.name.replace("_", " "), text(part.value), show.percent(part.share), "█" * round(40 * part.share)]
        for part in parts
        if part.value
    ]
    show.print_table(out, ["part", "value", "share", ""], rows, left=["part", ""], spare=[""])


def _print_phases(out: Console, phases: dict[str, list[Share]]) -> None:
    """Print a table of kind of engine step → time, and the share of each bound in it."""
    names = [part.name for part in next(iter(phases.values()))]
    rows = [
        [name, show.seconds(sum(p.value for p in parts)), *(show.percent(p.share) for p in parts)]
        for name, parts in phases.items()
    ]
    show.print_table(out, ["step", "time", *names], rows, left=["step"])


def _print_operators(out: Console, operators: list[OperatorRow]) -> None:
    """Print a table of operators: time and bound of each pass, FLOP, traffic in bytes, FLOP/B."""
    has_backward = any(o.backward_time for o in operators)
    rows = [
        [
            o.section,
            o.name.replace("_", " "),
            show.seconds(o.forward_time),
            o.forward_bound,
            *([show.seconds(o.backward_time), o.backward_bound] if has_backward else []),
            show.prefixed(o.flops, "FLOP"),
            show.prefixed(o.bytes, "B"),
            show.digits(o.intensity),
        ]
        for o in operators
    ]
    passes = ["forward", "bound by", "backward", "bound by "] if has_backward else ["time", "bound by"]
    work_columns = [f"fwd+bwd {name}" if has_backward else name for name in ("work", "traffic")]
    columns = ["of", "operator", *passes, *work_columns, "FLOP/B"]
    show.print_table(out, columns, rows, left=["of", "operator", "bound by", "bound by "], keys=2)


def _print_elasticities(out: Console, explanation: Explanation, metric: str) -> None:
    """Print a table of the first ``_TOP`` elasticities of a metric, in the order of the explanation."""
    rows = [
        [
            e.parameter,
            show.setting(e.value, e.units),
            f"{e.elasticity:+.3f}",
            f"1 % more: {e.elasticity:+.2f} % {metric}",
        ]
        for e in explanation.elasticities[:_TOP]
    ]
    columns = ["parameter", "value", "elasticity", "in words"]
    show.print_table(out, columns, rows, left=["parameter", "in words"], spare=["in words"])
