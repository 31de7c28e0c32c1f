"""What the terminal warns of is in the dataset: one list for terminal, file, notebook, page and figures."""

from __future__ import annotations

import json

import pytest
import xarray as xr

import dse
from dse.cli import app
from dse.errors import InputError
from dse.lab.page import table
from dse.sweep import Shard, merge, open_results, perform_shard
from dse.sweep.results.schema import cautions
from tests.conftest import CHIP_SERVING_SWEEP

#: Words of three cautions: on a chip, on calibration, on the sweep.
WORDS = ("the power for memory moves 13.7 of the 16.4 TB/s", "outside the calibrated range", "in the nodes of")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("cautions")
    (made / "serve.toml").write_text(CHIP_SERVING_SWEEP)
    return made


@pytest.fixture(scope="module")
def results(folder) -> xr.Dataset:
    return dse.run(folder / "serve.toml", folder / "serve.nc")


def said(arguments: list, capsys) -> str:
    with pytest.raises(SystemExit):
        app([*map(str, arguments)])
    return capsys.readouterr().out


def test_the_terminal_says_what_the_dataset_has(results, folder, capsys):
    lines = results.attrs["cautions"].splitlines()
    assert len(lines) == 3 and all(any(word in one for one in lines) for word in WORDS)
    printed = said(["run", folder / "serve.toml", "-o", folder / "again.nc", "--no-figure"], capsys)
    assert all(one in printed for one in lines)
    again = ["run", folder / "serve.toml", "-o", folder / "again.nc", "--no-figure", "--json"]
    document = json.loads(said(again, capsys))
    assert document["cautions"] == lines


def test_files_keep_them(results, folder):
    read = open_results(folder / "serve.nc")
    assert read.attrs["cautions"] == results.attrs["cautions"]
    read.load().reset_index("mapping").to_netcdf(folder / "other.nc")
    with xr.open_dataset(folder / "other.nc") as plain:
        assert plain.attrs["cautions"] == results.attrs["cautions"]


def test_merged_shards_have_those_of_the_whole(results, folder):
    for number in (1, 2):
        perform_shard(folder / "serve.toml", Shard(number, 2), folder / "parts.nc")
    labelled, summary = merge(folder / "parts.nc")
    assert labelled.attrs["cautions"] == results.attrs["cautions"] == "\n".join(summary.cautions)


def test_a_dataset_shows_them(results, folder):
    for shown in (results, open_results(folder / "serve.nc"), results.sel(concurrency=1), results.isel(mapping=[0])):
        text, page = repr(shown), shown._repr_html_()
        assert text.startswith("<xarray.Dataset>") and text.index("Attributes") < text.index("Cautions:")
        for one in cautions(results.attrs):
            assert f"\n    {one}" in text, "in full"
            assert page.index("Cautions") < page.index(one) < page.index("xr-header"), "above everything else"
    assert "Cautions" not in repr(results.assign_attrs(cautions=""))
    assert "<b>Cautions</b>" not in results.assign_attrs(cautions="")._repr_html_()


def test_texts_of_strangers_are_no_markup_and_no_codes(results):
    hostile = results.assign_attrs(cautions="<script>alert(1)</script>\x1b[31mred\nsecond")
    assert "\x1b" not in repr(hostile) and "[31mred" in repr(hostile)
    assert "<script>alert" not in hostile._repr_html_() and "\x1b" not in hostile._repr_html_()


def test_control_codes_are_escaped_and_layout_stays(results):
    """One rule for lists, terminals and notebooks: nothing is lost, tabs and spaces of any width stay."""
    hostile = results.assign_attrs(cautions="a\tb\u00a0c\x1b[31m\u202e & <b>")
    assert cautions(hostile.attrs) == ["a\tb\u00a0c\\x1b[31m\\u202e & <b>"]
    assert "a\tb\u00a0c\\x1b[31m\\u202e & <b>" in repr(hostile)
    assert "a\tb\u00a0c\\x1b[31m\\u202e &amp; &lt;b&gt;" in hostile._repr_html_()
    named = results.assign_attrs(title="x\x1b]0;y\x07\tz")
    assert "x\\x1b]0;y\\x07" in repr(named)


def test_an_attribute_that_is_no_text_is_refused(results, folder):
    path = folder / "numbers.nc"
    results.reset_index("mapping").assign_attrs(cautions=3.0).to_netcdf(path)
    with pytest.raises(InputError, match="cautions"):
        open_results(path)


def test_datasets_stay_datasets_of_xarray(results):
    assert isinstance(results, xr.Dataset)
    halves = [results.sel(concurrency=[load]) for load in (1, 16)]
    whole = xr.concat(halves, "concurrency", data_vars="minimal", coords="minimal", compat="override", join="override")
    assert whole.sizes == results.sizes
    dims = results.time_per_output_token.dims
    first, second = (one.time_per_output_token.transpose(*dims) for one in (whole, results))
    assert (first.values == second.values).all()
    assert (results.time_per_output_token + 1.0).min() > 1.0 and results.to_dataframe().shape[0] == 8


def test_the_page_has_them_among_its_notes(results):
    made = table.build(results, 1_000)
    assert set(cautions(results.attrs)) <= set(made.notes)
    assert ("prompt tokens", "1024") in [(name, value.replace(",", "")) for name, value in made.facts]


def test_without_cautions_the_attribute_is_empty():
    """A model, a machine and a size that were measured."""
    quiet = """
[workload]
name = "gpt-3-175b"
[system]
name = "selene"
n_devices = 512
[axes]
tp = [8]
pp = [16]
micro_batch = [1]
recompute = ["selective"]
"""
    assert dse.run(dse.sweep.from_text(quiet), output=False).attrs["cautions"] == ""
