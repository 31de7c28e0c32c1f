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

    from rich.table import Table

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


@report_errors
def evaluate(
    workload: Annotated[str, typer.Option("--workload", "-w", help="Workload: a name of the catalogue.")],
    system: Annotated[str, typer.Option("--system", "-s", help="System (or accelerator): a name of the catalogue.")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any value of the design: tp=8, recompute=full, …"),
    ] = None,
    n_devices: Annotated[
        int | None, typer.Option("--n-devices", "-n", help="Devices used [default: tp cp pp dp].")
    ] = None,
    software: Annotated[str | None, typer.Option(help="Training stack [default: the system's own].")] = None,
    any_option: Annotated[
        bool, typer.Option("--any-option", help="Let the mapping ask for options that the stack lacks.")
    ] = False,
    metric: Annotated[str, typer.Option(help="Metric whose elasticities are shown.")] = "step_time",
    uncertainty: Annotated[
        bool, typer.Option("--uncertainty", help="Also between what a time or rate lies, in 80 % of cases.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """One design: time, memory, what bounds each operator, and what would change it."""
    from dse.catalog import default_software
    from dse.designs import design
    from dse.explanation import explain

    values = _settings(settings or [])
    n_devices, software = _whole(values.pop("n_devices", n_devices)), values.pop("software", software)
    made = design(workload, system, software, n_devices, "--set", any_option, **values)
    explained = explain(made, metric)
    bounds = _bounds(made, software or default_software(system), explained) if uncertainty else {}
    if as_json:
        listed = {"intervals": {name: list(ends) for name, ends in bounds.items()}} if uncertainty else {}
        show.document({"design": _leaves(made), **explained.as_dict(), **listed})
    else:
        show.console().print(Text(_told(workload, system, software, made)), soft_wrap=True)
        _print(explained, bounds, made)
    return 0 if explained.feasible else NOTHING_FEASIBLE


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
        found[name.strip()] = _value(value.strip())
    return found


def _value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return float(text)
    except ValueError:
        return text


def _whole(value: Any) -> int | None:
    if value is None or (isinstance(value, int | float) and value >= 1 and value == int(value)):
        return None if value is None else int(value)
    raise InputError("--set.n_devices", str(value), "a whole number, 1 or more", "give the number of devices")


def _leaves(design: Design) -> dict[str, float]:
    from dse.designs import leaf, leaves_of

    values = {path: leaf(design, path) for path in leaves_of(design)}
    return {path: float(value) for path, value in values.items() if value is not None}


def _told(workload: str, system: str, software: str | None, made: Design) -> str:
    """The design in two lines, with what followed from the rest or was left at its plain value."""
    from dse import catalog
    from dse.types import Precision, Recompute

    m, w = made.mapping, made.workload
    names = (
        catalog.resolve("workload", workload), system, software or catalog.default_software(system),
        Precision(int(m.precision)).name.replace("_", "-"),
    )  # fmt: skip
    split = " x ".join(f"{name} {getattr(m, name):g}" for name in ("tp", "cp", "pp", "dp"))
    flags = [name for name in ("sequence_parallel", "overlap_dp", "overlap_tp") if getattr(m, name)]
    batch = f"{w.global_batch:g} sequences of {w.seq_len:g}, micro-batch {m.micro_batch:g}"
    recompute = Recompute(int(m.recompute)).name
    if m.recompute == Recompute.full and m.recompute_share < 1.0:
        recompute += f" of {show.percent(float(m.recompute_share))} of the layers"
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
            fix = " (--any-option lets it)" if reason.name == Infeasible.stack_lacks.name else ""
            out.print(Text(f"  {reason.meaning}: {reason.numbers}{fix}"), soft_wrap=True)
        out.print()
    if explained.caution:
        out.print(Text(explained.caution, "yellow"), soft_wrap=True)
    columns = ["metric", "value", *(["80 % between"] if bounds else [])]
    out.print(show.table(columns, _headline(explained, bounds), left=["metric"]))
    show.heading(out, f"step time: {show.seconds(explained.metrics['step_time'])}")
    out.print(_waterfall(explained.waterfalls["step_time"], show.seconds))
    need, capacity = explained.metrics["peak_memory"], explained.memory_capacity
    fits = show.percent(explained.metrics["fits_probability"])
    sure = show.gib(surely_below(capacity, float(made.software.memory_spread)))
    show.heading(out, f"peak memory: {show.gib(need)} of {show.gib(capacity)}")
    out.print(Text(f"It fits with a chance of {fits}; up to {sure} predicted would fit with one of 90 %."))
    out.print(_waterfall(explained.waterfalls["peak_memory"], show.gib))
    show.heading(out, f"energy of a step: {show.quantity(explained.metrics['energy_per_step'], 'J')}")
    out.print(_waterfall(explained.waterfalls["energy_per_step"], lambda joules: show.quantity(joules, "J")))
    out.print(Text(_power(explained.metrics, made)), soft_wrap=True)
    show.heading(out, "operators, one micro-batch on one device")
    out.print(_operators(explained.operators))
    layer = ", ".join(f"{p.name.replace('_', ' ')} {show.seconds(p.value)}" for p in explained.layer if p.value)
    bound = "launching its kernels holds it up (host-bound)" if explained.host_bound else "the device sets the pace"
    out.print(Text(f"One layer and micro-batch: {layer}; {bound}."), soft_wrap=True)
    show.heading(out, f"what {metric} depends on: d ln({metric}) / d ln(parameter)")
    out.print(_elasticities(explained, metric))


def _headline(explained: Explanation, bounds: dict[str, Interval]) -> list[list[str]]:
    from dse.types import Metrics, field_metadata

    rows = []
    for name in _by_weight(explained.metrics):
        meta = field_metadata(Metrics, name)

        def text(value: float, units: str = meta["units"], share: bool = name in ("mfu", "mfu_causal", "hfu")) -> str:
            return show.percent(value) if share else show.quantity(value, units)

        between = " and ".join(map(text, bounds[name])) if name in bounds else ""
        rows.append([meta["long_name"], text(explained.metrics[name]), *([between] if bounds else [])])
    return rows


def _by_weight(metrics: dict[str, float]) -> list[str]:
    """The headline; where attention dominates, utilisation of the work that is done first: the other may exceed 1."""
    names = list(_HEADLINE)
    if metrics["mfu_causal"] < (1.0 - _MOST_MASKED) * metrics["mfu"]:
        at = names.index("mfu")
        names[at : at + 2] = ["mfu_causal", "mfu"]
    return names


def _waterfall(parts: list[Share], text: Callable[[float], str]) -> Table:
    rows = [
        [part.name.replace("_", " "), text(part.value), show.percent(part.share), "█" * round(40 * part.share)]
        for part in parts
        if part.value
    ]
    return show.table(["part", "value", "share", ""], rows, left=["part", ""])


def _power(metrics: dict[str, float], made: Design) -> str:
    """Power of a device and of the system, what a megawatt feeds, and what a run takes."""

    def watts(name: str) -> str:
        return show.quantity(metrics[name], "W")

    fed = [1e6 * made.system.n_devices / metrics[f"{name}_power"] for name in ("provisioned", "peak", "average")]
    return (
        f"{show.quantity(metrics['energy_per_token'], 'J')} a token. A device draws {watts('device_power')} in the "
        f"mean; the system {watts('average_power')}, {watts('peak_power')} while all run layers, and is provided for "
        f"{watts('provisioned_power')}: a megawatt feeds {fed[0]:.0f} devices by their limits, {fed[1]:.0f} by the "
        f"peak, {fed[2]:.0f} by the mean. A run of {show.prefixed(float(made.workload.run_tokens)) + 'tokens'}: "
        f"{metrics['run_time'] / 86400:.1f} days, {metrics['run_energy'] / 3.6e9:,.0f} MWh without failures."
    )


def _operators(operators: list[OperatorRow]) -> Table:
    rows = [
        [
            o.section, o.name.replace("_", " "), show.seconds(o.forward_time), o.forward_bound,
            show.seconds(o.backward_time), o.backward_bound, show.prefixed(o.flops) + "FLOP",
            show.prefixed(o.bytes) + "B", show.digits(o.intensity),
        ]
        for o in operators
    ]  # fmt: skip
    columns = ["of", "operator", "forward", "bound by", "backward", "bound by ", "work", "traffic", "FLOP/B"]
    return show.table(columns, rows, left=["of", "operator", "bound by", "bound by "])


def _elasticities(explained: Explanation, metric: str) -> Table:
    rows = [
        [
            e.parameter, show.quantity(e.value, e.units), f"{e.elasticity:+.3f}",
            f"1 % more: {e.elasticity:+.2f} % {metric}",
        ]
        for e in explained.elasticities[:_TOP]
    ]  # fmt: skip
    return show.table(["parameter", "value", "elasticity", "in words"], rows, left=["parameter", "in words"])
