"""Results as others meet them: reopened by us, by plain xarray, and by a netCDF reader."""

import re

import netCDF4
import numpy as np
import pytest
import xarray as xr

import dse
from benchmarks.rates.programs import write_rate
from dse.errors import InputError
from dse.sweep import execute, open_results, perform
from dse.sweep.results.writing import usable
from dse.types import Infeasible, Precision, Recompute, choice_name
from tests.unit.sweep import toy
from tests.unit.sweep.toy import MAPPING_AXES, sweep

AXES = (
    MAPPING_AXES
    + """
workload = ["gpt-3-125m", "gpt-3-350m"]
memory.bandwidth = ["1 TB/s", "2 TB/s"]
precision = ["bf16", "fp8-block"]
collective = ["ring", "tree"]
"""
)
ALL_MODES = ["all", "feasible", "best", "top:20", "pareto"]


@pytest.fixture(scope="module", params=ALL_MODES)
def results(request, tmp_path_factory):
    """(dataset, path of its file) of every mode."""
    path = tmp_path_factory.mktemp("results") / "r.nc"
    more = '[objective]\nminimize = ["step_time", "peak_memory"]'
    dataset, _ = execute(sweep(AXES, more=more), output=path, keep=request.param, study=toy.STUDY)
    return dataset, path


def test_reopening_gives_the_same(results):
    dataset, path = results
    with open_results(path) as again:
        xr.testing.assert_identical(again.load(), dataset)


def both(results):
    """What a run gave, and its file reopened."""
    dataset, path = results
    yield dataset
    with open_results(path) as again:
        yield again


def test_every_variable_is_described(results):
    dataset, path = results
    for source in (dataset, xr.open_dataset(path)):
        for name, variable in source.variables.items():
            if name != "mapping":
                assert variable.attrs["long_name"], name
                named = name.removeprefix("by_") in ("workload", "system", "software")
                assert named or variable.attrs["units"], name


def test_designs_are_selected_by_parts_of_their_mapping(results):
    """``sel`` where all mappings or single designs are kept; of the best ones of a grid ``where``."""
    for source in both(results):
        kind = source.recompute.values[source.tp.values == 2][0]
        of_two = source.step_time.where((source.tp == 2.0) & (source.recompute == kind))
        if {"mapping", "design"} & set(source.dims):
            found = source.step_time.sel(tp=2.0, recompute=kind)
            assert source.sel(tp=2).tp == 2
        else:
            found = of_two
        np.testing.assert_array_equal(found.values[found.notnull()], of_two.values[of_two.notnull()])


def test_designs_are_grouped_by_parts_of_their_mapping(results):
    for source in both(results):
        for name in ("tp", "recompute"):
            known = source.set_coords([name])  # of the best mappings of a grid they are variables
            time = known.step_time.where(known.feasible)
            found = time.groupby(name).min()
            for label in np.unique(source[name]):
                wanted = time.where(source[name] == label)
                if label != "" and wanted.notnull().any():
                    assert found.sel({name: label}).min() == wanted.min(), (name, label)


def test_rows_are_selected_by_their_number(results):
    """``sel`` takes what the coordinate of the dimension shows; parts of a mapping as before."""
    for source in both(results):
        for dim in {"mapping", "design"} & set(source.dims):
            for one in (source, source.isel({dim: slice(1, None)})):
                assert one[dim].values.tolist() == list(range(one.sizes[dim]))
                xr.testing.assert_identical(one.sel({dim: 2}), one.isel({dim: 2}))
                xr.testing.assert_identical(one.sel({dim: [2, 0]}), one.isel({dim: [2, 0]}))
                xr.testing.assert_identical(one.sel({dim: slice(1, 2)}), one.isel({dim: slice(1, 3)}))
            time = source.step_time.min([name for name in source.step_time.dims if name != dim])
            assert time.sel({dim: time.idxmin(dim)}) == time.min()
            whole = source.indexes[dim][2]
            assert source.sel({dim: whole})[dim] == 2
            for wrong in (source.sizes[dim], 0.5):
                with pytest.raises(KeyError):
                    source.sel({dim: wrong})


