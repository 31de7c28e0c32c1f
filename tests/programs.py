"""The model as functions that tests share: each is traced or compiled once in a process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from dse.doors import scalars
from dse.doors.evaluation import evaluate
from dse.doors.serving import serve
from dse.equations import recording


def compiled(function: Callable[..., Any], many: bool = False) -> Callable[..., Any]:
    """``jax.jit`` of a function of pytrees of scalars by its equations, of which XLA has half as many to compile.

    ``many``: of arrays along the first axis of every leaf.
    """
    known: dict[Any, Any] = {}

    def of(*arguments: Any) -> Any:
        leaves, structure = jax.tree.flatten(arguments)
        precision = jax.dtypes.canonicalize_dtype(np.float64)
        if (structure, precision) not in known:
            numbers = [jax.ShapeDtypeStruct((), precision)] * len(leaves)
            found, outputs = recording.trace(function, *jax.tree.unflatten(structure, numbers))
            known[structure, precision] = jax.jit(jax.vmap(found) if many else found), outputs
        run, outputs = known[structure, precision]
        return jax.tree.unflatten(outputs, run(*(np.asarray(leaf, precision) for leaf in leaves)))

    return of


#: Metrics of designs stacked along the first axis of every leaf.
metrics_of_many = compiled(evaluate, many=True)

#: Designs of a kind that NumPy evaluates in the time that their program would take to compile.
_FEW = 1000


def _by_either(function: Callable[[Any], Any], plain: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function of one design in the precision that JAX is set to; of kinds that are met often it is compiled."""
    by_xla, met = compiled(function), Counter[Any]()

    def found(design: Any) -> Any:
        leaves, structure = jax.tree.flatten(design)
        met[structure] += 1
        are_plain = all(isinstance(leaf, int | float | np.number) for leaf in leaves)
        return (plain if are_plain and met[structure] <= _FEW else by_xla)(design)

    return found


#: Metrics of one design.
metrics_of = _by_either(evaluate, scalars.evaluate)
served = _by_either(serve, scalars.serve)


def by_numpy(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of pytrees of plain numbers, without a compiled program."""
    found = scalars.ScalarFunction(lambda *arguments: (function(*arguments), None), None)
    return lambda *arguments: found(*arguments)[0]


def slopes_by_numpy(function: Callable[..., Any]) -> Callable[..., Any]:
    """A number that depends on pytrees of plain numbers, and its gradient by the first of them."""
    found = scalars.ScalarFunction(lambda *arguments: ((function(*arguments),), None), None)

    def number_and_slopes(*arguments: Any) -> tuple[Any, Any]:
        (number,), _, slopes = found.slopes(0, *arguments)
        return number, slopes

    return number_and_slopes
