"""Sweeps of tests are small, and NumPy evaluates those; tests of compiled programs ask for them."""

import pytest

from dse.sweep.engine import engine


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps are compiled however small they are."""
    monkeypatch.setattr(engine, "MOST_BY_NUMPY", 0)
