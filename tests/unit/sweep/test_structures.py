"""Axes that mix structures (dense models and mixtures of experts, say): the results are those of a sweep of each."""

import numpy as np
import pytest

import dse
from dse.errors import InputError
from dse.spec.sweep import from_text
from dse.sweep import Interrupted, Shard, execute, merge, perform, perform_shard, plan
from dse.sweep.results.layout import are_designs
from tests.contract.sweep.test_run import raise_interrupt
from tests.unit.sweep import toy

MODELS = ("llama-3-8b", "mixtral-8x7b", "gpt-3-13b", "deepseek-v2-lite")

MIXTURES = MODELS[1::2]

SWEEP = """
[workload]
global_batch = 256
seq_len = 4096
[system]
name = "eos"
n_devices = 64
[axes]
workload = [{models}]
"scale_out.latency" = ["1 us", "4 us"]
tp = [2, 8]
pp = [1, 4]
{experts}
micro_batch = [1, 2]
recompute = ["none", "full"]
overlap_dp = [false, true]
[objective]
minimize = ["step_time", "peak_memory"]
"""

#: What a sweep of mixtures alone says of experts; that of a dense model must not.
EXPERTS = "ep = [1, 4, 8]\nimbalance = [1.0, 1.5]"


def spec(*models, experts=EXPERTS, more=""):
    names = ", ".join(f'"{model}"' for model in models or MODELS)
    return from_text(SWEEP.format(models=names, experts=experts) + more)


def alone(model, **options):
    """The sweep of one model."""
    experts = EXPERTS if model in MIXTURES else ""
    return execute(spec(model, experts=experts, **options.pop("of", {})), output=False, **options)


@pytest.fixture(scope="module")
def mixed():
    return execute(spec(), output=False)


def test_a_part_is_the_sweep_of_its_models_alone(mixed):
    results, summary = mixed
    separate = {model: alone(model) for model in MODELS}
    assert summary.n_designs == sum(one.n_designs for _, one in separate.values())
    assert summary.n_feasible == sum(one.n_feasible for _, one in separate.values()) > 0
    for model, (found, _) in separate.items():
        own = results.sel(workload=model)
        levels = [name for name, values in found.coords.items() if values.dims == ("mapping",) and name != "mapping"]
        experts = "ep" in levels
        own = own if experts else own.isel(imbalance=0)
        own = own.sel(mapping=own.ep.values == 1) if not experts else own
        keys = [list(zip(*(one[name].values.tolist() for name in levels), strict=True)) for one in (found, own)]
        rows = [keys[1].index(key) for key in keys[0]]
        assert len(set(rows)) == len(rows)
        for name in found.data_vars:
            np.testing.assert_array_equal(
                found[name].isel(workload=0).transpose("scale_out_latency", ..., "mapping").values,
                own[name].isel(mapping=rows).transpose("scale_out_latency", ..., "mapping").values,
                err_msg=name,
            )


def test_no_place_is_a_design_twice(mixed):
    """A dense model at two degrees of experts, or two imbalances, would be one design: it has one place."""
    results, summary = mixed
    is_design = are_designs(results).reshape(results.feasible.shape)
    assert np.count_nonzero(is_design) == summary.n_designs < is_design.size
    dense = ~np.isin(results.workload.values, MIXTURES)
    assert not is_design[dense][:, :, 1].any() and not is_design[dense][..., results.ep.values > 1].any()
    absent = results.step_time.values[~is_design]
    assert np.isnan(absent).all() and not results.feasible.values[~is_design].any()
    words = results.infeasible_reason.attrs["flag_meanings"].split()
    assert words[-1] == "not_applicable"


