"""Rooms say what is public: the names of a surface exist, and commands of the lab look no deeper."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: Rooms whose ``__all__`` says what other rooms use.
ROOMS = (
    "dse.fleet", "dse.lab.decide", "dse.lab.evidence", "dse.lab.exchange", "dse.lab.fits", "dse.lab.page",
    "dse.lab.prove",
    "dse.lab.rl", "dse.lab.simulator", "dse.measured", "dse.tools", "dse.views.trace",
)  # fmt: skip


@pytest.mark.parametrize("name", ROOMS)
def test_public_names_exist_and_each_is_listed_once(name):
    room = importlib.import_module(name)
    assert room.__doc__ and all(hasattr(room, public) for public in room.__all__)
    assert len({*room.__all__}) == len(room.__all__)


@pytest.mark.parametrize("file", sorted((ROOT / "dse/lab/commands").glob("*.py")), ids=lambda file: file.stem)
def test_commands_of_the_lab_import_from_the_surfaces_of_its_rooms(file):
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    modules = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    assert not {name for name in modules if name.startswith("dse.lab.") and name.count(".") > 2}
