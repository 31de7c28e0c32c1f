"""Run a sweep: blocks through the engine, finished ones spooled, results written."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

import dse
from dse import catalog
from dse.errors import InputError
from dse.model.feasibility import usable_memory
from dse.references import bibliography
from dse.sweep import compose
from dse.sweep import keep as keeping
from dse.sweep.axis_values import Label
from dse.sweep.engine import LONGEST_CHUNK, CompileClock, Engine
from dse.sweep.grid import Grid
from dse.sweep.keep import METRIC_NAMES, Part
from dse.sweep.progress import Progress
from dse.sweep.spec import Keep, SweepSpec, parse_keep, read
from dse.sweep.spool import Spool, code_digest
from dse.types import Design, Infeasible, Metrics

if TYPE_CHECKING:
    import xarray as xr

_BEST_SHOWN = 10


class Interrupted(Exception):  # noqa: N818 - what happened, not an error
    """A sweep was stopped; what was finished is kept and a rerun goes on from there."""

    def __init__(self, done: int, total: int, parts: Path | None) -> None:
        self.done, self.total, self.parts = done, total, parts
        kept = f"what is finished is in {parts}; run again to go on" if parts else "without an output nothing is kept"
        super().__init__(f"interrupted after {done:,} of {total:,} designs; {kept}")


@dataclasses.dataclass(frozen=True)
class BestDesign:
    """One of the best designs of a sweep."""

    index: int
    labels: dict[str, Label]
    metrics: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Summary:
    """What a sweep found, in numbers."""

    n_designs: int
    n_feasible: int
    reasons: dict[str, int]  #: designs by infeasibility reason; one design may have several
    seconds: dict[str, float]  #: trace, compile, run (evaluation and selection), write, total
    n_programs: int  #: programs compiled for it
    resumed: int  #: designs found finished by an earlier run
    best: tuple[BestDesign, ...]  #: by the first objective
    objective: str
    output: Path | None

    @property
    def rate(self) -> float:
        """Designs a second, compilation and writing apart."""
        return (self.n_designs - self.resumed) / max(self.seconds["run"], 1e-9)


def run(
    spec: str | Path | SweepSpec,
    output: str | Path | bool | None = None,
    keep: str | None = None,
    chunk: int | None = None,
    fresh: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> xr.Dataset:
    """Run a sweep and write its results; see :func:`execute` for the summary too.

    Args:
        spec: path of a specification, or one that was read.
        output: file of the results, by default what the specification says; False writes none.
        keep: ``all feasible best pareto top:K`` in place of the specification's.
        chunk: designs evaluated at once.
        fresh: begin anew instead of going on from the parts of an interrupted run.
        progress: called after every block.

    Raises InputError for bad input, before anything is computed, and Interrupted when stopped.
    """
    return execute(spec, output, keep, chunk, fresh, progress)[0]


def plan(spec: str | Path | SweepSpec, keep: str | None = None) -> tuple[Grid, Keep]:
    """The grid of a sweep and what it keeps, checked against the limit; nothing large is allocated."""
    spec = spec if isinstance(spec, SweepSpec) else read(spec)
    grid = compose.build(spec)
    kept = parse_keep(keep, "keep") if keep else spec.keep
    if kept.mode == "pareto" and len(spec.objectives) < 2:
        raise InputError(
            f"{spec.file}: objective", "one objective", "two or more with keep = \"pareto\"",
            'write minimize = ["step_time", "peak_memory"]',
        )  # fmt: skip
    largest = {"all": grid.n_designs, "feasible": grid.n_designs, "best": grid.n_points, "top": kept.count, "pareto": 0}
    if largest[kept.mode] > spec.limit:
        raise InputError(
            f"{spec.file}: axes", f"{grid.describe()} with keep = {kept}", f"at most {spec.limit:,} kept",
            "shorten the axes, add constraints, use --keep best or --keep top:1000, or raise output.limit",
        )  # fmt: skip
    return grid, kept


def execute(
    spec: str | Path | SweepSpec,
    output: str | Path | bool | None = None,
    keep: str | None = None,
    chunk: int | None = None,
    fresh: bool = False,
    progress: Callable[[Progress], None] | None = None,
    model: Callable[[Design], Metrics] | None = None,
) -> tuple[xr.Dataset, Summary]:
    """Run a sweep as :func:`run` does; ``model`` stands in for ``dse.evaluate``. Gives dataset and summary."""
    began = time.perf_counter()
    if chunk is not None and not 1 <= chunk <= LONGEST_CHUNK:
        raise InputError("chunk", str(chunk), f"1 to {LONGEST_CHUNK:,} designs", "leave it out")
    grid, kept = plan(spec, keep)

    from dse.sweep import dataset as datasets  # xarray and pandas take half a second to import

    target = None if output is False else grid.spec.output if output in (None, True) else Path(str(output))
    before = CompileClock.read()
    engine = Engine(grid, model or _model(), chunk)
    spool = Spool(target, _key(grid, kept, engine)) if target else None
    if spool:
        spool.prepare(target, fresh)
    prepared = time.perf_counter()
    with _writing(target):
        part, resumed = _evaluate_blocks(engine, kept, spool, progress, began)
    traced, compiled, programs = (now - then for now, then in zip(CompileClock.read(), before, strict=True))
    evaluated = time.perf_counter()
    seconds = {"trace": traced, "compile": compiled, "run": max(evaluated - prepared - traced - compiled, 0.0)}
    summary = _summary(grid, part, seconds, programs, resumed, target)
    results = datasets.build(grid, kept, part, _attributes(grid, kept, summary, evaluated - began))
    if spool:
        with _writing(target):
            _write(results, target, spool)
    ended = time.perf_counter()
    seconds |= {"write": ended - evaluated, "total": ended - began}
    return results, dataclasses.replace(summary, seconds=seconds)


@contextlib.contextmanager
def _writing(target: Path | None) -> Iterator[None]:
    """What the disk refuses is an InputError; finished parts stay."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"output {target}", error.strerror or str(error), "room and leave to write",
            "make room and run again: what is finished is kept",
        ) from error  # fmt: skip


