"""``results.dse`` against brute force over data frames that plain xarray makes, of all kinds of results."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, strategies as st

from dse import optimizers
from dse.doors.study import more_is_better
from dse.errors import InputError
from dse.sweep import Shard, execute, from_text, merge, open_results, perform_shard, plan
from dse.sweep.results.backend import ResultsBackend
from tests.pages import blocks

ROOT = Path(__file__).parents[3]

TRAINING = """
title = "nodes and memories"
[workload]
name = "gpt-3-175b"
global_batch = 64
[system]
name = "eos"
n_devices = 64
accelerator = "gpu"
[software]
any_option = true
[mapping]
zero_stage = 1
precision = "bf16"
[axes]
node = ["n7", "n5", "n2"]
memory = ["hbm2e-3-2", "hbm4-8-0"]
tp = [2, 4, 8]
pp = [2, 8]
micro_batch = [1, 4]
recompute = ["none", "full"]
"""
SEVERAL = TRAINING + '[objective]\nminimize = ["step_time", "peak_memory"]\n'
SERVING = """
[workload]
name = "llama-3-8b"
[system]
name = "h100-sxm-80gb"
[serving]
prompt_tokens = 1000
output_tokens = 200
[axes]
n_devices = [1, 2, 4]
tp = [1, 2, 4]
concurrency = [1, 32, 4096]
[objective]
maximize = ["output_tokens_per_second_per_device", "output_tokens_per_second_per_user"]
"""
SEARCH = """
[workload]
name = "gpt-3-13b"
global_batch = 64
[system]
name = "eos"
n_devices = 16
[axes]
tp = [1, 2, 8]
pp = [1, 2]
micro_batch = [1, 2]
recompute = ["none", "full"]
"memory.bandwidth" = { from = "2 TB/s", to = "4 TB/s", continuous = true }
[search]
method = "random"
evaluations = 128
seeds = 3
"""
SEVERAL_SOUGHT = SEARCH + '[objective]\nminimize = ["step_time", "peak_memory"]\n'
MODES = ("all", "feasible", "best", "top:7", "pareto")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Name → (results, file): of training and serving, all that may be kept, a search, its front, merged shards."""
    folder = tmp_path_factory.mktemp("panel")
    made, paths = {}, {}
    for kind, text in (("training", SEVERAL), ("serving", SERVING)):
        for keep in MODES:
            path = paths[f"{kind} {keep}"] = folder / f"{kind}-{keep[:3]}.nc"
            made[f"{kind} {keep}"] = execute(from_text(text), path, keep=keep)[0]
    for name, text in (("search", SEARCH), ("front", SEVERAL_SOUGHT)):
        paths[name] = folder / f"{name}.nc"
        made[name] = optimizers.run(optimizers.from_text(text), paths[name])
    grid = plan(from_text(SEVERAL))[0]
    paths |= {"shards": folder / "shards.nc", "reopened": paths["training feasible"]}
    for number in (1, 2):
        perform_shard(grid, Shard(number, 2), paths["shards"])
    merge(paths["shards"])
    for name in ("shards", "reopened"):
        with open_results(paths[name]) as reopened:
            made[name] = reopened.load()
    return made, paths


@pytest.fixture(scope="module")
def panel(files):
    """Name → results."""
    return files[0]


KINDS = (
    *(f"{kind} {keep}" for kind in ("training", "serving") for keep in MODES),
    "search",
    "front",
    "shards",
    "reopened",
)


def frame_of(results):
    """A row a design by plain xarray and pandas, with a search's front or best designs under their own names."""
    if "searcher" in results.dims:
        fronts = [name for name in results if name.startswith("front_")]
        if fronts:
            frame = results[fronts].to_dataframe().rename(columns=lambda name: name.removeprefix("front_"))
            return frame.assign(feasible=True).reset_index(drop=True)
        best = results[[name for name, v in results.data_vars.items() if set(v.dims) == {"searcher", "seed"}]]
        frame = best.to_dataframe().reset_index(drop=True)
        frame = frame.assign(feasible=frame.violation == 0.0)
        return frame.drop_duplicates("step_time").sort_values("step_time", ignore_index=True)
    flat = results.reset_index(
        [dim for dim in ("mapping", "design") if dim in results.dims and dim in results.xindexes]
    )
    return flat.drop_vars([d for d in ("mapping", "design") if d in flat.variables]).to_dataframe().reset_index()


