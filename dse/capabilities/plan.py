"""``dse.plan``: the cheapest devices that serve a rate of requests, or that train a model in time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from dse.errors import InputError
from dse.io import counted, digits, duration, percent, seconds
from dse.reports import Column, Line, Option, Report, Table, capability, caution, heading, verbatim
from dse.reports.options import Settings, ShowProgress, Software, Workload
from dse.reports.report import NOTHING_FEASIBLE
from dse.reports.tables import Section

if TYPE_CHECKING:
    from dse.fleet import Cluster, Fleet, RunDemand, RunPlan, ServiceDemand, ServicePlan, WorkerGroup
    from dse.measured.decisions.plans import PlanInterval

#: Maximum numbers of devices by default.
_SERVING_DEVICES, _TRAINING_DEVICES = 64, 16384

#: Seconds and dollars of the short units of options.
_SECONDS_BY_UNIT = {"d": 86400.0, "w": 604800.0, "y": 31557600.0}
_FACTORS = {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}

#: Word of a table → metric whose statistics are limited.
_WORDS = {"TTFT": "time_to_first_token", "TPOT": "time_per_output_token"}

#: Metric of the money of a fleet.
_HOURLY = "cost_per_device_hour"

#: A number in the units of SI, or a text with its unit.
_Amount = float | str | None


def _amount(text: str, flag: str, metavar: str) -> Option:
    """Return the option of a number with a unit."""
    return Option(text, flag=flag, metavar=metavar, terminal=str)


#: Options of a service.
FirstToken = Annotated[
    _Amount,
    _amount(
        "Serving: limit of time to first token: 1s, p95=1s; one of both is needed [default: none].",
        "--ttft",
        "[PCT=]TIME",
    ),
]
Token = Annotated[
    _Amount,
    _amount(
        "Serving: limit of time per output token: 30ms, p95=30ms; one of both is needed [default: none].",
        "--tpot",
        "[PCT=]TIME",
    ),
]
PromptTokens = Annotated[float, Option("Serving: prompt tokens, mean.", flag="--isl", metavar="N")]
OutputTokens = Annotated[float, Option("Serving: output tokens, mean.", flag="--osl", metavar="N")]


@capability("Serve", details=("limits", "load", "launch"))
def plan(
    workload: Workload,
    on: Annotated[
        str | Sequence[str], Option("Accelerators, joined by commas.", flag="--on", metavar="NAME,…", terminal=str)
    ],
    serving: Annotated[bool, Option("Plan a service, not a training run.")] = False,
    rate: Annotated[float | None, Option("Serving: requests/s, Poisson [default: none].", metavar="N")] = None,
    first_token: FirstToken = None,
    token: Token = None,
    prompt_tokens: PromptTokens = 1024.0,
    output_tokens: OutputTokens = 1024.0,
    time: Annotated[
        _Amount, _amount("Training: limit of the run with failures: 30d, 12 h [default: none].", "--in", "TIME")
    ] = None,
    budget: Annotated[
        _Amount, _amount("Training: limit of its cost: 5M, 200k [default: none].", "--under", "USD")
    ] = None,
    tokens: Annotated[
        _Amount, _amount("Training: tokens, such as 2T [default: those of the model's file].", "--tokens", "N")
    ] = None,
    global_batch: Annotated[
        int | None, Option("Training: sequences per step [default: the model's].", metavar="N", low=1)
    ] = None,
    max_devices: Annotated[
        int | None, Option("Maximum number of devices [default: 64; of training 16384].", metavar="N", low=1)
    ] = None,
    settings: Settings = None,
    software: Software = None,
    progress: ShowProgress = None,
) -> Report:
    """Plan the cheapest devices for a service or a training run.

    With --serving replicas that serve a rate of requests within limits of latency, else a cluster that trains a model
    within a time and a budget. Has configuration, cost and margins by accelerator, and what would change the
    cheapest. Costs are those of buying and running the system (docs/cost.md), not prices of rent.
    """
    names = on.split(",") if isinstance(on, str) else on
    accelerators = tuple(name.strip() for name in names if name.strip())
    candidates = _candidate_settings(settings, software, serving)
    of_service = {"--rate": rate, "--ttft": first_token, "--tpot": token}
    of_training = {"--in": time, "--under": budget, "--tokens": tokens, "--global-batch": global_batch}
    if serving:
        _check_options(of_service, of_training, "--serving", "of training", "leave it out, or leave out --serving")
        if rate is None:
            raise InputError("dse plan --serving", "no --rate", "a rate of requests/s", "add --rate 10")
        lengths, limits = (prompt_tokens, output_tokens), (limit_of(first_token, "--ttft"), limit_of(token, "--tpot"))
        most = max_devices or _SERVING_DEVICES
        return _service(workload, accelerators, rate, lengths, limits, most, candidates, progress)
    _check_options(of_training, of_service, "no --serving", "of a service", "add --serving")
    run_limits = (
        math.inf if time is None else _seconds(time),
        math.inf if budget is None else _count(budget, "--under", "USD, such as 5M"),
    )
    token_count = None if tokens is None else _count(tokens, "--tokens", "tokens, such as 2T")
    most = max_devices or _TRAINING_DEVICES
    return _training(workload, accelerators, run_limits, most, token_count, global_batch, candidates, progress)


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


# --- a service


def _service(
    workload: str,
    accelerators: tuple[str, ...],
    rate: float,
    lengths: tuple[float, float],
    limits: tuple[tuple[float, str], tuple[float, str]],
    max_devices: int,
    candidates: tuple[str, dict[str, Any]],
    progress: Any,
) -> Report:
    """Return the plan of a service; status 1 without a fleet."""
    from dse.designs import catalog
    from dse.fleet import ServiceDemand, provision
    from dse.measured.decisions.plans import cheapest_probabilities, fleet_intervals
    from dse.sweep.progress import progress_bar, shown

    model, (first, token) = catalog.resolve("workload", workload), limits
    times, statistics = (first[0], token[0]), (first[1], token[1])
    request = ServiceDemand(model, accelerators, rate, *lengths, *times, max_devices, *statistics, *candidates)
    with shown(progress, progress_bar) as show:
        service_plan = provision(request, show)
    demand, fleets = service_plan.demand, service_plan.fleets
    intervals = fleet_intervals(fleets, demand)
    cheapest = cheapest_probabilities(fleets, demand)
    documents = [
        _fleet_document(fleet, demand) | {**_chances(fleet_ends, demand.limits), "probability_cheapest": share}
        for fleet, fleet_ends, share in zip(fleets, intervals, cheapest, strict=True)
    ]
    document = {"demand": demand, "fleets": documents, "without": service_plan.without}
    document |= {"changes": service_plan.changes}
    rows = [_fleet_row(fleet, values) for fleet, values in zip(fleets, documents, strict=True)]
    sections: list[Section] = [Line(_service_text(service_plan))]
    if fleets:
        sections += [Line(_cheapest_fleet_text(rows[0])), Line(""), Table("fleets", _fleet_columns(demand), rows)]
    sections += _remarks(fleets, service_plan.without, service_plan.changes)
    if fleets:
        formats = {**{metric: (_word(metric), seconds) for metric in demand.metrics}, _HOURLY: ("USD/h", digits)}
        figures = [dict(zip(formats, (fleet.first_token, fleet.token, fleet.hourly), strict=True)) for fleet in fleets]
        names = [f"{fleet.accelerator}, {fleet.kind}" for fleet in fleets]
        sections.append(_limit_table(names, figures, intervals, demand.limits, formats))
        sections.append(Table("load", _load_columns(), rows, "load of each worker", "load"))
        sections.append(heading("launch", "launch"))
        sections += [verbatim(launch_command(group, fleets[0], demand), "launch") for group in fleets[0].workers]
    return Report(document, sections, status=0 if fleets else NOTHING_FEASIBLE)


def _word(metric: str) -> str:
    """Return TTFT or TPOT for a metric of a limit."""
    return next(word for word, name in _WORDS.items() if metric.endswith(name))


def _service_text(service_plan: ServicePlan) -> str:
    """Return lines on the demand of a service."""
    demand = service_plan.demand
    statistics = dict(zip(demand.metrics, (demand.first_token_statistic, demand.token_statistic), strict=True))
    limits = ", ".join(
        f"{_word(metric)} up to {seconds(limit)} ({statistics[metric]})" for metric, limit in demand.limits.items()
    )
    formats = "; ".join(dict.fromkeys(fleet.precision for fleet in service_plan.fleets))
    return (
        f"{demand.workload}: {demand.rate:g} requests/s of {demand.prompt_tokens:g} prompt and "
        f"{counted(demand.output_tokens, 'output token')}; {limits}; {f'in {formats}; ' if formats else ''}"
        f"at most {counted(demand.max_devices, 'device')}; USD of buying and running them\n"
    )


def _fleet_document(fleet: Fleet, demand: ServiceDemand) -> dict[str, Any]:
    """Return a fleet with its workers and margins; of replicas, those of its only group also as single keys."""
    document = fleet._asdict() | {
        "kind": fleet.kind,
        "total_devices": fleet.devices,
        "workers": fleet.workers,
        "margins": fleet.margins(demand),
    }
    if fleet.kind == "pools":
        return document
    group = fleet.workers[0]._asdict()
    del group["role"]
    return document | {"replicas": group.pop("number")} | group


def _chances(ends: Mapping[str, PlanInterval], limits: Mapping[str, float]) -> dict[str, Any]:
    """Return ``intervals``: metric → [low, high], and ``chances``: metric → probability that its limit is kept."""
    chances = {name: ends[name].probability_below(limit) for name, limit in limits.items() if name in ends}
    return {"intervals": {name: [end.low, end.high] for name, end in ends.items()}, "chances": chances}


def _fleet_row(fleet: Fleet, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a fleet in tables: values of its document, and texts on its groups of workers."""

    def by_role(text: Callable[[WorkerGroup], str]) -> str:
        return " + ".join(map(text, fleet.workers))

    mappings = [f"{group.role} {_degrees_text(group.degrees)}".strip() for group in fleet.workers]
    return {
        **document,
        **_prefixed("chance", document["chances"]),
        **_prefixed("margin", document["margins"]),
        "workers": by_role(lambda group: f"{group.number} of {group.devices}"),
        "mapping": f"{'; '.join(mappings)}, {fleet.software}",
        "in_flight": by_role(lambda group: f"{group.in_flight:.3g}"),
        "utilisation": by_role(lambda group: f"{group.utilisation:.2f}"),
    }


