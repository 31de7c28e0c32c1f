"""Pools: a specification as a file or a dictionary, the same behind every door."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import dse
from dse.cli.service.worker import answer
from dse.reports.terminal import plain_text
from tests.contract.capabilities.claims import assert_refused, assert_renderers_agree

FILE = Path(__file__).parents[1] / "golden" / "records" / "inputs" / "golden-pools.toml"
SECTIONS = tomllib.loads(FILE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def matched():
    return dse.pools(FILE)


def test_every_door_gives_one_document(matched):
    assert_renderers_agree(matched, "pools", FILE)
    assert dse.pools(SECTIONS).to_dict() == matched.to_dict() == dse.pools(**SECTIONS).to_dict()
    assert answer("pools", {"specification": SECTIONS})["document"] == matched.to_dict()


def test_the_answer_comes_first_and_is_short(matched):
    lines = plain_text(matched, width=80).splitlines()
    assert len(lines) <= 30 and lines[1].startswith("best at equal price: h100-sxm-80gb for prompts")
    frame = matched.to_dataframe("pools")
    assert [*frame.requests_per_second_per_device] == pytest.approx(
        [pair["requests_per_second_per_device"] for pair in (*matched["together"], *matched["pools"])]
    )


def test_files_and_launch_lines(matched, tmp_path):
    report = dse.pools(FILE, output=tmp_path / "workers.csv", tool="vllm", pick=1)
    assert report.files == [tmp_path / "workers.csv"] and report.to_dict() == matched.to_dict()
    assert len((tmp_path / "workers.csv").read_text().splitlines()) == 1 + len(matched["workers"])
    text = plain_text(report)
    assert "\n# prefill: 1 worker of 1 h100-sxm-80gb, the line on each\n" in text and "\n# router\n" in text


def test_bad_input_in_python_has_four_parts(tmp_path):
    assert_refused(lambda: dse.pools("nowhere.toml"), "nowhere.toml")
    assert_refused(lambda: dse.pools({**SECTIONS, "serving": True}), "serving = True", "[serving]")
    assert_refused(lambda: dse.pools({**SECTIONS, "output": "a.nc"}), "output = 'a.nc'", "[output]")
    assert_refused(lambda: dse.pools({"workload": "llama-3-8b"}), "no section [prefill]")
    assert_refused(lambda: dse.pools(FILE, output=tmp_path / "a.nc"), ".csv")
    assert_refused(lambda: dse.pools(FILE, tool="vllm", pick=10**6), "--pick", "1 to")
    assert_refused(lambda: dse.pools({**SECTIONS, "pools": {"transfer": "25 GB/s"}}, tool="vllm"), "no whole workers")