@pytest.mark.parametrize("keep", ["feasible", "best", "top:12", "pareto"])
def test_what_is_kept_is_of_all_parts(mixed, keep):
    whole, _ = mixed
    found, summary = execute(spec(), output=False, keep=keep)
    assert summary.n_designs == mixed[1].n_designs and summary.reasons == mixed[1].reasons
    time, memory = (np.where(whole.feasible, whole[name], np.inf) for name in ("step_time", "peak_memory"))
    if keep == "feasible":
        assert found.sizes["design"] == summary.n_feasible
        np.testing.assert_array_equal(found.step_time, time[np.isfinite(time)])
    if keep == "best":
        np.testing.assert_array_equal(found.step_time.fillna(np.inf), time.min(axis=-1))
    if keep == "top:12":
        np.testing.assert_array_equal(found.step_time, np.sort(time, axis=None)[:12])
        assert found.step_time.to_series().index.is_unique
    if keep == "pareto":
        pairs = {(t, m) for t, m in zip(time.ravel(), memory.ravel(), strict=True) if np.isfinite(t)}
        front = {p for p in pairs if not any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in pairs)}
        assert set(zip(found.step_time.values, found.peak_memory.values, strict=True)) == front


def test_what_is_told_of_all_designs(mixed):
    results, _ = mixed
    found, summary = execute(spec(more="[output]\nhistogram = 8"), output=False, keep="top:1")
    told = dse.overview(found)
    assert int(told.count_by_step_time.sum()) == summary.n_feasible
    time = results.step_time.where(results.feasible)
    for axis in ("workload", "scale_out_latency", "imbalance"):
        least = time.min([dim for dim in time.dims if dim != axis])
        np.testing.assert_array_equal(told[f"best_step_time_by_{axis}"], least)
    for axis in ("tp", "ep", "micro_batch", "overlap_dp", "recompute"):
        for value in told[f"by_{axis}"].values:
            least = time.isel(mapping=results[axis].values == value).min()
            np.testing.assert_array_equal(told[f"best_step_time_by_{axis}"].sel({f"by_{axis}": value}), least)


def test_a_reopened_file_is_the_dataset(mixed, tmp_path):
    perform(spec(), tmp_path / "r.nc")
    found = dse.open_results(tmp_path / "r.nc")
    for name in mixed[0].data_vars:
        np.testing.assert_array_equal(found[name], mixed[0][name], err_msg=name)
    assert perform(spec(), tmp_path / "r.nc")[1].finished


# --- in many pieces ---------------------------------------------------------------------------------------


def toy_run(output, **options):
    return perform(spec(more="[output]\nhistogram = 8"), output, study=toy.STUDY, chunk=64, **options)


@pytest.fixture
def short_blocks(monkeypatch):
    monkeypatch.setattr("dse.sweep.reduce.keep._CHUNKS_PER_BLOCK", 1)


@pytest.mark.usefixtures("short_blocks")
@pytest.mark.parametrize("keep", ["all", "feasible", "best", "top:20", "pareto"])
@pytest.mark.parametrize("of", [2, 7])
def test_merged_shards_are_one_run(tmp_path, keep, of):
    toy_run(tmp_path / "whole.nc", keep=keep)
    more = spec(more="[output]\nhistogram = 8")
    sizes = [
        perform_shard(more, Shard(i, of), tmp_path / "r.nc", study=toy.STUDY, chunk=64, keep=keep).n_designs
        for i in range(of, 0, -1)
    ]
    assert sum(sizes) == merge(tmp_path / "r.nc", toy.STUDY)[1].n_designs and min(sizes) > 0
    assert (tmp_path / "r.nc").read_bytes() == (tmp_path / "whole.nc").read_bytes()


@pytest.mark.usefixtures("short_blocks")
@pytest.mark.parametrize("keep", ["feasible", "top:20"])
@pytest.mark.parametrize("share", [0.2, 0.7])
def test_an_interrupted_run_goes_on(tmp_path, keep, share):
    """Wherever it stops: in the first structure or in a later one."""
    toy_run(tmp_path / "whole.nc", keep=keep)
    with pytest.raises(Interrupted):
        toy_run(tmp_path / "r.nc", keep=keep, progress=lambda s: s.done > share * s.total and raise_interrupt())
    _, summary = toy_run(tmp_path / "r.nc", keep=keep)
    assert share * summary.n_designs < summary.resumed < summary.n_designs
    assert (tmp_path / "r.nc").read_bytes() == (tmp_path / "whole.nc").read_bytes()


