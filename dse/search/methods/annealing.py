"""Simulated annealing (Kirkpatrick et al. 1983) by steps to neighbours, several walkers side by side.

A worse neighbour is taken with the chance ``exp(-worse / temperature)``, where worse is the logarithm of the ratio
of the values (the difference where one is not positive), plus what it violates more. The temperature falls by a
constant factor a step; walkers begin again at the best they have found when they have come to its end.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from dse.search import space as spaces
from dse.search.judging import better
from dse.search.methods.base import Batch, Evaluate, Method, Searcher
from dse.search.space import Point, Space

#: Temperature at the end of a round, as a share of that at its beginning.
_COLDEST = 1e-3

#: Excess of violation weighs so much against the logarithm of a value.
_VIOLATION_WEIGHT = 4.0

#: Continuous axes move by up to this share of their length, less when it is colder.
_LONGEST_STEP = 0.3


class State(NamedTuple):
    """Walkers, where each was best, and the time."""

    at: Point  #: [walker]
    violation: Array
    value: Array
    best: Point
    best_violation: Array
    best_value: Array
    time: Array


def searcher(walkers: int, temperature: float, steps: int) -> Searcher:
    """Walkers, their first temperature (0.1: ten per cent worse is taken often) and the steps of a round."""

    def init(key: Array, space: Space) -> State:
        points = spaces.sample(space, key, (walkers,))
        worst = jnp.full(walkers, jnp.inf)
        return State(points, worst, worst, points, worst, worst, jnp.int32(0))

    def step(key: Array, state: State, evaluate: Evaluate) -> tuple[State, Batch]:
        keys = jax.random.split(key, 2)
        heat = _COLDEST ** ((state.time % steps).astype(jnp.float32) / float(steps))
        state = _begun_again(state, (state.time % steps) == 0)
        moved = jax.vmap(lambda k, point: _neighbour(k, evaluate.space, point, heat))(
            jax.random.split(keys[0], walkers), state.at
        )
        trial = jax.tree.map(lambda new, old: jnp.where(state.time == 0, old, new), moved, state.at)  # or the first
        found = evaluate(trial)
        worse = _worse(state, found.violation, found.value)
        taken = jax.random.uniform(keys[1], (walkers,)) < jnp.exp(-worse / (temperature * heat))
        won = better((found.violation, found.value), (state.best_violation, state.best_value))
        kept = State(
            _chosen(taken, trial, state.at),
            jnp.where(taken, found.violation, state.violation),
            jnp.where(taken, found.value, state.value),
            _chosen(won, trial, state.best),
            jnp.where(won, found.violation, state.best_violation),
            jnp.where(won, found.value, state.best_value),
            state.time + 1,
        )
        return kept, Batch(trial, found.evaluation)

    return Searcher(init, step, walkers)


def _neighbour(key: Array, space: Space, point: Point, heat: Array) -> Point:
    """A random neighbour, among those that are other designs."""
    keys = jax.random.split(key, 2)
    step = _LONGEST_STEP * jnp.sqrt(heat) * jax.random.uniform(keys[0])
    near, _ = spaces.neighbours(space, point, step)
    other = _differs(near, point)
    chosen = jax.random.categorical(keys[1], jnp.where(other, 0.0, -jnp.inf))
    return jax.tree.map(lambda array: array[chosen], near)


def _differs(near: Point, point: Point) -> Array:
    digits, reals = (jnp.broadcast_to(old, new.shape) for old, new in zip(point, near, strict=True))
    return jnp.any(near.digits != digits, axis=-1) | jnp.any(near.reals != reals, axis=-1)


def _worse(state: State, violation: Array, value: Array) -> Array:
    """How much worse trials are than where walkers are: 0 or less for the better; of the infeasible only violation."""
    tiny = jnp.finfo(jnp.float32).tiny
    ratio = jnp.log(jnp.maximum(value, tiny)) - jnp.log(jnp.maximum(state.value, tiny))
    difference = (value - state.value) / jnp.maximum(jnp.abs(state.value), tiny)
    dearer = jnp.where((value > 0.0) & (state.value > 0.0), ratio, difference)
    dearer = jnp.where((violation > 0.0) & (state.violation > 0.0), 0.0, dearer)
    unknown = jnp.isinf(state.violation)
    return jnp.where(unknown, -1.0, dearer + _VIOLATION_WEIGHT * (violation - state.violation))


def _begun_again(state: State, now: Array) -> State:
    """Walkers at the best that they have found, where a round begins."""
    at = jax.tree.map(lambda old, best: jnp.where(now, best, old), state.at, state.best)
    violation = jnp.where(now, state.best_violation, state.violation)
    return state._replace(at=at, violation=violation, value=jnp.where(now, state.best_value, state.value))


def _chosen(mask: Array, one: Point, other: Point) -> Point:
    return jax.tree.map(lambda a, b: jnp.where(mask[:, None], a, b), one, other)


ANNEALING = Method(
    "annealing", "simulated annealing by steps to neighbours",
    {"walkers": 16, "temperature": 0.1, "steps": 200}, searcher,
)  # fmt: skip
