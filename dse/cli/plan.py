"""``dse plan``: the cheapest devices that serve a rate of requests, or that train a model in time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from dse.cli import show
from dse.cli.options import Json, Workload
from dse.cli.status import NOTHING_FEASIBLE, report_errors
from dse.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dse.cli.limits import PlanInterval
    from dse.fleet import Cluster, Fleet, RunPlan, ServiceDemand, ServicePlan, WorkerGroup

#: Maximum numbers of devices by default.
_SERVING_DEVICES, _TRAINING_DEVICES = 64, 16384

#: Seconds and dollars of the short units of options.
_SECONDS_BY_UNIT = {"d": 86400.0, "w": 604800.0, "y": 31557600.0}
_FACTORS = {"k": 1e3, "m": 1e6, "b": 1e9}


@report_errors
def plan(
    workload: Workload,
    accelerators: Annotated[str, typer.Option("--on", metavar="NAME,…", help="Accelerators, joined by commas.")],
    serving: Annotated[bool, typer.Option("--serving", help="Plan a service, not a training run.")] = False,
    rate: Annotated[
        float | None, typer.Option(metavar="N", help="Serving: requests/s, Poisson [default: none].")
    ] = None,
    first_token: Annotated[
        str | None,
        typer.Option(
            "--ttft",
            metavar="[PCT=]TIME",
            help="Serving: limit of time to first token: 1s, p95=1s; one of both is needed [default: none].",
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            "--tpot",
            metavar="[PCT=]TIME",
            help="Serving: limit of time per output token: 30ms, p95=30ms; one of both is needed [default: none].",
        ),
    ] = None,
    prompt_tokens: Annotated[float, typer.Option("--isl", metavar="N", help="Serving: prompt tokens, mean.")] = 1024.0,
    output_tokens: Annotated[float, typer.Option("--osl", metavar="N", help="Serving: output tokens, mean.")] = 1024.0,
    time: Annotated[
        str | None,
        typer.Option(
            "--in",
            metavar="TIME",
            help="Training: limit of the run with failures: 30d, 12 h [default: none].",
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option("--under", metavar="USD", help="Training: limit of its cost: 5M, 200k [default: none]."),
    ] = None,
    tokens: Annotated[
        str | None, typer.Option(metavar="N", help="Training: tokens, such as 2T [default: those of the model's file].")
    ] = None,
    global_batch: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Training: sequences per step [default: the model's].")
    ] = None,
    max_devices: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Maximum number of devices [default: 64; of training 16384].")
    ] = None,
    as_json: Json = False,
) -> int:
    """Plan the cheapest devices for a service or a training run.

    With --serving replicas that serve a rate of requests within limits of latency, else a cluster that trains a model
    within a time and a budget. Prints configuration, cost and margins by accelerator, and what would change the
    cheapest. Costs are those of buying and running the system (docs/cost.md), not prices of rent.
    """
    names = tuple(name.strip() for name in accelerators.split(",") if name.strip())
    serving_options = {"--rate": rate, "--ttft": first_token, "--tpot": token}
    training_options = {"--in": time, "--under": budget, "--tokens": tokens, "--global-batch": global_batch}
    if serving:
        _check_options(
            serving_options, training_options, "--serving", "of training", "leave it out, or leave out --serving"
        )
        if rate is None:
            raise InputError("dse plan --serving", "no --rate", "a rate of requests/s", "add --rate 10")
        lengths, limits = (prompt_tokens, output_tokens), (first_token, token)
        return _plan_service(workload, names, rate, lengths, limits, max_devices or _SERVING_DEVICES, as_json)
    _check_options(training_options, serving_options, "no --serving", "of a service", "add --serving")
    run_limits = time, budget, tokens
    return _plan_training(workload, names, run_limits, global_batch, max_devices or _TRAINING_DEVICES, as_json)


def _check_options(options: dict[str, Any], other_options: dict[str, Any], got: str, scope: str, fix: str) -> None:
    """Raise an InputError where options of the other kind of plan are stated."""
    if foreign_options := [name for name, value in other_options.items() if value is not None]:
        raise InputError("dse plan", f"{', '.join(foreign_options)} {scope}, {got}", ", ".join(options), fix)


def _plan_service(
    workload: str,
    names: tuple[str, ...],
    rate: float,
    lengths: tuple[float, float],
    limits: tuple[str | None, str | None],
    max_devices: int,
    as_json: bool,
) -> int:
    """Plan a service, print it, and return the exit status (1 without a fleet)."""
    from dse.cli.limits import cheapest_probabilities, fleet_intervals
    from dse.designs import catalog
    from dse.fleet import ServiceDemand, provision

    (first_limit, first_statistic), (token_limit, token_statistic) = (
        _limit(text, option) for text, option in zip(limits, ("--ttft", "--tpot"), strict=True)
    )
    model = catalog.resolve("workload", workload)
    service_plan = provision(
        ServiceDemand(
            model, names, rate, *lengths, first_limit, token_limit, max_devices, first_statistic, token_statistic
        )
    )
    intervals = fleet_intervals(service_plan.fleets, service_plan.demand)
    cheapest = cheapest_probabilities(service_plan.fleets, service_plan.demand)
    if as_json:
        show.document(_document(service_plan, intervals, cheapest))
    else:
        _print(service_plan, intervals, cheapest)
    return 0 if service_plan.fleets else NOTHING_FEASIBLE


def _limit(text: str | None, option: str) -> tuple[float, str]:
    """Parse a limit to (seconds, statistic): ``1s`` is a mean, ``p95=1s`` has its statistic, None is infinite."""
    from dse.designs import catalog
    from dse.fleet import STATISTICS

    if text is None:
        return math.inf, STATISTICS[0]
    statistic, equals, value = text.rpartition("=")
    if equals and statistic.strip().lower() not in STATISTICS:
        raise InputError(option, repr(text), f"a time, or one of {', '.join(STATISTICS)} = a time", "write p95=1s")
    return catalog.quantity(value.strip(), "s", option), statistic.strip().lower() or "mean"


def _interval_document(intervals: dict[str, PlanInterval]) -> dict[str, Any]:
    """Return JSON-ready ``intervals``: metric → [low, high]."""
    return {"intervals": {name: [interval.low, interval.high] for name, interval in intervals.items()}}


def _probabilities_text(intervals: dict[str, PlanInterval], limits: dict[str, float]) -> str:
    """Format the probability in per cent that each limit is kept, without limits on metrics that have no interval."""
    return ", ".join(
        f"{100.0 * intervals[name].probability_below(limit):.0f} %"
        for name, limit in limits.items()
        if name in intervals
    )


def _document(
    service_plan: ServicePlan, intervals: Sequence[dict[str, PlanInterval]], cheapest: Sequence[float]
) -> dict[str, Any]:
    """Return the JSON-ready dictionary of a plan of a service."""
    limits = service_plan.demand.limits
    fleets = [
        fleet._asdict()
        | _workers_document(fleet)
        | {"margins": fleet.margins(service_plan.demand), **_interval_document(intervals_of_fleet)}
        | {
            "chances": {
                name: intervals_of_fleet[name].probability_below(limit)
                for name, limit in limits.items()
                if name in intervals_of_fleet
            }
        }
        | {"probability_cheapest": share}
        for fleet, intervals_of_fleet, share in zip(service_plan.fleets, intervals, cheapest, strict=True)
    ]
    return {
        "demand": service_plan.demand._asdict(),
        "fleets": fleets,
        "without": service_plan.without,
        "changes": service_plan.changes,
    }


def _workers_document(fleet: Fleet) -> dict[str, Any]:
    """Return the JSON-ready workers of a fleet; of replicas, those of its only group also as single keys."""
    document = {
        "kind": fleet.kind,
        "total_devices": fleet.devices,
        "workers": [workers._asdict() for workers in fleet.workers],
    }
    if fleet.kind == "pools":
        return document
    (workers,) = fleet.workers
    return document | {
        "replicas": workers.number,
        "devices": workers.devices,
        "degrees": workers.degrees,
        "in_flight": workers.in_flight,
        "utilisation": workers.utilisation,
    }


#: Word of a table → metric whose statistics are limited.
_WORDS = {"TTFT": "time_to_first_token", "TPOT": "time_per_output_token"}


def _print(service_plan: ServicePlan, intervals: Sequence[dict[str, PlanInterval]], cheapest: Sequence[float]) -> None:
    """Print a plan of a service: demand, table of fleets, intervals, launch commands of the cheapest."""
    out, demand = show.console(), service_plan.demand
    words = {
        metric: word
        for metric in demand.metrics
        for word, metric_suffix in _WORDS.items()
        if metric.endswith(metric_suffix)
    }
    statistics = dict(zip(demand.metrics, (demand.first_token_statistic, demand.token_statistic), strict=True))
    limits = (
        f"{words[metric]} up to {show.seconds(limit)} ({statistics[metric]})" for metric, limit in demand.limits.items()
    )
    formats = "; ".join(dict.fromkeys(fleet.precision for fleet in service_plan.fleets))
    out.print(
        Text(
            f"{demand.workload}: {demand.rate:g} requests/s of {demand.prompt_tokens:g} prompt and "
            f"{show.counted(demand.output_tokens, 'output token')}; {', '.join(limits)}; "
            f"{f'in {formats}; ' if formats else ''}at most {show.counted(demand.max_devices, 'device')}; "
            "USD of buying and running them\n"
        ),
        soft_wrap=True,
    )
    limited = [words[metric] for metric in demand.limits]
    columns = ["accelerator", "USD/h", "cheapest", "devices", "workers", "mapping", "in flight", "TTFT", "TPOT",
               "utilisation", f"margin: {', '.join([*limited, 'rate'])}", f"chance: {', '.join(limited)}"]  # fmt: skip
    rows = [
        [*_fleet_cells(fleet, service_plan, share), _probabilities_text(intervals_of_fleet, demand.limits)]
        for fleet, intervals_of_fleet, share in zip(service_plan.fleets, intervals, cheapest, strict=True)
    ]
    _print_table(columns, rows, service_plan.fleets, service_plan.without, service_plan.changes)
    _print_intervals(
        [f"{fleet.accelerator}, {fleet.kind}" for fleet in service_plan.fleets],
        intervals,
        {
            demand.metrics[0]: ("TTFT", show.seconds),
            demand.metrics[1]: ("TPOT", show.seconds),
            "cost_per_device_hour": ("USD/h", show.digits),
        },
    )
    if service_plan.fleets:
        show.heading(out, "launch")
        for workers in service_plan.fleets[0].workers:
            out.print(Text(_launch_command(workers, service_plan.fleets[0], demand)), soft_wrap=True)


def _launch_command(workers: WorkerGroup, fleet: Fleet, demand: ServiceDemand) -> str:
    """Return the command ``dse launch …`` for a worker of a fleet, for vLLM where no tool has the stack's name.

    With the load of one of them, so that ``dse evaluate --serving`` of its settings has the times of the plan.
    """
    from dse.fleet import worker_settings
    from dse.tools.runs import stack_tool

    tool, settings = stack_tool(fleet.software, "serving"), worker_settings(workers, demand)
    if workers.role:
        settings["max_num_seqs"] = math.ceil(workers.in_flight / workers.degrees.get("dp", 1))
    role = f" --role {workers.role}" if workers.role else ""
    set_options = "".join(
        f" --set {name}={value if isinstance(value, str) else f'{value:.6g}'}" for name, value in settings.items()
    )
    return (
        f"dse launch -w {demand.workload} -s {fleet.accelerator} -n {workers.devices} --software {fleet.software} "
        f"--for {tool.name if tool else 'vllm'}{role}{set_options}"
    )


def _print_intervals(
    names: Sequence[str],
    intervals: Sequence[dict[str, PlanInterval]],
    formats: dict[str, tuple[str, Callable[[float], str]]],
) -> None:
    """Print a line for each name: the 80 % intervals of the metrics of ``formats`` (metric → (word, formatter))."""
    out = show.console()
    if names:
        show.heading(out, "80 % intervals")
    for name, plan_intervals in zip(names, intervals, strict=True):
        parts = [
            f"{word} {text(plan_intervals[metric].low)} to {text(plan_intervals[metric].high)}"
            for metric, (word, text) in formats.items()
            if metric in plan_intervals
        ]
        out.print(Text(f"{name}: {', '.join(parts)}"), soft_wrap=True)


def _print_table(
    columns: list[str],
    rows: list[list[str]],
    entries: Sequence[Fleet | Cluster],
    excluded: dict[str, str],
    changes: list[str],
) -> None:
    """Print the table of a plan, cautions on its entries, why accelerators are excluded, and what would change it."""
    out = show.console()
    if rows:
        show.print_table(out, columns, rows, left=["accelerator", "mapping"], prose=[])
    for entry in entries:
        if entry.outside:
            words = f"{entry.accelerator}: outside the calibrated range: {entry.outside}"
            out.print(Text(words, "yellow"), soft_wrap=True)
    for name, reason in excluded.items():
        out.print(Text(f"{name}: {reason}", "yellow"), soft_wrap=True)
    if changes:
        show.heading(out, f"what would change it ({entries[0].accelerator})")
        for text in changes:
            out.print(Text(text), soft_wrap=True)


def _fleet_cells(fleet: Fleet, service_plan: ServicePlan, cheapest: float) -> list[str]:
    """Return the cells of a fleet, but for the probabilities of its limits."""
    margins = ", ".join(f"{100.0 * share:.0f} %" for share in fleet.margins(service_plan.demand).values())
    mapping_text = "; ".join(f"{workers.role} {_degrees_text(workers.degrees)}".strip() for workers in fleet.workers)

    def per_role(text: Callable[[WorkerGroup], str]) -> str:
        return " + ".join(map(text, fleet.workers))

    return [
        fleet.accelerator,
        show.digits(fleet.hourly),
        f"{100.0 * cheapest:.0f} %",
        str(fleet.devices),
        per_role(lambda workers: f"{workers.number} of {workers.devices}"),
        f"{mapping_text}, {fleet.software}",
        per_role(lambda workers: f"{workers.in_flight:.3g}") + " each",
        show.seconds(fleet.first_token),
        show.seconds(fleet.token),
        per_role(lambda workers: f"{workers.utilisation:.2f}"),
        margins,
    ]


def _degrees_text(degrees: dict[str, int]) -> str:
    """Format the degrees above 1 as ``tp 8 x pp 2``, "1 device" for none."""
    return " x ".join(f"{name} {value}" for name, value in degrees.items() if value > 1) or "1 device"


def _plan_training(
    workload: str,
    names: tuple[str, ...],
    limits: tuple[str | None, str | None, str | None],
    global_batch: int | None,
    max_devices: int,
    as_json: bool,
) -> int:
    """Plan a training run, print it, and return the exit status (1 without a cluster)."""
    from dse.cli.limits import cluster_intervals
    from dse.designs import catalog
    from dse.fleet import RunDemand, plan_run

    time, budget, tokens = limits
    seconds = math.inf if time is None else _seconds(time)
    dollars = math.inf if budget is None else _count(budget, "--under", "USD, such as 5M")
    token_count = None if tokens is None else _count(tokens, "--tokens", "tokens, such as 2T")
    model = catalog.resolve("workload", workload)
    run_plan = plan_run(RunDemand(model, names, seconds, dollars, max_devices, token_count, global_batch))
    intervals = cluster_intervals(run_plan.clusters, run_plan.demand)
    if as_json:
        clusters = [
            cluster._asdict() | {"margins": cluster.margins(run_plan.demand), **_interval_document(of_cluster)}
            for cluster, of_cluster in zip(run_plan.clusters, intervals, strict=True)
        ]
        show.document(
            {
                "demand": run_plan.demand._asdict(),
                "clusters": clusters,
                "without": run_plan.without,
                "changes": run_plan.changes,
            }
        )
    else:
        _print_runs(run_plan, intervals)
    return 0 if run_plan.clusters else NOTHING_FEASIBLE


def _seconds(text: str) -> float:
    """Parse a time to seconds: units of catalogue quantities, and d, w or y for days, weeks or years."""
    from dse.designs import catalog

    number, unit = text.strip()[:-1], text.strip()[-1:].lower()
    if unit in _SECONDS_BY_UNIT and number.strip().replace(".", "", 1).isdigit():
        return _finite(float(number) * _SECONDS_BY_UNIT[unit], text, "--in")
    return catalog.quantity(text, "s", "--in")


def _count(text: str, option: str, example: str) -> float:
    """Parse a number with k, M, B or T behind it and USD or $ around it; raise an InputError for another text."""
    word = text.strip().removesuffix("USD").strip().removeprefix("$").lower()
    factors = _FACTORS | {"t": 1e12}
    factor = factors.get(word[-1:], 1.0)
    try:
        return _finite(float(word[:-1] if factor > 1.0 else word) * factor, text, option)
    except ValueError:
        raise InputError(option, repr(text), example, "write a number with k, M, B or T") from None


def _finite(value: float, text: str, option: str) -> float:
    """Return a finite number as it is; raise an InputError for another."""
    if not math.isfinite(value):
        raise InputError(option, repr(text), "a finite number", "check the number, or leave it out")
    return value


def _tokens_text(count: float) -> str:
    """Format tokens in trillions or billions."""
    return f"{count / 1e12:g}T tokens" if count >= 1e12 else f"{count / 1e9:g}B tokens"


def _print_runs(run_plan: RunPlan, intervals: Sequence[dict[str, PlanInterval]]) -> None:
    """Print a plan of a training run: demand, table of clusters, intervals."""
    out, demand = show.console(), run_plan.demand
    limits = [f"in {show.duration(demand.seconds)}"] if math.isfinite(demand.seconds) else []
    limits += [f"under {show.digits(demand.budget)} USD"] if math.isfinite(demand.budget) else []
    out.print(
        Text(
            f"{demand.workload}: {_tokens_text(demand.tokens or 0.0)} {' and '.join(limits)}, "
            f"{show.counted(demand.global_batch or 1, 'sequence')} ({run_plan.batch_tokens / 1e6:.3g}M tokens) "
            "per step; "
            f"up to {demand.max_devices:,} devices, in powers of two; "
            "time with failures, USD of buying and running the devices for it\n"
        ),
        soft_wrap=True,
    )
    columns = ["accelerator", "USD", "devices", "time", "mapping", "MFU %", "margins", "chances"]
    limit_by_metric = {"run_time_with_failures": demand.seconds, "cost_per_run": demand.budget}
    limit_by_metric = {name: limit for name, limit in limit_by_metric.items() if math.isfinite(limit)}
    rows = []
    for cluster, cluster_intervals in zip(run_plan.clusters, intervals, strict=True):
        mapping = " x ".join(f"{name} {value}" for name, value in cluster.mapping.items() if value not in (1, "none"))
        margins = ", ".join(f"{name} {100.0 * share:.0f} %" for name, share in cluster.margins(demand).items())
        rows.append(
            [
                cluster.accelerator,
                show.digits(cluster.cost),
                f"{cluster.devices:,}",
                show.duration(cluster.seconds),
                f"{mapping or '1 device'}, {cluster.software}",
                f"{100.0 * cluster.mfu:.1f}",
                margins,
                _probabilities_text(cluster_intervals, limit_by_metric),
            ]
        )
    _print_table(columns, rows, run_plan.clusters, run_plan.without, run_plan.changes)
    _print_intervals(
        [cluster.accelerator for cluster in run_plan.clusters],
        intervals,
        {
            "run_time_with_failures": ("time", show.duration),
            "cost_per_run": ("USD", show.digits),
        },
    )
