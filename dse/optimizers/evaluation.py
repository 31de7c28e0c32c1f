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

#: Designs of a search up to which NumPy evaluates all of them, whatever the device: each takes it 0.2 ms in the small
#: batches of methods, where programs take 15 s to compile and a second to load.
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
        self.by_numpy = total is not None and total <= MAX_NUMPY_DESIGNS
        self.is_short = total is not None and total <= MOST_QUICKLY  #: whether programs had better be made quickly
        self.size = max(_SMALLEST, 1 << (largest - 1).bit_length())  #: of the arrays that go in and come out
        self._block = _BLOCK if on_processor else self.size
        compiled = dataclasses.replace(program, neutral_inputs=neutral_inputs(base, {}))
        self._static: dict[str, Any] = {"program": compiled, "block": self._block}
        single = jax.tree.map(np.float32, base)
        self._base = single if self.by_numpy else jax.device_put(single)
        self._programs = [_LazyProgram(_evaluations_soon if self.is_short else _evaluations) for _ in range(2)]
        _registered_programs[program] = None
        if len(_registered_programs) > _MAX_PROGRAMS:
            release()
            _registered_programs[program] = None

    def __call__(self, values: Values, count: int, penalty: Penalty | None = None) -> tuple[Evaluation, Values]:
        """Return the evaluation of the first ``count`` designs, ``values`` padded to a multiple of ``size``.

        Returns:
            The evaluation, and path → gradient of the penalised logarithm by each leaf of ``values``, none without a
            penalty: arrays as long as those of ``values``, of which the rest means nothing.
        """
        length = len(next(iter(values.values())))
        if length == self.size:
            return self._evaluate_batch(values, count, penalty)

        def batch(first: int) -> tuple[Evaluation, Values]:
            columns, penalties = jax.tree.map(lambda array: array[first : first + self.size], (values, penalty))
            return self._evaluate_batch(columns, count - first, penalties)

        return jax.tree.map(lambda *arrays: jnp.concatenate(arrays), *map(batch, range(0, length, self.size)))

    def _evaluate_batch(self, values: Values, count: int, penalty: Penalty | None) -> tuple[Evaluation, Values]:
        """Return evaluation and slopes [size] of the first ``count`` of ``size`` designs; the rest means nothing."""
        count = min(count, self.size)
        if not self.by_numpy:
            arguments = self._base, values, penalty, self._blocks(count)
            results: tuple[Evaluation, Values] = self._program(penalty)(*arguments, **self._static)
            return results
        *arguments, penalty = _on_host((self._base, values, penalty), count)
        slopes_by_leaf: Values = {}
        if penalty is None:
            outputs = evaluation_by_numpy(self.program).batch_values(count, *arguments)
        else:
            penalty = penalty._replace(weights=tuple(np.moveaxis(penalty.weights, 1, 0)))
            function = slopes_by_numpy(self.program)
            (_, outputs), slopes_by_leaf = function.batch_slopes(1, count, *arguments, penalty)
        return _pad_rows((stack_outputs(outputs), slopes_by_leaf), self.size)

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
        with ThreadPoolExecutor(max_workers=2) as pool:
            for penalty in (*([Penalty(weights, zeros, zeros)] if slopes else []), None):  # slopes take longest
                pool.submit(self._prepare, values, penalty)
            try:
                yield
            finally:
                pool.shutdown(cancel_futures=True)

    def _prepare(self, values: Values, penalty: Penalty | None) -> None:
        """Compile the program that evaluates ``values`` like these, with slopes where there is a penalty."""
        if self.by_numpy:
            self(values, 1, penalty)
        else:
            self._program(penalty).prepare(self._base, values, penalty, self._blocks(0), **self._static)

    def _program(self, penalty: Penalty | None) -> _LazyProgram:
        """Return the program that evaluates, with slopes where there is a penalty."""
        return self._programs[penalty is not None]

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

    def __call__(self, values: Values, count: int, penalty: Penalty | None = None) -> tuple[Evaluation, dict[str, Any]]:
        """Return evaluation and slopes as :meth:`Evaluator.__call__` does, with 0 by leaves that a design lacks."""
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
            results, slopes = evaluator(member_values, len(indices), weights)
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


def _evaluate_blocks(
    base: Design, values: Values, penalty: Penalty | None, n_blocks: Array, *, program: Program, block: int
) -> tuple[Evaluation, Values]:
    """Return evaluation, and slopes by leaf with a penalty, of the first ``n_blocks`` blocks, zeros for the rest."""

    def of_design(values: dict[str, Any], penalty: Penalty | None) -> tuple[Evaluation, dict[str, Any]]:
        return with_slopes(program, base, values, penalty) if penalty else (by_equations(program, base, values), {})

    def step(i: Array, results: tuple[Evaluation, Values]) -> tuple[Evaluation, Values]:
        inputs, first = (values, penalty), i * block
        of_block = jax.tree.map(lambda array: lax.dynamic_slice_in_dim(array, first, block), inputs)
        outputs = jax.vmap(of_design)(*of_block)
        return jax.tree.map(lambda a, b: lax.dynamic_update_slice_in_dim(a, b, first, 0), results, outputs)

    size = len(next(iter(values.values())))
    zeros = Evaluation(jnp.zeros((size, len(program.objectives))), jnp.zeros(size), jnp.zeros(size, jnp.int32))
    return lax.fori_loop(0, n_blocks, step, (zeros, jax.tree.map(jnp.zeros_like, values) if penalty else {}))


#: Programs that run fast, and programs that compile fast.
_evaluations, _evaluations_soon = (
    persistent_jit("program", "block", quickly=quickly)(_evaluate_blocks) for quickly in (False, True)
)


_registered_programs: collections.OrderedDict[Program, None] = collections.OrderedDict()


def release() -> None:
    """Forget the compiled programs of all searches, but not those on disk."""
    _registered_programs.clear()
    for function in (_evaluations, _evaluations_soon):
        function.forget()
