"""Relaxed gradient: straight-through Gumbel-softmax over discrete choices, log-space continuous axes, Adam.

Every start holds a logit for each value of each coordinate and a position for each continuous axis. A mapping's logit
is the sum over its degrees, so that its row is drawn from one categorical over the valid factorisations (no
penalty for a product of degrees that is wrong) and what is learnt of a degree is learnt of all mappings that have it.

Forward, a hard sample of the Gumbel-softmax is evaluated (Jang et al. 2017; Maddison et al. 2017), counted and scored
like any other design. Backward, the model's gradient by the leaves goes through the soft mixture of leaf values, that
of their logarithms where all are positive. Choices that the model compares rather than calculates with (recompute,
ZeRO stage) have no slope: of these the score function learns (Williams 1992) from the same sample, with the running
mean of the start as its baseline, and from the best the start has met. A start that samples one design again and again
begins anew, whatever is left of its round: in spaces of some ten thousand designs it would learn nothing from then on.
What construction cannot remove (memory, power, constraints) enters as an augmented Lagrangian. A sample weighs every
mapping of the space, which takes many times the model's own time: the count of evaluations does not say so.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from dse.search import space as spaces
from dse.search.judging import logarithm
from dse.search.methods.base import Method, Searcher, Worth
from dse.search.slopes import cut
from dse.search.space import Point, Space

#: Temperature of the softmax at the end of a round, as a share of that at its beginning.
_COLDEST = 0.1

#: Second-order penalty of the augmented Lagrangian, and its multiplier at most.
_STIFFNESS, _LARGEST = 2.0, 20.0

#: A start has settled when the running share of its samples that are the one before is above this, as after seven in a
#: row: it evaluates what it knows. Positions on continuous axes that differ by less than the second are the same.
_SETTLED, _SEEN = 0.5, 1e-3

#: Positions on continuous axes stay so far inside [0, 1]: the sigmoid has a slope there.
_INSIDE = 4.6


class Parameters(NamedTuple):
    """What is learnt: of each start."""

    logits: tuple[Array, ...]  #: by coordinate: [start, value]
    reals: Array  #: [start, continuous axis] logit of the position


class Noise(NamedTuple):
    """Gumbel noise of one start: of every row of degrees, and of every value of the other digits."""

    rows: Array
    others: tuple[Array, ...]


class Learnt(NamedTuple):
    """Parameters, Adam's moments, multipliers and the time."""

    parameters: Parameters
    moments: optax.OptState
    noise: Noise  #: [start] of the sample that is being evaluated
    multiplier: Array  #: [start]
    mean: Array  #: [start] running mean of the loss
    spread: Array  #: [start] and of its distance from there
    best: Array  #: [start] least loss of the round
    best_digits: Array  #: [start, digit] of the design that has it
    last: Point  #: [start] the sample before
    repeated: Array  #: [start] running share of samples that are the one before
    age: Array  #: [start] steps of the round; 0 where one begins


