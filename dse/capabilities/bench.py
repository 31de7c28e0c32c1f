"""``dse bench``: rates on this machine."""

from __future__ import annotations

import json
import subprocess

from dse.errors import InputError
from dse.reports import Column, Report, Table, capability


@capability("Manage", local="measures a machine for minutes")
def bench(starts: bool = True) -> Report:
    """Measure how fast dse is here.

    Rates and start-up times of the standard sweep. Needs a source checkout.

    Args:
        starts: Also time new processes, with a cold and a warm cache.
    """
    from dse.io import checkout

    program = checkout.program("bench")
    if program is None:
        got = "an installation, which leaves the programs that measure out"
        raise InputError("dse bench", got, "a source checkout", "clone the repository and run `make bench` there")
    status, text = checkout.run(program, [] if starts else ["--fast"], subprocess.PIPE)
    if status:
        return Report({}, status=status)
    measured = json.loads(text)
    rows = [{"name": name, "measured": value} for name, value in measured.items()]
    value = Column("measured", "measured", lambda value: f"{value:,.4g}" if isinstance(value, float) else str(value))
    return Report(measured, [Table("rates", [Column("", "name", left=True), value], rows)])
