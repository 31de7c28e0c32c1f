"""The compiled programs of a sweep: a chunk of outer indices x the inner product, from its number to what is kept.

What an inner axis does not touch is computed once (see :mod:`dse.sweep.engine.staging`). All stages are one program:
what they hand on, some hundred arrays, never leaves it. Tables, radices and the start are traced: one program serves
all chunks, and every sweep of the same axes. Of sweeps with few outer indices the stage of these, most equations but
little of the work, is a program of its own (``outer_chunk``): it is compiled quickly, while the rest is. ``Prepared``
has the stages of one nest ready to be run: tables on the device, programs at hand.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental.xla_metadata import set_xla_metadata
from jax.sharding import NamedSharding

from dse.sweep.engine.decoding import decode, values_at
from dse.sweep.engine.devices import over_devices
from dse.sweep.engine.nesting import OUTER, Nest
from dse.sweep.engine.programs import FAST, PersistentFunction, persistent_jit
from dse.sweep.engine.reductions import Owners, Scores, count_below, summarise
from dse.sweep.engine.staging import Group, Moving, Stage, Stages, goals, run, spread
from dse.sweep.engine.tables import Tables, mask_places, tables


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


#: Outer indices of a group, the unit of reductions in longer chunks.
_GROUPED, _GROUP = 256, 16

#: Outer indices that are computed at least: XLA writes other programs for one than for many, with other last bits.
_FEWEST = 4

#: Equations times outer indices of a sweep up to which a stage is compiled quickly. It then takes a third of a
#: nanosecond longer for each, a twentieth of a second, and compiles in a millisecond less for each equation, seconds.
_LITTLE = 150_000_000


class Prepared:
    """The stages of a program in a nest, with what all chunks share.

    Args:
        nest: what the outer index and the inner product are.
        of: the program, and how its inputs move in the nest.
        stages: those of all outputs, or of scores.
        wanted: variables of which the values are asked for.
    """

    def __init__(self, nest: Nest, of: Moving, stages: Stages, wanted: tuple[int, ...] = ()) -> None:
        self.nest, self.of, self.stages, self._wanted = nest, of, stages, wanted
        self._programs: dict[Hashable, Callable[..., Any]] = {}
        paths = sorted(nest.grid.columns)
        every = (*stages.tables, *(group.stage for group in stages.groups))
        given = {*wanted}.union(*(stage.inputs for stage in every))
        numbered = enumerate(paths, len(of.levels) - len(paths))
        self._tables: Tables = tables(nest, [path for number, path in numbered if number in given])
        self._masks, self._lengths = _masks(nest)
        places = {k: (g, row) for g, group in enumerate(stages.groups) for row, k in enumerate(group.objectives)}
        self.owners: Owners = tuple(places[k] for k in sorted(places))

    def _run(self, function: PersistentFunction, count: int, *arguments: Any, **static: Any) -> Any:
        """A function's value; its program is looked up once for each count: there are hundreds of arguments."""
        key = function, count
        if key not in self._programs:
            named = dict(of=self.of, stages=self.stages, count=count, sharding=over_devices("outer"), **static)
            self._programs[key] = function.compiled(self._tables, *arguments, **named)
        return self._programs[key](self._tables, *arguments)

    def outer(self, first: int, count: int, stop: int) -> tuple[np.ndarray, np.int32, int]:
        """Digits of the first of ``count`` outer indices, how many are before ``stop``, and how many are computed.

        A few more than ``count``, for devices to share evenly.
        """
        together = len(jax.local_devices()) * (_GROUP if count > _GROUPED else 1)
        padded = -(-max(count, _FEWEST) // together) * together
        return np.array(self.nest.start_digits(first), np.int32), np.int32(min(count, stop - first)), padded

    def values(self, first: int, count: int, stop: int) -> tuple[dict[int, Array], int]:
        """Dispatch the wanted variables of a chunk: their values by number, and the outer indices that they have."""
        start, _, padded = self.outer(first, count, stop)
        made = self._run(full_chunk, padded, start, wanted=self._wanted)
        return dict(zip(self._wanted, made, strict=True)), padded

    def scores(self, first: int, count: int, stop: int, pivots: np.ndarray, thresholds: np.ndarray | None) -> Scores:
        """See :meth:`~dse.sweep.engine.engine.SweepEngine.scores`."""
        start, n_valid, padded = self.outer(first, count, stop)
        static = dict(owners=self.owners, feasible_bit=self.of.program.study.feasible_bit)
        if self._in_two:
            scores, reasons = self._scores_in_two(padded, start, n_valid, pivots, static)
        else:
            scores, reasons = self._run(score_chunk, padded, start, n_valid, self._masks, lengths=self._lengths)
        made = Scores(scores, reasons, *summarise(scores, reasons, pivots, **static))
        if thresholds is None:
            return made
        return made._replace(below=count_below(scores, reasons, thresholds, **static))

    @functools.cached_property
    def _in_two(self) -> bool:
        """Whether the stage of the outer index is a program of its own, compiled quickly: where it has little to do."""
        first = self.stages.tables[0] if self.stages.tables else None
        if not first or first.level != OUTER or jax.default_backend() != "cpu" or len(jax.local_devices()) > 1:
            return False
        return first.n_equations * self.nest.n_outer < _LITTLE

    def _scores_in_two(
        self, count: int, start: np.ndarray, n_valid: np.int32, pivots: np.ndarray, reduced: dict[str, Any]
    ) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """Scores and reasons; programs that are not kept are compiled side by side, that of the reductions too."""
        named = dict(of=self.of, stages=self.stages, count=count, sharding=over_devices("outer"))
        if (outer_chunk, count) not in self._programs:
            outer = _zeros(outer_chunk.begin(self._tables, start, n_valid, **named))
            inner = outer and inner_chunk.begin(self._tables, *outer, self._masks, lengths=self._lengths, **named)
            if inner:
                summarise.begin(*_zeros(inner), pivots, **reduced)
        outer = self._run(outer_chunk, count, start, n_valid)
        return self._run(inner_chunk, count, *outer, self._masks, lengths=self._lengths)


def _zeros(shapes: Any) -> Any:
    """Arrays of these shapes on the device, to compile for; None where there are none."""
    return shapes and jax.device_put(jax.tree.map(lambda one: np.zeros(one.shape, one.dtype), shapes), over_devices())


def _masks(nest: Nest) -> tuple[tuple[Any, ...], tuple[tuple[int, int], ...]]:
    """By group (word, bit) of each position, None where another group has the options; lengths of its parts."""
    first, second = nest.parts_shape
    lengths = ((first, 1), (1, second)) if nest.inner.apart else ((first, second),)
    own = [bool(set(axes) & set(nest.inner_options)) for axes in nest.groups]
    with_mask = own.index(True) if any(own) else 0
    masks = tuple(
        tuple(place.reshape(shape) for place in mask_places(nest, axes)) if number == with_mask else None
        for number, (axes, shape) in enumerate(zip(nest.groups, lengths, strict=True))
    )
    return masks, lengths
