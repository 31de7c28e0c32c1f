"""A job of one leaf: what states it, and that it goes through the same run as those of the package."""

from __future__ import annotations

import tomllib

import jax.numpy as jnp
import numpy as np
import pytest

from dse.lab.fits import FitProblem, Parameter, jobs, writing
from dse.lab.fits.fit import Fit, derivatives
from dse.lab.fits.writing import Revision
from dse.measured import read_table

ROWS = """system,dtype,m,n,k,latency_ms
h200-sxm-141gb,bfloat16,4096,4096,4096,0.19
h200-sxm-141gb,bfloat16,8192,8192,8192,1.5
"""
PEAK = 989e12
EFFICIENCY = Parameter("kernels.matrix_efficiency", 0.7, 0.2, upper=1.0)


def calibrate(tables, *_) -> Fit:
    """One share of the peak of all products."""
    rows = [row for table in tables for row in read_table(table)[1]]
    flops = np.array([2.0 * np.prod([float(row.get(name)) for name in "mnk"]) for row in rows])
    shares = flops / PEAK / (1e-3 * np.array([float(row.get("latency_ms")) for row in rows]))
    logs = jnp.asarray(np.log(shares), jnp.float32)
    errors = derivatives(lambda z, logs: logs - jnp.log(EFFICIENCY.value(z[0])), logs)
    return FitProblem(*errors, np.ones(len(rows)), 0.1, 0.1, np.ones(1)).solve().fit([EFFICIENCY])


def entries(fit: Fit) -> dict[str, str]:
    return {"matrix_efficiency": writing.value_table(*map(writing.digits, fit.values.values()), *fit.spread.values())}


JOB = jobs.FitJob(
    calibrate,
    lambda fit: writing.document({"h200": entries(fit)}),
    lambda fit, folder: [Revision("kernels", "h200", entries(fit))],
    lambda fit: jobs.Errors(["rows", "median error"], [[fit.rows, fit.median_error]]),
)


def test_a_job_of_one_leaf_is_fitted_and_written(tmp_path):
    (tmp_path / "kernels").mkdir()
    (tmp_path / "rows.csv").write_text(ROWS)
    (tmp_path / "kernels" / "h200.toml").write_text('name = "H200"\nmatrix_efficiency = 0.6  # of products\n')
    output = tmp_path / "out.toml"
    fit, errors, files = jobs.run([tmp_path / "rows.csv"], 0, output, tmp_path, jobs={"kernels": JOB})
    assert errors.rows == [[2, fit.median_error]] and files == [output, tmp_path / "kernels" / "h200.toml"]
    written = [tomllib.loads(file.read_text()) for file in files]
    assert written[0]["h200"]["matrix_efficiency"] == written[1]["matrix_efficiency"]
    assert written[1]["matrix_efficiency"]["value"] == pytest.approx(0.7315, abs=1e-3)
