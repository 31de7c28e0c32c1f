"""Tests of search that compile many programs run by `make test-search`; the others with every test."""

import pytest

QUICK = ("test_pareto", "test_space", "test_spec")


def pytest_collection_modifyitems(items):
    for item in items:
        if item.module.__name__.startswith("tests.search.") and not item.module.__name__.endswith(QUICK):
            item.add_marker(pytest.mark.slow)
