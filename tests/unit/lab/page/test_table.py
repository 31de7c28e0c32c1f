"""Every sort of results becomes a table: whatever was kept, of searches too."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from dse.lab import page as pages_of
from dse.lab.page import lines, table
from dse.spec import search
from dse.sweep import execute, open_results
from dse.sweep.results.rebuilding import grid_of, singles_at
from tests.conftest import SMALL_SWEEP
from tests.unit.lab.page.results import planned
from tests.unit.lab.page.test_lines import differences, line_of, parsed, toml_of
from tests.unit.sweep import toy
from tests.unit.sweep.test_dataset import ALL_MODES, AXES
from tests.unit.sweep.toy import sweep

OBJECTIVES = '[objective]\nminimize = ["step_time", "peak_memory * n_devices"]'


@pytest.mark.parametrize("keep", ALL_MODES)
def test_whatever_was_kept(keep, tmp_path):
    """The toy model's results in every mode: numbers in place, lines of some designs as the grid has them."""
    few = AXES.replace('virtual_stages = "divisors"\n', "").replace('"selective", ', "")
    execute(sweep(few, more=OBJECTIVES), output=tmp_path / "r.nc", keep=keep, study=toy.STUDY)
    with open_results(tmp_path / "r.nc") as results:
        shown = table.build(results, 2000)
        time = results.step_time.values.reshape(-1)
        np.testing.assert_array_equal(shown.column("step_time").values, time[shown.rows])
        assert shown.start["x"] == "step_time" and shown.start["y"] == "peak_memory * n_devices"
        moving, same = {c.label for c in shown.columns if c.kind == "axis"}, dict(shown.facts)
        assert {"tp", "workload", "memory bandwidth", "dp", "n devices"} <= moving | {*same} and not moving & {*same}
        made = lines.build(shown)
        assert not made.why
        grid = grid_of(results)
        designs = singles_at(results, shown.rows, grid)
        for row in range(0, shown.size, max(1, shown.size // 5)):
            wanted = designs[row]
            assert not differences(parsed(line_of(made, row), shown.study), wanted, shown.study)


def of_a_search(text: str) -> tuple[xr.Dataset, xr.Dataset, np.ndarray]:
    """What a search leaves, the designs of its front, and their bandwidths."""
    found, _, _ = planned(search.from_text(text).sweep, 9)
    bandwidth = np.linspace(1e12, 3e12, found.sizes["design"]).astype(np.float32)
    plain = found.reset_index("design").reset_coords()
    plain["memory_bandwidth"] = ("design", bandwidth, plain.memory_bandwidth.attrs)
    inside = [str(name) for name, values in plain.data_vars.items() if values.dims == ("design",) and name != "design"]
    front = plain[inside].rename({name: f"front_{name}" for name in inside})
    results = front.assign({name: plain[name] for name in plain.data_vars if plain[name].dims == ()})
    return results.assign_coords(searcher=["random"], seed=[0]).assign_attrs(specification=text), found, bandwidth


#: A search of the bandwidth between the points of a grid.
CONTINUOUS = (
    SMALL_SWEEP.replace("[axes]", '[axes]\nmemory.bandwidth = { from = "1 TB/s", to = "3 TB/s", continuous = true }')
    + '[search]\nmethod = ["random"]\n'
)


@pytest.mark.parametrize(
    ("objectives", "x", "y"),
    [
        ('["step_time", "energy_per_token"]', "step_time", "energy_per_token"),
        ('["energy_per_step", "step_time"]', "energy_per_step", "step_time"),
        ('["mfu * step_time", "peak_memory"]', "mfu * step_time", "peak_memory"),
    ],
)
def test_a_search_opens_on_its_objectives(objectives, x, y):
    results, _, _ = of_a_search(CONTINUOUS.replace('minimize = "step_time"', f"minimize = {objectives}"))
    shown = table.build(results, 1000)
    assert (shown.start["x"], shown.start["y"]) == (x, y)
    assert shown.column(x).better == shown.column(y).better == "less"


def test_a_search_with_a_continuous_axis(tmp_path):
    """Its front, with what lies between the points of the grid."""
    results, found, bandwidth = of_a_search(CONTINUOUS)
    shown = table.build(results, 1000)
    made = lines.build(shown)
    assert not made.why and isinstance(shown.results, xr.Dataset)
    for row in range(shown.size):
        design = parsed(line_of(made, row), shown.study)
        assert np.float32(design.system.accelerator.memory.bandwidth) == bandwidth[row]
        assert design.mapping.tp == found.tp.values[row]
        assert "[search]" not in toml_of(made, shown, row)
    assert pages_of.write(tmp_path / "search.html", results) == shown.size
