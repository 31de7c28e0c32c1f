"""Differential evolution on the unit cube (Storn and Price 1997), with the mutation of JADE.

A trial is ``x + F (p - x) + F (a - b)``, with p one of the best, a and b random others, crossed with x axis by axis.
A trial replaces its parent when it is no worse. F and CR are drawn anew for each trial, so that
neither has to be tuned (Zhang and Sanderson 2009, without the archive and the adaptation of the means).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from dse.optimizers import space as spaces
from dse.optimizers.judging import better, order
from dse.optimizers.methods.base import Fitness, Method, Searcher
from dse.optimizers.space import Point, Space


class Population(NamedTuple):
    """Members with their judgement, infinitely bad before they are evaluated, and their trials."""

    cube: Array  #: [member, axis]
    violation: Array
    value: Array
    trial: Array  #: [member, axis] what is being evaluated
    is_evaluated: Array


def searcher(population: int, best_share: float) -> Searcher:
    """Return the searcher of differential evolution; trials head for the best share ``best_share`` of members."""

    def init(key: Array, space: Space) -> Population:
        cube = spaces.encode(space, spaces.sample(space, key, (population,)))
        worst = jnp.full(population, jnp.inf)
        return Population(cube, worst, worst, cube, jnp.bool_(False))

    def propose(key: Array, state: Population, space: Space) -> tuple[Population, Point]:
        trial = jnp.where(state.is_evaluated, _trials(key, state, best_share), state.cube)
        return state._replace(trial=trial), spaces.decode(space, trial)

    def update(key: Array, state: Population, space: Space, points: Point, fitness: Fitness) -> Population:
        violation, value = fitness.judgement
        is_worse = better((state.violation, state.value), (violation, value))
        return Population(
            jnp.where(is_worse[:, None], state.cube, state.trial),
            jnp.where(is_worse, state.violation, violation),
            jnp.where(is_worse, state.value, value),
            state.trial,
            jnp.bool_(True),
        )

    return Searcher(init, propose, update, population)


def _trials(key: Array, state: Population, best_share: float) -> Array:
    """Return a trial [member, axis] in the unit cube for each member."""
    n_members, n_axes = state.cube.shape
    keys = jax.random.split(key, 6)
    n_best = max(2, round(best_share * n_members))
    ranked = order(state.violation, state.value)
    # Draws of one shape are vectorised over their keys: XLA compiles each draw as long as all else in a trial.
    draw_keys, ranges = (
        jnp.append(keys[:3], jax.random.fold_in(key, 1)),
        jnp.array([(0, n_best), (1, n_members), (1, n_members), (0, n_axes)]),
    )
    draws = jax.vmap(lambda key, ends: jax.random.randint(key, (n_members,), *ends))(draw_keys, ranges)
    best = state.cube[ranked[draws[0]]]
    first_member, second_member = (
        state.cube[(jnp.arange(n_members) + step) % n_members] for step in draws[1:3]
    )  # random members, not oneself
    minimum = jnp.array([0.3, 0.1])
    factor, rate = jax.vmap(lambda key, low: jax.random.uniform(key, (n_members, 1), minval=low, maxval=1.0))(
        keys[3:5], minimum
    )
    mutant = state.cube + factor * (best - state.cube) + factor * (first_member - second_member)
    mutant = jnp.where(mutant < 0.0, state.cube / 2.0, jnp.where(mutant > 1.0, (1.0 + state.cube) / 2.0, mutant))
    crossed = jax.random.uniform(keys[5], (n_members, n_axes)) < rate
    forced = draws[3][:, None] == jnp.arange(n_axes)[None, :]
    return jnp.where(crossed | forced, mutant, state.cube)


EVOLUTION = Method("evolution", "differential evolution on the unit cube", searcher)
