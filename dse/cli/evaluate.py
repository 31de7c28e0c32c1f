"""``dse evaluate``: explanation of one design."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.text import Text

from dse.cli import cautions, show
from dse.cli.options import AnyOption, Devices, Json, Settings, Stack, System, Workload
from dse.cli.settings import settings_of, twice
from dse.cli.status import NOTHING_FEASIBLE, report_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from dse.doors.study import Study
    from dse.measured.uncertainty.intervals import Judged
    from dse.measured.uncertainty.parts import MetricInterval
    from dse.types import Design
    from dse.views.explanation import Explanation, OperatorRow, Reason, Share

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
    from dse.doors.studies import STUDIES
    from dse.doors.study import made_up_carbon, made_up_price
    from dse.views.explanation import explain

    study = STUDIES["serving" if serving else "training"]
    asked = design_of(workload, system, settings, n_devices, software, any_option, study)
    made, stack = asked.design, asked.stack
    explained = explain(made, metric, study)
    for text in (*asked.readings, *cautions.of_chip(made)):
        show.note(text)
    outside = cautions.outside(made, stack, system, explained.metrics)
    listed = cautions.of_all(made, (workload, system, stack), asked.stated, explained.metrics, study)
    wanted = uncertainty and explained.has_step
    judged = _intervals(made, workload, stack, system, explained, study, wanted, asked.stated)
    if as_json:
        made_up = (made_up_price(explained.metrics, made), made_up_carbon(explained.metrics, made))
        listed += filter(None, made_up)  # the tables print them with the totals
        intervals = _document(judged) if uncertainty else {}
        show.document(
            {"design": leaf_values(made), **explained.as_dict(), **intervals, "outside": outside, "cautions": listed}
        )
    else:
        # An accelerator alone has another default than its systems.
        whose = "" if asked.is_named else f"software: {stack} (default of {system})\n"
        show.console().print(Text(design_line(workload, system, stack, made, study) + whose), soft_wrap=True)
        if outside:
            listed = [range_note(outside), *listed]
        for text in listed:
            show.console().print(Text(f"{text}\n", "yellow"), soft_wrap=True)
        _print(explained, judged, made, study)
    return 0 if explained.feasible else NOTHING_FEASIBLE


class EvaluateRequest(NamedTuple):
    """Design of the options."""

    design: Design
    stack: str  #: slug or name of the stack
    is_named: bool  #: whether the options name it; otherwise it is the system's default
    readings: list[str]  #: interpretation of plain numbers for leaves with units
    values: dict[str, float]  #: full path → value of the leaves set by options

    @property
    def stated(self) -> frozenset[str]:
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
    """Design of the options; ``to_serve``: fix for leaves of serving; ``tool``: that the design is for."""
    from dse.designs.catalog import SERVED_FORMAT, default_software, format_note
    from dse.designs.composing import design
    from dse.designs.leaves import leaf, leaf_path, reading_note

    serves = study.name == "serving"
    values = settings_of(settings, study, to_serve=to_serve)
    for name, option, given in (("n_devices", "-n", n_devices), ("software", "--software", software)):
        if given is not None and name in values:
            twice("--set", name, f"{option} {given}", f"--set {name}")
    n_devices, software = values.pop("n_devices", n_devices), values.pop("software", software)
    paths = {name: leaf_path(name, "--set", serves) for name in values}
    is_named = software is not None
    stack = software
    if stack is None:
        stack = default_software(system, serving=serves, workload=workload, tool=tool)
    kind = "serving" if serves else "training"
    made = study.complete(design(workload, system, stack, n_devices, "--set", any_option, kind, **values))
    readings = [reading_note(name, paths[name], value) for name, value in values.items()]
    if serves and not set(SERVED_FORMAT) & set(paths.values()):
        readings.append(format_note([workload]))
    stated = {path: leaf(made, path) for path in paths.values()}
    return EvaluateRequest(made, stack, is_named, list(filter(None, readings)), stated)


def _intervals(
    design: Design,
    workload: str,
    software: str,
    system: str,
    explained: Explanation,
    study: Study,
    wanted: bool,
    stated: frozenset[str],
) -> Judged:
    """80 % intervals of the headline metrics with one; none where they are not wanted."""
    from dse.designs.calibrated import accelerator_of
    from dse.designs.catalog import resolve
    from dse.measured.uncertainty.intervals import Judged, intervals

    if not wanted:
        return Judged({}, {})
    metrics = explained.metrics
    shown = {name: metrics[name] for name in (*study.headline(metrics), *study.totals) if name in metrics}
    return intervals(
        design,
        shown,
        resolve("software", software),
        study,
        accelerator_of(system),
        resolve("workload", workload),
        system,
        stated,
    )


def _document(judged: Judged) -> dict[str, Any]:
    """Intervals, and what they are wide by, JSON-ready."""
    return {
        "intervals": {name: list(ends) for name, ends in judged.bounds.items()},
        "interval_parts": {name: judged.reasons(name) for name in judged.bounds},
    }


def _why(judged: Judged, study: Study) -> str:
    """What the interval of the first metric with one is wide by, in one line."""
    from dse.measured.uncertainty.distance import WORDS

    name = next(iter(judged.bounds), "")
    parts = (f"{WORDS[part]} {show.percent(share)}" for part, share in judged.reasons(name).items())
    return f"80 % interval of {study.long_names[name]}, shares of its variance: {', '.join(parts)}" if name else ""


def leaf_values(design: Design) -> dict[str, float]:
    """Leaf path → value of a design, for JSON."""
    from dse.designs.leaves import leaf, leaves_of

    values = {path: leaf(design, path) for path in leaves_of(design)}
    return {path: float(value) for path, value in values.items() if value is not None}


def design_line(workload: str, system: str, software: str, made: Design, study: Study) -> str:
    """The design in two lines, with derived and default values."""
    from dse.designs import catalog
    from dse.types import Precision, choice_name

    m = made.mapping
    names = (
        catalog.resolve("workload", workload),
        system,
        software,
        choice_name(Precision(int(m.precision))),
    )
    degrees = [name for name in ("tp", "cp", "pp", "dp") if f"mapping.{name}" not in study.unread]
    split = " x ".join(f"{name} {getattr(m, name):g}" for name in degrees)
    first = "{} on {}, {}, {}".format(*names)
    devices = "device" if made.system.n_devices == 1 else "devices"
    return f"{first}\n{made.system.n_devices:g} {devices}{_shape(made)} = {split}; {study.settings(made)}\n"


def _shape(design: Design) -> str:
    """Axes of the slice of a torus in words; "" for other links."""
    from dse.model.links import axis_edges, slice_size
    from dse.types import Topology

    links = design.system.scale_up.links
    if links is None or links.topology != float(Topology.torus):
        return ""
    edges = [float(edge) for edge in axis_edges(links, slice_size(design.system), design.mapping.tp)]
    lengths = [high / low for low, high in itertools.pairwise(edges)]
    return f" ({' x '.join(f'{length:g}' for length in lengths if length > 1.0)} a slice)" if edges[-1] > 1.0 else ""


def print_obstacles(out: Console, reasons: Sequence[Reason]) -> None:
    """Print the reasons of infeasibility."""
    from dse.types import Infeasible

    out.print(Text("cannot run", "bold red"))
    for reason in reasons:
        fix = " (--any-option allows it)" if reason.name == Infeasible.stack_lacks.name else ""
        out.print(Text(f"  {reason.meaning}: {reason.numbers}{fix}"), soft_wrap=True)


def _print(explained: Explanation, judged: Judged, made: Design, study: Study) -> None:
    out, bounds = show.console(), judged.bounds
    metric = explained.elasticity_of.replace("_", " ")
    if explained.reasons:
        print_obstacles(out, explained.reasons)
        out.print()
    if not explained.has_step:
        out.print(Text(_no_step_note(explained, made)), soft_wrap=True)
        return
    if explained.caution:
        out.print(Text(explained.caution, "yellow"), soft_wrap=True)
    columns = ["metric", "value", *(["80 % interval"] if bounds else [])]
    show.print_table(out, columns, _headline(explained, bounds, study), left=["metric"], prose=["metric"])
    if why := _why(judged, study):
        out.print(Text(why), soft_wrap=True)
    for total, parts in explained.waterfalls.items():
        if not any(part.value for part in parts):  # an accelerator with unknown dies has no bill
            continue
        _print_total(out, explained, total, parts, study, bounds)
        if remark := study.remark(total, explained.metrics, made):
            out.print(Text(remark), soft_wrap=True)
    show.heading(out, f"operators: {study.operators_of}")
    _print_operators(out, explained.operators)
    if explained.phases:
        show.heading(out, "engine steps: time by bound")
        _print_phases(out, explained.phases)
    if explained.layer:
        layer = ", ".join(f"{p.name.replace('_', ' ')} {show.seconds(p.value)}" for p in explained.layer if p.value)
        bound = _pace(explained)
        out.print(Text(f"Per layer and micro-batch: {layer}; {bound}."), soft_wrap=True)
    show.heading(out, f"elasticities of {metric}: d ln({metric}) / d ln(parameter)")
    _print_elasticities(out, explained, metric)


def _pace(explained: Explanation) -> str:
    """What sets the pace of a layer; where the host does, how long the device waits for it."""
    if not explained.host_bound:
        return "the device sets the pace"
    waits = show.percent(explained.metrics["step_time_host"] / explained.metrics["step_time"])
    return f"launches take the host longer (host-bound): the device waits for {waits} of the step"


def _no_step_note(explained: Explanation, made: Design) -> str:
    """Note on an impossible step, with the supported precisions if that is the reason."""
    from dse.types import Infeasible

    fix = "change the values named above"
    if any(reason.name == Infeasible.precision_unsupported.name for reason in explained.reasons):
        fix = f"set precision to one of {', '.join(_precisions(made))}"
    return f"This step is not possible, so it has no time, rate or utilisation: {fix}."


def _precisions(made: Design) -> list[str]:
    """Precisions of the matrix units of a design's accelerator."""
    from dse.model.machine.rates import unsupported
    from dse.model.machine.technology import generated
    from dse.types import Precision, choice_name

    accelerator = generated(made).system.accelerator
    return [choice_name(one) for one in Precision if not unsupported(accelerator, float(one))]


