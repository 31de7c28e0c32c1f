"""A metric of many designs and its gradient by some of their leaves: ``dse.value_and_grad``, and what co-design shares.

What all designs have alike is computed once, by NumPy; operations on the rest are compiled with their gradient, a block
of designs at a time: backwards a gradient reads a thousand values a design that it made forwards, which leave the cache
of a processor where designs are many. Processors share the blocks. All loops over a block are one function, so that
short ones cost no calls. Against ``jax.grad`` of the model a maximum costs
two comparisons in the place of two divisions, and what is known of a design no operation at all.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental.xla_metadata import set_xla_metadata

from dse.designs import leaf, leaf_path, leaves_of, replace
from dse.doors import STUDIES, Study
from dse.equations import ScalarFunction, fold, recording
from dse.equations.operations import Operations, backward_steps, steps, walk, walk_back
from dse.equations.primitives import slope_rules
from dse.equations.rules import Slope
from dse.errors import InputError, unknown_name
from dse.io import fuse_outputs
from dse.io.environment import processors, reuse_memory
from dse.sweep.engine.programs import FAST, persistent_jit
from dse.types import Design, Scalar

#: Fewer designs are differentiated by NumPy, which compiles nothing.
BLOCK = 512

#: (blocks, designs of a block) of a call of the program, on processors and elsewhere. On processors, as measured,
#: blocks half or twice as long take as long or longer; a thread begins for every call. Elsewhere every block is some
#: hundred launches: a block of 512 designs would wait for them alone.
_CPU_BLOCKS, _DEVICE_BLOCKS = (64, 64), (4, 32768)

#: Options of XLA for processors: loops by the older of its emitters too, half as many of them.
_OPTIONS = FAST | {"xla_cpu_use_fusion_emitters": False}

#: What has XLA make one function for processors of all loops over a block, in the place of some hundred and fifty.
_AS_ONE = {"inlineable": "false", "xla_cpu_small_call": "true"}

#: Functions of shared numbers that are kept at hand.
_MAX_PROGRAMS = 8


@dataclasses.dataclass(frozen=True, eq=False)
class Differentiated:
    """Operations, as a static argument, of which the first output is differentiated by the first inputs.

    Two are equal where their operations are, whatever numbers all designs share.
    """

    operations: Operations
    n_differentiated: int
    is_cacheable = True

    @functools.cached_property
    def _text(self) -> str:
        """SHA-256 of the operations and literals, hexadecimal; not of numbers that all designs share."""
        operations = self.operations
        literals = [(str(value.dtype), value.item()) for value in operations.constants[: operations.n_literals]]
        description = literals, *operations[1:4], operations.precision, self.n_differentiated
        return hashlib.sha256(str(description).encode()).hexdigest()

    def __str__(self) -> str:
        return self._text

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Differentiated) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __lt__(self, other: Any) -> bool:
        return self._text < str(other)

    def __call__(self, rows: Sequence[Any], shared: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return the outputs of one design, and the first one's slopes by the first inputs.

        Args:
            rows: numbers of the design, those first by which it is differentiated.
            shared: constants that are no literals.
        """
        number = jax.ShapeDtypeStruct((), self.operations.precision)
        equations, structure = recording.trace(self._forth_and_back, [number] * len(rows), [number] * len(shared))
        outputs, slopes = jax.tree.unflatten(structure, fold(equations, {})(*rows, *shared))
        return outputs, slopes

    def _forth_and_back(self, rows: Sequence[Any], shared: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return the outputs and slopes, as :meth:`__call__`, computed operation by operation."""
        operations, by, target = self.operations, range(self.n_differentiated), self.operations.outputs[0]
        values: dict[int, Any] = dict(enumerate((*rows, *operations.constants[: operations.n_literals], *shared)))
        walk(steps(operations.operations, _jax_operation), values)
        values[target] = jnp.asarray(values[target], operations.precision)
        backward = backward_steps(operations.operations, by, target, _slopes)
        slopes = walk_back(backward, values, by, {target: jnp.ones_like(values[target])})
        return [values[i] for i in operations.outputs], [slopes.get(i, jnp.zeros_like(values[target])) for i in by]


#: Operations that JAX names otherwise, or composes.
_JAX_OPERATIONS: dict[str, Callable[..., Any]] = {
    "and": lax.bitwise_and,
    "or": lax.bitwise_or,
    "xor": lax.bitwise_xor,
    "not": lax.bitwise_not,
    "add_any": lax.add,
    "copy": lambda value: value,
    "log2": jnp.log2,
    "one_minus_square": lambda value: (1.0 + value) * (1.0 - value),
    "convert_element_type": lax.convert_element_type,
    "bitcast_convert_type": lax.bitcast_convert_type,
    "round": lambda value, method: lax.round(value, lax.RoundingMethod(method)),
}


def _jax_operation(name: str, parameters: tuple[Any, ...]) -> Callable[..., Any]:
    """Return the function of JAX for an operation of :mod:`dse.equations`."""
    function = _JAX_OPERATIONS.get(name) or getattr(lax, name)
    return lambda *inputs: function(*inputs, *parameters)


def _choice_slope(is_chosen: Any, is_equal: Any, chosen_slope: Any, other_slope: Any, g: Any) -> Any:
    """Return the slope of an operand of a maximum or minimum, half of ``g`` where both operands are equal."""
    return jnp.where(is_chosen, chosen_slope, jnp.where(is_equal, 0.5 * g, other_slope))


def _case_rule(i: int) -> Slope:
    """Return the rule of case ``i`` of a selection: all of the slope where it is selected, else 0."""
    return lambda g, _, which, *cases: jnp.where(which.astype(jnp.int32) == i, g, 0.0)


def _jax_rule(name: str, parameters: tuple[Any, ...], i: int) -> Slope:
    """Return the rule of input ``i`` of an operation, from ``jax.vjp``."""

    def rule(g: Any, _: Any, *inputs: Any) -> Any:
        def of_input(value: Any) -> Any:
            return _jax_operation(name, parameters)(*inputs[:i], value, *inputs[i + 1 :])

        return jax.vjp(of_input, jnp.asarray(inputs[i]))[1](g)[0]

    return rule


#: Operations whose rules hold for arrays of NumPy and JAX alike.
_COMMON_RULES = ("add", "add_any", "sub", "mul", "div", "neg", "exp", "log", "square", "copy")

_CHOICE_RULES: dict[str, tuple[Slope, ...]] = {
    "max": (
        lambda g, _, x, y: _choice_slope(x > y, x == y, g, 0.0, g),
        lambda g, _, x, y: _choice_slope(x > y, x == y, 0.0, g, g),
    ),
    "min": (
        lambda g, _, x, y: _choice_slope(x < y, x == y, g, 0.0, g),
        lambda g, _, x, y: _choice_slope(x < y, x == y, 0.0, g, g),
    ),
}


def _slopes(name: str, parameters: tuple[Any, ...], n_inputs: int) -> Sequence[Slope | None]:
    """Return the slope of each input of an operation, None where there is none."""
    slopes = slope_rules(name, parameters, n_inputs)
    if name in _COMMON_RULES or not any(slopes):
        return slopes
    if name == "select_n":
        return [None, *map(_case_rule, range(n_inputs - 1))]
    return _CHOICE_RULES.get(name) or [_jax_rule(name, parameters, i) for i in range(n_inputs)]


@persistent_jit("target", "as_one", options=_OPTIONS)
def value_and_slopes(shared: Array, columns: Array, n_blocks: Array, *, target: Differentiated, as_one: bool) -> Array:
    """Return [1 + leaf, block, design] values, and slopes by the first leaves, of the first ``n_blocks`` blocks.

    Args:
        shared: [constant] numbers that all designs share.
        columns: [leaf, block, design].
        n_blocks: number of blocks that are computed.
        target: operations that are evaluated and differentiated.
        as_one: True for one function of XLA, for a processor.
    """
    with set_xla_metadata(**_AS_ONE if as_one else {}):
        values_and_slopes: Array = jax.jit(_evaluate_blocks, static_argnames="target")(
            shared, columns, n_blocks, target=target
        )
    return values_and_slopes


def _evaluate_blocks(shared: Array, columns: Array, n_blocks: Array, target: Differentiated) -> Array:
    """Return what :func:`value_and_slopes` does, 0 in blocks from ``n_blocks`` on."""
    numbers, (_, blocks, designs) = tuple(shared), columns.shape

    def of_block(i: Array, carry: Array) -> Array:
        rows = tuple(lax.dynamic_index_in_dim(columns, i, 1, keepdims=False))
        (value, *_), slopes = jax.vmap(lambda *rows: target(rows, numbers))(*rows)
        for number, row in enumerate((value, *slopes)):  # stacked, each would be computed from the beginning
            offset = (jnp.int32(number), jnp.int32(i), jnp.int32(0))
            carry = lax.dynamic_update_slice(carry, row[None, None], offset)
        return carry

    return lax.fori_loop(
        0, n_blocks, of_block, jnp.zeros((1 + target.n_differentiated, blocks, designs), columns.dtype)
    )


class Gradient:
    """A function of scalars whose first output is differentiated, over many designs.

    Args:
        function: as :class:`ScalarFunction` has it, by whose NumPy fewer than :data:`BLOCK` designs are differentiated.
    """

    def __init__(self, function: ScalarFunction) -> None:
        self._function = function
        self._programs: collections.OrderedDict[Any, Callable[..., np.ndarray]] = collections.OrderedDict()

    def over(self, count: int, by: Mapping[str, Any], *arguments: Any) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return the values [count] of the first output, and name → [count] its slopes.

        Args:
            count: designs.
            by: name → numbers [count], or one for all; the function's first argument.
            arguments: pytrees of its further arguments, whose leaves are arrays [count] or numbers for all.
        """
        leaves, structure = jax.tree.flatten((dict(by), *arguments))
        varying = tuple(i for i, value in enumerate(leaves) if i < len(by) or np.ndim(value))
        run = self.compiled(leaves, structure, varying, len(by)) if count >= BLOCK else None
        if run is None:
            numbers, slopes = self._function.batch_slopes(0, count, dict(by), *arguments)
            return jax.tree.leaves(numbers)[0], slopes
        outputs = run([leaves[i] for i in varying], count)
        return outputs[0], dict(zip(sorted(by), outputs[1:], strict=True))

    def compiled(
        self, leaves: Sequence[Any], structure: Any, varying: tuple[int, ...], n_by: int
    ) -> Callable[[Sequence[Any], int], np.ndarray] | None:
        """Return a function of (varying leaves, count) → [1 + leaf, design]; None for operations that NumPy lacks.

        Args:
            leaves: numbers of all leaves.
            structure: of the leaves.
            varying: indices of the leaves that are arguments; the others are constants.
            n_by: number of leaves, the first ones, by which it is differentiated.
        """
        constants = tuple(float(value) for i, value in enumerate(leaves) if i not in varying)
        key = structure, varying, constants, jnp.zeros(()).dtype
        if key not in self._programs:
            while len(self._programs) >= _MAX_PROGRAMS:
                self._programs.popitem(last=False)
            operations = self._function.folded(leaves, structure, varying)
            if operations is None:
                return None
            shared = jax.device_put(np.array(operations.constants[operations.n_literals :], operations.precision))
            self._programs[key] = functools.partial(_evaluate_in_threads, Differentiated(operations, n_by), shared)
        return self._programs[key]


def _evaluate_in_threads(target: Differentiated, shared: Array, columns: Sequence[Any], count: int) -> np.ndarray:
    """Return [1 + leaf, design] values and slopes, blocks computed in as many threads as there are processors."""
    on_processors, precision = jax.default_backend() == "cpu", target.operations.precision
    (max_blocks, block_size), threads = (_CPU_BLOCKS, processors()) if on_processors else (_DEVICE_BLOCKS, 1)
    blocks = -(-count // block_size)
    block_columns = [_padded(column, count, block_size).reshape(blocks, block_size) for column in columns]
    rows = np.empty((1 + target.n_differentiated, blocks, block_size), precision)
    run = _program(target, len(shared), (len(columns), max_blocks, block_size), on_processors)

    def share(thread: int) -> None:
        for first in range(thread * max_blocks, blocks, threads * max_blocks):
            padded_columns, n = (
                np.empty((len(columns), max_blocks, block_size), precision),
                min(max_blocks, blocks - first),
            )
            for number, column in enumerate(block_columns):
                padded_columns[number, :n] = column[first : first + n]
            rows[:, first : first + n] = np.asarray(run(shared, padded_columns, np.int32(n)))[:, :n]

    futures = [_threads().submit(share, thread) for thread in range(1, min(threads, -(-blocks // max_blocks)))]
    share(0)
    for future in futures:
        future.result()
    return rows.reshape(1 + target.n_differentiated, -1)[:, :count]


def _padded(column: Any, count: int, block_size: int) -> np.ndarray:
    """Return a column of designs, or one number for all, padded with its last value to whole blocks."""
    column = column if np.ndim(column) else np.full(count, column)
    return np.concatenate([column, np.full(-count % block_size, column[-1])]) if count % block_size else column


@functools.lru_cache(maxsize=_MAX_PROGRAMS)
def _program(target: Differentiated, n_shared: int, shape: tuple[int, ...], as_one: bool) -> Callable[..., Array]:
    """Return the compiled :func:`value_and_slopes` for ``n_shared`` numbers and columns of this shape."""
    precision = target.operations.precision
    shared, columns = (np.zeros(size, precision) for size in (n_shared, shape))
    return value_and_slopes.compiled(jax.device_put(shared), columns, np.int32(0), target=target, as_one=as_one)


@functools.cache
def _threads() -> ThreadPoolExecutor:
    """Return a pool with a thread for each processor, the same at each call."""
    return ThreadPoolExecutor(processors())


# --- the door ---------------------------------------------------------------------------------------------

_WHERE = "value_and_grad"


def value_and_grad(
    objective: str | Study | Callable[[Design], Scalar], design: Design, paths: Sequence[str]
) -> Callable[[Mapping[str, Any]], tuple[np.ndarray, dict[str, np.ndarray]]]:
    """Return a function of many designs that gives a metric of each and its gradient by some of their leaves.

    Reverse mode: 5 to 12 times the time of the metric alone, however many leaves there are. Fewer than 512 designs are
    evaluated by NumPy in some hundredths of a second; for more the first call compiles some seconds, and the program is
    kept on disk. The designs of a call are shared among the processors.

    Args:
        objective: a metric by name, of training or else of serving; a study, for its own objective; or a function of
            one design that gives a scalar and that JAX can trace.
        design: design whose leaves hold where a call gives no others.
        paths: leaves by which the metric is differentiated, by full path or any ending that is unique.

    Returns:
        A function of ``{path: numbers}``, arrays [n] or single numbers in SI units, of any leaves of the design. It
        gives the metric of the n designs in SI units as an array [n], and by the names in ``paths`` its slopes [n]:
        units of the metric over those of the leaf. Where no array is given n is 1.

    Raises:
        InputError: for an unknown metric or one that varies in steps, for a leaf that is unknown, that the design does
            not have or that is a choice; and when called, for arrays of several lengths or leaves the design lacks.

    >>> import numpy as np
    >>> import dse
    >>> one = dse.design("gpt-3-175b", "selene", tp=8, pp=8, dp=16, recompute="full")
    >>> step_time = dse.value_and_grad("step_time", one, ["memory.bandwidth", "scale_out.bandwidth"])
    >>> seconds, slopes = step_time({"memory.bandwidth": np.array([1.5e12, 2e12, 3e12])})
    >>> seconds.shape, bool((slopes["memory.bandwidth"] < 0.0).all())
    ((3,), True)
    """
    fuse_outputs()
    reuse_memory()
    gradient, leaf_info = _gradient(objective), leaves_of(design)

    @functools.cache
    def path_of(name: str) -> str:
        path = leaf_path(name, _WHERE)
        if path not in leaf_info or leaf(design, path) is None:
            raise InputError(_WHERE, repr(name), "leaves that the design has", "give the design a value of it")
        return path

    path_by_name = {name: path_of(name) for name in paths}
    for name, path in path_by_name.items():
        if "enum" in leaf_info[path]:
            raise InputError(_WHERE, repr(name), "leaves that are numbers", "evaluate each of its choices")
    base_values = {path: leaf(design, path) for path in sorted(path_by_name.values())}

    @functools.cache
    def compiled(extra_paths: tuple[str, ...]) -> Callable[[Sequence[Any], int], np.ndarray] | None:
        """Return the program for designs that also differ in these leaves."""
        leaves, structure = jax.tree.flatten((base_values, {path: leaf(design, path) for path in extra_paths}, design))
        return gradient.compiled(leaves, structure, tuple(range(len(base_values) + len(extra_paths))), len(base_values))

    def evaluate(values: Mapping[str, Any]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        arrays = {path_of(name): np.asarray(value) for name, value in values.items()}
        shapes = {value.shape for value in arrays.values()} - {()}
        if len(shapes) > 1 or any(len(shape) != 1 for shape in shapes):
            raise InputError(_WHERE, f"arrays of shapes {sorted(shapes)}", "arrays [n] of one length", "stack them")
        count = shapes.pop()[0] if shapes else 1
        gradient_values = {path: arrays.pop(path, value) for path, value in base_values.items()}
        other_values = dict(sorted(arrays.items()))
        run = compiled(tuple(other_values)) if count >= BLOCK else None
        if run is None:
            value, slopes = gradient.over(count, gradient_values, other_values, design)
        else:
            value, *rows = run([*gradient_values.values(), *other_values.values()], count)
            slopes = dict(zip(gradient_values, rows, strict=True))
        return value, {name: slopes[path] for name, path in path_by_name.items()}

    return evaluate


@functools.lru_cache(maxsize=32)
def _gradient(objective: str | Study | Callable[[Design], Scalar]) -> Gradient:
    """Return the gradient of a function of (leaves by path, further leaves, the design that has the others)."""
    if callable(objective):
        return Gradient(ScalarFunction(_function_of_leaves(objective), None))
    study, metric = _metric_of(objective)

    def value(design: Design) -> Scalar:
        return getattr(study.evaluate(design), metric)

    return Gradient(ScalarFunction(_function_of_leaves(value), f"{study.name} {metric}" if study.is_builtin else None))


def _metric_of(objective: str | Study) -> tuple[Study, str]:
    """Return the study and the name of its metric; InputError for a name that is no smooth metric of any study."""
    if isinstance(objective, Study):
        return objective, objective.objective
    study = next((candidate for candidate in STUDIES.values() if objective in candidate.smooth), None)
    if study is None:
        metrics = {name for candidate in STUDIES.values() for name in candidate.smooth}
        raise unknown_name(_WHERE, objective, metrics, "metrics that vary smoothly")
    return study, objective


def _function_of_leaves(function: Callable[[Design], Scalar]) -> Callable[..., tuple[tuple[Scalar], None]]:
    """Return a function of (leaf path → value, further ones, design) → ((value,), None), from one of a design."""

    def value(
        gradient_values: dict[str, Scalar], other_values: dict[str, Scalar], design: Design
    ) -> tuple[tuple[Scalar], None]:
        return (function(replace(design, gradient_values | other_values)),), None

    return value
