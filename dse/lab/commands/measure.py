"""``dse.measure``: which measurement is worth making for a decision, and how it is made."""

from __future__ import annotations

from typing import Annotated, Any

from dse.capabilities.decide import choices_of, is_maximised
from dse.errors import InputError
from dse.io import counted, percent
from dse.reports import Column, Line, Option, Report, Table, capability, heading, verbatim
from dse.reports.options import AnyOption, CommonSystem, CommonWorkload, Designs, Serving, Settings
from dse.reports.report import NOTHING_FEASIBLE
from dse.reports.tables import Section

_NEXT_STEPS = (
    "dse decide --measured counts such rows in full; dse calibrate --add writes what of them lies in catalogue values, "
    "not what lies in residuals."
)


@capability("Compare with reality", details=("lines",))
def measure(
    designs: Designs,
    on: Annotated[str, Option(metavar="SYSTEM")],
    devices: Annotated[int | None, Option(low=1)] = None,
    workload: CommonWorkload = None,
    system: CommonSystem = None,
    settings: Settings = None,
    any_option: AnyOption = False,
    serving: Serving = False,
    metric: str | None = None,
    count: Annotated[int, Option(low=1, high=50)] = 5,
) -> Report:
    """Rank measurements by their worth to a decision.

    Worth is how much the expected loss of the decision falls, with normal errors where dse decide draws fat tails.
    Considered are kernels and collectives of the designs on the machine at hand, and training steps or engines as large
    as the machine. Each has the line that measures it and the row of the table that dse calibrate --add reads back:
    the first is shown, the detail lines has all. Exit status 1 where no measurement lowers the loss.

    Args:
        designs: Designs: SYSTEM, SYSTEM,tp=8,… or tp=8,… each; or a results file, for its best.
        on: Machine at hand, a system or an accelerator.
        devices: Devices of the machine at hand [default: one node].
        workload: Workload of designs without their own [default: none].
        system: System of designs without their own [default: none].
        settings: Set any value of the design: tp=8, recompute=full, …
        any_option: Allow mapping options that the stack lacks, and stacks of another vendor.
        serving: Serve requests instead of training.
        metric: Metric to decide by [default: the objective].
        count: Measurements shown, at most.
    """
    from dse.designs import accelerator_of, catalog
    from dse.lab.decide import Belief, Machine, measurement_offer, measurement_order
    from dse.reports.csv import rows_text

    study, choices, objective, notes = choices_of(designs, workload, system, settings, any_option, serving)
    metric = objective if metric is None else metric
    higher_is_better = is_maximised(metric, study)
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
    rows: list[dict[str, Any]] = [
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
    ]
    best = choices[belief.best_design].name
    document: dict[str, Any] = {"study": study.name, "metric": metric, "machine": machine, "best": best}
    document |= {"expected_loss": belief.loss, "measurements": rows}
    at_hand = f"{counted(machine.devices, 'device')} of {machine.system}"
    considered = f"{counted(len(offer.candidates), 'measurement')} on {at_hand}"
    loss = f"expected loss of choosing it: {percent(belief.loss)}"
    sections: list[Section] = [Line(f"best as predicted, by {metric}: {best}; {loss}")]
    if not steps:
        sections.append(Line(f"{considered}: none lowers the expected loss by 0.01 %"))
        return Report(document, sections, notes, status=NOTHING_FEASIBLE)
    columns = [
        Column("", "number"),
        Column("measurement", "name", left=True, prose=True),
        Column("lowers loss by", "lowers_by", percent),
        Column("loss after all so far", "expected_loss", percent),
    ]
    numbered = [{"number": i, **row} for i, row in enumerate(rows, 1)]
    sections.append(Table("measurements", columns, numbered))
    sections.append(Line(f"{considered} considered, each lowers the loss so much if made alone. {_NEXT_STEPS}"))
    for row in numbered:
        show = "lines" if row["number"] > 1 else ""
        sections.append(heading(f"{row['number']}. {row['name']}", show))
        sections.append(verbatim(f"{row['line']}\n{rows_text([row['row']])}".rstrip("\n"), show))
    return Report(document, sections, notes)
