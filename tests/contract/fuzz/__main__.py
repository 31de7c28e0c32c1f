"""``python -m tests.contract.fuzz 20000 [seed]``: so many mutants of documents and kept values, a tenth of results.

Of results files there are two kinds: one whose bytes are changed, and those of every kind that are rewritten.

A line for each fault, and one for each thousand mutants; the documents that have a fault are kept.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.contract.fuzz.corpus import tried
from tests.contract.fuzz.test_kept import load_mutants

#: Mutants of documents between two lines: a run of hours that is ended has shown what it has tried.
_TELL_EVERY = 1000


def main() -> int:
    """Run the mutants; 1 when a door had a fault."""
    count, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    kept = Path(tempfile.mkdtemp(prefix="dse-fuzz-"))
    found = 0
    for done, (name, text, fault) in enumerate(tried(count, seed, kept / "work"), 1):
        if fault:
            found += 1
            document = kept / f"{found}-{name}"
            document.write_text(text, encoding="utf-8", errors="surrogatepass")
            print(f"{document}: {fault}", flush=True)
        if done % _TELL_EVERY == 0 or done == count:
            print(f"{done:,} mutants of documents, {found} faults, {time.process_time():.0f} s", flush=True)
    wrong = _results(count // 10, seed, kept)
    print(f"{count // 10:,} mutants of a results file, {'faults: ' + wrong if wrong else 'no fault'}")
    program = f"from tests.contract.fuzz import results; raise SystemExit(bool(results.run({count // 10}, {seed})))"
    rewritten = subprocess.run([sys.executable, "-c", program], check=False).returncode
    os.environ["DSE_CACHE"] = str(kept / "cache")
    print(f"{count:,} mutants of kept values, no fault, {load_mutants(count, seed)} of them read")
    return bool(found or wrong or rewritten)


def _results(count: int, seed: int, folder: Path) -> str:
    """Open and compare mutants of a results file, in a process that may be ended by a library; the fault, if any."""
    program = (
        "import sys; from pathlib import Path; import dse; from tests.conftest import SMALL_SWEEP; "
        "from tests.contract.fuzz.test_results import open_mutants; folder = Path(sys.argv[1]); "
        "(folder / 'small.toml').write_text(SMALL_SWEEP); dse.run(folder / 'small.toml', output=folder / 'small.nc'); "
        "print(open_mutants(folder / 'small.nc', folder, int(sys.argv[2]), int(sys.argv[3])))"
    )
    asked = [sys.executable, "-c", program, str(folder), str(count), str(seed)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"status {done.returncode}: {done.stderr.strip()[-500:]}"


if __name__ == "__main__":
    sys.exit(main())
