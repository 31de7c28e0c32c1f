"""Simulated annealing (Kirkpatrick et al. 1983) by steps to neighbours, several walkers side by side.

A worse neighbour is taken with the chance ``exp(-worse / temperature)``, where worse is the logarithm of the ratio
of the values (the difference where one is not positive), plus what it violates more. The temperature falls by a
constant factor a step; walkers begin again at the best they have found when they have come to its end.

``annealing`` draws neighbours evenly. ``langevin`` draws them by the relaxed gradient at the walker: the leaves of a
design are real numbers to the model, so one gradient predicts the change to every neighbour to first order, and one
is drawn with the chance ``exp(-predicted / guide)`` (locally informed proposals: Zanella 2020; Gibbs with gradients:
Grathwohl et al. 2021, discrete Langevin proposals: Zhang et al. 2022), without the correction that sampling from a
distribution would need. A share ``plain`` is drawn evenly all the same: choices that the model compares rather than
calculates with (recompute, ZeRO stage) have no slope.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from dse.optimizers import space as spaces
from dse.optimizers.judging import better
from dse.optimizers.methods.base import Fitness, Method, Searcher
from dse.optimizers.space import Point, Space

#: Temperature at the end of a round, as a share of that at its beginning.
_COLDEST = 1e-3

#: Excess of violation weighs so much against the logarithm of a value.
_VIOLATION_WEIGHT = 4.0

#: Continuous axes move by up to this share of their length, less when it is colder.
_LONGEST_STEP = 0.3

#: What a neighbour is predicted to gain or lose is cut at this.
_MOST_PREDICTED = 3.0


class Judged(NamedTuple):
    """Points [walker] with their judgement."""

    points: Point
    violation: Array
    value: Array


class Walkers(NamedTuple):
    """State of annealing: current and best points of walkers, and the step of the round."""

    current: Judged
    best: Judged
    slopes: dict[str, Array]  #: by leaf: [walker] gradient where the walker is; empty where none is followed
    step: Array


#: (key, space, point, slopes there, longest step along continuous axes) → neighbour.
Move = Callable[[Array, Space, Point, dict[str, Array], Array], Point]


def searcher(walkers: int, temperature: float, steps: int) -> Searcher:
    """Return the searcher of annealing by ``walkers`` that draw neighbours evenly.

    Args:
        walkers: points side by side.
        temperature: of the first step; at 0.1 ten per cent worse is often accepted.
        steps: of a round, at whose end the walkers restart from their best.
    """
    return _searcher(walkers, temperature, steps, _uniform, guided=False)


def guided(walkers: int, temperature: float, steps: int, guide: float, plain: float) -> Searcher:
    """Return the searcher of annealing whose neighbours are drawn by the relaxed gradient.

    Args:
        walkers: points side by side.
        temperature: of the first step.
        steps: of a round.
        guide: change of the logarithm at which a neighbour is e times as likely.
        plain: share of the steps that are drawn evenly.
    """
    return _searcher(walkers, temperature, steps, functools.partial(informed, guide=guide, plain=plain), guided=True)


def _searcher(walkers: int, temperature: float, steps: int, move: Move, guided: bool) -> Searcher:
    """Return the searcher of annealing by a rule to move; ``guided`` rules need slopes."""

    def init(key: Array, space: Space) -> Walkers:
        worst = jnp.full(walkers, jnp.inf)
        start = Judged(spaces.sample(space, key, (walkers,)), worst, worst)
        slopes = {path: jnp.zeros(walkers) for path in spaces.leaf_paths(space)} if guided else {}
        return Walkers(start, start, slopes, jnp.int32(0))

    def heat(state: Walkers) -> Array:
        """Temperature as a share of the first."""
        return _COLDEST ** ((state.step % steps).astype(jnp.float32) / float(steps))

    def propose(key: Array, state: Walkers, space: Space) -> tuple[Walkers, Point]:
        keys, longest = jax.random.split(jax.random.split(key, 2)[0], walkers), _LONGEST_STEP * jnp.sqrt(heat(state))
        state = _restart(state, (state.step % steps) == 0)
        points = state.current.points
        neighbours = jax.vmap(lambda key, point, slopes: move(key, space, point, slopes, longest))(
            keys, points, state.slopes
        )
        return state, jax.tree.map(lambda new, old: jnp.where(state.step == 0, old, new), neighbours, points)

    def update(key: Array, state: Walkers, space: Space, points: Point, fitness: Fitness) -> Walkers:
        trial, uniform = Judged(points, *fitness.judgement), jax.random.uniform(jax.random.split(key, 2)[1], (walkers,))
        is_accepted = uniform < jnp.exp(-_deterioration(state.current, trial) / (temperature * heat(state)))
        is_better = better(trial[1:], state.best[1:])
        slopes = {path: jnp.where(is_accepted, slope, state.slopes[path]) for path, slope in fitness.slopes.items()}
        best = _select(is_better, trial, state.best)
        return Walkers(_select(is_accepted, trial, state.current), best, slopes, state.step + 1)

    def penalty(state: Walkers) -> tuple[Array, Array]:
        return jnp.full(walkers, _VIOLATION_WEIGHT), jnp.zeros(walkers)

    return Searcher(init, propose, update, walkers, penalty if guided else None)


def _uniform(key: Array, space: Space, point: Point, slopes: dict[str, Array], longest: Array) -> Point:
    """Return a neighbour of one point, drawn evenly among those that are other designs."""
    keys = jax.random.split(key, 2)
    neighbours, is_other = _neighbours(keys[0], space, point, longest)
    return _draw_neighbour(keys[1], neighbours, jnp.where(is_other, 0.0, -jnp.inf))


def informed(
    key: Array, space: Space, point: Point, slopes: dict[str, Array], longest: Array, *, guide: float, plain: float
) -> Point:
    """Return a neighbour of one point, drawn by the change that slopes predict, or evenly in a share ``plain``."""
    keys = jax.random.split(key, 3)
    neighbours, is_other = _neighbours(keys[0], space, point, longest)
    change = predicted_change(slopes, spaces.values(space, point), spaces.values(space, neighbours))
    logits = -jnp.clip(change, -_MOST_PREDICTED, _MOST_PREDICTED) / guide
    logits = jnp.where(jax.random.uniform(keys[2]) < plain, 0.0, logits)
    return _draw_neighbour(keys[1], neighbours, jnp.where(is_other, logits, -jnp.inf))


def _neighbours(key: Array, space: Space, point: Point, longest: Array) -> tuple[Point, Array]:
    """Return neighbours [direction] of one point, and a mask of those that are other designs."""
    neighbours, _ = spaces.neighbours(space, point, longest * jax.random.uniform(key))
    digits, reals = (jnp.broadcast_to(old, new.shape) for old, new in zip(point, neighbours, strict=True))
    return neighbours, jnp.any(neighbours.digits != digits, axis=-1) | jnp.any(neighbours.reals != reals, axis=-1)


def _draw_neighbour(key: Array, neighbours: Point, logits: Array) -> Point:
    """Return one of the neighbours [direction], drawn by their logits."""
    chosen = jax.random.categorical(key, logits)
    return jax.tree.map(lambda array: array[chosen], neighbours)


def _deterioration(current: Judged, trial: Judged) -> Array:
    """Return how much worse, as a logarithm, trials [walker] are than their walkers; 0 or less for better ones.

    Of two infeasible designs only the violation counts.
    """
    tiny = jnp.finfo(jnp.float32).tiny
    ratio = jnp.log(jnp.maximum(trial.value, tiny)) - jnp.log(jnp.maximum(current.value, tiny))
    difference = (trial.value - current.value) / jnp.maximum(jnp.abs(current.value), tiny)
    log_increase = jnp.where((trial.value > 0.0) & (current.value > 0.0), ratio, difference)
    log_increase = jnp.where((trial.violation > 0.0) & (current.violation > 0.0), 0.0, log_increase)
    is_unknown = jnp.isinf(current.violation)
    return jnp.where(is_unknown, -1.0, log_increase + _VIOLATION_WEIGHT * (trial.violation - current.violation))


def _restart(state: Walkers, starts_round: Array) -> Walkers:
    """Return walkers at their best points where ``starts_round`` is true, else unchanged."""
    current = jax.tree.map(lambda best, old: jnp.where(starts_round, best, old), state.best, state.current)
    slopes = jax.tree.map(lambda slope: jnp.where(starts_round, 0.0, slope), state.slopes)  # not known there
    return state._replace(current=current, slopes=slopes)


def _select(mask: Array, judged: Judged, otherwise: Judged) -> Judged:
    """Return ``judged`` where the mask is true, ``otherwise`` elsewhere."""
    return jax.tree.map(lambda a, b: jnp.where(mask.reshape(-1, *[1] * (a.ndim - 1)), a, b), judged, otherwise)


ANNEALING = Method("annealing", "simulated annealing by steps to neighbours", searcher)

LANGEVIN = Method(
    "langevin", "annealing by the relaxed gradient: neighbours drawn by the change that it predicts", guided
)


#: Gradients by the logarithm of a leaf beyond this are cut: what is steeper is the edge of something.
STEEPEST = 10.0


def cut(slope: Array) -> Array:
    """Return a slope clipped to ± ``STEEPEST``, with 0 for NaN."""
    return jnp.clip(jnp.nan_to_num(slope), -STEEPEST, STEEPEST)


def predicted_change(slopes: dict[str, Array], origin: dict[str, Array], target: dict[str, Array]) -> Array:
    """Return the first-order change of a function [...] from the leaves ``origin`` to ``target``.

    Along the logarithms of leaves that are positive at both ends (``df = df/dln x ln(y/x)``), else along the leaves.
    """
    total = jnp.float32(0.0)
    for path, slope in slopes.items():
        old, new = origin[path], target[path]
        positive = (old > 0.0) & (new > 0.0)
        ratio = jnp.where(positive, new, 1.0) / jnp.where(positive, old, 1.0)
        total = total + jnp.where(positive, cut(slope * old) * jnp.log(ratio), cut(slope) * (new - old))
    return total
