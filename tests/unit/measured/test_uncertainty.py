"""Intervals of predictions: what is drawn, how wide they are, and that they are where users look."""

from __future__ import annotations

import csv
import json
import re

import numpy as np
import pytest

import dse
from calibration import engine_residuals
from dse.cli import app
from dse.designs import catalog, leaf
from dse.designs.leaves import leaves
from dse.doors import STUDIES
from dse.measured.decisions.choice import named_choices
from dse.measured.prediction import group_by_structure
from dse.measured.uncertainty.distance import MeasuredPlaces, Place, distance_levels, parts
from dse.measured.uncertainty.intervals import intervals
from dse.measured.uncertainty.parts import (
    half_width,
    interval,
    parts_of,
    perturb,
    perturbed_copies,
    quantile,
)
from dse.measured.uncertainty.posterior import Choice, posterior
from dse.measured.uncertainty.spreads import spreads_of, total_deviations
from dse.sweep import from_text, plan
from dse.types import MEASURED_ALONE

DESIGN = dse.design("gpt-3-13b", "selene", n_devices=16, tp=8, pp=2, recompute="full", global_batch=64)


def deviation(design, spreads):
    """Standard deviation of the log step time of a design over the spreads of its leaves."""
    return perturb([design], [spreads]).deviations("step_time")[0]


def residual(stack):
    """What a stack leaves open of log step times in its own rows."""
    return parts("step", stack, ())["home"]


def test_nothing_open_is_no_interval():
    assert deviation(DESIGN, {}) == 0.0
    assert interval(2.0, {"home": 0.0}) == (2.0, 2.0)
    assert interval(2.0, {}) is None


def test_parts_add_up_in_squares_to_the_normal_quantile():
    assert half_width({"home": 0.1}, 0.8) == pytest.approx(0.12816, rel=1e-3)
    assert half_width({"home": 0.1}, 0.95) == pytest.approx(0.19600, rel=1e-3)
    assert half_width({"home": 0.03, "chip": 0.04}) == pytest.approx(0.05 * quantile())


def test_a_spread_widens_by_its_elasticity():
    name = "software.matrix_slowdown"
    slope = next(e for e in dse.explain(DESIGN).elasticities if e.parameter == "matrix_slowdown").elasticity
    assert deviation(DESIGN, {name: 0.01}) == pytest.approx(0.01 * slope, rel=0.25)
    narrow, wide = (deviation(DESIGN, {name: spread}) for spread in (0.01, 0.1))
    assert wide > 5.0 * narrow


def test_designs_keep_their_order_whatever_their_structure():
    calculon = dse.design("gpt-3-13b", "calculon-a100-80g", n_devices=16, tp=8, pp=2, recompute="full", global_batch=64)
    spreads = {"software.matrix_slowdown": 0.1}
    together = perturb([DESIGN, calculon, DESIGN], [spreads] * 3).deviations("step_time")
    apart = [deviation(design, spreads) for design in (DESIGN, calculon, DESIGN)]
    np.testing.assert_allclose(together, apart, rtol=1e-5)


def test_moved_shares_stay_shares():
    path = "software.pp_overlap"
    ((_, stack),) = group_by_structure([DESIGN])
    found = perturbed_copies(stack, [{path: 2.0}], [path])
    column = leaf(found, path)
    assert column[1] == leaves()[path]["bounds"].high == 1.0 and 0.0 < column[2] < column[0]
    for other in (name for name in leaves() if name != path and leaf(DESIGN, name) is not None):
        assert leaf(found, other) == pytest.approx(np.full(3, leaf(DESIGN, other)), rel=1e-6), other


@pytest.mark.parametrize("stack", ["megatron-2021", "nemo", "megatron-core-te"])
def test_stacks_say_what_is_open(stack):
    spreads = total_deviations(spreads_of(stack))
    assert 0.01 <= residual(stack) < 0.3
    assert {"software.matrix_slowdown", "software.host_time"} <= spreads.keys()
    assert all(0.0 < spread < 2.0 for spread in spreads.values())


