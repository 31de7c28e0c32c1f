"""The command line: parses, calls, prints. Each command is a file of its own.

Exit status: 0 done, 1 nothing feasible, 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

import dse
from dse.cli import bench, calibration, catalog, evaluate, merge, plot, run, search

app = typer.Typer(
    name="dse",
    help="Explore the design space of LLM training systems.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dse {dse.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    keep_compiled_programs()


app.command()(run.run)
app.command()(merge.merge)
app.command()(search.search)
app.command()(evaluate.evaluate)
app.command()(calibration.predict)
app.command()(calibration.validate)
app.command()(calibration.calibrate)
app.command()(plot.plot)
app.command()(bench.bench)
app.add_typer(catalog.app, name="catalog")


def keep_compiled_programs() -> None:
    """Let JAX keep compiled programs in the user's cache folder, so that a second run starts at once.

    The folder is ``$DSE_CACHE``, else ``$XDG_CACHE_HOME/dse``, else ``~/.cache/dse``; one that cannot be
    written to is left alone. JAX's own environment variables take precedence. JAX reads them when it is
    imported, which is later than this.
    """
    own = os.environ.get("DSE_CACHE")
    folder = Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dse"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return
    if os.access(folder, os.W_OK):
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder))
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")


def main() -> None:
    """Entry point of the command ``dse``."""
    app()
