"""The compiled programs of a sweep: a chunk of outer indices x the inner product, from its number to what is kept.

What an inner axis does not touch is computed once (see :mod:`dse.sweep.engine.staging`). All stages are one program:
what they hand on, some hundred arrays, never leaves it. Tables, radices and the start are traced: one program serves
all chunks, and every sweep of the same axes. Of sweeps with few outer indices the stage of these, most equations but
little of the work, is a program of its own (``outer_chunk``): it is compiled quickly, while the rest is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.experimental.xla_metadata import set_xla_metadata
from jax.sharding import NamedSharding

from dse.sweep.engine.decoding import decode, values_at
from dse.sweep.engine.devices import over_devices
from dse.sweep.engine.nesting import OUTER
from dse.sweep.engine.programs import FAST, persistent_jit
from dse.sweep.engine.staging import Group, Moving, Stage, Stages, goals, run, spread
from dse.sweep.engine.tables import Tables


@persistent_jit("of", "stages", "wanted", "count", "sharding", options=FAST)
def full_chunk(
    grid: Tables,
    start: Array,
    *,
    of: Moving,
    stages: Stages,
    wanted: tuple[int, ...],
    count: int,
    sharding: NamedSharding,
) -> tuple[Array, ...]:
    """The wanted variables of ``count`` outer indices from ``start``, each with the axes of its level."""
    values, _ = _computed(grid, start, of, stages.tables, count, sharding)
    return tuple(values[i] for i in wanted)


@persistent_jit("of", "stages", "lengths", "count", "sharding", options=FAST)
def score_chunk(
    grid: Tables,
    start: Array,
    n_valid: Array,
    masks: Sequence[tuple[Array, Array] | None],
    *,
    of: Moving,
    stages: Stages,
    lengths: tuple[tuple[int, int], ...],
    count: int,
    sharding: NamedSharding,
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Scores and reasons of ``count`` outer indices from ``start``, by group.

    Args:
        grid: the nest.
        start: digits of the first outer index.
        n_valid: past the first so many nothing is a mapping.
        masks: by group [first part, second part] word and bit of each position; None where no position is an option.
        of: the program.
        stages: its stages, and the groups of its scores.
        lengths: by group those of the parts of the inner product that it has.
        count: outer indices.
        sharding: how these are spread over devices.

    Returns:
        [objective, first part, second part, outer] scores, the smaller the better, infinite for what is infeasible or
        no mapping.
        [first part, second part, outer] bits of the reasons, ``Study.feasible_bit`` where there is none, 0 for what is
        no mapping.
    """
    values, place = _computed(grid, start, of, stages.tables, count, sharding)
    return _scores(values, _words(grid, place, n_valid, sharding), masks, of, stages, lengths)


@persistent_jit("of", "stages", "count", "sharding", quickly=True)
def outer_chunk(
    grid: Tables, start: Array, n_valid: Array, *, of: Moving, stages: Stages, count: int, sharding: NamedSharding
) -> tuple[dict[tuple[int, ...], Array], Array]:
    """Of :func:`score_chunk` the first stage, that of the outer index: variables → their values; words of the mask.

    Those of a kind are one array: hundreds would take longer to hand on than to compute.
    """
    values, place = _computed(grid, start, of, stages.tables[:1], count, sharding)
    kinds: dict[Any, list[int]] = {}
    for i in _handed_on(of, stages):
        kinds.setdefault((values[i].shape, values[i].dtype), []).append(i)
    made = {tuple(kind): jnp.stack([values[i] for i in kind]) for kind in kinds.values()}
    return made, _words(grid, place, n_valid, sharding)


