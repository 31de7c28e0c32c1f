"""Plans, pools, tables and results say how sure they are."""

from __future__ import annotations

import csv
import json

import pytest

import dse
from dse.measured.decisions.plans import PlanInterval, choice_of, least_cost_probabilities
from dse.views import plot
from tests.unit.measured.test_decision import told


def test_a_limit_at_the_prediction_is_kept_in_half_of_all_cases():
    one = PlanInterval(0.8, 1.25, 0.174)
    assert one.probability_below(1.0) == pytest.approx(0.5)
    assert one.probability_below(1.25) == pytest.approx(0.9, abs=0.005)
    assert one.probability_below(0.8) == pytest.approx(0.1, abs=0.005)


def test_a_plan_has_intervals_and_chances(capsys):
    limits = ["--ttft", "p95=2s", "--tpot", "50ms", "--max-devices", "2"]
    asked = ["plan", "--serving", "-w", "llama-3-8b", "--on", "h100", "--rate", "2", *limits]
    fleet, *_ = json.loads(told(capsys, *asked, "--json")[1])["fleets"]
    low, high = fleet["intervals"]["time_per_output_token"]
    assert low < fleet["token"] < high
    assert set(fleet["chances"]) == {"p95_time_to_first_token", "time_per_output_token"}
    assert "80 % interval" in told(capsys, *asked, "--show", "limits")[1]


def test_the_cheapest_of_plans_that_share_their_errors():
    """Chip, engine and prices cancel between designs of one chip, where each has but an error of its own."""
    h100, mi300x = (
        choice_of("llama-3-8b", chip, "vllm", "serving", concurrency=32.0) for chip in ("h100-sxm-80gb", "mi300x")
    )

    def cheaper(*plans):
        found = least_cost_probabilities(plans, "cost_per_token", "serving")
        assert sum(found) == pytest.approx(1.0)
        return found[0]

    assert cheaper([(h100, 1.0)]) == 1.0
    assert cheaper([(h100, 1.0)], [(h100, 1.5)]) > 0.95
    assert 0.2 < cheaper([(h100, 1.0)], [(mi300x, 1.0)]) < cheaper([(h100, 1.0)], [(mi300x, 1.5)]) < 0.95
    assert cheaper([(h100, 1.0)], [(h100, 0.5), (h100, 1.0)]) > 0.95  # of two pools


def test_predict_writes_intervals_unless_told_not_to(tmp_path, capsys):
    rows = {}
    for name, options in (("with", []), ("without", ["--no-uncertainty"])):
        path = tmp_path / f"{name}.csv"
        assert told(capsys, "predict", "tests/published/narayanan_2021.csv", "-o", str(path), *options)[0] == 0
        with path.open(encoding="utf-8", newline="") as file:
            rows[name] = next(csv.DictReader(file))
    assert float(rows["with"]["pred_step_time_low"]) < float(rows["with"]["pred_step_time"])
    assert "pred_step_time_low" not in rows["without"]
    assert rows["with"]["pred_step_time"] == rows["without"]["pred_step_time"]


def test_results_hold_the_ends_and_figures_draw_them(tmp_path, capsys):
    sweep, output = tmp_path / "small.toml", tmp_path / "small.nc"
    sweep.write_text("""
[workload]
name = "gpt-3-13b"
[system]
name = "selene"
[mapping]
recompute = "full"
[output]
money = true
[axes]
n_devices = [16]
pp = [1, 2]
tp = [4, 8]
""")
    ends = {}
    for keep in ("top:4", "all"):
        assert told(capsys, "run", str(sweep), "-o", str(output), "--keep", keep, "--no-figure", "--fresh")[0] == 0
        with dse.open_results(output) as results:
            ends[keep] = [name for name in results if name.endswith(("_low", "_high"))]
            for name in ends[keep]:
                metric, _, end = name.rpartition("_")
                assert results[name].attrs["units"] == results[metric].attrs["units"]
                assert "end of the 80 % interval" in results[name].attrs["long_name"]
                below = (results[name] < results[metric]) if end == "low" else (results[name] > results[metric])
                assert bool(below.all())
            drawn = [text.get_text() for one in plot.breakdown(results).legends for text in one.get_texts()]
            assert ("80 % interval" in drawn) == (keep == "top:4")
            plot.pareto(results)
    assert {"step_time_low", "peak_memory_high", "cost_per_run_low"} <= set(ends["top:4"]) and not ends["all"]
