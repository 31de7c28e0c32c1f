"""Few designs with all their outputs: winners, say. NumPy evaluates some thousand of them while XLA would compile."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dse.files import folder_digest
from dse.scalars import ScalarFunction
from dse.sweep.engine.point import Program, equations_of, evaluate_point
from dse.types import Design


def evaluate_few(base: Design, values: Mapping[str, np.ndarray], *, program: Program) -> tuple[Any, tuple[Any, ...]]:
    """All metrics and the objectives of single designs.

    Args:
        base: the design that has every leaf not in ``values``.
        values: full path → values of leaves, in SI units; these or those of the base are arrays [design].
        program: what is computed.

    Returns:
        The study's record of metrics and one array an objective, as :func:`~dse.sweep.engine.point.evaluate_point`
        has them, all of them arrays [design].
    """
    count = next(len(leaf) for leaf in jax.tree.leaves((values, base)) if np.ndim(leaf))
    return _function(program).over(count, base, dict(values))


@functools.lru_cache(maxsize=32)
def _function(program: Program) -> ScalarFunction:
    """The model with its objectives; its equations are those of the sweep's own programs."""

    def traced(structure: jax.tree_util.PyTreeDef) -> tuple[Any, Any, None]:
        return *equations_of(program, structure), None

    made_from = f"designs {folder_digest(Path(__file__).parent)} {program}" if program.can_be_kept else None
    return ScalarFunction(lambda base, values: (evaluate_point(program, base, values), None), made_from, traced)
