"""Steps of a method for all seeds at once, and what is kept of them: the best so far, counts, a row of history.

A step is two programs: the one that evaluates, which all methods share, and the method's own, which learns from that
evaluation and proposes what is evaluated next.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dse.optimizers import space as spaces
from dse.optimizers.evaluation import Values, padded, padded_values, reshape_results
from dse.optimizers.functions import Penalty
from dse.optimizers.judging import Evaluation, Judgement, best_position, better, scalar, scalar_by_numpy, weights_of
from dse.optimizers.methods import annealing, evolution, external, random, relaxed
from dse.optimizers.methods.base import Fitness, Method, Searcher
from dse.optimizers.methods.external import AskTell
from dse.optimizers.pareto import ParetoFront
from dse.optimizers.problem import Problem
from dse.optimizers.space import Point, Space
from dse.sweep.engine.programs import persistent_jit

#: Evaluations of all seeds between two readings of the clock.
_CHUNK = 1 << 15

_MOST_STEPS = 256

#: Search methods by name.
METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        random.RANDOM,
        evolution.EVOLUTION,
        annealing.ANNEALING,
        relaxed.RELAXED,
        external.NSGA2,
    )
}


class Best(NamedTuple):
    """The best design so far of each seed: arrays [seed]."""

    point: Point[np.ndarray]
    evaluation: Evaluation[np.ndarray]
    value: np.ndarray


class HistoryRow(NamedTuple):
    """History of steps: arrays [step, seed]."""

    violation: np.ndarray  #: of the best so far
    value: np.ndarray  #: of the best so far
    objectives: np.ndarray  #: [objective] least of those of a step that can run, infinite where none can
    feasible: np.ndarray  #: feasible designs of a step
    reasons: np.ndarray  #: [bit] designs of a step by infeasibility reason


class PointBatch(NamedTuple):
    """Evaluated points of steps: arrays [step, seed, batch]."""

    points: Point[np.ndarray]
    evaluation: Evaluation[np.ndarray]


class Chunk(NamedTuple):
    """History and evaluations of several steps, on the host."""

    rows: HistoryRow  #: arrays [step, seed]
    batches: PointBatch | None  #: [step, seed, batch] where there are several objectives
    tell_history: tuple[np.ndarray, ...] | None = None  #: what an external method was told


class Proposal(NamedTuple):
    """Points to be evaluated next."""

    points: Point  #: [seed, batch]
    values: Values  #: by leaf: [design], padded to the size of the evaluating program
    penalty: Penalty | None  #: arrays [design], for methods that use slopes


@dataclasses.dataclass(frozen=True)
class Run:
    """All that a method's own programs depend on besides their arguments."""

    method: str
    options: tuple[tuple[str, int | float | str], ...]
    size: int  #: of the evaluating program

    @functools.cached_property
    def searcher(self) -> Searcher:
        """The method with its options."""
        return METHODS[self.method].make(**dict(self.options))


def no_best(problem: Problem) -> Best:
    """Return an infinitely bad design [seed], from which each seed starts."""
    space, n_seeds = problem.space, len(problem.spec.seeds)
    point = Point(np.zeros((n_seeds, len(space.sizes)), np.int32), np.zeros((n_seeds, len(space.paths)), np.float32))
    worst = np.full(n_seeds, np.inf, np.float32)
    objectives = np.full((n_seeds, problem.n_objectives), np.inf, np.float32)
    return Best(point, Evaluation(objectives, worst, np.zeros(n_seeds, np.int32)), worst)


