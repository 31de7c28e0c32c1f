"""``python -m docs.make.growth docs/growth.md``: how time and memory grow, measured and written."""

from __future__ import annotations

import os
from datetime import date

from benchmarks.rates.growth import Growth, measured
from docs.make.command import page_parser
from docs.make.markdown import document, table


def page(found: list[Growth]) -> str:
    """The page of what was measured."""
    rows = [
        [
            growth.what,
            f"{growth.points[0].value:,.0f} to {growth.points[-1].value:,.0f}",
            f"{growth.exponent('seconds'):.2f}",
            f"{growth.exponent('memory'):.2f}",
        ]
        for growth in found
    ]
    lines = [
        [
            growth.what,
            f"{point.value:,.0f}",
            f"{point.designs:,}",
            f"{point.seconds:.3f}",
            f"{point.memory / 1e6:,.0f}",
            f"{point.designs / point.seconds / 1e6:,.1f}",
        ]
        for growth in found
        for point in growth.points
    ]
    return document(
        [
            "# Growth",
            f"Made by `python -m docs.make.growth docs/growth.md` on {date.today().isoformat()}, {os.cpu_count()} cores. "
            "Sweeps are `sweeps/billion_designs.toml` with other numbers of positions, each in a process of its own; "
            "seconds are those of the second run in it, compilation and writing apart, memory is the peak of the process.",
            "An exponent of 1 is time in proportion to what is varied, 0 none; of scores a chunk it is what a longer chunk "
            "saves. It is fitted to the upper half of the sizes, where what a run costs at least counts no more.",
            table(["what", "from, to", "exponent of time", "exponent of memory"], rows),
            "## All points",
            table(["what", "value", "designs", "seconds", "memory, MB", "million designs/s"], lines),
        ]
    )


def main() -> None:
    """The command."""
    arguments = page_parser(__doc__).parse_args()
    arguments.page.write_text(page(measured()), encoding="utf-8")


if __name__ == "__main__":
    main()