def test_designs_are_grouped_by_several_parts_of_their_mapping(results):
    """By pandas, and by xarray once they are no levels of one index, which results.dse.groupby sees to."""
    for source in both(results):
        dims = {"mapping", "design"} & set(source.dims)
        time = source.step_time.where(source.feasible) if dims else None
        for dim in dims:
            by_pandas = time.to_series().groupby(["tp", "micro_batch"]).min()
            table = time.reset_index(dim).groupby(["tp", "micro_batch"]).min()
            table = table.min([name for name in table.dims if name not in ("tp", "micro_batch")])
            for (tp, micro_batch), least in by_pandas.items():
                np.testing.assert_equal(float(table.sel(tp=tp, micro_batch=micro_batch)), least)
            mappings = time.to_series().dropna().groupby("tp").idxmin()
            assert len(mappings) and all(tp in mapping for tp, mapping in mappings.items())


def test_a_choice_has_one_code(results):
    """In the file as plain xarray reads it, in ``dse.design`` and in a specification."""
    dataset, path = results
    with xr.open_dataset(path) as plain:
        plain.load()
    for name, enum in (("recompute", Recompute), ("precision", Precision)):
        names = dataset[name].values.ravel()
        codes = plain[name].values.ravel()
        if codes.dtype.kind not in "iu":
            assert name in plain.dims  # along a dimension of its own: a text
            continue
        for label, code in zip(names, codes, strict=True):
            assert (code == -1) if label == "" else choice_name(enum(code)) == label
        made = dse.design("gpt-3-13b", "selene", **{name: plain[name].isel(dict.fromkeys(plain[name].dims, 0))})
        assert getattr(made.mapping, name) == codes[0]
        assert sweep(f"tp = [1]\n{name} = [{codes[0]}]").axes[1].labels == (names[0],)


def test_written_again_by_xarray_it_is_the_same(results, tmp_path):
    """``open_results(f).to_netcdf(g)``; reopened by us and by plain xarray. The overview is a dataset of its own."""
    dataset, path = results
    with open_results(path) as first:
        first.to_netcdf(tmp_path / "again.nc")
    with open_results(tmp_path / "again.nc") as again, xr.open_dataset(tmp_path / "again.nc") as plain:
        xr.testing.assert_equal(again.load(), dataset)
        assert set(plain.data_vars) == set(dataset.data_vars)
        np.testing.assert_array_equal(plain.step_time, dataset.step_time)
        np.testing.assert_array_equal(plain.recompute, dataset.recompute)
        assert plain.attrs["specification_hash"] == dataset.attrs["specification_hash"]
    dse.overview(path).to_netcdf(tmp_path / "again.nc", mode="a", group="overview")
    xr.testing.assert_identical(dse.overview(tmp_path / "again.nc"), dse.overview(path))


def test_a_table_of_results_has_a_row_a_design(results):
    for source in both(results):
        table = source.to_dataframe()
        assert len(table) == source.step_time.size
        assert {"step_time", "mfu", "n_layers"} <= set(table.columns)


def test_the_overview_stands_apart(results):
    dataset, path = results
    ours = dse.overview(dataset)
    for source in (path, str(path), *both(results)):
        xr.testing.assert_identical(dse.overview(source), ours)
    with xr.open_dataset(path, group="overview") as plain:
        xr.testing.assert_equal(plain, ours)
    assert not [name for name in dataset.variables if str(name).startswith(("best_", "by_"))]
    with pytest.raises(InputError, match="before selecting"):
        dse.overview(dataset.where(dataset.feasible))


def test_plain_xarray_and_netcdf_read_it(results):
    dataset, path = results
    plain = xr.open_dataset(path)
    assert plain.feasible.dtype == bool
    assert set(dataset.data_vars) == set(plain.data_vars)
    with netCDF4.Dataset(path) as file:
        assert file.Conventions == "CF-1.11" and file.data_model == "NETCDF4"
        recompute, feasible = file["recompute"], file["feasible"]
        assert dict(zip(recompute.flag_meanings.split(), recompute.flag_values, strict=True)) == {
            choice_name(choice): choice for choice in Recompute
        }
        assert (feasible.flag_meanings, list(feasible.flag_values)) == ("false true", [0, 1])
        if feasible.size > 1:
            filters = file["step_time"].filters()
            assert filters[usable("auto")] and filters["complevel"] == 1


