"""Run a search: methods step by step within their budget, checkpoints, polish, results."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from dse.doors import Study
from dse.errors import InputError, Stopped
from dse.io import fuse_outputs, outputs, reporting
from dse.optimizers import (
    checkpoint,
    dataset as datasets,
    descent_method as descent,
    multi_objective,
    outcome,
    pareto,
    polish as polishing,
    problem,
)
from dse.optimizers.checkpoint import MethodProgress
from dse.optimizers.driver import Best, Chunk, Driver, HostDriver, driver, front_ends, release, uses_slopes
from dse.optimizers.method_results import PROOF, MethodResult, best_as_document, no_progress, proof_result
from dse.optimizers.outcome import SearchOutcome
from dse.optimizers.problem import Problem
from dse.optimizers.progress import BestValue, SearchProgress
from dse.optimizers.proofs import Proof, ProofOptions, prover
from dse.optimizers.space import leaf_paths
from dse.spec import SearchSpec
from dse.spec.codesign import DESCENT
from dse.spec.search import read
from dse.sweep.evaluation import stoppable
from dse.sweep.grid import vendors
from dse.sweep.results import files as results, writing
from dse.sweep.results.labelled import Labelled
from dse.sweep.store.parts import lock_output, parts_folder

if TYPE_CHECKING:
    import xarray as xr


#: Path of a specification, its sections as a dictionary, or a specification.
Source = str | Path | Mapping[str, Any] | SearchSpec


class SearchInterrupted(Stopped):
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


def run(spec: Source, output: str | Path | bool | None = None, **options: Any) -> xr.Dataset:
    """Run a search and write its results; see :func:`execute` for what was found besides.

    Args:
        spec: path of a specification, its sections as a dictionary, or one that was read.
        output: file of the results, by default what the specification says; False writes none.
        **options: the other fields of :class:`SearchOptions`.

    Returns:
        The dataset of the best designs, or of the front of several objectives: one variable a metric, with ``units``
        and ``long_name``, and the histories of the methods.

    Raises InputError for bad input, before anything is computed, and Interrupted when stopped.
    """
    return execute(spec, output, **options)[0]


def execute(spec: Source, output: str | Path | bool | None = None, **options: Any) -> tuple[xr.Dataset, SearchOutcome]:
    """Return the dataset of :func:`run` and the outcome of a search, whose results are written.

    Args:
        spec: path of a specification, its sections as a dictionary, or one that was read.
        output: file of the results, by default what the specification says; False writes none.
        **options: the other fields of :class:`SearchOptions`.

    Returns:
        The dataset of :func:`run`, and the outcome: the best designs of each method, what they were found with.

    Raises InputError for bad input, before anything is computed, and Interrupted when stopped.
    """
    labelled, summary = perform(plan(spec, options.get("study")), SearchOptions(output, **options))
    return results.dataset_of(labelled, summary.output), summary


def plan(spec: Source, study: Study | None = None, any_option: bool = False, whole_stacks: bool = False) -> Problem:
    """Return the problem of a specification: its space, constraints and objectives; nothing is evaluated.

    Args:
        spec: path of a specification, its sections as a dictionary, or one that was read.
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


def perform(task: Problem, options: SearchOptions) -> tuple[Labelled | None, SearchOutcome]:
    """Return data and outcome of a search as :func:`execute` does, without xarray.

    Args:
        task: a problem of :func:`plan`.
        options: how it is searched, and where results are written.

    Returns:
        Labelled arrays in place of the dataset, None where an earlier descent has left them in the file; the outcome.

    Raises InputError for bad input, before anything is computed, and Interrupted when stopped.
    """
    start_time = time.perf_counter()
    task = _with_budget(task, options)
    target = outputs.target_of(options.output, task.spec.sweep.output)
    if target:
        earlier = None if options.fresh else datasets.load_outcome(task, target, task.identity)
        try:
            outputs.check_output(target, options.force, [task.spec.sweep.file])
        except outputs.UnwritableFolderError:
            if earlier is None:  # else there is nothing to write
                raise
        if earlier:
            return None, earlier
    opening = lock_output(target) if target else contextlib.nullcontext()
    with outputs.disk_errors(target), opening, stoppable(), reporting(lambda: _checkpoint_notice(task, target)):
        method_results, seconds = _run_methods(task, target, options)

        def write(method_results: list[MethodResult], proof: Proof | None = None) -> tuple[Labelled, SearchOutcome]:
            """Verify the results of methods, write them unless there is no output, and return data and outcome."""
            spent = seconds | {"total": time.perf_counter() - start_time}
            if not task.descent:  # which has been held to the model by NumPy at its very leaves
                outcome.verify(task, _reported_designs(task, method_results))
                method_results = outcome.with_metrics(task, method_results)
            summary = outcome.build_outcome(task, method_results, spent, target, proof)
            labelled = datasets.build(task, method_results, summary, task.identity)
            if target:
                writing.write(labelled, target, task.spec.sweep.compression, options.force, [task.spec.sweep.file])
                writing.write_making(target, summary.seconds, options.force)
            return labelled, summary

        labelled, summary = write(method_results)
        if options.prove:
            proof, best = _prove(task, method_results, target, options)
            seconds[PROOF] = proof.seconds
            labelled, summary = write([*method_results, *best], proof)
    return labelled, summary


