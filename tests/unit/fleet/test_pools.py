"""Pools of one service: their specification, how they are matched, and that a pair is what serve_pools has."""

import dataclasses
import io
import json

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import dse
from dse.cli import app, show
from dse.errors import InputError
from dse.fleet import pools
from dse.fleet.pools import Match, MatchedPools, PoolCandidate, front
from dse.spec import pools as specs, sweep

TEXT = """
[workload]
name = "llama-3-8b"
[system]
name = "h100-sxm-80gb"
n_devices = 1
[serving]
prompt_tokens = 2048
output_tokens = 256
[prefill.axes]
concurrency = [1, 4]
[decode.axes]
concurrency = [32, 64]
[pools]
transfer = "25 GB/s"
prices = { h100 = "3.6 USD/h" }
"""

ONE = PoolCandidate("h100", {}, rate=4.0, devices=8.0, watts=100.0, price=2.0, first_token=0.1, token=0.02, cache=1e9)


def test_sections_of_pools():
    found = specs.from_text(TEXT)
    fixed = {name: {axis.name: axis.values for axis in spec.fixed.values()} for name, spec in found.specs.items()}
    assert fixed["prefill"]["output_tokens"] == (1.0,) and fixed["decode"]["prefix_share"] == (1.0,)
    assert fixed["decode"]["output_tokens"] == (256.0,) and "together" not in found.specs
    assert found.prices == {"h100-sxm-80gb": pytest.approx(0.001)} and found.transfer == 25e9


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("[decode.axes]", "[decode2.axes]", "no section"),
        ("[prefill.axes]", "[prefill]", "sections of a sweep"),
        ("transfer =", "transfr =", "did you mean"),
        ('"25 GB/s"', '"25 W"', "B/s"),
        ("prices = { h100", "prices = { frob", "frob"),
        ("prices = {", "price = {", "did you mean"),
        ('"25 GB/s"', '"0 GB/s"', "transfer: got '0 GB/s'; allowed more than 0"),
        ('"25 GB/s"', '"-25 GB/s"', "transfer: got '-25 GB/s'; allowed more than 0"),
        ('"25 GB/s"', "25", "a string with a unit"),
        ('"3.6 USD/h"', '"0 USD/h"', "h100: got '0 USD/h'; allowed more than 0"),
        ('"3.6 USD/h"', '"-1 USD/h"', "h100: got '-1 USD/h'"),
        ("[decode.axes]", '[decode.workload]\nname = "llama-3-70b"\n[decode.axes]',
         "decode.workload: got workload = llama-3-70b; allowed the model of the pool of prompts: .*llama-3-8b"),
        ("[decode.axes]", "[decode.workload]\nn_layers = 16\n[decode.axes]", "decode.workload: got .*n_layers = 16"),
        ("[decode.axes]", "[decode.axes]\nn_layers = [16, 32]", "decode.axes.n_layers: got an axis of the model"),
        ("[decode.axes]", "[decode.axes]\nnonsense = [1]", "pools.toml: decode.axes"),
    ],
)  # fmt: skip
def test_bad_specifications_are_told(old, new, told):
    with pytest.raises(InputError, match=told):
        specs.from_text(TEXT.replace(old, new))


@pytest.mark.parametrize("name", ["prefill", "decode"])
def test_a_pool_without_a_mapping_is_named(tmp_path, name):
    file = tmp_path / "pools.toml"
    four_of_eight = f"[{name}.system]\nn_devices = 8\n[{name}.axes]\ntp = [2]\ndp = [2]"
    file.write_text(TEXT.replace(f"[{name}.axes]", four_of_eight))
    with pytest.raises(InputError, match="no valid mapping") as refused:
        pools.match(file)
    assert refused.value.where == f"{file}: {name}.axes"


@pytest.mark.parametrize(
    ("said", "devices"),
    [("[axes]\ntp = [1, 8]", {8}), ("[axes]\ntp = [1, 2]\ndp = [1, 2]", {1, 2, 4}), ("[mapping]\ntp = 2\ndp = 2", {4}),
     ("[axes]\nsystem = ['h100', 'dgx-gb200']", {8, 72})],
)  # fmt: skip
def test_pools_that_state_no_devices_have_those_of_their_degrees(tmp_path, said, devices):
    """As a sweep has: tp x dp where both are said, else those of a node."""
    file, text = tmp_path / "pools.toml", TEXT.replace("n_devices = 1\n", "").replace("prices =", "# prices =")
    if "system = [" in said:
        text = text.replace('[system]\nname = "h100-sxm-80gb"\n', "")
    file.write_text(text.replace("[serving]", f"{said}\n[serving]"))
    results, found = pools.swept_pools(specs.read(file), str(file))
    for name, candidates in found.items():
        assert {one.devices for one in candidates} == devices
        columns = results[name].columns
        product = np.prod([columns[degree] for degree in ("tp", "dp") if degree in columns], axis=0)
        assert [one.devices for one in candidates] == product.tolist()
    assert pools.match(file).pools


