"""Documents that commands print with ``--json``, and the files that they write; ``commands.txt`` lists the commands."""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import json
import os
import re
import shlex
import shutil
import tempfile
from pathlib import Path
from typing import Any

import typer

import dse
from tests.contract.golden.records.results import summary

#: Command → keys of its document whose values change from run to run.
_VOLATILE = {name: {"seconds", "rate", "n_programs"} for name in ("run", "merge", "search", "simulate")}

#: Keys of every document that change with each edit of dse or of the catalogue.
_DIGESTS = {"code_version", "code_digest", "catalog_digest"}

#: Commands without ``--json``: of these the files alone are recorded.
_WITHOUT_JSON = {"calibrate", "trace"}

_TESTS = Path(__file__).parents[3]


@functools.cache
def _lines() -> dict[str, str]:
    """Name → command line."""
    lines = Path(__file__).with_name("commands.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split(": ", 1) for line in lines if line and not line.startswith("#"))


def names() -> list[str]:
    """Every command of the list."""
    return [*_lines()]


def record(name: str) -> Any:
    """Status, document and files of a command."""
    before = os.environ.get("DSE_CATALOG")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        line = re.sub(r"\{([\w.-]+)\}", lambda name: _input(name[1]), _lines()[name])
        taken = {path.name for path in Path().iterdir()}
        *earlier, last = line.split(" && ")
        try:
            for words in earlier:
                _command(words)
            command = next(word for word in shlex.split(last) if "=" not in word)
            as_json = command not in _WITHOUT_JSON
            status, printed = _command(f"{last} --json" if as_json else last)
        finally:
            os.environ.pop("DSE_CATALOG", None)
            if before is not None:
                os.environ["DSE_CATALOG"] = before
        files = {str(path): _content(path) for path in sorted(Path().rglob("*")) if path.parts[0] not in taken}
    if as_json and not printed.strip():
        raise RuntimeError(f"dse {last} --json printed nothing, status {status}")
    told = {name: content for name, content in files.items() if content is not None}
    document = _masked(json.loads(printed), _DIGESTS | _VOLATILE.get(command, set())) if as_json else None
    return {"status": status, "document": document, "files": told}


def _input(name: str) -> str:
    """Copy what has this name, wherever the tests have it, into the working folder."""
    hits = [path for path in _TESTS.rglob(name) if "__pycache__" not in path.parts]
    if len(hits) != 1:
        raise RuntimeError(f"{len(hits)} files of the tests have the name {name}, not 1")
    if hits[0].is_dir():
        shutil.copytree(hits[0], name)
    else:
        shutil.copy(hits[0], name)
    return name


@functools.cache
def _dse() -> Any:
    """The command line, made once: making it takes a fifth of a second."""
    return typer.main.get_command(dse.cli.app)


def _command(line: str) -> tuple[int, str]:
    """Exit status of a command, and what it prints on standard output."""
    words, printed = shlex.split(line), io.StringIO()
    while "=" in words[0]:
        key, value = words.pop(0).split("=", 1)
        os.environ[key] = value
    errors = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
        try:
            _dse().main(words, prog_name="dse")
            status = 0
        except SystemExit as ended:
            status = int(ended.code or 0)
    if status not in (0, 1):
        raise RuntimeError(f"dse {line}: status {status}\n{errors.getvalue()}")
    return status, printed.getvalue()


def _content(path: Path) -> Any:
    """What a record holds of a file; nothing of folders, of what is kept beside results, and of figures."""
    if path.is_dir() or path.name.endswith(".dse.json"):
        return None
    if path.suffix == ".nc":
        return summary(path, 16)
    if path.suffix == ".csv":
        return [[_number(cell) for cell in row] for row in csv.reader(path.read_text(encoding="utf-8").splitlines())]
    if path.suffix == ".json":
        return json.loads(path.read_text(encoding="utf-8"))
    return path.read_text(encoding="utf-8") if path.suffix in {".toml", ".txt", ".sh"} else None


def _number(cell: str) -> str | float:
    try:
        return float(cell)
    except ValueError:
        return cell


def _masked(document: Any, names: set[str]) -> Any:
    """Without the values of these keys: the keys stay."""
    if isinstance(document, dict):
        return {key: "masked" if key in names else _masked(value, names) for key, value in document.items()}
    return [_masked(value, names) for value in document] if isinstance(document, list) else document