def _prefixed(word: str, values: Mapping[str, float]) -> dict[str, float]:
    """Return ``word_name`` → value."""
    return {f"{word}_{name}": value for name, value in values.items()}


def _degrees_text(degrees: Mapping[str, Any]) -> str:
    """Format the degrees above 1 as ``tp 8 x pp 2``, "1 device" for none."""
    return " x ".join(f"{name} {value}" for name, value in degrees.items() if value not in (1, "none")) or "1 device"


def _cheapest_fleet_text(row: Mapping[str, Any]) -> str:
    """Return a line on the cheapest fleet."""
    return (
        f"cheapest ({_whole_percent(row['probability_cheapest'])} sure): {row['workers']} {row['accelerator']}, "
        f"{digits(row['hourly'])} USD/h; TTFT {seconds(row['first_token'])}, TPOT {seconds(row['token'])}"
    )


def _fleet_columns(demand: ServiceDemand) -> list[Column]:
    """Return the columns of the table of fleets."""
    return [
        Column("accelerator", "accelerator", left=True),
        Column("USD/h", "hourly", digits),
        Column("cheapest", "probability_cheapest", _whole_percent),
        Column("devices", "total_devices", spare=True),
        Column("workers", "workers"),
        Column("mapping", "mapping", left=True, prose=True),
        Column("TTFT", "first_token", seconds, spare=True),
        Column("TPOT", "token", seconds, spare=True),
        *(Column(f"keeps {_word(name)}", f"chance_{name}", _whole_percent, spare=True) for name in demand.limits),
    ]