def groups_of(frame, names):
    """Value of each name → rows of feasible designs."""
    return frame[frame.feasible].groupby(list(names), observed=True)


def pairs(results, frame):
    """Pairs of labels that results have a value a design of."""
    names = [n for n in ("node", "memory", "tp", "pp", "n_devices", "concurrency", "recompute") if n in frame]
    return itertools.combinations([n for n in names if frame[n].nunique() > 1], 2)


@pytest.mark.parametrize("kind", KINDS)
def test_the_best_of_each_combination_is_that_of_brute_force(panel, kind):
    results = panel[kind]
    frame = frame_of(results)
    metrics = [n for n in ("step_time", "mfu", "peak_memory", "output_tokens_per_second_per_device") if n in frame]
    for names in [(), *pairs(results, frame)]:
        for metric in metrics if len(names) == 0 else metrics[:2]:
            best = results.dse.best(*names, by=metric)
            extreme = "max" if more_is_better(metric) else "min"
            if not names:
                assert float(best[metric]) == frame[metric][frame.feasible].agg(extreme)
                continue
            assert set(best[metric].dims) == set(names)
            wanted = getattr(groups_of(frame, names)[metric], extreme)()
            assert int(best[metric].notnull().sum()) == len(wanted) and int(best.feasible.sum()) == len(wanted)
            for labels, value in wanted.items():
                chosen = best.sel(dict(zip(names, labels, strict=True)))
                assert float(chosen[metric]) == np.float32(value)
                row = frame.loc[frame.feasible]
                for name in (*names, *metrics, "pp", "tp"):
                    if name in row:
                        row = row[row[name] == chosen[name].item()]
                assert len(row), "labels and metrics are of one design"


def test_equal_designs_are_told_apart_by_their_order(panel):
    results = panel["training all"]
    same = results.assign(step_time=(results.step_time.dims, np.ones(results.step_time.shape, np.float32)))
    first = np.flatnonzero(results.feasible.values.ravel())[0]
    assert int(same.dse.best().mapping) == first % results.sizes["mapping"]


def test_the_objective_decides_where_no_metric_is_named(panel):
    results = panel["serving all"]
    best = results.dse.best("n_devices", "concurrency")
    frame = frame_of(results)
    wanted = groups_of(frame, ("n_devices", "concurrency")).output_tokens_per_second_per_device.max()
    for (n_devices, concurrency), value in wanted.items():
        chosen = best.sel(n_devices=n_devices, concurrency=concurrency)
        assert float(chosen.output_tokens_per_second_per_device) == np.float32(value)


def test_the_best_machine_of_each_mapping(panel):
    results = panel["training all"]
    best = results.dse.best("mapping")
    np.testing.assert_array_equal(best.step_time, results.step_time.where(results.feasible).min(["node", "memory"]))


def test_a_dataset_that_changes_is_read_again(panel):
    results = panel["training all"].copy()
    before = results.dse.best()
    results["feasible"] = (
        results.feasible.dims,
        results.feasible.values & (results.step_time.values > float(before.step_time)),
    )
    assert float(results.dse.best().step_time) > float(before.step_time)


def test_numbers_of_names_follow_their_names(panel):
    best = panel["training all"].dse.best("node", "tp")
    assert best.node.values.tolist() == ["n7", "n5", "n2"] and best.node_nm.dims == ("node",)
    assert best.node_nm.values.tolist() == panel["training all"].node_nm.values.tolist()
    assert best.precision.item() == "bf16" and best.memory.dims == ("node", "tp")


