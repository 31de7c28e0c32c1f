"""Cross-entropy method (Rubinstein 1999): sample, keep the elite, move the distribution towards it.

A categorical for each coordinate and a normal for each continuous axis, all independent; a share of uniform
designs goes along. Where the elite has become one design, or nothing better has come for ``patience`` steps, all
begins again: independent choices that have settled seldom leave a mapping that needs two of them changed at once.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from dse.search import space as spaces
from dse.search.judging import better, order
from dse.search.methods.base import Method, Searcher, Worth
from dse.search.space import Point, Space

#: Share of the population that is drawn uniformly.
_UNIFORM = 0.1

#: A normal never becomes narrower than this share of its axis.
_NARROWEST = 0.01


class Distribution(NamedTuple):
    """The distribution, and the elite, which competes with the next samples."""

    chances: tuple[Array, ...]  #: by coordinate: [value]
    mean: Array  #: [continuous axis]
    width: Array
    elite: Array  #: [elite, coordinate]
    elite_reals: Array
    violation: Array  #: [elite]
    value: Array
    waited: Array  #: steps since the best of the elite has changed


def searcher(population: int, elite_share: float, learning_rate: float, patience: int) -> Searcher:
    """Samples a step, the share of them that is learnt from, how fast, and steps without a better one at most."""
    n_elite = max(2, round(elite_share * population))
    n_uniform = round(_UNIFORM * population)

    def init(key: Array, space: Space) -> Distribution:
        chances = tuple(jnp.full(radix, 1.0 / radix) for radix in space.radices)
        n, worst = len(space.paths), jnp.full(n_elite, jnp.inf)
        none = jnp.zeros((n_elite, len(space.radices)), jnp.int32), jnp.zeros((n_elite, n))
        return Distribution(chances, jnp.full(n, 0.5), jnp.full(n, 0.5), *none, worst, worst, jnp.int32(0))

    def propose(key: Array, state: Distribution, space: Space) -> tuple[Distribution, Point]:
        keys = jax.random.split(key, 3)
        drawn = _drawn(keys[0], space, state, population - n_uniform)
        uniform = spaces.sample(space, keys[1], (n_uniform,))
        return state, jax.tree.map(lambda *parts: jnp.concatenate(parts), drawn, uniform)

    def update(key: Array, state: Distribution, space: Space, points: Point, found: Worth) -> Distribution:
        at = jnp.concatenate([state.elite, spaces.coordinates(space, points)])
        reals = jnp.concatenate([state.elite_reals, points.reals])
        old = state.violation, state.value
        worth = tuple(jnp.concatenate(pair) for pair in zip(old, found.judgement, strict=True))
        best = order(*worth)[:n_elite]
        violation, value = worth[0][best], worth[1][best]
        won = better((violation[0], value[0]), (state.violation[0], state.value[0]))
        moved = _moved(state, at[best], reals[best], learning_rate)._replace(
            elite=at[best], elite_reals=reals[best], violation=violation, value=value,
            waited=jnp.where(won, 0, state.waited + 1),
        )  # fmt: skip
        same = jnp.all(at[best] == at[best[:1]]) & jnp.all(reals[best] == reals[best[:1]])
        settled = same | (moved.waited >= patience)
        fresh = init(key, space)
        return jax.tree.map(lambda new, old: jnp.where(settled, new, old), fresh, moved)

    return Searcher(init, propose, update, population)


def _drawn(key: Array, space: Space, state: Distribution, n: int) -> Point:
    """Samples of the distribution as designs."""
    keys = jax.random.split(key, len(state.chances) + 1)
    whole = [
        jax.random.categorical(k, jnp.log(chance), shape=(n,)).astype(jnp.int32)
        for k, chance in zip(keys, state.chances, strict=False)
    ]
    noise = jax.random.normal(keys[-1], (n, len(state.mean)))
    reals = jnp.clip(state.mean[None, :] + state.width[None, :] * noise, 0.0, 1.0)
    return spaces.from_coordinates(space, jnp.stack(whole, axis=-1), reals)


def _moved(state: Distribution, elite: Array, reals: Array, rate: float) -> Distribution:
    """The distribution moved towards the elite."""
    chances = tuple(
        (1.0 - rate) * chance + rate * jnp.mean(jax.nn.one_hot(elite[:, i], len(chance)), axis=0)
        for i, chance in enumerate(state.chances)
    )
    mean = (1.0 - rate) * state.mean + rate * jnp.mean(reals, axis=0)
    width = (1.0 - rate) * state.width + rate * jnp.std(reals, axis=0)
    return state._replace(chances=chances, mean=mean, width=jnp.maximum(width, _NARROWEST))


CROSS_ENTROPY = Method("cross_entropy", "cross-entropy over independent categoricals and normals", searcher)
