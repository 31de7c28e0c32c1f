"""Search methods by name; a new one is a file here, a line in ``METHODS`` and its options in ``dse.spec.search``."""

from __future__ import annotations

from dse.optimizers.methods import annealing, evolution, external, random
from dse.optimizers.methods.base import Method, Searcher, Worth

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        random.RANDOM,
        evolution.EVOLUTION,
        annealing.ANNEALING,
        annealing.LANGEVIN,
        external.NSGA2,
    )
}

__all__ = ["METHODS", "Method", "Searcher", "Worth"]
