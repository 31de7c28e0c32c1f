"""``dse.plan``: the cheapest devices that serve a rate of requests, or that train a model in time."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from dse.errors import InputError
from dse.io import counted, digits, duration, percent, seconds
from dse.reports import Column, Line, Option, Report, Table, capability, caution, heading, verbatim
from dse.reports.options import Settings, ShowProgress, Software, Workload
from dse.reports.report import NOTHING_FEASIBLE
from dse.reports.tables import Section

if TYPE_CHECKING:
    from dse.fleet import Fleet, Plan, RunDemand, ServiceDemand, WorkerGroup
    from dse.measured.decisions.plans import PlanInterval

#: Maximum numbers of devices by default.
_SERVING_DEVICES, _TRAINING_DEVICES = 64, 16384

#: Seconds and dollars of the short units of options.
_SECONDS_BY_UNIT = {"d": 86400.0, "w": 604800.0, "y": 31557600.0}
_FACTORS = {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}

#: Word of a table → metric whose statistics are limited.
_WORDS = {"TTFT": "time_to_first_token", "TPOT": "time_per_output_token"}

#: Columns of all tables of fleets.
ACCELERATOR = Column("accelerator", "accelerator", left=True)
MAPPING = Column("mapping", "mapping", left=True, prose=True)

#: A number in the units of SI, or a text with its unit.
_Amount = float | str | None


def _amount(flag: str, metavar: str) -> Option:
    """Return the option of a number with a unit."""
    return Option(flag=flag, metavar=metavar, terminal=str)


#: Options of a service.
FirstToken = Annotated[_Amount, _amount("--ttft", "[PCT=]TIME")]
Token = Annotated[_Amount, _amount("--tpot", "[PCT=]TIME")]
PromptTokens = Annotated[float, Option(flag="--isl", metavar="N")]
OutputTokens = Annotated[float, Option(flag="--osl", metavar="N")]


@capability("Serve", details=("limits", "load", "launch"))
def plan(
    workload: Workload,
    on: Annotated[str | Sequence[str], Option(flag="--on", metavar="NAME,…", terminal=str)],
    serving: bool = False,
    rate: Annotated[float | None, Option(metavar="N")] = None,
    first_token: FirstToken = None,
    token: Token = None,
    prompt_tokens: PromptTokens = 1024.0,
    output_tokens: OutputTokens = 1024.0,
    time: Annotated[_Amount, _amount("--in", "TIME")] = None,
    budget: Annotated[_Amount, _amount("--under", "USD")] = None,
    tokens: Annotated[_Amount, _amount("--tokens", "N")] = None,
    global_batch: Annotated[int | None, Option(metavar="N", low=1)] = None,
    max_devices: Annotated[int | None, Option(metavar="N", low=1)] = None,
    settings: Settings = None,
    software: Software = None,
    progress: ShowProgress = None,
) -> Report:
    """Plan the cheapest devices for a service or a training run.

    With --serving replicas that serve a rate of requests within limits of latency, else a cluster that trains a model
    within a time and a budget. Has configuration, cost and margins by accelerator, and what would change the
    cheapest. Costs are those of buying and running the system (docs/cost.md), not prices of rent.

    Args:
        workload: Workload, by its name in the catalogue.
        on: Accelerators, joined by commas.
        serving: Plan a service, not a training run.
        rate: Serving: requests/s, Poisson [default: none].
        first_token: Serving: limit of time to first token: 1s, p95=1s; one of both is needed [default: none].
        token: Serving: limit of time per output token: 30ms, p95=30ms; one of both is needed [default: none].
        prompt_tokens: Serving: prompt tokens, mean.
        output_tokens: Serving: output tokens, mean.
        time: Training: limit of the run with failures: 30d, 12 h [default: none].
        budget: Training: limit of its cost: 5M, 200k [default: none].
        tokens: Training: tokens, such as 2T [default: those of the model's file].
        global_batch: Training: sequences per step [default: the model's].
        max_devices: Maximum number of devices [default: 64; of training 16384].
        settings: Set any value of the design: tp=8, recompute=full, …
        software: Software stack [default: by chip, kind of model and measured rows].
        progress: Show progress on standard error, or in a notebook.
    """
    from dse.designs import catalog
    from dse.fleet import RunDemand, ServiceDemand

    names = on.split(",") if isinstance(on, str) else on
    accelerators = tuple(name.strip() for name in names if name.strip())
    candidates = _candidate_settings(settings, software, serving)
    of_service = {"--rate": rate, "--ttft": first_token, "--tpot": token}
    of_training = {"--in": time, "--under": budget, "--tokens": tokens, "--global-batch": global_batch}
    if serving:
        _check_options(of_service, of_training, "--serving", "of training", "leave it out, or leave out --serving")
        if rate is None:
            raise InputError("dse plan --serving", "no --rate", "a rate of requests/s", "add --rate 10")
        (first, first_statistic), (later, later_statistic) = limit_of(first_token, "--ttft"), limit_of(token, "--tpot")
        model, most = catalog.resolve("workload", workload), max_devices or _SERVING_DEVICES
        service = (rate, prompt_tokens, output_tokens, first, later, most, first_statistic, later_statistic)
        return _service(ServiceDemand(model, accelerators, *service, *candidates), progress)
    _check_options(of_training, of_service, "no --serving", "of a service", "add --serving")
    most_seconds = math.inf if time is None else _seconds(time)
    most_usd = math.inf if budget is None else _count(budget, "--under", "USD, such as 5M")
    token_count = None if tokens is None else _count(tokens, "--tokens", "tokens, such as 2T")
    model, most = catalog.resolve("workload", workload), max_devices or _TRAINING_DEVICES
    run = (most_seconds, most_usd, most, token_count, global_batch)
    return _training(RunDemand(model, accelerators, *run, *candidates), progress)


def _check_options(
    options: Mapping[str, Any], other_options: Mapping[str, Any], got: str, scope: str, fix: str
) -> None:
    """Raise an InputError where options of the other kind of plan are stated."""
    if foreign_options := [name for name, value in other_options.items() if value is not None]:
        raise InputError("dse plan", f"{', '.join(foreign_options)} {scope}, {got}", ", ".join(options), fix)


def _candidate_settings(settings: Settings, software: str | None, serving: bool) -> tuple[str, dict[str, Any]]:
    """Return the stack of all candidates ("": the usual ones), and name → value of their settings."""
    from dse.capabilities.settings import raise_duplicate, settings_of
    from dse.doors import STUDIES

    values = settings_of(settings, STUDIES["serving" if serving else "training"])
    if software is not None and "software" in values:
        raise_duplicate("--set", "software", f"--software {software}", "--set software")
    return str(values.pop("software", software or "")), values


# --- numbers with units


def limit_of(value: _Amount, option: str) -> tuple[float, str]:
    """Return (seconds, statistic) of a limit: ``1s`` is a mean, ``p95=1s`` has its statistic, None is infinite."""
    from dse.designs import catalog
    from dse.fleet import STATISTICS

    if not isinstance(value, str):
        return math.inf if value is None else value, STATISTICS[0]
    statistic, equals, time = value.rpartition("=")
    if equals and statistic.strip().lower() not in STATISTICS:
        raise InputError(option, repr(value), f"a time, or one of {', '.join(STATISTICS)} = a time", "write p95=1s")
    return catalog.quantity(time.strip(), "s", option), statistic.strip().lower() or "mean"


def _seconds(value: float | str) -> float:
    """Return seconds of a number or text: units of catalogue quantities, and d, w or y for days, weeks or years."""
    from dse.designs import catalog

    text = str(value)
    number, unit = text.strip()[:-1], text.strip()[-1:].lower()
    if not isinstance(value, str):
        return _finite(value, text, "--in")
    if unit in _SECONDS_BY_UNIT and number.strip().replace(".", "", 1).isdigit():
        return _finite(float(number) * _SECONDS_BY_UNIT[unit], text, "--in")
    return catalog.quantity(text, "s", "--in")


def _count(value: float | str, option: str, example: str) -> float:
    """Return a number, of a text with k, M, B or T behind it and USD or $ around it; InputError for another text."""
    text = str(value)
    word = text.strip().removesuffix("USD").strip().removeprefix("$").lower()
    factor = _FACTORS.get(word[-1:], 1.0)
    try:
        return _finite(float(word[:-1] if factor > 1.0 else word) * factor, text, option)
    except ValueError:
        raise InputError(option, repr(value), example, "write a number with k, M, B or T") from None


def _finite(value: float, text: str, option: str) -> float:
    """Return a finite number as it is; raise an InputError for another."""
    if not math.isfinite(value):
        raise InputError(option, repr(text), "a finite number", "check the number, or leave it out")
    return value


# --- what people read


class _Form(NamedTuple):
    """How the plans of a kind are read."""

    key: str  #: of the fleets in the document, and of their table
    head: Callable[[Any], str]  #: demand → lines on it
    best: Callable[[Mapping[str, Any], Any], str]  #: (row of the best fleet, demand) → a line on it
    columns: Callable[[Any], list[Column]]  #: demand → columns of the fleets
    formats: Callable[[Any], dict[str, tuple[str, Callable[[float], str]]]]  #: demand → metric → word, format
    document: Callable[[Any, Any], dict[str, Any]]  #: (fleet, demand) → its values
    texts: Callable[[Any], dict[str, str]]  #: fleet → texts of its row, ``plan`` among them: its name


def _report(
    plan: Plan, form: _Form, intervals: Sequence[Mapping[str, PlanInterval]], **extra: Sequence[float]
) -> Report:
    """Return the report of a plan; status 1 without a fleet.

    Args:
        plan: its fleets have figures and margins, its demand has limits.
        form: of its kind.
        intervals: metric → interval, by fleet.
        extra: further values by key, one for each fleet.
    """
    demand, fleets, formats = plan.demand, plan.fleets, form.formats(plan.demand)
    documents, rows, limit_rows = list[dict[str, Any]](), list[dict[str, Any]](), list[dict[str, Any]]()
    for place, (fleet, ends) in enumerate(zip(fleets, intervals, strict=True)):
        chances = {name: ends[name].probability_below(limit) for name, limit in demand.limits.items() if name in ends}
        document = form.document(fleet, demand) | {
            "intervals": {name: [end.low, end.high] for name, end in ends.items()},
            "chances": chances,
            **{key: values[place] for key, values in extra.items()},
        }
        shares = {"chance": chances, "margin": document["margins"]}
        flat = {f"{word}_{name}": share for word, named in shares.items() for name, share in named.items()}
        documents.append(document)
        rows.append(document | flat | form.texts(fleet))
        for metric, value in zip(formats, fleet.figures, strict=True):
            end, limit = ends.get(metric), demand.limits.get(metric)
            row = {"plan": rows[-1]["plan"], "metric": metric, "value": value, "chance": chances.get(metric)}
            row |= {"low": end and end.low, "high": end and end.high, "margin": limit / value - 1.0 if limit else None}
            limit_rows.append(row)
    sections: list[Section] = [Line(form.head(plan))]
    if fleets:
        sections += [Line(form.best(rows[0], demand)), Line(""), Table(form.key, form.columns(demand), rows)]
    outside = dict.fromkeys((fleet.outside, fleet.accelerator) for fleet in fleets if fleet.outside)
    for text in dict.fromkeys(text for text, _ in outside):
        names = ", ".join(name for other, name in outside if other == text)
        sections.append(caution(f"{names}: outside the calibrated range: {text}"))
    sections += [caution(f"{name}: {reason}") for name, reason in plan.without.items()]
    if plan.changes:
        sections += [heading(f"what would change it ({fleets[0].accelerator})"), *map(Line, plan.changes)]
    if fleets:
        sections.append(_limit_table(limit_rows, formats))
    document = {"demand": demand, form.key: documents, "without": plan.without, "changes": plan.changes}
    return Report(document, sections, status=0 if fleets else NOTHING_FEASIBLE)


def _limit_table(rows: list[dict[str, Any]], formats: Mapping[str, tuple[str, Callable[[float], str]]]) -> Table:
    """Return the table of the figures of plans, their intervals, and how they keep their limits."""

    def row_format(row: Mapping[str, Any]) -> Callable[[float], str]:
        return formats[row["metric"]][1]

    columns = [
        Column("plan", "plan", left=True),
        Column("", "metric", lambda metric: formats[metric][0], left=True),
        Column("value", "value", row_format=row_format),
        Column("80 % interval", "low", high="high", row_format=row_format),
        Column("margin", "margin", whole_percent),
        Column("kept", "chance", whole_percent),
    ]
    return Table("limits", columns, rows, "limits, by how much they may change, how surely they are kept", "limits", 2)


def whole_percent(share: float) -> str:
    """Format a share in whole per cent."""
    return f"{100.0 * share:.0f} %"


def _degrees_text(degrees: Mapping[str, Any]) -> str:
    """Format the degrees above 1 as ``tp 8 x pp 2``, "1 device" for none."""
    return " x ".join(f"{name} {value}" for name, value in degrees.items() if value not in (1, "none")) or "1 device"


# --- a service


def _service(demand: ServiceDemand, progress: Any) -> Report:
    """Return the plan of a service, with the load of its workers and the commands that launch them."""
    from dse.fleet import provision
    from dse.measured.decisions.plans import cheapest_probabilities, fleet_intervals
    from dse.sweep.progress import progress_bar, shown

    with shown(progress, progress_bar) as show:
        plan = provision(demand, show)
    demand, fleets = plan.demand, plan.fleets
    intervals, cheapest = fleet_intervals(fleets, demand), cheapest_probabilities(fleets, demand)
    report = _report(plan, _SERVICE, intervals, probability_cheapest=cheapest)
    if not fleets:
        return report
    lines = [verbatim(launch_command(group, fleets[0], demand), "launch") for group in fleets[0].workers]
    load = Table("load", _LOAD_COLUMNS, report.table("fleets").rows, "load of each worker", "load")
    return dataclasses.replace(report, sections=[*report.sections, load, heading("launch", "launch"), *lines])


def _word(metric: str) -> str:
    """Return TTFT or TPOT for a metric of a limit."""
    return next(word for word, name in _WORDS.items() if metric.endswith(name))


def _service_text(plan: Plan) -> str:
    """Return lines on the demand of a service."""
    demand = plan.demand
    statistics = dict(zip(demand.metrics, (demand.first_token_statistic, demand.token_statistic), strict=True))
    limits = ", ".join(
        f"{_word(metric)} up to {seconds(limit)} ({statistics[metric]})" for metric, limit in demand.limits.items()
    )
    formats = "; ".join(dict.fromkeys(fleet.precision for fleet in plan.fleets))
    return (
        f"{demand.workload}: {demand.rate:g} requests/s of {demand.prompt_tokens:g} prompt and "
        f"{counted(demand.output_tokens, 'output token')}; {limits}; {f'in {formats}; ' if formats else ''}"
        f"at most {counted(demand.max_devices, 'device')}; USD of buying and running them\n"
    )


def _fleet_document(fleet: Fleet, demand: ServiceDemand) -> dict[str, Any]:
    """Return a fleet with its workers and margins; of replicas, those of its only group also as single keys."""
    document = fleet._asdict() | {"kind": fleet.kind, "total_devices": fleet.devices, "margins": fleet.margins(demand)}
    if fleet.kind == "pools":
        return document
    group = fleet.workers[0]._asdict()
    del group["role"]
    return document | {"replicas": group.pop("number")} | group


def _fleet_texts(fleet: Fleet) -> dict[str, str]:
    """Return the texts of a fleet's row: its name, and its groups of workers."""

    def by_role(text: Callable[[WorkerGroup], str]) -> str:
        return " + ".join(map(text, fleet.workers))

    mappings = [f"{group.role} {_degrees_text(group.degrees)}".strip() for group in fleet.workers]
    return {
        "plan": f"{fleet.accelerator}, {fleet.kind}",
        "workers": by_role(lambda group: f"{group.number} of {group.devices}"),
        "mapping": f"{'; '.join(mappings)}, {fleet.software}",
        "in_flight": by_role(lambda group: f"{group.in_flight:.3g}"),
        "utilisation": by_role(lambda group: f"{group.utilisation:.2f}"),
    }


_LOAD_COLUMNS = [
    ACCELERATOR,
    Column("workers", "workers"),
    Column("in flight", "in_flight"),
    Column("utilisation", "utilisation"),
    Column("highest rate", "rate", digits),
    Column("margin", "margin_rate", whole_percent),
]

_SERVICE = _Form(
    key="fleets",
    head=_service_text,
    best=lambda row, demand: (
        f"cheapest ({whole_percent(row['probability_cheapest'])} sure): {row['workers']} {row['accelerator']}, "
        f"{digits(row['hourly'])} USD/h; TTFT {seconds(row['first_token'])}, TPOT {seconds(row['token'])}"
    ),
    columns=lambda demand: [
        ACCELERATOR,
        Column("USD/h", "hourly", digits),
        Column("cheapest", "probability_cheapest", whole_percent),
        Column("devices", "total_devices", spare=True),
        Column("workers", "workers"),
        MAPPING,
        Column("TTFT", "first_token", seconds, spare=True),
        Column("TPOT", "token", seconds, spare=True),
        *(Column(f"keeps {_word(name)}", f"chance_{name}", whole_percent, spare=True) for name in demand.limits),
    ],
    formats=lambda demand: {
        **{metric: (_word(metric), seconds) for metric in demand.metrics},
        "cost_per_device_hour": ("USD/h", digits),
    },
    document=_fleet_document,
    texts=_fleet_texts,
)


def launch_command(group: WorkerGroup, fleet: Fleet, demand: ServiceDemand) -> str:
    """Return the command ``dse launch …`` for a worker of a fleet, for vLLM where no tool has the stack's name.

    With the load of one of them, so that ``dse evaluate --serving`` of its settings has the times of the plan.

    Args:
        group: workers of the fleet.
        fleet: with their accelerator and stack.
        demand: what they serve.
    """
    from dse.fleet import worker_settings
    from dse.tools.runs import stack_tool

    tool, settings = stack_tool(fleet.software, "serving"), worker_settings(group, demand)
    if group.role:
        settings["max_num_seqs"] = math.ceil(group.in_flight / group.degrees.get("dp", 1))
    role = f" --role {group.role}" if group.role else ""
    set_options = "".join(
        f" --set {name}={f'{value:.6g}' if isinstance(value, int | float) else value}"
        for name, value in settings.items()
    )
    return (
        f"dse launch -w {demand.workload} -s {fleet.accelerator} -n {group.devices} --software {fleet.software} "
        f"--for {tool.name if tool else 'vllm'}{role}{set_options}"
    )


# --- a training run


def _training(demand: RunDemand, progress: Any) -> Report:
    """Return the plan of a training run."""
    from dse.fleet import plan_run
    from dse.measured.decisions.plans import cluster_intervals
    from dse.sweep.progress import progress_bar, shown

    with shown(progress, progress_bar) as show:
        plan = plan_run(demand, show)
    return _report(plan, _TRAINING, cluster_intervals(plan.fleets, plan.demand))


def _run_text(plan: Plan) -> str:
    """Return lines on the demand of a run."""
    from dse.fleet.runs import batch_tokens

    demand = plan.demand
    limits = [f"in {duration(demand.seconds)}"] if math.isfinite(demand.seconds) else []
    limits += [f"under {digits(demand.budget)} USD"] if math.isfinite(demand.budget) else []
    count = demand.tokens or 0.0
    tokens = f"{count / 1e12:g}T tokens" if count >= 1e12 else f"{count / 1e9:g}B tokens"
    return (
        f"{demand.workload}: {tokens} {' and '.join(limits)}, {counted(demand.global_batch or 1, 'sequence')} "
        f"({batch_tokens(demand) / 1e6:.3g}M tokens) per step; up to {demand.max_devices:,} devices, in powers of "
        "two; time with failures, USD of buying and running the devices for it\n"
    )


def _cluster_columns(demand: RunDemand) -> list[Column]:
    """Return the columns of the table of clusters."""
    words = {"run_time_with_failures": "time", "cost_per_run": "budget"}
    stated = {words[metric]: metric for metric in demand.limits}
    return [
        ACCELERATOR,
        Column("USD", "cost", digits),
        Column("devices", "devices", "{:,}".format),
        Column("time", "seconds", duration),
        MAPPING,
        Column("MFU", "mfu", percent),
        *(Column(f"margin of {word}", f"margin_{word}", whole_percent, spare=True) for word in stated),
        *(Column(f"keeps {word}", f"chance_{metric}", whole_percent, spare=True) for word, metric in stated.items()),
    ]


_TRAINING = _Form(
    key="clusters",
    head=_run_text,
    best=lambda row, demand: (
        f"{'cheapest' if math.isfinite(demand.seconds) else 'fastest'}: {row['devices']:,} {row['accelerator']}, "
        f"{duration(row['seconds'])}, {digits(row['cost'])} USD"
    ),
    columns=_cluster_columns,
    formats=lambda demand: {"run_time_with_failures": ("time", duration), "cost_per_run": ("USD", digits)},
    document=lambda cluster, demand: cluster._asdict() | {"margins": cluster.margins(demand)},
    texts=lambda cluster: {
        "plan": cluster.accelerator,
        "mapping": f"{_degrees_text(cluster.mapping)}, {cluster.software}",
    },
)
