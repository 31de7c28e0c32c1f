"""The record of forecasts: predictions written before rows are read, and their scores once rows are there.

``python -m docs.make.forecasts docs/forecasts.md``: scores the forecasts of ``docs/record/forecasts.csv`` that
``docs/record/outcomes.csv`` has rows of, and writes the page. ``--add docs/record/forecasts.toml`` first appends
forecasts of what is listed there and stands not yet in the record. ``--edition`` appends the scores of rows left out
(``docs/tables/intervals_scores.csv``, of ``docs.make.intervals``) to ``docs/record/editions.csv``. Lines are never
edited: each has the hash of all before it.
"""

from __future__ import annotations

import csv
import datetime
import subprocess
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calibration.scores import crps, log_score
from docs.make import record
from docs.make.command import page_parser
from docs.make.markdown import document, filed, percent, publish, table
from docs.make.reliability import draw
from dse.designs import accelerator_of, catalog, design
from dse.doors import STUDIES
from dse.io import quantity
from dse.measured.decisions.choice import Choice, intervals_of
from dse.measured.prediction import evaluate_many
from dse.measured.uncertainty import distance, parts as uncertainty

FOLDER = Path("docs/record")
FORECASTS, OUTCOMES, EDITIONS = (FOLDER / f"{name}.csv" for name in ("forecasts", "outcomes", "editions"))
SCORES = Path("docs/tables/intervals_scores.csv")

#: Metrics that are forecast, by study.
METRICS = {
    "training": ("step_time", "tokens_per_second_per_device", "peak_memory"),
    "serving": ("output_tokens_per_second_per_device", "time_per_output_token", "time_to_first_token"),
}

#: Columns of a forecast that say what it is of.
_OF = ("study", "workload", "system", "software", "settings", "metric")

_ABOUT = """\
Forecasts stand in [record/forecasts.csv](record/forecasts.csv): predictions for systems of the catalogue that no fit of
the stack has rows of, with date, commit, median and the ends of the 80 % interval. The file only grows: each line has
the hash of itself and all before it, and a test refuses edits. A published row is entered in
[record/outcomes.csv](record/outcomes.csv) and scored here, if its forecast is older."""

_PENDING = """\
Median and 80 % interval of the forecasts that no row has answered; *by* are the levels of distance from measured rows
([intervals.md](intervals.md)):"""

_LEFT_OUT = """\
Until rows appear, the scores of rows left out of all fits ([intervals.md](intervals.md)) stand in; each group has the
same weight. The table has, by figure and what was left out: the share held at 50, 80 and 95 % (Student's t), the width,
CRPS and log score of the log figure (least is best) beside those of a *constant* fitted to the very rows, and the
edition before. Groups one by one: [tables/intervals_scores.csv](tables/intervals_scores.csv)."""


def listed(path: Path) -> Iterator[dict[str, Any]]:
    """Designs of a list of forecasts: each system with each workload."""
    for entry in tomllib.loads(path.read_text(encoding="utf-8"))["forecast"]:
        for system in entry["systems"]:
            yield {
                "study": entry["study"],
                "workload": entry["workload"],
                "system": system,
                "software": entry.get("software", ""),
                "settings": entry.get("settings", {}),
            }


def forecasts_of(entries: Sequence[dict[str, Any]]) -> Iterator[dict[str, str]]:
    """Lines of forecasts of designs, of those that can run."""
    for entry in entries:
        study, serves = STUDIES[entry["study"]], entry["study"] == "serving"
        system, workload = entry["system"], entry["workload"]
        stack = entry["software"] or catalog.default_software(system, serving=serves, workload=workload)
        made = study.complete(design(workload, system, stack, kind=entry["study"], **entry["settings"]))
        metrics = evaluate_many([made], study)
        if not metrics["feasible"][0]:
            continue
        choice = Choice("", made, catalog.resolve("software", stack), accelerator_of(system), workload)
        at = distance.design_levels(choice.stack, choice.accelerator, made, workload)
        found = intervals_of([choice], METRICS[entry["study"]], study)
        for metric in METRICS[entry["study"]]:
            if not (ends := found.get(metric, [None])[0]):
                continue
            deviation = np.log(ends.high / ends.low) / 2.0 / uncertainty.quantile()
            yield {
                "study": entry["study"],
                "workload": workload,
                "system": system,
                "software": choice.stack,
                "settings": " ".join(f"{name}={value}" for name, value in entry["settings"].items()),
                "metric": metric,
                "units": study.units[metric],
                "median": f"{float(metrics[metric][0]):.5g}",
                "low": f"{ends.low:.5g}",
                "high": f"{ends.high:.5g}",
                "deviation": f"{deviation:.4f}",
                "levels": " ".join(at),
            }


