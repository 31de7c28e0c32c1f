"""The page of what is held by tests names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "safety.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))


def test_every_line_names_a_test():
    heads = ("|what|", "|fault|", "|---|")
    lines = [line for line in PAGE.splitlines() if line.startswith("|") and not line.startswith(heads)]
    assert len(lines) > 40
    for line in lines:
        assert re.fullmatch(r"\|.+\|`tests/\S+::\w+`(, `tests/\S+::\w+`)*\|", line), line


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_the_test_exists(file, name):
    assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE)