def searcher(
    starts: int, temperature: float, rate: float, steps: int, explore: float, relaxed: float, score: float,
    imitate: float,
) -> Searcher:  # fmt: skip
    """Starts side by side; first temperature and step of Adam; steps of a round, after which a start begins again.

    So it does before that when all it still samples is one design.

    ``explore`` is the width of the normal that first logits are drawn from. Weights of discrete choices:
    ``relaxed`` of the straight-through gradient, ``score`` of the score function, ``imitate`` of the best design met.
    """
    adam = optax.scale_by_adam(b1=0.9, b2=0.95)

    def begun(key: Array, space: Space) -> tuple[Parameters, optax.OptState]:
        keys = jax.random.split(key, len(space.radices) + 1)
        logits = tuple(
            explore * jax.random.normal(k, (starts, radix)) for k, radix in zip(keys, space.radices, strict=False)
        )
        reals = 2.0 * jax.random.normal(keys[-1], (starts, len(space.paths)))
        parameters = Parameters(logits, jnp.clip(reals, -_INSIDE, _INSIDE))
        return parameters, jax.vmap(adam.init)(parameters)

    def init(key: Array, space: Space) -> Learnt:
        none = jnp.zeros(starts)
        worst, digits = jnp.full(starts, jnp.inf), jnp.zeros((starts, len(space.sizes)), jnp.int32)
        last = Point(digits - 1, jnp.zeros((starts, len(space.paths))))
        noise = noise_of(key, space, starts)
        age = jnp.zeros(starts, jnp.int32)
        return Learnt(*begun(key, space), noise, none, none, none, worst, digits, last, none, age)

    def propose(key: Array, state: Learnt, space: Space) -> tuple[Learnt, Point]:
        keys, fresh = jax.random.split(key), state.age == 0
        parameters, moments = jax.tree.map(
            lambda new, old: jnp.where(_each(fresh, new), new, old), begun(keys[0], space),
            (state.parameters, state.moments),
        )  # fmt: skip
        multiplier = jnp.where(fresh, 0.0, state.multiplier)
        noise = noise_of(keys[1], space, starts)
        points = jax.vmap(lambda p, n: hard_point(space, p, n))(parameters, noise)
        return state._replace(parameters=parameters, moments=moments, noise=noise, multiplier=multiplier), points

    def update(key: Array, state: Learnt, space: Space, points: Point, found: Worth) -> Learnt:
        (violation, value), fresh = found.judgement, state.age == 0
        share = state.age.astype(jnp.float32) / float(steps)
        heat = temperature * jnp.exp(jnp.log(_COLDEST) * share)
        loss = logarithm(value) + _LARGEST * jnp.minimum(violation, 1.0)
        mean, spread, advantage = _advantage(state, loss, fresh)
        won = fresh | (loss < state.best)
        best, digits = jnp.where(won, loss, state.best), jnp.where(won[:, None], points.digits, state.best_digits)
        pulled = jax.vmap(lambda p, n, h, v, g: _pulled(space, p, n, h, v, g))
        slope = pulled(state.parameters, state.noise, heat, spaces.values(space, points), found.slopes)
        slope = slope._replace(logits=jax.tree.map(lambda part: relaxed * part, slope.logits))
        towards = jax.vmap(lambda p, d, w, e, v: slope_towards(space, p, (d, e), (w, v)))
        drawn = towards(state.parameters, points.digits, score * advantage, digits, jnp.full(starts, imitate))
        slope = jax.tree.map(jnp.add, slope, drawn)
        with jax.numpy_dtype_promotion("standard"):  # optax counts steps in integers
            change, moments = jax.vmap(adam.update)(slope, state.moments)
        pace = rate * (1.0 - 0.9 * share)
        parameters = jax.tree.map(lambda p, u: p - _each(pace, p) * u, state.parameters, change)
        parameters = parameters._replace(reals=jnp.clip(parameters.reals, -_INSIDE, _INSIDE))
        multiplier = jnp.minimum(state.multiplier + _STIFFNESS * jnp.minimum(violation, 1.0), _LARGEST)
        repeated = _repeated(state, points, fresh)
        over = (repeated > _SETTLED) | (state.age + 1 >= steps)
        return Learnt(
            parameters, moments, state.noise, multiplier, mean, spread, best, digits, points, repeated,
            jnp.where(over, 0, state.age + 1),
        )  # fmt: skip

    def penalty(state: Learnt) -> tuple[Array, Array]:
        return state.multiplier, jnp.full(starts, _STIFFNESS)

    return Searcher(init, propose, update, starts, penalty)


def _each(values: Array, like: Array) -> Array:
    """One value a start, for an array [start, ...]."""
    return values.reshape(-1, *[1] * (like.ndim - 1))


def _advantage(state: Learnt, loss: Array, fresh: Array) -> tuple[Array, Array, Array]:
    """Running mean and spread of the loss, and by how many spreads this one is below the mean, within 3."""
    loss = jnp.minimum(loss, 1e6)
    before = jnp.where(fresh, loss, state.mean)
    spread = jnp.where(fresh, 0.1, 0.9 * state.spread + 0.1 * jnp.abs(loss - before))
    advantage = jnp.clip((before - loss) / jnp.maximum(spread, 1e-3), -3.0, 3.0)
    return 0.9 * before + 0.1 * loss, spread, advantage


