"""Plans of a service: the cheapest replicas of each accelerator for a rate within limits."""

from __future__ import annotations

import itertools
import json
import math

import pytest
from typer.testing import CliRunner

import dse
from dse.capabilities.plan import launch_command
from dse.cli import app
from dse.fleet import pooled, service
from dse.fleet.demand import ServiceDemand, worker_settings
from dse.fleet.service import provision
from dse.fleet.workers import PoolCandidate, wait
from dse.measured.decisions.plans import fleet_intervals, plan_intervals
from tests.conftest import slow

DEMAND = ServiceDemand("llama-3-1-70b", ("h200", "b200", "l40s"), 10.0, 2000.0, 300.0, 1.0, 0.04, 16)


@pytest.fixture(scope="module")
def plan():
    return provision(DEMAND)


def served(fleet, workers, **settings):
    """The design of these workers."""
    settings |= {name: value for name, value in workers.degrees.items() if name != "dp"}
    return dse.serve(
        dse.design(
            DEMAND.workload,
            fleet.accelerator,
            fleet.software,
            n_devices=workers.devices,
            kind="serving",
            isl=DEMAND.prompt_tokens,
            **({"osl": DEMAND.output_tokens} | settings),
        )
    )


def of_kind(plan, kind):
    found = [fleet for fleet in plan.fleets if fleet.kind == kind]
    assert found
    return found


def test_fleets_keep_limits_cheapest_first(plan):
    assert plan.fleets == sorted(plan.fleets, key=lambda f: f.hourly)
    for fleet in plan.fleets:
        assert fleet.token <= DEMAND.token_limit and fleet.first_token <= DEMAND.first_token_limit
        assert fleet.devices <= DEMAND.max_devices
        assert all(margin >= 0.0 for margin in fleet.margins(DEMAND).values())


def test_replicas_serve_the_rate(plan):
    for fleet in of_kind(plan, "replicas"):
        (workers,) = fleet.workers
        one = served(fleet, workers, request_rate=DEMAND.rate / workers.number)
        assert bool(one.feasible) and float(one.time_per_output_token) == pytest.approx(fleet.token, rel=0.02)
        assert float(one.utilisation) == pytest.approx(workers.utilisation, rel=0.02)
        assert fleet.hourly == pytest.approx(fleet.devices * float(one.cost_per_device_hour), rel=1e-3)


def test_pools_serve_the_rate(plan):
    """Workers of both pools by the door: rates, times without waits, cost."""
    for fleet in of_kind(plan, "pools"):
        prompts, answers = fleet.workers
        first = served(fleet, prompts, concurrency=prompts.in_flight, load="static", osl=1)
        later = served(fleet, answers, concurrency=answers.in_flight, prefix_share=1.0)
        hourly = 0.0
        for workers, one in ((prompts, first), (answers, later)):
            busy = DEMAND.rate / (workers.number * float(one.requests_per_second))
            assert bool(one.feasible) and workers.utilisation == pytest.approx(busy, rel=0.02) and busy <= 0.9
            hourly += workers.number * workers.devices * float(one.cost_per_device_hour)
        assert fleet.hourly == pytest.approx(hourly, rel=1e-3)
        assert float(first.time_to_first_token) < fleet.first_token
        assert fleet.token == pytest.approx(float(later.time_per_output_token), rel=0.02)


def test_percentiles_ask_for_no_fewer_devices(plan):
    """Limits of the same numbers on the 95th percentiles; what is kept are these."""
    stricter = dict(first_token_statistic="p95", token_statistic="p95")
    found = provision(DEMAND._replace(accelerators=("h200", "b200"), **stricter))
    for kind in ("replicas", "pools"):
        assert of_kind(found, kind)[0].hourly >= 0.999 * of_kind(plan, kind)[0].hourly
    for fleet in of_kind(found, "replicas"):
        (workers,) = fleet.workers
        one = served(fleet, workers, request_rate=DEMAND.rate / workers.number)
        assert float(one.p95_time_per_output_token) == pytest.approx(fleet.token, rel=0.02)


def test_replicas_of_a_mixture_are_what_their_engine_launches():
    """vLLM has experts over all ranks of tp and dp, or none (pools: test_pools.py)."""
    demand = ServiceDemand("qwen3-30b-a3b", ("h100-sxm-80gb",), 4.0, 2000.0, 300.0, 2.0, 0.04, 4)
    every = service.swept_replicas(demand)["h100-sxm-80gb"]
    possible, ep, ranks = every["possible"], every["ep"], every["tp"] * every["dp"]
    assert ((ep == 1) | (ep == ranks))[possible].all() and (ep > 1)[possible].any()
    assert not every["feasible"][~possible].any() and (ep == 2)[~possible].any()
    (workers,) = service.cheapest_replicas(every, demand, "h100-sxm-80gb").workers
    assert workers.degrees["ep"] in (1, workers.degrees["tp"] * workers.degrees["dp"])


