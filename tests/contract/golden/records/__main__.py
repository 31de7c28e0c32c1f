"""Compare what dse says now with the records, or write records anew."""

from __future__ import annotations

import argparse
import sys
import time

from tests.contract.golden import records
from tests.contract.golden.records.differences import TOLERANCE

#: Differences of a record that are printed without ``--all``.
_SHOWN = 3


def main() -> int:
    """Do what the arguments say; the exit status is 1 where something moved."""
    parser = argparse.ArgumentParser(prog="python -m tests.contract.golden.records", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="records, NAME* for all that begin so [default: all]")
    parser.add_argument("--write", action="store_true", help="write them anew")
    parser.add_argument("--list", action="store_true", help="print their names and bytes")
    parser.add_argument("--all", action="store_true", help=f"print every difference, not the {_SHOWN} largest")
    parser.add_argument("--tolerance", type=float, default=TOLERANCE, help="relative [default: %(default)g]")
    asked = parser.parse_args()
    moved, begin = [], time.perf_counter()
    chosen = records.chosen(asked.names)
    for name in chosen:
        if asked.list:
            print(name, records.path(name).stat().st_size if records.path(name).exists() else "not recorded")
            continue
        start = time.perf_counter()
        if asked.write:
            records.write(name, records.taken(name))
            told, lines = f"{records.path(name).stat().st_size:,} bytes", []
        else:
            hits = sorted(records.moved(name, asked.tolerance), key=lambda one: -one.size)
            told, lines = "equal", hits if asked.all else hits[:_SHOWN]
            if hits:
                moved.append(name)
                told = f"{len(hits)} moved, the most by {hits[0].size:.2g}"
        print(f"{name:76} {time.perf_counter() - start:6.2f} s  {told}", flush=True)
        for one in lines:
            print(f"    {one.where}: {one.text} ({one.size:.2g})")
    if not asked.list and not asked.write:
        count, seconds = len(chosen) - len(moved), time.perf_counter() - begin
        print(f"{count} of {len(chosen)} records equal to {asked.tolerance:g} relative; {seconds:.0f} s")
    return bool(moved)


if __name__ == "__main__":
    sys.exit(main())
