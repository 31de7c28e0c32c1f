"""Files of the catalogue: where they lie, what they are called, and their TOML."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import itertools
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from dse.errors import InputError, unknown_name
from dse.io import cache, inputs, toml
from dse.io.files import code_digest, distribution_folder
from dse.io.plugins import catalog_folders

T = TypeVar("T")

#: Kind → its folder in a catalogue.
FOLDERS = {
    "accelerator": "accelerators",
    "network": "networks",
    "system": "systems",
    "software": "software",
    "workload": "workloads",
    "kernels": "kernels",
    "node": "nodes",
    "memory": "memories",
    "architecture": "architectures",
    "cost": "cost",
}

#: Nanoseconds after which the change time of a folder distinguishes listings: clocks of file systems are coarse.
_SETTLED_NS = 100_000_000

#: A catalogue folder to search first; None for those of DSE_CATALOG and the package's own alone.
Folder = str | Path | None


def catalog_root() -> Path:
    """Return the path of the package's own catalogue: inside it when installed, next to it in a checkout."""
    return distribution_folder("hw_catalog")


#: Folders that are searched within :func:`added_folder`.
_added_folders: contextvars.ContextVar[tuple[Path, ...]] = contextvars.ContextVar("added_folders", default=())


@contextlib.contextmanager
def added_folder(folder: Path) -> Iterator[None]:
    """Search a catalogue folder before those of the environment, within the context."""
    token = _added_folders.set((folder, *_added_folders.get()))
    try:
        yield
    finally:
        _added_folders.reset(token)


def users_folders(folder: Folder = None) -> list[Path]:
    """Return the user's catalogue folders in search order; InputError for one that does not exist.

    ``folder`` first, then those of :func:`added_folder`, then those of DSE_CATALOG.
    """
    users: list[str | Path] = [folder] if folder else []
    users += _added_folders.get()
    users += [folder_name for folder_name in os.environ.get("DSE_CATALOG", "").split(os.pathsep) if folder_name]
    for user in users:
        if not Path(user).is_dir():
            raise InputError("catalogue folder", str(user), "an existing folder", "check the path or DSE_CATALOG")
    return [*map(Path, users)]


def roots(folder: Folder = None) -> list[Path]:
    """Return catalogue folders in search order: the user's, the package's, those that other distributions register.

    An entry of another distribution never hides one of the package: only the user may.
    """
    return [*users_folders(folder), catalog_root(), *catalog_folders()]


def listings(root: Path) -> tuple[tuple[Path, tuple[str, ...]], ...]:
    """Return (folder of a kind, slugs of its files) of a catalogue."""
    return tuple((root / name, _slugs(root / name)) for name in FOLDERS.values())


def expect_entries(folder: Folder = None) -> None:
    """Raise InputError for a user's folder without entries."""
    for root in users_folders(folder):
        if not any(slugs for _, slugs in listings(root)):
            raise InputError(
                "catalogue folder",
                f"{root}, which has no entries",
                f"TOML files in {'/, '.join(FOLDERS.values())}/",
                "name the folder above these, or move the files into the one of their kind",
            )


def paths(kind: str, folder: Folder = None) -> dict[str, Path]:
    """Return slug → file of every entry of a kind, of one slug the file of the first folder.

    A user's folders come before the package's. InputError for an unknown kind.
    """
    return dict(_paths(tuple((kind_folder, _slugs(kind_folder)) for kind_folder in _folders(kind, folder))))


@functools.lru_cache(maxsize=64)
def _paths(listings: tuple[tuple[Path, tuple[str, ...]], ...]) -> dict[str, Path]:
    """Return slug → file, of (folder, slugs in it), the first folder before others."""
    files: dict[str, Path] = {}
    for kind_folder, slugs in listings:
        files |= {slug: kind_folder / f"{slug}.toml" for slug in slugs if slug not in files}
    return files


def _folders(kind: str, folder: Folder) -> list[Path]:
    """Return the folders of files of a kind, in search order; InputError for an unknown kind."""
    if kind not in FOLDERS:
        raise unknown_name("catalogue", kind, FOLDERS, "kinds")
    return [root / FOLDERS[kind] for root in roots(folder)]


def _slugs(folder: Path) -> tuple[str, ...]:
    """Return the sorted slugs of the files of a folder, empty where there is no such folder."""
    try:
        changed_ns = os.stat(folder).st_mtime_ns
        list_stems = _file_stems if time.time_ns() - changed_ns > _SETTLED_NS else _file_stems.__wrapped__
        return list_stems(folder, changed_ns)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return ()


@functools.lru_cache(maxsize=256)
def _file_stems(folder: Path, _changed_ns: int) -> tuple[str, ...]:
    """Return the sorted stems of the TOML files of a folder; ``_changed_ns`` renews what is kept."""
    return tuple(sorted(name.removesuffix(".toml") for name in os.listdir(folder) if name.endswith(".toml")))


def file_of(kind: str, slug: str, folder: Folder = None) -> Path:
    """Return the path of the file of an existing entry, the user's before the package's; StopIteration for none."""
    files = (kind_folder / f"{slug}.toml" for kind_folder in _folders(kind, folder))
    return next(file for file in files if os.path.lexists(file))  # a pipe is reported, not skipped


@functools.lru_cache(maxsize=8192)
def plain(name: str) -> str:
    """Return a name as it is compared, in lower-case letters and digits.

    What stands between two digits stays a break: ``GPT-1.3B`` and ``GPT-13B`` are two models.
    """
    words = re.findall(r"[a-z0-9]+", name.lower())
    breaks = ("." if a[-1].isdigit() and b[0].isdigit() else "" for a, b in itertools.pairwise(words))
    return "".join(itertools.chain.from_iterable(itertools.zip_longest(words, breaks, fillvalue="")))


