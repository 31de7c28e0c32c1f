"""``python -m benchmarks.rates.revisions OTHER``: how long this checkout takes against another one of the engine.

Both run the large sweep of ``dse bench``, each in a process of its own, in turn and for a fraction of a second at a
time, so that what else the machine does falls on both alike. Printed are the quartiles over the pairs of the time of
this checkout over that of the other: below 1 this one is faster.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import quantiles

from benchmarks.rates.sweeps import LARGE_SWEEP, ROOT

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
    parser.add_argument("--answer", action="store_true", help="be the process of a checkout that is timed")
    parser.add_argument("--pairs", type=int, default=150, help="how often each pass is timed [default: 150]")
    asked = parser.parse_args()
    if asked.answer:
        return _answer()
    mine, other = _started(ROOT), _started(asked.other.resolve())
    with mine, other:
        for name, meaning in PASSES.items():
            low, middle, high = quantiles(_ratios(mine, other, name, asked.pairs), n=4)
            print(f"{meaning}: {middle:.3f} ({low:.3f} to {high:.3f}) of the other's time", flush=True)
        for process in (mine, other):
            process.stdin.close()  # type: ignore[union-attr]
    return 0


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
        cwd=checkout, env=os.environ | {"PYTHONPATH": str(checkout)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip


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
    """The passes over the large sweep, by name; of names that the engine has had for long."""
    from dse.environment import fuse_outputs

    fuse_outputs()
    import jax
    import numpy as np

    from dse.sweep import plan
    from dse.sweep.engine.engine import CHUNK_FULL, CHUNK_SCORES, CHUNK_SHORT, Engine
    from dse.sweep.engine.nesting import Nest

    engine = Engine(plan(LARGE_SWEEP)[0])
    flat, nest, pivots = Nest(engine.grid, (), ()), engine.score_nest(by_point=False), np.zeros((0, 1), np.float32)
    short, best = engine.lines(flat, CHUNK_SHORT), engine.lines(nest, CHUNK_SCORES)
    full = engine.lines(engine.full_nest, CHUNK_FULL)

    def lines(of: Nest, chunk: int) -> range:
        return range(0, min(of.n_lines, 16 * chunk), chunk)

    def grid_best() -> None:
        jax.block_until_ready([engine.scores(nest, line, best, pivots) for line in lines(nest, best)])

    def grid_full() -> None:
        for line in lines(engine.full_nest, full):
            jax.block_until_ready(engine.full(line, full))

    def flat_best() -> None:
        jax.block_until_ready([engine.scores(flat, line, short, pivots) for line in range(2)])

    return {"grid_best": grid_best, "grid_full": grid_full, "flat_best": flat_best}


if __name__ == "__main__":
    sys.exit(main())
