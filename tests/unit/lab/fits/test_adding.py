"""Rows added to the catalogue without a fit: values move towards them and narrow, never widen, and others stay."""

from __future__ import annotations

import csv
import tomllib

import numpy as np
import pytest

from dse.cli import app
from dse.designs import catalog
from dse.errors import InputError
from dse.lab.fits.adding import add
from dse.measured.comparison import compare

STEP = {
    "source": "own", "model": "llama-3-8b", "gpu": "b200-sxm-180gb", "system": "dgx-b200", "software": "nemo",
    "n_gpus": "8", "tp": "2", "pp": "1", "dp": "4", "cp": "1", "seq_len": "8192", "global_batch": "128",
    "micro_batch": "1", "recompute": "none", "precision": "bf16", "zero_stage": "1", "sequence_parallel": "1",
    "iteration_ms_measured": "9500",
}  # fmt: skip
GEMM = {"system": "mi300x", "dtype": "bfloat16", "m": "8192", "n": "8192", "k": "8192", "latency_ms": "2.1"}
SERVED = {
    "source": "own", "model": "llama-3-70b", "gpu": "mi300x", "system": "mi300x", "software": "vllm-rocm",
    "n_gpus": "4", "tp": "4", "pp": "1", "dp": "1", "precision": "bf16", "isl": "1024", "osl": "1024", "batch": "64",
    "batch_kind": "concurrency", "metric": "tpot", "value": "60", "unit": "ms",
}  # fmt: skip


def table(path, *rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([list(rows[0]), *(list(row.values()) for row in rows)])
    return path


def predicted(rows):
    (found,) = compare(rows)
    return found.predicted


@pytest.mark.parametrize("row", [STEP, GEMM, SERVED], ids=["step", "kernel", "engine"])
def test_rows_move_values_towards_them_and_narrow_their_spreads(row, tmp_path, monkeypatch):
    rows, mine = table(tmp_path / "rows.csv", row), tmp_path / "mine"
    mine.mkdir()
    found = add([rows], mine, tmp_path / "out.toml")
    assert found.updates and found.residual < found.before
    assert all(one.spread_after <= one.spread_before for one in found.updates)
    written = tomllib.loads((tmp_path / "out.toml").read_text())
    assert written["rows"] == 1 and written["residual"] == pytest.approx(found.residual, abs=1e-4)
    monkeypatch.setenv("DSE_CATALOG", str(mine))
    first = found.updates[0]
    if row is not GEMM:
        assert abs(np.log(predicted(rows) / compare([rows])[0].measured)) < found.before
    field = first.path.split(".", 2 if first.kind != "software" else 1)[-1]
    entry = catalog.entry(first.kind, first.slug).values[field]
    assert entry.value == pytest.approx(first.after, rel=0.01)
    assert entry.spread == pytest.approx(first.spread_after, rel=0.06)
    assert "dse calibrate --add: 1 row of" in entry.source


def test_a_row_as_predicted_moves_nothing(tmp_path):
    rows = table(tmp_path / "rows.csv", STEP)
    exact = 1e3 * predicted(rows)
    same = table(tmp_path / "same.csv", STEP | {"iteration_ms_measured": f"{exact:.9g}"})
    (tmp_path / "mine").mkdir()
    found = add([same], tmp_path / "mine", tmp_path / "out.toml")
    assert found.before < 1e-4
    assert all(one.after == pytest.approx(one.before, rel=1e-4) for one in found.updates)


def test_more_rows_narrow_more(tmp_path):
    spreads = []
    for count in (1, 3):
        shapes = [GEMM | {"m": str(4096 * (i + 1))} for i in range(count)]
        (tmp_path / f"{count}").mkdir()
        found = add([table(tmp_path / f"{count}.csv", *shapes)], tmp_path / f"{count}", tmp_path / f"{count}.toml")
        spreads.append({one.path: one.spread_after for one in found.updates})
    path = "system.accelerator.kernels.matrix_efficiency"
    assert spreads[1][path] < spreads[0][path]


def test_the_command_adds(tmp_path, capsys):
    rows = table(tmp_path / "rows.csv", STEP)
    asked = ["calibrate", "--add", str(rows), "-o", str(tmp_path / "out.toml")]
    with pytest.raises(SystemExit) as ended:
        app(asked, prog_name="dse")
    assert ended.value.code == 2 and "--catalog" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        app([*asked, "--catalog", str(tmp_path / "mine")], prog_name="dse")
    printed = capsys.readouterr().out
    assert ended.value.code in (0, None) and "1 figure" in printed and "DSE_CATALOG" in printed
    assert (tmp_path / "mine" / "accelerators" / "b200-sxm-180gb.toml").is_file()


def test_rows_that_change_nothing_are_told(tmp_path, capsys):
    """No catalogue is named that was not written."""
    latency = SERVED | {"metric": "latency_total", "unit": "s", "value": "24", "batch": "32"}
    value = predicted(table(tmp_path / "rows.csv", latency))
    rows, mine = table(tmp_path / "same.csv", latency | {"value": f"{value:.9g}"}), tmp_path / "mine"
    with pytest.raises(SystemExit) as ended:
        app(["calibrate", "--add", str(rows), "-o", str(tmp_path / "o.toml"), "--catalog", str(mine)], prog_name="dse")
    printed = capsys.readouterr().out
    assert not ended.value.code and not mine.exists()
    assert "nothing is written" in printed and "DSE_CATALOG" not in printed


def test_rows_that_cannot_be_predicted_are_refused(tmp_path):
    rows = table(tmp_path / "rows.csv", STEP | {"n_gpus": ""})
    with pytest.raises(InputError, match="no row that can be predicted"):
        add([rows], tmp_path, tmp_path / "out.toml")


def test_collectives_move_links(tmp_path):
    row = {
        "system": "mi300x",
        "dtype": "bfloat16",
        "collective": "all_reduce",
        "num_gpus": "8",
        "bytes": "167772160",
        "latency_ms": "2.0",
    }
    found = add([table(tmp_path / "rows.csv", row)], tmp_path / "mine", tmp_path / "out.toml")
    assert {one.kind for one in found.updates} == {"network"}


def test_rows_are_added_once_and_none_is_lost(tmp_path, monkeypatch):
    """The same rows again, and others to a catalogue that is not in use, would count twice or undo the first."""
    rows, mine, output = table(tmp_path / "rows.csv", SERVED), tmp_path / "mine", tmp_path / "out.toml"
    other = table(tmp_path / "other.csv", SERVED | {"batch": "16", "value": "40"})
    with pytest.raises(InputError, match=r"the row of .*line 2 again"):
        add([table(tmp_path / "twice.csv", SERVED, SERVED)], mine, output)
    add([rows], mine, output)
    with pytest.raises(InputError, match="DSE_CATALOG"):
        add([other], mine, output)
    monkeypatch.setenv("DSE_CATALOG", str(mine))
    before = (mine / "software" / "vllm-rocm.toml").read_text()
    with pytest.raises(InputError, match="added before"):
        add([rows], mine, output)
    assert (mine / "software" / "vllm-rocm.toml").read_text() == before
    add([other], mine, output)
    assert (mine / "software" / "vllm-rocm.toml").read_text() != before


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"value": "60", "unit": "s"}, "check the value and its unit"),
        ({"model": "lama-3-70b"}, "lama-3-70b"),
    ],
)
def test_a_wrong_unit_or_name_is_told(change, told, tmp_path):
    with pytest.raises(InputError, match=told):
        add([table(tmp_path / "rows.csv", SERVED | change)], tmp_path / "mine", tmp_path / "out.toml")
    assert not (tmp_path / "out.toml").exists()
