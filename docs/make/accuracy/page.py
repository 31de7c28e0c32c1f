"""The accuracy page: what was predicted, how far off it is, and what was left out, as Markdown."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from docs.make import refused
from docs.make.accuracy import breakdown, decisions
from docs.make.accuracy.calculon import calculon_section
from docs.make.accuracy.claims import CLAIMS, Claim
from docs.make.accuracy.figure import draw
from docs.make.markdown import document, filed, percent, publish, table
from dse.designs import catalog
from dse.measured.comparison import Comparison, compare, report
from dse.types import Recompute

_HOW_TO_READ = """\
An error is predicted over measured, less one. A rate counts as the source gives it, a FLOP rate as the step time it was
computed from. *Mean*, *median* and *90 %* are of absolute errors, *bias* keeps the sign. *Constant MFU* predicts a whole
source by the median utilisation of its rows. `n` counts configurations. What a row leaves open is completed by rule
(`completed` in the output of `dse validate -o`): the stack's default, the lightest recompute that fits, the fastest
mapping. *Over capacity*: the stated mapping needs more memory than the device has by our count."""


def write_page(path: str | Path, tables: Sequence[str | Path], command: str) -> None:
    """Compare with ``tables``, write the page to ``path`` and its figure beside it; ``command`` is named on it."""
    compared = compare(tables)
    figure = Path(path).with_suffix(".png")
    drawn = draw(compared, figure)
    fits = Path(path).with_name("calibration.json")
    not_seen = json.loads(fits.read_text(encoding="utf-8")) if fits.exists() else {}
    publish(Path(path), page(compared, command, figure.name if drawn else "", not_seen))


#: "sources" and "chips" → name → errors of fits that had not seen its rows, :class:`dse.lab.fits.stacks.SourceErrors`.
NotSeen = Mapping[str, Mapping[str, Mapping[str, float]]]


def page(
    compared: Sequence[Comparison], command: str, figure: str = "", not_seen: NotSeen = MappingProxyType({})
) -> str:
    """The page as Markdown; ``figure`` is the file beside it that shows measured against predicted."""
    found = report(compared)
    claimed = [(claim, rows) for claim in CLAIMS if claim.heading and (rows := _claimed(claim, compared))]
    parts = [
        "# Accuracy",
        f"Written by `{command}`. Catalogue {catalog.digest()[:12]}.",
        *(["## What is claimed", _ABOUT_CLAIMS, _claims(claimed, not_seen)] if claimed else []),
        *(["## Errors of rows that no fit has seen", _ABOUT_UNSEEN, *_unseen(not_seen)] if not_seen else []),
        *breakdown.sections(compared),
        *([f"![predicted over measured, by source]({figure})"] if figure else []),
        "## Tables",
        "\n".join(f"- {what}: {one}" for what, one in _tables(found, claimed)),
        *decisions.section(compared),
        *calculon_section(compared),
        *refused.section(compared),
        "## Excluded rows, by reason",
        *_skipped(compared),
        "## How to read this",
        _HOW_TO_READ,
    ]
    return document(parts)


_ABOUT_UNSEEN = """\
Mean errors of step times of dense models and mixtures. *Unseen publication*: what a stack or cluster has to expect that
nobody measured for dse; *unseen configuration*: what another mapping or size on a measured one has to expect.
[calibration.md](calibration.md) says how rows are left out."""


#: Errors by what a fit had not seen, as tables head them.
_SHOWN = ("unseen publication", "unseen configuration", "fitted rows")


def _unseen(not_seen: NotSeen) -> list[str]:
    """Errors by chip and by source of fits that had not seen the rows."""
    found = []
    for what in ("chip", "source"):
        if f"{what}s" not in not_seen:
            continue
        rows = [
            [name, f"{one['rows']}", *(percent(one[way]) for way in ("foreign", "unseen", "seen"))]
            for name, one in not_seen[f"{what}s"].items()
        ]
        header = [what, "rows", *_SHOWN]
        if what == "chip":
            found.append(table(header, rows))
        else:
            found += [table(header, rows[-3:]), f"By publication: {filed('accuracy_unseen', header, rows[:-3])}"]
    return found


def _tables(found: Mapping[str, Any], claimed: Iterable[tuple[Claim, list[Comparison]]]) -> list[tuple[str, str]]:
    """The long tables: what each holds, and the table."""
    return [
        (
            "errors by source and metric",
            filed(
                "accuracy_sources", _ERRORS, [[r["source"], r["metric"], *_errors(r)] for r in found["rows"] if r["n"]]
            ),
        ),
        (
            "errors by metric",
            filed(
                "accuracy_metrics", _ERRORS[1:], [[metric, *_errors(r)] for metric, r in found["all"].items() if r["n"]]
            ),
        ),
        (
            "the rows of the claims, one by one",
            filed(
                "accuracy_rows",
                ["claim", *_DETAILS],
                [[claim.heading, *line] for claim, rows in claimed for line in _details(rows)],
            ),
        ),
    ]


_ERRORS = ["source", "metric", "n", "predicted", "skipped", "mean", "median", "90 %", "bias", "constant MFU"]


def _errors(row: dict[str, Any]) -> list[str]:
    counts = [row["n"], row["predicted"], sum(row["skipped"].values())]
    statistics = [row[name] for name in ("mape", "median_ape", "p90")]
    return [*map(str, counts), *map(percent, statistics), percent(row["bias"], "+"), percent(row["baseline_mape"])]


def _claimed(claim: Claim, compared: Iterable[Comparison]) -> list[Comparison]:
    return [c for c in compared if c.skip is None and claim.covers(c)]


_ABOUT_CLAIMS = """\
Mean errors. *Unseen publication*: by fits without any row of the publication; *unseen configuration*: by fits without
the row's configuration; *fitted rows*: by the fit to all rows. Memory is counted; nothing is fitted to it, but
torchtitan's bytes a logit were counted in its code with these rows in view. `dse validate tests/published/TABLE.csv`
prints each."""


def _claims(claimed: Iterable[tuple[Claim, list[Comparison]]], not_seen: NotSeen) -> str:
    """Each claim with its errors, the bound of that in sample, the baseline and the command that shows it."""
    rows = []
    for claim, found in claimed:
        mean, baseline = (sum(map(abs, errors)) / len(found) for errors in _errors_and_baseline(found))
        command = f"`{claim.table}`"
        rows.append(
            [
                claim.heading,
                str(len(found)),
                *_not_seen(claim, found, not_seen),
                percent(mean, digits=2),
                f"≤ {percent(claim.mean)}",
                percent(baseline),
                command,
            ]
        )
    header = ["claim", "rows", *_SHOWN, "must be", "constant MFU", "table"]
    return table(header, rows)


def _not_seen(claim: Claim, rows: Sequence[Comparison], not_seen: NotSeen) -> list[str]:
    """Errors of a claim's source left out and of its rows not seen, where something was fitted to them."""
    if claim.metric.startswith("peak_memory") or claim.experts or claim.tuned:
        return ["not fitted", "not fitted"]
    errors = not_seen.get("sources", {}).get(rows[0].source)
    return [percent(errors[name]) for name in ("foreign", "unseen")] if errors else ["–", "–"]