def _repeated(state: Learnt, points: Point, fresh: Array) -> Array:
    """Running share of the samples of a round that are the one before them, to what is seen of continuous axes."""
    moved = jnp.any(jnp.abs(points.reals - state.last.reals) > _SEEN, axis=1)
    same = jnp.all(points.digits == state.last.digits, axis=1) & ~moved
    return jnp.where(fresh, 0.0, 0.9 * state.repeated + jnp.where(same, 0.1, 0.0))


def noise_of(key: Array, space: Space, starts: int) -> Noise:
    """Standard Gumbel noise for every start: of each row of degrees, and of each other digit."""
    rows, others = _sizes(space)
    keys = jax.random.split(key, len(others) + 1)
    return Noise(
        jax.random.gumbel(keys[0], (starts, rows)),
        tuple(jax.random.gumbel(k, (starts, size)) for k, size in zip(keys[1:], others, strict=True)),
    )


def noisy_logits(space: Space, parameters: Parameters, noise: Noise | None) -> list[Array]:
    """Logits [position] of each digit, with noise if there is any: those of a row are the sum over its degrees."""
    first, n = space.row_digit, space.n_levels
    rows = jnp.zeros(space.sizes[first]) if noise is None else noise.rows
    for level, logits in enumerate(parameters.logits[first : first + n]):
        rows = rows + _one_hot(space.ranks[: len(rows), level], len(logits)) @ logits
    others = [*parameters.logits[:first], *parameters.logits[first + n :]]
    if noise is not None:
        others = [logits + drawn for logits, drawn in zip(others, noise.others, strict=True)]
    return [*others[:first], rows, *others[first:]]


def _one_hot(ranks: Array, size: int) -> Array:
    return (ranks[:, None] == jnp.arange(size)[None, :]).astype(jnp.float32)


def hard_point(space: Space, parameters: Parameters, noise: Noise) -> Point:
    """The valid design at the greatest noisy logits."""
    return spaces.likeliest(space, noisy_logits(space, parameters, noise), jax.nn.sigmoid(parameters.reals))


def _pulled(
    space: Space, parameters: Parameters, noise: Noise, heat: Array, values: dict[str, Array], by_leaf: dict[str, Array]
) -> Parameters:
    """Gradient by the parameters from that by the leaves, through the soft mixture."""

    def mixed(parameters: Parameters) -> Array:
        weights = [jax.nn.softmax(logits / heat) for logits in noisy_logits(space, parameters, noise)]
        total = jnp.float32(0.0)
        for weight, columns in zip(weights, space.columns, strict=True):
            for path, column in columns.items():
                positive = jnp.min(column) > 0.0
                logarithms = weight @ jnp.log(jnp.where(positive, column, 1.0))
                steep, flat = cut(by_leaf[path] * values[path]), cut(by_leaf[path])
                total = total + jnp.where(positive, steep * logarithms, flat * (weight @ column))
        reals = jax.nn.sigmoid(parameters.reals)
        for path, value in spaces.real_values(space, reals).items():
            size = jnp.maximum(jnp.abs(values[path]), 1e-30)
            total = total + cut(by_leaf[path] * size) * value / size
        return total

    return jax.grad(mixed)(parameters)


def slope_towards(
    space: Space, parameters: Parameters, digits: tuple[Array, ...], weights: tuple[Array, ...]
) -> Parameters:
    """Gradient that makes designs likelier: the sum of ``-weight`` times the logarithm of the chance of each.

    By a logit that is ``weight (chance - 1)`` where the design has it, ``weight chance`` elsewhere.
    """

    def surprise(parameters: Parameters) -> Array:
        logits = noisy_logits(space, parameters, None)
        total = jnp.float32(0.0)
        for i, each in enumerate(logits):
            chance = jax.lax.stop_gradient(jax.nn.softmax(each))
            for at, weight in zip(digits, weights, strict=True):
                has = (jnp.arange(len(each)) == at[i]).astype(jnp.float32)
                total = total + jnp.sum(weight * (chance - has) * each)
        return total

    return jax.grad(surprise)(parameters)


def _sizes(space: Space) -> tuple[int, tuple[int, ...]]:
    """Values of the row of degrees, and of the other digits."""
    others = tuple(size for digit, size in enumerate(space.sizes) if digit != space.row_digit)
    return space.sizes[space.row_digit], others


GUMBEL = Method("gumbel", "straight-through Gumbel-softmax with Adam; every sample weighs all mappings", searcher)