def update_best(best: Best, batch: PointBatch, weights: np.ndarray, bits: tuple[int, ...]) -> tuple[Best, HistoryRow]:
    """Return the best [seed] after several steps' batches, and the rows of history of these steps.

    Args:
        best: before these steps, [seed].
        batch: what the steps have evaluated, on the host.
        weights: [seed, objective] of the geometric mean.
        bits: infeasibility reasons that are counted.
    """
    batch_evaluation, value = batch.evaluation, scalar_by_numpy(batch.evaluation.objectives, weights[:, None])
    best_indices = best_position(batch_evaluation.violation, value, batch.points.digits)

    def take_best(array: np.ndarray) -> np.ndarray:
        """Return the entries [step, seed] of an array [step, seed, batch] at the best of each batch."""
        indices = best_indices.reshape(*best_indices.shape, *[1] * (array.ndim - 2))
        return np.take_along_axis(array, indices, axis=2)[:, :, 0]

    points, evaluation, value = jax.tree.map(take_best, (batch.points, batch_evaluation, value))
    history = []
    for step in range(len(best_indices)):
        new = jax.tree.map(lambda array, i=step: array[i], Best(points, evaluation, value))
        is_better = better((new.evaluation.violation, new.value), (best.evaluation.violation, best.value))
        best = jax.tree.map(
            lambda a, b, is_better=is_better: np.where(is_better.reshape(-1, *[1] * (a.ndim - 1)), a, b), new, best
        )
        history.append((best.evaluation.violation, best.value))
    feasible = (batch_evaluation.reason == 0).sum(axis=2, dtype=np.int32)
    best_feasible = np.where(
        (batch_evaluation.violation == 0.0)[..., None], batch_evaluation.objectives, np.float32(np.inf)
    ).min(axis=2)
    reasons = [((batch_evaluation.reason & bit) != 0).sum(axis=2, dtype=np.int32) for bit in bits]
    violations, values = map(np.stack, zip(*history, strict=True))
    return best, HistoryRow(violations, values, best_feasible, feasible, np.stack(reasons, axis=-1))


@persistent_jit("run", quickly=True)
def _begin(space: Space, seeds: Array, *, run: Run) -> Any:
    """Return the initial state of every seed's searcher, stacked along a first axis [seed]."""
    return _strongly_typed(
        jax.vmap(lambda seed: run.searcher.init(jax.random.fold_in(jax.random.key(seed), 0), space))(seeds)
    )


#: Evaluation, and slopes by leaf.
Results = tuple[Evaluation, Values]


def _learn_and_ask(
    fixed: tuple[Space, Array, Array], state: Any, points: Point, results: Results, step: Array, *, run: Run
) -> tuple[Any, Proposal]:
    """Return the states after the evaluation of ``step`` (unchanged below 0), and the next points to evaluate.

    ``fixed`` are the space, weights and seeds of all steps.
    """
    space, weights, seeds = fixed

    def update_seed(seed: Array, weights: Array, state: Any, points: Point, results: Results) -> tuple[Any, Point]:
        """Update one seed's state and propose its next points."""
        (evaluation, slopes), key = results, jax.random.key(seed)
        fitness = Fitness(Judgement(evaluation.violation, scalar(evaluation.objectives, weights)), slopes)
        learnt = run.searcher.update(jax.random.fold_in(key, step + 1), state, space, points, fitness)
        state = jax.tree.map(lambda new, old: jnp.where(step < 0, old, new), learnt, state)
        return run.searcher.propose(jax.random.fold_in(key, step + 2), state, space)

    results = reshape_results(results, (len(seeds), run.searcher.batch))
    state, points = jax.vmap(update_seed)(seeds, weights, state, points, results)
    return _strongly_typed(state), _proposal(space, weights, state, points, run)


#: Of long searches, and of searches that end before a fast program is compiled.
_advance, _advance_soon = (persistent_jit("run", quickly=quickly)(_learn_and_ask) for quickly in (False, True))


def _proposal(space: Space, weights: Array, state: Any, points: Point, run: Run) -> Proposal:
    """Return points [seed, batch] with the values of their leaves, and penalties where the method uses slopes."""
    values, penalty = padded_values(space, points, run.size), None
    if run.searcher.penalty is not None:
        multiplier, stiffness = (array.reshape(-1) for array in jax.vmap(run.searcher.penalty)(state))
        seed_weights = jnp.repeat(weights, run.searcher.batch, axis=0)
        penalty = Penalty(*(padded(array, run.size) for array in (seed_weights, multiplier, stiffness)))
    return Proposal(points, values, penalty)


