"""Relaxed gradient: every axis a real number that a chain of optax moves, every evaluated design a valid one.

Starts lie in the unit cube (:func:`dse.optimizers.space.decode`): degrees of parallelism, catalogue entries, options
and continuous axes are positions in it. The model takes leaves as real numbers, so one gradient by the leaves gives a
slope along each axis (:func:`slopes_along`). Optax makes a step of these slopes, taken straight through the rounding
to a cell (Bengio et al. 2013), and Gaussian noise is added along an axis or two, as in Langevin dynamics: choices that
the model compares rather than calculates with (recompute, ZeRO stage) have no slope. A step is kept by the rule of
Metropolis, at a temperature that falls; rates of steps and widths of noise fall with its square root.

Limits are met by an augmented Lagrangian (Hestenes 1969, Powell 1969). Slopes are those of
``ln(value) + multiplier violation + stiffness / 2 violation^2``, and the multiplier of a start grows by
``stiffness violation`` with every step that it takes: a limit that binds gets its price.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from dse.optimizers import space as spaces
from dse.optimizers.judging import better
from dse.optimizers.methods.annealing import COLDEST, VIOLATION_WEIGHT, Judged, deterioration, select
from dse.optimizers.methods.base import Fitness, Method, Searcher
from dse.optimizers.space import Point, Space

#: Gradients by the logarithm of a leaf beyond this are cut: what is steeper is the edge of something.
STEEPEST = 10.0

#: Stiffness of the penalty, and the largest multiplier.
_STIFFNESS, _MOST_MULTIPLIER = 4.0, 30.0

#: Axes with noise in a step, and the width of the noise as a share of the cube.
_NOISY_AXES, _WIDEST = 1.5, 0.3

#: Least width of the noise in cells: what is narrower leaves a position in its cell for ever.
_NARROWEST = 0.75


class Starts(NamedTuple):
    """State of the method: arrays [start], and what optax keeps."""

    cube: Array  #: [start, axis] position of the current design
    best_cube: Array  #: [start, axis] position of the best design
    trial: Array  #: [start, axis] position that is evaluated
    direction: Array  #: [start, axis] step of optax at the current design, for a rate of 1
    current: Judged
    best: Judged
    optimizer: Any
    multiplier: Array
    step: Array  #: scalar


def searcher(
    starts: int, temperature: float, steps: int, rate: float, guided: float, optimizer: str, schedule: str
) -> Searcher:
    """Return the searcher of the relaxed gradient.

    Args:
        starts: designs side by side.
        temperature: of the first step of a round; at 0.1 ten per cent worse is often accepted.
        steps: of a round, at whose end the starts go back to their best.
        rate: length of the first step along an axis of the unit cube, for Adam about the share of the axis.
        guided: share of the steps that follow the gradient; the rest is noise alone.
        optimizer: name of the chain of optax, of ``dse.spec.search.OPTIMIZERS``.
        schedule: name of the schedule of the temperature within a round, of ``dse.spec.search.SCHEDULES``.
    """
    chain, falling = _chain(optimizer), _schedule(schedule, steps)

    def heat(state: Starts) -> Array:
        """Temperature as a share of the first."""
        with jax.numpy_dtype_promotion("standard"):
            return jnp.asarray(falling(state.step % steps), jnp.float32)

    def init(key: Array, space: Space) -> Starts:
        cube = spaces.encode(space, spaces.sample(space, key, (starts,)))
        worst = jnp.full(starts, jnp.inf)
        judged = Judged(spaces.decode(space, cube), worst, worst)
        multiplier = jnp.full(starts, VIOLATION_WEIGHT)
        return Starts(
            cube, cube, cube, jnp.zeros_like(cube), judged, judged, chain.init(cube), multiplier, jnp.int32(0)
        )

    def propose(key: Array, state: Starts, space: Space) -> tuple[Starts, Point]:
        begins = (state.step % steps) == 0
        cube, current, direction = jax.tree.map(
            lambda restarted, kept: jnp.where(begins, restarted, kept),
            (state.best_cube, state.best, jnp.zeros_like(state.direction)),
            (state.cube, state.current, state.direction),
        )
        scale = jnp.sqrt(heat(state))
        keys = jax.random.split(key, 3)
        is_guided = jax.random.uniform(keys[0], (starts, 1)) < guided
        moved = cube + jnp.where(is_guided, -rate * scale * direction, 0.0)
        moved = moved + _noise(keys[1], space, starts, scale, at_least_one=~is_guided)
        trial = jnp.where(state.step == 0, cube, _reflected(moved))
        return state._replace(cube=cube, current=current, direction=direction, trial=trial), spaces.decode(space, trial)

    def update(key: Array, state: Starts, space: Space, points: Point, fitness: Fitness) -> Starts:
        trial = Judged(points, *fitness.judgement)
        uniform = jax.random.uniform(jax.random.split(key, 3)[2], (starts,))
        is_accepted = uniform < jnp.exp(-deterioration(state.current, trial) / (temperature * heat(state)))
        is_better = better(trial[1:], state.best[1:])
        slopes = jax.vmap(lambda point, slopes: slopes_along(space, point, slopes))(points, fitness.slopes)
        with jax.numpy_dtype_promotion("standard"):  # optax counts steps in integers
            direction, optimizer_state = chain.update(slopes, state.optimizer, state.cube)
        direction, cube, optimizer_state = jax.tree.map(
            lambda new, old: jnp.where(is_accepted[:, None], new, old) if jnp.ndim(new) == 2 else new,
            (direction, state.trial, optimizer_state),
            (state.direction, state.cube, state.optimizer),
        )
        growth = jnp.where(is_accepted, _STIFFNESS * trial.violation, 0.0)
        return Starts(
            cube,
            jnp.where(is_better[:, None], state.trial, state.best_cube),
            state.trial,
            direction,
            select(is_accepted, trial, state.current),
            select(is_better, trial, state.best),
            optimizer_state,
            jnp.minimum(state.multiplier + growth, _MOST_MULTIPLIER),
            state.step + 1,
        )

    def penalty(state: Starts) -> tuple[Array, Array]:
        return state.multiplier, jnp.full(starts, _STIFFNESS)

    return Searcher(init, propose, update, starts, penalty)


def _chain(name: str) -> optax.GradientTransformation:
    """Return the chain of optax of a name, its steps of length about 1 or, by plain descent, as long as the slope."""
    if name == "adam":  # noise and restarts make a long memory stale
        return optax.scale_by_adam(b1=0.7, b2=0.9)
    chain: optax.GradientTransformation = optax.identity() if name == "sgd" else getattr(optax, f"scale_by_{name}")()
    return chain


def _schedule(name: str, steps: int) -> optax.Schedule:
    """Return the schedule of optax of a name, from 1 at the first of ``steps`` downwards."""
    if name == "exponential":
        return optax.exponential_decay(1.0, steps, COLDEST)
    return (
        optax.cosine_decay_schedule(1.0, steps, COLDEST)
        if name == "cosine"
        else optax.linear_schedule(1.0, COLDEST, steps)
    )


def _noise(key: Array, space: Space, starts: int, scale: Array, at_least_one: Array) -> Array:
    """Return Gaussian noise [start, axis] along some axes, drawn one by one, and one more where ``at_least_one``."""
    keys, shape = jax.random.split(key, 3), (starts, space.n_cube)
    cells = np.array([space.radices[axis] for axis in space.cube_coordinates] + [np.inf] * len(space.paths), np.float32)
    width = jnp.maximum(_WIDEST * scale, (_NARROWEST / cells)[None])
    is_noisy = jax.random.uniform(keys[0], shape) < _NOISY_AXES / max(space.n_cube, 1)
    one_axis = jax.nn.one_hot(jax.random.randint(keys[1], (starts,), 0, max(space.n_cube, 1)), space.n_cube) > 0.0
    return jnp.where(is_noisy | (one_axis & at_least_one), width * jax.random.normal(keys[2], shape), 0.0)


def _reflected(cube: Array) -> Array:
    """Return positions moved into the unit cube by reflection at its faces, once, then by clipping."""
    return jnp.clip(1.0 - jnp.abs(1.0 - jnp.abs(cube)), 0.0, 1.0)


# --- slopes -------------------------------------------------------------------------------------------------


def slopes_along(space: Space, point: Point, slopes: dict[str, Array]) -> Array:
    """Return the slope [axis] of a function along the axes of the unit cube at one point.

    Along an axis of cells it is the central difference of what the gradient predicts from the cell before to the cell
    behind (one-sided at the ends), over all leaves that the two set: a logarithm of each degree, all values of a
    catalogue entry.

    Args:
        space: the tables.
        point: one point, without leading axes.
        slopes: full path → slope of the function by the leaf.
    """
    first, n_levels = space.row_digit, space.n_levels
    ranks = spaces.coordinates(space, point)[first : first + n_levels]
    along = []
    for axis in space.cube_coordinates:
        radix, level = space.radices[axis], axis - first
        if 0 <= level < n_levels:
            digit, at = first, ranks[level]
            moves = np.eye(n_levels, dtype=np.int32)[level] * np.array([[-1], [1]], np.int32)
            moved_ranks = jnp.clip(ranks[None] + moves, 0, radix - 1)
            low, high = (spaces.row_at(space, point.digits[:first], moved_ranks[i]) for i in (0, 1))
        else:
            digit = axis if level < 0 else axis - n_levels + 1
            at = point.digits[digit]
            low, high = jnp.maximum(at - 1, 0), jnp.minimum(at + 1, radix - 1)
        n_cells = (jnp.minimum(at + 1, radix - 1) - jnp.maximum(at - 1, 0)).astype(jnp.float32)
        origin, start, end = (
            {path: column[i] for path, column in space.columns[digit].items()} for i in (point.digits[digit], low, high)
        )
        along.append(predicted_change(slopes, start, end, origin) * (float(radix) / n_cells))
    values_of_reals = spaces.real_values(space, point.reals)
    for axis, (path, log) in enumerate(zip(space.paths, space.logs, strict=True)):
        along.append(cut(slopes[path] * space.span[axis] * (values_of_reals[path] if log else 1.0)))
    return jnp.stack(along) if along else jnp.zeros(0)


def cut(slope: Array) -> Array:
    """Return a slope clipped to ± ``STEEPEST``, with 0 for NaN."""
    return jnp.clip(jnp.nan_to_num(slope), -STEEPEST, STEEPEST)


def predicted_change(
    slopes: dict[str, Array], start: dict[str, Array], end: dict[str, Array], origin: dict[str, Array] | None = None
) -> Array:
    """Return the first-order change [...] of a function between two sets of leaves.

    Along the logarithms of leaves that are positive (``df = df/dln x ln(y/x)``), else along the leaves.

    Args:
        slopes: full path → slope by the leaf; leaves without one change nothing.
        start: leaves before.
        end: leaves behind.
        origin: leaves where the slopes hold; by default those before.
    """
    origin, total = origin or start, jnp.float32(0.0)
    for path in sorted(start.keys() & slopes.keys()):
        slope, value, before, behind = slopes[path], origin[path], start[path], end[path]
        is_positive = (value > 0.0) & (before > 0.0) & (behind > 0.0)
        ratio = jnp.where(is_positive, behind, 1.0) / jnp.where(is_positive, before, 1.0)
        total = total + jnp.where(is_positive, cut(slope * value) * jnp.log(ratio), cut(slope) * (behind - before))
    return total


RELAXED = Method(
    "relaxed", "every axis a real number, moved by the gradient through the rounding to a valid design", searcher
)