def front_by_pairs(scores):
    """Rows that no other row dominates: each against all."""
    no_worse, better = (
        np.all(scores[:, None] <= scores[None], axis=2),
        np.any(scores[:, None] < scores[None], axis=2),
    )
    return np.flatnonzero(~np.any(no_worse & better, axis=0))


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_the_front_is_that_of_brute_force(panel, kind, data):
    results = panel[kind]
    frame = frame_of(results)
    choices = [
        n
        for n in (
            "step_time",
            "peak_memory",
            "mfu",
            "time_to_first_token",
            "parameters",
            "device_power",
            "output_tokens_per_second_per_device",
            "output_tokens_per_second_per_user",
        )
        if n in frame
    ]
    names = data.draw(st.lists(st.sampled_from(choices), min_size=2, max_size=3, unique=True))
    able = frame[frame.feasible & frame[names].notna().all(axis=1)]
    scores = able[names].to_numpy(np.float64) * [-1.0 if more_is_better(name) else 1.0 for name in names]
    wanted = {tuple(row) for row in able[names].to_numpy()[front_by_pairs(scores)].tolist()}
    front = results.dse.front(*names)
    shown = [tuple(row) for row in np.stack([front[name].values for name in names], axis=1).tolist()]
    assert set(shown) == wanted and len(shown) == len(wanted)
    assert (np.diff(front[names[0]].values) * (-1.0 if more_is_better(names[0]) else 1.0) >= 0.0).all()


def test_a_front_is_along_designs_with_their_labels(panel):
    front = panel["training all"].dse.front()
    assert set(front.step_time.dims) == {"design"} and front.sizes["design"] > 2
    whole = panel["training pareto"]
    assert np.array_equal(front.step_time.values, np.sort(whole.step_time.values))
    assert front.sel(node=str(front.node[0].item()), tp=int(front.tp[0])).sizes["design"] >= 1
    with pytest.raises(InputError, match="two metrics"):
        front.dse.front("step_time")


@pytest.mark.parametrize("kind", KINDS)
def test_the_table_has_the_best_designs_in_their_order(panel, kind):
    results = panel[kind]
    frame, metric = frame_of(results), "step_time" if "step_time" in results else "output_tokens_per_second_per_device"
    values = np.sort(frame[metric][frame.feasible].to_numpy() * (-1.0 if more_is_better(metric) else 1.0))
    table = results.dse.table(4, by=metric)
    np.testing.assert_array_equal(np.abs(table[metric]), np.abs(values[:4]))
    assert (
        table.index.tolist() == list(range(1, len(table) + 1))
        and table.attrs["units"][metric] == results.dse.best()[metric].attrs["units"]
    )
    for name, label in table.attrs["common"].items():
        assert name not in table and label in frame[name].tolist()
    wrong = 0
    with pytest.raises(InputError, match="number of designs"):
        results.dse.table(wrong)


@pytest.mark.parametrize("kind", KINDS)
def test_infeasible_designs_have_no_metrics(panel, kind):
    results = panel[kind]
    masked = results.dse.feasible()
    total = "step_time" if "step_time" in results else "front_step_time"
    total = total if total in results else "time_per_output_token"
    able = (
        results.violation == 0.0 if "violation" in results and total != "front_step_time" else results.get("feasible")
    )
    if total == "front_step_time":
        able = xr.ones_like(results[total], bool)
    xr.testing.assert_equal(
        masked[total].drop_vars(masked[total].coords), results[total].where(able).drop_vars(masked[total].coords)
    )
    assert masked.sizes == results.sizes and set(masked.xindexes) == set(results.xindexes)
    assert masked[total].attrs == results[total].attrs


