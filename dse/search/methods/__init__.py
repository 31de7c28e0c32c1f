"""Search methods by name; a new one is a file here, a line in ``METHODS`` and its options in ``dse.spec.search``."""

from __future__ import annotations

from dse.search.methods import annealing, cross_entropy, evolution, external, gumbel, random
from dse.search.methods.base import Method, Searcher, Worth

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        random.RANDOM,
        external.SOBOL,
        evolution.EVOLUTION,
        cross_entropy.CROSS_ENTROPY,
        annealing.ANNEALING,
        annealing.LANGEVIN,
        gumbel.GUMBEL,
        external.CMAES,
        external.NSGA2,
    )
}

__all__ = ["METHODS", "Method", "Searcher", "Worth"]
