"""Run a search: methods step by step within their budget, checkpoints, polish, results."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from dse.doors.study import Study
from dse.errors import InputError
from dse.io import outputs
from dse.io.environment import fuse_outputs
from dse.io.interruption import telling
from dse.optimizers import checkpoint, outcome, pareto, problem, several
from dse.optimizers import dataset as datasets
from dse.optimizers import descent_method as descent
from dse.optimizers import polish as polishing
from dse.optimizers.checkpoint import Progressed
from dse.optimizers.driver import Best, Chunk, Driver, HostDriver, driver, release, uses_slopes
from dse.optimizers.found import PROOF, MethodResult, best_in_words, nothing, of_proof
from dse.optimizers.judging import weights_of
from dse.optimizers.outcome import Outcome
from dse.optimizers.pareto import Front
from dse.optimizers.problem import Problem
from dse.optimizers.progress import Reached, SearchProgress
from dse.optimizers.proofs import Proof, ProofOptions, prover
from dse.optimizers.space import leaf_paths
from dse.spec.codesign import DESCENT
from dse.spec.search import SearchSpec, read
from dse.sweep.evaluation import stoppable
from dse.sweep.grid import vendors
from dse.sweep.results import files as results
from dse.sweep.results import writing
from dse.sweep.results.files import Labelled
from dse.sweep.store.parts import lock_output, parts_folder

if TYPE_CHECKING:
    import xarray as xr


class SearchInterrupted(Exception):  # noqa: N818 - what happened, not an error
    """A search was stopped; a rerun goes on from the last checkpoint."""


@dataclasses.dataclass(frozen=True)
class SearchOptions:
    """How a search is run, besides what its specification says."""

    output: str | Path | bool | None = None  #: file of the results, by default the specification's; False writes none
    evaluations: int | None = None  #: budget of each seed of each method, in place of the specification's
    seconds: float | None = None  #: budget of each method
    fresh: bool = False  #: begin again, whatever checkpoints there are
    progress: Callable[[SearchProgress], None] | None = None  #: called between chunks
    study: Study | None = None  #: what is evaluated, in place of what the specification asks for
    between_checkpoints: float = 2.0  #: seconds
    force: bool = False  #: replace an output that dse has not written
    prove: ProofOptions | None = None  #: then prove how good the best is


def run(spec: str | Path | SearchSpec, output: str | Path | bool | None = None, **options: Any) -> xr.Dataset:
    """Run a search and write its results; see :func:`execute` for what was found besides.

    Args:
        spec: path of a specification, or one that was read.
        output: file of the results, by default what the specification says; False writes none.
        **options: the other fields of :class:`SearchOptions`.

    Returns:
        The dataset of the best designs, or of the front of several objectives: one variable a metric, with ``units``
        and ``long_name``, and the histories of the methods.

    Raises InputError for bad input, before anything is computed, and Interrupted when stopped.
    """
    return execute(spec, output, **options)[0]


def execute(
    spec: str | Path | SearchSpec, output: str | Path | bool | None = None, **options: Any
) -> tuple[xr.Dataset, Outcome]:
    """Search and write the results as :func:`run` does, and return the outcome.

    Args:
        spec: path of a specification, or one that was read.
        output: file of the results, by default what the specification says; False writes none.
        **options: the other fields of :class:`SearchOptions`.

    Returns:
        The dataset of :func:`run`, and the outcome: the best designs of each method, what they were found with.

    Raises InputError for bad input, before anything is computed, and Interrupted when stopped.
    """
    labelled, found = perform(plan(spec, options.get("study")), SearchOptions(output, **options))
    if labelled is not None:
        return results.to_xarray(labelled), found
    assert found.output is not None, "an outcome without results was read from a file"
    with results.open_results(found.output) as dataset:
        return dataset.load(), found


def plan(
    spec: str | Path | SearchSpec, study: Study | None = None, any_option: bool = False, whole_stacks: bool = False
) -> Problem:
    """The problem of a specification: its space, its constraints, its objectives; nothing is evaluated.

    Args:
        spec: path of a specification, or one that was read.
        study: what is evaluated, in place of what the specification asks for.
        any_option: offer options that the stack lacks too, and stacks of other vendors.
        whole_stacks: report a chip with a whole number of memory stacks, whatever the specification of a descent says.

    Returns:
        The problem, which :func:`perform` solves.

    Raises InputError for bad input.

    >>> task = plan("sweeps/search_gpt3_mapping.toml")
    >>> task.spec.methods[0], task.grid.n_designs
    ('random', 43488)
    """
    fuse_outputs()  # without it XLA takes six times as long for slopes
    spec = spec if isinstance(spec, SearchSpec) else read(spec, study)
    if any_option:
        spec = dataclasses.replace(spec, sweep=dataclasses.replace(spec.sweep, any_option=True))
    if whole_stacks:
        if not spec.descends:
            fix = f'leave it out, or search by method = "{DESCENT}"'
            raise InputError("--whole-stacks", f"a search by {', '.join(spec.methods)}", "a descent", fix)
        spec = dataclasses.replace(spec, options={DESCENT: spec.options[DESCENT] | {"whole_stacks": True}})
    built = problem.build(spec, study)
    vendors.check(built.grid)
    return built


def perform(task: Problem, options: SearchOptions) -> tuple[Labelled | None, Outcome]:
    """Search as :func:`execute` does, without xarray.

    Args:
        task: a problem of :func:`plan`.
        options: how it is searched, and where results are written.

    Returns:
        Labelled arrays in place of the dataset, None where an earlier descent has left them in the file; the outcome.

    Raises InputError for bad input, before anything is computed, and Interrupted when stopped.
    """
    began = time.perf_counter()
    task = _with_budget(task, options)
    target = outputs.target_of(options.output, task.spec.sweep.output)
    if target:
        earlier = None if options.fresh else datasets.earlier(task, target, task.identity)
        try:
            outputs.checked(target, options.force, [task.spec.sweep.file])
        except outputs.UnwritableFolderError:
            if earlier is None:  # else there is nothing to write
                raise
        if earlier:
            return None, earlier
    opening = lock_output(target) if target else contextlib.nullcontext()
    with outputs.disk_errors(target), opening, stoppable(), telling(lambda: _kept(task, target)):
        found, seconds = _searched(task, target, options)
        labelled, summary = _written(task, found, seconds | {"total": time.perf_counter() - began}, target, options)
        if options.prove:
            proof, best = _proven(task, found, target, options)
            seconds |= {PROOF: proof.seconds, "total": time.perf_counter() - began}
            labelled, summary = _written(task, [*found, *best], seconds, target, options, proof)
    return labelled, summary


def _written(
    task: Problem,
    found: list[MethodResult],
    seconds: dict[str, float],
    target: Path | None,
    options: SearchOptions,
    proof: Proof | None = None,
) -> tuple[Labelled, Outcome]:
    """Results of methods, with what is proven of them, verified and in their file."""
    if not task.descent:  # which has been held to the model by NumPy at its very leaves
        outcome.verify(task, _reported(task, found))
        found = outcome.with_metrics(task, found)
    summary = outcome.of_methods(task, found, seconds, target, proof)
    labelled = datasets.build(task, found, summary, task.identity)
    if target:
        writing.write(labelled, target, task.spec.sweep.compression, options.force, [task.spec.sweep.file])
        writing.write_making(target, summary.seconds, options.force)
    return labelled, summary


def _proven(
    task: Problem, found: list[MethodResult], target: Path | None, options: SearchOptions
) -> tuple[Proof, list[MethodResult]]:
    """A proof that begins with the best designs of the search, and the best that it knows at its end."""
    assert options.prove is not None
    known = _reported(task, found).point if task.n_objectives == 1 else several.front(found).points
    proof, points = prover().prove(task, known, task.identity, options.prove, target, options.force)
    return proof, [] if points is None else [of_proof(task, points, proof.designs)]


def _searched(
    task: Problem, target: Path | None, options: SearchOptions
) -> tuple[list[MethodResult], dict[str, float]]:
    """What each method has found, and its seconds."""
    found, seconds = [], {}
    if task.descent:
        started = time.perf_counter()
        found.append(descent.search(task, options.progress))
        return found, {DESCENT: time.perf_counter() - started}
    slopes = any(uses_slopes(task, name) for name in task.spec.methods)
    try:
        with task.evaluator.preparing(leaf_paths(task.space), slopes):
            drivers = _drivers(task)  # a missing library is told of at once
            for name, one in drivers.items():
                started = time.perf_counter()
                found.append(_method(task, name, one, target, options))
                seconds[name] = time.perf_counter() - started
    except KeyboardInterrupt:
        raise SearchInterrupted(f"interrupted{_kept(task, target)}") from None
    finally:
        release()
        polishing.release()
    return found, seconds


def _drivers(task: Problem) -> dict[str, Driver | HostDriver]:
    """What runs each method; their programs are compiled side by side."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        made = [pool.submit(driver, task, name) for name in task.spec.methods]
        return {name: one.result() for name, one in zip(task.spec.methods, made, strict=True)}


