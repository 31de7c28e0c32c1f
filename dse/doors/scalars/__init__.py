"""The model at one design, or at some thousand: its equations by NumPy, one after the other, in some milliseconds.

JAX evaluates one design in seconds: operation by operation most of the time goes into dispatch, and compiling the model
with its gradient takes a quarter of a minute. Here a function of scalars is traced once, and its equations (those of
:mod:`dse.doors.equations`) are run in JAX's precision on NumPy's numbers, or on arrays of them: what XLA computes but
for the last bits of exponentials and logarithms. The list of operations is kept (:mod:`dse.io.cache`), so that a second
process does not trace either. Gradients are those of the same list, backwards (:mod:`dse.doors.scalars.slopes`).
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from dse.doors.scalars.operations import Operations, UnknownPrimitiveError, lowered
from dse.doors.scalars.slopes import gradient
from dse.errors import Notice
from dse.io import cache
from dse.io.files import code_digest, folder_digest, folder_of
from dse.types import Design, Metrics, ServingMetrics

if TYPE_CHECKING:
    from dse.doors.equations import Equations

#: Designs at once: so many that a call of NumPy costs little beside its work, so few that all values stay in the cache;
#: a gradient needs every value twice.
_BATCH, _BATCH_OF_SLOPES = 8192, 1024


#: Functions with the numbers of one base that are kept for the next call.
_MOST_BOUND = 8

#: Leaves that are open → numbers, what comes with them, slopes of the first number.
_Run = Callable[[Sequence[Any]], tuple[Any, Any, list[Any]]]


class ScalarFunction:
    """A pure function of pytrees of scalars that gives (a pytree of scalars, anything else that is the same for all).

    Called with arrays of one length it gives arrays, where a number is the same for all a number.

    Args:
        function: of arguments that are traced.
        made_from: what the function depends on besides the code of the package; None for one that is not kept.
        traced: gives (equations, structure of the outputs, what comes beside) for inputs of a structure, where somebody
            else has them, in single precision; by default the function is traced.
    """

    def __init__(
        self,
        function: Callable[..., tuple[Any, Any]],
        made_from: str | None,
        traced: Callable[[Any], tuple[Equations, Any, Any]] | None = None,
    ) -> None:
        self._function, self._made_from, self._trace = function, made_from, traced or self._traced
        self._is_single = traced is not None
        self._known: dict[Hashable, Operations | None] = {}
        self._bound: dict[Hashable, _Run] = {}

    def __call__(self, *arguments: Any) -> tuple[Any, Any]:
        """The function's value, of NumPy's numbers."""
        leaves, structure = jax.tree.flatten(arguments)
        numbers, beside, _ = self._run(structure, leaves, range(len(leaves)), ())(leaves)
        return numbers, beside

    def slopes(self, by: int, *arguments: Any) -> tuple[Any, Any, Any]:
        """The function's value, and the gradient of its first number by argument number ``by``: alike to that."""
        leaves, structure = jax.tree.flatten(arguments)
        numbers, beside, slopes = self._run(structure, leaves, range(len(leaves)), _places(by, arguments))(leaves)
        return numbers, beside, jax.tree.unflatten(jax.tree.structure(arguments[by]), slopes)

    def over(self, count: int, *arguments: Any) -> Any:
        """The numbers alone, as arrays [count]; leaves of the arguments are such arrays, or one number for all.

        Leaves may also be [count, 1] and [1, inner]: then the numbers are [count, inner], and what depends on one of
        both alone is computed that often alone.
        """
        return self._in_parts(count, arguments, (), _BATCH)[0]

    def slopes_over(self, by: int, count: int, *arguments: Any) -> tuple[Any, Any]:
        """Numbers and gradient of :meth:`slopes`, as arrays [count]."""
        numbers, slopes = self._in_parts(count, arguments, _places(by, arguments), _BATCH_OF_SLOPES)
        return numbers, jax.tree.unflatten(jax.tree.structure(arguments[by]), slopes)

    def _in_parts(self, count: int, arguments: tuple[Any, ...], by: Sequence[int], batch: int) -> tuple[Any, list[Any]]:
        """Numbers and slopes, a batch at a time; what depends on single numbers alone is computed once for all."""
        leaves, structure = jax.tree.flatten(arguments)
        opened = [i for i, leaf in enumerate(leaves) if np.ndim(leaf) or i in by]
        run = self._run(structure, leaves, opened, by)
        inner = np.broadcast_shapes(*(np.shape(leaf)[1:] for leaf in leaves if np.ndim(leaf)))
        batch, parts = max(1, batch // math.prod(inner)), []
        for at in range(0, max(count, 1), batch):
            part = slice(at, min(at + batch, count))
            numbers, _, slopes = run([_of_part(leaves[i], part, count) for i in opened])
            shape = part.stop - at, *inner
            parts.append(jax.tree.map(lambda value, shape=shape: np.broadcast_to(value, shape), (numbers, slopes)))
        found: tuple[Any, list[Any]] = jax.tree.map(lambda *arrays: np.concatenate(arrays), *parts)
        return found

    def _run(self, structure: Any, leaves: Sequence[Any], opened: Sequence[int], by: Sequence[int]) -> _Run:
        """What gives value and slopes from the leaves that are open, all of them or some."""
        held = () if len(opened) == len(leaves) else tuple(map(float, (v for v in leaves if not np.ndim(v))))
        key = structure, self._precision, tuple(opened), tuple(by), held
        if key not in self._bound:
            while len(self._bound) >= _MOST_BOUND:
                del self._bound[next(iter(self._bound))]
            self._bound[key] = self._made(structure, leaves, opened, by)
        return self._bound[key]

    def folded(
        self, leaves: Sequence[Any], structure: Any, opened: Sequence[int], simply: bool = True
    ) -> Operations | None:
        """The operations on leaves ``opened`` alone (:meth:`Operations.folded`); None where some are unknown."""
        found = self._operations(structure)
        return found.folded(leaves, opened, simply) if found and len(opened) < len(leaves) else found

    def _made(self, structure: Any, leaves: Sequence[Any], opened: Sequence[int], by: Sequence[int]) -> _Run:
        found = self.folded(leaves, structure, opened, simply=not by)
        if found is None:
            return self._by_jax(structure, leaves, opened, by)
        return gradient(found, [list(opened).index(i) for i in by]) if by else found.bound()

    def operations(self, *arguments: Any) -> Operations | None:
        """The operations of arguments of this structure; None where the model has some that are none of ours."""
        return self._operations(jax.tree.structure(arguments))

    def _operations(self, structure: Any) -> Operations | None:
        """The function's operations; None for a model with operations that are none of ours, which is reported."""
        key = structure, self._precision
        if key not in self._known:
            try:
                self._known[key] = self._kept(structure)
            except UnknownPrimitiveError as unknown:
                warnings.warn(_by_jax_told(str(unknown)), Notice, stacklevel=2)
                self._known[key] = None
        return self._known[key]

    @property
    def _precision(self) -> str:
        return "float32" if self._is_single else str(jax.dtypes.canonicalize_dtype(np.float64))

    def _kept(self, structure: Any) -> Operations:
        precision = self._precision
        if self._made_from is None:
            return lowered(*self._trace(structure), precision)
        code = folder_digest(folder_of(self._function))
        made_from = f"operations {_circumstances()} {code} {self._made_from} {precision} {structure}"
        return Operations(*cache.value(made_from, lambda: tuple(lowered(*self._trace(structure), precision))))

    def _by_jax(self, structure: Any, leaves: Sequence[Any], opened: Sequence[int], by: Sequence[int]) -> _Run:
        """The same by JAX: for models of others with operations that are none of ours."""
        found, outputs, static = self._trace(structure)
        number = np.dtype(self._precision).type

        def values(some: dict[int, Any], all_: dict[int, Any]) -> tuple[Any, list[Any]]:
            numbers = found(*(all_ | some).values())
            return (numbers[0] if by else 0.0), numbers

        of_one: Callable[..., Any] = jax.grad(values, has_aux=True) if by else values
        of_many = jax.jit(jax.vmap(of_one))

        def run(some: Sequence[Any]) -> tuple[Any, Any, list[Any]]:
            given = dict(enumerate(leaves)) | dict(zip(opened, some, strict=True))
            all_ = dict(zip(given, np.broadcast_arrays(*map(number, given.values())), strict=True))
            shape = all_[0].shape if all_ else ()
            flat = {i: value.reshape(-1) for i, value in all_.items()} if shape else all_
            made = (of_many if shape else of_one)({i: flat[i] for i in by}, flat)
            slopes, numbers = jax.tree.map(lambda value: value.reshape(shape), made) if shape else made
            return jax.tree.unflatten(outputs, numbers), static, list(slopes.values()) if by else []

        return run

    def _traced(self, structure: Any) -> tuple[Equations, Any, Any]:
        """Equations, structure of the outputs, and static outputs."""
        from dse.doors import recording

        static: list[Any] = []

        def numbers(*arguments: Any) -> Any:
            found, beside = self._function(*arguments)
            static.append(beside)
            return found

        inputs = jax.tree.unflatten(structure, [jax.ShapeDtypeStruct((), self._precision)] * structure.num_leaves)
        found, outputs = recording.trace(numbers, *inputs)
        return found, outputs, static[0]


def _of_part(leaf: Any, part: slice, count: int) -> Any:
    """A leaf in a part of ``count``: what is the same for all of them has no axis, or one of length 1."""
    return leaf[part] if np.ndim(leaf) and len(leaf) == count else leaf


def _places(by: int, arguments: Sequence[Any]) -> range:
    """Positions of the leaves of argument number ``by`` among all."""
    sizes = [len(jax.tree.leaves(argument)) for argument in arguments[: by + 1]]
    return range(sum(sizes[:-1]), sum(sizes))


def _by_jax_told(primitive: str) -> str:
    """That designs are compiled, why, and what that costs."""
    return (
        f"note: the model uses {primitive!r} of JAX {jax.__version__}, which dse cannot evaluate by NumPy: it compiles "
        "instead, which takes some seconds to half a minute for each kind of design in every process; figures are the "
        "same. The package's own models do not need it with the versions of constraints.txt"
    )


@functools.cache
def _circumstances() -> str:
    return f"{code_digest()} {jax.__version__} {np.__version__}"


def evaluate(design: Design) -> Metrics:
    """Evaluate time, memory, energy and feasibility of one training step of ``design``.

    A pure function of scalars, which works under ``jit``, ``vmap`` and ``grad``. It raises nothing and returns no NaN;
    a design that cannot run has ``feasible = False`` and the bits of its reasons. Its operations are those of
    :func:`dse.doors.evaluation.evaluate`, recorded once where all leaves are plain numbers.

    Args:
        design: one point of the design space; leaves are plain numbers or traced scalars in SI units.

    Returns:
        Metrics as scalars [] in SI units (see :class:`dse.types.Metrics`); parts add up to their total.

    References:
        Step time, of ``n`` micro-batches: ``t_step = n t_interval + t_bubble + t_sends + t_data + t_optimizer +
        t_update`` with ``t_bubble = (p - 1) (t_f + t_b) / v`` for ``p`` stages of ``v`` chunks in 1F1B (Narayanan et
        al., SC 2021). Utilisation: ``MFU = F / (t_step N R)`` for model FLOPs ``F``, ``N`` devices and peak rate ``R``.
        docs/model has each equation with its source, ``dse.sweep.results.provenance.bibliography([])`` lists the works.

    >>> import dse
    >>> found = dse.evaluate(dse.design("gpt-3-175b", "selene", tp=8, pp=8, dp=16, recompute="full"))
    >>> bool(found.feasible), bool(0.2 < found.mfu < 0.6)
    (True, True)
    """
    if all(isinstance(leaf, int | float | np.number) for leaf in jax.tree.leaves(design)):
        return _evaluate(design)[0]
    return _model(design)[0]


def serve(design: Design) -> ServingMetrics:
    """Evaluate latency, throughput, memory and feasibility of serving with ``design``.

    A pure function of scalars, which works under ``jit``, ``vmap`` and ``grad``. Plain numbers give NumPy scalars
    within milliseconds, traced leaves give those of JAX, as of :func:`dse.doors.serving.serve`.

    Args:
        design: one point of the design space, for example ``dse.design("llama-3-70b", "h100", tp=8,
            concurrency=64)``.

    Returns:
        Metrics as scalars [] in SI units (see :class:`dse.types.ServingMetrics`); parts add up to their total.

    References:
        Mean step of continuous batching (Yu et al., OSDI 2022): ``T = (1 - f) T_decode + f T_mixed`` with the share
        ``f = n I / (O q)`` of steps that carry ``q`` prompt tokens, for ``n`` sequences in flight, prompts of ``I`` and
        answers of ``O`` tokens. Sequences that fit: ``(u C - M_weights - M_runtime) / M_sequence`` for the share ``u``
        of the capacity ``C``. docs/model/serving.md has each equation with its source.

    >>> import dse
    >>> found = dse.serve(dse.design("llama-3-70b", "h100", "vllm", tp=8, concurrency=64))
    >>> bool(found.feasible), bool(found.time_to_first_token > found.time_per_output_token)
    (True, True)
    """
    if all(isinstance(leaf, int | float | np.number) for leaf in jax.tree.leaves(design)):
        return _serve(design)[0]
    return _serving_model(design)[0]


def _serving_model(design: Design) -> tuple[ServingMetrics, None]:
    from dse.doors.serving import serve

    return serve(design), None


_serve = ScalarFunction(_serving_model, "serve")


def _model(design: Design) -> tuple[Metrics, None]:
    from dse.doors.evaluation import evaluate

    return evaluate(design), None


_evaluate = ScalarFunction(_model, "evaluate")
