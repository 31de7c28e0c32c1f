"""Intervals of money, carbon and runs: elasticities are those of the model, stated prices have no spread."""

from __future__ import annotations

import math

import numpy as np
import pytest

import dse
from dse.doors import STUDIES
from dse.measured.uncertainty import bills
from dse.measured.uncertainty.intervals import intervals
from dse.measured.uncertainty.parts import parts_of

TRAINING, SERVING = STUDIES["training"], STUDIES["serving"]
DESIGN = dse.design("gpt-3-13b", "selene", "megatron-2021", n_devices=16, tp=8, pp=2, recompute="full")
CHIP = "a100-sxm-80gb"
COST = "cost_per_run"


def bill(metric, design=DESIGN, chip=CHIP, study=TRAINING, stated=()):
    return bills.price_sensitivities([design], [chip], [metric], study, [stated])[0][metric]


def test_energy_costs_its_share():
    """The elasticity to energy is the share that is paid for it."""
    found = dse.evaluate(DESIGN)
    share = float(found.cost_per_run_electricity / found.cost_per_run)
    assert bill(COST).energy == pytest.approx(share, rel=0.05)
    emitted = float(found.carbon_per_run_operation / found.carbon_per_run)
    assert bill("carbon_per_run").energy == pytest.approx(emitted, rel=0.05)


def test_the_price_of_the_device_counts_by_its_share():
    found = dse.evaluate(DESIGN)
    spread = bills.price_spreads(bills.add_money_records(DESIGN, TRAINING), "prices", CHIP)[bills.DEVICE]
    share = float(found.cost_per_run_devices / found.cost_per_run)  # and maintenance of it
    assert share * spread < bill(COST).prices[bills.DEVICE] < 1.6 * share * spread


def test_completion_changes_no_number():
    price = float(dse.evaluate(DESIGN).device_price)
    one, other = dse.evaluate(DESIGN), dse.evaluate(bills.add_money_records(DESIGN, TRAINING, price))
    for metric in bills.METRICS:
        assert float(getattr(one, metric)) == pytest.approx(float(getattr(other, metric)), rel=1e-6)


def test_a_stated_price_has_no_spread():
    every = set(bill(COST).prices)
    known = bill(COST, stated=every)
    assert not known.prices
    assert bills.DEVICE not in bill(COST, stated={bills.DEVICE}).prices


def test_paths_are_stated_of_each_design_and_by_default_of_none():
    designs, chips = [DESIGN, DESIGN], [CHIP, CHIP]
    default = bills.price_sensitivities(designs, chips, [COST], TRAINING)
    first, second = bills.price_sensitivities(designs, chips, [COST], TRAINING, [{bills.DEVICE}, ()])
    assert [found[COST] for found in default] == [bill(COST)] * 2 == [second[COST]] * 2
    assert set(second[COST].prices) - set(first[COST].prices) == {bills.DEVICE}


def test_a_price_by_a_rule_is_less_sure_than_a_stated_one():
    made = bills.price_spreads(bills.add_money_records(DESIGN, TRAINING, 3e4), "prices", "b300-sxm-288gb")[bills.DEVICE]
    assert (
        made
        > 2.0
        * bills.price_spreads(bills.add_money_records(DESIGN, TRAINING, 3e4), "prices", "h100-sxm-80gb")[bills.DEVICE]
    )


def test_time_carries_over_in_full_and_standing_costs_have_none():
    where = DESIGN, "megatron-2021", ("chip",), TRAINING
    step, run = parts_of("step_time", *where), bills.time_and_energy_parts(bill(COST), COST, *where)
    assert {name: run[name] for name in step} == step
    assert not set(bills.time_and_energy_parts(bill("capital_cost"), "capital_cost", *where)) & set(step)


def test_a_service_at_a_given_rate_costs_what_its_devices_do():
    """What is served follows from the rate of requests, however long each takes."""
    design = dse.design("llama-3-8b", "h100", "vllm-2025", kind="serving", request_rate=1.0)
    cost = "cost_per_token"
    found = bills.time_and_energy_parts(
        bill(cost, design, "h100-sxm-80gb", SERVING), cost, design, "vllm-2025", (), SERVING
    )
    closed = dse.design("llama-3-8b", "h100", "vllm-2025", kind="serving", concurrency=32)
    other = bills.time_and_energy_parts(
        bill(cost, closed, "h100-sxm-80gb", SERVING), cost, closed, "vllm-2025", (), SERVING
    )
    assert found["home"] < 0.5 * other["home"]


def test_intervals_of_a_design_have_money_carbon_and_runs():
    metrics = {name: float(getattr(dse.evaluate(DESIGN), name)) for name in (*bills.METRICS, "step_time")}
    found = intervals(DESIGN, metrics, "megatron-2021", TRAINING, CHIP, "gpt-3-13b")
    assert set(found.bounds) == set(metrics)
    assert all(ends.low < metrics[name] < ends.high for name, ends in found.bounds.items())
    width = {name: math.log(ends.high / ends.low) for name, ends in found.bounds.items()}
    assert width[COST] > width["step_time"]
    np.testing.assert_allclose(width["cost_per_token"], width["tokens_per_cost"], rtol=1e-3)
    assert set(found.reasons(COST)) & {"device price", "prices"}
