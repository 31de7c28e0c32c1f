"""Stacks of one's own from a few runs: known numbers come back, one run is shrunk, a CPU predicts another batch."""

from __future__ import annotations

import csv
import tomllib

import numpy as np
import pytest

import dse
from dse.cli import app
from dse.designs import catalog, leaf, replace
from dse.errors import InputError
from dse.lab.fits import own, own_fit
from dse.lab.fits.adding import add
from dse.measured import profiles
from dse.measured.comparison import compare, write_lines
from tests.pages import ROOT, blocks

STEP = {
    "source": "own", "model": "llama-3-8b", "gpu": "h100-sxm-80gb", "system": "eos", "software": "nemo",
    "n_gpus": "8", "tp": "2", "pp": "1", "dp": "4", "cp": "1", "seq_len": "8192", "global_batch": "128",
    "micro_batch": "1", "recompute": "none", "precision": "bf16", "zero_stage": "1", "sequence_parallel": "1",
    "iteration_s_measured": "15",
}  # fmt: skip


def table(path, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([list(rows[0]), *(list(row.values()) for row in rows)])
    return path


def predicted(path, rows):
    return [found.predicted for found in compare([table(path, rows)])]


def runs(path, rows, times):
    """A table of rows that took ``times`` their predicted step."""
    steps = predicted(path, rows)
    seconds = [f"{t * s:.6g}" for t, s in zip(times, steps, strict=False)]
    return table(path, [row | {"iteration_s_measured": s} for row, s in zip(rows, seconds, strict=True)])


@pytest.fixture
def mine(tmp_path, monkeypatch):
    folder = tmp_path / "mine"
    folder.mkdir()
    monkeypatch.setenv("DSE_CATALOG", str(folder))
    return folder


def test_one_run_is_shrunk_and_several_are_the_level(tmp_path, mine):
    """31.5 s where 24 s were predicted: the next prediction goes there as far as the runs tell."""
    rows, times, unseen = [STEP | {"global_batch": str(64 << i)} for i in range(3)], [31.5 / 24.0] * 3, []
    before = predicted(tmp_path / "next.csv", [STEP | {"global_batch": "512"}])[0]
    for count in (1, 3):
        found = own.fit([runs(tmp_path / "rows.csv", rows[:count], times)], f"mine-{count}", mine)
        after = predicted(tmp_path / "next.csv", [STEP | {"global_batch": "512", "software": f"mine-{count}"}])[0]
        unseen.append(after / before)
        assert len(found.values) <= own_fit.MAX_VALUES and found.values[0].path == own.LEVEL
        written = tomllib.loads(found.path.read_text())
        assert written["level"]["value"] == pytest.approx(found.values[0].after, rel=1e-3)
        assert f"{count} run" in written["source"] and "from nemo" in written["source"]
        assert written["calibrated"]["accelerators"] == ["h100-sxm-80gb"]
    assert 1.08 < unseen[0] < 1.2 and unseen[1] == pytest.approx(31.5 / 24.0, rel=0.02)
    one, three = (tomllib.loads((mine / "software" / f"mine-{n}.toml").read_text()) for n in (1, 3))
    assert "cannot tell" in one["level"]["source"] and three["residual"]["value"] < one["residual"]["value"]
    assert not catalog.check()


#: A stack with other numbers than the neutral one.
TRUTH = {
    "software.matrix_slowdown": 1.05,
    "software.elementwise_slowdown": 1.6,
    "software.communication_slowdown": 1.6,
    "software.flash_slowdown": 0.9,
}


def test_known_numbers_are_recovered_within_their_spreads(tmp_path, mine):
    """Steps of a stack that is known, a per cent of noise, of different sizes, sequences and mappings."""
    sizes = [("llama-3-8b", 2048, 1, 2), ("llama-3-8b", 8192, 8, 1), ("llama-3-8b", 32768, 4, 1),
             ("gpt-3-13b", 2048, 8, 4), ("gpt-3-13b", 2048, 2, 1), ("llama-3-70b", 4096, 8, 1)]  # fmt: skip
    rows = [
        STEP
        | {
            "model": model,
            "seq_len": str(length),
            "tp": str(tp),
            "dp": str(64 // tp),
            "n_gpus": "64",
            "micro_batch": str(each),
            "software": "neutral",
            "recompute": "full",
            "global_batch": "256",
        }
        for model, length, tp, each in sizes
    ]
    noise = 1.0 + 0.01 * np.random.default_rng(0).standard_normal(len(rows))
    designs = [c.prediction.chosen for c in compare([table(tmp_path / "rows.csv", rows)])]
    steps = [float(dse.evaluate(replace(one, TRUTH)).step_time) for one in designs]
    times = [row | {"iteration_s_measured": f"{s * n:.6g}"} for row, s, n in zip(rows, steps, noise, strict=True)]
    found = own.fit([table(tmp_path / "rows.csv", times)], "mine", mine)
    assert found.error < 0.03 < found.before
    by_path = {one.path: one for one in found.values}
    for path, true in TRUTH.items():
        one = by_path[path]
        assert abs(np.log(one.after * by_path[own.LEVEL].after ** (path not in FLASH) / true)) < 2.0 * np.hypot(
            one.spread_after, by_path[own.LEVEL].spread_after
        ), one
        assert one.spread_after < one.spread_before
    assert leaf(dse.design("gpt-3-13b", "eos", "mine"), "software.matrix_slowdown") == pytest.approx(
        by_path["software.matrix_slowdown"].after * by_path[own.LEVEL].after, rel=0.01
    )


#: The level does not multiply it: attention takes that of products.
FLASH = ("software.flash_slowdown",)


def cpu_rows(path, batch, software=""):
    """The rows of the profiles of a batch, as ``dse calibrate --profile`` makes them."""
    files = sorted((ROOT / "tests" / "profiles" / "cpu").glob(f"batch-{batch}.*"))
    stated = {
        "model": "tiny-llama",
        "system": "my-box",
        "global_batch": str(batch),
        "seq_len": "128",
        "tp": "1",
        "micro_batch": str(batch // 2),
        "precision": "fp32",
        "software": software,
    }
    found = profiles.read(files, stated)
    assert not found.missing
    write_lines(path, found.tables["steps"], True)
    return path


@pytest.mark.parametrize("batches", [(8, 16), (8, 32), (16, 32)])
def test_a_cpu_cluster_predicts_another_batch(batches, tmp_path, mine):
    """Two processes of PyTorch over gloo, profiled at two batches: the third is within a tenth."""
    for block in blocks(ROOT / "docs" / "profiles.md", "toml"):
        (tmp_path / block.file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / block.file).write_text(block.text)
    (tmp_path / "my_catalog").rename(tmp_path / "rest")
    for path in (tmp_path / "rest").rglob("*.toml"):
        (mine / path.parent.name).mkdir(exist_ok=True)
        path.rename(mine / path.parent.name / path.name)
    found = own.fit([cpu_rows(tmp_path / f"{batch}.csv", batch) for batch in batches], "cpu-stack", mine)
    assert found.error < 0.2 * found.before
    (other,) = {8, 16, 32} - {*batches}
    (unseen,) = compare([cpu_rows(tmp_path / "other.csv", other, "cpu-stack")])
    assert unseen.predicted == pytest.approx(unseen.measured, rel=0.1)


def test_the_command_fits(tmp_path, mine, capsys):
    rows = runs(tmp_path / "rows.csv", [STEP, STEP | {"global_batch": "256"}], [1.2, 1.2])
    with pytest.raises(SystemExit) as ended:
        app(["calibrate", str(rows), "-o", str(mine)], prog_name="dse")
    printed = capsys.readouterr().out
    assert not ended.value.code and "2 runs, from nemo" in printed and "--software my-stack" in printed
    assert (mine / "software" / "my-stack.toml").is_file()


@pytest.mark.parametrize("factors", [(4.0, 0.3), (1.0, 1.0, 1.0, 0.3)])
def test_a_fit_that_explains_little_is_told(tmp_path, mine, capsys, factors):
    steps = [STEP | {"global_batch": str(128 << i)} for i in range(len(factors))]
    rows = runs(tmp_path / "rows.csv", steps, list(factors))
    with pytest.raises(SystemExit):
        app(["calibrate", str(rows), "-o", str(mine)], prog_name="dse")
    assert "does not explain these runs" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "rows", "told"), [
    ("nemo", [STEP], "no stack of the catalogue has"), ("My_Stack", [STEP], "lower-case"),
    ("mine", [STEP, STEP | {"software": "fsdp", "global_batch": "64"}], "rows of one stack"),
    ("mine", [STEP, STEP], "each row once"), ("mine", [STEP | {"iteration_s_measured": "15000"}], "check the value"),
])  # fmt: skip
def test_what_cannot_be_fitted_is_told(name, rows, told, tmp_path, mine):
    with pytest.raises(InputError, match=told):
        own.fit([table(tmp_path / "rows.csv", rows)], name, mine)
    assert not (mine / "software").exists()


def test_rows_of_a_stack_do_not_count_twice(tmp_path, mine):
    rows = runs(tmp_path / "rows.csv", [STEP], [1.2])
    own.fit([rows], "mine", mine)
    assert own.fit([rows], "mine", mine).base == "nemo"  # anew, from the stack that it was fitted from
    (row,) = csv.DictReader(rows.read_text().splitlines())
    with pytest.raises(InputError, match="was fitted to"):
        own.fit([table(tmp_path / "same.csv", [row | {"software": "mine"}])], "another", mine)


def test_a_row_added_to_a_stack_of_ones_own_moves_its_level(tmp_path, mine):
    own.fit([runs(tmp_path / "rows.csv", [STEP], [1.2])], "mine", mine)
    level = tomllib.loads((mine / "software" / "mine.toml").read_text())["level"]
    (before,) = predicted(tmp_path / "next.csv", [STEP | {"software": "mine", "global_batch": "512"}])
    more = runs(tmp_path / "more.csv", [STEP | {"software": "mine", "global_batch": "256"}], [1.1])
    found = add([more], mine, tmp_path / "out.toml")
    (moved,) = (one for one in found.updates if one.path == "software.level")
    assert moved.before == pytest.approx(level["value"], rel=1e-3) and 1.02 < moved.after / moved.before < 1.1
    after = tomllib.loads((mine / "software" / "mine.toml").read_text())
    assert after["level"]["value"] == pytest.approx(moved.after, rel=0.01)
    assert after["level"]["spread"] < level["spread"]
    assert predicted(tmp_path / "next.csv", [STEP | {"software": "mine", "global_batch": "512"}])[0] / before == (
        pytest.approx(moved.after / moved.before, rel=0.02)
    )


def test_rows_that_hardly_move_a_stack_are_told_of_one_of_ones_own(tmp_path, mine, capsys):
    rows = runs(tmp_path / "rows.csv", [STEP], [31.5 / 24.0])
    with pytest.raises(SystemExit):
        app(["calibrate", "--add", str(rows), "-o", str(tmp_path / "o.toml"), "--catalog", str(mine)], prog_name="dse")
    assert "fits a stack of your own" in capsys.readouterr().err


def test_values_that_rows_throw_far_are_named(tmp_path, mine, capsys):
    rows = list(csv.DictReader((ROOT / "tests/published/narayanan_2021.csv").read_text(encoding="utf-8").splitlines()))
    wrong = [row | {"value": str(0.25 * float(row["value"]))} if i % 3 == 0 else row for i, row in enumerate(rows)]
    with pytest.raises(SystemExit):
        app(
            [
                "calibrate",
                "--add",
                str(table(tmp_path / "rows.csv", wrong)),
                "-o",
                str(tmp_path / "o.toml"),
                "--catalog",
                str(mine),
            ],
            prog_name="dse",
        )
    assert "elementwise_slowdown" in (told := capsys.readouterr().err) and "times the spread before" in told
