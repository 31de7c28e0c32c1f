"""``python -m benchmarks.rates.revisions OTHER``: how long this checkout takes against another one of the engine.

Both run the large sweep of ``dse bench``, each in a process of its own, in turn and for a fraction of a second at a
time, so that what else the machine does falls on both alike. Where the memory of a process lies makes it up to a
twentieth faster or slower for as long as it lives: the processes are started several times. Printed is the time of
this checkout over that of the other, of each start the median of its pairs: below 1 this one is faster. What was
measured against a revision that is given a ``--name`` is kept for ``docs/benchmarks.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from statistics import median

from benchmarks.rates.sweeps import LARGE_SWEEP, ROOT

#: What was measured: name of a revision → date, and pass → median, least and greatest ratio of the starts.
RECORD = ROOT / "docs" / "revisions.json"

#: What is timed: name of the argument → what it is.
PASSES = {
    "grid_best": "sweep as it runs, best only",
    "grid_full": "sweep as it runs, every output",
    "flat_best": "design by design, best only",
}


def main() -> int:
    """Time both checkouts and print a line a pass; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rates.revisions", description=__doc__)
    parser.add_argument("other", type=Path, help="folder of the other checkout")
    parser.add_argument("--name", help="keep what is measured in docs/revisions.json, under this name")
    parser.add_argument("--answer", action="store_true", help="be the process of a checkout that is timed")
    parser.add_argument("--pairs", type=int, default=40, help="how often each pass is timed in a start [default: 40]")
    parser.add_argument("--starts", type=int, default=7, help="how often the processes are started [default: 7]")
    asked = parser.parse_args()
    if asked.answer:
        return _answer()
    starts = [_compared(asked.other.resolve(), asked.pairs) for _ in range(asked.starts)]
    ratios = {name: sorted(one[name] for one in starts) for name in PASSES}
    found = {name: {"median": median(of), "least": of[0], "greatest": of[-1]} for name, of in ratios.items()}
    for name, meaning in PASSES.items():
        print(f"{meaning}: {'{median:.3f} ({least:.3f} to {greatest:.3f})'.format(**found[name])} of the other's time")
    if asked.name:
        record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
        record[asked.name] = {"date": date.today().isoformat(), "starts": asked.starts, **found}
        RECORD.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return 0


def _compared(other: Path, pairs: int) -> dict[str, float]:
    """Pass → the median of its ratios, of one start of both processes."""
    with _started(ROOT) as mine, _started(other) as theirs:
        found = {name: median(_ratios(mine, theirs, name, pairs)) for name in PASSES}
        for process in (mine, theirs):
            process.stdin.close()  # type: ignore[union-attr]
    return found


def _ratios(mine: subprocess.Popen[str], other: subprocess.Popen[str], name: str, pairs: int) -> Iterator[float]:
    """Seconds of this checkout over those of the other one, a pair at a time; each goes first in turn."""
    for pair in range(pairs):
        order = (mine, other) if pair % 2 else (other, mine)
        seconds = {process: _seconds(process, name) for process in order}
        yield seconds[mine] / seconds[other]


def _started(checkout: Path) -> subprocess.Popen[str]:
    """A process that imports the engine of a checkout and times what it is told to."""
    return subprocess.Popen(
        [sys.executable, __file__, str(checkout), "--answer"],
        cwd=checkout,
        env=os.environ | {"PYTHONPATH": str(checkout)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _seconds(process: subprocess.Popen[str], name: str) -> float:
    """How long a process takes for one pass."""
    assert process.stdin and process.stdout
    print(name, file=process.stdin, flush=True)
    return float(process.stdout.readline())


def _answer() -> int:
    """Time the passes that standard input names, a line each, once each of them was compiled and ran."""
    passes = _passes()
    for run in passes.values():
        run()
    for line in sys.stdin:
        before = time.perf_counter()
        passes[line.strip()]()
        print(time.perf_counter() - before, flush=True)
    return 0


def _passes() -> dict[str, Callable[[], None]]:
    """The passes over the large sweep, by name; of today's engine or of one whose nests have lines alone."""
    from dse.io.environment import fuse_outputs  # earlier revisions have it there alone

    fuse_outputs()
    import jax
    import numpy as np

    from dse.sweep import plan
    from dse.sweep.engine.engine import CHUNK_FULL, CHUNK_SCORES, CHUNK_SHORT, SweepEngine
    from dse.sweep.engine.nesting import Nest

    engine = SweepEngine(plan(LARGE_SWEEP)[0])
    nest, pivots = engine.score_nest(by_point=False), np.zeros((0, 1), np.float32)
    by_line = not hasattr(engine, "length")
    flat = Nest(engine.grid, (), ()) if by_line else Nest(engine.grid)
    length = engine.lines if by_line else engine.length
    short, best = length(flat, CHUNK_SHORT), length(nest, CHUNK_SCORES)
    full, total = engine.lines(engine.full_nest, CHUNK_FULL), nest.n_lines if by_line else nest.n_outer
    designs = 16 * CHUNK_SCORES  # of both revisions, however long their chunks are
    most = -(-designs * total // engine.grid.n_designs)

    def grid_best() -> None:
        starts = range(0, min(total, most), best)
        jax.block_until_ready([engine.scores(nest, start, best, pivots) for start in starts])

    def grid_full() -> None:
        lines = -(-16 * CHUNK_FULL * engine.full_nest.n_lines // engine.grid.n_designs)
        for line in range(0, lines, full):
            found = engine.full(line, full)
            leaves = jax.tree.leaves(found)
            jax.block_until_ready([getattr(leaf, "values", leaf) for leaf in leaves])

    def flat_best() -> None:
        jax.block_until_ready([engine.scores(flat, line, short, pivots) for line in range(2)])

    return {"grid_best": grid_best, "grid_full": grid_full, "flat_best": flat_best}


if __name__ == "__main__":
    sys.exit(main())
