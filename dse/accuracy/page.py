"""The accuracy page: what was predicted, how far off it is, and what was left out, as Markdown."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dse import catalog
from dse.accuracy import breakdown
from dse.accuracy.calculon import calculon_section
from dse.accuracy.figure import draw
from dse.accuracy.markdown import percent, table
from dse.measured.comparison import Comparison, Report, compare, report
from dse.types import Recompute


class Claim(NamedTuple):
    """Rows that are shown one by one, and the mean error they must stay within (None: not yet claimed)."""

    source: str  #: prefix
    metric: str
    heading: str
    table: str  #: where a checkout has the rows
    bound: float | None = None


CLAIMS = (
    Claim(
        "Korthikanti2022_table5", "step_time", "Korthikanti et al. 2022, table 5: step time", "korthikanti_2022", 0.025,
    ),
    Claim("Narayanan2021_table1", "step_time", "Narayanan et al. 2021, table 1: step time", "narayanan_2021", 0.04),
    Claim(
        "Korthikanti2022_fig1", "peak_memory_state", "Korthikanti et al. 2022, figure 1: model state of the layers",
        "korthikanti_2022", 0.001,
    ),
    Claim(
        "Korthikanti2022_fig1", "peak_memory_activations",
        "Korthikanti et al. 2022, figure 1: activations of the layers", "korthikanti_2022", 0.001,
    ),
    Claim("SimuMax", "peak_memory", "Megatron-LM on 8 B200 (with SimuMax): peak memory", "megatron_b200", 0.005),
    Claim("SimuMax", "step_time", "Megatron-LM on 8 B200 (with SimuMax): step time", "megatron_b200", 0.04),
)  # fmt: skip

_HOW_TO_READ = """\
An error is predicted over measured, less one; a rate counts as the source gives it, a FLOP rate as the step time it
was computed from. *Mean*, *median* and *90 %* are of absolute errors, *bias* keeps the sign. *Constant MFU* predicts a
whole source by one utilisation, the median of what its own rows imply: a model that does not beat it has learnt
nothing about that source beyond its level, and a source of one row says nothing. `n` counts configurations, each once
per kind of figure. What a row leaves open is completed by rule (`completed` in the output of `dse validate -o`): a
stack's default, the lightest recompute that fits memory, the fastest micro-batch, interleaving, tp and pp. *Over
capacity* marks rows whose stated mapping needs more memory than the device has by our count, though it was run or
published."""


def write_accuracy(path: str | Path, tables: Sequence[str | Path], command: str | None = None) -> Report:
    """Validate ``tables``, write the page to ``path`` and its figure beside it; returns the report.

    ``command`` is what the page says to run; by default ``python -m dse validate`` with the tables.
    """
    compared = compare(tables)
    figure = Path(path).with_suffix(".png")
    drawn = draw(compared, figure)
    command = command or shlex.join(["python", "-m", "dse", "validate", *map(str, tables)])
    Path(path).write_text(page(compared, command, figure.name if drawn else ""), encoding="utf-8")
    return report(compared)


def page(compared: Sequence[Comparison], command: str, figure: str = "") -> str:
    """The page as Markdown; ``figure`` is the file beside it that shows measured against predicted."""
    found = report(compared)
    claimed = [(claim, rows) for claim in CLAIMS if (rows := _claimed(claim, compared))]
    details = [part for claim, rows in claimed for part in (f"### {claim.heading}", _details(rows), _mean(rows))]
    parts = [
        "# Accuracy",
        f"Written by `{command}`. Catalogue {catalog.digest()[:12]}.",
        *(["## What is claimed", _claims(claimed)] if claimed else []),
        *breakdown.sections(compared),
        *([f"![predicted over measured, by source]({figure})"] if figure else []),
        "## By source and metric",
        table(_ERRORS, [[r["source"], r["metric"], *_errors(r)] for r in found["rows"] if r["n"]]),
        "## By metric",
        table(_ERRORS[1:], [[metric, *_errors(r)] for metric, r in found["all"].items() if r["n"]]),
        *(["## Row by row", *details] if details else []),
        *calculon_section(compared),
        "## What is skipped, and why",
        _skipped(compared),
        "## How to read this",
        _HOW_TO_READ,
    ]
    return "\n\n".join(parts) + "\n"


_ERRORS = ["source", "metric", "n", "predicted", "skipped", "mean", "median", "90 %", "bias", "constant MFU"]


def _errors(row: dict[str, Any]) -> list[str]:
    counts = [row["n"], row["predicted"], sum(row["skipped"].values())]
    statistics = [row[name] for name in ("mape", "median_ape", "p90")]
    return [*map(str, counts), *map(percent, statistics), percent(row["bias"], "+"), percent(row["baseline_mape"])]


def _claimed(claim: Claim, compared: Iterable[Comparison]) -> list[Comparison]:
    return [c for c in compared if c.metric == claim.metric and c.skip is None and c.source.startswith(claim.source)]


def _claims(claimed: Iterable[tuple[Claim, list[Comparison]]]) -> str:
    """Each claim with its figure, its bound, the baseline and the command that shows it."""
    rows = []
    for claim, found in claimed:
        mean, baseline = (sum(map(abs, errors)) / len(found) for errors in _errors_and_baseline(found))
        bound = "–" if claim.bound is None else f"≤ {percent(claim.bound)}"
        command = f"`dse validate tests/published/{claim.table}.csv`"
        rows.append([claim.heading, str(len(found)), percent(mean, digits=2), bound, percent(baseline), command])
    return table(["claim", "rows", "mean error", "must be", "constant MFU", "command"], rows)


def _errors_and_baseline(rows: Sequence[Comparison]) -> tuple[list[float], list[float]]:
    return [c.error for c in rows], [c.baseline_error for c in rows]


_UNITS: dict[str, tuple[str, Callable[[float], str]]] = {
    "step_time": ("s", lambda value: f"{value:.4g}"),
    "peak_memory": ("GiB", lambda value: f"{value / 2**30:.2f}"),
}


def _details(rows: Sequence[Comparison]) -> str:
    """Measured and predicted of some rows of one metric, with their mappings."""
    metric = rows[0].metric
    unit, shown = _UNITS["peak_memory" if metric.startswith("peak_memory") else "step_time"]
    header = [
        "model", "devices", "tp", "pp", "dp", "micro-batch", "v", "recompute", "sequence parallel",
        f"measured ({unit})", f"predicted ({unit})", "error", "completed", "note",
    ]  # fmt: skip
    lines = []
    for c in rows:
        mapping = c.prediction.design.mapping
        degrees = (c.prediction.design.system.n_devices, mapping.tp, mapping.pp, mapping.dp, mapping.micro_batch)
        completed = [f"{k}={v}" for k, v in c.prediction.completed.items() if k not in ("system", "software")]
        lines.append([
            c.measurement.row.get("model"), *(f"{degree:g}" for degree in degrees), f"{mapping.virtual_stages:g}",
            Recompute(int(mapping.recompute)).name, "yes" if mapping.sequence_parallel else "no",
            shown(c.measured), shown(c.predicted), percent(c.error, "+"), " ".join(completed), c.prediction.note,
        ])  # fmt: skip
    return table(header, lines)


def _mean(rows: Sequence[Comparison]) -> str:
    return f"Mean absolute error {percent(sum(abs(c.error) for c in rows) / len(rows))} over {len(rows)} rows."


def _skipped(compared: Iterable[Comparison]) -> str:
    counts = Counter((c.skip.reason, c.source) for c in compared if c.skip is not None and not c.duplicate)
    rows = [[reason, source, str(count)] for (reason, source), count in sorted(counts.items())]
    return table(["reason", "source", "rows"], rows) if rows else "Nothing."
