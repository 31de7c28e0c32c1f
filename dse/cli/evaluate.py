"""``dse evaluate``: one design explained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from dse.cli import show
from dse.cli.status import NOTHING_FEASIBLE, report_errors
from dse.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from dse.explanation import Explanation, OperatorRow, Share
    from dse.measured.uncertainty import Interval
    from dse.types import Design

#: Elasticities printed; --json has them all.
_TOP = 10

#: Share of the model's work that a causal mask may skip before utilisation is told without it first.
_MOST_MASKED = 0.1

_HEADLINE = (
    "step_time", "tokens_per_second", "tokens_per_second_per_device", "mfu", "mfu_causal", "hfu", "parameters",
    "peak_memory",
)  # fmt: skip


#: What options of their own say.
_OPTIONS = {"workload": "-w", "system": "-s", "any_option": "--any-option"}


#: Options that say which design is meant.
Workload = Annotated[str, typer.Option("--workload", "-w", help="Workload, by its name in the catalogue.")]
System = Annotated[str, typer.Option("--system", "-s", help="System or accelerator, by its name in the catalogue.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Set any value of the design: tp=8, recompute=full, …"),
]
Devices = Annotated[
    int | None, typer.Option("--n-devices", "-n", help="Number of devices [default: tp x cp x pp x dp].")
]
Stack = Annotated[str | None, typer.Option("--software", help="Software stack [default: the system's own].")]
AnyOption = Annotated[bool, typer.Option("--any-option", help="Allow mapping options that the software stack lacks.")]


@report_errors
def evaluate(
    workload: Workload,
    system: System,
    settings: Settings = None,
    n_devices: Devices = None,
    software: Stack = None,
    any_option: AnyOption = False,
    metric: Annotated[str, typer.Option(help="Metric whose elasticities are shown.")] = "step_time",
    uncertainty: Annotated[
        bool, typer.Option("--uncertainty", help="Add 80 % intervals of times, rates and peak memory.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Explain one design.

    Prints time, memory and energy by part, what bounds each operator, and what the metric depends on most.
    """
    from dse.catalog import default_software
    from dse.designs import told_saturation
    from dse.explanation import explain

    made, software, readings = design_of(workload, system, settings, n_devices, software, any_option)
    explained = explain(made, metric)
    for told in readings:
        show.note(told)
    accelerator = made.system.accelerator
    if saturated := told_saturation(float(accelerator.memory.bandwidth), float(accelerator.power.feed)):
        show.note(saturated)
    bounds = _bounds(made, software or default_software(system), explained) if uncertainty else {}
    if as_json:
        listed = {"intervals": {name: list(ends) for name, ends in bounds.items()}} if uncertainty else {}
        show.document({"design": leaves_told(made), **explained.as_dict(), **listed})
    else:
        show.console().print(Text(told_design(workload, system, software, made)), soft_wrap=True)
        _print(explained, bounds, made)
    return 0 if explained.feasible else NOTHING_FEASIBLE


def design_of(
    workload: str, system: str, settings: list[str] | None, n_devices: int | None, software: str | None,
    any_option: bool,
) -> tuple[Design, str | None, list[str]]:  # fmt: skip
    """The design that options mean, the stack that they name, and how plain numbers of leaves with units were read."""
    from dse.designs import design, leaf_path, told_reading

    values = _settings(settings or [])
    n_devices, software = values.pop("n_devices", n_devices), values.pop("software", software)
    for name in values:
        leaf_path(name, "--set")  # of a leaf, not another argument of design()
    made = design(workload, system, software, n_devices, "--set", any_option, **values)
    readings = (told_reading(name, leaf_path(name), value) for name, value in values.items())
    return made, software, [told for told in readings if told]


def _bounds(design: Design, software: str, explained: Explanation) -> dict[str, Interval]:
    """Metric → the interval in which it lies in 80 % of cases, for those that have one."""
    from dse.measured.uncertainty import half_widths, interval_of, uncertainty_of

    half_width = float(half_widths([design], [uncertainty_of(software)])[0])
    found = {name: interval_of(name, explained.metrics[name], half_width, design.software) for name in _HEADLINE}
    return {name: ends for name, ends in found.items() if ends}