def test_a_naive_minimum_takes_designs_that_cannot_run_and_the_accessor_none():
    """On fewer mappings of the technology sweep, on all of which 303 of 385 machines are up to 33 % too fast so."""
    text = (ROOT / "sweeps" / "technology_nodes_memories_networks.toml").read_text(encoding="utf-8")
    few = {"tp": [1, 2, 4, 8], "pp": [1, 2, 4, 8, 16], "micro_batch": [1, 2, 4], "virtual_stages": [1]}
    few |= {"scale_out": ["infiniband-ndr", "infiniband-gdr"]}
    for name, values in few.items():
        text = re.sub(rf"^{name} = .*$", f"{name} = {json.dumps(values)}", text, flags=re.MULTILINE)
    results = execute(from_text(text), False)[0]
    naive, right = results.step_time.min("mapping"), results.dse.feasible().step_time.min("mapping")
    fooled = naive < right
    assert int(fooled.sum()) > 0.5 * fooled.size, "on most machines the fastest mapping does not fit"
    assert float((1.0 - naive / right).max()) > 0.2
    for index in np.ndindex(*right.shape):
        point = results.isel(dict(zip(right.dims, index, strict=True)))
        times = point.step_time.values[point.feasible.values]
        assert float(right[index]) == times.min()
        mapping = int(np.argmin(point.step_time.values))
        assert bool(fooled[index]) == (not point.feasible.values[mapping]) or naive[index] == right[index]
    best = results.dse.best("node", "memory", "scale_out")
    np.testing.assert_array_equal(best.step_time, right)
    assert best.feasible.all()


@pytest.mark.parametrize("kind", KINDS)
def test_groups_of_several_labels_are_those_of_pandas(panel, kind):
    results = panel[kind]
    frame = frame_of(results)
    metric = "step_time" if "step_time" in frame else "time_per_output_token"
    for names, reduction in zip(pairs(results, frame), itertools.cycle(("min", "mean", "max")), strict=False):
        groups = getattr(results.dse.groupby(*names), reduction)()[metric]
        rest = [dim for dim in groups.dims if dim not in names]
        if reduction == "mean" and rest:
            continue  # a mean of means
        reduced = getattr(groups, reduction)(rest) if rest else groups
        for labels, value in getattr(groups_of(frame, names)[metric], reduction)().items():
            np.testing.assert_allclose(reduced.sel(dict(zip(names, labels, strict=True))), value, rtol=1e-5)
    fixed = results.dse.groupby("workload").min()
    np.testing.assert_allclose(fixed[metric].min(), frame[metric][frame.feasible].min())


EXPRESSIONS = {
    "tp == 8 and peak_memory < 60e9": lambda f: (f.tp == 8) & (f.peak_memory < 60e9),
    "peak_memory < '60 GB' and feasible": lambda f: (f.peak_memory < 60e9) & f.feasible,
    "tp * pp > 2 or not (micro_batch == 1)": lambda f: (f.tp * f["pp"] > 2) | ~(f.micro_batch == 1),
    "recompute == 'full' and workload.layers == 40": lambda f: f.recompute == "full",
    "global_batch == 64 and n_devices >= 16": lambda f: f.tp > 0,
}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.startswith("serving")])
@pytest.mark.parametrize("expression", [text for text in EXPRESSIONS if "workload." not in text])
def test_queries_are_those_of_pandas(panel, kind, expression):
    results = panel[kind]
    frame = frame_of(results)
    wanted = frame[EXPRESSIONS[expression](frame)]
    found = results.dse.query(expression)
    assert found.sizes["design"] == len(wanted)
    np.testing.assert_array_equal(found.step_time, wanted.step_time)
    np.testing.assert_array_equal(found.tp, wanted.tp)


def test_queries_are_an_expression_and_never_python(panel):
    results = panel["training all"]
    for wrong in (
        "__import__('os').getcwd() == 1",
        "tp.real == 8",
        "tp[0] == 1",
        "tq == 8",
        "tp = 8",
        "tp + 1",
        "goodput > 1",
    ):
        with pytest.raises(InputError):
            results.dse.query(wrong)
    with pytest.raises(InputError, match="keep these variables"):
        results[["step_time", "feasible"]].dse.query("peak_memory < 60e9")


@pytest.mark.parametrize("kind", KINDS)
def test_explained_designs_have_the_metrics_of_their_rows(panel, kind):
    results = panel[kind]
    best = results.dse.best()
    explained = results.dse.explain()
    assert explained.feasible and explained.study.name == ("serving" if "serving" in kind else "training")
    total = explained.study.totals[0]
    assert explained.metrics["peak_memory"] == pytest.approx(float(best.peak_memory), rel=1e-5)
    assert explained.metrics[total] == pytest.approx(float(best[total]), rel=1e-5)