def add(path: Path, date: str, commit: str) -> int:
    """Append forecasts of a list that the record has not; how many."""
    known = record.read(FORECASTS)
    seen = {tuple(line[name] for name in _OF) for line in known}
    new = [one for one in forecasts_of([*listed(path)]) if tuple(one[name] for name in _OF) not in seen]
    lines = [{"number": str(len(known) + i), "date": date, "commit": commit, **one} for i, one in enumerate(new, 1)]
    record.append(FORECASTS, lines)
    return len(lines)


def answered(forecasts: Sequence[dict[str, str]], outcomes: Sequence[dict[str, str]]) -> list[dict[str, Any]]:
    """Outcomes with their forecasts and scores; ValueError for one that is of no forecast, or older than it."""
    by_number = {line["number"]: line for line in forecasts}
    found = []
    for one in outcomes:
        if one["number"] not in by_number:
            raise ValueError(f"outcome of forecast {one['number']}, which the record has not")
        line = by_number[one["number"]]
        if one["date"] <= line["date"]:
            raise ValueError(f"outcome of {one['date']} for forecast {one['number']} of {line['date']}: it came before")
        error = np.array([np.log(float(line["median"]) / float(one["measured"]))])
        deviation = np.array([float(line["deviation"])])
        found.append(
            {
                **line,
                "source": one["source"],
                "measured": float(one["measured"]),
                "error": float(error[0]),
                "held": float(line["low"]) <= float(one["measured"]) <= float(line["high"]),
                "crps": float(crps(error, deviation)[0]),
                "log_score": float(log_score(error, deviation)[0]),
            }
        )
    return found


def edition(date: str, commit: str) -> None:
    """Append the scores of rows left out, unless they are those of the last edition."""
    lines = [
        {
            "date": date,
            "commit": commit,
            **{
                name: one[name]
                for name in (
                    "figures",
                    "left_out",
                    "rows",
                    "groups",
                    "held_50",
                    "held_80",
                    "held_95",
                    "width",
                    "crps",
                    "log_score",
                )
            },
        }
        for one in scores()
        if one["group"] == "all"
    ]
    last = last_edition(record.read(EDITIONS))
    if [_plain(one) for one in last] != [_plain(one) for one in lines]:
        record.append(EDITIONS, lines)


def _plain(line: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in line.items() if name not in ("date", "commit", record.HASH)}


def last_edition(lines: Sequence[dict[str, str]], back: int = 0) -> list[dict[str, str]]:
    """Lines of the last edition, or of one before it."""
    editions = list(dict.fromkeys((line["date"], line["commit"]) for line in lines))
    if len(editions) <= back:
        return []
    return [line for line in lines if (line["date"], line["commit"]) == editions[-1 - back]]


def scores() -> list[dict[str, str]]:
    """Scores of rows left out, by group."""
    with SCORES.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# The page


def rows_pending(forecasts: Sequence[dict[str, str]], known: set[str]) -> Iterator[list[str]]:
    """Forecasts without an outcome, the metrics of a design in one line."""
    designs: dict[tuple[str, ...], dict[str, str]] = {}
    for line in forecasts:
        if line["number"] not in known:
            own = designs.setdefault(
                tuple(line[n] for n in ("system", "workload", "software", "settings", "date", "commit", "levels")), {}
            )
            low, middle, high = (quantity(float(line[n]), line["units"]) for n in ("low", "median", "high"))
            own[line["metric"]] = f"{middle} ({low} to {high})"
    for (system, workload, software, settings, date, commit, levels), found in designs.items():
        yield [
            system,
            workload,
            f"{software}, {settings}",
            "; ".join(f"{name.replace('_', ' ')} {text}" for name, text in found.items()),
            levels.replace(" ", ", ") or "home",
            f"{date}, {commit}",
        ]


