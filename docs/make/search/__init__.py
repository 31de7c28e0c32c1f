"""The page on search, from the record of :mod:`benchmarks.search`."""
