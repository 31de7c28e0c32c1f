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

    from dse.doors import Study
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
    from dse.measured.decisions.scenarios import parse_scenarios

    study, choices, objective = choices_of(designs, workload, system, settings or [], any_option, serving)
    futures = [future for text in scenario or [] for future in parse_scenarios(text)]
    rows = None
    if measured:
        from dse.measured.decisions.evidence import read_evidence

        rows = read_evidence(measured, study)
    decisions = [
        decided(choices, name, study, more_is_better(name, study), futures, rows) for name in metric or [objective]
    ]
    if as_json:
        show.document({"study": study.name, "decisions": [_document(decision) for decision in decisions]})
    else:
        for decision in decisions:
            _print(show.console(), decision, study)
    return 0 if any(verdict.probability_feasible > _NEVER for verdict in decisions[0].verdicts) else NOTHING_FEASIBLE


def choices_of(
    texts: list[str], workload: str | None, system: str | None, settings: list[str], any_option: bool, serving: bool
) -> tuple[Study, list[Choice], str]:
    """Return the study, the designs and the name of the metric to decide by, from the arguments of a decision.

    Args:
        texts: designs, or one results file.
        workload: of designs without their own; None for none.
        system: likewise.
        settings: ``NAME=VALUE`` of all designs.
        any_option: allow options that a stack lacks.
        serving: whether the designs serve.

    Raises:
        InputError: for fewer than two designs.
    """
    from dse.doors import STUDIES

    if len(texts) == 1 and texts[0].endswith(".nc"):
        study, choices, objective = choices_in_results(Path(texts[0]))
    else:
        study = STUDIES["serving" if serving else "training"]
        objective = study.objective
        choices = [_choice(text, workload, system, settings, any_option, study) for text in texts]
    if len(choices) < 2:
        raise InputError("decide", show.counted(len(choices), "design"), "two designs or more", "name another one")
    return study, choices, objective


def _choice(
    text: str, workload: str | None, system: str | None, settings: list[str], any_option: bool, study: Study
) -> Choice:
    """Build the design of one argument: a system, ``NAME=VALUE``, or several of these with commas between."""
    from dse.designs import accelerator_of, catalog
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
    system_name = next(iter(systems), system)
    values = dict(part.split("=", 1) for part in parts if "=" in part)
    model = values.pop("workload", workload)
    if system_name is None or model is None:
        missing, option = ("system", "-s") if system_name is None else ("workload", "-w")
        hint = f"; for a value of all designs repeat --set: --set {text}" if settings and values else ""
        raise InputError("decide", f"{text}: no {missing}", "a workload and a system each", f"add {option} NAME{hint}")
    common = [setting for setting in settings if setting.partition("=")[0].strip() not in values]
    request = design_of(
        model,
        system_name,
        [*common, *(f"{name}={value}" for name, value in values.items())],
        None,
        None,
        any_option,
        study,
    )
    stack = catalog.resolve("software", request.stack)
    chip, workload = accelerator_of(system_name), catalog.resolve("workload", model)
    return Choice(text, request.design, stack, chip, workload, system_name, fixed_paths=request.set_leaves)


def choices_in_results(path: Path) -> tuple[Study, list[Choice], str]:
    """Return the study, the designs (best first) and the name of the metric to decide by, from a results file.

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
    """Return the sweep's indices of the feasible stored designs, else of the best that the file names, best first."""
    import numpy as np

    objective, keep = grid.spec.objectives[0], str(results.attrs.get("keep", ""))
    name = objective.expression.text
    if name not in results or not keep.startswith(("top", "all", "feasible")):
        return [int(index) for index in str(results.attrs.get("best_designs", "")).split()]
    values = objective.sign * results[name].values.reshape(-1)
    runs = results["feasible"].values.reshape(-1) if "feasible" in results else np.ones(values.shape, bool)
    index = results["index"].values if "index" in results.variables else np.arange(values.size)
    order = np.argsort(np.where(runs, values, np.inf), kind="stable")
    return [int(index[position]) for position in order if runs[position] and np.isfinite(values[position])]


