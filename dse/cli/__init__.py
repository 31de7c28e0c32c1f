"""The command line: parses, calls, prints.

Each command is a file of its own; those of the lab, and of others, join by entry points (:mod:`dse.cli.panels`).

Exit status: 0 done, 1 nothing feasible, 2 bad input, 3 a part could not be computed, 130 interrupted, 143 terminated,
141 where the reader of the output has closed it.
"""

from __future__ import annotations

from typing import Annotated

import typer

import dse
from dse.cli import (
    bench,
    calibration,
    catalog,
    decide,
    diff,
    evaluate,
    examples,
    launch,
    merge,
    names,
    panels,
    plan,
    plot,
    pools,
    programs,
    run,
    search,
    trace,
)
from dse.cli.usage import Command, Commands
from dse.io import fuse_outputs
from dse.io.interruption import end
from dse.io.terminal import filter_output

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


#: Panel of the help → name → command.
PANELS = panels.with_plugins({
    "Ask": {
        "evaluate": evaluate.evaluate, "run": run.run, "search": search.search, "decide": decide.decide,
        "predict": calibration.predict,
    },
    "Serve": {"plan": plan.plan, "pools": pools.pools},
    "Compare with reality": {"validate": calibration.validate},
    "Show": {
        "plot": plot.plot, "diff": diff.diff, "trace": trace.trace,
        "launch": launch.launch,
    },
    "Manage": {
        "list": names.names, "catalog": catalog.app, "examples": examples.app, "merge": merge.merge,
        "serve-api": programs.serve_api, "mcp": programs.mcp, "bench": bench.bench,
    },
})  # fmt: skip

for _panel, _commands in PANELS.items():
    for _name, _command in _commands.items():
        if isinstance(_command, typer.Typer):
            app.add_typer(_command, name=_name, rich_help_panel=_panel)
        else:
            app.command(_name, cls=Command, rich_help_panel=_panel)(_command)


def main() -> None:
    """Run the command of the arguments and exit."""
    filter_output()
    try:
        app()
    except SystemExit as ended:
        end(ended.code if isinstance(ended.code, int) else int(ended.code is not None))
    end(0)


__all__ = ["PANELS", "app", "main"]
