"""Search: optimisers over the space of a specification, for spaces too large to enumerate.

``run(path)`` gives the dataset, ``execute(path)`` the outcome too, ``plan(path)`` only the problem with its space.
"""

from __future__ import annotations

from dse.optimizers.outcome import SearchOutcome
from dse.optimizers.problem import Problem
from dse.optimizers.proofs import Proof, ProofOptions
from dse.optimizers.run import SearchInterrupted, SearchOptions, execute, perform, plan, run
from dse.spec import SearchSpec
from dse.spec.search import from_text, read

__all__ = [
    "Problem",
    "Proof",
    "ProofOptions",
    "SearchInterrupted",
    "SearchOptions",
    "SearchOutcome",
    "SearchSpec",
    "execute",
    "from_text",
    "perform",
    "plan",
    "read",
    "run",
]  # fmt: skip
