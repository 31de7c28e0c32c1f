"""Kept values with bytes changed, lost or put in, or a key: what was kept is read, or nothing, and it is kept again."""

from __future__ import annotations

import random
from pathlib import Path

from dse.io import cache
from tests.conftest import full_size
from tests.contract.fuzz.test_results import mutant
from tests.unit.io.test_cache import forget

VALUE = {"operations": [("add", (), (0, 1), 2)] * 200, "numbers": [0.1 * i for i in range(500)]}


def load_mutants(count: int, seed: int) -> int:
    """Load so many mutants from the folder that ``DSE_CACHE`` names; gives how many were read, each of them whole."""
    chance, read = random.Random(seed), 0
    for number in range(count):
        forget()
        cache.save("value", VALUE)
        folder = cache.folder()
        assert folder is not None
        file: Path = chance.choice(sorted(folder.iterdir()))
        content = file.read_bytes()
        file.write_bytes(changed := mutant(content, chance))
        forget()
        found = cache.load("value")
        assert found == VALUE if found is not None else changed != content, number
        assert cache.get_or_compute("value", lambda: VALUE) == VALUE and cache.load("value") == VALUE, number
        read += found is not None
    forget()
    return read


def test_mutants_of_kept_values(tmp_path, monkeypatch):
    monkeypatch.setenv("DSE_CACHE", str(tmp_path / "cache"))
    assert load_mutants(full_size(100, 10_000), 1) < full_size(100, 10_000)
