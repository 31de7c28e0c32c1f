"""Steps of a method for all seeds at once, and what is kept of them: the best so far, counts, a row of history.

A step is two programs: the one that evaluates, which all methods share, and the method's own, which learns from that
evaluation and proposes what is evaluated next.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dse.search import space as spaces
from dse.search.evaluation import Penalty, Values, padded, padded_values, shaped
from dse.search.judging import Evaluation, Judgement, best_position, better, scalar, weights_of
from dse.search.methods import METHODS, Found, Searcher
from dse.search.problem import Problem
from dse.search.space import Point, Space
from dse.sweep.engine.programs import persistent_jit

#: Steps between looks at the clock hold about so many evaluations, of all seeds together.
_CHUNK = 1 << 15

_MOST_STEPS = 256


class Best(NamedTuple):
    """The best design so far of each seed."""

    point: Point
    evaluation: Evaluation
    value: Array


class Row(NamedTuple):
    """What a step adds to the history: arrays [seed]."""

    violation: Array  #: of the best so far
    value: Array  #: of the best so far
    objectives: Array  #: [objective] of the best so far
    feasible: Array  #: feasible designs of this step
    reasons: Array  #: [bit] designs of this step by infeasibility reason


class Batch(NamedTuple):
    """What a step has evaluated: arrays [seed, batch]."""

    points: Point
    evaluation: Evaluation


class Chunk(NamedTuple):
    """What several steps have found, on the host."""

    rows: Row  #: arrays [step, seed]
    batches: Batch | None  #: [step, seed, batch] where there are several objectives
    told: tuple[np.ndarray, ...] | None = None  #: what an external method was told


class Asked(NamedTuple):
    """What is to be evaluated next."""

    points: Point  #: [seed, batch]
    values: Values  #: by leaf: [design], padded to the size of the evaluating program
    penalty: Penalty | None  #: arrays [design], for methods that use slopes


@dataclasses.dataclass(frozen=True)
class Run:
    """All that a method's own programs depend on besides their arguments."""

    method: str
    options: tuple[tuple[str, int | float], ...]
    size: int  #: of the evaluating program
    bits: tuple[int, ...]  #: that infeasible designs are counted by

    @functools.cached_property
    def searcher(self) -> Searcher:
        """The method with its options."""
        return METHODS[self.method].make(**dict(self.options))


def no_best(problem: Problem) -> Best:
    """Of each seed, before anything is evaluated."""
    space, n = problem.space, len(problem.spec.seeds)

    def array(value: float, kind: type, *shape: int) -> Array:
        return jnp.asarray(np.full(shape, value, kind))  # made on the host: nothing to compile

    worst, objectives = array(np.inf, np.float32, n), array(np.inf, np.float32, n, problem.n_objectives)
    point = Point(array(0, np.int32, n, len(space.sizes)), array(0, np.float32, n, len(space.paths)))
    return Best(point, Evaluation(objectives, worst, array(0, np.int32, n)), worst)


def absorb(best: Best, batch: Batch, value: Array, bits: tuple[int, ...]) -> tuple[Best, Row]:
    """The best with one step's batch, and the step's row of history; for one seed."""
    found = batch.evaluation
    at = best_position(found.violation, value, batch.points.digits)
    new = Best(*jax.tree.map(lambda a: a[at], (batch.points, found, value)))
    won = better((new.evaluation.violation, new.value), (best.evaluation.violation, best.value))
    kept = jax.tree.map(lambda a, b: jnp.where(won, a, b), new, best)
    reasons = [jnp.sum(((found.reason & bit) != 0).astype(jnp.int32)) for bit in bits]
    feasible = jnp.sum((found.reason == 0).astype(jnp.int32))
    row = Row(kept.evaluation.violation, kept.value, kept.evaluation.objectives, feasible, jnp.stack(reasons))
    return kept, row


@persistent_jit("run")
def _begin(space: Space, weights: Array, seeds: Array, *, run: Run) -> tuple[Any, Asked]:
    """State of every seed, and the first points."""

    def one(seed: Array) -> tuple[Any, Point]:
        key = jax.random.key(seed)
        state = run.searcher.init(jax.random.fold_in(key, 0), space)
        return run.searcher.propose(jax.random.fold_in(key, 1), state, space)

    return _asked(space, weights, *jax.vmap(one)(seeds), run)