def _prove(
    task: Problem, method_results: list[MethodResult], target: Path | None, options: SearchOptions
) -> tuple[Proof, list[MethodResult]]:
    """Return a proof from the search's best designs on, and the designs at its end as a list of one result, or none."""
    assert options.prove is not None
    start_points = (
        _reported_designs(task, method_results).point
        if task.n_objectives == 1
        else multi_objective.merged_front(method_results).points
    )
    proof, points = prover().prove(task, start_points, task.identity, options.prove, target, options.force)
    return proof, [] if points is None else [proof_result(task, points, proof.designs)]


def _run_methods(
    task: Problem, target: Path | None, options: SearchOptions
) -> tuple[list[MethodResult], dict[str, float]]:
    """Return the result of each method, and method → seconds; SearchInterrupted where it is stopped."""
    method_results, seconds = [], {}
    if task.descent:
        start_time = time.perf_counter()
        method_results.append(descent.search(task, options.progress))
        return method_results, {DESCENT: time.perf_counter() - start_time}
    needs_slopes = any(uses_slopes(task, name) for name in task.spec.methods)
    try:
        with task.evaluator.compiling_in_background(leaf_paths(task.space), needs_slopes):
            with ThreadPoolExecutor(max_workers=2) as pool:  # programs are compiled side by side
                futures = {name: pool.submit(driver, task, name) for name in task.spec.methods}
            drivers = {name: future.result() for name, future in futures.items()}  # a missing library is told of
            for name, method_driver in drivers.items():
                start_time = time.perf_counter()
                method_results.append(_MethodRun(task, name, method_driver, target, options).result())
                seconds[name] = time.perf_counter() - start_time
    except KeyboardInterrupt:
        raise SearchInterrupted(f"interrupted{_checkpoint_notice(task, target)}") from None
    finally:
        release()
        polishing.release()
    return method_results, seconds


def _checkpoint_notice(task: Problem, target: Path | None) -> str:
    """Return the text behind "interrupted": where the checkpoints lie, or that nothing is kept."""
    if not target:
        return "; without an output nothing is kept"
    saved_methods = [
        method for method in task.spec.methods if checkpoint.load(checkpoint.path(target, method), task.key(method))
    ]
    if not saved_methods:
        return "; nothing is kept"
    best = ", ".join(str(checkpoint.best_path(target, method)) for method in saved_methods)
    return f"; its steps are in {parts_folder(target)}, the best in {best}; the same command continues from there"


def _with_budget(task: Problem, options: SearchOptions) -> Problem:
    """Return the problem with the evaluations and seconds of the options, both, where they give one.

    Raises:
        InputError: for a budget below one step of a descent.
    """
    where = f"{task.spec.sweep.file}: search.evaluations"
    if options.evaluations is not None or options.seconds is not None:
        where = "--evaluations"
        spec = dataclasses.replace(task.spec, evaluations=options.evaluations, seconds=options.seconds)
        task = dataclasses.replace(task, spec=spec)
    if task.descent:
        descent.check_budget(task, where)
    return task


# --- one method -------------------------------------------------------------------------------------------


