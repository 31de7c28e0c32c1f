"""Labelled results: datasets, summaries, files."""
