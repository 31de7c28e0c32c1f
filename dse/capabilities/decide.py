"""``dse.decide``: which of some designs is better, how sure that is, and what it depends on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dse.capabilities.designs import DesignOptions
from dse.errors import InputError
from dse.io import counted, percent, quantity
from dse.io.quantities import span
from dse.reports import Column, Line, Option, Report, Table, capability, heading
from dse.reports.options import AnyOption, CommonSystem, CommonWorkload, Designs, Serving, Settings
from dse.reports.report import NOTHING_FEASIBLE
from dse.reports.settings import setting_texts
from dse.reports.tables import Section

if TYPE_CHECKING:
    from dse.doors import Study
    from dse.measured.decisions.choice import Choice, Decision, Verdict

#: Designs, and parts of a difference, that are shown.
_TOP, _PARTS = 10, 3

#: Designs of results that are compared, at most.
_MOST = 2000

#: Probability to fit in memory that is written as 0, and the one below which it is said of designs that are named best.
_NEVER, _FITS = 5e-4, 0.5

#: Longest name of a design in sentences; longer ones have numbers.
_LONGEST = 40


@capability("Ask", details=("scenarios",))
def decide(
    designs: Designs,
    workload: CommonWorkload = None,
    system: CommonSystem = None,
    settings: Settings = None,
    any_option: AnyOption = False,
    serving: Serving = False,
    metric: Annotated[str | Sequence[str] | None, Option(terminal=list[str])] = None,
    scenario: Annotated[
        str | Sequence[str] | Mapping[str, Mapping[str, Any]] | None,
        Option(metavar="NAME: LEAF=VALUE,…|FILE.toml", terminal=list[str]),
    ] = None,
    measured: Annotated[Path | Sequence[Path] | None, Option(metavar="CSV", terminal=list[Path])] = None,
) -> Report:
    """Compare designs under the uncertainty of their predictions.

    Says which is the best, and for each the probability that it is, what choosing it is expected to lose and what it
    loses at most in 90 % of cases, whether it fits in memory, and which parts of the uncertainty decide between the
    first two. With scenarios all this is over them too, and which design is best in each. Of results that keep all or
    the best designs every one is compared, up to 2,000. Designs that errors of the model do not distinguish are a tie.
    Exit status 1 where no design can run. With --measured the designs are as believed after these rows.

    Args:
        designs: Designs: SYSTEM, SYSTEM,tp=8,… or tp=8,… each; or a results file, for its best.
        workload: Workload of designs without their own [default: none].
        system: System of designs without their own [default: none].
        settings: Set any value of the design: tp=8, recompute=full, …
        any_option: Allow mapping options that the stack lacks, and stacks of another vendor.
        serving: Serve requests instead of training.
        metric: Metric to decide by; several [default: the objective].
        scenario: A future that may come: 'dear: made.price=+30 %'; several [default: none but the designs as stated].
        measured: Measured rows of the designs, or of ones alike; several [default: none].
    """
    from dse.measured.decisions.choice import decide as decided
    from dse.measured.decisions.scenarios import parse_scenarios, scenarios_of

    study, choices, objective, notes = choices_of(designs, workload, system, settings, any_option, serving)
    if isinstance(scenario, Mapping):
        futures = scenarios_of(scenario, "scenario")
    else:
        futures = [future for text in _listed(scenario) for future in parse_scenarios(text)]
    rows = None
    if measured:
        from dse.measured.decisions.evidence import read_evidence

        rows = read_evidence(_listed(measured), study)
    decisions = [
        decided(choices, name, study, is_maximised(name, study), futures, rows)
        for name in _listed(metric) or [objective]
    ]
    document = {"study": study.name, "decisions": [_document(decision) for decision in decisions]}
    sections = [section for decision in decisions for section in _sections(decision, study, len(decisions) > 1)]
    can_run = any(verdict.probability_feasible > _NEVER for verdict in decisions[0].verdicts)
    return Report(document, sections, notes, status=0 if can_run else NOTHING_FEASIBLE)


def _listed(value: Any) -> list[Any]:
    """Return one value, several or None as a list."""
    return [] if value is None else [value] if isinstance(value, str | Path) else list(value)


# --- designs


def choices_of(
    designs: Any, workload: str | None, system: str | None, settings: Settings, any_option: bool, serving: bool
) -> tuple[Study, list[Choice], str, list[str]]:
    """Return the study, the designs, the name of the metric to decide by, and notes, from the options of a decision.

    Args:
        designs: texts or dictionaries of designs, or results.
        workload: of designs without their own; None for none.
        system: likewise.
        settings: values of all designs.
        any_option: allow options that a stack lacks.
        serving: whether the designs serve.

    Raises:
        InputError: for fewer than two designs.
    """
    from dse.doors import STUDIES

    items: Any = designs if hasattr(designs, "attrs") else _listed(designs)
    if isinstance(items, list) and len(items) == 1 and isinstance(items[0], str | Path):
        items = str(items[0]) if str(items[0]).endswith(".nc") else items
    if not isinstance(items, list):
        study, choices, objective, notes = choices_in_results(items)
    else:
        study, notes = STUDIES["serving" if serving else "training"], []
        objective = study.objective
        choices = [_choice(design, workload, system, settings, any_option, study) for design in items]
    if len(choices) < 2:
        raise InputError("decide", counted(len(choices), "design"), "two designs or more", "name another one")
    return study, choices, objective, notes


def _choice(
    design: str | Mapping[str, Any],
    workload: str | None,
    system: str | None,
    settings: Settings,
    any_option: bool,
    study: Study,
) -> Choice:
    """Build one design: a system, ``NAME=VALUE``, or several of these with commas between, or name → value."""
    from dse.designs import accelerator_of, catalog
    from dse.measured.decisions.choice import Choice

    if isinstance(design, Mapping):
        names = [str(design["system"])] if "system" in design else []
        text = ",".join([*names, *(f"{name}={value}" for name, value in design.items() if name != "system")])
    else:
        text = str(design)
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
    common = [setting for setting in setting_texts(settings) if setting.partition("=")[0].strip() not in values]
    texts = [*common, *setting_texts(values)]
    options = DesignOptions(workload=model, system=system_name, settings=texts, any_option=any_option)
    request = options.request(study)
    stack, chip = catalog.resolve("software", request.stack), accelerator_of(system_name)
    model_name = catalog.resolve("workload", model)
    return Choice(text, request.design, stack, chip, model_name, system_name, fixed_paths=request.set_leaves)


def choices_in_results(results: Any) -> tuple[Study, list[Choice], str, list[str]]:
    """Return the study, the designs (best first), the name of the metric to decide by, and notes, from results.

    The metric is the first objective; the study's for one without an interval.

    Args:
        results: path of a file, or labelled results.
    """
    import dse
    from dse.measured.decisions.choice import named_choices
    from dse.measured.uncertainty.intervals import has_interval
    from dse.sweep.results.rebuilding import grid_of

    notes = []
    results = dse.open_results(results) if isinstance(results, str | Path) else results
    grid = grid_of(results)
    indices = _indices(results, grid)
    if len(indices) > _MOST:
        notes.append(f"{_MOST:,} of {len(indices):,} designs are compared, the best at the mean")
    study, objective = grid.spec.study, grid.spec.objectives[0].expression.text
    if not has_interval(objective, study):
        notes.append(f"{objective} has no interval: compared by {study.objective}")
        objective = study.objective
    return study, named_choices(grid, indices[:_MOST]), objective, notes


def _indices(results: Any, grid: Any) -> list[int]:
    """Return the sweep's indices of the feasible stored designs, else of the best that the results name, best first."""
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


