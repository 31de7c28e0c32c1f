"""The compiled programs of a sweep: scores or outputs of a chunk of outer indices x all inner indices.

What an inner axis does not touch is computed once (see :mod:`dse.sweep.engine.staging`). All stages are one program:
what they hand on, some hundred arrays, never leaves it. Tables, radices and the start are traced: one program serves
all chunks, and every sweep of the same axes. Of sweeps with few outer indices the stage of these, most equations but
little of the work, is a program of its own (``outer_chunk``): it is compiled quickly, while the rest is.
``ChunkPrograms`` has the stages of one nest ready to be run: tables on the device, programs at hand.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental.xla_metadata import set_xla_metadata

from dse.sweep.engine.decoding import decode, values_at
from dse.sweep.engine.devices import device_sharding
from dse.sweep.engine.nesting import OUTER, Nest
from dse.sweep.engine.programs import FAST, PersistentFunction, persistent_jit
from dse.sweep.engine.reductions import count_below, summarise
from dse.sweep.engine.scores import Owners, Scores
from dse.sweep.engine.staging import (
    ProgramStage,
    ProgramStages,
    ScoreGroup,
    StagedProgram,
    expand_axes,
    score_outputs,
)
from dse.sweep.engine.tables import Tables, device_tables, mask_bits


@dataclasses.dataclass(frozen=True)
class ChunkProgram:
    """What a program of a chunk depends on besides its arrays, as a static argument."""

    staged_program: StagedProgram
    stages: ProgramStages  #: its stages, and the groups of its scores
    factor_sizes: tuple[tuple[int, int], ...]  #: by group (size of the first factor, of the second), 1 for none
    variables: tuple[int, ...]  #: that are returned of all outputs
    count: int  #: outer indices that are computed

    @property
    def is_cacheable(self) -> bool:
        """See :class:`~dse.sweep.engine.point.Program`."""
        return self.staged_program.is_cacheable

    def __str__(self) -> str:
        return str((str(self.staged_program), self.stages, self.factor_sizes, self.variables, self.count))


#: By group [first factor, second factor] (word, bit) of the mask for each inner index; None for a group without a mask.
Masks = Sequence[tuple[Array, Array] | None]

#: Scores, and reasons, by group.
GroupScores = tuple[tuple[Array, ...], tuple[Array, ...]]


@persistent_jit("chunk", options=FAST)
def full_chunk(grid: Tables, start: Array, *, chunk: ChunkProgram) -> tuple[Array, ...]:
    """Return the values of the variables of a chunk from the outer index ``start``, each along its array axes."""
    values, _ = _chunk_values(grid, start, chunk, chunk.stages.tables)
    return tuple(values[i] for i in chunk.variables)


@persistent_jit("chunk", options=FAST)
def score_chunk(grid: Tables, start: Array, n_valid: Array, masks: Masks, *, chunk: ChunkProgram) -> GroupScores:
    """Return scores and reasons of a chunk from the outer index ``start``, by group.

    Args:
        grid: tables of the nest.
        start: digits of the first outer index.
        n_valid: number of outer indices, from the first, that are in the sweep; later ones count as no mapping.
        masks: of the groups.
        chunk: what is computed.

    Returns:
        By group [objective, first factor, second factor, outer] scores, the smaller the better, infinite for what is
        infeasible or no mapping. By group [first factor, second factor, outer] bits of the reasons,
        ``Study.feasible_bit`` where there is none, 0 for what is no mapping.
    """
    values, mask_row = _chunk_values(grid, start, chunk, chunk.stages.tables)
    return _score_groups(values, _mask_words(grid, mask_row, n_valid), masks, chunk)


@persistent_jit("chunk", quickly=True)
def outer_chunk(
    grid: Tables, start: Array, n_valid: Array, *, chunk: ChunkProgram
) -> tuple[dict[tuple[int, ...], Array], Array]:
    """Return what the stage of the outer index, the first of :func:`score_chunk`, hands on to the others.

    Returns:
        Variables → their values, stacked where shape and type are the same: hundreds of arrays would take longer to
        hand on than to compute. [outer, word] of the mask.
    """
    values, mask_row = _chunk_values(grid, start, chunk, chunk.stages.tables[:1])
    kinds: dict[Any, list[int]] = {}
    for i in _later_stage_inputs(chunk.staged_program, chunk.stages):
        kinds.setdefault((values[i].shape, values[i].dtype), []).append(i)
    stacks = {tuple(variables): jnp.stack([values[i] for i in variables]) for variables in kinds.values()}
    return stacks, _mask_words(grid, mask_row, n_valid)


@persistent_jit("chunk", options=FAST)
def inner_chunk(
    grid: Tables, outer_values: dict[tuple[int, ...], Array], mask_words: Array, masks: Masks, *, chunk: ChunkProgram
) -> GroupScores:
    """Return the scores and reasons of :func:`score_chunk` from the values and mask words of :func:`outer_chunk`."""
    values = _input_values(grid.first | grid.second, grid, chunk.staged_program)
    for variables, stacked in outer_values.items():
        values |= dict(zip(variables, stacked, strict=True))
    values = _run_stages(values, chunk.staged_program, chunk.stages.tables[1:])
    return _score_groups(values, mask_words, masks, chunk)


def _later_stage_inputs(staged_program: StagedProgram, stages: ProgramStages) -> tuple[int, ...]:
    """Return inputs of later stages, ascending: variables of the outer index, and outputs of the first stage."""
    later_stages = (*stages.tables[1:], *(group.stage for group in stages.groups))
    variables = {i for stage in later_stages for i in stage.inputs}
    return tuple(sorted(i for i in variables if staged_program.axes_of(i) == OUTER or i in stages.tables[0].outputs))


def _chunk_values(
    grid: Tables, start: Array, chunk: ChunkProgram, stages: Sequence[ProgramStage]
) -> tuple[dict[int, Array], Array]:
    """Return variable → values of a chunk after some of its stages, and [outer] the mask rows."""
    outer_values, mask_row = _call_unfused(functools.partial(_outer_values, count=chunk.count), grid, start)
    inputs = _input_values(grid.first | grid.second | outer_values, grid, chunk.staged_program)
    return _run_stages(inputs, chunk.staged_program, stages), mask_row


def _input_values(values_by_path: dict[str, Array], grid: Tables, staged_program: StagedProgram) -> dict[int, Array]:
    """Return variable → value of the program's inputs: leaves of the base, then leaves along axes by path."""
    _, variable_by_path = jax.tree.unflatten(staged_program.structure, range(staged_program.structure.num_leaves))
    return dict(enumerate(jax.tree.leaves(grid.base))) | {
        variable_by_path[path]: value for path, value in values_by_path.items()
    }


