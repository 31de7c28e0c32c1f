"""The page from a profile to an answer, word for word: its files written, its commands run, what they print compared.

In one process. The profiles of the CPU are real, the others made up in the formats of their tools.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil

import pytest

from dse.cli import app
from tests.pages import ROOT, blocks, commands, missing
from tests.unit.measured import profiles

PAGE = ROOT / "docs" / "profiles.md"


def run(words: list[str]) -> tuple[str, int]:
    """What a command prints, and its status."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed), pytest.raises(SystemExit) as ended:
        app(words, prog_name="dse")
    return printed.getvalue(), int(ended.value.code or 0)


@pytest.mark.slow
def test_the_page_works_word_for_word(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.delenv("DSE_CATALOG", raising=False)
    shutil.copytree(ROOT / "tests" / "profiles", "profiles")
    profiles.written(tmp_path / "profiles")
    for block in blocks(PAGE):
        if block.language == "toml":
            path = tmp_path / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        for command in commands(block) if block.language == "console" else ():
            first, *words = command.words
            if first == "export":
                monkeypatch.setenv(*words[0].split("="))
                continue
            assert first == "dse", command.line
            printed, status = run(words)
            if os.environ.get("DSE_SHOW"):
                print(f"$ {' '.join(words)}\n{printed}[{status}]")
            assert status == (2 if "error" in command.printed else 0), (command.line, printed)
            wrong = missing(printed, command)
            assert wrong is None, f"{command.line}: {wrong!r} is not printed\n{printed}"
