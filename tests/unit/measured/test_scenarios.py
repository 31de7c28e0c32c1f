"""Stated scenarios: relative and absolute values, robust choices over them, ties, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

import dse
from dse.designs import leaf
from dse.doors import STUDIES
from dse.errors import InputError
from dse.measured.decisions.choice import decide
from dse.measured.decisions.scenarios import BASE_NAME, Scenario, add_base, apply_scenario, parse_scenarios
from tests.unit.measured.test_decision import NEAR, SMALL, choice, told

STUDY = STUDIES["training"]
FABRIC = Scenario("fabric", {"scale_out.bandwidth": "x 0.5"})


def test_a_value_may_be_relative_or_absolute():
    (one,) = apply_scenario(
        Scenario("dear", {"made.price": "+30 %", "prices.lifetime": "6.3e7 s"}), [NEAR[0].design], STUDY
    )
    assert float(leaf(one, "system.accelerator.made.price")) == pytest.approx(1.3 * 15000.0)
    assert float(leaf(one, "system.prices.lifetime")) == pytest.approx(6.3e7)
    (slower,) = apply_scenario(FABRIC, [NEAR[0].design], STUDY)
    assert slower.system.scale_out.bandwidth == pytest.approx(0.5 * NEAR[0].design.system.scale_out.bandwidth)


def test_a_scenario_without_changes_changes_nothing():
    alone = decide(NEAR, "step_time", STUDY)
    same = decide(NEAR, "step_time", STUDY, scenarios=[Scenario("same", {"scale_out.bandwidth": "x 1.0"})])
    for one, other in zip(alone.verdicts, same.verdicts, strict=True):
        np.testing.assert_allclose(one[1:], other[1:], rtol=1e-5)
    assert [one.weight for one in same.outcomes] == [0.5, 0.5]


def test_regret_is_that_of_every_draw_and_scenario():
    """With all the weight on one scenario the decision is that of its designs."""
    futures = [Scenario(BASE_NAME, {}, 0.0), FABRIC]
    moved = [
        one._replace(design=design)
        for one, design in zip(NEAR, apply_scenario(FABRIC, [one.design for one in NEAR], STUDY), strict=True)
    ]
    found, alone = decide(NEAR, "step_time", STUDY, scenarios=futures), decide(moved, "step_time", STUDY)
    assert found.verdicts[0].expected_regret == pytest.approx(alone.verdicts[0].expected_regret, abs=2e-3)
    both = decide(NEAR, "step_time", STUDY, scenarios=[FABRIC]).verdicts
    stated = decide(NEAR, "step_time", STUDY).verdicts
    for one, first, second in zip(both, stated, found.verdicts, strict=True):
        mean = 0.5 * (np.log1p(first.expected_regret) + np.log1p(second.expected_regret))
        assert np.log1p(one.expected_regret) == pytest.approx(mean, abs=1e-6)


def test_a_design_that_cannot_run_in_a_scenario_is_no_robust_choice():
    need = [float(dse.evaluate(one.design).peak_memory) for one in NEAR]
    short = Scenario("less memory", {"memory.capacity": f"{sum(need) / 2.0 + 4e9} B"})
    assert max(need) > 1.2 * min(need)
    found = decide(NEAR, "step_time", STUDY, scenarios=[short])
    lost = [one.name for one in found.verdicts if not np.isfinite(one.expected_regret)]
    assert len(lost) == 1 and found.robust.name not in lost and found.cautious.name not in lost


def test_a_scenario_in_which_no_design_can_run_has_no_best_one(capsys):
    """Probabilities are those of the other scenarios, the table says so, and nothing is the robust choice."""
    with np.errstate(all="raise", under="ignore"):
        found = decide(NEAR, "step_time", STUDY, scenarios=[Scenario("none", {"memory.capacity": "x 0.01"})])
    stated = decide(NEAR, "step_time", STUDY)
    assert [one.probability_best for one in found.verdicts] == pytest.approx(
        [one.probability_best for one in stated.verdicts]
    )
    np.testing.assert_allclose(found.better, stated.better)
    assert (found.robust, found.cautious, found.unclear) == (None, None, {"expected": [], "90 %": []})
    assert found.outcomes[1].best == ""
    common = ["-w", "llama-3-8b", "--set", "tp=8", "--set", "n_devices=8", "--scenario", "none: memory.capacity=x 0.01"]
    status, out = told(capsys, "decide", "h100", "dgx-b200", *common, "--show", "scenarios")
    assert status == 0 and "none can run" in out and "none, no design can run in every scenario" in out


def test_a_price_flips_the_choice_of_what_is_cheapest():
    two = [choice("a100"), choice("h100", system="eos", stack="megatron-2021", chip="h100-sxm-80gb")]
    plain = decide(two, "cost_per_token", STUDY)
    other = Scenario("free chips", {"made.price": "x 0.01"})
    found = decide(two, "cost_per_token", STUDY, scenarios=[other])
    assert found.outcomes[0].best == plain.best.name
    assert all(one.low < one.value < one.high for one in found.verdicts)
    assert any("made.price" in name for name in plain.shares)


def test_equal_designs_are_a_tie_of_robust_choices():
    found = decide([choice("one"), choice("two")], "step_time", STUDY, scenarios=[FABRIC])
    assert found.unclear["expected"] and found.unclear["90 %"]


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "dear:",
        ": tp=2",
        "dear: made.prise=+30 %",
        "dear: made.price=+30",
        "dear: made.price=30%",
        "dear: made.price=x 1.2.3",
        "dear: made.price=+1.2.3 %",
    ],
)
def test_what_is_no_scenario_is_refused(text):
    with pytest.raises(InputError):
        apply_scenario(*parse_scenarios(text), [NEAR[0].design], STUDY)


def test_names_are_told_apart_and_weights_are_some():
    with pytest.raises(InputError):
        add_base([FABRIC, FABRIC])
    with pytest.raises(InputError):
        add_base([Scenario(BASE_NAME, {}, 0.0)])
    with pytest.raises(InputError):
        apply_scenario(Scenario("experts", {"experts.imbalance": "x 2"}), [NEAR[0].design], STUDY)


def test_the_command_reads_files_and_compares_all_of_a_sweep(tmp_path, capsys):
    (tmp_path / "futures.toml").write_text('["dear power"]\nweight = 2\n"prices.electricity" = "+100 %"\n')
    sweep, output = tmp_path / "small.toml", tmp_path / "small.nc"
    sweep.write_text(SMALL.format("[1, 2]"))
    assert told(capsys, "run", str(sweep), "-o", str(output), "--keep", "all", "--no-figure")[0] == 0
    asked = [
        "decide",
        str(output),
        "--scenario",
        str(tmp_path / "futures.toml"),
        "--scenario",
        "fabric: scale_out.bandwidth=x 0.5",
        "--metric",
        "step_time",
        "--metric",
        "cost_per_token",
    ]
    status, text = told(capsys, *asked, "--show", "all")
    assert status == 0 and "dear power" in text and "least expected loss" in text
    document = json.loads(told(capsys, *asked, "--json")[1])["decisions"][0]
    with dse.open_results(output) as results:
        assert len(document["designs"]) == int((results.feasible & np.isfinite(results.step_time)).sum())
    assert [one["weight"] for one in document["scenarios"]] == [0.25, 0.5, 0.25]
