"""Plans: the cheapest devices, with numbers or texts, settings and a stack, the same behind every door."""

from __future__ import annotations

import pytest

import dse
from dse.cli.service.worker import answer
from dse.reports.terminal import plain_text
from tests.contract.capabilities.claims import assert_refused, assert_renderers_agree, run

SERVICE = {"workload": "llama-3-8b", "serving": True, "rate": 4, "on": ["h100"], "max_devices": 4}
SERVICE_WORDS = "plan --serving -w llama-3-8b --rate 4 --on h100 --max-devices 4 --ttft p95=1s --tpot 30ms"
RUN = {"workload": "llama-3-8b", "on": "h100", "max_devices": 64}
RUN_WORDS = "plan -w llama-3-8b --on h100 --max-devices 64 --tokens 200B --in 90d"


@pytest.fixture(scope="module")
def service():
    return dse.plan(**SERVICE, ttft="p95=1s", tpot="30ms")


@pytest.fixture(scope="module")
def training():
    return dse.plan(**RUN, tokens="200B", time="90d")


def test_every_door_gives_one_document(service, training):
    assert_renderers_agree(service, *SERVICE_WORDS.split())
    assert_renderers_agree(training, *RUN_WORDS.split())
    request = {**SERVICE, "on": "h100", "ttft": "p95=1s", "tpot": "30ms"}
    assert answer("plan", request)["document"] == service.to_dict()
    assert answer("plan", {**RUN, "tokens": "200B", "in": "90d"})["document"] == training.to_dict()


def test_the_answer_comes_first_and_is_short(service, training):
    for report, words in ((service, "cheapest ("), (training, "cheapest: ")):
        lines = plain_text(report, width=80).splitlines()
        assert len(lines) <= 30 and any(line.startswith(words) for line in lines[:6])


def test_details_are_limits_load_and_launch_lines(service, training):
    assert service.details == ["limits", "load", "launch"] and training.details == ["limits"]
    frame = service.to_dataframe("limits")
    assert {"time_per_output_token", "p95_time_to_first_token", "cost_per_device_hour"} == {*frame.metric}
    assert (frame.low < frame.value).all() and (frame.value < frame.high).all()
    assert "dse launch -w llama-3-8b" in plain_text(service, ["launch"])


def test_numbers_are_seconds_dollars_and_tokens(training):
    assert dse.plan(**SERVICE, ttft=1.0, tpot=0.03).to_dict() == dse.plan(**SERVICE, ttft="1s", tpot="30ms").to_dict()
    assert dse.plan(**RUN, tokens=200e9, time=90 * 86400).to_dict() == training.to_dict()
    assert dse.plan(**RUN, tokens=2e11, under=1e5).to_dict() == dse.plan(**RUN, tokens="200B", under="100k").to_dict()


def test_one_limit_is_enough(service):
    assert dse.plan(**SERVICE, tpot="30ms")["demand"].limits == {"time_per_output_token": 0.03}


def test_settings_and_a_stack_are_of_every_candidate(service):
    options = ["--set", "precision=fp8", "--software", "sglang"]
    report = dse.plan(**SERVICE, ttft="p95=1s", tpot="30ms", precision="fp8", software="sglang")
    assert_renderers_agree(report, *SERVICE_WORDS.split(), *options)
    fleet = report["fleets"][0]
    assert fleet["software"] == "sglang" and fleet["precision"].startswith("fp8")
    assert fleet["token"] < service["fleets"][0]["token"]
    assert "--set precision=fp8" in plain_text(report, ["launch"])


def test_progress_is_shown_on_standard_error_alone():
    states = []
    dse.plan(**RUN, tokens="200B", time="90d", progress=lambda state: states.append(str(state)))
    assert states == ["0 of 1 accelerators", "1 of 1 accelerators"]
    ended = run(*RUN_WORDS.split())
    assert "1 of 1 accelerators" in ended.stderr and "accelerators" not in ended.stdout
    assert run(*RUN_WORDS.split(), "--no-progress").stderr == ""


def test_a_plan_without_a_cluster_has_status_1_and_says_why():
    report = dse.plan(**RUN, tokens="200B", time="1h")
    assert report.status == 1 and "the fastest run" in plain_text(report)


@pytest.mark.parametrize(
    ("keywords", "texts"),
    [
        ({**SERVICE}, ["no limit of latency", "--tpot"]),
        ({**SERVICE, "rate": None, "tpot": 0.03}, ["no --rate"]),
        ({**SERVICE, "tpot": "p42=30ms"}, ["p42=30ms", "p95"]),
        ({**SERVICE, "tpot": 0.03, "time": "30d"}, ["--in", "of training"]),
        ({**SERVICE, "on": ["h1000"], "tpot": 0.03}, ["h1000"]),
        ({**RUN, "tokens": "many", "time": "30d"}, ["many", "2T"]),
        ({**RUN, "tokens": "1T", "time": float("inf")}, ["--in", "finite"]),
        ({**RUN, "tokens": "1T", "time": "30d", "global_batch": "all"}, ["global_batch", "all"]),
        ({**RUN, "tokens": "1T", "time": "30d", "software": "vlm"}, ["vlm"]),
        ({**RUN, "tokens": "1T", "time": "30d", "tensor_parallel": 8}, ["tensor_parallel", "tp"]),
    ],
)
def test_bad_input_in_python_has_four_parts(keywords, texts):
    assert_refused(lambda: dse.plan(**keywords), *texts)
