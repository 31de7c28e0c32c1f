"""Search: optimisers over the space of a specification, for spaces too large to enumerate.

``run(path)`` gives the dataset, ``execute(path)`` the outcome too, ``plan(path)`` only the problem with its space.

``problem`` is what is optimised: a ``space`` (its ``tables`` made of the grid of a sweep) and an ``evaluation``, with
slopes where a method follows them (``functions``). ``driver`` does the steps of a method of ``methods/`` for all
seeds and keeps the best; ``run`` spends the budget, with checkpoints, then ``polish``. ``codesign/`` moves a chip by
its gradient. ``outcome`` and ``dataset`` say what was found.

Designs are points (digits into the grid's tables, positions along continuous axes); ``judging`` says which is better.
Start at ``run.perform``; a new method is a file in ``methods/``, its line in ``driver.METHODS`` and its options in
``dse.spec.search.METHOD_OPTIONS``.
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