def _load_columns() -> list[Column]:
    """Return the columns of the table of how the workers of fleets are loaded."""
    return [
        Column("accelerator", "accelerator", left=True),
        Column("workers", "workers"),
        Column("in flight", "in_flight"),
        Column("utilisation", "utilisation"),
        Column("highest rate", "rate", digits),
        Column("margin", "margin_rate", _whole_percent),
    ]


def _whole_percent(share: float) -> str:
    """Format a share in whole per cent."""
    return f"{100.0 * share:.0f} %"


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


# --- both kinds


def _remarks(
    entries: Sequence[Fleet | Cluster], without: Mapping[str, str], changes: Sequence[str]
) -> Iterator[Section]:
    """Yield cautions on the entries of a plan, why accelerators are excluded, and what would change the first."""
    for name, texts in _by_text(entries).items():
        yield caution(f"{', '.join(texts)}: outside the calibrated range: {name}")
    for name, reason in without.items():
        yield caution(f"{name}: {reason}")
    if changes:
        yield heading(f"what would change it ({entries[0].accelerator})")
        yield from map(Line, changes)


def _by_text(entries: Sequence[Fleet | Cluster]) -> dict[str, list[str]]:
    """Return text on what lies outside of the calibrated range → accelerators, each once."""
    accelerators: dict[str, list[str]] = {}
    for entry in entries:
        if entry.outside and entry.accelerator not in accelerators.setdefault(entry.outside, []):
            accelerators[entry.outside].append(entry.accelerator)
    return accelerators


