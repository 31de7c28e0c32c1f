"""Prices that nobody states are told where money is: beside a design's bill, below tables, in results files."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import dse
from dse.cli import app
from dse.designs.priced import stands_in_for_dies, stands_in_for_price, unpriced, without_dies
from dse.sweep import execute, from_text, plan
from dse.sweep.results import prices
from dse.types import Emissions, Prices
from dse.views.studies.notes import carbon_assumption, price_assumption
from tests.unit.sweep import toy

SWEEP = """
[workload]
name = "gpt-3-13b"
global_batch = 64
[system]
name = "eos"
n_devices = 16
{fixed}
[software]
name = "megatron-core"
[axes]
accelerator = {chips}
tp = [8]
micro_batch = [1]
[objective]
minimize = "{objective}"
"""

BY_WATT = "price of b300-sxm-288gb, not stated: 35 USD/W of the power limit"


def grid(chips, objective="device_price", fixed=""):
    return plan(from_text(SWEEP.format(chips=chips, objective=objective, fixed=fixed)))[0]


def told(*arguments, **options):
    made = grid(*arguments, **options)
    return prices.price_notes(made, [made.labels(index) for index in range(made.n_designs)])


def test_the_price_that_stands_in_is_that_of_the_model():
    """Prices of a watt, of dies, as sold: what is told is the rule that was used."""
    from dse.model.money.device import price_of

    for chip, watts in (("b300", 1100.0), ("rubin-r200", 1800.0)):
        system = dse.design("gpt-3-13b", chip, tp=8).system
        assert stands_in_for_price(system.accelerator, Prices()) == "35 USD/W of its power limit"
        assert float(price_of(system.accelerator, Prices())[0]) == pytest.approx(35.0 * watts)
    v5p = dse.design("gpt-3-13b", "tpu-v5p", tp=8).system.accelerator
    assert stands_in_for_price(v5p, Prices()) == "cost of its dies and memory over 1 - margin of 60.0 %"
    assert not stands_in_for_dies(v5p, Emissions())


@pytest.mark.parametrize(("chip", "settings"), [
    ("b200", {}), ("gpu", {}), ("b300", {"made.price": 40000.0, "made.logic_area": "1600 mm2"}),
])  # fmt: skip
def test_a_stated_price_and_a_generated_chip_are_not_told(chip, settings):
    design = dse.design("gpt-3-13b", chip, tp=8, **settings)
    metrics = {"device_price": 1.0, "device_carbon_dies": 1.0}
    assert not price_assumption(metrics, design) and not carbon_assumption(metrics, design)


def test_every_accelerator_without_a_price_is_found():
    slugs = dse.catalog.names("accelerator")
    by_watt, by_dies = unpriced(slugs)
    assert {"b300-sxm-288gb", "mi250x-module", "rubin-r200", "tpu-v6e"} <= {*by_watt} and by_dies == ["tpu-v5p"]
    assert not {"gpu", "generated-h100", "b200-sxm-180gb"} & {*by_watt}
    assert {*by_watt} < {*without_dies(slugs)}


@pytest.mark.parametrize("serving", [False, True])
def test_evaluate_tells_it_beside_the_money(serving):
    asked = ["evaluate", "-w", "llama-3-8b", "-s", "b300", "--set", "tp=1", *(["--serving"] if serving else [])]
    out = CliRunner().invoke(app, [*asked, "--show", "cost,carbon"]).stdout
    line = "accelerator price: 38,500 USD = 35 USD/W of its power limit; made.price is not stated"
    assert line in out and "embodied carbon of the dies: 165 kg = 0.15 kg/W of its power limit" in out
    told = json.loads(CliRunner().invoke(app, [*asked, "--json"]).stdout)["cautions"]
    assert line in told
    stated = CliRunner().invoke(app, [*asked, "--set", "made.price=40000"]).stdout
    assert "made.price is not stated" not in stated


def test_a_table_ranked_by_money_names_them():
    chips = ["b200", "b300", "tpu-v5p", "gb200-nvl72"]
    v5p = "price of tpu-v5p, not stated: cost of dies and memory over 1 - margin"
    assert told(chips) == f"{BY_WATT}; {v5p}"
    assert told(chips, "carbon_per_run") == (
        "embodied carbon of b300-sxm-288gb, dies not stated: 0.15 kg/W of the power limit"
    )
    assert told(["b200", "gpu"]) == told(chips, "step_time") == ""


@pytest.mark.parametrize(
    ("fixed", "wanted"),
    [
        ('"prices.watt_price" = 20', BY_WATT.replace("35", "20")),
        ('"accelerator.made.price" = 40000', ""),
    ],
)
def test_what_the_sweep_states_counts(fixed, wanted):
    assert told(["b200", "b300"], fixed=fixed) == wanted


def test_results_say_it_too():
    spec = from_text(SWEEP.format(chips=["h100", "b300"], objective="step_time", fixed="") + "[output]\nmoney = true")
    results, summary = execute(spec, output=False, study=toy.STUDY)
    assert summary.prices == BY_WATT
    lines = [line for line in results.attrs["unverified_constants"].splitlines() if "made.price" in line]
    assert lines == [
        "accelerator/b300-sxm-288gb: made.price = 35 USD/W of its power limit [default] no entry states it"
    ]
