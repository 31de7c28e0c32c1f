"""The kept predictions: a line a row, a column a tool, predicted over measured or the reason of none.

Measured figures stand there for rows of `tests/published` alone; other tables stay where they are.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.showdown.rows import PUBLISHED, Row, Rows

PREDICTIONS, TOOLS = Path(__file__).with_name("predictions.csv"), Path(__file__).with_name("tools.json")
_FIELDS = ("row", "kind", "source", "metric", "measured", "left out", "dse")


class Line(NamedTuple):
    """A row; ratios are predicted over measured."""

    row: str
    kind: str
    source: str
    metric: str
    measured: float | None
    left_out: str  #: of dse's fits
    dse: float
    tools: dict[str, float | str]  #: ratio, or the reason of none; a tool of another kind is absent

    @property
    def sign(self) -> int:
        """-1 of rates, which fall as times rise."""
        return -1 if "per_second" in self.metric else 1


def write(read: Rows, found: Mapping[str, Mapping[str, Any]]) -> None:
    """Keep the rows with dse's errors and what the tools found."""
    carried = {path.name for path in PUBLISHED.glob("*.csv")}
    with PREDICTIONS.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow([*_FIELDS, *found])
        for row in read.rows:
            measured = f"{row['measured']:.6g}" if row["row"].split(":")[0] in carried else ""
            figures = (one["figures"].get(row["row"], "") for one in found.values())
            cells = (cell if isinstance(cell, str) else f"{cell / row['measured']:.4g}" for cell in figures)
            own = (row["row"], row["kind"], row["source"], row["metric"], measured, row["way"])
            out.writerow([*own, f"{math.exp(row['error']):.4g}", *cells])
    tools = {"dse": {"seconds": read.seconds}, **found}
    TOOLS.write_text(
        json.dumps(
            {
                name: {k: float(f"{v:.2g}") if k == "seconds" else v for k, v in one.items() if k != "figures"}
                for name, one in tools.items()
            },
            indent=2,
        )
        + "\n",
        encoding="utf-8",
    )


def others(rows: Sequence[Row], found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A sentence for each figure or reason of a tool that is not the kept one, to half a per cent."""
    known = {line.row: line.tools for line in lines()}
    told = []
    for row in rows:
        for tool, one in found.items():
            if (figure := one["figures"].get(row["row"])) is None:
                continue
            now, was = figure if isinstance(figure, str) else figure / row["measured"], known[row["row"]][tool]
            alike = now == was if isinstance(now, str) or isinstance(was, str) else abs(now / was - 1.0) < 5e-3
            told += [] if alike else [f"{row['row']}: {tool}: got {now}, kept {was}"]
    return told


def lines() -> list[Line]:
    """The kept rows."""
    with PREDICTIONS.open(encoding="utf-8", newline="") as file:
        return [
            Line(
                *(cells[name] for name in _FIELDS[:4]),
                float(cells["measured"]) if cells["measured"] else None,
                cells["left out"],
                float(cells["dse"]),
                {name: _cell(cell) for name, cell in cells.items() if name not in _FIELDS and cell},
            )
            for cells in csv.DictReader(file)
        ]


def tools() -> dict[str, dict[str, Any]]:
    """Tool → version, kind and processor seconds a figure."""
    return json.loads(TOOLS.read_text(encoding="utf-8"))


def _cell(cell: str) -> float | str:
    try:
        return float(cell)
    except ValueError:
        return cell