def _kept(task: Problem, target: Path | None) -> str:
    """What a search that ends now leaves, after the word "interrupted": the checkpoints that are on disk."""
    if not target:
        return "; without an output nothing is kept"
    of_methods = [one for one in task.spec.methods if checkpoint.load(checkpoint.path(target, one), task.key(one))]
    if not of_methods:
        return "; nothing is kept"
    best = ", ".join(str(checkpoint.best_path(target, one)) for one in of_methods)
    return f"; its steps are in {parts_folder(target)}, the best in {best}; the same command continues from there"


def _with_budget(task: Problem, options: SearchOptions) -> Problem:
    """The problem with the budget that the options give in place of its own; too small a one is an InputError."""
    where = f"{task.spec.sweep.file}: search.evaluations"
    if options.evaluations is not None or options.seconds is not None:
        where = "--evaluations"
        spec = dataclasses.replace(task.spec, evaluations=options.evaluations, seconds=options.seconds)
        task = dataclasses.replace(task, spec=spec)
    if task.descent:
        descent.check_budget(task, where)
    return task


# --- one method -------------------------------------------------------------------------------------------


def _method(
    task: Problem, name: str, one: Driver | HostDriver, target: Path | None, options: SearchOptions
) -> MethodResult:
    """Spend the budget of a method, then polish."""
    done = _resumed(task, name, one, target, options) or nothing(task)
    done = _spent(task, name, one, done, target, options)
    best, front, ends = jax.device_get(one.best), _front_of(done), 0
    polished = polishing.Polished(best, np.zeros(len(task.spec.seeds), int))
    if task.spec.polish:
        polished = polishing.polish(task, best, weights_of(task.spec.seeds, task.n_objectives))
        front = pareto.joined(front, *polished.fronts)
        if len(front.objectives):
            last = polishing.of_ends(task, front)
            front, ends = pareto.joined(front, *last.fronts), int(last.evaluations.sum())
    seeds, spent = task.spec.seeds, polished.evaluations
    return MethodResult(name, one.batch, done, best, polished.best, spent, front, ends, metrics={}, seeds=seeds)


