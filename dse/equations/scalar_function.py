"""A function of scalars at one point, or at some thousand: its equations by NumPy, one after the other.

JAX evaluates one design in seconds: operation by operation most of the time goes into dispatch, and compiling the model
with its gradient takes a quarter of a minute. Here a function of scalars is traced once, and its equations (those of
:mod:`dse.equations.equation`) are run in JAX's precision on NumPy's numbers, or on arrays of them: what XLA computes
but for the last bits of exponentials and logarithms. The list of operations is kept (:mod:`dse.io.cache`), so that a
second process does not trace either. Gradients are those of the same list, backwards.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dse.equations.operations import Operations, lower_equations
from dse.equations.primitives import RefusedPrimitiveError
from dse.errors import Notice
from dse.io import cache
from dse.io.environment import default_precision, jax_version, software_versions
from dse.io.files import folder_digest, folder_of
from dse.types.trees import Structure, flatten, from_jax, tree_leaves, tree_map, tree_structure

if TYPE_CHECKING:
    from dse.equations.equation import Equations

#: Designs at once: so many that a call of NumPy costs little beside its work, so few that all values stay in the cache;
#: a gradient needs every value twice.
_BATCH, _GRADIENT_BATCH = 8192, 1024


#: Count of functions with the numbers of one base that are kept for the next call.
_MAX_FUNCTIONS = 8

#: Leaves that are open → numbers, what comes with them, slopes of the first number.
_Run = Callable[[Sequence[Any]], tuple[Any, Any, list[Any]]]


class ScalarFunction:
    """A pure function of pytrees of scalars that gives (a pytree of scalars, anything else that is the same for all).

    Called with arrays of one length it gives arrays, where a number is the same for all a number.

    Args:
        function: of arguments that are traced.
        cache_key: what the function depends on besides the code of the package; None for one that is not cached.
        tracer: gives (equations, JAX's structure of the outputs, what comes beside) for inputs of a structure, where
            somebody else has them, in single precision; by default the function is traced.
    """

    def __init__(
        self,
        function: Callable[..., tuple[Any, Any]],
        cache_key: str | None,
        tracer: Callable[[Any], tuple[Equations, Any, Any]] | None = None,
    ) -> None:
        self._function, self._cache_key, self._tracer = function, cache_key, tracer or self._trace_function
        self._is_single = tracer is not None
        self._operations_by_key: dict[Hashable, Operations | None] = {}
        self._runs_by_key: dict[Hashable, _Run] = {}

    def __call__(self, *arguments: Any) -> tuple[Any, Any]:
        """Return (pytree of NumPy numbers, static outputs); arrays of one length as leaves give arrays."""
        leaves, structure = flatten(arguments)
        numbers, static, _ = self._run(structure, leaves, range(len(leaves)), ())(leaves)
        return numbers, static

    def slopes(self, by: int, *arguments: Any) -> tuple[Any, Any, Any]:
        """Return (numbers, static outputs, gradient of the first number by argument ``by``, a pytree like it)."""
        leaves, structure = flatten(arguments)
        numbers, static, slopes = self._run(structure, leaves, range(len(leaves)), _leaf_positions(by, arguments))(
            leaves
        )
        return numbers, static, tree_structure(arguments[by]).unflatten(slopes)

    def batch_values(self, count: int, *arguments: Any) -> Any:
        """Return the pytree of numbers as arrays [count]; leaves of the arguments are such arrays, or one number.

        Leaves may also be [count, 1] and [1, inner]: then the numbers are [count, inner], and what depends on one of
        both alone is computed that often alone.
        """
        return self._in_batches(count, arguments, (), _BATCH)[0]

    def batch_slopes(self, by: int, count: int, *arguments: Any) -> tuple[Any, Any]:
        """Return (numbers, gradient of the first one by argument ``by``), both pytrees of arrays [count]."""
        numbers, slopes = self._in_batches(count, arguments, _leaf_positions(by, arguments), _GRADIENT_BATCH)
        return numbers, tree_structure(arguments[by]).unflatten(slopes)

    def _in_batches(
        self, count: int, arguments: tuple[Any, ...], by: Sequence[int], batch: int
    ) -> tuple[Any, list[Any]]:
        """Return (numbers, slopes of the leaves ``by``) as arrays [count], at most ``batch`` designs at once."""
        leaves, structure = flatten(arguments)
        open_leaves = [i for i, leaf in enumerate(leaves) if np.ndim(leaf) or i in by]
        run = self._run(structure, leaves, open_leaves, by)
        inner_shape = np.broadcast_shapes(*(np.shape(leaf)[1:] for leaf in leaves if np.ndim(leaf)))
        batch, batches = max(1, batch // math.prod(inner_shape)), []
        for start in range(0, max(count, 1), batch):
            rows = slice(start, min(start + batch, count))
            numbers, _, slopes = run([_batch_slice(leaves[i], rows, count) for i in open_leaves])
            shape = rows.stop - start, *inner_shape
            batches.append(tree_map(lambda value, shape=shape: np.broadcast_to(value, shape), (numbers, slopes)))
        results: tuple[Any, list[Any]] = tree_map(lambda *arrays: np.concatenate(arrays), *batches)
        return results

    def _run(self, structure: Structure, leaves: Sequence[Any], open_leaves: Sequence[int], by: Sequence[int]) -> _Run:
        """Return the cached function of the leaves ``open_leaves`` → (numbers, static outputs, slopes by ``by``)."""
        fixed_values = (
            () if len(open_leaves) == len(leaves) else tuple(map(float, (v for v in leaves if not np.ndim(v))))
        )
        key = structure, self._precision, tuple(open_leaves), tuple(by), fixed_values
        if key not in self._runs_by_key:
            while len(self._runs_by_key) >= _MAX_FUNCTIONS:
                del self._runs_by_key[next(iter(self._runs_by_key))]
            self._runs_by_key[key] = self._build_run(structure, leaves, open_leaves, by)
        return self._runs_by_key[key]

    def folded(
        self, leaves: Sequence[Any], structure: Structure, open_leaves: Sequence[int], simply: bool = True
    ) -> Operations | None:
        """Return the operations on ``open_leaves`` with the other leaves fixed, None with unknown primitives."""
        operations = self._operations(structure)
        return (
            operations.folded(leaves, open_leaves, simply)
            if operations and len(open_leaves) < len(leaves)
            else operations
        )

    def _build_run(
        self, structure: Structure, leaves: Sequence[Any], open_leaves: Sequence[int], by: Sequence[int]
    ) -> _Run:
        """Return the function of :meth:`_run`, by NumPy or, with unknown primitives, compiled by JAX."""
        operations = self.folded(leaves, structure, open_leaves, simply=not by)
        if operations is None:
            return self._jax_run(structure, leaves, open_leaves, by)
        return operations.to_function([list(open_leaves).index(i) for i in by])

    def operations(self, *arguments: Any) -> Operations | None:
        """Return the operations for arguments of this structure, None for unknown primitives (warns the first time)."""
        return self._operations(tree_structure(arguments))

    def _operations(self, structure: Structure) -> Operations | None:
        """Return the operations for a tree structure, None for unknown primitives (warns the first time)."""
        key = _, precision = structure, self._precision
        if key not in self._operations_by_key:

            def lowered() -> Operations:
                return lower_equations(*self._trace(structure), precision)

            operations: Operations | None = None
            try:
                if self._cache_key is None:
                    operations = lowered()
                else:
                    code = folder_digest(folder_of(self._function))
                    cache_key = f"operations {software_versions()} {code} {self._cache_key} {precision} {structure}"
                    operations = Operations(*cache.get_or_compute(cache_key, lambda: tuple(lowered())))
            except RefusedPrimitiveError as refused:
                warnings.warn(_jax_fallback_note(refused.primitive), Notice, stacklevel=2)
            self._operations_by_key[key] = operations
        return self._operations_by_key[key]

    @property
    def _precision(self) -> str:
        """Name of the data type of numbers: ``float32``, or ``float64`` where JAX has it enabled."""
        return "float32" if self._is_single else default_precision()

    def _jax_run(
        self, structure: Structure, leaves: Sequence[Any], open_leaves: Sequence[int], by: Sequence[int]
    ) -> _Run:
        """Return the function of :meth:`_run` compiled by JAX, for models with unknown primitives."""
        import jax

        equations, outputs, static = self._trace(structure)
        number_type = np.dtype(self._precision).type

        def values(differentiated: dict[int, Any], leaf_values: dict[int, Any]) -> tuple[Any, list[Any]]:
            numbers = equations(*(leaf_values | differentiated).values())
            return (numbers[0] if by else 0.0), numbers

        single: Callable[..., Any] = jax.grad(values, has_aux=True) if by else values
        batched = jax.jit(jax.vmap(single))

        def run(open_values: Sequence[Any]) -> tuple[Any, Any, list[Any]]:
            values_by_leaf = dict(enumerate(leaves)) | dict(zip(open_leaves, open_values, strict=True))
            leaf_values = dict(
                zip(values_by_leaf, np.broadcast_arrays(*map(number_type, values_by_leaf.values())), strict=True)
            )
            shape = leaf_values[0].shape if leaf_values else ()
            flat = {i: value.reshape(-1) for i, value in leaf_values.items()} if shape else leaf_values
            results = (batched if shape else single)({i: flat[i] for i in by}, flat)
            slopes, numbers = jax.tree.map(lambda value: value.reshape(shape), results) if shape else results
            return outputs.unflatten(numbers), static, list(slopes.values()) if by else []

        return run

    def _trace(self, structure: Structure) -> tuple[Equations, Structure, Any]:
        """Return (equations, structure of the outputs, static outputs) for inputs of a tree structure."""
        equations, outputs, static = self._tracer(structure)
        return equations, from_jax(outputs), static

    def _trace_function(self, structure: Structure) -> tuple[Equations, Any, Any]:
        """Record the function for a tree structure: (equations, structure of the outputs, static outputs)."""
        import jax

        from dse.equations import recording

        static: list[Any] = []

        def numbers(*arguments: Any) -> Any:
            outputs, static_outputs = self._function(*arguments)
            static.append(static_outputs)
            return outputs

        inputs = structure.unflatten([jax.ShapeDtypeStruct((), self._precision)] * structure.num_leaves)
        equations, output_structure = recording.trace(numbers, *inputs)
        return equations, output_structure, static[0]


def _batch_slice(leaf: Any, rows: slice, count: int) -> Any:
    """Return the slice ``rows`` of a leaf with ``count`` rows, and any other leaf unchanged."""
    return leaf[rows] if np.ndim(leaf) and len(leaf) == count else leaf


def _leaf_positions(by: int, arguments: Sequence[Any]) -> range:
    """Return the positions, among the leaves of all arguments, of those of the argument of index ``by``."""
    sizes = [len(tree_leaves(argument)) for argument in arguments[: by + 1]]
    return range(sum(sizes[:-1]), sum(sizes))


def _jax_fallback_note(primitive: str) -> str:
    """Return the text of a warning that designs are compiled by JAX because of an unknown primitive."""
    return (
        f"note: the model uses {primitive!r} of JAX {jax_version()}, which dse cannot evaluate by NumPy: it compiles "
        "instead, which takes some seconds to half a minute for each kind of design in every process; figures are the "
        "same. The package's own models do not need it with the versions of constraints.txt"
    )