def _limit_table(
    names: Sequence[str],
    figures: Sequence[Mapping[str, float]],
    intervals: Sequence[Mapping[str, PlanInterval]],
    limits: Mapping[str, float],
    formats: Mapping[str, tuple[str, Callable[[float], str]]],
) -> Table:
    """Return the table of the figures of plans, their intervals, and how they keep their limits.

    Args:
        names: of the plans.
        figures: metric → value, by plan.
        intervals: metric → interval, by plan.
        limits: metric → its limit, where there is one.
        formats: metric → its word and the format of its values.
    """
    rows = []
    for name, values, ends in zip(names, figures, intervals, strict=True):
        for metric, value in values.items():
            end, limit = ends.get(metric), limits.get(metric)
            row = {"plan": name, "metric": metric, "value": value}
            row |= {"low": end.low, "high": end.high} if end else {"low": None, "high": None}
            row |= {"margin": limit / value - 1.0 if limit else None}
            rows.append(row | {"chance": end.probability_below(limit) if end and limit else None})

    def text(row: Mapping[str, Any], key: str) -> str:
        return formats[row["metric"]][1](row[key])

    columns = [
        Column("plan", "plan", left=True),
        Column("", "metric", lambda metric: formats[metric][0], left=True),
        Column("value", "value", row_text=lambda row: text(row, "value")),
        Column(
            "80 % interval",
            "low",
            row_text=lambda row: "" if row["low"] is None else f"{text(row, 'low')} to {text(row, 'high')}",
        ),
        Column("", "high", hidden=True),
        Column("margin", "margin", _whole_percent),
        Column("kept", "chance", _whole_percent),
    ]
    return Table("limits", columns, rows, "limits, by how much they may change, how surely they are kept", "limits", 2)


# --- a training run


