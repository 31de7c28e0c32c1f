"""Faulty files of a user's catalogue: left out where they are not needed, all told in one notice.

The package's own files have no faults (:func:`dse.designs.catalog.check`). An entry that is named and faulty is an
error as ever.
"""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Iterable
from pathlib import Path

from dse.designs.catalog.defaults import load
from dse.designs.catalog.entries import referenced_entries
from dse.designs.catalog.load import FOLDERS, Folder, catalog_root, listings, paths, stamp, users_folders
from dse.errors import InputError, Notice
from dse.io import counted
from dse.io.plugins import catalog_folders

#: Listings of folders whose faults have been told in this process.
_TOLD: set[object] = set()


def faults(folder: Folder = None) -> dict[tuple[str, str], InputError]:
    """Return (kind, slug) → error of every entry that a faulty file of another folder than the package's spoils.

    Files are those of the user's folders and of other distributions. One that hides an entry of the package spoils all
    that name it.

    Args:
        folder: a catalogue to search first.
    """
    roots = _others(folder)
    if not roots:
        return {}
    files = [(kind, slug, path) for kind in FOLDERS for slug, path in paths(kind, folder).items()]
    entries = [(kind, slug, path) for kind, slug, path in files if _is_below(path, roots) and not _is_copy(path)]
    faulty = _faults_of(_state(entries), folder)
    hides = any((catalog_root() / FOLDERS[kind] / f"{slug}.toml").exists() for kind, slug in faulty)
    return _faults_of(_state(files), folder) if hides else faulty


def readable_names(kind: str, folder: Folder = None) -> list[str]:
    """Return the slugs of the entries of a kind without faulty ones, sorted: for a search among all of them.

    Args:
        kind: ``accelerator``, ``network``, ``system``, …
        folder: a catalogue to search first.
    """
    faulty = faults(folder)
    return sorted(slug for slug in paths(kind, folder) if (kind, slug) not in faulty)


def warn_of_faults(folder: Folder = None) -> None:
    """Warn of all faulty entries in one :class:`~dse.errors.Notice`, once a process for the same files.

    Args:
        folder: a catalogue to search first.
    """
    if (state := _listing(folder)) in _TOLD:
        return
    _TOLD.add(state)
    lines = dict.fromkeys(f"\n  {error.where}: {error.got}; {error.fix}" for error in faults(folder).values())
    if lines:
        count = counted(len(lines), "faulty entry", "faulty entries")
        warnings.warn(f"catalogue: {count}, left out unless they are named:{''.join(lines)}", Notice, stacklevel=2)


def tell_no_faults(folder: Folder = None) -> None:
    """Leave out the notice of :func:`warn_of_faults`, for what tells of all faults itself.

    Args:
        folder: a catalogue to search first.
    """
    _TOLD.add(_listing(folder))


def _others(folder: Folder) -> tuple[Path, ...]:
    """Return the catalogue folders that are not the package's own."""
    return (*users_folders(folder), *catalog_folders())


def _listing(folder: Folder) -> object:
    """Return the names of the files of the folders that are not the package's own."""
    return tuple(listings(root) for root in _others(folder))


def _is_below(path: Path, roots: tuple[Path, ...]) -> bool:
    """Return True for a file of a kind's folder in one of these catalogues."""
    return path.parent.parent in roots


def _is_copy(path: Path) -> bool:
    """Return True for a file that is equal to the package's own of that name."""
    packaged = catalog_root() / path.parent.name / path.name
    try:
        return path.stat().st_size == packaged.stat().st_size and path.read_bytes() == packaged.read_bytes()
    except OSError:
        return False


def _state(files: Iterable[tuple[str, str, Path]]) -> tuple[tuple[str, str, Path, int, int], ...]:
    """Return (kind, slug, path) of files with the stamps of the paths."""
    return tuple((kind, slug, path, *_stamp(path)) for kind, slug, path in files)


def _stamp(path: Path) -> tuple[int, int]:
    """Return the stamp of a file, zeros where it has no status, as a link to nothing."""
    try:
        return stamp(path)
    except OSError:
        return 0, 0


@functools.lru_cache(maxsize=16)
def _faults_of(state: tuple[tuple[str, str, Path, int, int], ...], folder: Folder) -> dict[tuple[str, str], InputError]:
    """Return :func:`faults` for a state of the files."""
    faulty: dict[tuple[str, str], InputError] = {}
    for kind, slug, path, *_ in state:
        try:
            referenced_entries(load(kind, slug, folder), folder)
        except InputError as error:
            faulty[kind, slug] = error
        except OSError as error:
            faulty[kind, slug] = InputError(os.fspath(path), error.strerror or str(error), "a TOML file", "remove it")
    return faulty