#: What checkpoints of one shape add to its name: how they were tuned, when (MMDD or YYMM), and their format.
_OF_CHECKPOINTS = re.compile(
    r"-(instruct|thinking|chat|base|it|hf|v0\.\d|(0\d|1[0-2])[0-3]\d|2\d(0\d|1[0-2])|bf16|fp8|nvfp4|mxfp4|awq|gptq)"
    r"(?=-|$)",
    re.IGNORECASE,
)


def find(kind: str, name: str, folder: Folder = None) -> str | None:
    """Return the slug of the entry that ``name`` means, a slug, name or alias; None where there is none.

    Checkpoints have the shape of the model that they are of: ``Qwen/Qwen3-8B-Instruct-2507`` is ``qwen3-8b``.

    Args:
        kind: of the entry, such as ``accelerator``.
        name: slug, name, alias or name of a checkpoint.
        folder: catalogue to search first.
    """
    spellings = [name]
    if kind == "workload":
        without_owner = name.rpartition("/")[2].removeprefix("Meta-")
        spellings += [without_owner, _OF_CHECKPOINTS.sub("", without_owner)]
    return next((slug for spelling in dict.fromkeys(spellings) if (slug := _find(kind, spelling, folder))), None)


def _find(kind: str, name: str, folder: Folder) -> str | None:
    """Return the slug that a name means in the user's and the package's files, else in others'; None for none."""
    folders, n_plugin_folders = _folders(kind, folder), len(catalog_folders())
    ours = folders[: len(folders) - n_plugin_folders]
    return _find_in(ours, name) or (_find_in(folders, name) if n_plugin_folders else None)


def _find_in(folders: list[Path], name: str) -> str | None:
    """Return the slug that a slug, name or alias means in folders of a kind, None for none."""
    listings = tuple((kind_folder, _slugs(kind_folder)) for kind_folder in folders)
    if any(name in slugs for _, slugs in listings):
        return name
    files, plain_name = _paths(listings), plain(name)
    if slug := next((slug for slug in files if plain(slug) == plain_name), None):
        return slug
    return next((slug for slug, title in _cached_titles(tuple(files.items())) if plain(title) == plain_name), None)


def _cached_titles(files: tuple[tuple[str, Path], ...]) -> tuple[tuple[str, str], ...]:
    """Return (slug, name or alias) of every file, which later processes read without its files."""
    state = tuple((str(path), *stamp(path)) for _, path in files)
    return _titles_of(files, state)


@functools.lru_cache(maxsize=64)
def _titles_of(files: tuple[tuple[str, Path], ...], state: object) -> tuple[tuple[str, str], ...]:
    """Return :func:`_cached_titles` for a state of the files."""
    return cached_value("titles", state, lambda: tuple(_titles(dict(files))))


def _titles(slugs: dict[str, Path]) -> Iterator[tuple[str, str]]:
    """Yield (slug, name or alias) of every file, without a user's files that cannot be read."""
    for slug, path in slugs.items():
        try:
            data = parse(path)
        except (InputError, OSError):
            if path.is_relative_to(catalog_root()):
                raise
            continue
        aliases = data.get("aliases")
        for title in [data.get("name"), *(aliases if isinstance(aliases, list) else [])]:
            if isinstance(title, str):
                yield slug, title


def name_to_slug(kind: str, folder: Folder = None) -> dict[str, str]:
    """Return slug, name or alias → slug, of every entry of a kind."""
    slugs = paths(kind, folder)
    return {title: slug for slug, title in _titles(slugs)} | {slug: slug for slug in slugs}


# Files are cached by path and time of change, so that an edit counts at once.


def parse(path: Path) -> dict[str, Any]:
    """Return key → plain value of a TOML file, kept until it changes; InputError for one that cannot be read."""
    return _parse_cached(path, *stamp(path))


def stamp(path: Path) -> tuple[int, int]:
    """Return (change time in ns, bytes) of a file, which tell that it has changed."""
    status = path.stat()
    return status.st_mtime_ns, status.st_size


def stamps(kind: str, folder: Folder = None) -> tuple[tuple[str, int, int], ...]:
    """Return (file, change time in ns, bytes) of every file of a kind, including hidden ones of later folders."""
    files = [
        f"{kind_folder}{os.sep}{slug}.toml" for kind_folder in _folders(kind, folder) for slug in _slugs(kind_folder)
    ]
    return tuple((file, status.st_mtime_ns, status.st_size) for file in files if (status := _status(file)) is not None)


def _status(file: str) -> os.stat_result | None:
    """Return the status of a file, None where it is missing."""
    try:
        return os.stat(file)
    except OSError:
        return None


def cached_value(name: str, state: object, compute: Callable[[], T]) -> T:
    """Return a value that follows from files of the catalogue, which later processes need not read for it again.

    Args:
        name: of the value.
        state: stamps of all files that it follows from.
        compute: reads it from these files; picklable and not None.
    """
    value: T = cache.get_or_compute(f"{name} {code_digest()} {state}", compute)
    return value


@functools.lru_cache(maxsize=4096)
def _parse_cached(path: Path, *stamp: int) -> dict[str, Any]:
    """Return key → plain value of a TOML file, kept for its stamp."""
    return toml.parse(inputs.text(path, "a TOML file", display_name=display_path(path)), display_path(path))


def display_path(path: Path) -> str:
    """Return the path of a file for messages: from ``hw_catalog/`` on, or as it is outside of it."""
    root = catalog_root()
    return path.relative_to(root.parent).as_posix() if path.is_relative_to(root) else str(path)