def _settings(texts: list[str]) -> dict[str, Any]:
    """``NAME=VALUE`` texts as numbers, truth values or texts."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name.strip() and equals and value.strip()):
            raise InputError("--set", repr(text), "NAME=VALUE", "write, for example, --set tp=8")
        name, value = name.strip(), value.strip()
        if name in _OPTIONS:
            raise InputError("--set", repr(text), "values of a design", f"write {_OPTIONS[name]} {value}")
        found[name] = value if name == "software" else _value(value)
    return found


def _value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return float(text)
    except ValueError:
        return text


def leaves_told(design: Design) -> dict[str, float]:
    """Every leaf of a design by its path, as JSON has them."""
    from dse.designs import leaf, leaves_of

    values = {path: leaf(design, path) for path in leaves_of(design)}
    return {path: float(value) for path, value in values.items() if value is not None}


def told_design(workload: str, system: str, software: str | None, made: Design) -> str:
    """The design in two lines, with what followed from the rest or was left at its plain value."""
    from dse import catalog
    from dse.types import Precision, Recompute, Schedule, choice_name

    m, w = made.mapping, made.workload
    names = (
        catalog.resolve("workload", workload), system, software or catalog.default_software(system),
        choice_name(Precision(int(m.precision))),
    )  # fmt: skip
    split = " x ".join(f"{name} {getattr(m, name):g}" for name in ("tp", "cp", "pp", "dp"))
    flags = [name for name in ("sequence_parallel", "overlap_dp", "overlap_tp") if getattr(m, name)]
    batch = f"{w.global_batch:g} sequences of {w.seq_len:g}, micro-batch {m.micro_batch:g}"
    recompute = choice_name(Recompute(int(m.recompute)))
    if m.recompute == Recompute.full and m.recompute_share < 1.0:
        recompute += f" of {show.percent(float(m.recompute_share))} of the layers"
    flags += [] if m.schedule is None else [f"schedule {choice_name(Schedule(int(m.schedule)))}"]
    choices = ", ".join([f"v {m.virtual_stages:g}", f"recompute {recompute}", f"ZeRO {m.zero_stage:g}", *flags])
    first = "{} on {}, {}, {}".format(*names)
    return f"{first}\n{made.system.n_devices:g} devices = {split}; {batch}; {choices}\n"


def _print(explained: Explanation, bounds: dict[str, Interval], made: Design) -> None:
    from dse.explanation import surely_below
    from dse.types import Infeasible

    out = show.console()
    metric = explained.elasticity_of.replace("_", " ")
    if explained.reasons:
        out.print(Text("cannot run", "bold red"))
        for reason in explained.reasons:
            fix = " (--any-option allows it)" if reason.name == Infeasible.stack_lacks.name else ""
            out.print(Text(f"  {reason.meaning}: {reason.numbers}{fix}"), soft_wrap=True)
        out.print()
    if explained.caution:
        out.print(Text(explained.caution, "yellow"), soft_wrap=True)
    columns = ["metric", "value", *(["80 % interval"] if bounds else [])]
    show.print_table(out, columns, _headline(explained, bounds), left=["metric"], prose=["metric"])
    show.heading(out, f"step time: {show.seconds(explained.metrics['step_time'])}")
    _print_waterfall(out, explained.waterfalls["step_time"], show.seconds)
    need, capacity = explained.metrics["peak_memory"], explained.memory_capacity
    fits = show.percent(explained.metrics["fits_probability"])
    sure = show.gib(surely_below(capacity, float(made.software.memory_spread)))
    show.heading(out, f"peak memory: {show.gib(need)} of {show.gib(capacity)}")
    out.print(Text(f"Chance that it fits: {fits}. A prediction of up to {sure} would fit with a chance of 90 %."))
    _print_waterfall(out, explained.waterfalls["peak_memory"], show.gib)
    show.heading(out, f"energy per step: {show.quantity(explained.metrics['energy_per_step'], 'J')}")
    _print_waterfall(out, explained.waterfalls["energy_per_step"], lambda joules: show.quantity(joules, "J"))
    out.print(Text(_power(explained.metrics, made)), soft_wrap=True)
    show.heading(out, "operators: one micro-batch on one device")
    _print_operators(out, explained.operators)
    layer = ", ".join(f"{p.name.replace('_', ' ')} {show.seconds(p.value)}" for p in explained.layer if p.value)
    bound = "kernel launches set the pace (host-bound)" if explained.host_bound else "the device sets the pace"
    out.print(Text(f"Per layer and micro-batch: {layer}; {bound}."), soft_wrap=True)
    show.heading(out, f"what {metric} depends on most: elasticities d ln({metric}) / d ln(parameter)")
    _print_elasticities(out, explained, metric)


def _headline(explained: Explanation, bounds: dict[str, Interval]) -> list[list[str]]:
    from dse.types import Metrics, field_metadata

    rows = []
    for name in _by_weight(explained.metrics):
        meta = field_metadata(Metrics, name)

        def text(value: float, units: str = meta["units"], share: bool = name in ("mfu", "mfu_causal", "hfu")) -> str:
            return show.percent(value) if share else show.quantity(value, units)

        between = " to ".join(map(text, bounds[name])) if name in bounds else ""
        rows.append([meta["long_name"], text(explained.metrics[name]), *([between] if bounds else [])])
    return rows


def _by_weight(metrics: dict[str, float]) -> list[str]:
    """The headline; where attention dominates, utilisation of the work that is done first: the other may exceed 1."""
    names = list(_HEADLINE)
    if metrics["mfu_causal"] < (1.0 - _MOST_MASKED) * metrics["mfu"]:
        at = names.index("mfu")
        names[at : at + 2] = ["mfu_causal", "mfu"]
    return names


def _print_waterfall(out: Console, parts: list[Share], text: Callable[[float], str]) -> None:
    rows = [
        [part.name.replace("_", " "), text(part.value), show.percent(part.share), "█" * round(40 * part.share)]
        for part in parts
        if part.value
    ]
    show.print_table(out, ["part", "value", "share", ""], rows, left=["part", ""], spare=[""])


def _power(metrics: dict[str, float], made: Design) -> str:
    """Power of a device and of the system, how many devices a megawatt feeds, and what a run takes."""

    def watts(name: str) -> str:
        return show.quantity(metrics[name], "W")

    fed = [1e6 * made.system.n_devices / metrics[f"{name}_power"] for name in ("provisioned", "peak", "average")]
    return (
        f"{show.quantity(metrics['energy_per_token'], 'J')} per token. A device draws {watts('device_power')} on "
        f"average. The system draws {watts('average_power')} on average and {watts('peak_power')} at its peak, and is "
        f"provisioned for {watts('provisioned_power')}. One megawatt feeds {fed[0]:,.0f} devices by provisioned power, "
        f"{fed[1]:,.0f} by peak power and {fed[2]:,.0f} by average power. "
        f"A run of {show.prefixed(float(made.workload.run_tokens), 'tokens')}: "
        f"{metrics['run_time'] / 86400:.1f} days and {metrics['run_energy'] / 3.6e9:,.0f} MWh, without failures."
    )


def _print_operators(out: Console, operators: list[OperatorRow]) -> None:
    rows = [
        [
            o.section, o.name.replace("_", " "), show.seconds(o.forward_time), o.forward_bound,
            show.seconds(o.backward_time), o.backward_bound, show.prefixed(o.flops, "FLOP"),
            show.prefixed(o.bytes, "B"), show.digits(o.intensity),
        ]
        for o in operators
    ]  # fmt: skip
    columns = ["of", "operator", "forward", "bound by", "backward", "bound by ", "work", "traffic", "FLOP/B"]
    show.print_table(out, columns, rows, left=["of", "operator", "bound by", "bound by "], keys=2)


def _print_elasticities(out: Console, explained: Explanation, metric: str) -> None:
    rows = [
        [
            e.parameter, show.setting(e.value, e.units), f"{e.elasticity:+.3f}",
            f"1 % more: {e.elasticity:+.2f} % {metric}",
        ]
        for e in explained.elasticities[:_TOP]
    ]  # fmt: skip
    columns = ["parameter", "value", "elasticity", "in words"]
    show.print_table(out, columns, rows, left=["parameter", "in words"], spare=["in words"])
