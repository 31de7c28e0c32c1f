"""Rooms say what is public: the names of a surface exist, and commands of the lab look no deeper."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path

import pytest

from dse import surface

ROOT = Path(__file__).parents[2]

#: Public functions and classes of all rooms together: what a reader may rely on.
_MOST = 300


def _rooms() -> list[str]:
    """Packages of the core, those of the lab, and packages in them that say what is public."""
    packages = [file.parent for file in sorted((ROOT / "dse").rglob("__init__.py"))]
    names = [".".join(folder.relative_to(ROOT).parts) for folder in packages]
    depth = {name: name.count(".") - name.startswith("dse.lab.") for name in names}
    return [name for name in names if name != "dse" and (depth[name] == 1 or _public_of(name) is not None)]


def _public_of(name: str) -> list[str] | None:
    return getattr(importlib.import_module(name), "__all__", None)


ROOMS = _rooms()


def _public_objects():
    """Place and object of what the rooms make public, each once."""
    listed = {}
    for room in ROOMS:
        module = importlib.import_module(room)
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isfunction(thing) or inspect.isclass(thing):
                listed[thing.__module__, thing.__qualname__] = thing
    return listed


@pytest.mark.parametrize("name", ROOMS)
def test_public_names_exist_and_each_is_listed_once(name):
    room = importlib.import_module(name)
    assert room.__doc__ and all(hasattr(room, public) for public in room.__all__)
    assert len({*room.__all__}) == len(room.__all__)
    with pytest.raises(AttributeError, match="no attribute 'step_tyme'"):
        room.step_tyme  # noqa: B018


def test_a_room_lists_its_lazy_names_once():
    """What is imported for type checkers is what can be imported."""
    for name in (name for name in ROOMS if "__getattr__" in vars(importlib.import_module(name))):
        lazy = surface.modules_by_name(name)
        for public, module in lazy.items():
            assert getattr(importlib.import_module(name), public) is getattr(importlib.import_module(module), public)


def test_the_public_names_are_few():
    assert 200 < len(_public_objects()) <= _MOST


def test_public_functions_say_what_they_take_and_return():
    lacking = []
    for (module, name), thing in _public_objects().items():
        text = inspect.getdoc(thing) or ""
        if not text:
            lacking.append(f"{module}.{name}: no docstring")
        if not inspect.isfunction(thing):
            continue
        parameters = [key for key in inspect.signature(thing).parameters if not key.startswith("_")]
        if len(parameters) > 1 and "Args:" not in text:
            lacking.append(f"{module}.{name}: no Args")
        returned = inspect.signature(thing).return_annotation
        is_told = any(word in text for word in ("Returns:", "Yields:")) or text.startswith(("Return", "Yield", "True"))
        if returned not in ("None", "bool", None) and not is_told:
            lacking.append(f"{module}.{name}: no Returns")
    assert not lacking


@pytest.mark.parametrize("file", sorted((ROOT / "dse/lab/commands").glob("*.py")), ids=lambda file: file.stem)
def test_commands_of_the_lab_import_from_the_surfaces_of_its_rooms(file):
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    modules = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    assert not {name for name in modules if name.startswith("dse.lab.") and name.count(".") > 2}
