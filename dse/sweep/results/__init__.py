"""Labelled results: datasets, summaries, files.

``dataset.build`` labels what a sweep keeps (``labelled``, ``labels``, ``work``, ``catalogue_numbers``) and
``writing`` writes it; ``summary``, ``cautions`` and ``provenance`` say what was found, by whom and on whose data.
``files`` opens a file after ``declared`` and ``layout`` have looked at it, and ``accessor`` is ``results.dse`` on top
of it (``rows``, ``ranking``, ``grouping``, ``selecting``, ``tables``). Start at ``dataset.build`` to write, at
``files.open_results`` to read.
"""
