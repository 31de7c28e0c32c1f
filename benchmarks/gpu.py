"""``python -m benchmarks.gpu``: the standard lines on JAX's default device, in five minutes on any card.

Each line is compiled, timed, checked against NumPy on the processor, and set against what its bytes, launches and host
copies take at least there (:mod:`benchmarks.accounts`). Lines are begun until ``--seconds`` have passed; what is left
out is said. ``--write`` keeps what was measured in ``docs/gpu.json`` and writes the section of ``docs/benchmarks.md``.
It ends with status 1 where a line differs from NumPy.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

import numpy as np

from benchmarks.rates import programs as rates
from benchmarks.rates.sweeps import EXPERTS_SWEEP, LARGE_SWEEP, ROOT, SEARCH, STANDARD_SWEEP

if TYPE_CHECKING:
    from benchmarks.accounts import Account, Costs
    from dse.sweep.engine.engine import SweepEngine

#: What was measured last, and the page that has it.
RECORD, PAGE = ROOT / "docs" / "gpu.json", ROOT / "docs" / "benchmarks.md"

#: Largest relative difference of a value from NumPy's: single precision, some thousand operations.
TOLERANCE = 1e-4

#: Largest share of designs that may be feasible here and not there: those at the very edge.
MAX_OTHERWISE = 1e-4

#: Designs that NumPy evaluates for a check, about, and places of a sweep that they are from.
_CHECKED, _PLACES = 20_000, 16

#: Seconds that a line is timed for, once it was compiled.
_TIMED = 2.0

#: Designs whose gradient is taken, and that a step of a search evaluates: a block each, but on processors.
_DIFFERENTIATED, _SEARCHED = 1 << 15, 1 << 16


class Check(NamedTuple):
    """Differences from NumPy on the processor."""

    designs: int  #: that were compared
    feasible: int  #: of them, in both
    difference: float  #: largest relative one of the values of these
    otherwise: float  #: share of all that is feasible in one alone

    @property
    def holds(self) -> bool:
        """True where there are values, and these and feasibility are alike."""
        return self.feasible > 0 and self.difference <= TOLERANCE and self.otherwise <= MAX_OTHERWISE


class Line(NamedTuple):
    """A round to be timed, which returns the designs that it evaluates, and its check."""

    once: Callable[[], float]
    check: Callable[[], Check]


def compared(found: np.ndarray, expected: np.ndarray) -> Check:
    """Return the check of values that are infinite where a design is infeasible."""
    feasible, is_expected = np.isfinite(found), np.isfinite(expected)
    both = feasible & is_expected
    scale = np.maximum(np.abs(expected[both]), np.finfo(np.float32).tiny)
    difference = float((np.abs(found[both] - expected[both]) / scale).max(initial=0.0))
    return Check(found.size, int(both.sum()), difference, float(np.mean(feasible != is_expected)))


# --- lines --------------------------------------------------------------------------------------------------


@functools.cache
def _engine(sweep: Path) -> SweepEngine:
    """The engine of a sweep, whose lines share it."""
    return rates.engine_of(sweep)


def _serving(name: str) -> Line:
    """Chunks of the sweep over serving with many values of concurrency."""
    return _sweep(rates.long_serving_sweep(Path(os.environ["DSE_CACHE"])), name)


def _sweep(sweep: Path, name: str) -> Line:
    """Chunks of a sweep, as it runs (``grid``) or one by one (``flat``), with every output (``full``) or scores."""
    from dse.sweep.engine.engine import CHUNK_FULL, CHUNK_SCORES, CHUNK_SHORT, SweepEngine
    from dse.sweep.engine.nesting import Nest

    engine, kind = _engine(sweep), name.removeprefix("grid_").removeprefix("flat_")
    is_flat = name.startswith("flat")
    once = (rates.flat_rounds if is_flat else rates.grid_rounds)(engine)[name]
    on_host = SweepEngine(engine.grid, by_numpy=True)
    if kind == "full":
        device = SweepEngine(engine.grid, by_numpy=False) if is_flat else engine
        on_host.full_nest = device.full_nest = Nest(engine.grid) if is_flat else engine.full_nest
        check = functools.partial(_check_full, device, on_host, CHUNK_SHORT if is_flat else CHUNK_FULL)
    else:
        nest = Nest(engine.grid) if is_flat else engine.score_nest(by_point=False)
        length = engine.length(nest, CHUNK_SHORT if is_flat else CHUNK_SCORES)
        check = functools.partial(_check_scores, engine, on_host, nest, length)
    return Line(once, check)


def _check_full(device: SweepEngine, on_host: SweepEngine, chunk: int) -> Check:
    """Compare the objectives of designs of chunks with every output."""
    from dse.sweep.engine.scores import DesignIndices

    nest = device.full_nest
    lines, values = device.lines(nest, chunk), list[list[np.ndarray]]()
    for place in _places(nest.n_lines, nest.n_inner * nest.max_outer_in(1), lines):
        n_outer = nest.line_start(place.stop) - nest.line_start(place.start)
        outer, inner = (index.reshape(-1) for index in np.indices((n_outer, nest.n_inner)))
        where = DesignIndices(outer, inner, nest.factor_sizes)
        for engine, count in ((device, lines), (on_host, len(place))):
            metrics, objectives = engine.full(place.start, count)
            reason, *objectives = (output.select(where) for output in (metrics.infeasible_reason, *objectives))
            values.append(np.where(reason == 0, np.stack(objectives), np.inf))
    return compared(np.concatenate(values[::2], axis=1), np.concatenate(values[1::2], axis=1))


def _check_scores(device: SweepEngine, on_host: SweepEngine, nest: Any, length: int) -> Check:
    """Compare the best scores of outer indices of chunks, each over all inner indices."""
    pivots, found, expected = np.zeros((0, 1), np.float32), [], []
    for place in _places(nest.n_outer, nest.n_inner, length):
        count = len(place)
        scores = device.scores(nest, place.start, length, pivots, stop=place.stop)
        found.append(np.asarray(scores.outer_best)[:, :count])
        expected.append(np.asarray(on_host.scores(nest, place.start, count, pivots, stop=place.stop).outer_best))
    return compared(np.concatenate(found, axis=1), np.concatenate(expected, axis=1))


def _places(total: int, designs_of_one: int, longest: int) -> list[range]:
    """Return ranges of indices all over a sweep, together of some designs: the first ones alone may be infeasible."""
    count = max(1, min(longest, total // _PLACES, _CHECKED // _PLACES // designs_of_one))
    starts = sorted({int(start) for start in np.linspace(0, total - count, _PLACES)})
    return [range(start, start + count) for start in starts]


def _best_of_sweep() -> Line:
    """The exact best of a billion designs; the check ranks the best hundred of a smaller sweep."""
    from dse.sweep import execute, perform
    from dse.sweep.engine import engine

    sweep = Path(os.environ["DSE_CACHE"]) / "best.toml"
    sweep.write_text(re.sub(r"minimize = .*", 'minimize = "step_time"', LARGE_SWEEP.read_text(encoding="utf-8")))

    def once() -> float:
        return perform(sweep, output=False, keep="top:1")[1].n_designs

    def check() -> Check:
        most, times = engine.MAX_NUMPY_DESIGNS, []
        for engine.MAX_NUMPY_DESIGNS in (0, most):
            results, _ = execute(STANDARD_SWEEP, output=False, keep="top:100")
            times.append(np.sort(results["step_time"].values))
        return compared(*times)

    return Line(once, check)


def _gradient() -> Line:
    """Step time and its gradient by 16 leaves, given and taken by the host; the check has a block of few designs."""
    import dse
    from dse.designs import design, leaf
    from dse.sweep.engine import gradients

    base = design(*rates.DESIGN, **rates.SETTINGS)
    paths = [f"system.{name}" for name in rates.GRADIENT_LEAVES]
    both = dse.value_and_grad("step_time", base, paths)
    scale = np.linspace(0.9, 1.1, _DIFFERENTIATED, dtype=np.float32)
    values = {path: scale * np.float32(leaf(base, path)) for path in paths}
    every = _DIFFERENTIATED // (gradients.BLOCK - 1) + 1

    def once() -> float:
        both(values)
        return _DIFFERENTIATED

    def check() -> Check:
        (found, slopes), few = both(values), {path: column[::every] for path, column in values.items()}
        expected, expected_slopes = both(few)
        times = compared(np.asarray(found)[::every], np.asarray(expected))
        for path, column in expected_slopes.items():  # of each leaf against its largest: some are 0
            off = np.abs(np.asarray(slopes[path])[::every] - column).max() / (np.abs(column).max() or 1.0)
            times = times._replace(difference=max(times.difference, float(off)))
        return times

    return Line(once, check)


def _search() -> Line:
    """The evaluations of a step of a search, fetched by the host."""
    import jax

    from dse.optimizers import plan, space as spaces
    from dse.optimizers.evaluation import Evaluator, padded_values

    task = plan(SEARCH)
    device = Evaluator(task.program, task.grid.base, _SEARCHED)
    on_host = Evaluator(task.program, task.grid.base, 1, total=1)
    points = spaces.sample(task.space, jax.random.key(1), (_SEARCHED,))
    values = padded_values(task.space, points, device.size)

    def once() -> float:
        jax.device_get(device(values, _SEARCHED)[0])
        return _SEARCHED

    def check() -> Check:
        few = {path: column[: on_host.size] for path, column in values.items()}
        found, expected = (
            jax.device_get(one(some, on_host.size)[0]) for one, some in ((device, values), (on_host, few))
        )
        objectives = [
            np.where(one.violation[: on_host.size, None] == 0.0, one.objectives[: on_host.size], np.inf)
            for one in (found, expected)
        ]
        return compared(*objectives)

    return Line(once, check)


#: Lines by name, in the order in which they are run: what a card is for comes first.
LINES: dict[str, Callable[[], Line]] = {
    "sweep as it runs, best only": functools.partial(_sweep, LARGE_SWEEP, "grid_best"),
    "sweep as it runs, every output": functools.partial(_sweep, LARGE_SWEEP, "grid_full"),
    "exact best of 1e9 designs": _best_of_sweep,
    "step time and its gradient by 16 leaves, 32,768 designs": _gradient,
    "evaluations of a search, 65,536 a step": _search,
    "mixture of experts as it runs, best only": functools.partial(_sweep, EXPERTS_SWEEP, "grid_best"),
    "serving as it runs, best only": functools.partial(_serving, "grid_best"),
    "design by design, best only": functools.partial(_sweep, LARGE_SWEEP, "flat_best"),
    "design by design, every output": functools.partial(_sweep, LARGE_SWEEP, "flat_full"),
    "mixture of experts as it runs, every output": functools.partial(_sweep, EXPERTS_SWEEP, "grid_full"),
    "serving as it runs, every output": functools.partial(_serving, "grid_full"),
}


# --- the run ------------------------------------------------------------------------------------------------


def measured(line: Line, costs: Costs, account: Account) -> dict[str, Any]:
    """Return what a line takes, what bounds it, and how far it is from NumPy.

    Args:
        line: to be timed.
        costs: of the device.
        account: that counts meanwhile.
    """
    start = time.perf_counter()
    line.once()
    first, best, designs = time.perf_counter() - start, float("inf"), 0.0
    began = time.perf_counter()
    while best == float("inf") or time.perf_counter() - began < _TIMED:
        before, start = dataclasses.replace(account), time.perf_counter()
        designs = line.once()
        best = min(best, time.perf_counter() - start)
        asked = account.since(before)
    bounds, check = costs.bounds(asked), line.check()
    bound = max(bounds, key=lambda name: bounds[name])
    return {
        "designs_per_second": designs / best,
        "seconds": best,
        "first_seconds": first,
        "asked": dataclasses.asdict(asked),
        "bound": bound,
        "bound_share": bounds[bound] / best,
        "check": check._asdict(),
        "holds": check.holds,
    }


def run(names: list[str], seconds: float, tell: Callable[[str], None]) -> dict[str, Any]:
    """Measure lines until so many seconds have passed.

    Args:
        names: of the lines.
        seconds: after which no line is begun.
        tell: called with a text after each line.

    Returns:
        Date, device, its costs in seconds, name → figures of each line, names that were left out.
    """
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, DSE_CACHE=folder):
        from dse.io import fuse_outputs
        from dse.io.environment import reuse_memory

        fuse_outputs()
        reuse_memory()
        import jax

        from benchmarks.accounts import costs_here, recorded

        devices, costs = jax.devices(), costs_here()
        found: dict[str, Any] = {}
        with recorded() as account:
            for name in names:
                if time.perf_counter() - began < seconds:
                    try:
                        found[name] = measured(LINES[name](), costs, account)
                    except Exception as error:  # the others are measured all the same
                        found[name] = {"error": f"{type(error).__name__}: {error}"[:500], "holds": False}
                    tell(f"{name}: {', '.join(_cells(found[name]))}")
    return {
        "date": date.today().isoformat(),
        "device": devices[0].device_kind,
        "platform": devices[0].platform,
        "devices": len(devices),
        "runtime": str(getattr(devices[0].client, "platform_version", "")).replace("\n", " "),
        "jax": jax.__version__,
        "seconds": time.perf_counter() - began,
        "costs": costs._asdict(),
        "lines": found,
        "left_out": [name for name in names if name not in found],
    }


# --- the page -----------------------------------------------------------------------------------------------

_HEADING = "## On a card"
_HEADER = ["what", "designs/s", "bound", "share of the seconds", "kernels", "bytes", "first call", "against NumPy"]


def _cells(line: dict[str, Any]) -> list[str]:
    """Return the cells of a line behind its name."""
    if "error" in line:
        return [*["–"] * (len(_HEADER) - 2), f"**failed**: {line['error'].splitlines()[0]}"]
    asked, check = line["asked"], line["check"]
    told = f"{check['difference']:.0e} of {check['feasible']:,}"
    return [
        f"{line['designs_per_second']:,.0f}",
        line["bound"],
        f"{100.0 * line['bound_share']:.0f} %",
        f"{asked['kernels']:,}",
        f"{asked['bytes_accessed']:.1e}",
        f"{line['first_seconds']:.1f} s",
        told if line["holds"] else f"**differs**: {told}, {check['otherwise']:.0e} feasible in one alone",
    ]


def section(record: Path = RECORD) -> str:
    """Return the section of ``docs/benchmarks.md``: what was measured, or that no card has run it."""
    if not record.exists():
        return (
            f"{_HEADING}\n\nNo card has run the standard lines. `python -m benchmarks.gpu --write` does in five "
            "minutes: it checks each against NumPy, says whether bytes, launches or host copies bound it, and writes "
            "this section. From bytes and FLOPs alone an H100 would allow 1e11 designs/s."
        )
    measured = json.loads(record.read_text(encoding="utf-8"))
    costs, left = measured["costs"], measured["left_out"]
    rows = [_HEADER, ["---", "--:", "---", *["--:"] * (len(_HEADER) - 3)]]
    rows += [[name, *_cells(line)] for name, line in measured["lines"].items()]
    unmeasured = f" Not begun within the time: {', '.join(left)}." if left else ""
    return "\n\n".join(
        [
            _HEADING,
            f"`python -m benchmarks.gpu --write` on {measured['date']}: {measured['devices']} x {measured['device']} "
            f"({measured['platform']}, {measured['runtime']}), jax {measured['jax']}, {measured['seconds']:.0f} s in "
            f"all. There a byte takes {costs['byte']:.1e} s, a kernel {costs['kernel']:.1e} s, a call of a program "
            f"{costs['call']:.1e} s, a byte between host and device {costs['host_byte']:.1e} s, a fetch of one "
            f"number {costs['fetch']:.1e} s. A line's bound is the largest of what its bytes, its launches and its "
            "host copies take at these. Where its share of the seconds is small, arithmetic or the host bounds the "
            "line; above 100 %, its bytes lie in caches. Kernels and bytes are of a round, by XLA's optimised program "
            "and its cost analysis. The last column: largest relative difference from NumPy on the processor, of "
            f"values of feasible designs.{unmeasured}",
            "\n".join(f"|{'|'.join(cells)}|" for cells in rows),
        ]
    )


def with_section(page: str, text: str) -> str:
    """Return a page with a section in the place of the one that has its heading, or at its end."""
    parts = re.split(r"(?m)^(?=## )", page)
    heading = text.partition("\n")[0]
    places = [i for i, part in enumerate(parts) if part.partition("\n")[0] == heading]
    if not places:
        return f"{page.rstrip()}\n\n{text}\n"
    (place,) = places
    parts[place] = f"{text}\n" if place == len(parts) - 1 else f"{text}\n\n"
    return "".join(parts)


def main() -> int:
    """Measure, print, and write where that is asked for; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--only", default="", help="text in the names of the lines to run")
    parser.add_argument("--seconds", type=float, default=240.0, help="after which no line is begun [default: 240]")
    parser.add_argument("--write", action="store_true", help=f"keep them in {RECORD.relative_to(ROOT)}, write the page")
    asked = parser.parse_args()
    names = [name for name in LINES if asked.only in name]
    found = run(names, asked.seconds, lambda text: print(text, file=sys.stderr, flush=True))
    print(json.dumps(found, indent=2))
    if asked.write:
        RECORD.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
        PAGE.write_text(with_section(PAGE.read_text(encoding="utf-8"), section()), encoding="utf-8")
    return int(not all(line["holds"] for line in found["lines"].values()))


if __name__ == "__main__":
    sys.exit(main())
