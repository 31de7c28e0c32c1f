"""Parts of the lab, and of other distributions, that join by entry points of their distributions.

============ ========================================================= ==============================
group        name = value                                              read by
============ ========================================================= ==============================
dse.commands command = module:function, a capability of dse.reports    :mod:`dse.capabilities`
dse.catalogs any = package or package.folder that holds a catalogue    :mod:`dse.designs.catalog.load`
dse.exchange format of ``dse trace`` = module:function                 :mod:`dse.capabilities.trace`
dse.provers  any = a module with ``prove`` and ``check``               :mod:`dse.optimizers.proofs`
============ ========================================================= ==============================
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import sys
import warnings
from importlib.metadata import Distribution, EntryPoint, entry_points
from pathlib import Path
from typing import Any

from dse.errors import InputError, Notice

#: Groups of entry points.
COMMANDS, CATALOGS, EXCHANGE, PROVERS = "dse.commands", "dse.catalogs", "dse.exchange", "dse.provers"

#: Distribution of this package: what it registers comes before what others do.
DISTRIBUTION = "llm-dse"


@functools.cache
def plugins(group: str) -> dict[str, EntryPoint]:
    """Return name → entry point of a group, sorted by name, without an import.

    Of one name that of this package counts, else the first.
    """
    entries = sorted(entry_points(group=group), key=lambda entry: not is_builtin(entry))
    first = {entry.name: entry for entry in reversed(entries)}
    return dict(sorted(first.items()))


def is_builtin(entry: EntryPoint) -> bool:
    """True for an entry point of this package."""
    return entry.dist is not None and _distribution_name(entry.dist) == DISTRIBUTION


@functools.lru_cache(maxsize=256)
def _distribution_name(distribution: Distribution) -> str:
    """Return the name of a distribution, whose metadata are parsed once."""
    return distribution.name


def load(entry: EntryPoint) -> Any:
    """Import and return the object of an entry point; what its module prints goes to standard error.

    Raises:
        InputError: where its module cannot be imported, ends the process or lacks the object.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return entry.load()
    except (Exception, SystemExit) as error:
        raise refused(entry, f"{entry.value}, which fails with {type(error).__name__}: {error}") from error


def refused(entry: EntryPoint, got: str, allowed: str = "module:object that can be imported") -> InputError:
    """Return the error of an entry point that cannot be used."""
    return InputError(
        f"{entry.group}: {entry.name}", got, allowed, "update or remove the distribution that registers it"
    )


@functools.cache
def catalog_folders() -> tuple[Path, ...]:
    """Return the paths of catalogue folders of other distributions, without an import.

    A folder that is missing is left out, with a :class:`Notice`.
    """
    folders = []
    for entry in plugins(CATALOGS).values():
        entry_folders: list[Path] = []
        with contextlib.suppress(Exception):  # a value that is no name, a package without a specification
            package, *inner = entry.module.split(".")
            spec = importlib.util.find_spec(package)
            locations = spec.submodule_search_locations if spec else None
            entry_folders = [folder for location in locations or () if (folder := Path(location, *inner)).is_dir()]
        if not entry_folders:
            error = refused(entry, entry.value, "package or package.folder that is installed and holds a catalogue")
            warnings.warn(f"{error.where}: {error.got} is no folder; left out", Notice, stacklevel=2)
        folders += entry_folders
    return tuple(folders)
