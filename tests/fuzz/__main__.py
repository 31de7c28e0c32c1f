"""``python -m tests.fuzz 20000 [seed]``: so many mutants, a line for each fault, and their documents kept."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.fuzz.corpus import faults


def main() -> int:
    """Run the mutants; 1 when a door had a fault."""
    count, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    kept = Path(tempfile.mkdtemp(prefix="dse-fuzz-"))
    found = 0
    for number, (name, text, fault) in enumerate(faults(count, seed, kept / "work")):
        found += 1
        document = kept / f"{number}-{name}"
        document.write_text(text, encoding="utf-8", errors="surrogatepass")
        print(f"{document}: {fault}", flush=True)
    print(f"{count:,} mutants, {found} faults")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
