"""``dse simulate``: traces, files, and errors in four parts."""

from __future__ import annotations

import csv
import json

import netCDF4
import numpy as np
import pytest

from tests.contract.cli import test_cli
from tests.contract.cli.test_cli import assert_four_parts

command = test_cli.command

MODEL = ["simulate", "-w", "llama-3-8b", "-s", "h100-sxm-80gb"]
DESIGN = [*MODEL, "--set", "prompt_tokens=300", "--set", "output_tokens=50"]
TRACE = """arrival_s,prompt_tokens,answer_tokens,prefix_id,prefix_tokens
0.5,400,20,a,160
0.0,400,20,a,160
1.0,90,1,,
"""


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


def test_a_trace_with_all_its_files(command, trace, tmp_path):
    table, timeline = tmp_path / "requests.csv", tmp_path / "steps.json"
    ended = command(*DESIGN, "--trace", trace, "-o", table, "--timeline", timeline)
    assert ended.status == 0 and "time to first token" in ended.out and "closed form" not in ended.out
    assert "3 requests in 1.00 s" in ended.out and "1 prefix; not read: output_tokens, prompt_tokens" in ended.out
    assert "297 prompt tokens, 13.7 output tokens, 2 requests/s" in ended.out and "calibrated range" in ended.out
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [float(row["arrival_s"]) for row in rows] == [0.0, 0.5, 1.0]
    assert [float(row["cached_tokens"]) for row in rows] == [0.0, 160.0, 0.0]
    assert rows[2]["time_per_output_token"] == "nan"
    for row in rows:
        latency = float(row["finish_s"]) - float(row["arrival_s"]) + float(row["request_time"])
        assert float(row["request_latency"]) == pytest.approx(latency)
    events = json.loads(timeline.read_text())["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X", "C", "b", "e"}
    assert sum(event["args"]["prompt_tokens"] for event in events if event["ph"] == "X") == 400 + 240 + 90


def test_drawn_requests_and_the_same_seed(command, tmp_path):
    """--json has the figures, the file the requests; the same seed gives the same, another one another."""
    files = [tmp_path / f"{name}.nc" for name in "abc"]
    found = []
    for path, seed in zip(files, (1, 1, 2), strict=True):
        ended = command(
            *DESIGN,
            "--set",
            "request_rate=20",
            "--set",
            "length_spread=0.5",
            "--requests",
            400,
            "--seed",
            seed,
            "-o",
            path,
            "--json",
        )
        with netCDF4.Dataset(path) as file:
            found.append(np.array(file["request_latency"][:]))
            assert file["arrival_s"].units == "s" and file["prompt_tokens"].long_name == "prompt tokens"
        document = json.loads(ended.out)
        assert document["p99_time_to_first_token"] > document["p50_time_to_first_token"] > 0.0
        assert document["closed_form"]["p99_time_to_first_token"] > 0.0
    assert np.array_equal(found[0], found[1]) and not np.array_equal(found[0], found[2])


def test_turns_of_a_trace_find_the_context_of_the_last_one(command, tmp_path):
    """Prompt and answer of the turn before, in whole blocks of 16 tokens; another session finds nothing."""
    path, table = tmp_path / "trace.csv", tmp_path / "requests.csv"
    path.write_text(
        "arrival_s,prompt_tokens,answer_tokens,session_id\n0,400,40,a\n9,500,40,a\n18,600,8,a\n27,500,8,b\n"
    )
    ended = command(*DESIGN, "--trace", path, "-o", table)
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [float(row["cached_tokens"]) for row in rows] == [0.0, 448.0, 544.0, 0.0]
    assert ended.status == 0 and "0 prefixes and 2 sessions" in ended.out


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (TRACE.replace("400", "-4", 1), ["line 2: prompt_tokens", "'-4'", "from 1 to"]),
        (TRACE.replace("0.5,", "soon,"), ["line 2: arrival_s", "'soon'"]),
        (TRACE.replace("160", "500", 1), ["line 2: prefix_tokens", "from 0 to 400"]),
        (TRACE.replace(",20,", ",2.5,", 1), ["line 2: answer_tokens", "whole"]),
        (TRACE.replace("1,,", "1"), ["line 4", "3 cells"]),
        (TRACE.replace("answer_tokens", "answers"), ["line 1", "answer_tokens"]),
        ("arrival_s,prompt_tokens\n0,1\n", ["column answer_tokens"]),
        ("arrival_s,prompt_tokens,answer_tokens\n", ["no requests"]),
        (TRACE.replace("400", "9000000", 1), ["cache of a rank", "9,000,020 tokens"]),
    ],
)
def test_bad_traces(command, trace, text, wanted):
    trace.write_text(text)
    assert_four_parts(command(*DESIGN, "--trace", trace), *wanted)


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        (["--set", "load=waves"], ["load=waves", "concurrency, offline, rate"]),
        (["-o", "requests.xlsx"], ["requests.xlsx", ".nc (netCDF) or .csv"]),
        (["--trace", "nowhere.csv"], ["nowhere.csv"]),
        (["-o", "a.csv", "--timeline", "a.csv"], ["--timeline"]),
        (["--set", "load=rate"], ["request_rate"]),
        (["--set", "request_rate=inf"], ["request_rate", "inf", "more than 0"]),
        (["--set", "chunk=64", "--trace", "any.csv", "--set", "concurrency=8"], ["--trace", "concurrency"]),
        (["--trace", "any.csv", "--requests", "8"], ["--trace", "--requests"]),
    ],
)
def test_bad_options(command, more, wanted):
    assert_four_parts(command(*DESIGN, *more), *wanted)


def test_prompts_of_no_token_are_refused(command):
    assert_four_parts(command(*MODEL, "--set", "prompt_tokens=0.5"), "prompt_tokens", "0.5", "1 or more")


def test_an_engine_without_room_for_a_cache_cannot_run(command):
    """An answer, as of ``dse evaluate``: why, a fix, exit status 1."""
    asked = ["simulate", "-w", "llama-3-70b", "-s", "h100-sxm-80gb"]
    ended = command(*asked)
    assert ended.status == 1 and "cannot run" in ended.out and "no room for a cache" in ended.out
    assert "more devices (tp, pp)" in ended.out
    document = json.loads(command(*asked, "--json").out)
    assert not document["feasible"] and "no room for a cache" in document["reason"]


def test_overload_is_said(command):
    """With the capacity where closed forms have one; else by the queue, as of a burst within a trace."""
    asked = [*DESIGN, "--requests", 2000, "--set"]
    assert "overloaded" not in command(*asked, "request_rate=10").out
    ended = command(*asked, "request_rate=1000")
    assert "1,000 requests/s arrive" in ended.out and "wait at the last arrival" in ended.out and "no end" in ended.out
    document = json.loads(command(*asked, "request_rate=1000", "--json").out)
    assert document["waiting_at_end"] > document["waiting_at_half"] > 0 and "overloaded" in document["cautions"][-1]
    assert document["closed_form"]["p99_time_to_first_token"] is None


def test_a_lone_request_is_one_request(command):
    assert "; 1 request counted" in command(*DESIGN, "--requests", 1).out