def is_maximised(metric: str, study: Study) -> bool:
    """Return True for a metric with an interval of which more is better.

    Args:
        metric: name of the metric.
        study: study of the designs.

    Raises:
        InputError: for a metric without an interval.
    """
    from dse.doors.study import more_is_better
    from dse.measured.uncertainty.intervals import has_interval

    metrics = [name for name in study.units if has_interval(name, study)]
    if metric not in metrics:
        raise InputError("--metric", repr(metric), ", ".join(metrics), "name a metric with an interval")
    return more_is_better(metric)


# --- the report


def _order(decision: Decision) -> list[int]:
    """Return the indices of the verdicts by their value, best first."""
    verdicts = decision.verdicts
    return sorted(range(len(verdicts)), key=lambda i: verdicts[i].value, reverse=decision.higher_is_better)


def _shown_rows(decision: Decision) -> list[int]:
    """Return the indices of the verdicts to show, best mean first: the first ``_TOP``, and best or robust choices."""
    chosen = {
        _verdict_name(decision.robust),
        _verdict_name(decision.cautious),
        *(outcome.best for outcome in decision.outcomes),
    }
    order = _order(decision)
    return [i for place, i in enumerate(order) if place < _TOP or decision.verdicts[i].name in chosen]


def _document(decision: Decision) -> dict[str, Any]:
    """Return the document of a decision: a text or probability by name of the design."""
    rows, better = _shown_rows(decision), decision.better
    names = [verdict.name for verdict in decision.verdicts]
    return {
        "metric": decision.metric,
        "designs": [
            verdict._asdict() | {"probability_feasible": verdict.probability_feasible} for verdict in decision.verdicts
        ],
        "better": {names[i]: {names[j]: better[i, j] for j in rows if j != i} for i in rows}
        if len(names) > _TOP
        else better,
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
    return percent(regret) if regret < float("inf") else "cannot run"


def _sections(decision: Decision, study: Study, is_one_of_several: bool) -> list[Section]:
    """Return a decision as sections: its sentences, the table of designs, and that of scenarios as a detail."""
    direction = "more" if decision.higher_is_better else "less"
    count, short = len(decision.verdicts), _short_names(decision)
    count_note = f", of {count:,} designs" if count > _TOP else ""
    prefix, title = (f"{decision.metric}_", heading) if is_one_of_several else ("", Line)
    sections: list[Section] = [
        title(f"{study.long_names[decision.metric]}: {direction} is better{count_note}"),
        *map(Line, _sentences(decision, short)),
        Line(""),
        _design_table(decision, study, short, f"{prefix}designs"),
    ]
    if len(decision.outcomes) > 1:
        note = "predicted values, intervals and fits are as stated; probabilities and losses are over all scenarios"
        sections += [Line(note), _scenario_table(decision, short, f"{prefix}scenarios")]
    return sections


def _design_table(decision: Decision, study: Study, short: Mapping[str, str], name: str) -> Table:
    """Return the table of the designs that are shown."""
    units = study.display_units[decision.metric]

    def text(value: float) -> str:
        return span(value) if units == "s" else quantity(value, units)

    has_numbers = short[decision.best.name] != decision.best.name
    numbers = [Column("no.", "number")] if has_numbers else []
    columns = [
        *numbers,
        Column("design", "name", left=True, prose=True),
        Column("predicted", "value", text),
        Column("80 % interval", "low", text, high="high"),
        Column("best", "probability_best", lambda share: f"{100 * share:.0f} %"),
        Column("expected loss", "expected_regret", _loss_text),
        Column("loss, 90th pct.", "regret_90", _loss_text, spare=True),
        Column(
            "fits",
            "fits_probability",
            row_text=lambda row: percent(row["fits_probability"]) if row["can_run"] else "cannot run",
        ),
        Column("", "can_run", hidden=True),
    ]
    place = {i: number for number, i in enumerate(_order(decision), 1)}
    rows = [decision.verdicts[i]._asdict() | {"number": place[i]} for i in _shown_rows(decision)]
    return Table(name, columns, rows)


def _scenario_table(decision: Decision, short: Mapping[str, str], name: str) -> Table:
    """Return the table of the best design in each scenario."""
    best = decision.best.name
    columns = [
        Column("scenario", "scenario", left=True),
        Column("weight", "weight", percent),
        Column(
            "best at the mean",
            "best",
            lambda design: short[design] if design else "none can run",
            left=True,
            prose=True,
        ),
        Column(
            f"ahead of {short[best]}",
            "ahead",
            row_text=lambda row: "–" if row.best in ("", best) else percent(row.ahead),
        ),
    ]
    return Table(name, columns, decision.outcomes, show="scenarios")


def _short_names(decision: Decision) -> dict[str, str]:
    """Return name of a design → its name in sentences: itself, or ``design RANK`` for all where some name is long."""
    names = [verdict.name for verdict in decision.verdicts]
    if max(map(len, names)) <= _LONGEST:
        return dict(zip(names, names, strict=True))
    return {names[i]: f"design {place}" for place, i in enumerate(_order(decision), 1)}


def _tie_note(names: list[str], short: Mapping[str, str]) -> str:
    """Return the end of a sentence that names designs that tie, "" for none."""
    rest_note = f" and {len(names) - _PARTS:,} more" if len(names) > _PARTS else ""
    return f", a tie with {', '.join(short[name] for name in names[:_PARTS])}{rest_note}" if names else ""


def _choice_text(verdict: Verdict | None, scope: str, ties: list[str], short: Mapping[str, str]) -> str:
    """Return the short name of a chosen design with its ties, or that no design can run in ``scope``."""
    return short[verdict.name] + _tie_note(ties, short) if verdict else f"none, no design can run in {scope}"


def _sentences(decision: Decision, short: Mapping[str, str]) -> Iterator[str]:
    """Yield lines on a decision: best designs, ties, what flips it, sources of the difference."""
    from dse.designs import all_leaves
    from dse.measured.uncertainty.distance import PART_DESCRIPTIONS

    def word(name: str) -> str:
        leaves = all_leaves()
        description = leaves[name]["long_name"].partition(";")[0] if name in leaves else name.removeprefix("software.")
        return PART_DESCRIPTIONS.get(name) or description

    best, robust, cautious = decision.best, decision.robust, decision.cautious
    sure = f"{100 * best.probability_best:.0f} % sure"
    yield f"best at the mean: {short[best.name]} ({sure}){_tie_note(decision.ties, short)}"
    yield f"least expected loss: {_choice_text(robust, 'every scenario', decision.unclear['expected'], short)}"
    yield f"least loss in 90 % of cases: {_choice_text(cautious, '90 % of cases', decision.unclear['90 %'], short)}"
    if len(decision.outcomes) > 1:
        flips = [outcome.scenario for outcome in decision.outcomes[1:] if outcome.best not in ("", best.name)]
        yield f"flipped by: {', '.join(flips)}" if flips else "no scenario changes the best at the mean"
    chosen = {verdict.name: verdict for verdict in (best, robust, cautious) if verdict and verdict.can_run}
    for name, verdict in chosen.items():
        if verdict.fits_probability < _FITS:
            yield f"{short[name]} fits in memory in only {percent(verdict.fits_probability)} of cases"
    parts = [f"{word(name)} {percent(share)}" for name, share in [*decision.shares.items()][:_PARTS]]
    if parts:
        yield f"the first two differ by: {', '.join(parts)} of the variance"