def _print_total(
    out: Console,
    explained: Explanation,
    total: str,
    parts: list[Share],
    study: Study,
    bounds: dict[str, MetricInterval],
) -> None:
    """Print a total and its parts; for memory with the capacity."""
    units, value = study.units[total], explained.metrics[total]
    of_units = {"s": show.span if value > _DAYS * _DAY else show.seconds, "B": show.gib}
    text = of_units.get(units, lambda number: show.quantity(number, units))
    there = f" of {show.gib(explained.memory_capacity)}" if total == study.memory else ""
    between = f" (80 %: {' to '.join(map(text, bounds[total]))})" if total in bounds else ""
    show.heading(out, f"{total.replace('_', ' ')}: {text(value)}{there}{between}")
    _print_waterfall(out, parts, text)


def _headline(explained: Explanation, bounds: dict[str, MetricInterval], study: Study) -> list[list[str]]:
    rows = []
    for name in study.headline(explained.metrics):

        def text(value: float, units: str = study.written[name], share: bool = name in _UTILISATIONS) -> str:
            return show.percent(value) if share else show.quantity(value, units)

        between = " to ".join(map(text, bounds[name])) if name in bounds else ""
        rows.append([study.long_names[name], text(explained.metrics[name]), *([between] if bounds else [])])
    return rows


