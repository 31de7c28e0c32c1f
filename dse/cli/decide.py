"""``dse decide``: which of some designs is better, how sure that is, and what it depends on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from dse.cli import show
from dse.cli.evaluate import design_of
from dse.cli.options import AnyOption, Json, Settings
from dse.cli.status import NOTHING_FEASIBLE, report_errors
from dse.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from dse.doors.study import Study
    from dse.measured.decision import Choice, Decision

#: Best designs of a results file, and the parts of a difference, that are shown.
_TOP, _PARTS = 10, 3


@report_errors
def decide(
    designs: Annotated[
        list[str],
        typer.Argument(
            metavar="A B …", help="Designs: SYSTEM, SYSTEM,tp=8,… or tp=8,… each; or a results file, for its best."
        ),
    ],
    workload: Annotated[
        str | None, typer.Option("--workload", "-w", help="Workload of designs without their own [default: none].")
    ] = None,
    system: Annotated[
        str | None, typer.Option("--system", "-s", help="System of designs without their own [default: none].")
    ] = None,
    settings: Settings = None,
    any_option: AnyOption = False,
    serving: Annotated[bool, typer.Option("--serving", help="Serve requests instead of training.")] = False,
    metric: Annotated[
        list[str] | None, typer.Option(help="Metric to decide by; several [default: the study's objective].")
    ] = None,
    as_json: Json = False,
) -> int:
    """Compare designs under the uncertainty of their predictions.

    Prints for each the probability that it is the best, what choosing it is expected to lose and what it loses at most
    in 90 % of cases, whether it fits in memory, and which parts of the uncertainty decide between the first two.
    Designs that errors of the model do not distinguish are a tie. Exit status 1 where no design can run.
    """
    from dse.measured.decision import decide as decided

    study, choices = choices_of(designs, workload, system, settings or [], any_option, serving)
    found = [decided(choices, name, study, more_is_better(name, study)) for name in metric or [study.objective]]
    if as_json:
        show.document({"study": study.name, "decisions": [_document(one) for one in found]})
    else:
        for one in found:
            _print(show.console(), one, study)
    return 0 if any(one.probability_feasible > 0.0 for one in found[0].verdicts) else NOTHING_FEASIBLE


def choices_of(
    texts: list[str], workload: str | None, system: str | None, settings: list[str], any_option: bool, serving: bool
) -> tuple[Study, list[Choice]]:
    """The study and the designs of the arguments; InputError for fewer than two."""
    from dse.doors.studies import STUDIES

    if len(texts) == 1 and texts[0].endswith(".nc"):
        study, found = of_results(Path(texts[0]))
    else:
        study = STUDIES["serving" if serving else "training"]
        found = [_choice(text, workload, system, settings, any_option, study) for text in texts]
    if len(found) < 2:
        raise InputError("decide", show.counted(len(found), "design"), "two designs or more", "name another one")
    return study, found


def _choice(
    text: str, workload: str | None, system: str | None, settings: list[str], any_option: bool, study: Study
) -> Choice:
    """The design of one argument: a system, values, or both."""
    from dse.designs import catalog
    from dse.designs.calibrated import accelerator_of
    from dse.measured.decision import Choice

    parts = [part.strip() for part in text.split(",")]
    named = next((part for part in parts if "=" not in part), system)
    own = dict(part.split("=", 1) for part in parts if "=" in part)
    model = own.pop("workload", workload)
    if named is None or model is None:
        lacks, option = ("system", "-s") if named is None else ("workload", "-w")
        raise InputError("decide", f"{text}: no {lacks}", "a workload and a system each", f"add {option} NAME")
    common = [one for one in settings if one.partition("=")[0].strip() not in own]
    asked = design_of(
        model, named, [*common, *(f"{name}={value}" for name, value in own.items())], None, None, any_option, study
    )
    stack = catalog.resolve("software", asked.stack)
    return Choice(text, asked.design, stack, accelerator_of(named), catalog.resolve("workload", model), named)


def of_results(path: Path) -> tuple[Study, list[Choice]]:
    """The study of a results file, and its best designs by the first objective."""
    import dse
    from dse.measured.decision import Choice
    from dse.sweep.results.rebuilding import grid_of
    from dse.sweep.results.summary import named_designs

    results = dse.open_results(path)
    grid = grid_of(results)
    indices = [int(index) for index in str(results.attrs.get("best_designs", "")).split()][:_TOP]
    return grid.spec.study, [Choice(*one) for one in named_designs(grid, indices)]


def more_is_better(metric: str, study: Study) -> bool:
    """Whether more of a metric is better; InputError for one without an interval."""
    from dse.measured.uncertainty import figure_of

    if metric not in study.units or figure_of(metric, study) is None:
        known = [name for name in study.units if figure_of(name, study)]
        raise InputError("--metric", repr(metric), ", ".join(known), "name a metric with an interval")
    return metric == study.rate or "per_second" in metric or metric.endswith(("mfu", "mfu_causal", "hfu", "per_cost"))


def _document(found: Decision) -> dict[str, Any]:
    return {
        "metric": found.metric, "designs": [one._asdict() for one in found.verdicts],
        "better": [[float(value) for value in row] for row in found.better], "best": found.best.name,
        "ties": found.ties, "robust": found.robust.name, "cautious": found.cautious.name, "shares": found.shares,
    }  # fmt: skip


def _print(out: Console, found: Decision, study: Study) -> None:
    show.heading(out, f"{study.long_names[found.metric]}: {'more' if found.higher_is_better else 'less'} is better")
    units = study.written[found.metric]
    rows = [
        [
            one.name, show.quantity(one.value, units),
            f"{show.quantity(one.low, units)} to {show.quantity(one.high, units)}", show.percent(one.probability_best),
            show.percent(one.expected_regret), show.percent(one.regret_90), show.percent(one.probability_feasible),
        ]
        for one in found.verdicts
    ]  # fmt: skip
    columns = ["design", "predicted", "80 % interval", "best", "expected loss", "90 % below", "fits"]
    show.print_table(out, columns, rows, left=["design"], prose=["design"])
    for text in _sentences(found):
        out.print(Text(text), soft_wrap=True)


def _sentences(found: Decision) -> list[str]:
    """Ties, robust choices and what the difference depends on, a line each."""
    from dse.measured.distance import WORDS

    tie = f"; a tie with {', '.join(found.ties)}" if found.ties else ""
    parts = [
        f"{WORDS.get(name, name.removeprefix('software.'))} {show.percent(share)}"
        for name, share in [*found.shares.items()][:_PARTS]
    ]
    return [
        f"best at the mean: {found.best.name}{tie}",
        f"least expected loss: {found.robust.name}; least loss in 90 % of cases: {found.cautious.name}",
        *([f"the first two differ by: {', '.join(parts)} of the variance"] if parts else []),
    ]
