"""What a step or a request works on is in results and above tables, whether a specification states it or not."""

from __future__ import annotations

import numpy as np
import pytest

import dse
from dse.optimizers.run import run
from dse.sweep import execute, from_text, open_results, plan
from dse.sweep.results.work import unlike_work, work_line

TRAINING = """
[workload]
name = "gpt-3-13b"
[system]
name = "selene"
n_devices = 16
[software]
any_option = true
[axes]
tp = [1, 2]
"""

SERVING = """
[workload]
name = "llama-3-70b"
[system]
name = "h100-sxm-80gb"
n_devices = 8
[serving]
{stated}
[axes]
tp = [4, 8]
{axes}
"""


def line(text: str) -> str:
    return work_line(plan(from_text(text))[0])


def serving(stated: str = "", axes: str = "") -> str:
    return SERVING.format(stated=stated, axes=axes)


def test_batch_and_sequence_of_the_workload_are_coordinates(tmp_path):
    """The catalogue's gpt-3-13b has 1,536 sequences of 2,048 tokens; the sweep states neither."""
    file = tmp_path / "sweep.toml"
    file.write_text(TRAINING)
    results, summary = execute(file, tmp_path / "results.nc")
    expected = dse.design("gpt-3-13b", "selene", n_devices=16).workload
    for found in (results, open_results(tmp_path / "results.nc")):
        for name, units in (("global_batch", "1"), ("seq_len", "1")):
            assert found[name].dims == () and name in found.coords
            assert found[name].item() == float(getattr(expected, name))
            assert found[name].attrs["units"] == units and found[name].attrs["long_name"]
            assert found[name].attrs["path"] == f"workload.{name}"
    whole = f"each step: {expected.global_batch:,.0f} sequences of {expected.seq_len:,.0f} tokens"
    assert summary.work == whole == line(TRAINING)


@pytest.mark.parametrize("keep", ["all", "best", "top:3", "feasible"])
def test_of_every_layout(keep):
    results, _ = execute(from_text(TRAINING), output=False, keep=keep)
    assert results.global_batch.dims == () and results.seq_len.item() == 2048


def test_what_is_stated_is_said_once():
    stated = TRAINING.replace('name = "gpt-3-13b"', 'name = "gpt-3-13b"\nglobal_batch = 64')
    assert line(stated) == "each step: 64 sequences of 2,048 tokens"
    results, _ = execute(from_text(stated), output=False)
    assert results.global_batch.item() == 64


def test_an_axis_is_a_column_and_not_in_the_line():
    swept = f"{TRAINING}seq_len = [1024, 2048]\n"
    assert line(swept).startswith("each step: ") and line(swept).endswith(" sequences")
    results, _ = execute(from_text(swept), output=False)
    assert results.seq_len.dims == ("seq_len",) and results.global_batch.dims == ()
    batches = f"{TRAINING}global_batch = [64, 128]\n"
    assert line(batches) == "each step: sequences of 2,048 tokens"


def test_workloads_of_unlike_batches():
    """Two models with batches of their own: along the workload in results, a column in the table."""
    text = TRAINING.replace('name = "gpt-3-13b"\n', "seq_len = 2048\n") + 'workload = ["gpt-3-13b", "megatron-1t"]\n'
    text = text.replace("n_devices = 16", "n_devices = 4096").replace("tp = [1, 2]", "tp = [8]\npp = [1, 64]")
    batches = [dse.design(name, "selene").workload.global_batch for name in ("gpt-3-13b", "megatron-1t")]
    assert batches[0] != batches[1]
    results, summary = execute(from_text(text), output=False, keep="best")
    assert results.global_batch.dims == ("workload",)
    np.testing.assert_array_equal(results.global_batch, batches)
    assert summary.work == "each step: sequences of 2,048 tokens"
    assert {design.work["global_batch"] for design in summary.best} <= set(batches)
    singles, _ = execute(from_text(text), output=False, keep="top:4")
    by_name = dict(zip(["gpt-3-13b", "megatron-1t"], batches, strict=True))
    assert singles.global_batch.values.tolist() == [by_name[name] for name in singles.workload.values.tolist()]


def test_workloads_of_unlike_structure():
    """A dense model and a mixture: a grid of each, the batch of each along the workload."""
    text = """
[system]
name = "h100-sxm-80gb"
n_devices = 64
[axes]
workload = ["llama-3-8b", "mixtral-8x7b"]
tp = [2]
"""
    grid, _ = plan(from_text(text))
    assert grid.members
    results, _ = execute(grid, output=False)
    for name in ("global_batch", "seq_len"):
        own = [
            float(getattr(dse.design(model, "h100-sxm-80gb").workload, name))
            for model in ("llama-3-8b", "mixtral-8x7b")
        ]
        np.testing.assert_array_equal(np.broadcast_to(results[name], 2), own)
        if own[0] != own[1]:
            assert unlike_work(grid, 0)[name] == own[0]


@pytest.mark.parametrize(("stated", "axes", "expected"), [
    ("", "", "each request: 1,024 prompt tokens and 1,024 output tokens; concurrency 32"),
    ("concurrency = 64", "", "each request: 1,024 prompt tokens and 1,024 output tokens; concurrency 64"),
    ("", "concurrency = [1, 64]", "each request: 1,024 prompt tokens and 1,024 output tokens"),
    ("", "prompt_tokens = [128, 256]", "each request: 1,024 output tokens; concurrency 32"),
    ('load = "rate"\nrequest_rate = 2.5', "",
     "each request: 1,024 prompt tokens and 1,024 output tokens; 2.5 requests/s"),
    ('load = "offline"', "", "each request: 1,024 prompt tokens and 1,024 output tokens; as many in flight as fit"),
])  # fmt: skip
def test_requests(stated, axes, expected):
    assert line(serving(stated, axes)) == expected


def test_coordinates_of_requests():
    results, _ = execute(from_text(serving()), output=False)
    assert (results.prompt_tokens.item(), results.output_tokens.item(), results.concurrency.item()) == (1024, 1024, 32)
    assert "request_rate" not in results.variables and "global_batch" not in results.variables
    rate, _ = execute(from_text(serving('load = "rate"\nrequest_rate = 0.1')), output=False)
    assert "concurrency" not in rate.variables, "what this load does not read"
    assert rate.request_rate.item() == 0.1


def test_a_search_says_it_too(tmp_path):
    file = tmp_path / "search.toml"
    file.write_text(TRAINING + '[search]\nmethod = "random"\nevaluations = 64\nseeds = 1\n')
    results = run(file, False)
    assert results.global_batch.dims == () and results.seq_len.item() == 2048
    assert "cautions" in results.attrs