def test_a_stack_that_is_calibrated_again_has_its_new_residual(tmp_path, monkeypatch):
    """Within one process: what a notebook predicts after a calibration."""
    (tmp_path / "software").mkdir()
    ours, text = tmp_path / "software" / "ours.toml", catalog.entry("software", "megatron-2022").path.read_text()
    monkeypatch.setenv("DSE_CATALOG", str(tmp_path))
    for value in (0.25, 0.125):
        ours.write_text(re.sub(r"(?m)^residual = .*$", f"residual = {value:<5}", text))
        assert residual("ours") == value


def test_intervals_of_serving_are_by_engine_and_kind_of_figure():
    """An engine without rows is less sure; ratios follow the residual; memory has its own; other metrics have none."""

    def served(metric, stack, at=()):
        return parts_of(metric, DESIGN, stack, at, STUDIES["serving"])

    token = "time_per_output_token"
    assert half_width(served(token, "vllm")) < half_width(served(token, "vllm", ("vendor", "stack")))
    assert served("time_to_first_token", "vllm") == {"home": catalog.entry("software", "vllm").value("residuals.first")}
    assert served("peak_memory", "vllm")["framework"] == pytest.approx(float(DESIGN.software.memory_spread))
    assert not served("concurrency_limit", "vllm")


ROWS = MeasuredPlaces.from_places([
    Place("a", "f", "h100", "Hopper", "NVIDIA", "dense", "llama"),
    Place("b", "f", "h100", "Hopper", "NVIDIA", "latent mixture", "deepseek"),
    Place("b", "f", "a100", "Ampere", "NVIDIA", "dense", "gpt"),
])  # fmt: skip


@pytest.mark.parametrize("changed, found", [
    ({}, ()),
    ({"family": "gpt"}, ()),  # another stack has such rows
    ({"family": "qwen"}, ("family",)),
    ({"chip": "h200"}, ("chip",)),
    ({"chip": "a100", "generation": "Ampere"}, ("generation",)),  # with another stack alone
    ({"chip": "mi300x", "generation": "CDNA3", "vendor": "AMD"}, ("vendor", "stack")),
    ({"kind": "mixture"}, ("kind",)),
    ({"kind": "recurrent"}, ("kind",)),
    ({"stack": "c"}, ("stack",)),
    ({"stack": "b", "kind": "latent mixture"}, ()),
    ({"stack": "c", "framework": "g", "chip": "h200"}, ("chip", "framework")),
])  # fmt: skip
def test_of_each_respect_the_outermost_level_counts(changed, found):
    place = ROWS.rows[0]._replace(**changed)
    assert set(distance_levels(place, ROWS)) == set(found)
    new = distance_levels(place, ROWS, is_new_source=True)
    assert ("source" in new) == (place.stack in "ab" and place.vendor == "NVIDIA")


def test_intervals_widen_with_distance():
    """Home, a generation without rows, one that is announced, a vendor without rows; what they are wide by is named.

    Of a step that launches do not bound, whose spread is wider than that of a new vendor.
    """
    widths = []
    for system in ("b200", "rubin", "tpu-v5p"):
        made = dse.design("llama-3-8b", system, "nemo", n_devices=8, tp=8, micro_batch=4, any_option=True)
        chip = catalog.resolve("accelerator", system)
        found = intervals(made, {"step_time": 1.0}, "nemo", accelerator=chip, model="llama-3-8b")
        low, high = found.bounds["step_time"]
        widths.append(np.log(high / low))
        assert sum(found.reasons("step_time", 9).values()) == pytest.approx(1.0)
        assert {"generation", "vendor", "kernels", "links"} & found.reasons("step_time", 9).keys()
    home = intervals(DESIGN, {"step_time": 1.0}, "megatron-2021", accelerator="a100-sxm-80gb", model="gpt-3-13b")
    assert np.log(home.bounds["step_time"].high / home.bounds["step_time"].low) < widths[0] <= widths[1] <= widths[2]


def test_a_value_that_is_stated_is_known():
    """Of the command and of sweeps alike: it is not drawn, and what it explained is no longer open."""
    path = "system.accelerator.kernels.matrix_efficiency"
    one = Choice("", DESIGN, "megatron-2021", "a100-sxm-80gb", "gpt-3-13b")
    both = posterior([one, one._replace(fixed_paths={path})], "step_time", STUDIES["training"])
    assert path in both.spreads[0] and path not in both.spreads[1]
    assert both.deviations[1] < both.deviations[0]
    grid, _ = plan(from_text(SWEPT), "top:2")
    assert all({path, "software.matrix_slowdown"} <= {*choice.fixed_paths} for choice in named_choices(grid, [0, 1]))


