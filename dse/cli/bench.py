"""``dse bench``: rates on this machine."""

from __future__ import annotations

import json
import subprocess
from typing import Annotated

import typer

from dse.cli import show
from dse.cli.options import Json
from dse.cli.status import report_errors
from dse.errors import InputError


@report_errors
def bench(
    starts: Annotated[bool, typer.Option(help="Also time new processes, with a cold and a warm cache.")] = True,
    as_json: Json = False,
) -> int:
    """Measure how fast dse is here.

    Rates and start-up times of the standard sweep. Needs a source checkout.
    """
    from dse.io import checkout

    program = checkout.program("bench")
    if program is None:
        got = "an installation, which leaves the programs that measure out"
        raise InputError("dse bench", got, "a source checkout", "clone the repository and run `make bench` there")
    status, text = checkout.run(program, [] if starts else ["--fast"], subprocess.PIPE)
    if status:
        return status
    measured = json.loads(text)
    if as_json:
        show.document(measured)
    else:
        rows = [[name, f"{value:,.4g}" if isinstance(value, float) else str(value)] for name, value in measured.items()]
        show.print_table(show.console(), ["", "measured"], rows, left=[""])
    return 0
