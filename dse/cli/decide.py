"""``dse decide``: which of some designs is better, how sure that is, and what it depends on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from dse.cli import show
from dse.cli.evaluate import design_of
from dse.cli.options import AnyOption, CommonSystem, CommonWorkload, Designs, Json, Serving, Settings
from dse.cli.status import NOTHING_FEASIBLE, report_errors
from dse.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from dse.doors.study import Study
    from dse.measured.decisions.choice import Choice, Decision, Verdict

#: Designs, and parts of a difference, that are shown.
_TOP, _PARTS = 10, 3

#: Designs of a results file that are compared, at most.
_MOST = 2000


@report_errors
def decide(
    designs: Designs,
    workload: CommonWorkload = None,
    system: CommonSystem = None,
    settings: Settings = None,
    any_option: AnyOption = False,
    serving: Serving = False,
    metric: Annotated[
        list[str] | None, typer.Option(help="Metric to decide by; several [default: the objective].")
    ] = None,
    scenario: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME: LEAF=VALUE,…|FILE.toml",
            help="A future that may come: 'dear: made.price=+30 %'; several [default: none but the designs as stated].",
        ),
    ] = None,
    measured: Annotated[
        list[Path] | None,
        typer.Option(metavar="CSV", help="Measured rows of the designs, or of ones alike; several [default: none]."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Compare designs under the uncertainty of their predictions.

    Prints for each the probability that it is the best, what choosing it is expected to lose and what it loses at most
    in 90 % of cases, whether it fits in memory, and which parts of the uncertainty decide between the first two.
    With scenarios all this is over them too, and which design is best in each. Of results that keep all or the best
    designs every one is compared, up to 2,000. Designs that errors of the model do not distinguish are a tie. Exit
    status 1 where no design can run. With --measured the designs are as believed after these rows.
    """
    from dse.measured.decisions.choice import decide as decided
    from dse.measured.decisions.evidence import read
    from dse.measured.decisions.scenarios import parsed

    study, choices, objective = choices_of(designs, workload, system, settings or [], any_option, serving)
    futures = [one for text in scenario or [] for one in parsed(text)]
    rows = read(measured, study) if measured else None
    found = [
        decided(choices, name, study, more_is_better(name, study), futures, rows) for name in metric or [objective]
    ]
    if as_json:
        show.document({"study": study.name, "decisions": [_document(one) for one in found]})
    else:
        for one in found:
            _print(show.console(), one, study)
    return 0 if any(one.probability_feasible > _NEVER for one in found[0].verdicts) else NOTHING_FEASIBLE


def choices_of(
    texts: list[str], workload: str | None, system: str | None, settings: list[str], any_option: bool, serving: bool
) -> tuple[Study, list[Choice], str]:
    """The study and the designs of the arguments, and the metric to decide by; InputError for fewer than two."""
    from dse.doors.studies import STUDIES

    if len(texts) == 1 and texts[0].endswith(".nc"):
        study, found, objective = of_results(Path(texts[0]))
    else:
        study = STUDIES["serving" if serving else "training"]
        objective = study.objective
        found = [_choice(text, workload, system, settings, any_option, study) for text in texts]
    if len(found) < 2:
        raise InputError("decide", show.counted(len(found), "design"), "two designs or more", "name another one")
    return study, found, objective


def _choice(
    text: str, workload: str | None, system: str | None, settings: list[str], any_option: bool, study: Study
) -> Choice:
    """The design of one argument: a system, values, or both."""
    from dse.designs import catalog
    from dse.designs.calibrated import accelerator_of
    from dse.measured.decisions.choice import Choice

    parts = [part.strip() for part in text.split(",")]
    systems = [part for part in parts if part and "=" not in part]
    if len(systems) > 1:
        raise InputError(
            "decide",
            f"{text}: {', '.join(systems)}",
            "one system each, and NAME=VALUE",
            "write designs apart, by spaces",
        )
    named = next(iter(systems), system)
    own = dict(part.split("=", 1) for part in parts if "=" in part)
    model = own.pop("workload", workload)
    if named is None or model is None:
        lacks, option = ("system", "-s") if named is None else ("workload", "-w")
        of_all = f"; for a value of all designs repeat --set: --set {text}" if settings and own else ""
        raise InputError("decide", f"{text}: no {lacks}", "a workload and a system each", f"add {option} NAME{of_all}")
    common = [one for one in settings if one.partition("=")[0].strip() not in own]
    asked = design_of(
        model, named, [*common, *(f"{name}={value}" for name, value in own.items())], None, None, any_option, study
    )
    stack = catalog.resolve("software", asked.stack)
    chip, workload = accelerator_of(named), catalog.resolve("workload", model)
    return Choice(text, asked.design, stack, chip, workload, named, stated=asked.stated)


