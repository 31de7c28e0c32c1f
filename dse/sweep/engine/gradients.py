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

from dse.designs.leaves import leaf, leaf_path, leaves_of, replace
from dse.doors import recording
from dse.doors.folding import folded
from dse.doors.scalars import ScalarFunction
from dse.doors.scalars.operations import Operations
from dse.doors.scalars.slopes import FLAT, RULES, Rule, backward_steps
from dse.doors.studies import STUDIES
from dse.doors.study import Study
from dse.errors import InputError, unknown_name
from dse.io.environment import fuse_outputs, processors, reuse_memory
from dse.sweep.engine.programs import FAST, persistent_jit
from dse.types import Design, Scalar

#: Fewer designs are differentiated by NumPy, which compiles nothing.
BLOCK = 512

#: (blocks, designs of a block) of a call of the program, on processors and elsewhere: as measured, blocks half or twice
#: as long take as long or longer. A thread begins for every call.
_SHAPE, _SHAPE_ELSEWHERE = (64, 64), (256, 512)

#: Options of XLA for processors: loops by the older of its emitters too, half as many of them.
_OPTIONS = FAST | {"xla_cpu_use_fusion_emitters": False}

#: What has XLA make one function for processors of all loops over a block, in the place of some hundred and fifty.
_AS_ONE = {"inlineable": "false", "xla_cpu_small_call": "true"}

#: Functions of shared numbers that are kept at hand.
_MOST_KEPT = 8