def test_global_attributes_tell_where_it_comes_from(results):
    dataset, _ = results
    assert re.fullmatch(r"[0-9a-f]{64}", dataset.attrs["specification_hash"])
    assert re.fullmatch(r"[0-9a-f]{64}", dataset.attrs["catalog_digest"])
    assert "[workload]\nname" not in dataset.attrs["title"] and "[workload]" in dataset.attrs["specification"]
    assert dataset.attrs["code_version"] == dse.__version__
    assert not {"created", "seconds"} & set(dataset.attrs), "the same results are the same bytes"
    for name in ("jax_version", "device", "dtype", "designs", "feasible_designs", "source", "sources"):
        assert dataset.attrs[name] or name == "feasible_designs", name


def whole(tmp_path, axes=AXES, **options):
    execute(sweep(axes, **options), output=tmp_path / "r.nc", study=toy.STUDY)
    return open_results(tmp_path / "r.nc")


def test_selection_by_label_after_reopening(tmp_path):
    dataset = whole(tmp_path)
    assert dataset.step_time.dims == ("workload", "memory_bandwidth", "collective", "mapping")
    one = dataset.sel(workload="gpt-3-350m", memory_bandwidth=2e12, collective="tree", tp=2, recompute="full")
    assert one.step_time.size > 1 and (one.overlap_dp.dtype == bool)
    assert set(np.unique(dataset.precision.values)) == {"bf16", "fp8-block"}
    assert dataset.sel(sequence_parallel=True).tp.min() == 2
    fastest = dataset.where(dataset.feasible).step_time.min("mapping")
    assert fastest.shape == (2, 2, 2) and fastest.notnull().all()
    assert (fastest.sel(memory_bandwidth=2e12) <= fastest.sel(memory_bandwidth=1e12)).all()


def test_reasons_are_cf_flags(tmp_path):
    reason = whole(tmp_path, more="[constraints]\nall = ['step_time < 20']").infeasible_reason
    meanings = dict(zip(reason.flag_meanings.split(), reason.flag_masks, strict=True))
    assert meanings == {bit.name: int(bit) for bit in Infeasible} | {"constraint": 2 * int(max(Infeasible))}
    assert (reason.values & meanings["constraint"]).any()


