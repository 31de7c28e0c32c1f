"""``python -m docs.make.growth docs/tables/benchmarks_growth.csv``: measure how time and memory grow."""

from __future__ import annotations

import csv
from pathlib import Path

from benchmarks.rates.growth import Growth, Point, measured
from benchmarks.rates.sweeps import LARGE_SWEEP, shown
from docs.make.command import page_parser
from docs.make.markdown import table

#: The measured points, of which the page of benchmarks has the exponents.
POINTS = Path("docs/tables/benchmarks_growth.csv")

_HEADER = ("what", "value", "designs", "seconds", "memory, MB", "million designs/s")


def section(points: Path = POINTS) -> list[str]:
    """Return the section of the page of benchmarks, of the measured points."""
    with points.open(encoding="utf-8") as lines:
        rows = [
            [
                growth.what,
                f"{growth.points[0].value:,.0f} to {growth.points[-1].value:,.0f}",
                f"{growth.exponent('seconds'):.2f}",
                f"{growth.exponent('memory'):.2f}",
            ]
            for growth in read(list(csv.DictReader(lines)))
        ]
    return [
        "## Growth",
        f"Sweeps are `{shown(LARGE_SWEEP)}` with other numbers of positions (`make growth`). Seconds are those of a second "
        "run, compilation and writing apart; memory is the peak of the process. An exponent of 1 is proportional, 0 "
        "constant; it is fitted to the upper half of the sizes. All points: "
        f"[{points.parent.name}/{points.name}]({points.parent.name}/{points.name})",
        table(["what", "from, to", "exponent of time", "exponent of memory"], rows),
    ]


def read(rows: list[dict[str, str]]) -> list[Growth]:
    """Return what was varied, with its points, of the rows of the table."""
    points: dict[str, list[Point]] = {}
    for row in rows:
        numbers = (float(row["value"]), int(row["designs"]), float(row["seconds"]), 1e6 * float(row["memory, MB"]))
        points.setdefault(row["what"], []).append(Point(*numbers))
    return [Growth(what, tuple(measured_points)) for what, measured_points in points.items()]


def main() -> None:
    """Measure, and write the table."""
    target = page_parser(__doc__).parse_args().page
    with target.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(_HEADER)
        for growth in measured():
            for point in growth.points:
                rate = f"{point.designs / point.seconds / 1e6:.1f}"
                numbers = [f"{point.value:.0f}", point.designs, f"{point.seconds:.3f}", f"{point.memory / 1e6:.0f}"]
                writer.writerow([growth.what, *numbers, rate])


if __name__ == "__main__":
    main()
