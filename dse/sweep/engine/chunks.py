"""The compiled programs of a sweep: a chunk of outer indices x the inner product, stage by stage.

What an inner axis does not touch is computed once (see :mod:`dse.sweep.engine.staging`). Tables, radices and the start
are traced: one program serves all chunks, and every sweep of the same axes.
"""

from __future__ import annotations

import functools

import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import NamedSharding

from dse.sweep.engine.decoding import decode, values_at
from dse.sweep.engine.devices import over_devices
from dse.sweep.engine.nesting import OUTER
from dse.sweep.engine.programs import FAST, persistent_jit
from dse.sweep.engine.staging import Group, Moving, Stage, goals, run, spread
from dse.sweep.engine.tables import Tables


@persistent_jit("count", "sharding")
def outer_chunk(
    grid: Tables, start: Array, n_valid: Array, *, count: int, sharding: NamedSharding
) -> tuple[dict[str, Array], Array]:
    """Leaf path → values of ``count`` outer indices from ``start``, and the words of their masks, spread over devices.

    A program apart from those that compute with the values, because XLA would look each value up at every use.
    Past the first ``n_valid`` nothing is a mapping.
    """
    digits = decode(start, grid.radices, count)
    words = grid.mask.at[digits[-1]].get(mode="promise_in_bounds")
    words = jnp.where((jnp.arange(count) < n_valid)[:, None], words, 0)
    return lax.with_sharding_constraint((values_at(grid.outer, digits), words), sharding)


@persistent_jit("of", "stage", options=FAST)
def stage_chunk(values: tuple[Array, ...], *, of: Moving, stage: Stage) -> tuple[Array, ...]:
    """The outputs of a stage, each with the axes of its level, from the values of its inputs."""
    found = zip(run(of, stage, values, stage.outputs), stage.outputs, strict=True)
    return tuple(_spread_out(value) if of.level(variable) & OUTER else value for value, variable in found)


def _spread_out(value: Array) -> Array:
    """An array whose last axis is the outer index, spread over devices along it."""
    return lax.with_sharding_constraint(value, over_devices(*[None] * (value.ndim - 1), "outer"))


@persistent_jit("of", "group", "lengths", options=FAST)
def score_chunk(
    values: tuple[Array, ...], words: Array, mask: tuple[Array, Array] | None, *,
    of: Moving, group: Group, lengths: tuple[int, int],
) -> tuple[Array, Array]:  # fmt: skip
    """Scores and reasons of a group.

    Args:
        values: of the inputs of its stage.
        words: [outer, word] the masks of :func:`outer_chunk`.
        mask: [first part, second part] word and bit of each position; None where no position is an option.
        of: the program.
        group: which of its scores and reasons.
        lengths: of the parts of the inner product that the group has.

    Returns:
        [objective, first part, second part, outer] scores, the smaller the better, infinite for what is infeasible or
        no mapping.
        [first part, second part, outer] bits of the reasons, ``Study.feasible_bit`` where there is none, 0 for what is
        no mapping.
    """
    wanted, feasible_bit = goals(of.program, of.structure), of.program.study.feasible_bit
    terms = [wanted.reasons[i] for i in group.reasons]
    atoms = [*terms, *(wanted.objectives[i] for i in group.objectives)]
    found = [
        spread(value, of.level(atom)) for value, atom in zip(run(of, group.stage, values, atoms), atoms, strict=True)
    ]
    shape = *lengths, len(words)
    reason = functools.reduce(jnp.add, found[: len(terms)], jnp.zeros((1, 1, 1), jnp.int32))
    reason = jnp.where(reason == 0, feasible_bit, reason)
    if mask is not None:
        word, bit = (place[:, :, None] for place in mask)
        every = [words[None, None, :, k] for k in range(words.shape[1])]
        reason = jnp.where((_at(every, word) >> bit) & 1 != 0, reason, 0)
    objectives = [
        jnp.where((reason == feasible_bit) & jnp.isfinite(value), value, jnp.inf) for value in found[len(terms) :]
    ]
    whole = [jnp.broadcast_to(value, shape) for value in (reason, *objectives)]
    return jnp.stack(whole[1:]) if objectives else jnp.zeros((0, *shape), jnp.float32), whole[0]


def _at(every: list[Array], position: Array) -> Array:
    """Of several arrays the one at each position."""
    return functools.reduce(lambda found, k: jnp.where(position == k, every[k], found), range(len(every)), every[0])
