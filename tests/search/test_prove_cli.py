"""``dse search --prove`` and ``--check``."""

import json

import pytest
from typer.testing import CliRunner

from dse.cli import app
from tests.search.test_prove import BUDGET, DENSE

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
    return file, folder / "p.certificate.npz", run(file, "--prove", "--no-figure", "-o", folder / "p.nc")


def test_a_proof_is_a_sentence_and_a_certificate(proven):
    file, certificate, found = proven
    assert found.exit_code == 0, found.output
    text = " ".join(found.output.split())
    assert "is better than step time" in text and "% best:" in text and "counts, fronts and minima" in text
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


def test_bad_objectives_are_told(tmp_path):
    file = tmp_path / "two.toml"
    file.write_text(TEXT.format(DENSE).replace('"step_time"', '["step_time", "peak_memory"]'))
    found = run(file, "--prove", "--no-figure", "-o", tmp_path / "two.nc")
    assert found.exit_code == 2 and "one objective" in found.output + str(found.stderr)
