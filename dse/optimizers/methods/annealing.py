"""Simulated annealing (Kirkpatrick et al. 1983) by steps to neighbours, several walkers side by side.

A worse neighbour is taken with the chance ``exp(-worse / temperature)``, where worse is the logarithm of the ratio
of the values (the difference where one is not positive), plus what it violates more. The temperature falls from step
to step of a round; walkers begin again at the best they have found when they have come to its end.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from dse.optimizers import space as spaces
from dse.optimizers.judging import better
from dse.optimizers.methods.base import Fitness, Method, Searcher
from dse.optimizers.space import Point, Space

#: Temperature at the end of a round, as a share of that at its beginning.
COLDEST = 1e-3

#: Excess of violation weighs so much against the logarithm of a value.
VIOLATION_WEIGHT = 4.0

#: Continuous axes move by up to this share of their length, less when it is colder.
_LONGEST_STEP = 0.3


class Judged(NamedTuple):
    """Points [walker] with their judgement."""

    points: Point
    violation: Array
    value: Array


class Walkers(NamedTuple):
    """State of annealing: current and best points of walkers, and the step of the round."""

    current: Judged
    best: Judged
    step: Array


def searcher(walkers: int, temperature: float, steps: int) -> Searcher:
    """Return the searcher of annealing by ``walkers`` that draw neighbours evenly.

    Args:
        walkers: points side by side.
        temperature: of the first step; at 0.1 ten per cent worse is often accepted.
        steps: of a round, at whose end the walkers restart from their best.
    """

    def init(key: Array, space: Space) -> Walkers:
        worst = jnp.full(walkers, jnp.inf)
        start = Judged(spaces.sample(space, key, (walkers,)), worst, worst)
        return Walkers(start, start, jnp.int32(0))

    def heat(state: Walkers) -> Array:
        """Temperature as a share of the first."""
        return COLDEST ** ((state.step % steps).astype(jnp.float32) / float(steps))

    def propose(key: Array, state: Walkers, space: Space) -> tuple[Walkers, Point]:
        keys, longest = jax.random.split(jax.random.split(key, 2)[0], walkers), _LONGEST_STEP * jnp.sqrt(heat(state))
        starts_round = (state.step % steps) == 0
        current = jax.tree.map(lambda best, old: jnp.where(starts_round, best, old), state.best, state.current)
        state, points = state._replace(current=current), current.points
        neighbours = jax.vmap(lambda key, point: _random_neighbour(key, space, point, longest))(keys, points)
        return state, jax.tree.map(lambda new, old: jnp.where(state.step == 0, old, new), neighbours, points)

    def update(key: Array, state: Walkers, space: Space, points: Point, fitness: Fitness) -> Walkers:
        trial, uniform = Judged(points, *fitness.judgement), jax.random.uniform(jax.random.split(key, 2)[1], (walkers,))
        is_accepted = uniform < jnp.exp(-deterioration(state.current, trial) / (temperature * heat(state)))
        is_better = better(trial[1:], state.best[1:])
        best = select(is_better, trial, state.best)
        return Walkers(select(is_accepted, trial, state.current), best, state.step + 1)

    return Searcher(init, propose, update, walkers)


def _random_neighbour(key: Array, space: Space, point: Point, longest: Array) -> Point:
    """Return a neighbour of one point, drawn evenly among those that are other designs."""
    keys = jax.random.split(key, 2)
    neighbours, _ = spaces.neighbours(space, point, longest * jax.random.uniform(keys[0]))
    digits, reals = (jnp.broadcast_to(old, new.shape) for old, new in zip(point, neighbours, strict=True))
    is_other = jnp.any(neighbours.digits != digits, axis=-1) | jnp.any(neighbours.reals != reals, axis=-1)
    chosen = jax.random.categorical(keys[1], jnp.where(is_other, 0.0, -jnp.inf))
    return jax.tree.map(lambda array: array[chosen], neighbours)


def deterioration(current: Judged, trial: Judged) -> Array:
    """Return how much worse, as a logarithm, trials [walker] are than their walkers; 0 or less for better ones.

    Of two infeasible designs only the violation counts.
    """
    tiny = jnp.finfo(jnp.float32).tiny
    ratio = jnp.log(jnp.maximum(trial.value, tiny)) - jnp.log(jnp.maximum(current.value, tiny))
    difference = (trial.value - current.value) / jnp.maximum(jnp.abs(current.value), tiny)
    log_increase = jnp.where((trial.value > 0.0) & (current.value > 0.0), ratio, difference)
    log_increase = jnp.where((trial.violation > 0.0) & (current.violation > 0.0), 0.0, log_increase)
    is_unknown = jnp.isinf(current.violation)
    return jnp.where(is_unknown, -1.0, log_increase + VIOLATION_WEIGHT * (trial.violation - current.violation))


def select(mask: Array, judged: Judged, otherwise: Judged) -> Judged:
    """Return ``judged`` where the mask is true, ``otherwise`` elsewhere."""
    return jax.tree.map(lambda a, b: jnp.where(mask.reshape(-1, *[1] * (a.ndim - 1)), a, b), judged, otherwise)


ANNEALING = Method("annealing", "simulated annealing by steps to neighbours", searcher)
