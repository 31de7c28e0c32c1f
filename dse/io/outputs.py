"""Policy of written files, common to all outputs.

A path is written where there is nothing, or a file written by dse: by its mark (:data:`dse.io.files.MARK`), or by a
note next to it, ``FILE.dse.json``, with the checksum of the file as written. ``force`` also replaces other regular
files. Folders, devices, pipes and sockets are never replaced, nor are inputs of the same command. Links are followed. A
file is renamed to its name when it is complete.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dse.errors import InputError
from dse.io.files import MARK, atomic_file, bears_mark, digest, strange_kind
from dse.io.interruption import complete

#: Maximum bytes of a note; larger files are not notes.
_LARGEST_NOTE = 1 << 20


#: Endings of formats that results are not written in.
_NO_RESULTS = (".csv", ".tsv", ".json", ".txt", ".md", ".html", ".xlsx", ".parquet")


class UnwritableFolderError(InputError):
    """Error of an output whose folder is not writable; finished results in it may still be read."""


def link_target(path: str | Path) -> Path:
    """Return the path of the file behind a path, links resolved."""
    return Path(os.path.realpath(path))


def target_of(requested: str | Path | bool | None, default: Path) -> Path | None:
    """Return the path of a run's results file, None where none is wanted.

    Args:
        requested: path; False for no file, None or True for the default.
        default: path that the specification states.

    Raises:
        InputError: for the name of a file of another format.
    """
    if requested is False:
        return None
    target = default if requested in (None, True) else Path(str(requested))
    if target.suffix.lower() in _NO_RESULTS:
        raise InputError(
            f"output {target}",
            f"the name of a {target.suffix[1:].upper()} file",
            "a results file, which is netCDF (.nc)",
            f"name {target.with_suffix('.nc')}; xarray makes tables of it",
        )
    return target


def check_output(path: str | Path, force: bool = False, inputs: Iterable[str | Path] = ()) -> Path:
    """Return the path of the file behind ``path``, after a check that it and its note may be written.

    Args:
        path: of the output, which need not exist.
        force: replace a regular file that dse has not written.
        inputs: files that the same command reads; missing ones are ignored.

    Raises:
        InputError: where they must not be written.
    """
    target = _checked(Path(path), force, inputs)
    _checked(note_path(path), force, ())
    return target


def _checked(path: Path, force: bool, inputs: Iterable[str | Path]) -> Path:
    """Return the path of the file behind ``path``; InputError where it must not be written, as :func:`check_output`."""
    with disk_errors(path):
        try:
            kind = strange_kind(path)
        except FileNotFoundError:
            return _in_folder(path)
        if kind:
            raise InputError(f"output {path}", kind, "a file name", "name another file")
        for input_path in inputs:
            if os.path.exists(input_path) and os.path.samefile(path, input_path):
                raise InputError(f"output {path}", "a file that is read", "another one", "name another file")
        if not (force or is_dse_file(path)):
            raise InputError(
                f"output {path}",
                "a file that dse has not written, or that was changed since",
                "a new file, or one of dse's own",
                "name another file, or replace it with --force",
            )
    return _in_folder(path)


def is_dse_file(path: Path) -> bool:
    """True for a file that dse has written and nobody changed, and for an empty one.

    A file with dse's mark counts as unchanged; OSError for a missing file.
    """
    if path.stat().st_size == 0 or bears_mark(path):
        return True
    noted = note_of(path).get("sha256")
    return bool(noted) and noted == digest(path)  # a file of others without a note is never read, whatever its size


@contextlib.contextmanager
def replacing(path: str | Path, force: bool = False, inputs: Iterable[str | Path] = ()) -> Iterator[Path]:
    """Yield the path of a new file that replaces ``path`` when the block succeeds; one without a mark gets a note.

    Raises:
        InputError: where ``path`` must not be written (:func:`check_output`) or writing fails.
    """
    target = check_output(path, force, inputs)
    with disk_errors(path):
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(target) as partial:
            yield partial
            note = None if bears_mark(partial) else {"sha256": digest(partial)}
        if note:
            write_note(target, note, force)
        elif is_noted(target):
            note_path(target).unlink()  # of the replaced file
    complete(Path(path))


@contextlib.contextmanager
def disk_errors(path: str | Path | None) -> Iterator[None]:
    """Raise InputError for each OSError of this context, as an error of writing ``path``."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"output {path}",
            error.strerror or str(error),
            "space and write permission",
            "free some space or name another file; what is finished is kept",
        ) from error


def _in_folder(path: Path) -> Path:
    """Return the path of the file behind ``path``; UnwritableFolderError where its folder cannot be written."""
    target = link_target(path)
    folder = next(parent for parent in target.parents if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        got = "a folder without write permission" if folder.is_dir() else "no folder"
        raise UnwritableFolderError(
            f"output {path}", f"{got}: {folder}", "a folder that can be written to", "name another file"
        )
    return target


# Notes


def note_path(path: str | Path) -> Path:
    """Return the path of the JSON note next to a file, for facts that cannot be in it or change between runs."""
    path = link_target(path)
    return path.with_name(f"{path.name}.dse.json")


def note_of(path: str | Path) -> dict[str, Any]:
    """Return the content of dse's note next to a file, empty where there is none, or one too large or damaged."""
    note_file = note_path(path)
    try:
        if strange_kind(note_file) or note_file.stat().st_size > _LARGEST_NOTE:
            return {}
        note = json.loads(note_file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return note if isinstance(note, dict) and note.get("note") == MARK else {}


def is_noted(path: str | Path) -> bool:
    """True for a file with a note of dse next to it."""
    return bool(note_of(path))


def write_note(path: str | Path, facts: Mapping[str, Any], force: bool = False) -> None:
    """Write facts as the JSON note next to a file; InputError where there is a note of others and no ``force``."""
    note_file = _checked(note_path(path), force, ())
    with disk_errors(note_file), atomic_file(note_file) as partial:
        partial.write_text(json.dumps({"note": MARK, **facts}, indent=1) + "\n", encoding="utf-8")