def test_waits_of_pools_are_exponential():
    part = PoolCandidate("h200", {"concurrency": 1}, 2.0, 1, 1.0, 1.0, 0.5, 0.01, 0.0)
    share, mean = wait(part, 1, 1.8, True)
    assert share == pytest.approx(0.9**1.0) and mean == pytest.approx(share * 0.5 / (2.0 * 0.1))
    seconds = [pooled._wait(part, 1, 1.8, True, statistic) for statistic in ("p50", "p90", "p95", "p99")]
    for value, beyond in zip(seconds, (0.5, 0.1, 0.05, 0.01), strict=True):
        assert share * math.exp(-value * share / mean) == pytest.approx(beyond)
    assert pooled._wait(part, 4, 0.1, True, "p50") == 0.0


def test_a_rate_of_almost_nothing_takes_a_worker_of_each_pool():
    rare = DEMAND._replace(rate=1e-12)
    part = PoolCandidate("h200", {"concurrency": 1}, 2.0, 1, 1.0, 1.0, 0.5, 0.01, 0.0)
    assert [pooled._fewest_workers(part, place, 0.0, rare) for place in (0, 1)] == [1, 1]


@pytest.mark.parametrize(
    "change",
    [{"rate": 20.0}, {"token_limit": 0.03}, slow({"first_token_limit": 0.3}), slow({"prompt_tokens": 4000.0})], ids=str,
)  # fmt: skip
def test_more_of_anything_costs_no_less(plan, change):
    fleets = provision(DEMAND._replace(accelerators=("h200", "b200"), max_devices=64, **change)).fleets
    assert not fleets or fleets[0].hourly >= 0.999 * plan.fleets[0].hourly


def test_who_cannot_serve_says_why(plan):
    found = provision(DEMAND._replace(token_limit=1e-4))
    assert not found.fleets
    assert all("to a token" in reason and "no pools" in reason for reason in found.without.values())
    assert {*plan.without} | {fleet.accelerator for fleet in plan.fleets} == {*plan.demand.accelerators}


def test_a_plan_of_one_limit():
    asked = ["plan", "--serving", "-w", "llama-3-8b", "--rate", "4", "--on", "h100", "--max-devices", "2"]
    for limit, word in (("--tpot", "TPOT"), ("--ttft", "TTFT")):
        told = CliRunner().invoke(app, [*asked, limit, "1s"])
        assert told.exit_code == 0 and told.stdout.count(" up to ") == 1 and f"{word} up to 1.00 s" in told.stdout
        assert "; in bf16; " in told.stdout and "cheapest" in told.stdout
    document = json.loads(CliRunner().invoke(app, [*asked, "--tpot", "30ms", "--json"]).stdout)
    fleet, fleets = document["fleets"][0], document["fleets"]
    assert document["demand"]["first_token_limit"] is None
    assert {*fleet["margins"]} == {"token", "rate"} and {*fleet["chances"]} == {"time_per_output_token"}
    assert sum(one["probability_cheapest"] for one in fleets) == pytest.approx(1.0) and fleet["precision"] == "bf16"


def test_intervals_and_the_cheapest_are_of_the_workers_that_a_plan_starts(plan):
    """Of pools the first token is that of workers for prompts, all else that of those that decode."""
    fleet = of_kind(plan, "pools")[0]
    first, token = DEMAND.metrics
    lengths = {"isl": DEMAND.prompt_tokens, "osl": DEMAND.output_tokens}
    values = {first: fleet.first_token, token: fleet.token, "cost_per_device_hour": fleet.hourly}
    each = []
    for workers, role in zip(fleet.workers, ({"load": "static", "osl": 1.0}, {"prefix_share": 1.0}), strict=True):
        degrees = {name: value for name, value in workers.degrees.items() if value > 1}
        each.append(
            plan_intervals(
                DEMAND.workload,
                fleet.accelerator,
                fleet.software,
                values,
                "serving",
                workers.devices,
                **(lengths | {"concurrency": workers.in_flight} | degrees | role),
            )
        )
    prompts, answers = each
    (found,) = fleet_intervals([fleet], DEMAND)
    price = "cost_per_device_hour"
    wanted = {first: prompts[first], token: answers[token], price: answers[price]}
    assert found.keys() == wanted.keys()
    assert all(found[name] == pytest.approx(wanted[name]) for name in wanted)
    assert prompts[price] != answers[price]