def of_results(path: Path) -> tuple[Study, list[Choice], str]:
    """The study of a results file, its designs, best by the first objective first, and the metric to decide by.

    That is the first objective; the study's for one without an interval.
    """
    import dse
    from dse.measured.decisions.choice import named_choices
    from dse.measured.uncertainty.intervals import has_interval
    from dse.sweep.results.rebuilding import grid_of

    results = dse.open_results(path)
    grid = grid_of(results)
    indices = _indices(results, grid)
    if len(indices) > _MOST:
        show.note(f"{_MOST:,} of {len(indices):,} designs are compared, the best at the mean")
    study, objective = grid.spec.study, grid.spec.objectives[0].expression.text
    if not has_interval(objective, study):
        show.note(f"{objective} has no interval: compared by {study.objective}")
        objective = study.objective
    return study, named_choices(grid, indices[:_MOST]), objective


def _indices(results: Any, grid: Any) -> list[int]:
    """Designs of results that keep all or the best, best first; else the best that the file names."""
    import numpy as np

    objective, keep = grid.spec.objectives[0], str(results.attrs.get("keep", ""))
    name = objective.expression.text
    if name not in results or not keep.startswith(("top", "all", "feasible")):
        return [int(index) for index in str(results.attrs.get("best_designs", "")).split()]
    values = objective.sign * results[name].values.reshape(-1)
    runs = results["feasible"].values.reshape(-1) if "feasible" in results else np.ones(values.shape, bool)
    index = results["index"].values if "index" in results.variables else np.arange(values.size)
    order = np.argsort(np.where(runs, values, np.inf), kind="stable")
    return [int(index[at]) for at in order if runs[at] and np.isfinite(values[at])]


def more_is_better(metric: str, study: Study) -> bool:
    """Whether more of a metric is better; InputError for one without an interval."""
    from dse.measured.uncertainty.intervals import has_interval

    known = [name for name in study.units if has_interval(name, study)]
    if metric not in known:
        raise InputError("--metric", repr(metric), ", ".join(known), "name a metric with an interval")
    return metric == study.rate or "per_second" in metric or metric.endswith(("mfu", "mfu_causal", "hfu", "per_cost"))


def _shown(found: Decision) -> list[int]:
    """Places of the best designs at the mean, and of the robust choices, best first."""
    order = sorted(range(len(found.verdicts)), key=lambda i: found.verdicts[i].value, reverse=found.higher_is_better)
    chosen = {_name(found.robust), _name(found.cautious), *(one.best for one in found.outcomes)}
    return [i for place, i in enumerate(order) if place < _TOP or found.verdicts[i].name in chosen]


def _document(found: Decision) -> dict[str, Any]:
    shown = _shown(found)
    names = [one.name for one in found.verdicts]
    return {
        "metric": found.metric,
        "designs": [one._asdict() | {"probability_feasible": one.probability_feasible} for one in found.verdicts],
        "better": {names[i]: {names[j]: float(found.better[i, j]) for j in shown if j != i} for i in shown}
        if len(names) > _TOP
        else [[float(value) for value in row] for row in found.better],
        "best": found.best.name,
        "ties": found.ties,
        "robust": _name(found.robust),
        "robust_ties": found.unclear["expected"],
        "cautious": _name(found.cautious),
        "cautious_ties": found.unclear["90 %"],
        "shares": found.shares,
        "scenarios": [one._asdict() | {"best": one.best or None, "values": None} for one in found.outcomes],
    }


def _name(one: Verdict | None) -> str | None:
    return one.name if one else None


def _lost(regret: float) -> str:
    return show.percent(regret) if regret < float("inf") else "cannot run"


