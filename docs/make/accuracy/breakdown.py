"""Errors of step times by chip and by model, over rows and over sources, and the rows that are furthest off."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence

from docs.make.markdown import filed, percent
from dse.io import counted
from dse.measured.comparison import Comparison, is_timed, summary

#: Rows told one by one.
_WORST = 20

#: Models of fewer rows are told together.
_FEWEST = 3

#: Another tool's output is compared apart.
_NOT_MEASURED = ("Calculon",)


def timed(compared: Iterable[Comparison]) -> list[Comparison]:
    """Predicted step times and rates that were measured."""
    return [c for c in compared if is_timed(c) and not c.duplicate and not c.source.startswith(_NOT_MEASURED)]


def sections(compared: Sequence[Comparison]) -> list[str]:
    """Parts of the page; none where no step was timed."""
    steps = timed(compared)
    if not steps:
        return []
    by_model = lines_by(steps, lambda c: c.measurement.row.get("model") or "sizes alone", _FEWEST)
    tables = {
        "by chip": filed("accuracy_chips", _columns("chip"), lines_by(steps, _chip)),
        "by model": filed("accuracy_models", _columns("model"), by_model),
        f"the {min(_WORST, len(steps))} largest errors, with likely reasons": _furthest(steps),
    }
    return [
        "## Step times and rates",
        _over_rows_and_sources(steps),
        _how_many(compared),
        "\n".join(f"- {what}: {one}" for what, one in tables.items()),
    ]


def _over_rows_and_sources(steps: Sequence[Comparison]) -> str:
    sizes = [abs(c.error) for c in steps]
    means = [statistics.fmean(abs(c.error) for c in rows) for rows in sources(steps).values()]
    return (
        f"{len(steps)} rows of {len(means)} sources: mean error {percent(statistics.fmean(sizes))}, median "
        f"{percent(statistics.median(sizes))}. Each source counted once, whatever its rows: mean "
        f"{percent(statistics.fmean(means))}, median {percent(statistics.median(means))}. The stacks' parameters were "
        "fitted to these rows, except those of fine-tuning and of sources that the tables "
        "above leave out."
    )


def _how_many(compared: Sequence[Comparison]) -> str:
    """How many of the rows that the model covers were predicted."""
    rows = [c for c in compared if not c.duplicate and not c.source.startswith(_NOT_MEASURED)]
    outside = ("not modelled", "fine-tuning", "not a metric", "time to train", "nothing measured")
    modelled = [c for c in rows if c.skip is None or not any(word in c.skip.reason for word in outside)]
    predicted = sum(c.skip is None for c in modelled)
    return (
        f"Of {len(rows)} measured figures {len(modelled)} are of training that is modelled, on switched clusters; "
        f"{predicted} of these are predicted ({percent(predicted / max(len(modelled), 1))}), the others leave out what "
        "no rule can complete."
    )


def _columns(what: str) -> list[str]:
    return [what, "rows", "mean", "median", "90 %", "bias", "constant MFU"]


def _chip(compared: Comparison) -> str:
    row = compared.measurement.row
    return row.get("gpu") or row.get("system")


def lines_by(steps: Sequence[Comparison], key: Callable[[Comparison], str], fewest: int = 1) -> list[list[str]]:
    """One line a group, those of fewer rows together in the last."""
    groups: dict[str, list[Comparison]] = {}
    for c in steps:
        groups.setdefault(key(c), []).append(c)
    small = [c for group in groups.values() if len(group) < fewest for c in group]
    lines = {name: group for name, group in sorted(groups.items()) if len(group) >= fewest}
    return [_line(name, group) for name, group in (lines | ({"others": small} if small else {})).items()]


def _line(name: str, group: Sequence[Comparison]) -> list[str]:
    found = summary(group)
    sizes = (percent(found[statistic]) for statistic in ("mape", "median_ape", "p90"))
    return [name, str(found["predicted"]), *sizes, percent(found["bias"], "+"), percent(found["baseline_mape"])]


def _furthest(steps: Sequence[Comparison]) -> str:
    header = ["source", "model", "devices", "tp", "pp", "dp", "micro-batch", "sequence", "error", "likely reason"]
    alike = neighbours(steps)
    lines = []
    for c in sorted(steps, key=lambda c: -abs(c.error))[:_WORST]:
        w, m = c.prediction.design.workload, c.prediction.design.mapping
        model = c.measurement.row.get("model") or f"{w.n_layers:g} x {w.hidden:g}"
        sizes = (c.prediction.design.system.n_devices, m.tp, m.pp, m.dp, m.micro_batch, w.seq_len)
        lines.append([c.source, model, *(f"{size:g}" for size in sizes), percent(c.error, "+"), reason_of(c, alike)])
    return filed("accuracy_largest", header, lines)


def neighbours(steps: Sequence[Comparison]) -> dict[tuple[object, ...], list[float]]:
    """Source, width, degrees → errors of the rows that have them; and the same of each micro-batch apart."""
    found: dict[tuple[object, ...], list[float]] = {}
    for c in steps:
        for family in (_degrees(c), (*_degrees(c), float(c.prediction.design.mapping.micro_batch))):
            found.setdefault(family, []).append(c.error)
    return found


def _degrees(c: Comparison) -> tuple[object, ...]:
    w, m = c.prediction.design.workload, c.prediction.design.mapping
    return c.source, float(w.hidden), float(m.tp), float(m.pp)


#: Share of a step spent waiting for the host from which its pace counts as the reason.
_HOST_BOUND = 0.1


def reason_of(c: Comparison, alike: dict[tuple[object, ...], list[float]]) -> str:
    """What the row and its neighbours tell of why it is off; nothing is made up where they tell nothing."""
    metrics, m = c.prediction.metrics, c.prediction.design.mapping
    others, same = alike[_degrees(c)], alike[*_degrees(c), float(m.micro_batch)]
    middle = statistics.median(others)
    if metrics["step_time_host"] > _HOST_BOUND * metrics["step_time"]:
        return f"host-bound: launches went at another pace than in the {counted(len(others), 'row')} of these degrees"
    if len(same) >= 3 and len(same) < len(others) and abs(statistics.median(same) - middle) > 0.5 * abs(c.error):
        return f"all {len(same)} rows of this micro-batch; those of others {percent(middle, '+')}: not modelled"
    if len(others) >= 4 and abs(middle) < 0.5 * abs(c.error):
        return f"scatter: {len(others)} rows of these degrees have a median error of {percent(middle, '+')}"
    if len(others) >= 3 and abs(middle) >= 0.5 * abs(c.error):
        return f"the {len(others)} rows of these degrees are off alike, {percent(middle, '+')}: not modelled"
    completed = [
        name
        for name in ("recompute", "micro_batch", "tp", "pp", "virtual_stages", "global_batch")
        if name in c.prediction.completed
    ]
    if completed:
        return f"{', '.join(completed).replace('_', ' ')} not stated, completed by rule"
    return c.prediction.note or "not known"


def sources(compared: Sequence[Comparison]) -> dict[str, list[Comparison]]:
    """Source → its timed rows, those with most rows last."""
    by_source: dict[str, list[Comparison]] = {}
    for c in timed(compared):
        by_source.setdefault(c.source, []).append(c)
    return dict(sorted(by_source.items(), key=lambda item: len(item[1])))
