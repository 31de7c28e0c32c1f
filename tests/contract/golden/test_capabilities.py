"""The list of what README.md says that dse does is whole, and the tests that it names exist."""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
README = (TESTS.parent / "README.md").read_text(encoding="utf-8")
LISTED = tomllib.loads(Path(__file__).with_name("capabilities.toml").read_text(encoding="utf-8"))


@functools.cache
def functions() -> dict[str, set[str]]:
    """Stem of a file of tests → the names of its tests, of files of one stem together."""
    known: dict[str, set[str]] = {}
    for path in TESTS.rglob("test_*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        tests = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name[:5] == "test_"}
        known[path.stem] = known.get(path.stem, set()) | tests
    return known


def rows(heading: str) -> list[list[str]]:
    """Cells of the table below a heading."""
    section = README.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    table = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in table if not set(row[0]) <= {"-", " ", ":"} and row[0].strip()]


def test_every_claim_of_the_readme_is_in_the_list():
    assert [*LISTED["headings"]] == re.findall(r"^## (.*)$", README, re.MULTILINE)
    commands = [name for row in rows("Command line") for name in re.findall(r"`([\w-]+)`", row[1])]
    assert sorted(LISTED["commands"]) == sorted(commands)
    cells = [re.sub(r" \(.*?\)", "", row[0]) for row in rows("What it models")]
    assert [*LISTED["models"]] == [part.strip() for cell in cells for part in re.split("[,;:]", cell)]
    text = " ".join(README.split())
    assert [claim for claim in LISTED["claims"] if claim not in text] == []


@pytest.mark.parametrize("section", LISTED)
def test_the_tests_exist(section):
    named = {(claim, *test.split("::")) for claim, tests in LISTED[section].items() for test in tests}
    assert all(LISTED[section].values())
    assert sorted(one for one in named if one[2] not in functions().get(one[1], ())) == []