class _MethodRun:
    """A method on its way through its budget: progress from its checkpoint on, and what it leaves there.

    Args:
        task: the problem.
        name: of the method.
        driver: of the method.
        target: file of the results, next to which the checkpoint lies; None for none.
        options: of the search.
    """

    def __init__(
        self, task: Problem, name: str, driver: Driver | HostDriver, target: Path | None, options: SearchOptions
    ) -> None:
        self._task, self._name, self._driver, self._target, self._options = task, name, driver, target, options
        evaluations = task.spec.evaluations
        self._steps = None if evaluations is None else max(1, evaluations // driver.batch)  #: None: time bounds them
        self._progress = no_progress(task)
        self._restore()
        self._first_step, self._start_time = self._progress.steps, time.perf_counter()

    def result(self) -> MethodResult:
        """Spend the budget, polish the best designs, and return the result."""
        self._advance()
        task, best, front = self._task, jax.device_get(self._driver.best), self._progress.front
        seeds, ends = task.spec.seeds, 0
        polished = polishing.PolishResult(best, np.zeros(len(seeds), int))
        if task.spec.polish:
            polished = polishing.polish(task, best, self._driver.weights)
            front = pareto.merge_fronts(front, *polished.fronts)
            if len(front.objectives):
                end_polish = polishing.polish_ends(task, front)
                front, ends = pareto.merge_fronts(front, *end_polish.fronts), int(end_polish.evaluations.sum())
        designs = best, polished.best, polished.evaluations, front
        return MethodResult(self._name, self._driver.batch, self._progress, *designs, seeds, end_evaluations=ends)

    def _restore(self) -> None:
        """Go on from the checkpoint, unless there is none, a fresh start is asked for, or it exceeds the budget."""
        if not self._target or self._options.fresh:
            return
        progress = checkpoint.load(checkpoint.path(self._target, self._name), self._task.key(self._name))
        if progress and (self._steps is None or progress.steps <= self._steps):
            self._driver.restore(progress.state, progress.tell_history)
            self._progress = progress

    @property
    def _seconds(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._start_time

    def _budget_share(self) -> float:
        """Return the spent share of the budget."""
        seconds, steps = self._task.spec.seconds, self._progress.steps
        by_time = self._seconds / seconds if seconds is not None and steps > self._first_step else 0.0
        return max(by_time, steps / self._steps if self._steps is not None else 0.0)

    def _advance(self) -> None:
        """Run steps until the budget is spent, with checkpoints now and then and at the end."""
        save_time, chunk = time.perf_counter(), self._driver.chunk
        while self._budget_share() < 1.0:
            count = chunk if self._steps is None else min(chunk, self._steps - self._progress.steps)
            self._add(self._driver.advance(self._progress.steps, count), count)
            is_due = time.perf_counter() - save_time > self._options.between_checkpoints
            if self._target and (is_due or self._budget_share() >= 1.0):
                key, best = self._task.key(self._name), jax.device_get(self._driver.best)
                checkpoint.save(checkpoint.path(self._target, self._name), key, self._progress)
                checkpoint.save_best(self._target, self._name, best_as_document(self._task, best))
                save_time = time.perf_counter()
            if self._options.progress:
                self._options.progress(self._state())

    def _add(self, chunk: Chunk, count: int) -> None:
        """Add a chunk of ``count`` steps to the progress."""
        progress = self._progress
        history = {name: np.concatenate([old, getattr(chunk.rows, name)]) for name, old in progress.history.items()}
        tell_history, front = chunk.tell_history, progress.front
        if progress.tell_history is not None and tell_history is not None:
            tell_history = tuple(map(np.concatenate, zip(progress.tell_history, tell_history, strict=True)))
        if chunk.batches is not None:
            front = pareto.merge_fronts(front, pareto.of_evaluated(*chunk.batches))
        reasons = progress.reasons + chunk.rows.reasons.sum(axis=(0, 1))
        state = self._driver.state_arrays()
        self._progress = MethodProgress(progress.steps + count, state, history, reasons, front, tell_history)

    def _state(self) -> SearchProgress:
        """Return the state that is reported: the best of each objective over everything that was evaluated."""
        progress, evaluations_per_step = self._progress, self._driver.batch * len(self._task.spec.seeds)
        best_feasible = progress.history["objectives"].min(axis=(0, 1)).tolist()
        best, *others = (
            BestValue.of(objective, value)
            for objective, value in zip(self._task.program.objectives, best_feasible, strict=True)
        )
        return SearchProgress(
            self._name,
            share=self._budget_share(),
            rate=(progress.steps - self._first_step) * evaluations_per_step / max(self._seconds, 1e-9),
            evaluations=progress.steps * evaluations_per_step,
            best=best.value,
            objective=best.objective,
            units=best.units,
            others=tuple(others),
            front_size=len(progress.front.objectives),
        )


def _reported_designs(task: Problem, method_results: list[MethodResult]) -> Best:
    """Return the designs reported as best: the ends of the front [objective], or the best of all seeds [1]."""
    front = multi_objective.merged_front(method_results)
    if task.n_objectives > 1 and len(front.objectives):
        return front_ends(front)
    bests = jax.tree.map(lambda *arrays: np.concatenate(arrays), *(result.polished for result in method_results))
    best_index = np.lexsort((bests.value, bests.evaluation.violation))[:1]
    return jax.tree.map(lambda a: a[best_index], bests)