def _model() -> Callable[[Design], Metrics]:
    from dse.evaluate import evaluate

    return evaluate


def _key(grid: Grid, keep: Keep, engine: Engine) -> str:
    """Hash of everything that the content of a part depends on."""
    depends = [
        grid.spec.hash(), catalog.digest(grid.used), code_digest(), "float32", str(keep),
        engine.program.model.__module__, grid.n_outer, [len(block) for block in keeping.blocks(engine, keep)[:1]],
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(depends).encode()).hexdigest()


def _evaluate_blocks(
    engine: Engine, keep: Keep, spool: Spool | None, progress: Callable[[Progress], None] | None, began: float
) -> tuple[Part, int]:
    """What is kept of all blocks, and how many designs an earlier run had finished."""
    grid = engine.grid
    blocks = keeping.blocks(engine, keep)
    finished = {block for block in blocks if spool and spool.has(block)}
    resumed = sum(_designs_in(grid, block) for block in finished)
    computed = keeping.parts(engine, keep, [block for block in blocks if block not in finished])
    found = keeping.Collection(grid, keep)
    done = feasible = 0
    best = np.inf
    with _stoppable(), ThreadPoolExecutor(1) as writer:
        saving = None
        try:
            for block in blocks:
                if block in finished:
                    part = spool.load(block) or next(keeping.parts(engine, keep, [block]))
                else:
                    part = next(computed)
                    if saving:
                        saving.result()  # so that no more than one part waits in memory
                    saving = writer.submit(spool.save, block, part) if spool else None
                found.add(part)
                done += _designs_in(grid, block)
                feasible += int(part.counts[0])
                best = min(best, part.scores[0].min(initial=np.inf))
                if progress:
                    progress(_progress(grid, done, feasible, best, resumed, time.perf_counter() - began))
            if saving:
                saving.result()
        except KeyboardInterrupt:
            raise Interrupted(done, grid.n_designs, spool and spool.folder) from None
    return found.result(), resumed


