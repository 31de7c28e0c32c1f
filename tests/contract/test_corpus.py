"""Files that people have are read right: each value against one that was worked out without sight of the reader."""

from __future__ import annotations

import json
import time

import pytest

from benchmarks.recipes import FOLDER, cases, score
from benchmarks.recipes.answers import answer, value_of
from docs.make.read import key_of

CASES = cases()

#: Cases that are not read right, with their outcomes; everything else is.
EXPECTED = json.loads((FOLDER / "outcomes.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=map(key_of, CASES))
def test_no_value_that_is_read_is_wrong(case):
    """What is read without the rest of the design: quick, and the worst that can happen to a user."""
    start = time.perf_counter()
    said = answer(case, completes=False)
    assert time.perf_counter() - start < 2.0
    result = score(case, said, value_of, partly=True)
    if EXPECTED.get(key_of(case)) != "misread":
        assert result.outcome != "misread", result.wrong


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=map(key_of, CASES))
def test_the_whole_design_is_the_right_one(case):
    result = score(case, answer(case), value_of)
    assert result.outcome == EXPECTED.get(key_of(case), "right"), result.wrong


def test_the_corpus_is_large_and_of_many_tools():
    assert len(CASES) >= 120 and len({case["tool"] for case in CASES}) >= 12


def test_at_most_one_in_ten_is_not_right_and_none_is_misread():
    assert len(EXPECTED) <= 0.1 * len(CASES)
    assert "misread" not in EXPECTED.values()
