"""``dse measure``: which measurement is worth making for a decision, and how it is made."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from dse.cli import show
from dse.cli.decide import choices_of, more_is_better
from dse.cli.options import AnyOption, CommonSystem, CommonWorkload, Designs, Json, Serving, Settings
from dse.cli.panels import Registration
from dse.cli.status import NOTHING_FEASIBLE, report_errors
from dse.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dse.lab.decide import Belief, Machine, RankedMeasurement
    from dse.measured.uncertainty.posterior import Choice


_NEXT_STEPS = (
    "dse decide --measured counts such rows in full; dse calibrate --add writes what of them lies in catalogue values, "
    "not what lies in residuals."
)


@report_errors
def measure(
    designs: Designs,
    on: Annotated[str, typer.Option("--on", metavar="SYSTEM", help="Machine at hand, a system or an accelerator.")],
    devices: Annotated[
        int | None, typer.Option(min=1, help="Devices of the machine at hand [default: one node].")
    ] = None,
    workload: CommonWorkload = None,
    system: CommonSystem = None,
    settings: Settings = None,
    any_option: AnyOption = False,
    serving: Serving = False,
    metric: Annotated[str | None, typer.Option(help="Metric to decide by [default: the objective].")] = None,
    count: Annotated[int, typer.Option(min=1, max=50, help="Measurements shown, at most.")] = 5,
    as_json: Json = False,
) -> int:
    """Rank measurements by their worth to a decision.

    Worth is how much the expected loss of the decision falls, with normal errors where dse decide draws fat tails.
    Considered are kernels and collectives of the designs on the machine at hand, and training steps or engines as large
    as the machine. Each is printed with the line that measures it and the row of the table that dse calibrate --add
    reads back. Exit status 1 where no measurement lowers the loss.
    """
    from dse.designs import accelerator_of, catalog
    from dse.lab.decide import Belief, Machine, measurement_offer, measurement_order

    study, choices, objective = choices_of(designs, workload, system, settings or [], any_option, serving)
    metric = objective if metric is None else metric
    higher_is_better = more_is_better(metric, study)
    chip = accelerator_of(catalog.resolve("system", on, "--on"))
    node = catalog.entry("system", on, "--on")
    per_node = node.value("devices_per_node", node.value("node.devices_per_node"))
    machine = Machine(on, chip, devices or int(per_node))
    offer = measurement_offer(choices, metric, study, machine)
    if not offer.candidates:
        raise InputError(
            "--on",
            f"{on}, which is no chip of the designs",
            "a machine with the accelerator of a design",
            "name the system of one of the designs",
        )
    belief = Belief.from_posterior(offer.posterior, higher_is_better)
    steps = measurement_order(belief, offer.candidates, count)
    if as_json:
        show.document(_document(study.name, metric, machine, choices, belief, steps))
    else:
        _print(metric, machine, choices, belief, steps, len(offer.candidates))
    return 0 if steps else NOTHING_FEASIBLE


def _document(
    study: str,
    metric: str,
    machine: Machine,
    choices: Sequence[Choice],
    belief: Belief,
    steps: Sequence[RankedMeasurement],
) -> dict[str, Any]:
    """Return the JSON-ready dictionary of a ranking of measurements."""
    return {
        "study": study,
        "metric": metric,
        "machine": machine._asdict(),
        "best": choices[belief.best_design].name,
        "expected_loss": belief.loss,
        "measurements": [
            {
                "name": step.candidate.name,
                "kind": step.candidate.kind,
                "lowers_by": step.value,
                "expected_loss": step.loss,
                "predicted": step.candidate.predicted,
                "seconds": step.candidate.seconds,
                "line": step.candidate.line,
                "row": dict(step.candidate.row),
            }
            for step in steps
        ],
    }


def _print(
    metric: str,
    machine: Machine,
    choices: Sequence[Choice],
    belief: Belief,
    steps: Sequence[RankedMeasurement],
    count: int,
) -> None:
    """Print a ranking of measurements out of ``count``, each with the line that runs it and its CSV row."""
    out = show.console()
    out.print(
        Text(
            f"best as predicted, by {metric}: {choices[belief.best_design].name}; expected loss of choosing it: "
            f"{show.percent(belief.loss)}"
        ),
        soft_wrap=True,
    )
    at_hand = f"{show.counted(machine.devices, 'device')} of {machine.system}"
    considered = f"{show.counted(count, 'measurement')} on {at_hand}"
    if not steps:
        out.print(Text(f"{considered}: none lowers the expected loss by 0.01 %"), soft_wrap=True)
        return
    rows = [
        [f"{i}", step.candidate.name, show.percent(step.value), show.percent(step.loss)]
        for i, step in enumerate(steps, 1)
    ]
    columns = ["", "measurement", "alone lowers loss by", "loss after it and those above"]
    show.print_table(out, columns, rows, left=["measurement"], prose=["measurement"])
    out.print(Text(f"{considered} considered. {_NEXT_STEPS}"), soft_wrap=True)
    for i, step in enumerate(steps, 1):
        show.heading(out, f"{i}. {step.candidate.name}")
        print(step.candidate.line)
        print(_csv_text(step.candidate.row))


def _csv_text(row: Mapping[str, str]) -> str:
    """Return column → text as CSV: a line of the columns and one of the cells."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([list(row), list(row.values())])
    return text.getvalue().rstrip("\n")


REGISTRATION = Registration("Compare with reality", measure)
