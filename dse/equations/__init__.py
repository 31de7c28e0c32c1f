"""A function of scalars as a list of equations: recorded, folded, and run in any domain by one table of primitives.

It answers what a model computes at numbers, by NumPy or compiled, what its slopes and ranges are, and which of its
equations are decided. It knows primitives of JAX and trees of numbers; of models, designs and sweeps nothing.

Start with ``primitives.py``, the table: a row for each primitive, with its value, slopes, range, the shape of its
lines and its expression in JavaScript; what a row leaves out is refused. ``rules.py`` has what NumPy has not.
``recording.py`` makes the list of ``equation.py``, each equation once; ``folding.py`` leaves out what values and ranges
of inputs decide.
``operations.py`` makes plain operations of equations and walks over them in a domain, forwards and backwards.
``scalar_function.py`` is all of it as a function that is recorded once and kept on disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dse.surface import attribute

if TYPE_CHECKING:
    from dse.equations.equation import Equations
    from dse.equations.folding import fold
    from dse.equations.recording import trace as trace
    from dse.equations.scalar_function import ScalarFunction
else:

    def __getattr__(name: str) -> Any:
        return attribute(__name__, name)


__all__ = [
    "Equations",
    "ScalarFunction",
    "fold",
]
