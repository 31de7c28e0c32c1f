"""``dse merge``: one file from the shards of a sweep."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from dse.cli.options import Figure, Force, Json
from dse.cli.run import finish
from dse.cli.status import report_errors
from dse.errors import InputError
from dse.views.figures import check


@report_errors
def merge(
    output: Annotated[
        Path, typer.Argument(metavar="OUTPUT.nc", help="The file that dse run --shard was given with -o.")
    ],
    force: Force = False,
    figure: Figure = True,
    as_json: Json = False,
) -> int:
    """Join the shards of a sweep into one file.

    The shards are what dse run --shard 1/n … n/n left next to OUTPUT.nc.
    """
    if output.suffix.lower() == ".toml":
        allowed, fix = "the results file of the shards (dse run … --shard i/n -o FILE.nc)", "name that file"
        raise InputError("OUTPUT.nc", str(output), allowed, fix)
    start_s = time.perf_counter()
    from dse import sweep as sweeps
    from dse.measured.decisions.running import judge

    import_seconds = time.perf_counter() - start_s
    if figure:
        check(output, force, machines=False)
    _, summary = sweeps.merge(output, force=force, judge=judge)
    return finish(summary, import_seconds, figure, as_json, force)
