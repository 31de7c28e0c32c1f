"""Launch lines behind every door: standard output is what people paste."""

from __future__ import annotations

import dse
from dse.cli.service.worker import answer
from tests.contract.capabilities.claims import assert_refused, assert_renderers_agree, run

WORDS = ("launch", "-w", "llama-3-70b", "-s", "h100", "--for", "vllm", "--set", "tp=8")
LONE = ("launch", "-w", "llama-3-70b", "-s", "h100", "--for", "sglang", "--set", "tp=1")


def test_the_line_is_the_text():
    report = dse.launch(workload="llama-3-70b", system="h100", tool="vllm", tp=8)
    assert_renderers_agree(report, *WORDS)
    printed = run(*WORDS).stdout
    assert printed.endswith(f"{report['line']}\n") and printed.startswith("# load of the design: ")
    assert all(line.startswith("# ") for line in printed.removesuffix(f"{report['line']}\n").splitlines())
    request = {"workload": "llama-3-70b", "system": "h100", "for": "vllm", "set": {"tp": 8}}
    assert answer("launch", request)["document"] == report.to_dict()
    assert dse.launch("llama-3-70b", "h100", "vllm", settings=["tp=8"])["line"] == report["line"]


def test_what_cannot_run_is_said_aside():
    report = dse.launch("llama-3-70b", "h100", "sglang", tp=1)
    ended = run(*LONE)
    assert ended.exit_code == report.status == 1 and not report["feasible"]
    assert "cannot run" in report.notes and "cannot run" in ended.stderr and "cannot run" not in ended.stdout


def test_a_file_for_machines_has_no_comments():
    report = dse.launch("llama-3-8b", "eos", "deepspeed", n_devices=64, zero_stage=3, global_batch=512, form="file")
    assert str(report).startswith("{") and run(
        *("launch", "-w", "llama-3-8b", "-s", "eos", "-n", 64, "--for", "deepspeed", "--format", "file"),
        *("--set", "zero_stage=3", "--set", "global_batch=512"),
    ).stdout.startswith("{")


def test_settings_override_the_arguments_of_a_file(tmp_path):
    (tmp_path / "line.sh").write_text("vllm serve m -tp 4")
    report = dse.launch("llama-3-70b", "h100", "vllm", arguments=tmp_path / "line.sh", tp=8)
    assert "--tensor-parallel-size 8" in report["line"]
    assert "tp: the arguments state 4, --set 8, which counts" in report.notes
    assert "error" in answer("launch", {"workload": "llama-3-8b", "system": "h100", "for": "vllm", "arguments": "x"})


def test_bad_input_is_told():
    assert_refused(lambda: dse.launch("llama-3-70b", "h100", "vlm"), "did you mean 'vllm'?")
    assert_refused(lambda: dse.launch("llama-3-70b", "h100", "vllm", role="both"), "--role")
    assert_refused(lambda: dse.launch("llama-3-70b", "h100", "vllm", tpp=8), "tpp")
    assert_refused(lambda: dse.launch("llama-3-70b", "h100"), "tool")