def test_what_makes_replicas_cheapest_errs_with_their_throughput(plan):
    """A share of a rate costs its devices, however fast they are; the requests in flight tell their throughput."""
    fleet = of_kind(plan, "replicas")[0]
    (workers,) = fleet.workers
    at_rate, in_flight = (worker_settings(workers, DEMAND, at_rate) for at_rate in (True, False))
    assert at_rate.pop("request_rate") == DEMAND.rate / workers.number
    assert in_flight.pop("concurrency") == workers.in_flight and at_rate == in_flight
    sure = {}
    for load in ({"concurrency": workers.in_flight}, {"request_rate": DEMAND.rate / workers.number}):
        sure[(*load,)] = plan_intervals(
            DEMAND.workload,
            fleet.accelerator,
            fleet.software,
            {"cost_per_token": 1.0},
            "serving",
            workers.devices,
            **(in_flight | load),
        )["cost_per_token"].deviation
    assert sure["concurrency",] > 1.05 * sure["request_rate",]


@pytest.mark.parametrize("kind", ["replicas", "pools"])
def test_lines_that_start_a_plan(plan, kind):
    """The load of a worker, its stack, and room for longer requests than the mean one: 4 (2000 + 300), in blocks."""
    fleet = of_kind(plan, kind)[0]
    for workers in fleet.workers:
        words = launch_command(workers, fleet, DEMAND).split()[2:]
        started = CliRunner().invoke(app, ["launch", *words])
        assert started.exit_code == 0 and "--max-model-len 9216" in started.stdout
        assert words[6:8] == ["--software", fleet.software]
        settings = [word for pair in itertools.pairwise(words) if pair[0] == "--set" for word in pair]
        said = CliRunner().invoke(app, ["evaluate", "--serving", "--json", *words[:8], *settings]).stdout
        metrics = json.loads(said)["metrics"]
        if kind == "replicas":
            assert metrics["time_per_output_token"] == pytest.approx(fleet.token, rel=1e-3)
            assert metrics["requests_in_flight"] == pytest.approx(workers.in_flight, rel=1e-3)
        else:
            assert f"load of the design: {workers.in_flight:g} request" in started.stdout


def test_a_plan_wants_a_rate_and_a_limit():
    asked = ["plan", "--serving", "-w", "llama-3-1-70b", "--on", "h200"]
    for more, missing in ((["--rate", "1"], "no limit of latency"), (["--ttft", "1s"], "no --rate")):
        done = CliRunner().invoke(app, [*asked, *more])
        assert done.exit_code == 2 and missing in done.stderr


def test_the_command():
    asked = ["plan", "-w", "llama-3-1-70b", "--rate", "10", "--isl", "2000", "--osl", "300", "--ttft", "1s", "--tpot",
             "40ms", "--on", "h200", "--max-devices", "16"]  # fmt: skip
    done = CliRunner().invoke(app, [*asked, "--serving", "--show", "launch"])
    assert done.exit_code == 0 and "what would change it" in done.stdout and "USD/h" in done.stdout
    document = json.loads(CliRunner().invoke(app, [*asked, "--serving", "--json"]).stdout)
    assert document["fleets"][0]["margins"]["token"] >= 0.0
    refused = CliRunner().invoke(app, asked)
    assert refused.exit_code == 2 and "add --serving" in refused.stderr
    document = json.loads(CliRunner().invoke(app, [*asked, "--serving", "--json", "--ttft", "p95=1s"]).stdout)
    assert document["demand"]["first_token_statistic"] == "p95" and "dse launch -w" in done.stdout
    for bad in (["--rate", "inf"], ["--ttft", "p42=1s"], ["--in", "3d"], ["--isl", "nan"]):
        assert CliRunner().invoke(app, [*asked, "--serving", *bad]).exit_code == 2, bad
    for bad in (["--rate", "-1"], ["--on", ","], ["--on", "nothing"], ["--max-devices", "0"], ["--tpot", "30 W"]):
        assert CliRunner().invoke(app, [*asked, "--serving", *bad]).exit_code == 2, bad
    assert CliRunner().invoke(app, [*asked, "--serving", "--tpot", "1 us"]).exit_code == 1
