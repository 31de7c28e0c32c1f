"""``dse search --prove`` and ``--check``."""

import json
import re
import signal
import time

import pytest
from typer.testing import CliRunner

import dse
from dse.cli import app
from dse.lab.prove import proof as proofs
from tests.conftest import slow
from tests.processes import start
from tests.unit.optimizers.small import BUDGET, HARDWARE

TEXT = """
title = "p"
{}
[objective]
minimize = "step_time"
[search]
method = "random"
evaluations = 64
seeds = 1
"""


def run(*arguments):
    return CliRunner().invoke(app, ["search", *map(str, arguments)])


@pytest.fixture(scope="module")
def proven(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prove")
    file = folder / "p.toml"
    file.write_text(TEXT.format(BUDGET))
    found = run(file, "--prove", "--no-figure", "--show", "methods", "-o", folder / "p.nc")
    return file, folder / "p.certificate.npz", found


def test_a_proof_is_a_sentence_and_a_certificate(proven):
    file, certificate, found = proven
    assert found.exit_code == 0, found.output
    text = " ".join(found.output.split())
    assert all(part in text for part in ("is better than step time", "% best:", "proof 0.000", "counts and minima"))
    assert certificate.exists() and certificate.name in found.output
    checked = run(file, "--check", certificate)
    assert checked.exit_code == 0 and "valid: no design is better" in checked.output


def test_json_has_the_proof(proven):
    file, certificate, _ = proven
    output = certificate.parent / "q.nc"
    found = json.loads(run(file, "--prove", "--no-figure", "--json", "--gap", "0.02", "-o", output).stdout)
    assert found["proof"]["gap"] <= 0.02 and found["proof"]["asked"] == 0.02
    assert json.loads(run(file, "--check", certificate, "--json").stdout)["is_valid"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [(["--gap", "-1"], "0 to 1"), (["--minutes", "-1"], "--minutes"), (["--check", "none.npz"], "no such file")],
)
def test_bad_options_are_told(proven, arguments, told):
    found = run(proven[0], "--prove", *arguments)
    assert found.exit_code == 2 and told in found.output + str(found.stderr)


def test_results_have_what_is_proven(proven):
    _, certificate, _ = proven
    results, known = dse.open_results(certificate.parent / "p.nc"), proofs.read(certificate)
    assert results.attrs["proof_certificate"] == certificate.name
    assert results.attrs["proof_gap"] == known.header["gap"] <= 0.005
    best = float(results.step_time.sel(searcher="proof").min())
    assert best == pytest.approx(known.front.objectives[0, 0]) and best <= float(results.step_time.min())
    assert results.attrs["proof_bound"] == pytest.approx(best * (1 - known.header["gap"]))
    plot = ["plot", str(certificate.parent / "p.nc"), "-o", str(certificate.parent / "f.png")]
    assert CliRunner().invoke(app, plot).exit_code == 0


def test_a_front_is_proven(tmp_path):
    file, output = tmp_path / "two.toml", tmp_path / "two.nc"
    file.write_text(TEXT.format(BUDGET).replace('"step_time"', '["step_time", "energy_per_step"]'))
    found = run(file, "--prove", "--gap", "0.01", "--no-figure", "-o", output)
    assert found.exit_code == 0, found.output
    known = proofs.read(output.with_suffix(".certificate.npz")).front.objectives
    text = " ".join(found.output.split())
    assert f"nearest of the front's {len(known)} designs" in text and "in step time or energy per step" in text
    assert dse.open_results(output).front_step_time.size == len(known)
    assert "valid" in run(file, "--check", output.with_suffix(".certificate.npz")).output


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A folder of programs that processes share."""
    return tmp_path_factory.mktemp("kept")


@pytest.mark.parametrize("number", [signal.SIGINT, slow(signal.SIGTERM)])
def test_a_proof_that_is_stopped_keeps_what_is_proven(tmp_path, kept, number):
    file, output = tmp_path / "p.toml", tmp_path / "p.nc"
    wide = re.sub(r"count = \d+", "count = 90000", HARDWARE)
    file.write_text(TEXT.format(wide).replace('"step_time"', '"energy_per_step"'))
    running = start("search", file, "--prove", "--gap", "0", "--no-figure", "-o", output, kept=kept)
    while not output.exists() and running.poll() is None:
        time.sleep(0.05)
    time.sleep(1.0)
    running.send_signal(number)
    _, err = running.communicate(timeout=60)
    assert running.returncode == (130 if number == signal.SIGINT else 143) and "Traceback" not in err
    said, certificate = err.strip().splitlines()[-1], output.with_suffix(".certificate.npz")
    gap = float(re.search(r"proven to a gap of ([\d.e+-]+) %", said)[1])
    assert str(certificate) in said and f"{output} is complete" in said
    known = proofs.read(certificate)
    assert gap == pytest.approx(100 * known.header["gap"], rel=1e-2) and len(known.front.member) == 1
    checked = run(file, "--check", certificate)
    assert checked.exit_code == 0 and "valid: no design is better" in checked.output