def rows_answered(found: Sequence[dict[str, Any]]) -> Iterator[list[str]]:
    """Outcomes, one by one."""
    for one in found:
        yield [
            one["number"],
            one["system"],
            one["workload"],
            one["metric"],
            quantity(one["measured"], one["units"]),
            quantity(float(one["median"]), one["units"]),
            percent(float(np.expm1(one["error"])), "+"),
            "yes" if one["held"] else "no",
            f"{one['crps']:.3f}",
            f"{one['log_score']:.2f}",
            one["source"],
        ]


def rows_left_out(lines: Sequence[dict[str, str]], before: Sequence[dict[str, str]]) -> Iterator[list[str]]:
    """Scores by what was left out, beside the constant's and those of the edition before."""
    earlier = {(one["figures"], one["left_out"]): one for one in before}
    for one in lines:
        if one["group"] == "all":
            last = earlier.get((one["figures"], one["left_out"]))
            held = ", ".join(percent(float(one[f"held_{share}"]), digits=0) for share in (50, 80, 95))
            yield [
                one["figures"],
                one["left_out"],
                one["rows"],
                one["groups"],
                held,
                f"÷ and × {np.exp(float(one['width'])):.2f}",
                one["crps"],
                _or_dash(one["crps_constant"]),
                one["log_score"],
                _or_dash(one["log_score_constant"]),
                "–" if last is None else f"{last['crps']}, {last['log_score']}",
            ]


def _or_dash(text: str) -> str:
    return "–" if text == "nan" else text


def page(picture: str) -> str:
    """The page."""
    forecasts, outcomes = record.read(FORECASTS), record.read(OUTCOMES)
    found = answered(forecasts, outcomes)
    summary = (
        "No outcome yet."
        if not found
        else (
            f"{len(found)} outcomes: {percent(float(np.mean([one['held'] for one in found])), digits=0)} within their 80 % "
            f"intervals, CRPS {np.mean([one['crps'] for one in found]):.3f}, "
            f"log score {np.mean([one['log_score'] for one in found]):.2f}."
        )
    )
    return document(
        [
            "# Forecasts",
            "Written by `python -m docs.make.forecasts docs/forecasts.md` (`make forecasts`).",
            _ABOUT,
            f"The record has {len(forecasts)} forecasts; hash of the last: `{forecasts[-1][record.HASH]}`.",
            "## Outcomes",
            summary,
            table(
                (
                    "forecast",
                    "system",
                    "workload",
                    "metric",
                    "measured",
                    "median",
                    "error",
                    "held",
                    "CRPS",
                    "log score",
                    "source",
                ),
                rows_answered(found),
                words=("system", "workload", "metric", "source"),
            )
            if found
            else "",
            "## Open forecasts",
            _PENDING,
            filed(
                "forecasts_open",
                ("system", "workload", "stack and settings", "forecast", "by", "written"),
                rows_pending(forecasts, {one["number"] for one in outcomes}),
            ),
            "## Rows left out",
            _LEFT_OUT,
            filed(
                "forecasts_scores",
                (
                    "figures",
                    "left out",
                    "rows",
                    "groups",
                    "held at 50, 80, 95 %",
                    "width",
                    "CRPS",
                    "constant",
                    "log score",
                    "constant of the log score",
                    "edition before: both",
                ),
                rows_left_out(scores(), last_edition(record.read(EDITIONS), 1)),
            ),
            f"![Share of rows held by the intervals of 50, 80 and 95 %, by group left out]({picture})",
            "A circle is a group, its area by its rows; on the line the interval holds what it says.",
        ]
    )


def main() -> None:
    """Append what is asked, then write the page."""
    parser = page_parser(__doc__)
    parser.add_argument("--add", type=Path, metavar="LIST.toml", help="append forecasts of these designs")
    parser.add_argument("--edition", action="store_true", help="append the scores of rows left out")
    asked = parser.parse_args()
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    commit = subprocess.run(
        ["git", "rev-parse", "--short=10", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    if asked.add:
        print(f"{add(asked.add, date, commit)} forecasts added")
    if asked.edition:
        edition(date, commit)
    draw(scores(), asked.page.with_suffix(".png"))
    publish(asked.page, page(asked.page.with_suffix(".png").name))


if __name__ == "__main__":
    main()