def test_a_design_is_explained_by_its_labels_or_its_number(panel):
    results = panel["training all"]
    one = results.dse.sel(node="n5", memory="hbm4-8-0")
    row = int(np.flatnonzero(~one.feasible.values)[0])
    refused = results.dse.explain(node="n5", memory="hbm4-8-0", mapping=row)
    assert not refused.feasible and refused.reasons[0].name in ("memory", "heads_not_divisible")
    labels = {"node": "n2", "memory": "hbm4-8-0", "tp": 8, "pp": 2, "micro_batch": 1, "recompute": "full"}
    explained = results.dse.explain("peak_memory", **labels)
    assert explained.elasticity_of == "peak_memory"
    assert explained.metrics["step_time"] == pytest.approx(
        float(results.dse.sel(**labels).step_time.squeeze()), rel=1e-5
    )
    with pytest.raises(InputError, match="tp"):
        results.dse.explain(tp=3)
    with pytest.raises(InputError, match="specification"):
        results.assign_attrs(specification="").dse.explain()


def test_fixed_values_are_labels_too(panel, tmp_path):
    """Of what a run gave and of its file; by plain ``sel`` of the dataset, and by the accessor of any selection."""
    for kind in ("training all", "training feasible", "training best", "training top:7", "shards", "reopened"):
        results = panel[kind]
        for name, label in (("precision", "bf16"), ("zero_stage", 1), ("global_batch", 64), ("n_devices", 64)):
            xr.testing.assert_identical(results.sel({name: label}), results)
            xr.testing.assert_identical(results.dse.sel(**{name: label}), results)
            xr.testing.assert_identical(results.dse.sel(**{name: [label, 3]}), results)
        assert results.sel(zero_stage=1, mapping=[0]).sizes["mapping"] == 1 if "mapping" in results.dims else True
        for select in (results.sel, results.dse.sel, results.where(results.feasible).dse.sel):
            with pytest.raises(InputError, match="zero_stage: got 3; allowed 1, which all these designs have"):
                select(zero_stage=3)
    with pytest.raises(InputError, match="did you mean"):
        results.dse.sel(zero_stag=3)


def test_selection_by_labels(panel):
    results = panel["training all"]
    xr.testing.assert_identical(results.dse.sel(node="n5", tp=8), results.sel(node="n5", tp=8))
    xr.testing.assert_identical(results.dse.sel(mapping=slice(2, 5)), results.isel(mapping=slice(2, 6)))
    with pytest.raises(InputError, match=r"tp: got 3; allowed 2, 4, 8"):
        results.dse.sel(tp=3)
    with pytest.raises(InputError, match="did you mean 'n5'"):
        results.dse.sel(node="n5e")
    with pytest.raises(InputError, match=r"dse\.query"):
        panel["training best"].dse.sel(tp=8)
    found = panel["search"].dse.sel(tp=int(panel["search"].dse.best().tp))
    assert found.sizes["design"] >= 1


def test_axes_that_move_with_others_and_texts_with_units_are_labels():
    zipped = TRAINING.replace('node = ["n7", "n5", "n2"]', 'node = ["n7", "n5"]')
    results = execute(from_text(zipped + '[zip]\ngroups = [["node", "memory"]]\n'), False)[0]
    assert results.dse.sel(memory="hbm4-8-0").node.item() == "n5"
    for both in ({"memory": "hbm4-8-0", "node": "n5"}, {"node": "n5", "memory": "hbm4-8-0"}):
        assert results.dse.sel(**both, tp=8).step_time.dims == ("mapping",)
    with pytest.raises(InputError, match="memory: got 'hbm2e-3-2'; allowed hbm4-8-0"):
        results.dse.sel(node="n5", memory="hbm2e-3-2")
    assert results.dse.best("memory").node.values.tolist() == ["n7", "n5"]
    assert results.dse.sel(memory=["hbm4-8-0"]).sizes["node"] == 1
    text = SEARCH.partition("[search]")[0].replace("continuous = true", "step = '1 TB/s'")
    speeds = execute(from_text(text), False)[0]
    assert speeds.dse.sel(memory_bandwidth="2 TB/s").memory_bandwidth.item() == 2e12
    assert speeds.dse.sel(memory_bandwidth=slice("2 TB/s", "3 TB/s")).sizes["memory_bandwidth"] == 2
    assert speeds.dse.sel(memory_bandwidth=["2 TB/s", "4 TB/s"]).sizes["memory_bandwidth"] == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_data_frame_has_a_row_a_design(panel, kind):
    results = panel[kind]
    frame, wanted = results.dse.to_dataframe(), frame_of(results)
    assert len(frame) == len(wanted)
    for name in ("step_time", "time_per_output_token", "peak_memory", "tp", "recompute", "feasible"):
        if name in wanted and name in frame:
            np.testing.assert_array_equal(np.asarray(frame[name]), wanted[name].to_numpy())
    assert frame.attrs["units"]["peak_memory"] == "B" and "recompute" not in frame.attrs["units"]


