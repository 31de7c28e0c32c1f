"""Many designs at once: the compiled programs of a sweep.

A chunk of outer indices x the inner product is evaluated by two nested ``vmap``s, so that what an
inner axis does not touch is computed once (see :mod:`dse.sweep.engine.nesting`). Tables, radices and
the start are traced: one program serves all chunks, and every sweep of the same axes.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import NamedSharding

from dse.design import leaf, replace
from dse.spec.expression import Expression, metric_units
from dse.spec.sweep import Objective
from dse.sweep.engine import equations, nesting
from dse.sweep.engine.devices import fuse_outputs, over_devices
from dse.sweep.engine.equations import Equations
from dse.sweep.engine.nesting import Nest
from dse.sweep.engine.programs import kept, remembered
from dse.sweep.grid.grid import Grid
from dse.types import Design, Infeasible, Metrics, Scalar

fuse_outputs()

#: Bit of ``infeasible_reason`` for a constraint of the specification: the one after the model's own.
CONSTRAINT = 1 << max(Infeasible).bit_length()

#: Bit for the feasible, where they are counted beside the reasons.
_FEASIBLE = CONSTRAINT << 1

#: Designs a chunk, when all outputs are stored and when only scores are; and where designs or sweeps are few.
CHUNK_FULL = 1 << 18
CHUNK_SCORES = 1 << 19
CHUNK_SHORT = 1 << 16

#: Tables and lists of designs are padded to this length at least.
_SHORTEST = 1024

#: Bits of a word of the mask of mappings.
_WORD = 32

#: Outer indices of a longer chunk come in groups of so many, which reductions take together.
_GROUPED, _GROUP = 256, 16

#: ``start + iota`` is exact in int32 while both stay below this.
LONGEST_CHUNK = 1 << 21


@dataclasses.dataclass(frozen=True)
class Program:
    """What is compiled: the model, and the constraints and objectives on top of it."""

    model: Callable[[Design], Metrics]
    constraints: tuple[Expression, ...] = ()
    objectives: tuple[Objective, ...] = ()
    metrics: tuple[str, ...] | None = None  #: those that come out; None for all

    @property
    def can_be_kept(self) -> bool:
        """Whether its code is the package's own, so that the code's digest tells of every change."""
        return self.model.__module__ == "dse.evaluate"

    def __str__(self) -> str:
        """All that it depends on besides the code."""
        objectives = [(objective.expression.text, objective.sign) for objective in self.objectives]
        constraints = [constraint.text for constraint in self.constraints]
        return str((self.model.__qualname__, constraints, objectives, self.metrics))


class Tables(NamedTuple):
    """A nest on the device. Tables are padded to few lengths, so that most grids share their programs."""

    base: Design
    outer: tuple[dict[str, Array], ...]  #: by digit: leaf path → value at each position
    inner: dict[str, Array]  #: leaf path → values along the inner product
    radices: Array  #: of the outer index
    mask: Array  #: [row, outer options, word] bits of which columns of options are mappings there
    word: Array  #: [inner] word of the mask that tells of each position of the inner product
    bit: Array  #: [inner] and its bit


class Scores(NamedTuple):
    """Scores of a chunk: the smaller the better, infinite for what is infeasible or no mapping."""

    scores: Array  #: [objective, outer, inner]
    outer_best: Array  #: [objective, outer] the least along the inner product
    inner_best: Array  #: [objective, inner] the least along the outer indices
    hopeful: Array  #: [outer] whether some design there is feasible and not worse than a pivot in every objective
    counts: Array  #: feasible designs, then designs by bit of infeasible_reason
    below: Array | None = None  #: [objective, threshold] how many scores are below, where that is asked for


def tables(nest: Nest) -> Tables:
    """The tables of a nest, in float32."""
    grid = nest.grid
    outer = [grid.dimensions[i].columns for i in nest.outer_dimensions]
    outer += [grid.table.degrees, *(nest.options[i] for i in nest.outer_options)]
    n_columns = nest.distinct.shape[-1]
    column = np.tile(np.arange(n_columns, dtype=np.int32), nest.n_inner // n_columns)
    host = Tables(
        base=grid.base,
        outer=tuple(map(_padded_columns, outer)),
        inner={path: values.astype(np.float32) for path, values in nest.inner_columns().items()},
        radices=np.array(nest.outer_shape, np.int32),
        mask=_padded(_packed(nest.distinct)),
        word=column // _WORD,
        bit=column % _WORD,
    )
    return jax.device_put(host, over_devices())


def _packed(flags: np.ndarray) -> np.ndarray:
    """Flags along the last axis as bits of 32-bit words."""
    words = np.zeros((*flags.shape[:-1], -(-flags.shape[-1] // _WORD)), np.uint32)
    for position in range(flags.shape[-1]):
        words[..., position // _WORD] |= flags[..., position].astype(np.uint32) << np.uint32(position % _WORD)
    return words.view(np.int32)


def _padded(column: np.ndarray) -> np.ndarray:
    """A table with its last row repeated up to a power of two, 1024 at least; no index ever points there."""
    extra = max(1 << (len(column) - 1).bit_length(), _SHORTEST) - len(column)
    return np.pad(column, [(0, extra)] + [(0, 0)] * (column.ndim - 1), mode="edge")


def _padded_columns(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {path: _padded(column).astype(np.float32) for path, column in columns.items()}


def decode(start: Array, radices: Array, count: int) -> list[Array]:
    """Mixed-radix digits of ``start + 0 … start + count - 1``, most significant first.

    Args:
        start: digits of the first index, decoded on the host, so that the index itself may exceed 2^31.
        radices: the sizes; index and radix may be anything below 2^30.
        count: how many, at most ``LONGEST_CHUNK``.

    Past the last index the digits begin again at 0.
    """
    carry = jnp.arange(count, dtype=jnp.int32)
    digits: list[Array] = []
    for position in reversed(range(radices.shape[0])):
        carry, digit = _divided(start[position] + carry, radices[position])
        digits.append(digit)
    return digits[::-1]


def _divided(total: Array, radix: Array) -> tuple[Array, Array]:
    """Quotient and remainder of whole numbers, the quotient at most ``LONGEST_CHUNK``.

    Processors divide many floats at once but no integers: the float quotient is off by one at most, which the
    remainder tells.
    """
    quotient = jnp.floor(total.astype(jnp.float32) * (1.0 / radix.astype(jnp.float32))).astype(jnp.int32)
    rest = total - quotient * radix
    off = (rest >= radix).astype(jnp.int32) - (rest < 0).astype(jnp.int32)
    return quotient + off, rest - off * radix


def values_at(tables: tuple[dict[str, Array], ...], digits: Sequence[Array]) -> dict[str, Array]:
    """Leaf path → values at outer indices given by their digits."""
    pairs = zip(tables, digits, strict=True)
    return {path: column.at[at].get(mode="promise_in_bounds") for table, at in pairs for path, column in table.items()}


look_up = kept()(values_at)


def evaluate_point(program: Program, base: Design, values: dict[str, Scalar]) -> tuple[Metrics, tuple[Scalar, ...]]:
    """Metrics and objectives (made small) of one design."""
    design = replace(base, values)
    metrics = program.model(design)

    def lookup(name: str) -> Scalar:
        return getattr(metrics, name) if name in metric_units() else leaf(design, name)

    reason = jnp.asarray(metrics.infeasible_reason, jnp.int32)
    for constraint in program.constraints:
        reason = reason | jnp.where(constraint(lookup), 0, CONSTRAINT)
    metrics = dataclasses.replace(metrics, feasible=reason == 0, infeasible_reason=reason)
    objectives = tuple(objective.sign * objective.expression(lookup) for objective in program.objectives)
    if program.metrics is not None:
        left_out = [field.name for field in dataclasses.fields(metrics) if field.name not in program.metrics]
        metrics = dataclasses.replace(metrics, **dict.fromkeys(left_out))
    return metrics, objectives


@functools.lru_cache(maxsize=32)
def equations_of(program: Program, inputs: jax.tree_util.PyTreeDef) -> tuple[Equations, jax.tree_util.PyTreeDef]:
    """:func:`evaluate_point` as equations, for inputs of this structure; traced once for all programs of a sweep."""
    scalars = jax.tree.unflatten(inputs, [jax.ShapeDtypeStruct((), jnp.float32)] * inputs.num_leaves)
    return equations.trace(functools.partial(evaluate_point, program), *scalars)


def run_point(program: Program, base: Design, values: dict[str, Scalar]) -> tuple[Metrics, tuple[Scalar, ...]]:
    """:func:`evaluate_point` by its equations."""
    leaves, structure = jax.tree.flatten((base, values))
    run, outputs = equations_of(program, structure)
    return jax.tree.unflatten(outputs, run(*leaves))


def _nested(function: Callable[..., Any], outer: Any, inner: Any, n_inner: int) -> Any:
    """``function`` of outer values x inner values: arrays [outer, inner]."""
    along_inner = jax.vmap(function, in_axes=(None, 0), axis_size=n_inner)
    return jax.vmap(along_inner, in_axes=(0, None))(outer, inner)


@kept("count", "sharding")
def outer_chunk(
    grid: Tables, start: Array, n_valid: Array, *, count: int, sharding: NamedSharding
) -> tuple[dict[str, Array], Array]:
    """Leaf path → values of ``count`` outer indices from ``start``, and the words of their masks, spread over devices.

    A program apart from those that compute with the values, because XLA would look each value up at every use.
    Past the first ``n_valid`` nothing is a mapping.
    """
    digits = decode(start, grid.radices, count)
    words = grid.mask.at[tuple(digits[1 - grid.mask.ndim :])].get(mode="promise_in_bounds")
    words = jnp.where((jnp.arange(count) < n_valid)[:, None], words, 0)
    return lax.with_sharding_constraint((values_at(grid.outer, digits), words), sharding)


@kept("program")
def evaluate_chunk(grid: Tables, values: dict[str, Array], *, program: Program) -> tuple[Metrics, tuple[Array, ...]]:
    """All metrics and the objectives of outer values x the inner product: arrays [outer, inner]."""
    return _nested(lambda o, i: run_point(program, grid.base, o | i), values, grid.inner, len(grid.bit))


@kept("program")
def score_chunk(grid: Tables, values: dict[str, Array], words: Array, *, program: Program) -> tuple[Array, Array]:
    """Scores and reasons of what :func:`outer_chunk` gives x the inner product.

    Returns:
        [objective, outer, inner] scores, the smaller the better, infinite for what is infeasible or no mapping.
        [outer, inner] bits of the reasons, ``_FEASIBLE`` where there is none, 0 for what is no mapping.
    """

    def score(outer: Any, inner: Any) -> tuple[tuple[Scalar, ...], Scalar]:
        (values, words), (options, word, bit) = outer, inner
        metrics, objectives = run_point(program, grid.base, values | options)
        is_mapping = (_word(words, word) >> bit) & 1 != 0
        can_win = is_mapping & metrics.feasible
        reason = jnp.where(metrics.feasible, _FEASIBLE, metrics.infeasible_reason)
        scores = tuple(jnp.where(can_win & jnp.isfinite(value), value, jnp.inf) for value in objectives)
        return scores, jnp.where(is_mapping, reason, 0)

    inner = grid.inner, grid.word, grid.bit
    scores, reasons = _nested(score, (values, tuple(words.T)), inner, len(grid.bit))
    return jnp.stack(scores), reasons


@kept()
def summarise(scores: Array, reasons: Array, pivots: Array) -> Scores:
    """What the host needs to know of a chunk, from what :func:`score_chunk` gives.

    A program of its own, because XLA would compute the scores once for every reduction of them.
    ``pivots`` [pivot, objective] are scores of known designs, infinite where there are fewer.
    """
    outer_best = scores.min(axis=2)
    if len(pivots):
        hopeful = ((reasons == _FEASIBLE) & ~_worse(tuple(scores), pivots)).any(axis=1)
    else:
        hopeful = jnp.isfinite(outer_best[0])
    inner_best = _few_rows(scores).min(axis=2).min(axis=1)
    return Scores(scores, outer_best, inner_best, hopeful, _count(reasons))


def _few_rows(values: Array) -> Array:
    """[…, outer, inner] as […, group, row, inner]: processors reduce a few long rows by their whole width.

    No group is spread over devices.
    """
    *leading, n_outer, n_inner = values.shape
    share = n_outer // len(jax.local_devices())
    rows = max(rows for rows in range(1, 65) if share % rows == 0)
    return values.reshape(*leading, n_outer // rows, rows, n_inner)


@kept()
def count_below(scores: Array, thresholds: Array) -> Array:
    """How many of the scores [objective, outer, inner] are below each of ``thresholds`` [objective, threshold].

    No scatter: every score is compared with every threshold. Exact for inner products below 1024.
    """
    n = thresholds.shape[1]
    triples = jnp.pad(thresholds, [(0, 0), (0, -n % 3)]).reshape(len(thresholds), -1, 3)

    def of_objective(pair: tuple[Array, Array]) -> Array:
        scores, triples = pair

        def of_triple(triple: Array) -> Array:
            ones = (jnp.where(scores < least, 1 << place, 0) for least, place in zip(triple, _PLACES, strict=True))
            return _unpacked(functools.reduce(operator.add, ones).sum(axis=1, dtype=jnp.int32))

        return lax.map(of_triple, triples).reshape(-1)[:n]

    return jnp.stack([of_objective(pair) for pair in zip(scores, triples, strict=True)])


#: Places in a word at which three counts below 1024 lie side by side.
_PLACES = (0, 10, 20)


def _unpacked(sums: Array) -> Array:
    """The three totals of words that hold three counts each."""
    return jnp.stack([(sums >> place & 1023).sum(dtype=jnp.int32) for place in _PLACES])


def _word(words: tuple[Scalar, ...], position: Scalar) -> Scalar:
    """The word at a traced position."""
    return functools.reduce(lambda found, k: jnp.where(position == k, words[k], found), range(len(words)), words[0])


def _worse(scores: tuple[Scalar, ...], pivots: Array) -> Scalar:
    """Whether some pivot is better in the first objective and no worse in the others."""
    worse = jnp.bool_(False)
    for pivot in pivots:
        no_better = [score >= least for score, least in zip(scores[1:], pivot[1:], strict=True)]
        worse = worse | functools.reduce(operator.and_, no_better, scores[0] > pivot[0])
    return worse


def _count(reasons: Array) -> Array:
    """How many designs have each bit, the feasible first.

    Three bits are spread over a word, ten places apart, so that one sum along a few rows counts all three.
    """
    spread, ones = 1 | 1 << 9 | 1 << 18, 1 | 1 << 10 | 1 << 20
    grouped, counts = _few_rows(reasons), []
    for first in range(0, _FEASIBLE.bit_length(), 3):
        counts.append(_unpacked((((grouped >> first & 7) * spread) & ones).sum(axis=1, dtype=jnp.int32)))
    return jnp.roll(jnp.concatenate(counts)[: _FEASIBLE.bit_length()], 1)


@kept("program")
def evaluate_designs(base: Design, values: dict[str, Array], *, program: Program) -> tuple[Metrics, tuple[Array, ...]]:
    """All metrics and the objectives of single designs: arrays [design]."""
    return jax.vmap(functools.partial(run_point, program, base))(values)


class Engine:
    """The programs of one grid, called with Python's integers and giving NumPy arrays."""

    def __init__(self, grid: Grid, model: Callable[[Design], Metrics], chunk: int | None = None) -> None:
        self.grid = grid
        self.program = Program(model, grid.constraints, grid.spec.objectives, grid.spec.metrics)
        self._chunk = chunk
        self._tables: dict[Any, Tables] = {}

    @functools.cached_property
    def _nests(self) -> tuple[Nest, Nest]:
        """The nests in which points stay apart, for all outputs, and in which they need not, for scores."""
        dimensions, options = [d.columns for d in self.grid.dimensions], nesting.option_axes(self.grid)
        axis_of = {path: i for i, axis in enumerate([*dimensions, *options, self.grid.table.degrees]) for path in axis}
        n_options = {len(dimensions) + i: len(next(iter(axis.values()))) for i, axis in enumerate(options)}
        n_positions = dict(enumerate(self.grid.shape))

        def choose() -> list[frozenset[int]]:
            structure = jax.tree.structure((self.grid.base, dict.fromkeys(axis_of, 0.0)))
            base = [None] * len(jax.tree.leaves(self.grid.base))
            model, _ = equations_of(self.program, structure)
            counts = nesting.reach(model, [*base, *(axis_of[path] for path in sorted(axis_of))])
            return [nesting.choose(counts, sizes) for sizes in (n_options, n_positions | n_options)]

        made_from = f"nests {self.program} {sorted(axis_of.items())} {n_options} {n_positions}"
        chosen = remembered(made_from, choose) if self.program.can_be_kept else choose()
        apart, together = map(self._nest, chosen)
        return apart, together

    def _nest(self, inner: frozenset[int]) -> Nest:
        n = len(self.grid.dimensions)
        return Nest(
            self.grid, tuple(sorted(i for i in inner if i < n)), tuple(sorted(i - n for i in inner if i >= n))
        )

    @functools.cached_property
    def full_nest(self) -> Nest:
        """What all outputs are computed in: points of the grid stay in their order."""
        return self._nests[0]

    def score_nest(self, by_point: bool) -> Nest:
        """What scores are computed in; ``by_point`` keeps the points of the grid apart."""
        return self._nests[0 if by_point else 1]

    def tables(self, nest: Nest) -> Tables:
        """The tables of a nest, on the device."""
        key = nest.inner_dimensions, nest.inner_options
        if key not in self._tables:
            self._tables[key] = tables(nest)
        return self._tables[key]

    def lines(self, nest: Nest, default: int) -> int:
        """Lines a chunk, for about ``default`` designs.

        A grid that is smaller than a long chunk has short ones, and no others: programs are shared.
        """
        if nest.n_lines * nest.outer_a_line * nest.n_inner < default:
            default = CHUNK_SHORT
        return max(1, (self._chunk or default) // (nest.outer_a_line * nest.n_inner))

    def outer(self, nest: Nest, line: int, count: int) -> tuple[dict[str, Array], Array]:
        """Dispatch the outer values of ``count`` lines from ``line``, and a few more for devices to share evenly."""
        start = np.array(nest.start_digits(line), np.int32)
        n_valid = np.int32(min(count, nest.n_lines - line) * nest.outer_a_line)
        together = len(jax.local_devices()) * (_GROUP if count * nest.outer_a_line > _GROUPED else 1)
        padded = -(-count * nest.outer_a_line // together) * together
        return outer_chunk(self.tables(nest), start, n_valid, count=padded, sharding=over_devices("outer"))

    def full(self, line: int, count: int) -> tuple[Metrics, tuple[Array, ...]]:
        """Dispatch all outputs of ``count`` lines from ``line``."""
        values, _ = self.outer(self.full_nest, line, count)
        return evaluate_chunk(self.tables(self.full_nest), values, program=self.program)

    def scores(
        self, nest: Nest, line: int, count: int, pivots: np.ndarray, thresholds: np.ndarray | None = None
    ) -> Scores:
        """Dispatch the scores of ``count`` lines from ``line``, by as many objectives as the pivots have.

        ``thresholds`` [objective, threshold] asks how many scores are below each.
        """
        program = dataclasses.replace(self.program, objectives=self.program.objectives[: pivots.shape[1]])
        scores, reasons = score_chunk(self.tables(nest), *self.outer(nest, line, count), program=program)
        found = summarise(scores, reasons, pivots)
        return found if thresholds is None else found._replace(below=count_below(scores, thresholds))

    def designs(self, index: np.ndarray) -> tuple[Metrics, tuple[Array, ...]]:
        """All outputs of the designs at these indices, a chunk at a time, padded to powers of two."""
        pieces = [self._designs(index[i : i + CHUNK_SHORT]) for i in range(0, max(len(index), 1), CHUNK_SHORT)]
        return jax.tree.map(lambda *arrays: np.concatenate(arrays), *pieces)

    def _designs(self, index: np.ndarray) -> tuple[Metrics, tuple[Array, ...]]:
        padded = np.zeros(max(1 << (len(index) - 1).bit_length(), _SHORTEST), np.int64)
        padded[: len(index)] = index
        flat = Nest(self.grid, (), ())
        grid = self.tables(flat)
        found = evaluate_designs(grid.base, look_up(grid.outer, tuple(flat.digits(padded))), program=self.program)
        return jax.tree.map(lambda array: np.asarray(array)[: len(index)], found)