def _write(results: xr.Dataset, target: Path, spool: Spool) -> None:
    """Write the results, then remove the parts; when stopped before that, all parts stay."""
    from dse.sweep import dataset as datasets

    total = int(results.attrs["designs"])
    with _stoppable():
        try:
            datasets.write(results, target)
        except KeyboardInterrupt:
            raise Interrupted(total, total, spool.folder) from None
    spool.remove()


def _designs_in(grid: Grid, block: range) -> int:
    return grid.first_design(block.stop) - grid.first_design(block.start)


def _progress(grid: Grid, done: int, feasible: int, best: float, resumed: int, seconds: float) -> Progress:
    objective = grid.spec.objectives[0]
    value = objective.sign * float(best) if np.isfinite(best) else None
    return Progress(done, grid.n_designs, seconds, feasible, value, objective.expression.text, resumed)


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM stops a sweep as Ctrl-C does; elsewhere than in the main thread signals are not ours."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _summary(
    grid: Grid, part: Part, seconds: dict[str, float], programs: int, resumed: int, output: Path | None
) -> Summary:
    names = [bit.name for bit in Infeasible] + ["constraint"]
    counts = dict(zip(names, map(int, part.counts[1:]), strict=True))
    return Summary(
        n_designs=grid.n_designs,
        n_feasible=int(part.counts[0]),
        reasons={name: count for name, count in counts.items() if count},
        seconds=seconds,
        n_programs=programs,
        resumed=resumed,
        best=tuple(_best_designs(grid, part)),
        objective=grid.spec.objectives[0].expression.text,
        output=output,
    )


def _best_designs(grid: Grid, part: Part) -> Iterator[BestDesign]:
    """The best designs by the first objective, of equals the one with the lowest index first."""
    scores = part.scores[0]
    near = np.flatnonzero(np.isfinite(scores))
    if len(near) > _BEST_SHOWN:
        bound = np.partition(scores[near], _BEST_SHOWN)[_BEST_SHOWN]
        near = near[scores[near] <= bound]
    for position in near[np.lexsort((part.index[near], scores[near]))][:_BEST_SHOWN]:
        metrics = dict(zip(METRIC_NAMES, map(float, part.values[:, position]), strict=True))
        index = int(part.index[position])
        yield BestDesign(index, grid.labels(index), metrics)


def _attributes(grid: Grid, keep: Keep, summary: Summary, seconds: float) -> dict[str, Any]:
    """Global attributes: what was run, with what, when, and on whose data it rests."""
    sources = [source for kind, slug in grid.used for source, _ in catalog.provenance(kind, slug)]
    device = jax.devices()[0]
    decides_memory = {"system.accelerator.memory.capacity", "software.reserve"}
    swept = any(decides_memory & set(dimension.columns) for dimension in grid.dimensions)
    return {
        "title": grid.spec.title,
        "Conventions": "CF-1.11",
        "specification": grid.spec.text,
        "specification_hash": grid.spec.hash(),
        "catalog_digest": catalog.digest(grid.used),
        "code_version": dse.__version__,
        "code_digest": code_digest(),
        "jax_version": jax.__version__,
        "device": device.device_kind,
        "dtype": "float32",
        **({} if swept else {"memory_capacity_bytes": float(usable_memory(grid.base))}),
        "keep": str(keep),
        "objective": summary.objective,
        "seconds": seconds,
        "designs": summary.n_designs,
        "feasible_designs": summary.n_feasible,
        "infeasible_by_reason": json.dumps(summary.reasons),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "sources": "\n".join(dict.fromkeys(sources)),
        "bibliography": bibliography(grid.used),
    }
