"""The benchmark of search: frozen sub-spaces of the real model whose optima and fronts are known exactly.

``python -m benchmarks.search docs/search.json`` enumerates every space, runs every method on it and keeps the figures;
``python -m docs.make.search docs/search.md`` writes the page from them.
"""
