"""Workers of this machine: what is told where they cannot be had."""

from __future__ import annotations

import sys

import pytest

from dse.errors import InputError
from dse.io import workers
from dse.io.distribution import install_extra


@pytest.mark.parametrize("missing", ["distributed", "cryptography"])
def test_a_missing_library_is_told_with_the_extra_to_install(monkeypatch, missing):
    """Less workers would not start either."""
    monkeypatch.setitem(sys.modules, missing, None)
    workers.library.cache_clear()
    try:
        with pytest.raises(InputError) as raised, workers.LocalWorkers(2):
            pass
    finally:
        workers.library.cache_clear()
    assert install_extra("dist") in raised.value.fix and "fewer" not in raised.value.fix
    assert raised.value.got == f"{missing} is not installed"