def _asked(space: Space, weights: Array, state: Any, points: Point, run: Run) -> tuple[Any, Asked]:
    values, penalty = padded_values(space, points, run.size), None
    if run.searcher.penalty is not None:
        multiplier, stiffness = (array.reshape(-1) for array in jax.vmap(run.searcher.penalty)(state))
        each = jnp.repeat(weights, run.searcher.batch, axis=0)
        penalty = Penalty(*(padded(array, run.size) for array in (each, multiplier, stiffness)))
    return state, Asked(points, values, penalty)


@persistent_jit("run")
def _advance(
    space: Space, weights: Array, seeds: Array, progress: tuple[Any, Best, Point], found: tuple[Evaluation, Values],
    step: Array, *, run: Run,
) -> tuple[Any, Best, Asked, Row, Evaluation]:  # fmt: skip
    """Learn from the evaluation of step number ``step`` and ask for the next."""

    def one(
        seed: Array, weights: Array, progress: tuple[Any, Best, Point], found: tuple[Evaluation, Values]
    ) -> tuple[Any, Best, Point, Row]:
        (state, best, points), (evaluation, slopes), key = progress, found, jax.random.key(seed)
        value = scalar(evaluation.objectives, weights)
        learnt = Found(Judgement(evaluation.violation, value), slopes)
        state = run.searcher.update(jax.random.fold_in(key, step + 1), state, space, points, learnt)
        best, row = absorb(best, Batch(points, evaluation), value, run.bits)
        state, points = run.searcher.propose(jax.random.fold_in(key, step + 2), state, space)
        return state, best, points, row

    found = shaped(found, (len(seeds), run.searcher.batch))
    state, best, points, row = jax.vmap(one)(seeds, weights, progress, found)
    state, asked = _asked(space, weights, state, points, run)
    return state, best, asked, row, found[0]


