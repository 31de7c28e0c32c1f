"""Rows of kernels become arrays, fits find what made them, and a catalogue's tables are replaced."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest

from dse import catalog
from dse.calibrate.kernels import JOBS, calibrate, read_kernels, with_leaves
from dse.calibrate.writing import table, write, write_catalog, written
from dse.cases.kernels import Kernel, device_of, predict
from dse.errors import InputError

SHAPES = [(m, n, k) for m in (8.0, 100.0, 1000.0, 9000.0) for n in (512.0, 3000.0, 9000.0) for k in (512.0, 8192.0)]
JOB = next(job for job in JOBS if job.slug == "h200" and job.table == "fine")


@pytest.fixture(scope="module")
def found():
    """A fit to rows that the model made with another efficiency and floor."""
    kernels = [Kernel("gemm", "h200-sxm-141gb", (*shape, 2.0, 0.0, 1.0)) for shape in SHAPES]
    own = device_of("gemm", "h200-sxm-141gb")
    changed = with_leaves(own, {"kernels.matrix_efficiency": 0.6, "kernels.kernel_floor": 5e-6})
    from dse.cases.kernels import times

    seconds = times("gemm", np.array([k.values for k in kernels], np.float32), changed)
    made = [Kernel(k.kind, k.device, k.values, float(t)) for k, t in zip(kernels, seconds, strict=True)]
    return calibrate(made, k=2, jobs=[JOB])[0]


def test_parameters_that_made_the_rows_come_back(found):
    assert found.fit.values["kernels.matrix_efficiency"] == pytest.approx(0.6, rel=0.03)
    assert found.fit.values["kernels.kernel_floor"] == pytest.approx(5e-6, rel=0.1)
    assert found.fit.median_error < 0.03
    assert len(found.held_out) == len(SHAPES)


def test_what_the_rows_do_not_tell_stays_at_its_prior(found):
    assert "kernels.fine.fp4_efficiency" in found.at_prior
    assert found.fit.values["kernels.fine.block_floor"] == pytest.approx(90e-6, rel=0.02)


def test_a_table_tells_source_rows_residual_and_spread(found):
    text = table(found, "fine")
    read = tomllib.loads(text)["fine"]
    assert "24 gemm rows" in read["source"]
    assert "held-out" in read["source"]
    assert read["fp4_efficiency"]["source"].startswith("prior")
    assert "# +-" in text


def test_the_catalogue_takes_a_fit_and_keeps_the_rest(found, tmp_path: Path):
    folder = tmp_path / "hw_catalog"
    shutil.copytree(catalog.catalog_root(), folder)
    before = (folder / "kernels" / "h200.toml").read_text()
    assert write_catalog([found], folder) == [folder / "kernels" / "h200.toml"]
    assert write_catalog([found], folder)  # once more changes nothing
    after = tomllib.loads((folder / "kernels" / "h200.toml").read_text())
    assert after["attention"] == tomllib.loads(before)["attention"]
    chip = catalog.accelerator("h200-sxm-141gb", folder=folder, fine=True)
    assert chip.kernels.matrix_efficiency == pytest.approx(found.fit.values["kernels.matrix_efficiency"], rel=0.01)
    assert catalog.accelerator("h200-sxm-141gb", folder=folder).kernels.fine is None
    assert catalog.check(folder) == []


def test_an_output_that_cannot_be_written_is_named(found, tmp_path: Path):
    with pytest.raises(InputError, match="missing"):
        write([found], tmp_path / "missing" / "file.toml")


def test_a_table_of_something_else_is_refused(tmp_path: Path):
    path = tmp_path / "steps.csv"
    path.write_text("model,iteration_ms_measured\ngpt-3-175b,100\n")
    with pytest.raises(InputError, match="measured kernels"):
        read_kernels([path])


def test_rows_of_no_known_chip_are_refused():
    with pytest.raises(InputError, match="none that a parameter depends on"):
        calibrate([Kernel("gemm", "l40s", (1.0, 1.0, 1.0, 2.0, 0.0, 1.0), 1e-5)])


@pytest.mark.parametrize(
    ("leaf", "value", "text"),
    [
        ("kernel_floor", 2.345e-6, '"2.35 us"'), ("quantize_row", 1.5e-9, '"1.5 ns"'), ("ramp", 2.5e6, '"2.5 MB"'),
        ("split_depth", 123.4, "123"), ("efficiency", 0.8349, "0.835"), ("crowding", 0.0, "0"),
    ],
)  # fmt: skip
def test_values_are_written_in_their_units(leaf, value, text):
    assert written(leaf, value) == text


def test_every_fitted_chip_predicts_and_family_members_do_too():
    """Chips without rows take their family's kernels by their own ratios."""
    names = ["h100-sxm-80gb", "b200-sxm-180gb", "gb200-nvl72", "b300-sxm-288gb", "l40s", "a40", "v100-sxm-32gb"]
    names += ["h20-96gb", "mi300x", "gh200-144gb"]
    shape = (4096.0, 4096.0, 4096.0)
    code = {"v100-sxm-32gb": 3.0}
    found = predict([Kernel("gemm", name, (*shape, code.get(name, 2.0), 0.0, 1.0)) for name in names])
    assert all(isinstance(seconds, float) and 1e-5 < seconds < 1e-2 for seconds in found)