def _run_stages(
    values: dict[int, Array], staged_program: StagedProgram, stages: Sequence[ProgramStage]
) -> dict[int, Array]:
    """Return variable → values: the inputs ``values``, and what the stages compute."""
    for stage in stages:
        function = functools.partial(_run_stage, staged_program=staged_program, stage=stage)
        outputs = _call_unfused(function, tuple(values[i] for i in stage.inputs))
        values = values | dict(zip(stage.outputs, outputs, strict=True))
    return values


def _mask_words(grid: Tables, mask_row: Array, n_valid: Array) -> Array:
    """Return [outer, word] of the mask of mappings, 32 bits a word, 0 from outer index ``n_valid`` on."""
    mask_words = grid.mask.at[mask_row].get(mode="promise_in_bounds")
    valid_words = jnp.where((jnp.arange(len(mask_row)) < n_valid)[:, None], mask_words, 0)
    return lax.with_sharding_constraint(valid_words, device_sharding("outer"))


def _score_groups(values: dict[int, Array], mask_words: Array, masks: Masks, chunk: ChunkProgram) -> GroupScores:
    """Return scores and reasons by group, as :func:`score_chunk` does, from variable → values."""
    results = []
    for group, mask, sizes in zip(chunk.stages.groups, masks, chunk.factor_sizes, strict=True):
        function = functools.partial(_score_group, chunk.staged_program, group, sizes)
        results.append(_call_unfused(function, tuple(values[i] for i in group.stage.inputs), mask_words, mask))
    scores, reasons = zip(*results, strict=True)
    return scores, reasons