def more_is_better(metric: str, study: Study) -> bool:
    """Return True if a higher value of a metric is better, by its name.

    Args:
        metric: name of the metric.
        study: study of the designs.

    Raises:
        InputError: for a metric without an interval.
    """
    from dse.measured.uncertainty.intervals import has_interval

    metrics = [name for name in study.units if has_interval(name, study)]
    if metric not in metrics:
        raise InputError("--metric", repr(metric), ", ".join(metrics), "name a metric with an interval")
    return metric == study.rate or "per_second" in metric or metric.endswith(("mfu", "mfu_causal", "hfu", "per_cost"))


def _shown_rows(decision: Decision) -> list[int]:
    """Return the indices of the verdicts to print, best mean first: the first ``_TOP``, and best or robust choices."""
    order = sorted(
        range(len(decision.verdicts)), key=lambda i: decision.verdicts[i].value, reverse=decision.higher_is_better
    )
    chosen = {
        _verdict_name(decision.robust),
        _verdict_name(decision.cautious),
        *(outcome.best for outcome in decision.outcomes),
    }
    return [i for place, i in enumerate(order) if place < _TOP or decision.verdicts[i].name in chosen]


def _document(decision: Decision) -> dict[str, Any]:
    """Return the JSON-ready dictionary of a decision: a text or probability by name of the design."""
    rows = _shown_rows(decision)
    names = [verdict.name for verdict in decision.verdicts]
    return {
        "metric": decision.metric,
        "designs": [
            verdict._asdict() | {"probability_feasible": verdict.probability_feasible} for verdict in decision.verdicts
        ],
        "better": {names[i]: {names[j]: float(decision.better[i, j]) for j in rows if j != i} for i in rows}
        if len(names) > _TOP
        else [[float(value) for value in row] for row in decision.better],
        "best": decision.best.name,
        "ties": decision.ties,
        "robust": _verdict_name(decision.robust),
        "robust_ties": decision.unclear["expected"],
        "cautious": _verdict_name(decision.cautious),
        "cautious_ties": decision.unclear["90 %"],
        "shares": decision.shares,
        "scenarios": [
            outcome._asdict() | {"best": outcome.best or None, "values": None} for outcome in decision.outcomes
        ],
    }


def _verdict_name(verdict: Verdict | None) -> str | None:
    """Return the name of the design of a verdict, None without one."""
    return verdict.name if verdict else None


def _loss_text(regret: float) -> str:
    """Format an expected loss, a share, in per cent: "cannot run" for an infinite one."""
    return show.percent(regret) if regret < float("inf") else "cannot run"


def _print(out: Console, decision: Decision, study: Study) -> None:
    """Print the table of a decision, by design and by scenario, and its sentences."""
    direction = "more" if decision.higher_is_better else "less"
    count, short, shown_rows = len(decision.verdicts), _short_names(decision), _shown_rows(decision)
    has_numbers = short[decision.best.name] != decision.best.name
    count_note = f", of {count:,} designs" if count > _TOP else ""
    show.heading(out, f"{study.long_names[decision.metric]}: {direction} is better{count_note}")
    units = study.display_units[decision.metric]

    def value_text(value: float) -> str:
        return show.span(value) if units == "s" else show.quantity(value, units)

    rows = [
        [
            *([short[verdict.name].removeprefix("design ")] if has_numbers else []),
            verdict.name,
            value_text(verdict.value),
            f"{value_text(verdict.low)} to {value_text(verdict.high)}",
            f"{100 * verdict.probability_best:.0f} %",
            _loss_text(verdict.expected_regret),
            _loss_text(verdict.regret_90),
            show.percent(verdict.fits_probability) if verdict.can_run else "cannot run",
        ]
        for verdict in (decision.verdicts[i] for i in shown_rows)
    ]
    columns = ["design", "predicted", "80 % interval", "best", "expected loss", "loss, 90th pct.", "fits"]
    columns = ["no."] * has_numbers + columns
    show.print_table(out, columns, rows, left=["design"], prose=["design"])
    if len(decision.outcomes) > 1:
        cells = [
            [
                outcome.scenario,
                show.percent(outcome.weight),
                short[outcome.best] if outcome.best else "none can run",
                show.percent(outcome.ahead) if outcome.best not in ("", decision.best.name) else "–",
            ]
            for outcome in decision.outcomes
        ]
        ahead = f"ahead of {short[decision.best.name]}"
        show.print_table(
            out,
            ["scenario", "weight", "best at the mean", ahead],
            cells,
            left=["scenario", "best at the mean"],
            prose=["best at the mean"],
        )
        scenario_note = (
            "predicted values, intervals and fits are as stated; probabilities and losses are over all scenarios"
        )
        out.print(Text(scenario_note), soft_wrap=True)
    for text in _sentences(decision, short):
        out.print(Text(text), soft_wrap=True)


