"""Post-training, the same behind every door."""

from __future__ import annotations

import pytest

import dse
from dse.cli.service.worker import answer
from dse.reports.terminal import plain_text
from tests.contract.capabilities.claims import assert_refused, assert_renderers_agree

WORDS = "posttrain -w llama-3-8b -s h100 -n 16 --prompts 64 --isl 512 --osl 2048 --rollout tp=4 --reward 2s"
STEP = {"workload": "llama-3-8b", "system": "h100", "n_devices": 16, "prompts": 64, "isl": 512, "osl": 2048}


@pytest.fixture(scope="module")
def report():
    return dse.posttrain(**STEP, rollout={"tp": 4}, reward=2.0)


def test_every_door_gives_one_document(report):
    assert_renderers_agree(report, *WORDS.split())
    request = {**STEP, "rollout": {"tp": 4}, "reward": "2 s"}
    assert answer("posttrain", request)["document"] == report.to_dict()
    assert dse.posttrain(**STEP, rollout=["tp=4"], reward="2s", mode=["split"])["modes"] == [
        row for row in report["modes"] if row["mode"] == "split"
    ]


def test_the_answer_comes_first_and_parts_are_a_detail(report):
    lines = plain_text(report, width=80).splitlines()
    assert len(lines) <= 30 and any("is the fastest: " in line for line in lines[:5])
    assert report.details == ["parts"] and "idle trainer" in plain_text(report, ["parts"])
    frame = report.to_dataframe("parts")
    assert frame.rollout_idle_share.between(0.0, 1.0).all() and len(frame) == 3


def test_it_has_a_dataset_and_files(report, tmp_path):
    assert report.dataset.step_time.attrs["units"] == "s"
    written = dse.posttrain(**STEP, rollout={"tp": 4}, reward=2.0, output=tmp_path / "splits.nc")
    assert written.files == [tmp_path / "splits.nc"] and (tmp_path / "splits.nc").exists()


def test_what_fits_nowhere_has_no_mode_and_says_why():
    report = dse.posttrain("deepseek-v3", "h100", 4, prompts=8, isl=64, osl=64)
    assert report.status == 1 and not report["modes"] and "colocated: " in plain_text(report)
    assert report.dataset.sizes == {}


def test_bad_input_in_python_has_four_parts(tmp_path):
    assert_refused(lambda: dse.posttrain(**STEP, mode="sometimes"), "sometimes")
    assert_refused(lambda: dse.posttrain(**STEP, output=tmp_path / "splits.csv"), ".nc")
    assert_refused(lambda: dse.posttrain(**STEP, rollout={"tensor_parallel": 4}), "tensor_parallel", "tp")
    assert_refused(lambda: dse.posttrain(**STEP, train={"concurrency": 4}), "--train", "concurrency")
    assert_refused(lambda: dse.posttrain(**STEP, staleness=65), "staleness", "65")
