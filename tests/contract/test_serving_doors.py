"""Serving through the doors of training: command line, figures, search; one small grid, compiled once a mode."""

import json

import pytest

import dse
from dse.doors import SERVING
from dse.spec import sweep as specs
from dse.sweep import execute
from dse.views import plot
from tests.contract.cli.test_cli import assert_four_parts, command  # noqa: F401

SWEEP = """
[workload]
name = "llama-3-8b"
[system]
name = "h100"
[mapping]
precision = "fp8"
[axes]
tp = [1, 2]
concurrency = [4, 64]
[serving]
prompt_tokens = 512
[constraints]
all = ["time_to_first_token <= '1 s'"]
[objective]
maximize = ["output_tokens_per_second_per_user", "output_tokens_per_second_per_device"]
"""

EVALUATE = ["evaluate", "-w", "llama-3-8b", "-s", "h100", "--serving", "--set", "concurrency=64"]


@pytest.mark.parametrize(("keep", "kinds"), [
    ("all", ["breakdown", "pareto"]), ("best", ["breakdown", "pareto", "shares", "bounds"]),
    ("pareto", ["breakdown", "pareto"]), ("top:3", ["breakdown", "pareto"]),
])  # fmt: skip
def test_figures_suit_every_way_to_keep(keep, kinds):
    spec = specs.from_text(SWEEP)
    assert spec.study is SERVING
    results, summary = execute(spec, keep=keep, output=False)
    assert summary.n_feasible == 4 and plot.suited(results) == kinds
    texts = [
        text.get_text()
        for kind in kinds
        for axes in plot.KINDS[kind](results).axes
        for text in (axes.xaxis.label, axes.yaxis.label)
    ]
    assert any("time per output token" in text for text in texts)


def test_evaluate_explains_serving(command):  # noqa: F811
    ended = command(*EVALUATE, "--show", "all")
    assert ended.status == 0 and ended.err == ""
    for text in (
        "time per output token",
        "time to first token",
        "of 71.2 GiB",
        "decode attention",
        "prefill attention",
        "elasticities of request latency",
        "1024 prompt tokens",
        "host_overlap",
    ):
        assert text in ended.out
    assert "engine steps: time by bound" in ended.out
    assert "80 % interval" in command(*EVALUATE, "--uncertainty").out
    document = json.loads(command(*EVALUATE, "--json", "--metric", "time_per_output_token").out)
    assert document["elasticity_of"] == "time_per_output_token" and document["metrics"]["requests_per_second"] > 0.0
    phases = {row["section"]: row for row in document["operators"] if row["name"] == "ffn_up"}
    assert phases["decode"]["forward_bound"] == "memory" and phases["prefill"]["forward_bound"] == "compute"


@pytest.mark.parametrize(("workload", "system", "setting"), [
    ("llama-3-8b", "rtx-4090", {"weight_bytes": "0.53 B"}), ("llama-3-8b", "h100", {"precision": "fp8"}),
    ("mixtral-8x7b", "h100", {"tp": 4}),
])  # fmt: skip
def test_operators_add_up_to_the_step(workload, system, setting):
    """Of one request alone: rows of operators are those of the engine's kernels, which read the weights once."""
    design = dse.design(workload, system, "vllm", concurrency=1, **setting)
    told = dse.explain(design, "request_latency", SERVING)
    rows = [o for o in told.operators if o.section == "decode"]
    times = {o.name: o.forward_time * (1.0 if o.name == "head" else design.workload.n_layers) for o in rows}
    attention = times.pop("decode_attention")
    assert sum(times.values()) == pytest.approx(told.metrics["time_per_output_token_matrix"], rel=0.01)
    assert attention == pytest.approx(told.metrics["time_per_output_token_attention"], rel=0.03)
    assert {o.forward_bound for o in rows if o.bytes > 1e6} == {"memory"}


@pytest.mark.parametrize(("arguments", "wanted"), [
    ([*EVALUATE, "--set", "recompute=full"], ["recompute", "serving"]),
    ([*EVALUATE, "--set", "matrix_efficiency=0.5"], ["serving does not read", "write gemm_efficiency"]),
    ([*EVALUATE, "--set", "gemm_floor=1 us"], ["gemm_floor, which serving does not read"]),
    ([*EVALUATE[:5], "--set", "gemm_memory=0.5"], ["training does not read", "write memory_efficiency"]),
    ([*EVALUATE[:5], "--set", "concurrency=64"], ["concurrency", "--serving"]),
    ([*EVALUATE, "--metric", "time_per_output_tokens"], ["time_per_output_token"]),
    ([*EVALUATE, "--set", "concurency=4"], ["concurrency"]),
])  # fmt: skip
def test_bad_input_is_told_in_four_parts(command, arguments, wanted):  # noqa: F811
    assert_four_parts(command(*arguments), *wanted)


@pytest.mark.parametrize(("old", "new", "wanted"), [
    ("tp = [1, 2]", "tp = [1, 2]\nmicro_batch = [1, 2]", "micro_batch, which serving does not read"),
    ("tp = [1, 2]", "tp = [1, 2]\nmemory_efficiency = [0.5, 0.9]", "; write gemm_memory"),
    ("[serving]\nprompt_tokens = 512", "", "add a section \\[serving\\]"),
    ("prompt_tokens = 512", "prompt_token = 512", "prompt_tokens"),
    ("time_to_first_token <=", "time_to_first_tokens <=", "time_to_first_token"),
])  # fmt: skip
def test_typos_in_sweeps_are_told(old, new, wanted):
    with pytest.raises(dse.InputError, match=wanted):
        specs.from_text(SWEEP.replace(old, new))


def test_a_design_of_which_nothing_else_says_that_it_serves():
    """Stack and records are those of one that serves, as ``dse evaluate --serving`` has them."""
    made = dse.design(kind="serving", workload="llama-3-70b", system="h100", tp=8)
    stated = dse.design("llama-3-70b", "h100", tp=8, concurrency=made.workload.requests.concurrency)
    assert dse.serve(made).request_latency == dse.serve(stated).request_latency
    assert dse.design("llama-3-70b", "h100", tp=8).workload.requests is None
    with pytest.raises(dse.InputError, match="kind"):
        dse.design("llama-3-70b", "h100", kind="inference")
