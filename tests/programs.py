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

#: Metrics of designs stacked along the first axis of every leaf.
metrics_of_many = jax.jit(jax.vmap(evaluate))

#: Designs of a kind that NumPy evaluates in the time that their program would take to compile.
_FEW = 1000


def _by_either(function: Callable[[Any], Any], plain: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function of one design in the precision that JAX is set to; of kinds that are met often it is compiled."""
    compiled, met = jax.jit(function), Counter[Any]()

    def found(design: Any) -> Any:
        leaves, structure = jax.tree.flatten(design)
        met[structure] += 1
        are_plain = all(isinstance(leaf, int | float | np.number) for leaf in leaves)
        return (plain if are_plain and met[structure] <= _FEW else compiled)(design)

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