@persistent_jit("of", "stages", "lengths", "count", "sharding", options=FAST)
def inner_chunk(
    grid: Tables,
    outer: dict[tuple[int, ...], Array],
    words: Array,
    masks: Sequence[tuple[Array, Array] | None],
    *,
    of: Moving,
    stages: Stages,
    lengths: tuple[tuple[int, int], ...],
    count: int,
    sharding: NamedSharding,
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """:func:`score_chunk` from what :func:`outer_chunk` gives."""
    values = _of_base_and(grid.first | grid.second, grid, of)
    for kind, made in outer.items():
        values |= dict(zip(kind, made, strict=True))
    return _scores(_staged(values, of, stages.tables[1:]), words, masks, of, stages, lengths)


def _handed_on(of: Moving, stages: Stages) -> tuple[int, ...]:
    """The variables that stages after the first are given: of the outer index, and what the first has computed."""
    later = (*stages.tables[1:], *(group.stage for group in stages.groups))
    needed = {i for stage in later for i in stage.inputs}
    return tuple(sorted(i for i in needed if of.level(i) == OUTER or i in stages.tables[0].outputs))


def _computed(
    grid: Tables, start: Array, of: Moving, stages: Sequence[Stage], count: int, sharding: NamedSharding
) -> tuple[dict[int, Array], Array]:
    """By variable the values of a chunk after its stages; and the place of each outer index."""
    outer, place = _apart(functools.partial(_looked_up, count=count, sharding=sharding), grid, start)
    return _staged(_of_base_and(grid.first | grid.second | outer, grid, of), of, stages), place


def _of_base_and(columns: dict[str, Array], grid: Tables, of: Moving) -> dict[int, Array]:
    """By variable the values of the inputs: leaves of the base, and of axes by path."""
    _, numbers = jax.tree.unflatten(of.structure, range(of.structure.num_leaves))
    return dict(enumerate(jax.tree.leaves(grid.base))) | {numbers[path]: value for path, value in columns.items()}


def _staged(values: dict[int, Array], of: Moving, stages: Sequence[Stage]) -> dict[int, Array]:
    """By variable the values before and after stages."""
    for stage in stages:
        made = _apart(functools.partial(_stage, of=of, stage=stage), tuple(values[i] for i in stage.inputs))
        values = values | dict(zip(stage.outputs, made, strict=True))
    return values


def _words(grid: Tables, place: Array, n_valid: Array, sharding: NamedSharding) -> Array:
    """[outer, word] of the mask of mappings, none past the first so many."""
    words = grid.mask.at[place].get(mode="promise_in_bounds")
    return lax.with_sharding_constraint(jnp.where((jnp.arange(len(place)) < n_valid)[:, None], words, 0), sharding)


def _scores(
    values: dict[int, Array],
    words: Array,
    masks: Sequence[tuple[Array, Array] | None],
    of: Moving,
    stages: Stages,
    lengths: tuple[tuple[int, int], ...],
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Scores and reasons by group, from the values that the groups' stages are given."""
    found = []
    for group, mask, shape in zip(stages.groups, masks, lengths, strict=True):
        scored = functools.partial(_scored, of=of, group=group, lengths=shape)
        found.append(_apart(scored, tuple(values[i] for i in group.stage.inputs), words, mask))
    return tuple(scores for scores, _ in found), tuple(reasons for _, reasons in found)


def _apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """The value of a function that XLA merges with nothing else.

    It would look values up at every use, and compute what is of a lower level again at every position of a higher one.
    Compilers for processors drop barriers early, others cannot call functions.
    """
    with set_xla_metadata(**{"inlineable": "false"} if jax.default_backend() == "cpu" else {}):
        return lax.optimization_barrier(jax.jit(function)(*arguments))


def _looked_up(grid: Tables, start: Array, count: int, sharding: NamedSharding) -> tuple[dict[str, Array], Array]:
    """Leaf path → values of ``count`` outer indices from ``start``, spread over devices; and their places."""
    digits = decode(start, grid.radices, count)
    return lax.with_sharding_constraint((values_at(grid.outer, digits), digits[-1]), sharding)


def _stage(values: tuple[Array, ...], of: Moving, stage: Stage) -> tuple[Array, ...]:
    """The outputs of a stage, each with the axes of its level, from the values of its inputs."""
    found = zip(run(of, stage, values, stage.outputs), stage.outputs, strict=True)
    return tuple(_spread_out(value) if of.level(variable) & OUTER else value for value, variable in found)


def _spread_out(value: Array) -> Array:
    """An array whose last axis is the outer index, spread over devices along it."""
    return lax.with_sharding_constraint(value, over_devices(*[None] * (value.ndim - 1), "outer"))


def _scored(
    values: tuple[Array, ...],
    words: Array,
    mask: tuple[Array, Array] | None,
    of: Moving,
    group: Group,
    lengths: tuple[int, int],
) -> tuple[Array, Array]:
    """Scores and reasons of a group, from the values of the inputs of its stage: see :func:`score_chunk`."""
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
        word, bit = mask
        held = words.T.at[word].get(mode="promise_in_bounds")  # whole rows along the outer index
        reason = jnp.where((held >> bit[:, :, None]) & 1 != 0, reason, 0)
    objectives = [
        jnp.where((reason == feasible_bit) & jnp.isfinite(value), value, jnp.inf) for value in found[len(terms) :]
    ]
    whole = [jnp.broadcast_to(value, shape) for value in (reason, *objectives)]
    return jnp.stack(whole[1:]) if objectives else jnp.zeros((0, *shape), jnp.float32), whole[0]
