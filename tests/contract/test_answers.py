"""Questions that people had: the table is well-formed, and docs/answers.md is what its generator writes."""

from __future__ import annotations

import pytest

from docs.make.answers import (
    INSIDE,
    KINDS,
    NO_REASON,
    RIGHT,
    UNITS,
    WRONG,
    Answer,
    Question,
    answer,
    cells,
    page,
    questions,
)
from docs.make.markdown import linked
from tests.pages import ROOT

PAGE = (ROOT / "docs" / "answers.md").read_text(encoding="utf-8")
QUESTIONS = questions()
BY_NAME = {question.name: question for question in QUESTIONS}

#: Questions that take a fraction of a second: of each kind of command one.
QUICK = ("titan-8b-memory", "korthikanti-530b", "v3-h100-ttft", "lmdeploy-7b", "power-limit", "h20-memory")

#: A question in the place of one.
_TIME = Question("a", "How long?", "evaluate", "step_time", 2.0, 0.1, "time", False, "b", "s")


def line(row: list[str]) -> str:
    return "|" + "|".join(row) + "|"


def test_the_table_is_well_formed():
    assert len(QUESTIONS) >= 60 and len(BY_NAME) == len(QUESTIONS)
    assert len({question.question for question in QUESTIONS}) == len(QUESTIONS)
    for question in QUESTIONS:
        assert question.question.endswith("?") and "|" not in question.question, question.name
        assert question.kind in KINDS and question.unit in UNITS, question.name
        assert question.source and 0.0 <= question.tolerance <= 0.3, question.name
        assert bool(question.files) == (question.kind in ("setting", "shape")), question.name
        assert isinstance(question.right, dict) == (question.metric == "settings"), question.name
        assert (question.unit == "ratio") == bool(question.against), question.name
    assert {question.kind for question in QUESTIONS} == set(KINDS)
    assert sum(not question.fitted for question in QUESTIONS) > len(QUESTIONS) / 2


@pytest.mark.parametrize("name", QUICK)
def test_rows_are_those_of_the_page(name):
    assert line(cells(answer(BY_NAME[name]))) in PAGE


def test_every_wrong_answer_has_a_reason():
    wrong = PAGE.count(f"|**{WRONG}**|")
    assert f"## The {wrong} wrong ones, and why" in PAGE and NO_REASON not in PAGE
    assert PAGE.count("\n```text\n") == wrong


def test_verdicts():
    assert Answer(_TIME, 2.19).verdict == RIGHT and Answer(_TIME, 2.3).verdict == WRONG
    assert Answer(_TIME, 2.3, (1.9, 2.8)).verdict == INSIDE and Answer(_TIME, 2.3, (2.1, 2.8)).verdict == WRONG
    assert Answer(_TIME, 2.0, None, "no memory").verdict == WRONG and Answer(_TIME).verdict == WRONG
    assert Answer(_TIME._replace(kind="memory"), 2.0, None, "no memory").verdict == RIGHT
    setting = _TIME._replace(kind="setting", metric="settings", right={"tp": 8})
    assert Answer(setting, {"tp": 8.0}).verdict == RIGHT and Answer(setting, {"tp": 4.0}).verdict == WRONG


def test_a_refusal_is_an_answer():
    reply = answer(_TIME._replace(command="evaluate -w no-model -s h100"))
    assert reply.value is None and "no-model" in reply.refusal
    assert f"{NO_REASON} Source: b.\n\n```text\ndse evaluate -w no-model -s h100\n```" in page([reply], "make")


@pytest.mark.slow
def test_the_page_is_what_its_generator_writes():
    text = linked(page([answer(question) for question in QUESTIONS], "python -m docs.make.answers docs/answers.md"))
    assert text == PAGE, "run: python -m docs.make.answers docs/answers.md"