def test_zipped_axes_share_a_dimension(tmp_path):
    dataset = whole(
        tmp_path,
        'workload = ["gpt-3-125m", "gpt-3-350m"]\nn_devices = [8, 16]\ntp = "divisors"',
        more='[zip]\ngroups = [["workload", "n_devices"]]',
    )
    assert dataset.step_time.dims == ("workload", "mapping")
    assert dataset.n_devices.sel(workload="gpt-3-350m") == 16
    assert {(t, d) for t, d in zip(dataset.tp.values, dataset.dp.values, strict=True)} == {
        (t, n // t) for n in (8, 16) for t in (1, 2, 4, 8)
    }


def test_systems_bring_their_software(tmp_path):
    dataset = whole(tmp_path, 'system = ["selene", "eos"]\ntp = [1, 2]')
    assert dataset.software.dims == ("system",)
    dataset = whole(tmp_path, 'system = ["selene", "eos"]\nsoftware = ["megatron-2022", "fsdp"]\ntp = [1, 2]')
    assert dataset.step_time.dims == ("system", "software", "mapping")


def test_one_design_only(tmp_path):
    dataset = whole(tmp_path, "tp = [2]")
    assert dict(dataset.step_time.sizes) == {"mapping": 1} and dataset.sel(tp=2, dp=8).step_time.size == 1
    execute(sweep("tp = [2]"), output=tmp_path / "r.nc", keep="best", study=toy.STUDY)
    assert open_results(tmp_path / "r.nc").tp.item() == 2


def test_fixed_values_are_scalar_coordinates(tmp_path):
    dataset = whole(tmp_path, "tp = [1, 2]", mapping='recompute = "full"\nvirtual_stages = 1')
    assert (dataset.recompute.item(), dataset.virtual_stages.item(), dataset.n_layers.item()) == ("full", 1, 8)
    assert dataset.system.item() == "selene"


def test_a_hundred_thousand_designs_are_written_in_a_second(tmp_path):
    axes = MAPPING_AXES + "matrix_slowdown = { from = 1, to = 2, count = 34 }"
    _, summary = execute(sweep(axes), output=tmp_path / "r.nc", study=toy.STUDY)
    assert summary.n_designs > 90_000
    assert summary.seconds["write"] < 3.0  # 0.1 s on a quiet machine


def test_files_that_are_none(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        open_results(tmp_path / "r.nc")
    (tmp_path / "r.nc").write_text("no netCDF")
    with pytest.raises(InputError, match="netCDF4"):
        open_results(tmp_path / "r.nc")
    with pytest.raises(InputError, match=re.escape("did you mean")):
        open_results(tmp_path / "rr.nc")


@pytest.mark.parametrize("compression", ["auto", "zstd", "zlib", "none"])
def test_compressions(tmp_path, compression):
    if compression == "zstd" and usable("auto") != "zstd":
        pytest.skip("this netCDF library has no zstd")
    dataset = whole(tmp_path, more=f'[output]\ncompression = "{compression}"')
    with netCDF4.Dataset(tmp_path / "r.nc") as file:
        filters = file["step_time"].filters() or {"zlib": False}
        wanted = usable(compression)
        assert [name for name in ("zlib", "zstd") if filters.get(name)] == [
            name for name in ("zlib", "zstd") if name == wanted
        ]
    expected, _ = execute(sweep(AXES), output=False, study=toy.STUDY)
    xr.testing.assert_equal(dataset, expected)


def test_without_zstd_zlib_is_taken(tmp_path, monkeypatch):
    monkeypatch.setattr("dse.sweep.results.writing._zstd_works", lambda: False)
    whole(tmp_path)
    with netCDF4.Dataset(tmp_path / "r.nc") as file:
        assert file["step_time"].filters()["zlib"]
    with pytest.raises(InputError, match=r"output\.compression"):
        execute(sweep(more='[output]\ncompression = "zstd"'), output=tmp_path / "s.nc", study=toy.STUDY)
    with pytest.raises(InputError, match="auto, zstd, zlib, none"):
        sweep(more='[output]\ncompression = "gzip"')


def test_write_rate():
    results, _ = perform(sweep(), output=False, study=toy.STUDY)
    rates = write_rate(results, size=4e6, repeats=1)
    assert {"zlib", "none"} <= set(rates) and min(rates.values()) > 5e6


@pytest.mark.parametrize("name", ["recompute_share", "offload_activations"])
def test_shares_keep_their_fractions(tmp_path, name):
    axes = f'recompute = ["none", "full"]\n{name} = [0.25, 0.5, 1.0]\ntp = [1, 2]'
    dataset, _ = execute(sweep(axes), output=tmp_path / "r.nc", study=toy.STUDY)
    for found in (dataset, open_results(tmp_path / "r.nc")):
        full = found[name].values[found["recompute"].values == "full"]
        assert set(full.tolist()) == {0.25, 0.5, 1.0}


def test_a_share_without_full_recompute_is_one_mapping(tmp_path):
    axes = 'recompute = ["none", "selective", "full"]\nrecompute_share = [0.5, 1.0]\ntp = [1]'
    dataset, _ = execute(sweep(axes), output=tmp_path / "r.nc", study=toy.STUDY)
    pairs = sorted(zip(dataset["recompute"].values.tolist(), dataset["recompute_share"].values.tolist(), strict=True))
    kinds = sorted(set(pairs))
    assert kinds == [("full", 0.5), ("full", 1.0), ("none", 1.0), ("selective", 1.0)]
    assert len(pairs) == len(kinds) * len(dataset["mapping"]) // len(kinds)
