"""``python -m docs.make.lowering docs/tables/benchmarks_lowering.csv``: lower all programs for CUDA, and list them."""

from __future__ import annotations

import csv
from pathlib import Path

from benchmarks.lowering import CASES, lowered
from docs.make.command import page_parser
from docs.make.markdown import table

#: The programs, which the page of benchmarks sums up.
LIST = Path("docs/tables/benchmarks_lowering.csv")

_HEADER = ("asked by", "program", "arguments", "operations", "custom calls", "float64")


def rows() -> list[list[str]]:
    """Return the lines of the list: who asks, module and function, sizes, what cards are slow at."""
    return [
        [
            case,
            program.name,
            str(program.arguments),
            str(program.operations),
            " ".join(program.custom_calls),
            "yes" if program.has_float64 else "no",
        ]
        for case in CASES
        for program in lowered(case)
    ]


def section(path: Path = LIST) -> list[str]:
    """Return the section of the page of benchmarks, of the list."""
    with path.open(encoding="utf-8") as lines:
        listed = list(csv.DictReader(lines))
    names = list(dict.fromkeys(row["program"] for row in listed))
    lines_by_name = {name: [row for row in listed if row["program"] == name] for name in names}
    silent = [case for case in CASES if case not in {row["asked by"] for row in listed}]
    doubles = sum(row["float64"] == "yes" for row in listed)
    of_numpy = f" {', '.join(silent).capitalize()}: nothing, NumPy evaluates it." if silent else ""
    return [
        "## Programs for a card",
        f"What {len(CASES)} kinds of work ask for, lowered for CUDA without a card (`make lowering`): {len(listed)} programs "
        f"of {len(names)} functions, {doubles or 'none'} with float64; one that calls Python would not lower.{of_numpy} Operations are "
        f"of StableHLO, before XLA fuses them. All: [{path.parent.name}/{path.name}]({path.parent.name}/{path.name})",
        table(["program", "asked by", "operations"], [_row(name, own) for name, own in lines_by_name.items()], _WORDS),
    ]


#: Columns of words.
_WORDS = ("program", "asked by")


def _row(name: str, listed: list[dict[str, str]]) -> list[str]:
    """Return the line of a function: who asks for its programs, and the fewest and most operations."""
    operations = sorted(int(row["operations"]) for row in listed)
    sizes = dict.fromkeys((operations[0], operations[-1]))
    cases = dict.fromkeys(row["asked by"] for row in listed)
    return [f"`{name.removeprefix('dse.')}`", "; ".join(cases), " to ".join(f"{size:,}" for size in sizes)]


def main() -> None:
    """Lower the programs and write the list."""
    target = page_parser(__doc__).parse_args().page
    listed = rows()
    with target.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerows([_HEADER, *listed])


if __name__ == "__main__":
    main()
