"""``python -m benchmarks.rates``: measure everything and print it, as ``dse bench --json`` does.

``--check docs/benchmarks.json`` measures the rates alone, in multiples of a plain Python loop, and fails where one fell
behind those of the file; ``--write docs/benchmarks.json`` replaces them. ``--fast`` leaves out fresh processes.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks.rates import against_loop, bench, rates, slower
from benchmarks.rates.sweeps import LARGE_SWEEP


def main() -> int:
    """Do what the arguments say; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rates", description=__doc__)
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--check", type=Path, metavar="FILE.json")
    parser.add_argument("--write", type=Path, metavar="FILE.json")
    asked = parser.parse_args()
    if not (asked.check or asked.write):
        print(json.dumps(bench(starts=not asked.fast), indent=2))
        return 0
    found = against_loop(rates(LARGE_SWEEP))
    if asked.write:
        asked.write.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    if not asked.check:
        return 0
    behind = slower(found, json.loads(asked.check.read_text(encoding="utf-8")))
    print("\n".join(behind) or "no rate fell behind")
    return bool(behind)


if __name__ == "__main__":
    sys.exit(main())