def _call_unfused(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the value of a function at these arguments; XLA merges the call with nothing else.

    Merged, values would be looked up at every use, and what does not depend on an array axis be computed again along
    it. Compilers for processors drop barriers early, others cannot call functions.
    """
    with set_xla_metadata(**{"inlineable": "false"} if jax.default_backend() == "cpu" else {}):
        return lax.optimization_barrier(jax.jit(function)(*arguments))


def _outer_values(grid: Tables, start: Array, count: int) -> tuple[dict[str, Array], Array]:
    """Return leaf path → values of ``count`` outer indices from ``start``, spread over devices; and their mask rows."""
    digits = decode(start, grid.radices, count)
    return lax.with_sharding_constraint((values_at(grid.outer, digits), digits[-1]), device_sharding("outer"))


def _run_stage(values: tuple[Array, ...], staged_program: StagedProgram, stage: ProgramStage) -> tuple[Array, ...]:
    """Return the outputs of a stage, each along its array axes, from the values of its inputs."""
    outputs = staged_program.run(stage, values, stage.outputs)
    for i, variable in enumerate(stage.outputs):
        if staged_program.axes_of(variable) & OUTER:  # the last axis
            sharding = device_sharding(*[None] * (outputs[i].ndim - 1), "outer")
            outputs[i] = lax.with_sharding_constraint(outputs[i], sharding)
    return tuple(outputs)


def _score_group(
    staged_program: StagedProgram,
    group: ScoreGroup,
    factor_sizes: tuple[int, int],
    values: tuple[Array, ...],
    mask_words: Array,
    mask: tuple[Array, Array] | None,
) -> tuple[Array, Array]:
    """Return scores and reasons of a group as :func:`score_chunk` does, from the values of the inputs of its stage."""
    outputs = score_outputs(staged_program.program, staged_program.structure)
    feasible_bit = staged_program.program.study.feasible_bit
    terms = [outputs.reasons[i] for i in group.reasons]
    atoms = [*terms, *(outputs.objectives[i] for i in group.objectives)]
    outcomes = zip(staged_program.run(group.stage, values, atoms), atoms, strict=True)
    arrays = [expand_axes(value, staged_program.axes_of(atom)) for value, atom in outcomes]
    shape = *factor_sizes, len(mask_words)
    reason = functools.reduce(jnp.bitwise_or, arrays[: len(terms)], jnp.zeros((1, 1, 1), jnp.int32))
    reason = jnp.where(reason == 0, feasible_bit, reason)
    if mask is not None:
        word, bit = mask
        position_words = mask_words.T.at[word].get(mode="promise_in_bounds")  # whole rows along the outer index
        reason = jnp.where((position_words >> bit[:, :, None]) & 1 != 0, reason, 0)
    feasible = reason == feasible_bit
    objectives = [jnp.where(feasible & jnp.isfinite(value), value, jnp.inf) for value in arrays[len(terms) :]]
    reason, *scores = (jnp.broadcast_to(value, shape) for value in (reason, *objectives))
    return jnp.stack(scores) if scores else jnp.zeros((0, *shape), jnp.float32), reason


#: Outer indices of a short chunk; longer ones are padded to a multiple, the unit of their reductions.
_SHORT_CHUNK, _LONG_CHUNK_MULTIPLE = 256, 16

#: Minimum number of outer indices of a chunk: XLA writes other programs for one than for many, with other last bits.
_MIN_OUTER = 4

#: Equations times outer indices of a sweep up to which a stage is compiled quickly. It then takes a third of a
#: nanosecond longer for each, a twentieth of a second, and compiles in a millisecond less for each equation, seconds.
_QUICK_WORK = 150_000_000


class ChunkPrograms:
    """The compiled stages of a program in a nest, with the tables on the device that all chunks share.

    Args:
        nest: the outer and inner axes.
        staged_program: the program, and the array axes of its inputs.
        stages: the stages of all outputs, or of scores.
        variables: variables that :meth:`values` returns.
    """

    def __init__(
        self, nest: Nest, staged_program: StagedProgram, stages: ProgramStages, variables: tuple[int, ...] = ()
    ) -> None:
        self.nest, self.staged_program, self.stages, self._variables = nest, staged_program, stages, variables
        self._programs: dict[Hashable, Callable[..., Any]] = {}
        paths = sorted(nest.grid.columns)
        all_stages = (*stages.tables, *(group.stage for group in stages.groups))
        used_variables = {*variables}.union(*(stage.inputs for stage in all_stages))
        numbered_paths = enumerate(paths, len(staged_program.input_axes) - len(paths))
        used_paths = [path for variable, path in numbered_paths if variable in used_variables]
        self._tables: Tables = device_tables(nest, used_paths)
        self._masks, self._factor_sizes = _masks_and_sizes(nest)
        owner_of_objective = {
            k: (g, row) for g, group in enumerate(stages.groups) for row, k in enumerate(group.objectives)
        }
        self.owners: Owners = tuple(owner_of_objective[k] for k in sorted(owner_of_objective))

    def _run(self, function: PersistentFunction, count: int, *arguments: Any) -> Any:
        """Return the value of a function at the tables and ``arguments``, for ``count`` outer indices.

        Its program is looked up once for each count, since there are hundreds of arguments.
        """
        key = function, count
        if key not in self._programs:
            self._programs[key] = function.compiled(self._tables, *arguments, chunk=self._chunk(count))
        return self._programs[key](self._tables, *arguments)

    def _chunk(self, count: int) -> ChunkProgram:
        """Return the chunk of ``count`` outer indices."""
        return ChunkProgram(self.staged_program, self.stages, self._factor_sizes, self._variables, count)

    def outer_range(self, first: int, count: int, stop: int) -> tuple[np.ndarray, np.int32, int]:
        """Return (digits of the outer index ``first``, number before ``stop``, number computed) of ``count`` of them.

        A few more than ``count`` are computed, for devices to share evenly.
        """
        multiple = len(jax.local_devices()) * (_LONG_CHUNK_MULTIPLE if count > _SHORT_CHUNK else 1)
        padded = -(-max(count, _MIN_OUTER) // multiple) * multiple
        return np.array(self.nest.start_digits(first), np.int32), np.int32(min(count, stop - first)), padded

    def values(self, first: int, count: int, stop: int) -> tuple[dict[int, Array], int]:
        """Dispatch a chunk and return (variable → device array of its values, number of outer indices computed)."""
        start, _, padded = self.outer_range(first, count, stop)
        arrays = self._run(full_chunk, padded, start)
        return dict(zip(self._variables, arrays, strict=True)), padded

    def scores(self, first: int, count: int, stop: int, pivots: np.ndarray, thresholds: np.ndarray | None) -> Scores:
        """Dispatch a chunk and return its scores, see :meth:`~dse.sweep.engine.engine.SweepEngine.scores`."""
        start, n_valid, padded = self.outer_range(first, count, stop)
        keywords = dict(owners=self.owners, feasible_bit=self.staged_program.program.study.feasible_bit)
        if self._has_outer_program:
            scores, reasons = self._scores_in_two_programs(padded, start, n_valid, pivots, keywords)
        else:
            scores, reasons = self._run(score_chunk, padded, start, n_valid, self._masks)
        chunk_scores = Scores(scores, reasons, *summarise(scores, reasons, pivots, **keywords))
        if thresholds is None:
            return chunk_scores
        return chunk_scores._replace(below=count_below(scores, reasons, thresholds, **keywords))

    @functools.cached_property
    def _has_outer_program(self) -> bool:
        """True where the stage of the outer index is a program of its own, compiled quickly: it has little work."""
        is_one_processor = jax.default_backend() == "cpu" and len(jax.local_devices()) == 1
        outer_stages = [stage for stage in self.stages.tables[:1] if stage.axes == OUTER]
        return is_one_processor and any(stage.n_equations * self.nest.n_outer < _QUICK_WORK for stage in outer_stages)

    def _scores_in_two_programs(
        self, count: int, start: np.ndarray, n_valid: np.int32, pivots: np.ndarray, reduction_keywords: dict[str, Any]
    ) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """Return scores and reasons; programs that are not cached are compiled side by side with that of reductions."""
        if (outer_chunk, count) not in self._programs:
            chunk = self._chunk(count)
            outer_values = _zero_arrays(outer_chunk.begin(self._tables, start, n_valid, chunk=chunk))
            inner_results = outer_values and inner_chunk.begin(self._tables, *outer_values, self._masks, chunk=chunk)
            if inner_results:
                summarise.begin(*_zero_arrays(inner_results), pivots, **reduction_keywords)
        outer_values = self._run(outer_chunk, count, start, n_valid)
        return self._run(inner_chunk, count, *outer_values, self._masks)


def _zero_arrays(shapes: Any) -> Any:
    """Return zero arrays of these shapes on the device, for compilation; None where ``shapes`` is None."""
    return shapes and jax.device_put(
        jax.tree.map(lambda array: np.zeros(array.shape, array.dtype), shapes), device_sharding()
    )


def _masks_and_sizes(nest: Nest) -> tuple[tuple[Any, ...], tuple[tuple[int, int], ...]]:
    """Return by group (words, bits) of the mask at its inner indices, and (first, second) factor sizes.

    The mask is that of one group: the first with options, or else the first; for the other it is None.
    """
    n_first, n_second = nest.factor_sizes
    factor_sizes = ((n_first, 1), (1, n_second)) if nest.inner.separable else ((n_first, n_second),)
    has_options = [bool(set(axes) & set(nest.inner_options)) for axes in nest.groups]
    masked_group = has_options.index(True) if any(has_options) else 0
    masks: list[Any] = [None] * len(factor_sizes)
    mask_indices = mask_bits(nest, nest.groups[masked_group])
    masks[masked_group] = tuple(index.reshape(factor_sizes[masked_group]) for index in mask_indices)
    return tuple(masks), factor_sizes