def test_results_without_feasible_designs_or_feasibility_are_refused(panel):
    results = panel["training all"]
    none = results.assign(feasible=(results.feasible.dims, np.zeros(results.feasible.shape, bool)))
    for ask in (none.dse.best, lambda: none.dse.best("tp"), none.dse.front, none.dse.table, none.dse.explain):
        with pytest.raises(InputError, match="no feasible design"):
            ask()
    with pytest.raises(InputError, match="no variable 'feasible'"):
        results[["step_time"]].dse.best()
    with pytest.raises(InputError, match="did you mean 'step_time'"):
        results.dse.best(by="step_tim")
    with pytest.raises(InputError, match="did you mean 'tp'"):
        results.dse.best("tpp")


def test_designs_that_where_has_left_out_cannot_run(panel):
    results = panel["training all"]
    masked = results.where(results.feasible)
    assert masked.feasible.dtype.kind != "b", "what xarray makes of truth values"
    assert masked.dse.table().equals(results.dse.table())
    assert float(masked.dse.best().step_time) == float(results.dse.best().step_time)
    small = results.where(results.tp < 8)
    assert int(small.dse.best().tp) < 8 and bool((small.dse.query("feasible").tp < 8).all())


@pytest.mark.parametrize("kind", ["training", "serving"])
def test_one_design_alone_has_a_table_and_labels(panel, kind):
    results = panel["training all" if kind == "training" else "serving all"]
    best = results.dse.best()
    frame = best.dse.table()
    assert len(frame) == 1 and frame["tp"].item() == int(best.tp) and frame.iloc[0]["peak_memory"] > 0
    assert float(best.dse.best().peak_memory) == float(best.peak_memory)


def test_the_best_alone_has_a_table_and_labels():
    text = '[workload]\nname = "llama-3-8b"\n[system]\nname = "h100"\n[axes]\ntp = [2, 4, 8]\ndp = [1, 2]\n'
    best = execute(from_text(text), keep="best")[0]
    assert not best.sizes, "no dimension"
    tp = int(best.tp)
    assert best.dse.table()["tp"].tolist() == [tp] and int(best.dse.sel(tp=tp).tp) == tp
    with pytest.raises(InputError, match=f"allowed {tp}"):
        best.dse.sel(tp=2 * tp)
    with pytest.raises(InputError, match="one design"):
        best.dse.groupby("tp")


def test_a_number_of_designs_is_told_where_to_ask_for_it(panel):
    with pytest.raises(InputError, match=r"results\.dse\.table"):
        panel["training all"].dse.best(3)


def test_what_the_accessor_gives_has_it_too(panel):
    best = panel["training all"].dse.best("node", "tp")
    assert (best.attrs["specification"] and "Cautions" in repr(panel["training all"].dse.best("tp"))) or not best.attrs[
        "cautions"
    ]
    again = best.dse.best("node")
    np.testing.assert_array_equal(again.step_time, panel["training all"].dse.best("node").step_time)
    few = panel["training all"].dse.query("tp == 8").dse.best()
    assert float(few.step_time) == float(panel["training all"].dse.best("tp").step_time.sel(tp=8))
    assert best.dse.explain(node="n5", tp=8).metrics["step_time"] == pytest.approx(
        float(best.step_time.sel(node="n5", tp=8)), rel=1e-5
    )


