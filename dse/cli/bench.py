"""``dse bench``: rates on this machine."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

import dse
from dse.cli import show
from dse.cli.options import Json
from dse.cli.status import report_errors
from dse.errors import InputError


@report_errors
def bench(
    starts: Annotated[bool, typer.Option(help="Also time new processes, with a cold and a warm cache.")] = True,
    as_json: Json = False,
) -> None:
    """Measure how fast dse is here.

    Rates and start-up times of the standard sweep. Needs a source checkout.
    """
    measured = _rates().bench(starts=starts)
    if as_json:
        show.document(measured)
    else:
        rows = [[name, f"{value:,.4g}" if isinstance(value, float) else str(value)] for name, value in measured.items()]
        show.print_table(show.console(), ["", "measured"], rows, left=[""])


def _rates() -> ModuleType:
    """The package ``benchmarks.rates`` of the checkout; it is not in the wheel."""
    checkout = Path(dse.__file__).parents[1]
    if not (checkout / "benchmarks" / "rates").is_dir():
        raise InputError(
            "dse bench",
            f"no folder benchmarks next to {Path(dse.__file__).parent}",
            "a source checkout",
            "clone the repository and run `make bench` there",
        )
    if str(checkout) not in sys.path:
        sys.path.insert(0, str(checkout))
    return importlib.import_module("benchmarks.rates")
