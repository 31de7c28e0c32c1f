"""Examples in docstrings run and give what they say."""

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import dse

ROOT = Path(__file__).parents[1]


def with_examples():
    """Modules of the package that have examples."""
    for found in pkgutil.walk_packages(dse.__path__, "dse."):
        file = ROOT.joinpath(*found.name.split("."))
        source = (file / "__init__.py") if found.ispkg else file.with_suffix(".py")
        if ">>> " in source.read_text(encoding="utf-8"):
            yield found.name


@pytest.mark.parametrize("name", list(with_examples()))
def test_examples(name, monkeypatch):
    monkeypatch.chdir(ROOT)  # paths in examples are those of a checkout
    found = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert found.attempted and not found.failed
