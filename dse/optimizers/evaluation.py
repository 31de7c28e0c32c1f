"""The two programs that hold the model: one evaluates designs, the other adds slopes. Every method shares them.

A model takes seconds to compile and a method's own steps a fraction of one: so methods propose and learn in small
programs of their own, and between them a step calls the program here. It takes any number of designs up to its size,
a block at a time, so that a search compiles the model once whatever the batches of its methods and of the polish.
A search of few designs does not compile it at all: NumPy has evaluated them by then (:mod:`dse.equations`).
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dse.optimizers import space as spaces
from dse.optimizers.functions import (
    Penalty,
    by_equations,
    evaluation_by_numpy,
    slopes_by_numpy,
    stack_outputs,
    with_slopes,
)
from dse.optimizers.judging import Evaluation
from dse.optimizers.space import STRUCTURE, Point, Space
from dse.sweep.engine.point import Program, neutral_inputs
from dse.sweep.engine.programs import PersistentFunction, persistent_jit
from dse.types import Design

#: Designs a block on processors; accelerators take all at once.
_BLOCK = 256

#: Minimum designs of a program, so that searches of usual sizes share programs.
_SMALLEST = 2048

#: Designs of a search up to which NumPy evaluates all of them: each takes it 0.2 ms in the small batches of methods,
#: where programs take 15 s to compile and a second to load.
MAX_NUMPY_DESIGNS = 10_000

#: Designs of a search up to which its programs are compiled without optimisations: these take longer than they save.
MOST_QUICKLY = 500_000


#: Kinds of program that a process holds: each takes dozens of its 65,530 memory maps.
_MAX_PROGRAMS = 4

#: Full path → values of the leaves that a space sets: arrays [design].
Values = dict[str, Array]


class _LazyProgram:
    """A program that is compiled once, by the first thread that calls it."""

    def __init__(self, function: PersistentFunction) -> None:
        self._function, self._lock = function, threading.Lock()
        self._program: Callable[..., Any] | None = None

    def prepare(self, *arguments: Any, **static: Any) -> Callable[..., Any]:
        """Return the program, compiled at the first call for arguments of these shapes."""
        with self._lock:
            if self._program is None:
                self._program = self._function.compiled(*arguments, **static)
            return self._program

    def __call__(self, *arguments: Any, **static: Any) -> Any:
        """Return the program's results, compiled at the first call."""
        return self.prepare(*arguments, **static)(*arguments)