def _training(
    workload: str,
    accelerators: tuple[str, ...],
    limits: tuple[float, float],
    max_devices: int,
    tokens: float | None,
    global_batch: int | None,
    candidates: tuple[str, dict[str, Any]],
    progress: Any,
) -> Report:
    """Return the plan of a training run; status 1 without a cluster."""
    from dse.designs import catalog
    from dse.fleet import RunDemand, plan_run
    from dse.measured.decisions.plans import cluster_intervals
    from dse.sweep.progress import progress_bar, shown

    model = catalog.resolve("workload", workload)
    request = RunDemand(model, accelerators, *limits, max_devices, tokens, global_batch, *candidates)
    with shown(progress, progress_bar) as show:
        run_plan = plan_run(request, show)
    demand, clusters = run_plan.demand, run_plan.clusters
    intervals = cluster_intervals(clusters, demand)
    limit_by_metric = {"run_time_with_failures": demand.seconds, "cost_per_run": demand.budget}
    stated = {name: limit for name, limit in limit_by_metric.items() if math.isfinite(limit)}
    documents = [
        cluster._asdict() | {"margins": cluster.margins(demand)} | _chances(ends, stated)
        for cluster, ends in zip(clusters, intervals, strict=True)
    ]
    document = {"demand": demand, "clusters": documents, "without": run_plan.without, "changes": run_plan.changes}
    rows = [
        {
            **values,
            **_prefixed("chance", values["chances"]),
            **_prefixed("margin", values["margins"]),
            "mapping": f"{_degrees_text(cluster.mapping)}, {cluster.software}",
        }
        for cluster, values in zip(clusters, documents, strict=True)
    ]
    sections: list[Section] = [Line(_run_text(run_plan))]
    if clusters:
        best, word = clusters[0], "cheapest" if math.isfinite(demand.seconds) else "fastest"
        text = f"{word}: {best.devices:,} {best.accelerator}, {duration(best.seconds)}, {digits(best.cost)} USD"
        sections += [Line(text), Line(""), Table("clusters", _cluster_columns(demand), rows)]
    sections += _remarks(clusters, run_plan.without, run_plan.changes)
    if clusters:
        formats = {"run_time_with_failures": ("time", duration), "cost_per_run": ("USD", digits)}
        figures = [dict(zip(formats, (cluster.seconds, cluster.cost), strict=True)) for cluster in clusters]
        names = [cluster.accelerator for cluster in clusters]
        sections.append(_limit_table(names, figures, intervals, stated, formats))
    return Report(document, sections, status=0 if clusters else NOTHING_FEASIBLE)


def _run_text(run_plan: RunPlan) -> str:
    """Return lines on the demand of a run."""
    demand = run_plan.demand
    limits = [f"in {duration(demand.seconds)}"] if math.isfinite(demand.seconds) else []
    limits += [f"under {digits(demand.budget)} USD"] if math.isfinite(demand.budget) else []
    count = demand.tokens or 0.0
    tokens = f"{count / 1e12:g}T tokens" if count >= 1e12 else f"{count / 1e9:g}B tokens"
    return (
        f"{demand.workload}: {tokens} {' and '.join(limits)}, {counted(demand.global_batch or 1, 'sequence')} "
        f"({run_plan.batch_tokens / 1e6:.3g}M tokens) per step; up to {demand.max_devices:,} devices, in powers of "
        "two; time with failures, USD of buying and running the devices for it\n"
    )


def _cluster_columns(demand: RunDemand) -> list[Column]:
    """Return the columns of the table of clusters."""
    limits = {"time": ("run_time_with_failures", demand.seconds), "budget": ("cost_per_run", demand.budget)}
    stated = {word: metric for word, (metric, limit) in limits.items() if math.isfinite(limit)}
    return [
        Column("accelerator", "accelerator", left=True),
        Column("USD", "cost", digits),
        Column("devices", "devices", "{:,}".format),
        Column("time", "seconds", duration),
        Column("mapping", "mapping", left=True, prose=True),
        Column("MFU", "mfu", percent),
        *(Column(f"margin of {word}", f"margin_{word}", _whole_percent, spare=True) for word in stated),
        *(Column(f"keeps {word}", f"chance_{metric}", _whole_percent, spare=True) for word, metric in stated.items()),
    ]