def _strongly_typed(state: Any) -> Any:
    """Return arrays with strong JAX types, so that the first step shares the program of the others."""
    return jax.tree.map(lambda array: jnp.asarray(array, array.dtype), state)


def front_ends(front: ParetoFront) -> Best:
    """Return the best design of a front by each objective, arrays [objective]; the front must not be empty."""
    designs = jax.tree.map(lambda array: array[front.objectives.argmin(axis=0)], front)
    weights = np.eye(designs.objectives.shape[1], dtype=np.float32)
    zeros = np.zeros(len(weights), np.float32)
    evaluation = Evaluation(designs.objectives, zeros, zeros.astype(np.int32))
    return Best(designs.points, evaluation, scalar_by_numpy(designs.objectives, weights))


class MethodDriver:
    """What drivers of methods have alike: problem, weights and best of each seed, steps that are done at once."""

    def __init__(self, problem: Problem, batch: int, max_steps: int) -> None:
        seeds = problem.spec.seeds
        self.problem, self.batch = problem, batch
        self.chunk = max(1, min(max_steps, _CHUNK // (batch * len(seeds))))
        self.weights, self.best = weights_of(seeds, problem.n_objectives), no_best(problem)

    def _add_steps(self, steps: Sequence[Any], tell_history: tuple[np.ndarray, ...] | None = None) -> Chunk:
        """Keep the best of steps, each (points, evaluation) [seed, batch] on the host, and return their history."""
        batch = PointBatch(*jax.tree.map(lambda *arrays: np.stack(arrays), *steps))
        bits = tuple(self.problem.study.reason_bits.values())
        self.best, rows = update_best(self.best, batch, self.weights, bits)
        return Chunk(rows, batch if self.problem.n_objectives > 1 else None, tell_history)


class Driver(MethodDriver):
    """Runs a method on the device, all seeds by one ``vmap``."""

    def __init__(self, problem: Problem, name: str) -> None:
        spec = problem.spec
        self._run = Run(name, tuple(spec.options[name].items()), problem.evaluator.size)
        super().__init__(problem, self._run.searcher.batch, _MOST_STEPS)
        self._seeds = jax.device_put(np.array(spec.seeds, np.uint32))
        self._fixed = problem.space, jax.device_put(self.weights), self._seeds
        self.state = _begin(problem.space, self._seeds, run=self._run)
        self._program: Any = None
        self._proposal = self._first_proposal()

    def advance(self, start: int, n_steps: int) -> Chunk:
        """Do steps ``start`` to ``start + n_steps - 1``, keep the best, and return their history."""
        steps = []
        shape = len(self._seeds), self.batch
        for step in range(start, start + n_steps):
            proposal = self._proposal
            results = self.problem.evaluator(proposal.values, math.prod(shape), proposal.penalty)
            self._step(proposal.points, results, step)
            steps.append((proposal.points, results[0]))
        return self._add_steps([(points, reshape_results(results, shape)) for points, results in jax.device_get(steps)])

    def _step(self, points: Point, results: Results, step: int) -> None:
        """Learn from the results of ``points``, and keep the next state and proposal."""
        arguments = self._fixed, self.state, points, results, np.int32(step)
        if self._program is None:
            step_of = _advance_soon if self.problem.evaluator.is_short else _advance
            self._program = step_of.compiled(*arguments, run=self._run)
        self.state, self._proposal = self._program(*arguments)

    def _first_proposal(self) -> Proposal:
        """Return the first points to evaluate, by a step that learns nothing."""
        space, shape, size = self.problem.space, (len(self._seeds), self.batch), self._run.size
        zero, n_objectives = np.zeros(size, np.float32), self.problem.n_objectives
        points = Point(np.zeros((*shape, len(space.sizes)), np.int32), np.zeros((*shape, len(space.paths)), np.float32))
        slopes = dict.fromkeys(spaces.leaf_paths(space) if self._run.searcher.penalty else (), zero)
        zero_evaluation = Evaluation(np.zeros((size, n_objectives), np.float32), zero, np.zeros(size, np.int32))
        points, results = jax.device_put((points, (zero_evaluation, slopes)))
        self._step(points, results, -1)
        return self._proposal

    def state_arrays(self) -> list[np.ndarray]:
        """Return all arrays, best included, that a later process needs to go on."""
        return [np.asarray(leaf) for leaf in jax.tree.leaves((self.best, (self.state, self._proposal)))]

    def restore(self, arrays: list[np.ndarray], tell_history: tuple[np.ndarray, ...] | None) -> None:
        """Set best, state and proposal to the arrays of :meth:`state_arrays`; ``tell_history`` is not used."""
        structure = jax.tree.structure((self.best, (self.state, self._proposal)))
        self.best, device = jax.tree.unflatten(structure, arrays)
        self.state, self._proposal = jax.tree.map(jnp.asarray, device)


@persistent_jit("size")
def _place_points(space: Space, cube: Array, *, size: int) -> Proposal:
    """Return the designs at positions [seed, batch, axis] of the unit cube as a proposal without a penalty."""
    points = spaces.decode(space, cube)
    return Proposal(points, padded_values(space, points, size), None)


class HostDriver(MethodDriver):
    """Runs a method that asks and tells on the host, a searcher for each seed, evaluated together on the device."""

    def __init__(self, problem: Problem, name: str) -> None:
        spec = problem.spec
        where, options = f"{spec.sweep.file}: search.method", spec.options[name]
        self.searchers: list[AskTell] = [
            METHODS[name].make(problem.space, problem.n_objectives, seed, where, **options) for seed in spec.seeds
        ]
        super().__init__(problem, self.searchers[0].batch, _MOST_STEPS // 8)

    def advance(self, start: int, n_steps: int) -> Chunk:
        """Do ``n_steps`` steps of ask, evaluate and tell, keep the best, and return their history."""
        evaluator, steps, tells = self.problem.evaluator, [], []
        for _ in range(n_steps):
            cube = np.stack([searcher.ask() for searcher in self.searchers]).astype(np.float32)
            proposal = _place_points(self.problem.space, cube, size=evaluator.size)
            results, _ = evaluator(proposal.values, cube.shape[0] * self.batch)
            points, evaluation = jax.device_get((proposal.points, results))
            evaluation = reshape_results(evaluation, cube.shape[:2])
            value = scalar_by_numpy(evaluation.objectives, self.weights[:, None])
            tells.append((evaluation.objectives, evaluation.violation, value))
            self._tell(tells[-1])
            steps.append((points, evaluation))
        return self._add_steps(steps, tuple(map(np.stack, zip(*tells, strict=True))))

    def _tell(self, tell_arguments: tuple[np.ndarray, ...]) -> None:
        """Tell each seed's searcher its objectives, violations and values, arrays [seed, ...]."""
        for searcher, *seed_arguments in zip(self.searchers, *tell_arguments, strict=True):
            searcher.tell(*seed_arguments)

    def state_arrays(self) -> list[np.ndarray]:
        """Return the arrays of the best of each seed alone, as searchers are replayed from their history."""
        return [np.asarray(leaf) for leaf in jax.tree.leaves(self.best)]

    def restore(self, arrays: list[np.ndarray], tell_history: tuple[np.ndarray, ...] | None) -> None:
        """Take the best from ``arrays``, and replay the asks and tells [step, ...] of an earlier process."""
        self.best = jax.tree.unflatten(jax.tree.structure(self.best), arrays)
        for tell_arguments in zip(*(tell_history or ()), strict=True):
            for searcher in self.searchers:
                searcher.ask()
            self._tell(tell_arguments)


def release() -> None:
    """Forget the compiled programs of methods, which no other run can use."""
    for function in (_begin, _advance, _advance_soon, _place_points):
        function.forget()


def uses_slopes(problem: Problem, name: str) -> bool:
    """True for a method that follows slopes; never for an external one."""
    method = METHODS[name]
    return not method.external and method.make(**problem.spec.options[name]).penalty is not None


def driver(problem: Problem, name: str) -> Driver | HostDriver:
    """Return a new driver of a method: on the host for an external one, else on the device."""
    return (HostDriver if METHODS[name].external else Driver)(problem, name)
