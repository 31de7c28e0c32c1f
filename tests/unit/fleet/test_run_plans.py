"""Plans of training runs: the cheapest cluster of each accelerator within a time and a budget."""

from __future__ import annotations

import json
import math

import pytest
from typer.testing import CliRunner

import dse
from dse.cli import app
from dse.errors import InputError
from dse.fleet.runs import RunDemand, plan_run

DAY = 86400.0
DEMAND = RunDemand("llama-3-8b", ("h100", "b200"), 20 * DAY, math.inf, 512, 1e12)


@pytest.fixture(scope="module")
def plan():
    return plan_run(DEMAND)


def test_clusters_train_in_time_cheapest_first(plan):
    assert len(plan.fleets) == 2 and plan.fleets == sorted(plan.fleets, key=lambda one: one.cost)
    for one in plan.fleets:
        mapping = {name: value for name, value in one.mapping.items() if name != "dp"}
        made = dse.design(
            DEMAND.workload,
            one.accelerator,
            one.software,
            n_devices=one.devices,
            run_tokens=1e12,
            global_batch=plan.demand.global_batch,
            **mapping,
        )
        found = dse.evaluate(made)
        assert float(found.run_time_with_failures) == pytest.approx(one.seconds, rel=1e-3)
        cost = float(found.cost_per_run) * float(found.run_time_with_failures / found.run_time)
        assert cost == pytest.approx(one.cost, rel=1e-3) and one.seconds <= DEMAND.seconds
        assert one.margins(plan.demand)["time"] >= 0.0 and one.devices <= DEMAND.max_devices


def test_less_time_costs_no_less(plan):
    faster = plan_run(DEMAND._replace(seconds=8 * DAY))
    assert not faster.fleets or faster.fleets[0].cost >= 0.999 * plan.fleets[0].cost


def test_without_a_time_the_fastest_within_the_budget(plan):
    budget = 2.0 * plan.fleets[0].cost
    found = plan_run(DEMAND._replace(seconds=math.inf, budget=budget))
    assert found.fleets == sorted(found.fleets, key=lambda one: one.seconds)
    assert all(one.cost <= budget for one in found.fleets)
    assert found.fleets[0].seconds <= min(one.seconds for one in plan.fleets)


def test_who_cannot_says_why():
    found = plan_run(DEMAND._replace(seconds=60.0))
    assert not found.fleets and all("the fastest run" in reason for reason in found.without.values())
    found = plan_run(DEMAND._replace(budget=1.0))
    assert not found.fleets and all("the cheapest run" in reason for reason in found.without.values())


@pytest.mark.parametrize(
    ("change", "told"),
    [(dict(seconds=math.inf), "neither"), (dict(seconds=-1.0), "--in"), (dict(max_devices=4), "--max-devices"),
     (dict(accelerators=()), "--on"), (dict(accelerators=("frob",)), "frob"), (dict(budget=math.nan), "--under")],
)  # fmt: skip
def test_bad_demands(change, told):
    with pytest.raises(InputError, match=told):
        plan_run(DEMAND._replace(**change))


def test_the_command():
    asked = ["plan", "-w", "llama-3-8b", "--on", "h100", "--max-devices", "256", "--tokens", "200B"]
    done = CliRunner().invoke(app, [*asked, "--in", "1w", "--under", "$1M"])
    assert done.exit_code == 0 and "200B tokens in 7 d and under 1,000,000 USD" in done.stdout, done.output
    assert "what would change it" in done.stdout
    document = json.loads(CliRunner().invoke(app, [*asked, "--in", "1w", "--json"]).stdout)
    assert document["clusters"][0]["margins"]["time"] >= 0.0 and document["demand"]["tokens"] == 2e11
    endless = ["--in", f"{'9' * 400}d"], ["--in", "3d", "--under", "1e400"], ["--in", "3d", "--tokens", "1e300T"]
    for bad in (["--in", "soon"], ["--under", "many"], ["--in", "3d", "--rate", "4"], [], *endless):
        assert CliRunner().invoke(app, [*asked, *bad]).exit_code == 2, bad
    assert CliRunner().invoke(app, [*asked, "--in", "10 s"]).exit_code == 1
