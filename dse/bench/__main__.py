"""``python -m dse.bench docs/benchmarks.json [--write]``: tells which rates fell behind the published multiples."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from dse.bench.measure import LARGE_SWEEP, rates
from dse.bench.page import against_loop, slower


def _check(file: Path, write: bool) -> int:
    """Compare with a file of published multiples, or write it; the exit status."""
    found = against_loop(rates(LARGE_SWEEP))
    if write:
        file.write_text(json.dumps(found, indent=2) + "\n")
        return 0
    lines = slower(found, json.loads(file.read_text()))
    print("\n".join(lines) or "no rate fell behind")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(_check(Path(sys.argv[1]), "--write" in sys.argv))