def test_pools_have_mappings_that_the_engine_launches(tmp_path):
    """vLLM has experts over all ranks or none; what is asked for alone is refused, unless any option may be had."""
    file, mixture = tmp_path / "pools.toml", TEXT.replace("llama-3-8b", "qwen3-30b-a3b").replace("s = 1", "s = 4")
    asked = mixture.replace("[serving]", "[axes]\ntp = [4]\nep = [2]\n[serving]")
    file.write_text(mixture.replace("[serving]", '[axes]\ntp = [4]\nep = "divisors"\n[serving]'))
    found = pools.swept_pools(specs.read(file), "pools.toml")[1]
    assert all({one.labels["ep"] for one in pool} == {1, 4} for pool in found.values())
    file.write_text(asked)
    with pytest.raises(InputError, match=r"prefill: got tp 4 x ep 2, which vllm .*; allowed ep 1, 4 of tp 4;"):
        pools.match(file)
    file.write_text(mixture.replace("s = 4", "s = 8").replace("[serving]", "[axes]\ntp = [4]\n[serving]"))
    with pytest.raises(InputError, match=r"got tp 4 x dp 2, which vllm .*; allowed ep 8 of tp 4 x dp 2"):
        pools.match(file)
    file.write_text(asked.replace("[serving]", "[software]\nany_option = true\n[serving]"))
    assert pools.match(file).pools
    file.write_text(asked.replace("[serving]", "[software]\nname = 'vllm-rocm'\n[serving]"))
    with pytest.raises(InputError, match=r"prefill\.software\.name: got vllm-rocm on h100"):
        pools.match(file)


def test_a_misspelt_pool_is_told_the_one_that_is_meant():
    with pytest.raises(InputError) as raised:
        specs.from_text(TEXT.replace("[prefill", "[prefil"))
    assert raised.value.fix == "write [prefill] for [prefil]"


def test_a_sweep_tells_that_pools_have_their_own_command():
    with pytest.raises(InputError, match="dse pools"):
        sweep.from_text(TEXT)


def test_pools_in_balance():
    """Prices and power of a request add up; a budget answers as much more as a request takes less of it."""
    quick = dataclasses.replace(ONE, rate=8.0, devices=4.0, watts=40.0, price=0.5)
    pair, both = Match(ONE, quick, 0.05), Match(ONE, None, 0.0)
    assert (pair.price, pair.watts, pair.first_token, pair.token) == (2.5, 140.0, pytest.approx(0.15), 0.02)
    assert pair.share == pytest.approx(2.0 / 2.5)  # eight devices for four a second, four for eight
    assert both.gain(pair) == (pytest.approx(1.25), pytest.approx(1.4), pytest.approx(1.25))
    behind = dataclasses.replace(ONE, watts=110.0, price=2.5)
    assert front([behind, ONE, quick]) == [quick] and front([behind, ONE]) == [ONE]


def matched(tmp_path, constraint="", limit=""):
    """Pairs of batches of four or eight prompts."""
    text = TEXT.replace("[1, 4]", "[4, 8]").replace("[32, 64]", "[64]")
    text = text.replace("[serving]", f"[serving]\nfirst_token_limit = '{limit}'" if limit else "[serving]")
    file = tmp_path / "pools.toml"
    file.write_text(text + (f'[prefill.constraints]\nall = ["{constraint}"]\n' if constraint else ""))
    return pools.match(file).pools


def at_once(pairs):
    return [int(one.prefill.labels["concurrency"]) for one in pairs]


def between(free):
    """A limit that a batch of prompts keeps without the transfer, and not with it; in ms."""
    assert at_once(free) == [8] and free[0].first_token > 1.02 * free[0].prefill.first_token
    return round(500.0 * (free[0].first_token + free[0].prefill.first_token))


def test_the_first_token_of_a_pair_comes_in_time_with_the_transfer_in_it(tmp_path):
    """What keeps the limit is a smaller batch, though it costs more."""
    limit = between(matched(tmp_path))
    limited = matched(tmp_path, limit=f"{limit} ms")
    assert at_once(limited) == [4] and limited[0].first_token <= 1e-3 * limit


@pytest.mark.slow
def test_constraints_on_the_first_token_are_those_of_the_pair(tmp_path):
    """One that is no mere bound keeps the large batch where its other side allows it."""
    bound = f"time_to_first_token <= '{between(matched(tmp_path))} ms'"
    assert at_once(matched(tmp_path, bound)) == [4]
    assert at_once(matched(tmp_path, f"{bound} or concurrency >= 8")) == [8]
    assert not matched(tmp_path, "time_to_first_token <= '200 ms'")


