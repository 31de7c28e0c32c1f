"""Steps of a method for all seeds at once, and what is kept of them: the best so far, counts, a row of history."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dse.search import space as spaces
from dse.search.judging import Evaluation, Judgement, best_position, better
from dse.search.methods import METHODS, Batch, Evaluate
from dse.search.problem import Problem
from dse.search.slopes import judged_with_slopes
from dse.search.space import Point, Space
from dse.study import TRAINING

#: Bits that infeasible designs are counted by.
BITS = (*TRAINING.reason_bits.values(),)

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


class Chunk(NamedTuple):
    """What several steps have found, on the host."""

    rows: Row  #: arrays [step, seed]
    points: Point | None  #: [step, seed, batch] where there are several objectives
    evaluation: Evaluation | None
    told: tuple[np.ndarray, ...] | None = None  #: what an external method was told


def scalar(objectives: Array, weights: Array) -> Array:
    """One value of objectives [..., objective]: the one, or the weighted geometric mean of several.

    Any scale of an objective leaves the order as it is; one to be made large counts by its inverse.
    """
    if objectives.shape[-1] == 1:
        return objectives[..., 0]
    size = jnp.log(jnp.maximum(jnp.abs(objectives), jnp.finfo(jnp.float32).tiny))
    return jnp.exp((jnp.sign(objectives) * size) @ weights)


def weights_of(seeds: Sequence[int], n_objectives: int) -> np.ndarray:
    """[seed, objective] weights that add up to 1: spread over the simplex, so that seeds seek different parts of it."""
    if n_objectives == 1:
        return np.ones((len(seeds), 1), np.float32)
    drawn = [np.random.default_rng([n_objectives, seed]).dirichlet(np.ones(n_objectives)) for seed in seeds]
    if n_objectives == 2:
        first = [((seed * 0.6180339887498949) + 0.5) % 1.0 for seed in seeds]  # golden ratio: even for any count
        drawn = [(share, 1.0 - share) for share in first]
    return np.array(drawn, np.float32)


def no_best(problem: Problem) -> Best:
    """Of each seed, before anything is evaluated."""
    space, n = problem.space, len(problem.spec.seeds)
    point = Point(np.zeros((n, len(space.sizes)), np.int32), np.zeros((n, len(space.paths)), np.float32))
    worst = np.full(n, np.inf, np.float32)
    objectives = np.full((n, problem.n_objectives), np.inf, np.float32)
    return jax.tree.map(jnp.asarray, Best(point, Evaluation(objectives, worst, np.zeros(n, np.int32)), worst))


def _strong(state: Any) -> Any:
    """The same arrays, none of a weak type: the program for the first chunk is that for the others."""
    return jax.tree.map(lambda a: jnp.asarray(np.asarray(a)), state)


def absorb(best: Best, batch: Batch, value: Array) -> tuple[Best, Row]:
    """The best with one step's batch, and the step's row of history; for one seed."""
    found = batch.evaluation
    at = best_position(found.violation, value, batch.points.digits)
    new = Best(*jax.tree.map(lambda a: a[at], (batch.points, found)), value[at])
    won = better((new.evaluation.violation, new.value), (best.evaluation.violation, best.value))
    kept = jax.tree.map(lambda a, b: jnp.where(won, a, b), new, best)
    reasons = [jnp.sum(((found.reason & bit) != 0).astype(jnp.int32)) for bit in BITS]
    feasible = jnp.sum((found.reason == 0).astype(jnp.int32))
    row = Row(kept.evaluation.violation, kept.value, kept.evaluation.objectives, feasible, jnp.stack(reasons))
    return kept, row


class Driver:
    """A method on the device, all seeds by one ``vmap``."""

    def __init__(self, problem: Problem, name: str) -> None:
        spec = problem.spec
        self.problem, self.searcher = problem, METHODS[name].make(**spec.options[name])
        self.batch = self.searcher.batch
        self.weights = jnp.asarray(weights_of(spec.seeds, problem.n_objectives))
        self.keys = jnp.stack([jax.random.key(seed) for seed in spec.seeds])
        self.chunk = max(1, min(_MOST_STEPS, _CHUNK // (self.batch * len(spec.seeds))))
        firsts = jax.vmap(lambda key: jax.random.fold_in(key, 0))(self.keys)
        self.state = _strong(jax.jit(jax.vmap(self.searcher.init, in_axes=(0, None)))(firsts, problem.space))
        self.best = no_best(problem)

    def advance(self, start: int, n_steps: int) -> Chunk:
        """Do ``n_steps`` steps, at most ``chunk``, the first of them being number ``start``."""
        carry = self._run(self.problem.space, self.state, self.best, np.int32(start), np.int32(n_steps))
        self.state, self.best, rows, batches = carry
        rows, batches = jax.tree.map(lambda a: np.asarray(a)[:n_steps], (rows, batches))
        return Chunk(rows, *(batches or (None, None)))

    def state_arrays(self) -> list[np.ndarray]:
        """All that a later process needs to go on."""
        return [np.asarray(leaf) for leaf in jax.tree.leaves((self.state, self.best))]

    def restore(self, arrays: list[np.ndarray], told: tuple[np.ndarray, ...] | None) -> None:
        """Go on from what :meth:`state_arrays` gave."""
        structure = jax.tree.structure((self.state, self.best))
        self.state, self.best = jax.tree.unflatten(structure, [jnp.asarray(array) for array in arrays])

    @functools.partial(jax.jit, static_argnums=0)
    def _run(self, space: Space, state: Any, best: Best, start: Array, n_steps: Array) -> tuple[Any, ...]:
        def one(key: Array, weights: Array, state: Any, best: Best) -> tuple[Any, ...]:
            worth = functools.partial(scalar, weights=weights)
            slopes = functools.partial(judged_with_slopes, self.problem, space, worth)
            evaluate = Evaluate(space, lambda points: self._judge(space, points, weights), slopes)
            state, batch = self.searcher.step(key, state, evaluate)
            best, row = absorb(best, batch, scalar(batch.evaluation.objectives, weights))
            return state, best, row, batch

        def step(i: Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
            state, best, rows, batches = carry
            keys = jax.vmap(lambda key: jax.random.fold_in(key, start + i + 1))(self.keys)
            state, best, row, batch = jax.vmap(one)(keys, self.weights, state, best)
            rows = jax.tree.map(lambda a, b: a.at[i].set(b), rows, row)
            if batches is not None:
                batches = jax.tree.map(lambda a, b: a.at[i].set(b), batches, batch)
            return state, best, rows, batches

        rows, batches = self._room()
        return lax.fori_loop(0, n_steps, step, (state, best, rows, batches))

    def _room(self) -> tuple[Row, Batch | None]:
        """Where the rows of a chunk go, and its batches where there are several objectives."""
        problem, space = self.problem, self.problem.space
        n, m = len(problem.spec.seeds), problem.n_objectives

        def room(*shape: int, dtype: Any = jnp.float32) -> Array:
            return jnp.zeros((self.chunk, n, *shape), dtype)

        whole = functools.partial(room, dtype=jnp.int32)
        rows = Row(room(), room(), room(m), whole(), whole(len(BITS)))
        if m == 1:
            return rows, None
        points = Point(whole(self.batch, len(space.sizes)), room(self.batch, len(space.paths)))
        return rows, Batch(points, Evaluation(room(self.batch, m), room(self.batch), whole(self.batch)))

    def _judge(self, space: Space, points: Point, weights: Array) -> Judgement:
        found = self.problem.evaluate(points, space)
        return Judgement(found.violation, scalar(found.objectives, weights), found)


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
        several = self.problem.n_objectives > 1
        rows, batches, told = [], [], []
        for _ in range(n_steps):
            cube = np.stack([searcher.ask() for searcher in self.searchers]).astype(np.float32)
            self.best, row, batch, value = self._evaluated(self.problem.space, cube, self.best)
            worth = tuple(map(np.asarray, (batch.evaluation.objectives, batch.evaluation.violation, value)))
            self._tell(worth)
            rows.append(jax.tree.map(np.asarray, row))
            told.append(worth)
            if several:
                batches.append(jax.tree.map(np.asarray, batch))
        stacked = jax.tree.map(lambda *arrays: np.stack(arrays), *rows)
        found = jax.tree.map(lambda *arrays: np.stack(arrays), *batches) if several else (None, None)
        return Chunk(stacked, *found, tuple(map(np.stack, zip(*told, strict=True))))

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

    @functools.partial(jax.jit, static_argnums=0)
    def _evaluated(self, space: Space, cube: Array, best: Best) -> tuple[Best, Row, Batch, Array]:
        points = spaces.decode(space, cube)
        batch = Batch(points, self.problem.evaluate(points, space))
        value = jax.vmap(scalar)(batch.evaluation.objectives, self.weights)
        best, row = jax.vmap(absorb)(best, batch, value)
        return best, row, batch, value


def release() -> None:
    """Forget the compiled programs of drivers: no other run can use them, and a process has room for some hundred."""
    Driver._run.clear_cache()
    HostDriver._evaluated.clear_cache()


def driver(problem: Problem, name: str) -> Driver | HostDriver:
    """What runs a method."""
    return (HostDriver if METHODS[name].external else Driver)(problem, name)
