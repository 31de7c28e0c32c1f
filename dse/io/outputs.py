"""What may be written: the one policy behind every file that dse writes for its user.

A path is written where there is nothing, or a file of dse's own making: it says so itself
(:data:`dse.io.files.MARK`), or a note beside it, ``FILE.dse.json``, holds the checksum of the file as it was written.
``force`` replaces other regular files too. Folders, devices, pipes and sockets are never replaced, nor is what the same
command reads. Links are followed to what they point to. A file has another name until it is whole.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dse.errors import InputError
from dse.io.files import MARK, bears_mark, digest, strange_kind, whole_or_absent
from dse.io.interruption import complete

#: Notes are small; what is larger is none.
_LARGEST_NOTE = 1 << 20


#: Endings of formats that results are not written in.
_NO_RESULTS = (".csv", ".tsv", ".json", ".txt", ".md", ".html", ".xlsx", ".parquet")


class UnwritableFolderError(InputError):
    """The folder of an output cannot be written to: what is finished there may be read all the same."""


def resolved(path: str | Path) -> Path:
    """What is written when a path is: where a link points to."""
    return Path(os.path.realpath(path))


def target_of(asked: str | Path | bool | None, default: Path) -> Path | None:
    """The results file of a run: the one that was asked for, None for False, else the specification's.

    Raises InputError for the name of a file of another format.
    """
    if asked is False:
        return None
    target = default if asked in (None, True) else Path(str(asked))
    if target.suffix.lower() in _NO_RESULTS:
        raise InputError(
            f"output {target}", f"the name of a {target.suffix[1:].upper()} file",
            "a results file, which is netCDF (.nc)", f"name {target.with_suffix('.nc')}; xarray makes tables of it",
        )  # fmt: skip
    return target


def checked(path: str | Path, force: bool = False, inputs: Iterable[str | Path] = ()) -> Path:
    """The file that is written when ``path`` is; InputError where it, or its note, must not be.

    Args:
        path: of the output, which need not exist.
        force: replace a regular file that dse has not written.
        inputs: files that the same command reads; those that do not exist do not count.
    """
    target = _checked(Path(path), force, inputs)
    _checked(note_path(path), force, ())
    return target


def _checked(path: Path, force: bool, inputs: Iterable[str | Path]) -> Path:
    with disk_errors(path):
        try:
            kind = strange_kind(path)
        except FileNotFoundError:
            return _in_folder(path)
        if kind:
            raise InputError(f"output {path}", kind, "a file name", "name another file")
        for one in inputs:
            if os.path.exists(one) and os.path.samefile(path, one):
                raise InputError(f"output {path}", "a file that is read", "another one", "name another file")
        if not (force or is_own(path)):
            raise InputError(
                f"output {path}", "a file that dse has not written, or that was changed since",
                "a new file, or one of dse's own", "name another file, or replace it with --force",
            )  # fmt: skip
    return _in_folder(path)


def is_own(path: Path) -> bool:
    """Whether dse has written a file, or there is nothing in it that could be lost."""
    if path.stat().st_size == 0 or bears_mark(path):
        return True
    noted = note_of(path).get("sha256")
    return bool(noted) and noted == digest(path)  # a stranger's file without a note is not read, however long it is


@contextlib.contextmanager
def replacing(path: str | Path, force: bool = False, inputs: Iterable[str | Path] = ()) -> Iterator[Path]:
    """A new file that takes the place of ``path`` when the block ends well; one without a mark gets a note.

    Raises InputError where ``path`` must not be written (:func:`checked`) or the disk refuses.
    """
    target = checked(path, force, inputs)
    with disk_errors(path):
        target.parent.mkdir(parents=True, exist_ok=True)
        with whole_or_absent(target) as partial:
            yield partial
            note = None if bears_mark(partial) else {"sha256": digest(partial)}
        if note:
            write_note(target, note, force)
        elif is_noted(target):
            note_path(target).unlink()  # of what was there before
    complete(Path(path))


@contextlib.contextmanager
def disk_errors(path: str | Path | None) -> Iterator[None]:
    """What the disk refuses is an InputError."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"output {path}", error.strerror or str(error), "space and write permission",
            "free some space or name another file; what is finished is kept",
        ) from error  # fmt: skip


def _in_folder(path: Path) -> Path:
    """The file that a path means, in a folder that can be written to or made."""
    target = resolved(path)
    folder = next(one for one in target.parents if one.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        got = "a folder without write permission" if folder.is_dir() else "no folder"
        raise UnwritableFolderError(f"output {path}", f"{got}: {folder}", "a folder that can be written to",
                                    "name another file")
    return target


# --- notes ------------------------------------------------------------------------------------------------


def note_path(path: str | Path) -> Path:
    """The note next to a file: what cannot stand inside it, or changes from run to run."""
    path = resolved(path)
    return path.with_name(f"{path.name}.dse.json")


def note_of(path: str | Path) -> dict[str, Any]:
    """The content of the note next to a file, empty without one."""
    place = note_path(path)
    try:
        if strange_kind(place) or place.stat().st_size > _LARGEST_NOTE:
            return {}
        found = json.loads(place.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) and found.get("note") == MARK else {}


def is_noted(path: str | Path) -> bool:
    """Whether a note of dse's own is next to a file."""
    return bool(note_of(path))


def write_note(path: str | Path, facts: Mapping[str, Any], force: bool = False) -> None:
    """Write the note next to a file."""
    place = _checked(note_path(path), force, ())
    with disk_errors(place), whole_or_absent(place) as partial:
        partial.write_text(json.dumps({"note": MARK, **facts}, indent=1) + "\n", encoding="utf-8")
