"""What holds of every report, whichever capability it is of."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from dse.cli import app
from dse.errors import InputError
from dse.reports import Report, Table
from dse.reports.registry import capabilities
from dse.reports.tables import Style
from dse.reports.terminal import plain_text


def run(*words: object) -> Any:
    """A command as it ends."""
    return CliRunner().invoke(app, [*map(str, words)], prog_name="dse")


def assert_renderers_agree(report: Report, *words: object) -> None:
    """The document is what ``--json`` of the command prints; HTML and a terminal of 80 columns show every cell."""
    ended = run(*words, "--json")
    assert ended.exit_code == report.status, ended.output
    assert report.to_dict() == json.loads(ended.stdout)
    declared = next(
        (made.details for name, made in capabilities().items() if " ".join(map(str, words)).startswith(name)), None
    )
    assert declared is None or {*report.details} <= {*declared}
    page = html.unescape(report._repr_html_())
    for section in report.sections:
        cells = [cell for row in section.cells() for cell in row] if isinstance(section, Table) else []
        assert all(cell in page for cell in cells)
    lines = plain_text(report, ["all"], width=80).splitlines()
    verbatim = "\n".join(line.text for line in report.sections if getattr(line, "style", "") == Style.verbatim)
    paths = [str(path) for path in (*report.files, *report.figures)]
    long = [line for line in lines if len(line) > 80 and line not in (*verbatim.splitlines(), *report.notes, *paths)]
    assert not long, long


def assert_refused(call: Callable[[], Any], *texts: str) -> None:
    """Bad input in Python is an InputError in four parts."""
    with pytest.raises(InputError) as refused:
        call()
    error = refused.value
    assert all((error.where, error.got, error.allowed, error.fix))
    assert all(text in str(error) for text in texts), str(error)