def _print_waterfall(out: Console, parts: list[Share], text: Callable[[float], str]) -> None:
    rows = [
        [part.name.replace("_", " "), text(part.value), show.percent(part.share), "█" * round(40 * part.share)]
        for part in parts
        if part.value
    ]
    show.print_table(out, ["part", "value", "share", ""], rows, left=["part", ""], spare=[""])


def _print_phases(out: Console, phases: dict[str, list[Share]]) -> None:
    """Print one line per kind of step."""
    names = [part.name for part in next(iter(phases.values()))]
    rows = [
        [name, show.seconds(sum(p.value for p in parts)), *(show.percent(p.share) for p in parts)]
        for name, parts in phases.items()
    ]
    show.print_table(out, ["step", "time", *names], rows, left=["step"])


def _print_operators(out: Console, operators: list[OperatorRow]) -> None:
    trained = any(o.backward_time for o in operators)
    rows = [
        [
            o.section,
            o.name.replace("_", " "),
            show.seconds(o.forward_time),
            o.forward_bound,
            *([show.seconds(o.backward_time), o.backward_bound] if trained else []),
            show.prefixed(o.flops, "FLOP"),
            show.prefixed(o.bytes, "B"),
            show.digits(o.intensity),
        ]
        for o in operators
    ]
    passes = ["forward", "bound by", "backward", "bound by "] if trained else ["time", "bound by"]
    both = [f"fwd+bwd {name}" if trained else name for name in ("work", "traffic")]
    columns = ["of", "operator", *passes, *both, "FLOP/B"]
    show.print_table(out, columns, rows, left=["of", "operator", "bound by", "bound by "], keys=2)


def _print_elasticities(out: Console, explained: Explanation, metric: str) -> None:
    rows = [
        [
            e.parameter,
            show.setting(e.value, e.units),
            f"{e.elasticity:+.3f}",
            f"1 % more: {e.elasticity:+.2f} % {metric}",
        ]
        for e in explained.elasticities[:_TOP]
    ]
    columns = ["parameter", "value", "elasticity", "in words"]
    show.print_table(out, columns, rows, left=["parameter", "in words"], spare=["in words"])
