"""The command line: parses, calls, prints. Each command is a file of its own.

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
    diagnose,
    diff,
    evaluate,
    examples,
    launch,
    measure,
    merge,
    names,
    page,
    plan,
    plot,
    pools,
    posttrain,
    programs,
    report,
    run,
    search,
    simulate,
    trace,
)
from dse.cli.usage import Commands
from dse.io.environment import fuse_outputs
from dse.io.interruption import end

app = typer.Typer(
    name="dse",
    cls=Commands,
    help="Explore the design space of LLM training and inference systems.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich would read [default: …] as markup, and truncate names on narrow terminals
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
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
    fuse_outputs()


app.command()(run.run)
app.command()(merge.merge)
app.command()(search.search)
app.command()(pools.pools)
app.command()(plan.plan)
app.command()(posttrain.posttrain)
app.command()(evaluate.evaluate)
app.command()(decide.decide)
app.command()(measure.measure)
app.command()(trace.trace)
app.command()(simulate.simulate)
app.command()(launch.launch)
app.command()(calibration.predict)
app.command()(calibration.validate)
app.command()(calibration.calibrate)
app.command()(diagnose.diagnose)
app.command()(plot.plot)
app.command()(diff.diff)
app.command()(report.report)
app.command()(page.page)
app.command("list")(names.names)
app.command()(bench.bench)
app.command("serve-api")(programs.serve_api)
app.command()(programs.mcp)
app.add_typer(catalog.app, name="catalog")
app.add_typer(examples.app, name="examples")


def main() -> None:
    """Run the command of the arguments and exit."""
    try:
        app()
    except SystemExit as ended:
        end(ended.code if isinstance(ended.code, int) else int(ended.code is not None))
    end(0)