@dataclasses.dataclass(frozen=True, eq=False)
class Differentiated:
    """Operations of which the first output is differentiated by their first ``n_by`` inputs, as a static argument.

    Two are equal whose operations are, whatever the numbers are that all designs share.
    """

    operations: Operations
    n_by: int
    can_be_kept = True

    @functools.cached_property
    def _text(self) -> str:
        found = self.operations
        literals = [(str(value.dtype), value.item()) for value in found.constants[: found.n_literals]]
        made_from = literals, *found[1:4], found.precision, self.n_by
        return hashlib.sha256(str(made_from).encode()).hexdigest()

    def __str__(self) -> str:
        return self._text

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Differentiated) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __lt__(self, other: Any) -> bool:
        return self._text < str(other)

    def __call__(self, rows: Sequence[Any], shared: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """The outputs of one design, and the slopes of the first; ``shared``: the constants that are no literals."""
        number = jax.ShapeDtypeStruct((), self.operations.precision)
        whole, structure = recording.trace(self._forth_and_back, [number] * len(rows), [number] * len(shared))
        outputs, slopes = jax.tree.unflatten(structure, folded(whole, {})(*rows, *shared))
        return outputs, slopes

    def _forth_and_back(self, rows: Sequence[Any], shared: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        found, by, target = self.operations, range(self.n_by), self.operations.outputs[0]
        values: dict[int, Any] = dict(enumerate((*rows, *found.constants[: found.n_literals], *shared)))
        for name, given, inputs, output in found.operations:
            values[output] = _in_jax(name, given)(*(values[i] for i in inputs))
        values[target] = jnp.asarray(values[target], found.precision)
        slopes: dict[int, Any] = {target: jnp.ones_like(values[target])}
        for inputs, output, rules in backward_steps(found, by, target, _rules):
            slope = slopes.get(output) if output in by else slopes.pop(output, None)
            for i, rule in rules if slope is not None else ():
                part = rule(slope, values[output], *(values[k] for k in inputs))
                slopes[i] = slopes[i] + part if i in slopes else part
        return [values[i] for i in found.outputs], [slopes.get(i, jnp.zeros_like(values[target])) for i in by]


#: Operations that JAX names otherwise, or composes.
_OTHERWISE: dict[str, Callable[..., Any]] = {
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


def _in_jax(name: str, given: tuple[Any, ...]) -> Callable[..., Any]:
    """What computes an operation of :mod:`dse.doors.scalars.operations` by JAX."""
    function = _OTHERWISE.get(name) or getattr(lax, name)
    return lambda *inputs: function(*inputs, *given)


def _where(chosen: Any, equal: Any, chosen_slope: Any, otherwise: Any, g: Any) -> Any:
    """The slope of an operand that is chosen or not; half of it where both are equal."""
    return jnp.where(chosen, chosen_slope, jnp.where(equal, 0.5 * g, otherwise))


def _case(i: int) -> Rule:
    return lambda g, _, which, *cases: jnp.where(which.astype(jnp.int32) == i, g, 0.0)


def _by_jax(name: str, given: tuple[Any, ...], i: int) -> Rule:
    """The rule that JAX has."""

    def rule(g: Any, _: Any, *inputs: Any) -> Any:
        def of_input(value: Any) -> Any:
            return _in_jax(name, given)(*inputs[:i], value, *inputs[i + 1 :])

        return jax.vjp(of_input, jnp.asarray(inputs[i]))[1](g)[0]

    return rule


#: Operations whose rules hold for arrays of NumPy and JAX alike.
_SHARED = ("add", "add_any", "sub", "mul", "div", "neg", "exp", "log", "square", "copy")

_OWN: dict[str, tuple[Rule, ...]] = {
    "max": (lambda g, _, x, y: _where(x > y, x == y, g, 0.0, g), lambda g, _, x, y: _where(x > y, x == y, 0.0, g, g)),
    "min": (lambda g, _, x, y: _where(x < y, x == y, g, 0.0, g), lambda g, _, x, y: _where(x < y, x == y, 0.0, g, g)),
}


def _rules(name: str, given: tuple[Any, ...], n_inputs: int) -> Sequence[Rule | None]:
    """The rule of each input of an operation; None where there is no slope."""
    if name in FLAT or (name == "convert_element_type" and np.dtype(*given).kind != "f"):
        return (None,) * n_inputs
    if name == "select_n":
        return [None, *map(_case, range(n_inputs - 1))]
    return RULES[name] if name in _SHARED else _OWN.get(name) or [_by_jax(name, given, i) for i in range(n_inputs)]


@persistent_jit("target", "as_one", options=_OPTIONS)
def value_and_slopes(shared: Array, columns: Array, n_blocks: Array, *, target: Differentiated, as_one: bool) -> Array:
    """[1 + leaf, block, design] values, and slopes by each of the first leaves, of the first ``n_blocks`` blocks.

    Args:
        shared: [constant] numbers that all designs share.
        columns: [leaf, block, design].
        n_blocks: how many are computed.
        target: what.
        as_one: whether XLA makes one function of it, for a processor.
    """
    with set_xla_metadata(**_AS_ONE if as_one else {}):
        found: Array = jax.jit(_by_block, static_argnames="target")(shared, columns, n_blocks, target=target)
    return found


def _by_block(shared: Array, columns: Array, n_blocks: Array, target: Differentiated) -> Array:
    numbers, (_, blocks, designs) = tuple(shared), columns.shape

    def of_block(i: Array, found: Array) -> Array:
        rows = tuple(lax.dynamic_index_in_dim(columns, i, 1, keepdims=False))
        (value, *_), slopes = jax.vmap(lambda *rows: target(rows, numbers))(*rows)
        for number, part in enumerate((value, *slopes)):  # stacked, each would be computed from the beginning
            place = (jnp.int32(number), jnp.int32(i), jnp.int32(0))
            found = lax.dynamic_update_slice(found, part[None, None], place)
        return found

    return lax.fori_loop(0, n_blocks, of_block, jnp.zeros((1 + target.n_by, blocks, designs), columns.dtype))


class Gradient:
    """A function of scalars that gives one number first, with its gradient, over many designs.

    Args:
        function: as :class:`ScalarFunction` has it, by whose NumPy fewer than :data:`BLOCK` designs are differentiated.
    """

    def __init__(self, function: ScalarFunction) -> None:
        self._function = function
        self._kept: collections.OrderedDict[Any, Callable[..., np.ndarray]] = collections.OrderedDict()

    def over(self, count: int, by: Mapping[str, Any], *others: Any) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Values [count], and by name the slope [count] of each.

        Args:
            count: designs.
            by: name → numbers [count], or one for all; the function's first argument.
            others: pytrees of its further arguments, whose leaves are arrays [count] or numbers for all.
        """
        leaves, structure = jax.tree.flatten((dict(by), *others))
        opened = tuple(i for i, value in enumerate(leaves) if i < len(by) or np.ndim(value))
        made = self.compiled(leaves, structure, opened, len(by)) if count >= BLOCK else None
        if made is None:
            numbers, slopes = self._function.slopes_over(0, count, dict(by), *others)
            return jax.tree.leaves(numbers)[0], slopes
        found = made([leaves[i] for i in opened], count)
        return found[0], dict(zip(sorted(by), found[1:], strict=True))

    def compiled(
        self, leaves: Sequence[Any], structure: Any, opened: tuple[int, ...], n_by: int
    ) -> Callable[[Sequence[Any], int], np.ndarray] | None:
        """A function of (the leaves that are opened, count) → [1 + leaf, design]; None for operations unknown to NumPy.

        The first ``n_by`` of the leaves are those by which it is differentiated, ``opened`` these and others.
        """
        held = tuple(float(value) for i, value in enumerate(leaves) if i not in opened)
        key = structure, opened, held, jnp.zeros(()).dtype
        if key not in self._kept:
            while len(self._kept) >= _MOST_KEPT:
                self._kept.popitem(last=False)
            found = self._function.folded(leaves, structure, opened)
            if found is None:
                return None
            shared = jax.device_put(np.array(found.constants[found.n_literals :], found.precision))
            self._kept[key] = functools.partial(_in_blocks, Differentiated(found, n_by), shared)
        return self._kept[key]


def _in_blocks(target: Differentiated, shared: Array, columns: Sequence[Any], count: int) -> np.ndarray:
    """[1 + leaf, design] values and slopes: blocks side by side in as many threads as there are processors."""
    on_processors, precision = jax.default_backend() == "cpu", target.operations.precision
    (most, width), threads = (_SHAPE, processors()) if on_processors else (_SHAPE_ELSEWHERE, 1)
    blocks = -(-count // width)
    by_block = [_padded(column, count, width).reshape(blocks, width) for column in columns]
    found = np.empty((1 + target.n_by, blocks, width), precision)
    run = _program(target, len(shared), (len(columns), most, width), on_processors)

    def share(thread: int) -> None:
        for first in range(thread * most, blocks, threads * most):
            given, n = np.empty((len(columns), most, width), precision), min(most, blocks - first)
            for number, column in enumerate(by_block):
                given[number, :n] = column[first : first + n]
            found[:, first : first + n] = np.asarray(run(shared, given, np.int32(n)))[:, :n]

    others = [_threads().submit(share, thread) for thread in range(1, min(threads, -(-blocks // most)))]
    share(0)
    for other in others:
        other.result()
    return found.reshape(1 + target.n_by, -1)[:, :count]


def _padded(column: Any, count: int, width: int) -> np.ndarray:
    """A column of designs, or one number for all, padded with its last value to whole blocks."""
    column = column if np.ndim(column) else np.full(count, column)
    return np.concatenate([column, np.full(-count % width, column[-1])]) if count % width else column


@functools.lru_cache(maxsize=_MOST_KEPT)
def _program(target: Differentiated, n_shared: int, shape: tuple[int, ...], as_one: bool) -> Callable[..., Array]:
    """The program for a number of shared values and [leaf, block, design] others, looked up once."""
    precision = target.operations.precision
    shared, columns = (np.zeros(size, precision) for size in (n_shared, shape))
    return value_and_slopes.compiled(jax.device_put(shared), columns, np.int32(0), target=target, as_one=as_one)


@functools.cache
def _threads() -> ThreadPoolExecutor:
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
    gradient, known = _gradient(objective), leaves_of(design)

    @functools.cache
    def path_of(name: str) -> str:
        path = leaf_path(name, _WHERE)
        if path not in known or leaf(design, path) is None:
            raise InputError(_WHERE, repr(name), "leaves that the design has", "give the design a value of it")
        return path

    by = {name: path_of(name) for name in paths}
    for name, path in by.items():
        if "enum" in known[path]:
            raise InputError(_WHERE, repr(name), "leaves that are numbers", "evaluate each of its choices")
    plain = {path: leaf(design, path) for path in sorted(by.values())}

    @functools.cache
    def compiled(others: tuple[str, ...]) -> Callable[[Sequence[Any], int], np.ndarray] | None:
        """What is compiled for designs that differ in these leaves too."""
        leaves, structure = jax.tree.flatten((plain, {path: leaf(design, path) for path in others}, design))
        return gradient.compiled(leaves, structure, tuple(range(len(plain) + len(others))), len(plain))

    def found(values: Mapping[str, Any]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        given = {path_of(name): np.asarray(value) for name, value in values.items()}
        lengths = {value.shape for value in given.values()} - {()}
        if len(lengths) > 1 or any(len(shape) != 1 for shape in lengths):
            raise InputError(_WHERE, f"arrays of shapes {sorted(lengths)}", "arrays [n] of one length", "stack them")
        count = lengths.pop()[0] if lengths else 1
        moved = {path: given.pop(path, value) for path, value in plain.items()}
        others = dict(sorted(given.items()))
        run = compiled(tuple(others)) if count >= BLOCK else None
        if run is None:
            value, slopes = gradient.over(count, moved, others, design)
        else:
            value, *rows = run([*moved.values(), *others.values()], count)
            slopes = dict(zip(moved, rows, strict=True))
        return value, {name: slopes[path] for name, path in by.items()}

    return found


@functools.lru_cache(maxsize=32)
def _gradient(objective: str | Study | Callable[[Design], Scalar]) -> Gradient:
    """The gradient of a function of (leaves by path, further leaves, the design that has the others)."""
    if callable(objective):
        return Gradient(ScalarFunction(_at_leaves(objective), None))
    study, metric = _metric_of(objective)

    def value(one: Design) -> Scalar:
        return getattr(study.evaluate(one), metric)

    return Gradient(ScalarFunction(_at_leaves(value), f"{study.name} {metric}" if study.is_own else None))


def _metric_of(objective: str | Study) -> tuple[Study, str]:
    """The study and the name of the metric that is meant."""
    if isinstance(objective, Study):
        return objective, objective.objective
    study = next((one for one in STUDIES.values() if objective in one.smooth), None)
    if study is None:
        known = {name for one in STUDIES.values() for name in one.smooth}
        raise unknown_name(_WHERE, objective, known, "metrics that vary smoothly")
    return study, objective


def _at_leaves(function: Callable[[Design], Scalar]) -> Callable[..., tuple[tuple[Scalar], None]]:
    def value(by: dict[str, Scalar], others: dict[str, Scalar], design: Design) -> tuple[tuple[Scalar], None]:
        return (function(replace(design, by | others)),), None

    return value
