"""Rows of kernels become arrays, fits find what made them, and a catalogue's tables are replaced."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest

from calibration.kernel_parameters import JOBS, SHARED, leaf
from calibration.kernel_tables import document as kernel_document, revisions, tables, units
from calibration.kernels import calibrate, read_kernels, shape
from docs.make.kernels.page import page
from dse import types
from dse.designs import catalog, replace
from dse.errors import InputError
from dse.lab.fits.fit import folds
from dse.lab.fits.writing import document, number, write, write_catalog
from dse.measured.kernels import Kernel, device_of, predict, times_or_powers

SHAPES = [(m, n, k) for m in (8.0, 100.0, 1000.0, 9000.0) for n in (512.0, 3000.0, 9000.0) for k in (512.0, 8192.0)]
JOB = next(job for job in JOBS if job.table == "fine")
OWN = "h200:kernels."


@pytest.fixture(scope="module")
def found():
    """A fit to rows that the model made with another efficiency and floor."""
    kernels = [Kernel("gemm", "h200-sxm-141gb", (*shape, 2.0, 0.0, 1.0)) for shape in SHAPES]
    own = device_of("gemm", "h200-sxm-141gb")
    changed = replace(own, {"kernels.fine.gemm_efficiency": 0.6, "kernels.fine.gemm_floor": 5e-6})
    seconds = times_or_powers("gemm", np.array([k.values for k in kernels], np.float32), changed)
    made = [Kernel(k.kind, k.device, k.values, float(t)) for k, t in zip(kernels, seconds, strict=True)]
    return calibrate(made, k=2, jobs=[JOB])[0]


@pytest.mark.slow
def test_parameters_that_made_the_rows_come_back(found):
    assert found.fit.values[OWN + "fine.gemm_efficiency"] == pytest.approx(0.6, rel=0.03)
    assert found.fit.values[OWN + "fine.gemm_floor"] == pytest.approx(5e-6, rel=0.1)
    assert found.fit.median_error < 0.03
    assert len(found.held_out) == len(SHAPES)


@pytest.mark.slow
def test_what_the_rows_do_not_tell_stays_at_its_prior(found):
    assert not found.fit.is_informed["kernels.fine.narrow_efficiency"]
    assert found.fit.values[OWN + "fine.block_floor"] == pytest.approx(90e-6, rel=0.02)


@pytest.mark.slow
def test_tables_tell_source_rows_residual_and_spread(found):
    own, *_, shared = tables(found)
    assert (own.slug, shared.slug) == ("h200", SHARED)
    read = tomllib.loads(document({"fine": own.entries}))["fine"]
    assert "24 gemm rows" in read["source"]
    assert "held-out" in read["source"]
    assert 0.0 < read["gemm_efficiency"]["spread"] < 0.1
    assert read["block_floor"]["source"].startswith("prior")
    assert "spread =" in shared.entries["gemm_blend"]


@pytest.mark.slow
def test_a_family_has_the_mean_of_its_members_and_their_scatter():
    kernels = []
    for device, efficiency in (("h100-sxm-80gb", 0.5), ("h200-sxm-141gb", 0.72)):
        chip = replace(device_of("gemm", device), {"kernels.fine.gemm_efficiency": efficiency})
        rows = np.array([(*one, 2.0, 0.0, 1.0) for one in SHAPES if one[0] > 100.0], np.float32)
        seconds = times_or_powers("gemm", rows, chip)
        kernels += [Kernel("gemm", device, tuple(r), float(t)) for r, t in zip(rows.tolist(), seconds, strict=True)]
    written_tables = {one.slug: one.values for one in tables(calibrate(kernels, jobs=[JOB])[0])}
    mean = written_tables["hopper"]["gemm_efficiency"]
    assert mean.value == pytest.approx(0.6, rel=0.05)
    assert mean.spread > 0.1
    assert set(written_tables["h100"]) == JOB.own
    assert {leaf(p.path) for p in JOB.parameters} == set(written_tables[SHARED])


def test_what_is_shared_or_own_is_few():
    """About ten own numbers a chip, no more than seven a network, and no share above 1."""
    by_table = {job.table: job for job in JOBS}
    chips = [by_table["fine"], by_table["attention"]]
    for slug in chips[0].homes:
        assert sum(key != path for job in chips for path, key in job.keys(slug).items()) <= 12
    links = by_table["alone"]
    assert all(sum(key != path for path, key in links.keys(slug).items()) <= 7 for slug in links.homes)
    bounded = ("efficiency", "memory")
    shares = [p for job in JOBS[:2] for p in job.parameters if p.path.endswith(bounded)]
    assert len(shares) >= 6
    assert all(p.upper == 1.0 for p in shares)


def test_rows_of_one_shape_share_a_fold():
    gemm = [Kernel("gemm", d, (64.0, 512.0, 4096.0, p, s, 1.0)) for d in "ab" for p in (2.0, 4.0) for s in (0.0, 1.0)]
    links = [Kernel("collective", "a", (op, 1e6, 8.0, 8.0, 0.0)) for op in (0.0, 1.0)]
    for alike in (gemm, [*links, Kernel("direct", "a", (1e6, 8.0, 0.0, 0.0))]):
        assert len(set(folds([shape(one) for one in alike], 97))) == 1
    assert shape(gemm[0]) != shape(Kernel("gemm", "a", (64.0, 512.0, 4097.0, 2.0, 0.0, 1.0)))


@pytest.mark.slow
def test_the_page_tells_errors_by_class_and_counts_parameters(found):
    text = page([found], "the command")
    assert '"GEMM, 16 bits",h200-sxm-141gb,24,' in text
    assert f"fine,h200,{len(JOB.own)}," in text
    assert f"fine,shared by all,{len(JOB.parameters) - len(JOB.own)}," in text


@pytest.mark.slow
def test_the_catalogue_takes_a_fit_and_keeps_the_rest(found, tmp_path: Path):
    folder = tmp_path / "hw_catalog"
    shutil.copytree(catalog.catalog_root(), folder)
    before = (folder / "kernels" / "h200.toml").read_text()
    changed = [folder / "kernels" / f"{slug}.toml" for slug in ("h200", "hopper", SHARED)]
    assert write_catalog(revisions([found], folder), folder) == changed
    assert write_catalog(revisions([found], folder), folder)  # once more changes nothing
    after = tomllib.loads((folder / "kernels" / "h200.toml").read_text())
    assert after["attention"] == tomllib.loads(before)["attention"]
    chip = catalog.record(types.Accelerator, "h200-sxm-141gb", folder=folder)
    assert chip.kernels.fine.gemm_efficiency == pytest.approx(found.fit.values[OWN + "fine.gemm_efficiency"], rel=0.01)
    stated = catalog.entry("accelerator", "h200-sxm-141gb", folder=folder).values["kernels.fine.gemm_efficiency"]
    assert stated.spread == pytest.approx(found.fit.spread[OWN + "fine.gemm_efficiency"], rel=0.1)
    assert catalog.check(folder) == []


@pytest.mark.slow
def test_an_output_that_cannot_be_written_is_named(found, tmp_path: Path):
    (tmp_path / "missing").write_text("a file where a folder is wanted")
    with pytest.raises(InputError, match="missing"):
        write(tmp_path / "missing" / "file.toml", kernel_document([found]))


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
        ("feed", 243.4e9, '"243 GB/s"'), ("efficiency", 0.8349, "0.835"), ("uncore_share", 0.1234, "0.123"),
        ("matrix_energy", 0.5e-12, '"0.5 pJ/FLOP"'), ("memory_energy", 50e-12, '"50 pJ/B"'), ("crowding", 0.0, "0"),
    ],
)  # fmt: skip
def test_values_are_written_in_their_units(leaf, value, text):
    assert number(value, units(leaf)) == text


def test_every_fitted_chip_predicts_and_family_members_do_too():
    """Chips without rows take their family's kernels by their own ratios."""
    names = ["h100-sxm-80gb", "b200-sxm-180gb", "gb200-nvl72", "b300-sxm-288gb", "l40s", "a40", "v100-sxm-32gb"]
    names += ["h20-96gb", "mi300x", "gh200-144gb"]
    shape = (4096.0, 4096.0, 4096.0)
    code = {"v100-sxm-32gb": 3.0}
    found = predict([Kernel("gemm", name, (*shape, code.get(name, 2.0), 0.0, 1.0)) for name in names])
    assert all(isinstance(seconds, float) and 1e-5 < seconds < 1e-2 for seconds in found)


def test_power_at_rest_is_fitted_as_a_share_of_the_limit():
    job = next(job for job in JOBS if job.table == "power")
    chip = device_of("gemm_power", "b200-sxm-180gb")
    assert job.stated({"power.uncore": 0.2, "power.matrix_energy": 1e-12}, chip) == {
        "power.uncore": 200.0,
        "power.matrix_energy": 1e-12,
    }
    assert [job.written(f"power.{name}") for name in ("uncore", "matrix_energy")] == ["uncore_share", "matrix_energy"]


def test_time_and_power_of_a_shape_share_a_fold():
    kernel = Kernel("gemm", "h200-sxm-141gb", (64.0, 512.0, 4096.0, 2.0, 1.0, 1.0), 1e-5)
    assert shape(kernel) == shape(kernel.with_power(300.0))
    assert (kernel.with_power(300.0).metric, kernel.with_power(300.0).base) == ("kernel_power", "gemm")
