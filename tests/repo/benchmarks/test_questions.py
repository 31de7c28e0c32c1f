"""Seconds of a question: what is asked, and how the page shows what was measured."""

from __future__ import annotations

import json
import shlex

from typer.main import get_command

from benchmarks import questions
from dse.cli import app

RECORD = {
    "date": "2026-01-31",
    "rounds": 5,
    "import_seconds": 1.6,
    "questions": {"`evaluate`": {"seconds": 1.44, "imports": 0.9, "bound": "≤ 1.0", "command": "dse evaluate"}},
}


def test_every_question_is_a_command():
    commands = get_command(app).commands
    assert all(shlex.split(one.command)[0] in commands for one in questions.QUESTIONS)
    assert len({one.name for one in questions.QUESTIONS}) == len(questions.QUESTIONS)


def test_the_page_has_what_was_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(questions, "RECORD", tmp_path / "questions.json")
    assert questions.section() == ""
    questions.RECORD.write_text(json.dumps(RECORD), encoding="utf-8")
    text = questions.section()
    assert text.startswith("## Seconds of a question") and "2026-01-31" in text and "(1.6 s there)" in text
    (row,) = [line for line in text.splitlines() if "`evaluate`" in line]
    assert [cell.strip() for cell in row.strip("|").split("|")] == ["`evaluate`", "0.9", "1.4 s", "≤ 1.0"]


def test_a_question_is_asked_once_a_round_beside_the_import(monkeypatch):
    asked = []
    monkeypatch.setattr(questions, "_run", lambda arguments, folder, cache: asked.append(arguments[1]) or 2.0)
    record = questions.measure([questions.QUESTIONS[0]], 2)
    assert asked == ["dse", questions.IMPORT, "dse", questions.IMPORT, "dse"]
    assert [one["imports"] for one in record["questions"].values()] == [1.0]