def _steps(task: Problem, batch: int) -> int | None:
    """Steps of the budget, whole ones within it but one at least; None where only time bounds them."""
    return None if task.spec.evaluations is None else max(1, task.spec.evaluations // batch)


def _resumed(
    task: Problem, name: str, one: Driver | HostDriver, target: Path | None, options: SearchOptions
) -> Progressed | None:
    """What an earlier run of the same search has done, unless it is more than the budget."""
    if not target or options.fresh:
        return None
    done = checkpoint.load(checkpoint.path(target, name), task.key(name))
    steps = _steps(task, one.batch)
    if done is None or (steps is not None and done.steps > steps):
        return None
    one.restore(done.state, done.told)
    return done


def _spent(
    task: Problem, name: str, one: Driver | HostDriver, done: Progressed, target: Path | None, options: SearchOptions
) -> Progressed:
    """Steps until the budget is spent, a checkpoint now and then and at the end."""
    began = saved = time.perf_counter()
    first, steps, seconds = done.steps, _steps(task, one.batch), task.spec.seconds

    def spent() -> float:
        """Share of the budget."""
        by_time = (time.perf_counter() - began) / seconds if seconds is not None and done.steps > first else 0.0
        return max(by_time, done.steps / steps if steps is not None else 0.0)

    while spent() < 1.0:
        count = one.chunk if steps is None else min(one.chunk, steps - done.steps)
        done = _added(done, one.advance(done.steps, count), count, one)
        if target and (time.perf_counter() - saved > options.between_checkpoints or spent() >= 1.0):
            checkpoint.save(checkpoint.path(target, name), task.key(name), done)
            checkpoint.save_best(target, name, best_in_words(task, jax.device_get(one.best)))
            saved = time.perf_counter()
        if options.progress:
            options.progress(_progress(task, name, one, done, first, spent(), time.perf_counter() - began))
    return done


def _added(done: Progressed, chunk: Chunk, count: int, one: Driver | HostDriver) -> Progressed:
    """Progress with a chunk of steps."""
    history = {name: np.concatenate([old, getattr(chunk.rows, name)]) for name, old in done.history.items()}
    told = chunk.told
    if done.told is not None and told is not None:
        told = tuple(map(np.concatenate, zip(done.told, told, strict=True)))
    front = _front_of(done)
    if chunk.batches is not None:
        front = pareto.joined(front, pareto.of_evaluated(*chunk.batches))
    return Progressed(
        done.steps + count,
        one.state_arrays(),
        history,
        done.reasons + chunk.rows.reasons.sum(axis=(0, 1)),
        *front,
        told,
    )


def _front_of(done: Progressed) -> Front:
    """The front of what was evaluated so far."""
    return Front(done.digits, done.reals, done.objectives)


def _reported(task: Problem, found: list[MethodResult]) -> Best:
    """The designs that are reported as the best: of several objectives the ends of the front, else of all seeds."""
    whole = several.front(found)
    return several.ends(whole) if task.n_objectives > 1 and len(whole.objectives) else _best_of_all(found)


def _best_of_all(found: list[MethodResult]) -> Best:
    """The best design of all methods and seeds, [1]."""
    every = jax.tree.map(lambda *arrays: np.concatenate(arrays), *(one.polished for one in found))
    at = np.lexsort((every.value, every.evaluation.violation))[:1]
    return jax.tree.map(lambda a: a[at], every)


def _progress(
    task: Problem, name: str, one: Driver | HostDriver, done: Progressed, first: int, share: float, seconds: float
) -> SearchProgress:
    """How far a method is: what it has reached in each objective, all that it evaluated counted."""
    a_step = one.batch * len(task.spec.seeds)
    least = done.history["objectives"].min(axis=(0, 1)).tolist()
    first_one, *others = (
        Reached(
            objective.expression.text,
            objective.sign * value if math.isfinite(value) else None,
            objective.expression.written,
        )
        for objective, value in zip(task.program.objectives, least, strict=True)
    )
    return SearchProgress(
        method=name,
        share=share,
        rate=(done.steps - first) * a_step / max(seconds, 1e-9),
        evaluations=done.steps * a_step,
        best=first_one.value,
        objective=first_one.objective,
        units=first_one.units,
        others=tuple(others),
        front_size=len(done.objectives),
    )
