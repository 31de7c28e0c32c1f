"""Examples in docstrings run and give what they say."""

import doctest
import importlib
import inspect
import itertools
import pkgutil
from pathlib import Path

import pytest

import calibration
import dse

ROOT = Path(__file__).parents[2]


def with_examples():
    """Modules of the package, and of the fits beside it, that have examples."""
    packages = (pkgutil.walk_packages(one.__path__, f"{one.__name__}.") for one in (dse, calibration))
    for found in itertools.chain.from_iterable(packages):
        file = ROOT.joinpath(*found.name.split("."))
        source = (file / "__init__.py") if found.ispkg else file.with_suffix(".py")
        if ">>> " in source.read_text(encoding="utf-8"):
            yield found.name


@pytest.mark.parametrize("name", list(with_examples()))
def test_examples(name, monkeypatch):
    monkeypatch.chdir(ROOT)  # paths in examples are those of a checkout
    found = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert found.attempted and not found.failed


#: Rooms whose public functions users call.
ROOMS = (
    "dse",
    "dse.sweep",
    "dse.optimizers",
    "dse.tools",
    "dse.views.plot",
    "dse.measured",
    "dse.lab.fits",
    "dse.lab.page",
)


def public_functions():
    """Functions that these rooms give, each once."""
    rooms = map(importlib.import_module, ROOMS)
    found = [getattr(room, name) for room in rooms for name in room.__all__]
    return list(dict.fromkeys(one for one in found if inspect.isfunction(one)))


@pytest.mark.parametrize("function", public_functions(), ids=lambda one: f"{one.__module__}.{one.__name__}")
def test_public_functions_say_what_goes_in_and_comes_out(function):
    text, signature = inspect.getdoc(function), inspect.signature(function)
    for name in signature.parameters:
        assert f"    {name}: " in text or f"    **{name}: " in text, name
    assert "Returns:" in text or "Yields:" in text or signature.return_annotation in (None, "None")


def test_most_public_functions_have_an_example():
    with_one = [function for function in public_functions() if ">>> " in inspect.getdoc(function)]
    assert len(with_one) >= 0.6 * len(public_functions())