# --- files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_xarray_opens_results_with_the_engine_as_dse_does(files, kind):
    """One after the other: the library of netCDF fails with several of one file."""
    path = files[1][kind]
    with open_results(path) as wanted:
        wanted.load()
    with xr.open_dataset(path, engine=ResultsBackend) as opened:
        xr.testing.assert_identical(opened, wanted)
        assert set(opened.xindexes) == set(wanted.xindexes) and float(opened.dse.best().peak_memory) > 0.0
        assert opened.encoding["source"] == str(path)
    with xr.open_dataset(path, engine=ResultsBackend, drop_variables="feasible") as fewer:
        assert "feasible" not in fewer
    assert not ResultsBackend().guess_can_open(str(path))


def test_python_of_the_page_on_files_runs(tmp_path, monkeypatch):
    """The engine by its class, where an installation does not know its name yet."""
    execute(ROOT / "sweeps" / "megatron_1t_4096_a100.toml", tmp_path / "results" / "megatron_1t_4096_a100.nc")
    monkeypatch.chdir(tmp_path)
    texts = [
        block.text for block in blocks(ROOT / "docs" / "files.md", "python") if "import xarray\n" not in block.text
    ]
    assert len(texts) == 2 and "results.dse.best()" in texts[0] and 'engine="dse"' in texts[1]
    variables = {}
    exec(texts[0].replace("results.step_time.min()", "naive = results.step_time.min()", 1), variables)
    results = variables["results"]
    told = [int(text) for text in re.findall(r"# (\d+) s:", texts[0])]
    assert told == [int(variables["naive"]), int(results.dse.feasible().step_time.min())]
    variables["results"].close()
    exec(texts[1].replace('engine="dse"', "engine=engine"), variables := {"engine": ResultsBackend})
    assert variables["results"].dse.table(5).step_time.is_monotonic_increasing
    variables["results"].close()


def test_the_engine_is_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module, _, name = project["entry-points"]["xarray.backends"]["dse"].partition(":")
    assert (module, name) == (ResultsBackend.__module__, ResultsBackend.__name__)
    assert project["optional-dependencies"]["parquet"] == ["pyarrow>=14"]


def test_parquet_has_units(panel, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    for kind in ("training all", "training top:7", "serving best", "search"):
        results, path = panel[kind], tmp_path / f"{kind.replace(' ', '-').replace(':', '')}.parquet"
        results.dse.to_parquet(path)
        table = parquet.read_table(path)
        assert table.schema.field("peak_memory").metadata[b"units"] == b"B"
        frame, wanted = table.to_pandas(), results.dse.to_dataframe()
        assert list(frame) == list(wanted) and len(frame) == len(wanted)
        np.testing.assert_array_equal(frame.peak_memory, wanted.peak_memory)
        assert b'"specification"' in table.schema.metadata[b"dse"]
        results.dse.to_parquet(path)
        path.with_name("other.parquet").write_text("mine")
        with pytest.raises(InputError, match="dse has not written"):
            results.dse.to_parquet(path.with_name("other.parquet"))


def test_without_pyarrow_the_extra_is_named(panel, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"pyarrow is not installed; allowed an installation with the extra parquet"):
        panel["training all"].dse.to_parquet(tmp_path / "r.parquet")
    assert not list(tmp_path.iterdir())


def test_what_needs_no_model_imports_nothing_of_jax_or_the_model(small_results):
    """Beside the records, which import what registers them."""
    code = f"""
import sys
import dse
results = dse.open_results({str(small_results[1])!r})
before = set(sys.modules)
for ask in (results.dse.best, results.dse.table, results.dse.feasible, results.dse.to_dataframe):
    ask()
results.dse.best("tp", "pp"), results.dse.front("step_time", "peak_memory"), results.dse.query("tp == 8")
results.dse.groupby("tp", "pp").min(), results.dse.sel(tp=8)
print([name for name in sorted(set(sys.modules) - before) if name.startswith(("jax", "dse.model", "dse.sweep.engine"))])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
