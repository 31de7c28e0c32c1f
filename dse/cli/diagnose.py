"""``dse diagnose``: a measured step against the predicted one, part by part."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dse.cli import profiles, show
from dse.cli.options import Force, Json
from dse.cli.status import NOTHING_FEASIBLE, report_errors

if TYPE_CHECKING:
    from dse.measured.diagnosis import Diagnosis


@report_errors
def diagnose(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE …", help="Logs and traces of training, or tables (.csv) of rows.")
    ],
    workload: profiles.Workload = None,
    system: profiles.System = None,
    n_devices: profiles.Devices = None,
    software: profiles.Stack = None,
    settings: profiles.Settings = None,
    rows: profiles.RowsFile = None,
    force: Force = False,
    as_json: Json = False,
) -> int:
    """Compare a measured training step with the predicted one.

    Prints both with the 80 % interval of the prediction, and where a trace has the parts of the step (compute, exposed
    communication, gaps), the seconds that each is longer than predicted. Exit status 1 when no step is predicted.
    """
    from dse.measured import Skip, diagnosis, read_cases

    stated = profiles.StatedCells(workload, system, n_devices, software, settings)
    are_tables = all(".csv" in path.suffixes[-2:] for path in files)
    with profiles.tables(files, not are_tables, stated, rows, None, force) as tables:
        found = diagnosis.diagnose([case for path in tables for case in read_cases(path)])
    told = [one for one in found if not isinstance(one, Skip)]
    if as_json:
        skipped = [str(one) for one in found if isinstance(one, Skip)]
        show.document({"steps": [one.as_dict() for one in told], "skipped": skipped})
    else:
        for one in found:
            if isinstance(one, Skip):
                show.note(f"not predicted: {one}")
            else:
                _print(one)
    return 0 if told else NOTHING_FEASIBLE


def _print(one: Diagnosis) -> None:
    ends, ratio = one.interval, one.measured / one.predicted
    between = f" (80 %: {show.seconds(ends.low)} to {show.seconds(ends.high)})" if ends else ""
    differs = f"{show.percent(abs(ratio - 1.0))} {'longer' if ratio >= 1.0 else 'shorter'} than predicted"
    print(one.source)
    print(f"step {show.seconds(one.measured)} measured, {show.seconds(one.predicted)} predicted{between}: {differs}, "
          f"{'within' if one.is_explained else 'outside'} the interval")  # fmt: skip
    heads = ["part", "measured", "predicted", "longer by"]
    cells = [
        [part.name, *(["–", show.seconds(part.predicted), "–"] if part.measured is None else
         [show.seconds(part.measured), show.seconds(part.predicted), _signed(part.measured - part.predicted)])]
        for part in one.parts
    ]  # fmt: skip
    show.print_table(show.console(), heads, cells, left=["part"])
    if one.memory:
        measured, predicted = (value / 2**30 for value in one.memory)
        print(f"peak memory {measured:.1f} GiB measured, {predicted:.1f} GiB predicted")
    if one.note:
        show.note(one.note)


def _signed(seconds: float) -> str:
    return f"{'-' if seconds < 0.0 else '+'}{show.seconds(abs(seconds))}"
