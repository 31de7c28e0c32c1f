"""Fleets of whole workers: what they serve within their devices, their fronts, their files and lines."""

import csv
import dataclasses
import itertools
import json

import pytest
from typer.testing import CliRunner

from dse.cli import app
from dse.errors import InputError
from dse.fleet import pools
from dse.fleet.workers import Match, PoolCandidate, best_fleets, fleets
from dse.spec import pools as specs
from tests.unit.fleet.test_pools import TEXT

PROMPTS = PoolCandidate("h100", {"concurrency": 1}, 4.0, 2.0, 100.0, 2.0, 0.25, 0.02, 1e9)
ANSWERS = PoolCandidate("h100", {"concurrency": 16}, 9.0, 4.0, 100.0, 2.0, 0.1, 0.02, 1e9)
PAIR = Match(PROMPTS, ANSWERS, 0.05)
WHOLE = TEXT.replace('transfer = "25 GB/s"', 'transfer = "25 GB/s"\nn_devices = 8').replace(
    "[decode.axes]", "[together.axes]\nconcurrency = [16, 64]\n[decode.axes]"
)


@pytest.mark.parametrize("devices", [6, 7, 12, 30, 64, 101])
def test_workers_are_those_that_serve_most(devices):
    """By trying all numbers; none is more than the rate needs."""
    (found,) = fleets([PAIR], {"": devices}, 0.8, 100.0)
    tried = [(x, y) for x, y in itertools.product(range(1, 60), repeat=2) if 2 * x + 4 * y <= devices]
    most = max(min(x * 4.0, y * 9.0) for x, y in tried)
    assert found.rate == pytest.approx(0.8 * most) and found.devices <= devices
    assert min(found.headroom) == pytest.approx(0.25)
    for place in range(2):
        fewer = [count - (place == i) for i, count in enumerate(found.workers)]
        assert min(fewer[0] * 4.0, fewer[1] * 9.0) < most


def test_devices_by_accelerator():
    """Unlike chips have numbers of their own, and chips without one no worker."""
    other = Match(PROMPTS, dataclasses.replace(ANSWERS, accelerator="a100"), 0.05)
    (found,) = fleets([other], {"h100": 8, "a100": 4}, 0.5, 100.0)
    assert found.workers == (3, 1) and found.rate == pytest.approx(0.5 * 9.0)
    assert not list(fleets([other], {"h100": 8}, 0.5, 100.0))
    (same,) = fleets([PAIR], {"h100": 12}, 0.5, 100.0)
    assert same.devices <= 12
    (both,) = fleets([Match(ANSWERS, None, 0.0)], {"": 13}, 0.5, 100.0)
    assert both.workers == (3,) and both.rate == pytest.approx(0.5 * 27.0)


def test_one_worker_waits_as_a_server_without_variation():
    """M/D/1: rho T / (2 (1 - rho)); the wait behind the first token counts with the tokens."""
    (found,) = fleets([PAIR], {"": 6}, 0.8, 100.0)
    assert found.workers == (1, 1) and found.waits[0] == pytest.approx(0.8 * 0.25 / (2.0 * 0.2))
    assert found.first_token == pytest.approx(0.25 + 0.05 + found.waits[0])
    assert found.token == pytest.approx(0.02 + found.waits[1] / 100.0)


def test_fronts_hold_what_no_other_beats():
    found = list(fleets([PAIR, Match(ANSWERS, None, 0.0), Match(PROMPTS, None, 0.0)], {"": 24}, 0.8, 100.0))
    front = best_fleets(found)
    assert front == sorted(front, key=lambda one: one.token) and front
    for one in found:
        assert any(o.first_token <= one.first_token and o.token <= one.token and o.rate >= one.rate for o in front)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("n_devices = 8", "n_devices = 0", "n_devices: got 0"), ("n_devices = 8", "n_devices = 2.5", "whole number"),
        ("n_devices = 8", "n_devices = { frob = 3 }", "frob"), ("n_devices = 8", "utilisation = 1", "less than 1"),
        ("n_devices = 8", "utilisation = true", "utilisation"),
    ],
)  # fmt: skip
def test_bad_settings(old, new, told):
    with pytest.raises(InputError, match=told):
        specs.from_text(WHOLE.replace(old, new))


@pytest.fixture(scope="module")
def matched(tmp_path_factory):
    path = tmp_path_factory.mktemp("pools") / "pools.toml"
    path.write_text(WHOLE)
    return path, pools.match(path)


def test_first_tokens_of_workers_meet_the_limits_with_their_queue(matched, tmp_path):
    _, found = matched
    both = [one.first_token for one in found.fleets if one.match.decode]
    limit = sorted(both)[len(both) // 2] if len(both) > 1 else 2.0 * both[0]
    file = tmp_path / "limited.toml"
    file.write_text(WHOLE.replace("[serving]", f"[serving]\nfirst_token_limit = '{1e3 * limit:.6f} ms'"))
    limited = [one for one in pools.match(file).fleets if one.match.decode]
    assert limited and all(one.first_token <= limit * (1.0 + 1e-6) for one in limited)


def test_files_figure_and_lines_of_both_roles(matched, tmp_path, monkeypatch):
    path, found = matched
    monkeypatch.setattr("dse.fleet.match", lambda _: found)
    kinds = {one.match.decode is None for one in found.fleets}
    assert kinds == {True, False} and all(one.devices <= 8 for one in found.fleets)
    table, figure = tmp_path / "workers.csv", tmp_path / "workers.png"
    pick = 1 + next(place for place, one in enumerate(found.fleets) if one.match.decode)
    words = {"vllm": ("NixlConnector", "toy_proxy_server"), "sglang": ("--disaggregation-mode decode", "--pd-dis"),
             "tensorrt-llm": ("cache_transceiver_config", "context_servers")}  # fmt: skip
    for tool, wanted in words.items():
        asked = ["pools", str(path), "--for", tool, "--pick", str(pick), "-o", str(table), "--figure", str(figure)]
        done = CliRunner().invoke(app, [*asked, "--force"])
        assert done.exit_code == 0, done.output
        assert all(word in done.stdout for word in (*wanted, "vllm bench serve", "aiperf profile", "# router"))
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert len(rows) == len(found.fleets) and figure.stat().st_size > 1000
    assert {row["kind"] for row in rows} == {"pools", "together"}
    document = json.loads(CliRunner().invoke(app, ["pools", str(path), "--json"]).stdout)
    assert [one["requests_per_second"] for one in document["workers"]] == [one.rate for one in found.fleets]
    for bad in (["--pick", "999", "--for", "vllm"], ["-o", "workers.xlsx"], ["--for", "slurm"]):
        assert CliRunner().invoke(app, ["pools", str(path), *bad]).exit_code == 2, bad