SWEPT = """
[workload]
name = "gpt-3-13b"
[system]
name = "selene"
n_devices = 16
kernels.matrix_efficiency = 0.8
[mapping]
tp = 8
pp = 2
[axes]
matrix_slowdown = [1.0, 1.1]
"""


def test_energy_is_less_sure_than_time():
    found = intervals(DESIGN, {"step_time": 1.0, "energy_per_step": 1.0}, "megatron-2021")
    assert found.bounds["energy_per_step"].high > found.bounds["step_time"].high


def test_residuals_of_engines_hold_what_was_not_seen():
    """Of figures with spreads of 10 and 30 %, and of a source that is off, as many are held as are asked for."""
    rng = np.random.default_rng(0)
    count = 400
    stack = np.repeat(["a", "b"], count)
    spread = np.where(stack == "a", 0.1, 0.3)
    errors = engine_residuals.EngineErrors(
        stack,
        np.tile(["x", "y"], count),
        np.repeat(["token"], 2 * count),
        np.arange(2 * count) % 5,
        spread * rng.standard_normal(2 * count),
        0.5 * rng.standard_normal(2 * count),
    )
    own, foreign = engine_residuals.widths(errors)
    assert engine_residuals.of_engine("a", "token", errors) == pytest.approx(0.1, rel=0.2)
    for part in (stack == "a", stack == "b"):
        assert 0.75 < np.mean(np.abs(errors.unseen[part]) <= own[part]) < 0.86
    assert 0.75 < np.mean(np.abs(errors.foreign) <= foreign) < 0.85


def test_a_chip_without_rows_has_the_scatter_of_kernels_measured_alone_unless_it_states_them():
    unmeasured, stating = spreads_of("vllm", "mi300x"), spreads_of("calculon", "calculon-a100-80g")
    for field, alone in MEASURED_ALONE.items():
        whole = catalog.entry("kernels", "generic").values[f"fine.{alone}"].spread
        for name in (field, f"fine.{alone}"):
            scatter = dict(unmeasured[f"system.accelerator.kernels.{name}"])[f"accelerator/mi300x:kernels.{name}"]
            assert scatter == whole
            assert f"system.accelerator.kernels.{name}" not in stating


def test_a_stack_without_rows_is_less_sure():
    assert residual("megatron-core-te") > residual("megatron-2022")


def test_metrics_that_do_not_follow_the_step_time_have_no_interval():
    assert "peak_memory_state" not in intervals(DESIGN, {"peak_memory_state": 1.0}, "megatron-2021").bounds


def test_predict_adds_bounds(tmp_path):
    from dse import predict

    table, output = "tests/published/narayanan_2021.csv", tmp_path / "out.csv"
    assert predict(table, output)["all"]["predicted"] == 16
    rows = _rows(output)
    for row in rows:
        low, value, high = (float(row[f"pred_step_time{end}"]) for end in ("_low", "", "_high"))
        assert low < value < high < 1.5 * low
    predict(table, output, uncertainty=False)
    assert not any(name.endswith("_low") for name in _rows(output)[0])


def _rows(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def told(capsys, *arguments):
    """What a command prints."""
    with pytest.raises(SystemExit):
        app(list(arguments), prog_name="dse")
    return capsys.readouterr().out


def test_commands_tell_intervals(capsys):
    options = ["-w", "gpt-3-13b", "-s", "selene", "--set", "tp=8", "--set", "recompute=full"]
    printed = told(capsys, "evaluate", *options, "--show", "intervals")
    assert "80 % interval" in printed and "shares of its variance" in printed
    assert "80 % interval" not in told(capsys, "evaluate", *options, "--no-uncertainty")
    document = json.loads(told(capsys, "evaluate", *options, "--json"))
    low, high = document["intervals"]["step_time"]
    assert low < document["metrics"]["step_time"] < high
    assert 1 <= len(document["interval_parts"]["step_time"]) <= 3
    covered = json.loads(told(capsys, "validate", "tests/published/narayanan_2021.csv", "--uncertainty", "--json"))
    assert covered["coverage"][-1]["source"] == "all" and covered["coverage"][-1]["coverage"] > 0.6