def _print(out: Console, found: Decision, study: Study) -> None:
    more = "more" if found.higher_is_better else "less"
    count, short, shown = len(found.verdicts), _short(found), _shown(found)
    numbered = short[found.best.name] != found.best.name
    of = f", of {count:,} designs" if count > _TOP else ""
    show.heading(out, f"{study.long_names[found.metric]}: {more} is better{of}")
    units = study.written[found.metric]

    def told(value: float) -> str:
        return show.span(value) if units == "s" else show.quantity(value, units)

    rows = [
        [
            *([short[one.name].removeprefix("design ")] if numbered else []),
            one.name,
            told(one.value),
            f"{told(one.low)} to {told(one.high)}",
            f"{100 * one.probability_best:.0f} %",
            _lost(one.expected_regret),
            _lost(one.regret_90),
            show.percent(one.fits_probability) if one.can_run else "cannot run",
        ]
        for one in (found.verdicts[i] for i in shown)
    ]
    columns = ["design", "predicted", "80 % interval", "best", "expected loss", "loss, 90th pct.", "fits"]
    columns = ["no."] * numbered + columns
    show.print_table(out, columns, rows, left=["design"], prose=["design"])
    if len(found.outcomes) > 1:
        cells = [
            [
                one.scenario,
                show.percent(one.weight),
                short[one.best] if one.best else "none can run",
                show.percent(one.ahead) if one.best not in ("", found.best.name) else "–",
            ]
            for one in found.outcomes
        ]
        ahead = f"ahead of {short[found.best.name]}"
        show.print_table(
            out,
            ["scenario", "weight", "best at the mean", ahead],
            cells,
            left=["scenario", "best at the mean"],
            prose=["best at the mean"],
        )
        about = "predicted values, intervals and fits are as stated; probabilities and losses are over all scenarios"
        out.print(Text(about), soft_wrap=True)
    for text in _sentences(found, short):
        out.print(Text(text), soft_wrap=True)


#: Probability to fit in memory that prints as 0, and the one below which it is said of designs that are named best.
_NEVER, _FITS = 5e-4, 0.5

#: Longest name of a design in sentences; longer ones have numbers.
_LONGEST = 40


def _short(found: Decision) -> dict[str, str]:
    """Name of a design → as sentences call it: its place by the metric where some name is long."""
    names = [one.name for one in found.verdicts]
    if max(map(len, names)) <= _LONGEST:
        return dict(zip(names, names, strict=True))
    ranked = sorted(found.verdicts, key=lambda one: one.value, reverse=found.higher_is_better)
    return {one.name: f"design {place}" for place, one in enumerate(ranked, 1)}


def _tied(names: list[str], short: dict[str, str]) -> str:
    more = f" and {len(names) - _PARTS:,} more" if len(names) > _PARTS else ""
    return f", a tie with {', '.join(short[name] for name in names[:_PARTS])}{more}" if names else ""


def _chosen(one: Verdict | None, where: str, ties: list[str], short: dict[str, str]) -> str:
    return short[one.name] + _tied(ties, short) if one else f"none, no design can run in {where}"


def _sentences(found: Decision, short: dict[str, str]) -> list[str]:
    """Ties, robust choices and what the difference depends on, a line each."""
    from dse.designs.leaves import known_leaves
    from dse.measured.uncertainty.distance import WORDS

    def word(name: str) -> str:
        leaves = known_leaves()
        known = leaves[name]["long_name"].partition(";")[0] if name in leaves else name.removeprefix("software.")
        return WORDS.get(name) or known

    parts = [f"{word(name)} {show.percent(share)}" for name, share in [*found.shares.items()][:_PARTS]]
    flips = [one.scenario for one in found.outcomes[1:] if one.best not in ("", found.best.name)]
    said = f"flipped by: {', '.join(flips)}" if flips else "no scenario changes the best at the mean"
    named = [one for one in (found.best, found.robust, found.cautious) if one and one.can_run]
    beyond = {short[one.name]: one.fits_probability for one in named if one.fits_probability < _FITS}
    return [
        f"best at the mean: {short[found.best.name]}{_tied(found.ties, short)}",
        f"least expected loss: {_chosen(found.robust, 'every scenario', found.unclear['expected'], short)}",
        f"least loss in 90 % of cases: {_chosen(found.cautious, '90 % of cases', found.unclear['90 %'], short)}",
        *([said] if len(found.outcomes) > 1 else []),
        *(f"{name} fits in memory in only {show.percent(share)} of cases" for name, share in beyond.items()),
        *([f"the first two differ by: {', '.join(parts)} of the variance"] if parts else []),
    ]