def test_a_front_may_count_more_than_costs():
    """What is dearer but earlier is of the front where time counts."""
    early = dataclasses.replace(ONE, watts=110.0, price=2.5, first_token=0.05)
    worse = dataclasses.replace(early, first_token=0.2)
    assert front([worse, early, ONE]) == [ONE]
    assert front([worse, early, ONE], ("price", "watts", "first_token")) == [ONE, early]


def test_pools_are_named_so_that_they_can_be_built(monkeypatch):
    """Devices, degrees above 1, choices that differ or are not as usual, whatever is swept; nothing else."""
    labels = {"software": "vllm", "precision": "fp8", "tp": 4, "pp": 1, "dp": 2, "ep": 8, "concurrency": 4}
    alone = dataclasses.replace(ONE, devices=1.0, labels=labels | {"tp": 1, "dp": 1, "ep": 1, "chunk": 2048})
    wide = Console(width=400, file=io.StringIO())
    monkeypatch.setattr(show, "console", lambda: wide)
    whole = dataclasses.replace(ONE, labels=labels)
    monkeypatch.setattr("dse.fleet.match", lambda path: MatchedPools("t", [], [Match(whole, alone, 0.1)]))
    assert CliRunner().invoke(app, ["pools", "p.toml"]).exit_code == 0
    assert "h100 x 8, tp 4, dp 2, ep 8, fp8, 4 in flight" in wide.file.getvalue()
    assert "h100, fp8, chunk 2048, 4 in flight" in wide.file.getvalue()
    other = dataclasses.replace(alone, labels={"software": "sglang", "precision": "bf16", "concurrency": 1})
    monkeypatch.setattr("dse.fleet.match", lambda path: MatchedPools("t", [], [Match(whole, other, 0.1)]))
    CliRunner().invoke(app, ["pools", "p.toml"])
    assert "ep 8, fp8, vllm, 4" in wide.file.getvalue() and "h100, bf16, sglang, 1 in" in wide.file.getvalue()


def test_without_prices_nothing_is_told_of_them(monkeypatch):
    """Null, where 0 USD and the figures at equal power stood; every part of a table says which pair a row is of."""
    free = dataclasses.replace(ONE, price=0.0)
    other = dataclasses.replace(free, accelerator="a100", labels={"concurrency": 64})
    found = MatchedPools("t", [Match(free, None, 0.0)], [Match(free, free, 0.1), Match(free, other, 0.1)])
    monkeypatch.setattr("dse.fleet.match", lambda path: found)
    told = json.loads(CliRunner().invoke(app, ["pools", "p.toml", "--json"]).stdout)
    assert told["pools"][0]["usd_per_request"] is None and told["pools"][0]["requests_per_second_per_device"] == 0.25
    gain = told["pools"][0]["requests_per_second_over"]["h100"]
    assert gain == {"at_equal_price": None, "at_equal_power": 0.5, "at_both": None}
    narrow = Console(width=80, file=io.StringIO())
    monkeypatch.setattr(show, "console", lambda: narrow)
    assert CliRunner().invoke(app, ["pools", "p.toml"]).exit_code == 0
    rows = [line for line in narrow.file.getvalue().splitlines() if line.startswith("h100")]
    assert len(rows) > 3 and len(set(rows)) == len(rows) and sum("a100" in row for row in rows) == len(rows) // 3


@pytest.mark.slow
def test_splitwise_beside_ours(capsys):
    """2.35 times at equal cost and power, 1.4 at 0.8 of the cost, ± 20 %: unverified, its traces are not here."""
    found = pools.match("sweeps/splitwise_pools.toml")
    best = max(one.gain(other)[2] for one in found.pools for other in found.together)
    with capsys.disabled():
        print(f"\nat equal price and power: {best:.2f}, published 2.35 (unverified)")
    assert len(found.pools) == 4 and best > 1.0
    one = found.pools[0]
    stated = dict(any_option=True, tp=8, precision="fp16", prompt_tokens=1020, output_tokens=129, request_time=0.0)
    prefill, decode = (
        dse.design(
            "llama-2-70b",
            part.accelerator,
            part.labels["software"],
            n_devices=8,
            concurrency=float(part.labels["concurrency"]),
            **stated,
        )
        for part in one.parts
    )
    alone = dse.serve_pools(prefill, decode)
    slower = min(part.rate for part in one.parts)
    assert float(alone.requests_per_second) == pytest.approx(slower, rel=1e-3)
    assert float(alone.time_per_output_token) == pytest.approx(one.token, rel=1e-3)
