"""Parts of the lab, and of other distributions, that join by entry points of their distributions.

============ ========================================================= ==============================
group        name = value                                              read by
============ ========================================================= ==============================
dse.commands command = module:object, a ``dse.cli.panels.Registration`` :mod:`dse.cli`
dse.catalogs any = package or package.folder that holds a catalogue    :mod:`dse.designs.catalog.load`
dse.exchange format of ``dse trace`` = module:function                 :mod:`dse.cli.trace`
dse.provers  any = a module with ``prove`` and ``check``               :mod:`dse.optimizers.proofs`
============ ========================================================= ==============================
"""

from __future__ import annotations

import functools
import importlib.util
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from dse.errors import InputError

#: Groups of entry points.
COMMANDS, CATALOGS, EXCHANGE, PROVERS = "dse.commands", "dse.catalogs", "dse.exchange", "dse.provers"


@functools.cache
def plugins(group: str) -> dict[str, EntryPoint]:
    """Name → entry point of a group, by name; nothing of them is imported."""
    return {entry.name: entry for entry in sorted(entry_points(group=group), key=lambda entry: entry.name)}


def load(entry: EntryPoint) -> Any:
    """The object of an entry point.

    Raises:
        InputError: where its module cannot be imported or lacks the object.
    """
    try:
        return entry.load()
    except Exception as error:
        raise InputError(
            f"{entry.group}: {entry.name}",
            f"{entry.value}, which fails with {type(error).__name__}: {error}",
            "module:object that can be imported",
            "update or remove the distribution that registers it",
        ) from error


@functools.cache
def catalog_folders() -> tuple[Path, ...]:
    """Catalogue folders of other distributions; their code is not imported."""
    folders = []
    for entry in plugins(CATALOGS).values():
        package, *inner = entry.module.split(".")
        spec = importlib.util.find_spec(package)
        locations = spec.submodule_search_locations if spec else None
        folders += [folder for place in locations or () if (folder := Path(place, *inner)).is_dir()]
    return tuple(folders)
