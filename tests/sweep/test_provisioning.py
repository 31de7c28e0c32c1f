"""Plans of a service: the cheapest replicas of each accelerator for a rate within limits."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import dse
from dse.cli import app
from dse.sweep.provisioning import Demand, provision

DEMAND = Demand("llama-3-1-70b", ("h200", "b200", "l40s"), 10.0, 2000.0, 300.0, 1.0, 0.04, 16)


@pytest.fixture(scope="module")
def plan():
    return provision(DEMAND)


def test_fleets_serve_the_rate_within_limits_cheapest_first(plan):
    assert [fleet.accelerator for fleet in plan.fleets] and plan.fleets == sorted(plan.fleets, key=lambda f: f.hourly)
    for fleet in plan.fleets:
        made = dse.design(
            DEMAND.workload, fleet.accelerator, fleet.software, n_devices=fleet.devices, kind="serving",
            isl=DEMAND.prompt_tokens, osl=DEMAND.output_tokens, request_rate=DEMAND.rate / fleet.replicas,
            **{name: value for name, value in fleet.degrees.items() if name != "dp"},
        )  # fmt: skip
        one = dse.serve(made)
        assert bool(one.feasible) and float(one.time_per_output_token) == pytest.approx(fleet.token, rel=0.02)
        assert float(one.utilisation) == pytest.approx(fleet.utilisation, rel=0.02)
        assert fleet.token <= DEMAND.token_limit and fleet.first_token <= DEMAND.first_token_limit
        assert fleet.replicas * fleet.devices <= DEMAND.max_devices
        hourly = fleet.replicas * fleet.devices * float(one.cost_per_device_hour)
        assert fleet.hourly == pytest.approx(hourly, rel=1e-3)
        assert all(margin >= 0.0 for margin in fleet.margins(DEMAND).values())


def test_percentiles_ask_for_no_fewer_devices(plan):
    """Limits of the same numbers on the 95th percentiles; what is kept are these."""
    stricter = dict(first_token_statistic="p95", token_statistic="p95")
    found = provision(DEMAND._replace(accelerators=("h200", "b200"), **stricter))
    assert found.fleets[0].hourly >= 0.999 * plan.fleets[0].hourly
    for fleet in found.fleets:
        made = dse.design(
            DEMAND.workload, fleet.accelerator, fleet.software, n_devices=fleet.devices, kind="serving",
            isl=DEMAND.prompt_tokens, osl=DEMAND.output_tokens, request_rate=DEMAND.rate / fleet.replicas,
            **{name: value for name, value in fleet.degrees.items() if name != "dp"},
        )  # fmt: skip
        assert float(dse.serve(made).p95_time_per_output_token) == pytest.approx(fleet.token, rel=0.02)


def test_more_of_anything_costs_no_less(plan):
    best = plan.fleets[0].hourly
    for change in ({"rate": 20.0}, {"token_limit": 0.03}, {"first_token_limit": 0.3}, {"prompt_tokens": 4000.0}):
        fleets = provision(DEMAND._replace(accelerators=("h200", "b200"), max_devices=64, **change)).fleets
        assert not fleets or fleets[0].hourly >= 0.999 * best, change


def test_who_cannot_serve_says_why(plan):
    found = provision(DEMAND._replace(token_limit=1e-4))
    assert not found.fleets and all("fastest time to a token" in reason for reason in found.without.values())
    assert {*plan.without} | {fleet.accelerator for fleet in plan.fleets} == {*plan.demand.accelerators}


def test_the_command():
    asked = ["plan", "-w", "llama-3-1-70b", "--rate", "10", "--isl", "2000", "--osl", "300", "--ttft", "1s", "--tpot",
             "40ms", "--on", "h200,b200", "--max-devices", "16"]  # fmt: skip
    done = CliRunner().invoke(app, [*asked, "--serving"])
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
