"""Search methods by name; a new one is a file here and a line in ``METHODS``."""

from __future__ import annotations

from dse.search.methods import random
from dse.search.methods.base import Batch, Method, Searcher

METHODS: dict[str, Method] = {
    method.name: method
    for method in (random.RANDOM,)
}

__all__ = ["METHODS", "Batch", "Method", "Searcher"]