class Evaluator:
    """Evaluates designs of one space.

    Args:
        program: study, objectives and constraints.
        base: the design that has every leaf which the space does not set.
        largest: designs of the largest batch.
        total: designs in all, None where nobody knows: it tells whether compiling pays.
    """

    def __init__(self, program: Program, base: Design, largest: int, total: int | None = None) -> None:
        self.program = program
        on_processor = jax.default_backend() == "cpu"
        self.by_numpy = on_processor and total is not None and total <= MAX_NUMPY_DESIGNS
        self.is_short = total is not None and total <= MOST_QUICKLY  #: whether programs had better be made quickly
        self.size = max(_SMALLEST, 1 << (largest - 1).bit_length())  #: of the arrays that go in and come out
        self._block = _BLOCK if on_processor else self.size
        compiled = dataclasses.replace(program, neutral_inputs=neutral_inputs(base, {}))
        self._static: dict[str, Any] = {"program": compiled, "block": self._block}
        self._base = jax.device_put(jax.tree.map(np.float32, base))
        self._evaluate = _LazyProgram(_evaluations_soon if self.is_short else _evaluations)
        self._differentiate = _LazyProgram(_slopes_soon if self.is_short else _slopes)
        _register_program(program)

    def __call__(self, values: Values, count: int) -> Evaluation:
        """Return the evaluation of the first ``count`` designs, ``values`` padded to a multiple of ``size``.

        Returns:
            Arrays as long as those of ``values``, of which the rest means nothing.
        """
        length = len(next(iter(values.values())))
        if length == self.size:
            return self._evaluate_batch(values, count)
        starts = range(0, length, self.size)
        evaluations = [
            self._evaluate_batch({p: v[i : i + self.size] for p, v in values.items()}, count - i) for i in starts
        ]
        return jax.tree.map(lambda *arrays: jnp.concatenate(arrays), *evaluations)

    def _evaluate_batch(self, values: Values, count: int) -> Evaluation:
        """Return the evaluation [size] of the first ``count`` of ``size`` designs; the rest means nothing."""
        count = min(count, self.size)
        if self.by_numpy:
            outputs = evaluation_by_numpy(self.program).batch_values(count, *_on_host((self._base, values), count))
            return _pad_rows(stack_outputs(outputs), self.size)
        arguments = self._base, values, self._blocks(count)
        evaluation: Evaluation = self._evaluate(*arguments, **self._static)
        return evaluation

    def slopes(self, values: Values, penalty: Penalty, count: int) -> tuple[Evaluation, Values]:
        """Return the evaluation, and path → gradient [design] of the penalised logarithm by each leaf of ``values``."""
        if self.by_numpy:
            host_penalty: Penalty = jax.device_get(penalty)
            host_penalty = host_penalty._replace(weights=tuple(np.moveaxis(host_penalty.weights, 1, 0)))
            arguments = _on_host((self._base, values, host_penalty), count)
            (_, outputs), slopes_by_leaf = slopes_by_numpy(self.program).batch_slopes(1, count, *arguments)
            return _pad_rows((stack_outputs(outputs), slopes_by_leaf), self.size)
        arguments = self._base, values, penalty, self._blocks(count)
        results: tuple[Evaluation, Values] = self._differentiate(*arguments, **self._static)
        return results

    @contextlib.contextmanager
    def compiling_in_background(self, paths: Sequence[str], slopes: bool) -> Iterator[None]:
        """Compile the programs for batches of ``size`` in other threads within the context.

        The model takes as long as the methods themselves.

        A failure here occurs again where the program is needed, and is reported there.

        Args:
            paths: of the leaves that the space sets.
            slopes: whether some method asks for them.
        """
        zeros = jax.device_put(np.zeros(self.size, np.float32))  # JAX would compile a program for its zeros
        values = dict.fromkeys(paths, zeros)
        weights = jax.device_put(np.zeros((self.size, len(self.program.objectives)), np.float32))
        penalty = Penalty(weights, zeros, zeros)
        with ThreadPoolExecutor(max_workers=2) as pool:
            if slopes:  # they take longest
                pool.submit(self._prepare_slopes, values, penalty)
            pool.submit(self._prepare, values)
            try:
                yield
            finally:
                pool.shutdown(cancel_futures=True)

    def _prepare(self, values: Values) -> None:
        """Compile the program that evaluates ``values`` like these."""
        if self.by_numpy:
            self(values, 1)
        else:
            self._evaluate.prepare(self._base, values, self._blocks(0), **self._static)

    def _prepare_slopes(self, values: Values, penalty: Penalty) -> None:
        """Compile the program that evaluates with slopes."""
        if self.by_numpy:
            self.slopes(values, penalty, 1)
        else:
            self._differentiate.prepare(self._base, values, penalty, self._blocks(0), **self._static)

    def _blocks(self, count: int) -> np.int32:
        """Return the number of blocks that hold ``count`` designs."""
        return np.int32(-(-count // self._block))


class StructuresEvaluator:
    """Evaluates designs of several structures: each by the evaluator of its own.

    Args:
        program: of all of them; constraints that the mappings of one structure keep are not in its own.
        each: an evaluator a structure.
        paths: of the leaves that move in the designs of each.
    """

    def __init__(self, program: Program, evaluators: Sequence[Evaluator], paths: Sequence[frozenset[str]]) -> None:
        self.program, self._evaluators, self._paths = program, evaluators, paths
        self.size, self.is_short = evaluators[0].size, evaluators[0].is_short

    def __call__(self, values: Values, count: int) -> Evaluation:
        """Return the evaluation of designs as :meth:`Evaluator.__call__` does."""
        return self._evaluate(values, None, count)[0]

    def slopes(self, values: Values, penalty: Penalty, count: int) -> tuple[Evaluation, Values]:
        """Return evaluation and slopes as :meth:`Evaluator.slopes` does, with 0 by leaves that a design lacks."""
        return self._evaluate(values, penalty, count)

    def _evaluate(self, values: Values, penalty: Penalty | None, count: int) -> tuple[Evaluation, dict[str, Any]]:
        """Return the evaluation, and path → slopes, 0 for leaves a design lacks; none without a penalty."""
        structure, n_objectives = np.asarray(values[STRUCTURE]), len(self.program.objectives)
        length = len(structure)
        evaluation: Any = Evaluation(
            np.zeros((length, n_objectives), np.float32), np.zeros(length, np.float32), np.zeros(length, np.int32)
        )
        slopes_by_leaf = {path: np.zeros(length, np.float32) for path in (values if penalty else ())}
        for structure_index, (evaluator, paths) in enumerate(zip(self._evaluators, self._paths, strict=True)):
            indices = np.flatnonzero(structure[:count] == structure_index)
            if not len(indices):
                continue
            member_values, weights = jax.tree.map(
                lambda array, rows=indices: padded(jnp.asarray(array)[rows], self.size),
                ({path: values[path] for path in values if path in paths}, penalty),
            )
            results, slopes = (
                evaluator.slopes(member_values, weights, len(indices))
                if penalty
                else (evaluator(member_values, len(indices)), {})
            )
            targets = *evaluation, *(slopes_by_leaf[path] for path in slopes)
            for target, array in zip(targets, jax.device_get((*results, *slopes.values())), strict=True):
                target[indices] = array[: len(indices)]
        return evaluation, slopes_by_leaf

    @contextlib.contextmanager
    def compiling_in_background(self, paths: Sequence[str], slopes: bool) -> Iterator[None]:
        """Compile in other threads as :meth:`Evaluator.compiling_in_background` does."""
        with contextlib.ExitStack() as stack:
            for evaluator, member_paths in zip(self._evaluators, self._paths, strict=True):
                stack.enter_context(
                    evaluator.compiling_in_background([path for path in paths if path in member_paths], slopes)
                )
            yield


def _on_host(arguments: Any, count: int) -> Any:
    """Return pytrees with the first ``count`` entries of every array as NumPy arrays; scalars whole."""
    return jax.tree.map(lambda leaf: leaf[:count] if np.ndim(leaf) else leaf, jax.device_get(arguments))


def _pad_rows(arrays: Any, size: int) -> Any:
    """Return arrays [design, ...] padded to ``size`` rows by repeating the last."""
    return jax.tree.map(lambda a: np.pad(a, [(0, size - len(a)), *[(0, 0)] * (a.ndim - 1)], mode="edge"), arrays)


def padded_values(space: Space, points: Point, size: int) -> Values:
    """Return full path → values [design] at points [...], their axes made one, padded to a multiple of ``size``."""
    count = math.prod(points.digits.shape[:-1])
    flat = jax.tree.map(lambda a: a.reshape(count, a.shape[-1]), points)
    return {path: padded(jnp.asarray(v, jnp.float32), size) for path, v in spaces.values(space, flat).items()}


def padded(column: Array, size: int) -> Array:
    """Return an array [design, ...] padded with its last entry to a multiple of ``size``."""
    return jnp.pad(column, [(0, -len(column) % size), *[(0, 0)] * (column.ndim - 1)], mode="edge")


def reshape_results(arrays: Any, shape: tuple[int, ...]) -> Any:
    """Return padded arrays [design, ...] as [*shape, ...], without the padding."""
    return jax.tree.map(lambda a: a[: math.prod(shape)].reshape(*shape, *a.shape[1:]), arrays)


def _evaluate_blocks(base: Design, values: Values, n_blocks: Array, *, program: Program, block: int) -> Evaluation:
    """Return the evaluation of the first ``n_blocks`` blocks of ``block`` designs, zeros for the rest."""

    def step(i: Array, evaluation: Evaluation) -> Evaluation:
        block_values = _block(values, i, block)
        return _insert_block(
            evaluation, jax.vmap(functools.partial(by_equations, program, base))(block_values), i * block
        )

    return lax.fori_loop(0, n_blocks, step, _zero_evaluation(program, len(next(iter(values.values())))))


def _differentiate_blocks(
    base: Design, values: Values, penalty: Penalty, n_blocks: Array, *, program: Program, block: int
) -> tuple[Evaluation, Values]:
    """Return evaluation and slopes by leaf of the first ``n_blocks`` blocks of designs, zeros for the rest."""

    def step(i: Array, results: tuple[Evaluation, Values]) -> tuple[Evaluation, Values]:
        results_of_block = jax.vmap(functools.partial(with_slopes, program, base))(*_block((values, penalty), i, block))
        return _insert_block(results, results_of_block, i * block)

    room = _zero_evaluation(program, len(penalty.multiplier)), jax.tree.map(jnp.zeros_like, values)
    return lax.fori_loop(0, n_blocks, step, room)


#: Programs that run fast, and programs that compile fast.
_evaluations, _evaluations_soon, _slopes, _slopes_soon = (
    persistent_jit("program", "block", quickly=quickly)(function)
    for function in (_evaluate_blocks, _differentiate_blocks)
    for quickly in (False, True)
)


def _block(arrays: Any, i: Array, block: int) -> Any:
    """Return block ``i`` of arrays, ``block`` entries along their first axis."""
    return jax.tree.map(lambda array: lax.dynamic_slice_in_dim(array, i * block, block), arrays)


def _zero_evaluation(program: Program, size: int) -> Evaluation:
    """Return an evaluation of zeros [size]."""
    return Evaluation(jnp.zeros((size, len(program.objectives))), jnp.zeros(size), jnp.zeros(size, jnp.int32))


def _insert_block(arrays: Any, block: Any, first: Array) -> Any:
    """Return arrays with ``block`` written from row ``first`` on."""
    return jax.tree.map(lambda a, b: lax.dynamic_update_slice_in_dim(a, b, first, 0), arrays, block)


_registered_programs: collections.OrderedDict[Program, None] = collections.OrderedDict()


def _register_program(program: Program) -> None:
    """Remember a program as in use, and forget all compiled ones where there are too many."""
    _registered_programs[program] = None
    if len(_registered_programs) > _MAX_PROGRAMS:
        release()
        _registered_programs[program] = None


def release() -> None:
    """Forget the compiled programs of all searches, but not those on disk."""
    _registered_programs.clear()
    for function in (_evaluations, _evaluations_soon, _slopes, _slopes_soon):
        function.forget()
