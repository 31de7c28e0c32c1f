"""The command line: a command for each capability, and the doors for programs.

**Answers** ``dse …`` in a terminal, and programs over HTTP and MCP (``service/``).

**Knows** typer, exit statuses and errors of command lines, and no capability: ``commands.py`` makes a command of what
each declares, ``usage.py`` puts errors in four parts, ``status.py`` ends a process.

**Start** with ``commands.py``: ``command(capability)`` is the whole way from words to a printed report.

Exit status: 0 done, 1 nothing feasible, 2 bad input, 3 a part could not be computed, 130 interrupted, 143 terminated,
141 where the reader of the output has closed it.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

import dse
from dse.cli import programs
from dse.cli.commands import alone, command
from dse.cli.usage import Command, Commands
from dse.io import fuse_outputs
from dse.io.interruption import end
from dse.io.terminal import filter_output
from dse.reports.registry import PANELS, capabilities, faults
from dse.reports.terminal import note

app = typer.Typer(
    name="dse",
    cls=Commands,
    help="Explore the design space of LLM training and inference systems.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich would read [default: …] as markup, and truncate names on narrow terminals
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _show_version(requested: bool) -> None:
    """Print the version and exit, where it is requested."""
    if requested:
        typer.echo(f"dse {dse.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    fuse_outputs()


#: Groups of commands, such as ``dse catalog list``, by name.
_GROUPS: dict[str, typer.Typer] = {}


def _add_commands() -> None:
    """Add a command for each capability, by panel; a name of two words is a command of a group.

    A capability named like a group is what the group does alone.
    """
    made = capabilities()
    groups = {name.rpartition(" ")[0] for name in made}
    panels = dict.fromkeys((*PANELS, *(capability.panel for capability in made.values())))
    for panel in panels:
        for capability in (one for one in made.values() if one.panel == panel):
            group, _, name = capability.name.rpartition(" ")
            if capability.name in groups:
                _add_group(capability.name, panel, capability.help, alone(capability))
                continue
            if group and group not in _GROUPS:
                _add_group(group, panel, capability.group_help)
            parent = _GROUPS[group] if group else app
            parent.command(name, cls=Command, rich_help_panel=panel)(command(capability))
    for name, program in (("serve-api", programs.serve_api), ("mcp", programs.mcp)):
        app.command(name, cls=Command, rich_help_panel="Manage")(program)


def _add_group(name: str, panel: str, about: str, call: Any = None) -> None:
    """Add a group of commands, and what it does alone: by default it prints its help."""
    is_command = call is not None
    _GROUPS[name] = typer.Typer(
        help=about,
        callback=call,
        invoke_without_command=is_command,
        no_args_is_help=not is_command,
        rich_markup_mode=None,
    )
    app.add_typer(_GROUPS[name], name=name, rich_help_panel=panel)


_add_commands()
for _fault in faults():
    note(_fault)


def main() -> None:
    """Run the command of the arguments and exit."""
    filter_output()
    try:
        app()
    except SystemExit as ended:
        end(ended.code if isinstance(ended.code, int) else int(ended.code is not None))
    end(0)


__all__ = ["app", "main"]
