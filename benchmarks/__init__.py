"""Measurements of the engine itself, outside the wheel: how fast it is, and how good its searchers are.

``python -m benchmarks.rates`` measures rates and start-up times (``dse bench`` runs it),
``python -m benchmarks.search docs/search.json`` the methods of search against exact optima.
"""
