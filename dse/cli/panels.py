"""Commands by panel of the help: those of the core, and those that join by entry points."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import typer

from dse.cli import show
from dse.errors import InputError
from dse.io import plugins

#: A function, or a group of further commands.
Command = Callable[..., int | None] | typer.Typer


class Registration(NamedTuple):
    """A command, as entry points of the group ``dse.commands`` name it."""

    panel: str  #: heading of the help: Ask, Serve, Compare with reality, Show, Manage, or one of its own
    command: Command


def with_plugins(core: Mapping[str, Mapping[str, Command]]) -> dict[str, dict[str, Command]]:
    """Return panel → name → command: those of the core, then those of entry points by name.

    A command that cannot be loaded, or whose name is one of the core, is left out with a line on stderr: no
    distribution can take the others away.
    """
    panels = {panel: dict(commands) for panel, commands in core.items()}
    names = {name for commands in core.values() for name in commands}
    for name, registration in _plugin_registrations(names):
        panels.setdefault(registration.panel, {})[name] = registration.command
    return panels


def _plugin_registrations(names: set[str]) -> Iterator[tuple[str, Registration]]:
    """Yield (name, registration) of the commands of entry points; invalid ones are left out with a note."""
    entries = plugins.plugins(plugins.COMMANDS)
    if not any(map(plugins.is_builtin, entries.values())):
        show.note("commands of the lab (page, calibrate, …) are missing: install the package again")
    for name, entry in entries.items():
        try:
            registration = plugins.load(entry)
            if name in names or not _is_registration(registration):
                allowed = "a dse.cli.panels.Registration of a function, under a name that is not one of dse"
                raise plugins.refused(entry, entry.value, allowed)
        except InputError as error:
            show.note(f"{error.where}: {error.got}; left out")
        else:
            yield name, registration


def _is_registration(registration: object) -> bool:
    """Return True for a Registration of a text and of a function or group."""
    return (
        isinstance(registration, Registration)
        and isinstance(registration.panel, str)
        and (callable(registration.command) or isinstance(registration.command, typer.Typer))
    )
