"""Voltage curve and energies from power limits: what made the figures is found again, and written as the catalogue."""

import dataclasses
import tomllib

import numpy as np
import pytest

from calibration.power import CHIPS, FittedChip, entries, revisions, rows_of
from docs.make.energy.page import page
from dse.designs import design, replace
from dse.errors import InputError
from dse.lab.fits.writing import document, write_catalog
from dse.measured.energy import RelativeStudy
from dse.measured.table import Case, Meaning, Measurement, Row

LIMIT = "system.accelerator.power.limit"
TRUTH = np.array([0.8, 0.0, 0.9, -0.5])  # in prior spreads


def figure(row, metric):
    return Measurement(row, metric, Meaning(metric, metric), 1.0)


@pytest.fixture(scope="module")
def rows():
    cases = []
    for batch in (8, 32):
        base = design(
            workload="bert-base",
            system="p100-pcie-16gb",
            software="pytorch-eager",
            seq_len=384,
            window=384,
            vocab=1,
            global_batch=batch,
            micro_batch=batch,
            precision="fp32",
            limit="250 W",
        )
        for watts in (75.0, 100.0, 125.0, 150.0, 175.0):
            row = Row("made.csv", 1, "made", {})
            study = RelativeStudy(
                "p100-pcie-16gb",
                ("P100", "BERT-base-squad", str(batch)),
                (replace(base, {LIMIT: watts}), base),
                has_clock_designs=False,
            )
            figures = (figure(row, "relative_time"), figure(row, "relative_power"))
            cases.append(Case((row,), figures, "energy", study))
    made = rows_of("p100-pcie-16gb", cases)
    logs = made.residuals(TRUTH)
    figures = [f._replace(measured=float(np.exp(x))) for f, x in zip(made.figures, logs, strict=True)]
    return dataclasses.replace(made, figures=figures)


@pytest.fixture(scope="module")
def found(rows):
    fit = rows.problem.solve().fit(rows.parameters)
    return FittedChip(rows, fit, fit.errors, np.zeros(0))


def test_made_figures_are_fitted(found):
    assert np.abs(found.fit.errors).max() < 0.02
    assert found.fit.is_informed["system.accelerator.power.threshold"]
    assert set(found.fit.values) == {p.path for p in CHIPS[found.slug].parameters}


def test_without_rows_the_priors_stay(rows):
    found = rows.problem.solve(0.0)
    assert np.abs(found.z).max() < 1e-6


def test_the_table_is_one_of_the_catalogue(found, tmp_path):
    table = tomllib.loads(document({"power": entries(found)}))["power"]
    threshold = found.fit.values["system.accelerator.power.threshold"]
    assert table["threshold"]["value"] == pytest.approx(threshold, rel=0.01)
    (tmp_path / "accelerators").mkdir()
    path = tmp_path / "accelerators" / "p100-pcie-16gb.toml"
    path.write_text('name = "P100"\n\n[power]\ncontrol = "1 W"\n')
    (tmp_path / "kernels").mkdir()
    family = tmp_path / "kernels" / "pascal.toml"
    family.write_text('name = "Pascal"\n\n[power]\nthreshold = 0.5\nmatrix_energy = "1 pJ/FLOP"\n\n[node]\n')
    for _ in range(2):  # the second time replaces what the first wrote
        assert write_catalog(revisions([found], tmp_path), tmp_path) == [path, family]
    assert tomllib.loads(path.read_text())["power"] == table
    shared = tomllib.loads(family.read_text())
    assert shared["power"]["matrix_energy"] == "1 pJ/FLOP" and "node" in shared
    assert shared["power"]["threshold"]["value"] == table["threshold"]["value"]
    with pytest.raises(InputError, match="no such file"):
        write_catalog(revisions([found], tmp_path), tmp_path / "elsewhere")


def test_the_page_has_every_part(found):
    text = page([found], "dse calibrate", "energy.png", [("More", "text")])
    for part in ("## Power-limit traces", "## More", "## Parameters", "\np100-pcie-16gb,150 W,"):
        assert part in text
    assert "## A30" not in text