class Driver:
    """A method on the device, all seeds by one ``vmap``."""

    def __init__(self, problem: Problem, name: str) -> None:
        spec = problem.spec
        self.problem = problem
        bits = tuple(problem.study.reason_bits.values())
        self._run = Run(name, tuple(spec.options[name].items()), problem.evaluator.size, bits)
        self.batch = self._run.searcher.batch
        self.chunk = max(1, min(_MOST_STEPS, _CHUNK // (self.batch * len(spec.seeds))))
        weights = jnp.asarray(weights_of(spec.seeds, problem.n_objectives))
        self._fixed = problem.space, weights, jnp.asarray(spec.seeds, jnp.uint32)
        self.state, self._asked = _begin(*self._fixed, run=self._run)
        self.best = no_best(problem)
        self._step: Any = None

    def advance(self, start: int, n_steps: int) -> Chunk:
        """Do ``n_steps`` steps, the first of them being number ``start``."""
        several = self.problem.n_objectives > 1
        rows, batches = [], []
        for step in range(start, start + n_steps):
            points = self._asked.points
            arguments = *self._fixed, (self.state, self.best, points), self._evaluated(), np.int32(step)
            if self._step is None:
                self._step = _advance.compiled(*arguments, run=self._run)
            self.state, self.best, self._asked, row, evaluation = self._step(*arguments)
            rows.append(row)
            if several:
                batches.append(Batch(points, evaluation))
        return Chunk(_stacked(rows), _stacked(batches) if several else None)

    def _evaluated(self) -> tuple[Evaluation, Values]:
        asked, count = self._asked, self.batch * len(self.problem.spec.seeds)
        if asked.penalty is None:
            return self.problem.evaluator(asked.values, count), {}
        return self.problem.evaluator.slopes(asked.values, asked.penalty, count)

    def state_arrays(self) -> list[np.ndarray]:
        """All that a later process needs to go on."""
        return [np.asarray(leaf) for leaf in jax.tree.leaves((self.state, self.best, self._asked))]

    def restore(self, arrays: list[np.ndarray], told: tuple[np.ndarray, ...] | None) -> None:
        """Go on from what :meth:`state_arrays` gave."""
        structure = jax.tree.structure((self.state, self.best, self._asked))
        self.state, self.best, self._asked = jax.tree.unflatten(structure, [jnp.asarray(array) for array in arrays])


def _stacked(steps: list[Any]) -> Any:
    """Pytrees of arrays, one a step, as one of NumPy arrays [step, ...]."""
    return jax.tree.map(lambda *arrays: np.stack(arrays), *jax.device_get(steps))


@persistent_jit("size")
def _place(space: Space, cube: Array, *, size: int) -> Asked:
    """Designs at positions [seed, batch, axis] of the unit cube."""
    points = spaces.decode(space, cube)
    return Asked(points, padded_values(space, points, size), None)


@persistent_jit("bits")
def _absorb_all(
    best: Best, points: Point, found: Evaluation, weights: Array, *, bits: tuple[int, ...]
) -> tuple[Best, Row, Batch, Array]:
    """What a batch of every seed is worth."""
    batch = Batch(points, shaped(found, points.digits.shape[:2]))
    value = jax.vmap(scalar)(batch.evaluation.objectives, weights)
    best, row = jax.vmap(functools.partial(absorb, bits=bits))(best, batch, value)
    return best, row, batch, value


class HostDriver:
    """A method that asks and tells on the host, a searcher for each seed; evaluated on the device together."""

    def __init__(self, problem: Problem, name: str) -> None:
        spec = problem.spec
        self.problem = problem
        where = f"{spec.sweep.file}: search.method"
        self.searchers = [
            METHODS[name].make(problem.space, problem.n_objectives, seed, where, **spec.options[name])
            for seed in spec.seeds
        ]
        self.batch = self.searchers[0].batch
        self.chunk = max(1, min(_MOST_STEPS // 8, _CHUNK // (self.batch * len(spec.seeds))))
        self.weights = jnp.asarray(weights_of(spec.seeds, problem.n_objectives))
        self.best = no_best(problem)

    def advance(self, start: int, n_steps: int) -> Chunk:
        """Do ``n_steps`` steps."""
        several, evaluator = self.problem.n_objectives > 1, self.problem.evaluator
        bits = tuple(self.problem.study.reason_bits.values())
        rows, batches, told = [], [], []
        for _ in range(n_steps):
            cube = np.stack([searcher.ask() for searcher in self.searchers]).astype(np.float32)
            asked = _place(self.problem.space, cube, size=evaluator.size)
            found = evaluator(asked.values, self.batch * len(self.searchers))
            self.best, row, batch, value = _absorb_all(self.best, asked.points, found, self.weights, bits=bits)
            worth = jax.device_get((batch.evaluation.objectives, batch.evaluation.violation, value))
            self._tell(worth)
            rows.append(row)
            told.append(worth)
            if several:
                batches.append(batch)
        batch = _stacked(batches) if several else None
        return Chunk(_stacked(rows), batch, tuple(map(np.stack, zip(*told, strict=True))))

    def _tell(self, worth: tuple[np.ndarray, ...]) -> None:
        for searcher, *own in zip(self.searchers, *worth, strict=True):
            searcher.tell(*own)

    def state_arrays(self) -> list[np.ndarray]:
        """The best of each seed: the searchers are made again from what they were told."""
        return [np.asarray(leaf) for leaf in jax.tree.leaves(self.best)]

    def restore(self, arrays: list[np.ndarray], told: tuple[np.ndarray, ...] | None) -> None:
        """Ask and tell again what was told before."""
        self.best = jax.tree.unflatten(jax.tree.structure(self.best), [jnp.asarray(array) for array in arrays])
        for worth in zip(*(told or ()), strict=True):
            for searcher in self.searchers:
                searcher.ask()
            self._tell(worth)


def release() -> None:
    """Forget the programs of methods: no other run can use them, and a process has room for some hundred."""
    for function in (_begin, _advance, _place, _absorb_all):
        function.forget()


def driver(problem: Problem, name: str) -> Driver | HostDriver:
    """What runs a method."""
    return (HostDriver if METHODS[name].external else Driver)(problem, name)