#: Probability to fit in memory that prints as 0, and the one below which it is said of designs that are named best.
_NEVER, _FITS = 5e-4, 0.5

#: Longest name of a design in sentences; longer ones have numbers.
_LONGEST = 40


def _short_names(decision: Decision) -> dict[str, str]:
    """Return name of a design → its name in sentences: itself, or ``design RANK`` for all where some name is long."""
    names = [verdict.name for verdict in decision.verdicts]
    if max(map(len, names)) <= _LONGEST:
        return dict(zip(names, names, strict=True))
    ranked = sorted(decision.verdicts, key=lambda verdict: verdict.value, reverse=decision.higher_is_better)
    return {verdict.name: f"design {place}" for place, verdict in enumerate(ranked, 1)}


def _tie_note(names: list[str], short: dict[str, str]) -> str:
    """Return the end of a sentence that names designs that tie, "" for none."""
    rest_note = f" and {len(names) - _PARTS:,} more" if len(names) > _PARTS else ""
    return f", a tie with {', '.join(short[name] for name in names[:_PARTS])}{rest_note}" if names else ""


def _choice_text(verdict: Verdict | None, scope: str, ties: list[str], short: dict[str, str]) -> str:
    """Return the short name of a chosen design with its ties, or that no design can run in ``scope``."""
    return short[verdict.name] + _tie_note(ties, short) if verdict else f"none, no design can run in {scope}"


def _sentences(decision: Decision, short: dict[str, str]) -> list[str]:
    """Return the lines below the table of a decision: best designs, ties, what flips it, sources of the difference."""
    from dse.designs import all_leaves
    from dse.measured.uncertainty.distance import PART_DESCRIPTIONS

    def word(name: str) -> str:
        leaves = all_leaves()
        description = leaves[name]["long_name"].partition(";")[0] if name in leaves else name.removeprefix("software.")
        return PART_DESCRIPTIONS.get(name) or description

    parts = [f"{word(name)} {show.percent(share)}" for name, share in [*decision.shares.items()][:_PARTS]]
    flips = [outcome.scenario for outcome in decision.outcomes[1:] if outcome.best not in ("", decision.best.name)]
    flip_note = f"flipped by: {', '.join(flips)}" if flips else "no scenario changes the best at the mean"
    candidates = [
        verdict for verdict in (decision.best, decision.robust, decision.cautious) if verdict and verdict.can_run
    ]
    unlikely_fits = {
        short[verdict.name]: verdict.fits_probability for verdict in candidates if verdict.fits_probability < _FITS
    }
    cautious = _choice_text(decision.cautious, "90 % of cases", decision.unclear["90 %"], short)
    return [
        f"best at the mean: {short[decision.best.name]}{_tie_note(decision.ties, short)}",
        f"least expected loss: {_choice_text(decision.robust, 'every scenario', decision.unclear['expected'], short)}",
        f"least loss in 90 % of cases: {cautious}",
        *([flip_note] if len(decision.outcomes) > 1 else []),
        *(f"{name} fits in memory in only {show.percent(share)} of cases" for name, share in unlikely_fits.items()),
        *([f"the first two differ by: {', '.join(parts)} of the variance"] if parts else []),
    ]
