"""An explanation as sections of a report: a short answer, and its details."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dse.io import counted, digits, percent, quantity, seconds, setting
from dse.io.quantities import gib, prefixed, span
from dse.reports import Column, Line, Table, bar, caution
from dse.reports.tables import Section, Style, span_text
from dse.types.metrics import CARBON, ENERGY, MONEY, RUN
from dse.views.studies import presentation_of

if TYPE_CHECKING:
    from dse.doors import Study
    from dse.types import Design
    from dse.views.values import ExplanationValues, Reason

#: Metric → ends of its interval.
Bounds = Mapping[str, Sequence[float]]

#: Seconds of a day, and the minimum number of days for a time in days.
_DAY, _DAYS = 86400.0, 2.0

#: Metrics in per cent.
_UTILISATIONS = ("mfu", "mfu_causal", "hfu")

#: Elasticities, parts of a sum, and cautions that are shown.
_ELASTICITIES, _PARTS, _CAUTIONS = 10, 5, 2

#: Group of metrics → detail that shows its sums by part.
_DETAILS = {ENERGY: "energy", MONEY: "cost", CARBON: "carbon", RUN: "run"}


def explanation_sections(
    explanation: ExplanationValues, design: Design, bounds: Bounds, cautions: Sequence[str] = ()
) -> list[Section]:
    """Return an explanation as sections: reasons, metrics, parts of time and memory, bounds; details after them.

    Args:
        explanation: of the design.
        design: with plain numbers as leaves.
        bounds: metric → ends of its 80 % interval, where there is one.
        cautions: texts besides the explanation's own.
    """
    reasons = reason_lines(explanation.reasons)
    if not explanation.has_step:
        return [*_cautions(cautions), *reasons, Line(_no_step_text(explanation, design))]
    cautions = [*cautions, *([explanation.caution] if explanation.caution else [])]
    return [*_cautions(cautions), *reasons, *_answer(explanation, bounds), *_details(explanation, design, bounds)]


def _cautions(cautions: Sequence[str]) -> list[Line]:
    """Return the first cautions as lines, the others as a detail."""
    others = [caution(text, show="cautions") for text in cautions[_CAUTIONS:]]
    count = [caution(f"{counted(len(others), 'further caution')}: --show cautions")] if others else []
    return [*map(caution, cautions[:_CAUTIONS]), *count, *others]


def reason_lines(reasons: Sequence[Reason]) -> list[Line]:
    """Return lines on why a design cannot run, none for one that can."""
    if not reasons:
        return []
    lines = [Line(f"  {reason.meaning}: {reason.numbers}") for reason in reasons]
    return [Line("cannot run", Style.fault), *lines]


def metric_text(value: float, name: str, study: Study) -> str:
    """Format a metric with its unit: utilisations in per cent, memory in GiB, long times in days."""
    if name in _UTILISATIONS or name == "fits_probability":
        return percent(value)
    units = study.display_units[name]
    if units == "B":
        return gib(value)
    return span(value) if units == "s" and value > _DAYS * _DAY else quantity(value, units)


# --- the short answer


def _answer(explanation: ExplanationValues, bounds: Bounds) -> list[Section]:
    """Return the table of the first metrics, then lines on the parts of time and memory and on what bounds kernels."""
    study = explanation.study
    hidden = "" if explanation.feasible else "time"  # of a design that cannot run, memory says more
    lines = [
        Line(f"{_words(total)}: {text}", show="" if total == study.memory else hidden)
        for total in study.totals
        if (total == study.memory or _detail(total, study) == "time") and (text := _parts_text(explanation, total))
    ]
    return [
        _metric_table(explanation, bounds, presentation_of(study).summary, "metrics"),
        *lines,
        Line(_bound_text(explanation), show=hidden),
    ]


def _metric_table(
    explanation: ExplanationValues,
    bounds: Bounds,
    names: Mapping[str, str],
    table: str,
    title: str = "",
    show: str = "",
) -> Table:
    """Return a table of metrics, by name and in words; without intervals where there are none."""
    study = explanation.study

    def row_format(row: Mapping[str, Any]) -> Callable[[float], str]:
        return functools.partial(metric_text, name=row["name"], study=study)

    def value_text(row: Mapping[str, Any]) -> str:
        capacity_note = f" of {gib(explanation.memory_capacity)}" if row["name"] == study.memory else ""
        return row_format(row)(row["value"]) + capacity_note

    rows = [
        {
            "metric": words,
            "name": name,
            "value": explanation.metrics[name],
            "units": study.units[name],
            **dict(zip(("low", "high"), bounds.get(name, (None, None)), strict=True)),
        }
        for name, words in names.items()
        if name in explanation.metrics
    ]
    columns = [
        Column("metric", "metric", left=True, prose=True),
        Column("name", "name", hidden=True),
        Column("value", "value", row_text=value_text),
        Column("units", "units", hidden=True),
        Column("80 % interval", "low", high="high", row_format=row_format),
    ]
    return Table(table, columns if bounds else columns[:-1], rows, title, show)


def _parts_text(explanation: ExplanationValues, total: str) -> str:
    """Return the largest parts of a total with their shares, "" for none."""
    parts = sorted((part for part in explanation.waterfalls[total] if part.share >= 5e-3), key=lambda part: -part.share)
    texts = [f"{_words(part.name)} {100.0 * part.share:.0f} %" for part in parts[:_PARTS]]
    rest = sum(part.share for part in parts[_PARTS:])
    return ", ".join([*texts, f"others {100.0 * rest:.0f} %"] if rest >= 5e-3 else texts)


def _bound_text(explanation: ExplanationValues) -> str:
    """Return a line on what bounds engine steps, or the kernels of a micro-batch with the longest of them."""
    if explanation.phases:
        return "bound by " + "; ".join(
            f"{name}: {_shares_text({part.name: part.share for part in parts})}"
            for name, parts in explanation.phases.items()
        )
    mapping, layers = explanation.design.mapping, float(explanation.design.workload.n_layers)
    seconds_by_bound, seconds_by_name = dict[str, float](), dict[str, float]()
    for row in explanation.operators:
        count = 1.0 if row.section in ("embedding", "head") else layers / float(mapping.pp)
        for time, bound in ((row.forward_time, row.forward_bound), (row.backward_time, row.backward_bound)):
            seconds_by_bound[bound] = seconds_by_bound.get(bound, 0.0) + count * time
            seconds_by_name[row.name] = seconds_by_name.get(row.name, 0.0) + count * time
    total = sum(seconds_by_bound.values())
    if not total:
        return "bound: no kernel takes time"
    shares = _shares_text({bound: time / total for bound, time in seconds_by_bound.items()})
    longest = sorted(seconds_by_name, key=lambda name: -seconds_by_name[name])[:2]
    return f"kernels bound by {shares}; the longest: {', '.join(map(_words, longest))}{_host_text(explanation)}"


def _shares_text(shares: Mapping[str, float]) -> str:
    """Return names with their shares of half a per cent or more, the largest first."""
    order = sorted((name for name in shares if shares[name] >= 5e-3), key=lambda name: -shares[name])
    return ", ".join(f"{_words(name)} {100.0 * shares[name]:.0f} %" for name in order)


def _host_text(explanation: ExplanationValues) -> str:
    """Return a clause on a host that sets the pace, with the share of the step waited, "" where the device does."""
    if not explanation.host_bound:
        return ""
    waits = percent(explanation.metrics["step_time_host"] / explanation.metrics["step_time"])
    return f"; host-bound: the device waits for {waits} of the step"


# --- details


def _details(explanation: ExplanationValues, design: Design, bounds: Bounds) -> list[Section]:
    """Return further sections, each with the name of its detail."""
    study, sections = explanation.study, list[Section]()
    presentation = presentation_of(study)
    headline = {name: study.long_names[name] for name in presentation.headline(explanation.metrics)}
    sections.append(_metric_table(explanation, bounds, headline, "headline", "all headline metrics", "metrics"))
    for total in study.totals:
        if not any(part.value for part in explanation.waterfalls[total]):  # unknown dies have no bill
            continue
        detail = _detail(total, study)
        sections.append(_waterfall(explanation, total, bounds, detail))
        if remark := presentation.remark(total, explanation.metrics, design):
            sections.append(Line(remark, show=detail))
    sections.append(_operators(explanation))
    if explanation.phases:
        sections.append(_phases(explanation))
    if explanation.layer:
        layer = ", ".join(f"{_words(p.name)} {seconds(p.value)}" for p in explanation.layer if p.value)
        pace = _host_text(explanation) or "; the device sets the pace"
        sections.append(Line(f"Per layer and micro-batch: {layer}{pace}.", show="operators"))
    return [*sections, _elasticities(explanation)]


def _detail(total: str, study: Study) -> str:
    """Return the name of the detail that has the parts of a total."""
    groups = (detail for group, detail in _DETAILS.items() if total in study.group(group))
    return next(groups, "memory" if total == study.memory else "time")


def _waterfall(explanation: ExplanationValues, total: str, bounds: Bounds, detail: str) -> Table:
    """Return the table of the parts of a total that are not 0: value, share, bar."""
    study, value = explanation.study, explanation.metrics[total]

    def text(number: float) -> str:
        """Format a part in the unit of its total."""
        if study.units[total] == "B":
            return gib(number)
        long = study.units[total] == "s" and value > _DAYS * _DAY
        return span(number) if long else quantity(number, study.units[total])

    capacity_note = f" of {gib(explanation.memory_capacity)}" if total == study.memory else ""
    interval = f" (80 %: {span_text(*map(text, bounds[total]))})" if total in bounds else ""
    columns = [
        Column("part", "name", _words, left=True), Column("value", "value", text), Column("share", "share", percent),
        bar("share"),
    ]  # fmt: skip
    rows = [part for part in explanation.waterfalls[total] if part.value]
    return Table(total, columns, rows, f"{_words(total)}: {text(value)}{capacity_note}{interval}", detail)


def _operators(explanation: ExplanationValues) -> Table:
    """Return the table of operators: time and bound of each pass, FLOP, traffic in bytes, FLOP/B."""
    has_backward = any(row.backward_time for row in explanation.operators)
    passes = [
        Column("forward" if has_backward else "time", "forward_time", seconds),
        Column("bound by", "forward_bound", left=True),
    ]
    if has_backward:
        passes += [Column("backward", "backward_time", seconds), Column("bound by ", "backward_bound", left=True)]
    prefix = "fwd+bwd " if has_backward else ""
    work = [
        Column(f"{prefix}work", "flops", lambda value: prefixed(value, "FLOP")),
        Column(f"{prefix}traffic", "bytes", lambda value: prefixed(value, "B")),
        Column("FLOP/B", "intensity", digits),
    ]
    names = [Column("of", "section", left=True), Column("operator", "name", _words, left=True)]
    title = f"operators: {presentation_of(explanation.study).operators_of}"
    return Table("operators", [*names, *passes, *work], explanation.operators, title, "operators", keys=2)


def _phases(explanation: ExplanationValues) -> Table:
    """Return the table of kind of engine step → time, and the share of each bound in it."""
    names = [part.name for part in next(iter(explanation.phases.values()))]
    rows = [
        {"step": name, "time": sum(part.value for part in parts), **{part.name: part.share for part in parts}}
        for name, parts in explanation.phases.items()
    ]
    columns = [Column("step", "step", left=True), Column("time", "time", seconds)]
    columns += [Column(name, name, percent) for name in names]
    return Table("engine_steps", columns, rows, "engine steps: time by bound", "operators")


def _elasticities(explanation: ExplanationValues) -> Table:
    """Return the table of the first elasticities of a metric, in the order of the explanation."""
    metric = _words(explanation.elasticity_of)
    rows = [
        row._asdict() | {"words": f"1 % more: {row.elasticity:+.2f} % {metric}"}
        for row in explanation.elasticities[:_ELASTICITIES]
    ]
    columns = [
        Column("parameter", "parameter", left=True),
        Column("value", "value", row_text=lambda row: setting(row["value"], row["units"])),
        Column("elasticity", "elasticity", "{:+.3f}".format), Column("in words", "words", left=True, spare=True),
    ]  # fmt: skip
    title = f"elasticities of {metric}: d ln({metric}) / d ln(parameter)"
    return Table("elasticities", columns, rows, title, "elasticities")


def _words(name: str) -> str:
    """Return a name of the model as words."""
    return name.replace("_", " ")


# --- designs without a step


def _no_step_text(explanation: ExplanationValues, design: Design) -> str:
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
