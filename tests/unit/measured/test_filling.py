"""Values that a command states for all rows of a table: they fill empty cells, and stated ones count more."""

import csv

import pytest
from hypothesis import given, settings, strategies as st

from dse import predict, validate
from dse.errors import InputError, Notice
from dse.measured import cells_of, profiles, read_cases
from dse.measured.comparison import predict_lines
from dse.measured.filling import COLUMNS, fill_rows, is_same_value
from dse.measured.table import Row

STATED = {"model": "gpt-3-175b", "gpu": "a100", "n_gpus": "64", "global_batch": "64", "seq_len": "2048"}


def table(path, *rows):
    """A table of steps with these rows, whose columns are those of all."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows(rows)
    return path


def row(**cells):
    return Row("x.csv", 2, "x", cells)


def without(*names):
    return {name: text for name, text in STATED.items() if name not in names}


def predicted(path, cells=None):
    lines = predict_lines(path, cells=cells)[1]
    assert not any(line["skipped"] for line in lines)
    return [line["pred_step_time"] for line in lines]


def test_options_make_the_rows_that_the_table_could_state(tmp_path):
    """Columns that the table lacks, and empty cells of those that it has."""
    whole = table(tmp_path / "whole.csv", STATED | {"tp": "8", "pp": "4"}, STATED | {"tp": "8", "pp": "8"})
    lacking = table(
        tmp_path / "lacking.csv",
        without("model", "n_gpus") | {"tp": "", "pp": "4"},
        without("model", "n_gpus") | {"pp": "8"},
    )
    options = {"workload": "GPT-3 175B", "n_devices": 64, "settings": {"tp": 8}}
    assert predicted(lacking, cells_of("GPT-3 175B", n_devices=64, settings={"tp": "8"})) == predicted(whole)
    assert predict(lacking, tmp_path / "b.csv", **options)["all"]["predicted"] == 2
    with (tmp_path / "b.csv").open(newline="") as file:  # what filled the cells is written
        assert {(line["model"], line["n_gpus"], line["tp"]) for line in csv.DictReader(file)} == {
            ("gpt-3-175b", "64", "8")
        }
    counts = predict(lacking)["all"]
    assert counts["predicted"] == 0 and counts["n"] == 2


def test_validation_takes_them_too(tmp_path):
    measured = {"iteration_s_measured": "10"}
    whole = table(tmp_path / "x.csv", STATED | measured | {"tp": "8", "pp": "8"})
    (tmp_path / "open").mkdir()
    lacking = table(tmp_path / "open" / "x.csv", without("model", "gpu") | measured | {"pp": "8"})
    assert validate(lacking, workload="gpt-3-175b", system="a100", tp=8)["rows"] == validate(whole)["rows"]


def test_a_stated_cell_counts_and_a_notice_says_so(tmp_path):
    path = table(tmp_path / "x.csv", STATED | {"tp": "4"}, STATED | {"tp": "8"}, STATED)
    with pytest.warns(Notice, match=r"x.csv: tp: 1 row of 3 say 4, which counts; others 8"):
        cases = read_cases(path, measured=False, cells={"tp": "8"})
    assert [case.row.cells["tp"] for case in cases] == ["4", "8", "8"]


def test_a_value_that_all_rows_contradict_is_an_error(tmp_path):
    path = table(tmp_path / "x.csv", STATED | {"tp": "4"}, STATED | {"tp": "2"})
    with pytest.raises(InputError, match="tp: got 8, where every row says 4, 2") as error:
        read_cases(path, measured=False, cells={"tp": "8"})
    assert "leave tp out of the options" in str(error.value)
    for name in ("n_devices", "n_gpus"):  # by any name of the column
        with pytest.raises(InputError, match="every row says 64"):
            read_cases(path, measured=False, cells={name: "32"})


@pytest.mark.parametrize(
    ("column", "text"), [("tp", "8.0"), ("sequence_parallel", "yes"), ("model", "GPT-3 175B"), ("system", "a100")]
)
def test_equal_values_are_no_contradiction(column, text):
    stated = {"tp": "8", "sequence_parallel": "1", "model": "gpt-3-175b", "system": "a100-sxm-80gb"}
    assert is_same_value(column, stated[column], text)
    rows = fill_rows([row(**stated)], {column: text}, "steps")
    assert rows == [row(**stated)]


def test_a_system_fills_rows_of_its_own_accelerator_alone():
    """A row's device is a statement on its system: another accelerator contradicts it."""
    rows = [row(gpu="H100"), row(gpu="A100"), row()]
    with pytest.warns(Notice, match="system: 1 row of 3 say A100, which counts; others eos"):
        filled = fill_rows(rows, {"system": "eos"}, "steps")
    assert [one.cells.get("system", "") for one in filled] == ["eos", "", "eos"]
    with pytest.raises(InputError, match="every row says A100"):
        fill_rows(rows[1:2], {"system": "eos"}, "steps")


def test_what_no_command_may_state_is_refused():
    for name in ("metric", "config_id", "iteration_s_measured", "tensor"):
        with pytest.raises(InputError, match=name):
            fill_rows([row(model="gpt-3-175b")], {name: "1"}, "steps")
    with pytest.raises(InputError, match="a table of kernels"):
        fill_rows([row(op="gemm")], {"tp": "8"}, "kernels")
    assert fill_rows([row(op="gemm")], {"tp": ""}, "kernels") == [row(op="gemm")]
    with pytest.raises(InputError, match="unknown-model"):
        cells_of("unknown-model")
    assert COLUMNS < profiles.COLUMNS


@settings(deadline=None)
@given(st.lists(st.sampled_from(["", "1", "2", " "]), min_size=1, max_size=6), st.sampled_from(["1", "2"]))
@pytest.mark.filterwarnings("ignore::dse.errors.Notice")
def test_laws_of_a_fill(texts, text):
    """Filled is what was empty and nothing else, and a second fill changes nothing."""
    rows = [row(tp=cell) for cell in texts]
    if all(cell.strip() not in ("", text) for cell in texts):
        with pytest.raises(InputError):
            fill_rows(rows, {"tp": text}, "steps")
        return
    filled = fill_rows(rows, {"tp": text}, "steps")
    assert [one.cells["tp"] for one in filled] == [cell if cell.strip() else text for cell in texts]
    assert fill_rows(filled, {"tp": text}, "steps") == filled
    assert [one.cells["tp"] for one in rows] == texts  # the rows of the caller stay
