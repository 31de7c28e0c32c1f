"""A price that the user states has no spread, alike in ``dse evaluate``, ``dse decide`` and ``dse run``."""

from __future__ import annotations

import json

import pytest

import dse
from dse.cli import app
from tests.conftest import slow

DESIGN = {"tp": "8", "n_devices": "8", "made.price": "28000 USD"}


def told(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        app(list(arguments), prog_name="dse")
    assert not ended.value.code
    return capsys.readouterr().out


@pytest.mark.parametrize("metric", [slow("capital_cost"), "cost_per_run"])
def test_commands_print_the_same_interval(metric, tmp_path, capsys):
    sets = [text for name, value in DESIGN.items() for text in ("--set", f"{name}={value}")]
    common = ["-w", "llama-3-8b", *sets, "--json"]
    low, high = json.loads(told(capsys, "evaluate", "-s", "h100", *common))["intervals"][metric]
    printed = told(capsys, "decide", "h100", "h100,micro_batch=2", "--metric", metric, *common)
    decided = json.loads(printed)["decisions"][0]["designs"][0]
    sweep, output = tmp_path / "two.toml", tmp_path / "two.nc"
    sweep.write_text(f"""
[workload]
name = "llama-3-8b"

[system]
name = "h100"
n_devices = 8
accelerator.made.price = "28000 USD"

[mapping]
tp = 8

[axes]
micro_batch = [1, 2]

[objective]
minimize = "{metric}"

[output]
keep = "top:2"
""")
    told(capsys, "run", str(sweep), "-o", str(output))
    results = dse.open_results(output)
    kept = results.isel(design=results["micro_batch"].values.tolist().index(1))
    rows = [(decided["low"], decided["high"]), (float(kept[f"{metric}_low"]), float(kept[f"{metric}_high"]))]
    for row in rows:
        assert row == pytest.approx((low, high), rel=0.02 * (high - low) / high)
