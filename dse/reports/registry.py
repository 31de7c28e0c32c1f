"""Capabilities by name: those of the core, of the lab, and of other distributions.

Doors know capabilities by what they declare, and import none of them: those of the core are modules of
``dse.capabilities`` in :data:`MODULES`, the others are named by entry points of the group ``dse.commands``.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from typing import Any

from dse.errors import InputError
from dse.io import plugins
from dse.reports.capabilities import Capability

#: Package of the capabilities of the core.
_ROOM = "dse.capabilities"

#: Name in Python → module of :mod:`dse.capabilities`, in the order of the help.
MODULES = {
    "evaluate": "evaluate",
    "run": "run",
    "search": "search",
    "decide": "decide",
    "predict": "predictions",
    "read": "read",
    "serve": "evaluate",
    "plan": "plan",
    "break_even": "break_even",
    "pools": "pools",
    "validate": "predictions",
    "plot_results": "plot",
    "diff": "diff",
    "trace": "trace",
    "launch": "launch",
    "names": "names",
    "merge": "run",
    "catalog_list": "catalog",
    "show": "catalog",
    "catalog_check": "catalog",
    "catalog_from_config": "catalog",
    "examples": "examples",
    "examples_show": "examples",
    "bench": "bench",
}

#: Panels of the help, in order.
PANELS = ("Ask", "Serve", "Compare with reality", "Show", "Manage")


def capabilities() -> dict[str, Capability]:
    """Return name as a command → capability: those of the core, then those of entry points by name."""
    return _loaded()[0]


def faults() -> list[str]:
    """Return a line for each entry point that is left out: no distribution can take the others away."""
    return _loaded()[1]


@functools.cache
def _loaded() -> tuple[dict[str, Capability], list[str]]:
    """Return name → capability, and why others are left out: they cannot be loaded, or their name is taken."""
    core = [getattr(importlib.import_module(f"{_ROOM}.{module}"), name) for name, module in MODULES.items()]
    by_name: dict[str, Capability] = {function.capability.name: function.capability for function in core}
    names, faults = frozenset(by_name), []
    entries = plugins.plugins(plugins.COMMANDS)
    if not any(map(plugins.is_builtin, entries.values())):
        faults.append("capabilities of the lab (page, calibrate, …) are missing: install the package again")
    for name, entry in entries.items():
        try:
            made = getattr(plugins.load(entry), "capability", None)
            if name in names or not isinstance(made, Capability):
                raise plugins.refused(entry, entry.value, "a capability of dse.reports, under a name that dse lacks")
            by_name[name] = made
        except InputError as error:
            faults.append(f"{error.where}: {error.got}; left out")
    return by_name, faults


def remote_capabilities() -> dict[str, Capability]:
    """Return name in HTTP and MCP → capability of those that answer there."""
    return {made.key: made for made in capabilities().values() if not made.local}


def function(name: str) -> Any:
    """Return the capability ``name`` of Python as a function.

    Raises:
        AttributeError: if there is none.
    """
    if name in MODULES:
        return getattr(importlib.import_module(f"{_ROOM}.{MODULES[name]}"), name)
    with contextlib.suppress(KeyError):
        return plugins.load(plugins.plugins(plugins.COMMANDS)[name.replace("_", "-")])
    raise AttributeError(f"module 'dse' has no attribute {name!r}")