def _errors_and_baseline(rows: Sequence[Comparison]) -> tuple[list[float], list[float]]:
    return [c.error for c in rows], [c.baseline_error for c in rows]


_UNITS: dict[str, tuple[str, Callable[[float], str]]] = {
    "step_time": ("s", lambda value: f"{value:.4g}"),
    "tokens_per_second": ("1/s", lambda value: f"{value:.4g}"),
    "tokens_per_second_per_device": ("1/s", lambda value: f"{value:.4g}"),
    "peak_memory": ("GiB", lambda value: f"{value / 2**30:.2f}"),
}


_DETAILS = [
    "model", "devices", "tp", "pp", "dp", "micro-batch", "v", "recompute", "sequence parallel", "unit", "measured",
    "predicted", "error", "completed", "note",
]  # fmt: skip


def _details(rows: Sequence[Comparison]) -> Iterator[list[str]]:
    """Measured and predicted of some rows of one metric, with their mappings."""
    unit, shown = _UNITS["peak_memory" if rows[0].metric.startswith("peak_memory") else rows[0].metric]
    for c in rows:
        mapping = c.prediction.design.mapping
        degrees = (c.prediction.design.system.n_devices, mapping.tp, mapping.pp, mapping.dp, mapping.micro_batch)
        completed = [f"{k}={v}" for k, v in c.prediction.completed.items() if k not in ("system", "software")]
        yield [
            c.measurement.row.get("model"),
            *(f"{degree:g}" for degree in degrees),
            f"{mapping.virtual_stages:g}",
            Recompute(int(mapping.recompute)).name,
            "yes" if mapping.sequence_parallel else "no",
            unit,
            shown(c.measured),
            shown(c.predicted),
            percent(c.error, "+"),
            " ".join(completed),
            c.prediction.note,
        ]


def _skipped(compared: Iterable[Comparison]) -> list[str]:
    """Rows by reason, and the same by source."""
    counts = Counter((c.skip.reason, c.source) for c in compared if c.skip is not None and not c.duplicate)
    if not counts:
        return ["None."]
    by_source = filed(
        "accuracy_excluded",
        ["reason", "source", "rows"],
        [[reason, source, str(count)] for (reason, source), count in sorted(counts.items())],
    )
    return [f"{sum(counts.values()):,} rows, by reason and source: {by_source}"]
