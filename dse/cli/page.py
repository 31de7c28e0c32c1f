"""``dse page``: one design as a page that computes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dse.cli.evaluate import design_of
from dse.cli.options import AnyOption, Devices, Force, Serving, Settings, Stack, System, Workload
from dse.cli.status import report_errors
from dse.errors import InputError

#: Ending of pages.
_ENDING = ".html"


@report_errors
def page(
    workload: Workload,
    system: System,
    settings: Settings = None,
    n_devices: Devices = None,
    software: Stack = None,
    any_option: AnyOption = False,
    serving: Serving = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File ending in .html [default: WORKLOAD_SYSTEM.html].")
    ] = None,
    force: Force = False,
) -> None:
    """Write a page that computes one design, one HTML file.

    The model is in the page: sliders and fields for every value, time, memory, energy and cost by part, a curve over
    any value and a map over any two, without Python and without a network.
    """
    from dse.designs.calibrated import accelerator_of
    from dse.designs.leaves import short_name
    from dse.doors.studies import STUDIES
    from dse.io import outputs
    from dse.views import live
    from dse.views.report.lines import value_text

    place = output or Path(f"{workload}_{system}{_ENDING}")
    if place.suffix.lower() != _ENDING:
        raise InputError("--output", place.name, f"a name ending in {_ENDING}", f"write {place.with_suffix(_ENDING)}")
    outputs.checked(place, force, [])
    study = STUDIES["serving" if serving else "training"]
    asked = design_of(workload, system, settings, n_devices, software, any_option, study)
    words = ["-w", workload, "-s", system, *(["--software", software] if software else [])]
    words += ["--any-option"] if any_option else []
    stated = {short_name(path): value_text(path, value) for path, value in asked.values.items()}
    names = live.Named(workload, system, asked.stack, accelerator_of(system), words, stated, known=asked.stated)
    live.write(study, asked.design, names, place, force)
    print(f"{place} ({place.stat().st_size / 2**20:.1f} MiB)")