@pytest.mark.parametrize("keep", ["all", "best", "top:20", "pareto"])
def test_compiled_programs_keep_the_same(tmp_path, monkeypatch, keep):
    toy_run(tmp_path / "numpy.nc", keep=keep)
    monkeypatch.setattr("dse.sweep.engine.engine.MAX_NUMPY_DESIGNS", 0)
    toy_run(tmp_path / "compiled.nc", keep=keep)
    one, other = (dse.open_results(tmp_path / f"{name}.nc").load() for name in ("numpy", "compiled"))
    for name in one.variables:
        if one[name].dtype.kind == "f":
            np.testing.assert_allclose(one[name], other[name], rtol=1e-5, err_msg=name)
        else:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)


# --- what may be mixed ------------------------------------------------------------------------------------


def grid_of(axes, system='name = "eos"', more=""):
    return plan(from_text(f'[workload]\nname = "gpt-3-13b"\n[system]\n{system}\n[axes]\n{axes}\n{more}'))[0]


def test_one_structure_is_one_grid():
    assert not plan(spec("llama-3-8b", "gpt-3-13b", experts=""))[0].members
    assert len(plan(spec())[0].members) == 3


def test_networks_with_and_without_pods():
    networks = 'scale_out = ["ethernet-400-roce", "slingshot-11-frontier"]'
    grid = grid_of(f"{networks}\npods.oversubscription = [1, 2]\nn_devices = [64]\ntp = [8]")
    assert [one.base.system.scale_out.pods is None for one in grid.structure_grids] == [True, False]
    assert [one.n_points for one in grid.structure_grids] == [1, 2]


def test_what_no_part_has_is_refused():
    with pytest.raises(InputError, match="a model without experts"):
        plan(spec("llama-3-8b", "gpt-3-13b"))


def test_a_degree_must_fit_some_part():
    with pytest.raises(InputError, match="which does not divide"):
        plan(spec(experts="ep = [1, 7]"))
    with pytest.raises(InputError, match=r"no valid mapping.*"):
        plan(spec(experts="ep = [256]\ncp = [3]"))


def test_with_and_without_adapters():
    """Rank 0 is no adapter: the whole model is trained, by its own tokens, and nothing of an adapter is said of it."""
    head = '[workload]\nname = "llama-3-8b"\nseq_len = 2048\nglobal_batch = 32\n{}\n'
    tail = '[system]\nname = "eos"\nn_devices = 8\n[axes]\ntp = [1, 8]\n{}\n'

    def run(said, axes):
        return execute(from_text(head.format(said) + tail.format(axes)), output=False)[0]

    both = run("adapters.qkv = 0", "adapters.rank = [16, 0, 64]")
    adapted, whole = run("adapters.qkv = 0", "adapters.rank = [16, 64]"), run("", "")
    for name in ("step_time", "peak_memory", "tokens_per_second"):
        np.testing.assert_array_equal(both[name].isel(adapters_rank=[0, 2]), adapted[name], err_msg=name)
        np.testing.assert_array_equal(both[name].isel(adapters_rank=1), whole[name], err_msg=name)
    assert (both.adapters_rank.values == [16, 0, 64]).all()
    alone = run("adapters.qkv = 0", "adapters.rank = [0]")
    np.testing.assert_array_equal(alone.step_time.isel(adapters_rank=0), whole.step_time)


def test_an_objective_of_some_designs_alone_is_refused():
    text = SWEEP.format(models='"llama-3-8b", "mixtral-8x7b"', experts="")
    with pytest.raises(InputError, match="which not all of the designs have"):
        plan(from_text(text.replace('["step_time", "peak_memory"]', '"step_time * workload.experts.top_k"')))
    plan(from_text(text.replace('["step_time", "peak_memory"]', '"step_time * ep"')))


def test_what_no_design_meets_is_told_of_all():
    """A degree that a structure does not have counts as 1, a leaf that it does not have is no reason."""
    both = spec("llama-3-8b", "mixtral-8x7b", more='[constraints]\nall = ["step_time * ep <= 0.001", "imbalance <= 1"]')
    head, missed, _ = execute(both, output=False)[1].unmet
    runs = execute(spec("llama-3-8b", "mixtral-8x7b"), output=False)[1].n_feasible
    assert head.startswith(f"{runs:,} of ") and missed == f"step_time * ep <= 0.001: {runs:,} miss it"
