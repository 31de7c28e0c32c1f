"""Readers of files of tools: what ran and what was measured, as rows of the tables that are known."""

from __future__ import annotations

import csv
import gzip
import json
import re
import sqlite3

import pytest
from hypothesis import given, settings, strategies as st
from typer.testing import CliRunner

import dse
from dse import validate
from dse.cli import app
from dse.doors import TRAINING
from dse.errors import InputError
from dse.measured import predict_cases, profiles, read_cases
from dse.measured.comparison import write_lines
from dse.measured.decisions.evidence import compared_rows
from dse.measured.profiles import kernels
from dse.measured.profiles.run import device_slug
from dse.tools import launch
from tests.pages import ROOT, blocks, commands
from tests.unit.measured import profiles as files


@pytest.fixture
def put(tmp_path):
    """Writes a file and gives its path."""

    def write(text, name="run.log"):
        path = tmp_path / name
        path.write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")
        return path

    return write


def figures(rows):
    """Measured name → value and unit, of rows of one run."""
    return {row["metric"]: (float(row["value"]), row["unit"]) for row in rows}


def test_megatron_says_arguments_and_the_median_after_two_steps(put):
    found = profiles.read([put(files.megatron([9000, 4000, 1100, 1120, 1090]))])
    rows = found.tables["steps"]
    assert figures(rows) == {
        "iteration_time": (1100.0, "ms"),
        "model_tflops_per_gpu": (180.1, "TFLOP/s"),
        "peak_memory": (30000.0, "MiB"),
    }
    said = {
        "tp": "8", "pp": "1", "micro_batch": "4", "global_batch": "4", "seq_len": "2048", "layers_used": "48",
        "hidden": "6144", "heads": "64", "kv_heads": "64", "ffn": "24576", "vocab": "51200", "n_gpus": "8",
        "recompute": "selective", "precision": "bf16", "seq_parallel": "1", "zero_stage": "1", "overlap_dp": "0",
    }  # fmt: skip
    assert said.items() <= rows[0].items()
    assert found.missing == {"the system": "-s SYSTEM"}
    assert "median of 3 timed steps" in found.notes[0] and "after 2 of warm-up" in found.notes[0]


def test_what_megatron_prints_as_off_is_off_and_what_it_does_not_print_is_open(put):
    off = files.MEGATRON | {"recompute_granularity": "None", "sequence_parallel": "False", "bf16": "False"}
    (row, *_) = profiles.read([put(files.megatron([1, 1, 1], off))]).tables["steps"]
    assert (row["recompute"], row["seq_parallel"], row["precision"]) == ("none", "0", "fp32")
    cut = {"tensor_model_parallel_size": "8"}
    (row, *_) = profiles.read([put(files.megatron([1, 1, 1], cut))]).tables["steps"]
    assert not {"recompute", "seq_parallel", "precision", "zero_stage", "kv_heads"} & row.keys()


def test_a_shape_that_arguments_do_not_tell_whole_asks_for_the_model(put):
    for change in ({"swiglu": "True"}, {"num_experts": "64"}):
        found = profiles.read([put(files.megatron([1, 1, 1], files.MEGATRON | change))], {"system": "a100"})
        assert list(found.missing.values()) == ["-w MODEL"]
    assert not profiles.read([put(files.megatron([1, 1, 1]))], {"system": "a100"}).missing


def test_nemo(put):
    (time, memory) = profiles.read([put(files.nemo([9, 5, 2, 2.1, 2.2]))]).tables["steps"]
    assert figures([time, memory]) == {"iteration_time": (2.1, "s"), "peak_memory": (70833405952.0, "B")}
    assert (time["tp"], time["seq_parallel"], time["global_batch"]) == ("4", "1", "128")


def test_of_a_batch_that_grows_the_last_one_counts(put):
    text = files.megatron([5000, 4000, 500, 510, 505, 1100, 1120, 1090, 1110])
    small, mark, large = text.partition("iteration        6/")
    assert mark
    grown = small + mark + large.replace("batch size:     4", "batch size:     8")
    row = profiles.read([put(grown)]).tables["steps"][0]
    assert (row["global_batch"], float(row["value"])) == ("8", 1100.0)


def test_nemo_counts_steps_over_epochs(put):
    text = files.nemo([9, 5, 2, 2.1]) + files.nemo([2.2, 2.3, 2.4, 2.5])
    again = text[: len(text) // 2] + text[len(text) // 2 :].replace("global_step: ", "global_step: 1")
    assert float(profiles.read([put(again)]).tables["steps"][0]["value"]) == 2.25


def test_torchtitan(put):
    found = profiles.read([put(files.torchtitan([500, 4000, 5700, 5800, 5750]))])
    rows = found.tables["steps"]
    assert figures(rows) == {
        "tokens_per_s_per_gpu": (5750.0, "token/s"),
        "mfu": (30.33, "%"),
        "peak_memory": (64.0, "GiB"),
    }
    said = {
        "gpu": "h100-sxm-80gb",
        "model": "llama3 8B",
        "n_gpus": "8",
        "zero_stage": "3",
        "micro_batch": "2",
        "global_batch": "16",
        "seq_len": "8192",
        "recompute": "selective",
    }
    assert said.items() <= rows[0].items() and not found.missing
    eager = files.torchtitan([1, 1, 1]).replace("torch.compile", "").replace("Applied selective", "Applied no")
    (row, *_) = profiles.read([put(eager)]).tables["steps"]
    assert rows[0]["software"] == "torchtitan" and (row["software"], row["recompute"]) == ("torchtitan-eager", "none")


def test_maxtext(put):
    found = profiles.read([put(files.maxtext([9, 6, 5.6, 5.7, 5.65]))], {"system": "tpu-v5p"})
    row = found.tables["steps"][0]
    assert figures(found.tables["steps"])["iteration_time"] == (5.65, "s")
    said = {
        "model": "llama2-7b",
        "n_gpus": "16",
        "seq_len": "4096",
        "global_batch": "64",
        "tp": "1",
        "pp": "1",
        "micro_batch": "4",
        "recompute": "full",
        "precision": "bf16",
        "zero_stage": "3",
    }
    assert said.items() <= row.items() and not found.missing


def test_vllm_and_genai_perf_tell_the_same_of_the_same_run(put):
    result = files.VLLM | {"max_concurrency": 8, "mean_e2el_ms": 1700.5, "mean_ttft_ms": 240.25}
    ours = profiles.read([put(result, "vllm.json")]).tables["serving"]
    theirs = profiles.read([put(files.GENAI_PERF, "genai.json")]).tables["serving"]
    same = figures(theirs)
    assert same == {name: value for name, value in figures(ours).items() if name != "itl_median"}
    assert same["tpot_mean"] == (11.5, "ms") and same["output_throughput_total"] == (512.0, "token/s")
    for column, value in {"isl": "1024", "osl": "128", "batch": "8", "batch_kind": "concurrency"}.items():
        assert ours[0][column] == theirs[0][column] == value


def test_requests_at_a_rate_count_by_littles_law_and_all_at_once_have_no_latency(put):
    (*rows,) = profiles.read([put(files.SGLANG, "bench.jsonl")]).tables["serving"]
    assert rows[0]["batch"] == "3"  # 2 requests/s of 1.5 s each
    assert set(figures(rows)) == {"tpot_mean", "itl_median", "output_throughput_total"}
    assert (rows[0]["tp"], rows[0]["n_gpus"], rows[0]["model"]) == ("2", "2", "Qwen/Qwen3-8B")
    (row,) = profiles.read([put(files.VLLM | {"max_concurrency": None}, "once.json")]).tables["serving"]
    assert row["metric"] == "output_throughput_total" and row["batch_kind"] == "offline" and "batch" not in row
    few = files.VLLM | {"max_concurrency": None, "completed": 100, "total_input_tokens": 102400}
    (row,) = profiles.read([put(few, "few.json")]).tables["serving"]
    assert (row["batch"], row["batch_kind"]) == ("100", "static batch")


def test_answers_that_came_whole_have_no_first_token(put):
    whole = {"time_to_first_token": files.GENAI_PERF["request_latency"], "inter_token_latency": None}
    rows = profiles.read([put(files.GENAI_PERF | whole, "whole.json")]).tables["serving"]
    assert set(figures(rows)) == {"latency_total", "output_throughput_total"}


def test_more_limit_than_requests_is_as_many_as_requests(put):
    rows = profiles.read([put(files.VLLM | {"max_concurrency": 1000}, "few.json")]).tables["serving"]
    assert rows[0]["batch"] == "320"


@pytest.mark.parametrize("test", ["all_reduce", "reduce_scatter", "all_gather", "alltoall", "sendrecv"])
def test_nccl_tests(put, test):
    (small, large) = profiles.read([put(files.nccl(test))]).tables["collectives"]
    assert small["collective"] == {"sendrecv": "send_recv"}.get(test, test)
    assert (small["bytes"], float(small["latency_ms"]), small["num_gpus"]) == ("33554432", 0.1805, "8")
    assert large["system"] == "h100-sxm-80gb" and float(large["latency_ms"]) == 3.9154
    unnamed = profiles.read([put(files.nccl(test, named=False))])
    if test in ("all_reduce", "reduce_scatter"):  # by the ratio of its bandwidths
        assert unnamed.tables["collectives"][0]["collective"] == test
    else:
        assert list(unnamed.missing.values()) == ["--set collective=…"]


def test_several_tests_in_one_output_are_apart(put):
    text = files.nccl("all_reduce") + files.nccl("all_gather", ranks=4)
    rows = profiles.read([put(text)]).tables["collectives"]
    said = [(row["collective"], row["num_gpus"]) for row in rows]
    assert said == [("all_reduce", "8")] * 2 + [("all_gather", "4")] * 2
    alone = files.nccl().replace("Rank  1 ", "Rank  0 ")  # built without MPI: each process for itself
    assert "-n DEVICES" in profiles.read([put(alone)]).missing.values()


#: What older versions leave out of files.nccl(), of headings and of lines.
OLDER = {
    "without root": [(r" root ", " "), (r"(float +\w+) +-1", r"\1")],
    "without redop and root": [(r" redop +root ", " "), (r"float +\w+ +-1", "float")],
}


@pytest.mark.parametrize("version", OLDER)
@pytest.mark.parametrize("test", ["all_reduce", "all_gather", "alltoall"])
def test_columns_of_nccl_tests_are_those_of_the_heading(put, test, version):
    text = files.nccl(test)
    for old, new in OLDER[version]:
        text = re.sub(old, new, text)
    rows, known = (profiles.read([put(one)]).tables["collectives"] for one in (text, files.nccl(test)))
    assert [float(row["latency_ms"]) for row in rows] == [0.1805, 3.9154]
    assert [row | {"url_or_repo_path": ""} for row in rows] == [row | {"url_or_repo_path": ""} for row in known]


def test_a_test_named_after_its_devices_is_named(put):
    text = files.nccl("alltoall").replace("# Collective test starting: alltoall_perf\n", "")
    late = text.replace("#\n#       size", "# Collective test starting: alltoall_perf\n#       size")
    both = late + "# Collective test concluded: alltoall_perf\n" + text
    found = profiles.read([put(both)], {"collective": ""})
    assert [row.get("collective", "") for row in found.tables["collectives"]] == ["alltoall"] * 2 + [""] * 2


@pytest.mark.parametrize("digits", [("35.20", "0.11"), ("0.47", "0.00"), ("137.7", "121.83"), ("1.3e+07", "661.24")])
def test_bandwidths_agree_with_times_as_far_as_they_are_printed(put, digits):
    """4,096 B in 35.20 us are 0.116 GB/s, printed 0.12: 0.11 is 5 % off, less than half of its last digit and 2 %."""
    time, bandwidth = digits
    size = {"35.20": 4096, "0.47": 2, "137.7": 16777216, "1.3e+07": 8589934592000}[time]
    line = f"{size} {size // 4} float none -1 {time} {bandwidth} {bandwidth} 0 N/A N/A N/A N/A\n"
    text = files.nccl("alltoall").partition("    33554432")[0] + line
    (row,) = profiles.read([put(text)]).tables["collectives"]
    assert float(row["latency_ms"]) == pytest.approx(1e-3 * float(time))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("root ", "", "line 17: got 33554432 B in -1 us beside an algbw of 180.50 GB/s"),  # not of its heading
        (" 180.50 ", " 188.50 ", "33554432 B in 188.50 us beside an algbw of 185.90"),  # 4 % off
        ("busbw", "rate", "a heading without busbw"),
        ("all_reduce_perf", "reduce_perf", "the test reduce"),
        ("all_reduce_perf", "broadcast_perf", "the test broadcast"),
        ("   -1 ", "    0 ", None),  # of a test whose name says that it has no root
    ],
)
def test_times_that_are_none_and_tests_of_other_kinds_are_refused(put, tmp_path, old, new, told):
    path, folder = put(files.nccl().replace(old, new), "nccl.txt"), tmp_path / "own"
    if told is None:
        assert profiles.read([path]).tables["collectives"]
        return
    with pytest.raises(InputError, match=re.escape(told)) as refused:
        profiles.read([path])
    assert str(path) in refused.value.where
    words = ["calibrate", "--add", "--profile", str(path), "--catalog", str(folder), "-o", str(tmp_path / "a.toml")]
    done = CliRunner().invoke(app, [*words, "--set", "collective=all_reduce"])
    assert done.exit_code == 2 and not (tmp_path / "a.toml").exists() and not folder.exists()


def test_a_root_without_a_name_is_of_a_reduce(put):
    with pytest.raises(InputError, match="the test reduce;"):
        profiles.read([put(files.nccl(named=False).replace("   -1 ", "    0 "))], {"collective": "all_reduce"})


def test_messages_of_nccl_within_lines_are_taken_out(put):
    whole = files.nccl()
    of_lines = "node1:7 [0] NCCL INFO Launch mode Parallel\n2025-01-01 node1:7:7 [1] NCCL INFO AllReduce: opCount 0\n"
    glued = files.nccl_glued().replace("#        (B)", f"{of_lines}#        (B)")
    rows, known = (profiles.read([put(one)]).tables["collectives"] for one in (glued, whole))
    assert glued.count("NCCL INFO") == 7
    assert [row["latency_ms"] for row in rows] == [row["latency_ms"] for row in known]


def test_collectives_over_nodes_are_those_of_nodes(put):
    apart = files.nccl().replace("on     node1 device  4", "on     node2 device  0")
    for device in (5, 6, 7):
        apart = apart.replace(f"node1 device  {device}", f"node2 device  {device - 4}")
    rows = profiles.read([put(apart)]).tables["collectives"]
    assert rows[0]["num_gpus"] == "8" and rows[0]["devices_per_node"] == "4"
    path = put("", "rows.csv")
    write_lines(path, rows, True)
    within = put("", "within.csv")
    write_lines(within, [row | {"devices_per_node": "8"} for row in rows], True)
    times = [[p.metrics["kernel_time"] for p in predict_cases(read_cases(one))] for one in (path, within)]
    assert all(far > near > 0.0 for far, near in zip(*times, strict=True))


def test_kineto_sums_kernels_and_finds_gaps(put):
    found = profiles.read([put(files.kineto(), "trace.json")])
    (row,) = found.tables["steps"]
    assert figures([row]) == {"iteration_time": (10.0, "ms")}
    parts = {"gemm": 5.0, "attention": 1.0, "nccl": 1.5, "exposed_nccl": 1.0, "elementwise": 0.5, "gap": 2.5}
    assert {name: float(row[f"{name}_ms"]) for name in parts} == pytest.approx(parts)
    assert (row["gpu"], row["n_gpus"]) == ("h100-sxm-80gb", "8")
    assert any("allreduce of 2,000 B over 8 ranks: 1 a step, 1.5 ms" in note for note in found.notes)


def test_kineto_reads_gzip_and_a_trace_longer_than_its_buffer(tmp_path, put):
    plain = profiles.read([put(files.kineto(8000), "long.json")]).tables["steps"]
    packed = tmp_path / "long.json.gz"
    packed.write_bytes(gzip.compress(files.kineto(8000).encode()))
    (again,) = profiles.read([packed]).tables["steps"]
    assert (tmp_path / "long.json").stat().st_size > 8 << 20
    assert again | {"url_or_repo_path": ""} == plain[0] | {"url_or_repo_path": ""}
    assert float(again["gap_ms"]) == pytest.approx(2.5)


def test_nsight_reads_the_first_process_of_an_export(tmp_path):
    path = tmp_path / "report.sqlite"
    files.nsight(path)
    (row,) = profiles.read([path]).tables["steps"]
    assert figures([row]) == {"iteration_time": (10.0, "ms")} and row["gpu"] == "h100-sxm-80gb"
    parts = {"gemm": 6.5, "compute": 6.5, "nccl": 1.0, "exposed_nccl": 1.0, "gap": 2.5}
    assert {name: float(row[f"{name}_ms"]) for name in parts} == pytest.approx(parts)


@pytest.mark.parametrize(
    "change",
    [
        "DROP TABLE StringIds",
        "DROP TABLE NVTX_EVENTS",
        "DELETE FROM NVTX_EVENTS",
        "ALTER TABLE NVTX_EVENTS DROP COLUMN textId",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 'x'",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid = 'x'",
        "",
    ],
)
def test_foreign_and_damaged_databases_are_refused(tmp_path, change):
    path = tmp_path / "report.sqlite"
    files.nsight(path)
    if change:
        database = sqlite3.connect(path)
        database.execute(change)
        database.commit()
        database.close()
    else:
        content = path.read_bytes()
        path.write_bytes(content[:4096] + b"\x7f" * 4096 + content[8192:])
    with pytest.raises(InputError):
        profiles.read([path])


def test_ranks_of_one_run_count_once_with_the_slowest(put):
    first = put(files.torchtitan([500, 4000, 5700, 5800, 5750], 0), "0.log")
    second = put(files.torchtitan([500, 4000, 5710, 5600, 5740], 1), "1.log")
    found = profiles.read([first, second, first])
    assert figures(found.tables["steps"])["tokens_per_s_per_gpu"] == (5700.0, "token/s")
    assert any("2 files of one configuration count as ranks" in note for note in found.notes)
    both = put(first.read_text() + second.read_text(), "both.log")
    assert figures(profiles.read([both]).tables["steps"]) == figures(found.tables["steps"])


def test_equal_results_count_once_and_others_do_not(put):
    one, copy = put(files.VLLM, "1.json"), put(files.VLLM, "2.json")
    assert len(profiles.read([one, copy]).tables["serving"]) == 4
    other = put(files.VLLM | {"mean_tpot_ms": 12.0}, "3.json")
    assert len(profiles.read([one, other]).tables["serving"]) == 8


def test_order_of_lines_changes_nothing(put):
    lines = files.megatron([9000, 4000, 1100, 1120, 1090]).splitlines(keepends=True)
    straight = profiles.read([put("".join(lines))]).tables
    assert profiles.read([put("".join(lines[:8] + lines[8:][::-1]))]).tables == straight


@pytest.mark.parametrize("name", ["1t", "zero"])
def test_a_launch_line_in_a_log_reads_back_as_its_design(put, name):
    design = {
        "1t": lambda: dse.design(
            "gpt-3-175b",
            "selene",
            tp=8,
            pp=8,
            dp=4,
            micro_batch=2,
            recompute="full",
            sequence_parallel=1,
            zero_stage=1,
            global_batch=512,
        ),
        "zero": lambda: dse.design("llama-3-8b", "h100", tp=2, dp=8, recompute="selective", zero_stage=1),
    }[name]()
    text = launch(design, "megatron-lm", TRAINING).text + "\n" + files.megatron([9, 9, 7], {})
    row = profiles.read([put(text.replace("global batch size", "batch"))]).tables["steps"][0]
    for column, leaf in {"tp": "tp", "pp": "pp", "micro_batch": "micro_batch", "zero_stage": "zero_stage"}.items():
        assert float(row[column]) == float(getattr(design.mapping, leaf))
    assert float(row["global_batch"]) == float(design.workload.global_batch)
    assert float(row["layers_used"]) == float(design.workload.n_layers)
    assert row["recompute"] == {"1t": "full", "zero": "selective"}[name]


def test_a_trace_of_dse_reads_back_as_its_design(tmp_path):
    path, out = tmp_path / "step.json", tmp_path / "rows.csv"
    asked = ["-w", "gpt-3-175b", "-s", "selene", "--set", "tp=8", "--set", "pp=8", "--set", "recompute=full"]
    assert CliRunner().invoke(app, ["trace", *asked, "-o", str(path)]).exit_code == 0
    done = CliRunner().invoke(app, ["validate", "--profile", str(path), "--rows", str(out)])
    assert done.exit_code == 0, done.output
    row = next(csv.DictReader(out.read_text().splitlines()))
    assert (row["tp"], row["pp"], row["recompute"], row["model"]) == ("8", "8", "full", "gpt-3-175b")
    report = validate(out)
    assert report["all"]["step_time"]["mape"] < 1e-3
    with pytest.raises(InputError, match="the trace of a prediction"):
        compared_rows([out], "here")


def test_all_that_is_missing_is_asked_for_at_once_and_what_is_stated_counts(put, tmp_path):
    path, rows = put(files.kineto(), "trace.json"), tmp_path / "rows.csv"
    done = CliRunner().invoke(app, ["validate", "--profile", str(path), "--rows", str(rows)])
    assert done.exit_code == 2
    assert "add -w MODEL --set global_batch=… --set seq_len=…" in " ".join(done.output.split())
    assert rows.exists()  # to be filled in
    stated = ["-w", "llama-3-8b", "-s", "h100", "-n", "8", "--set", "global_batch=8", "--set", "seq_len=8192"]
    done = CliRunner().invoke(app, ["validate", "--profile", str(path), *stated, "--json"])
    assert done.exit_code == 0, done.output
    assert '"predicted": 1' in done.output


@pytest.mark.parametrize(
    "words",
    [["--set", "tp=8"], ["--rows", "r.csv"], ["--profile", "--set", "flops=1"], ["--profile", "--set", "tp"],
     ["--profile", "-w", "no-such-model"], ["--profile", "-s", "no-such-system"]],
)  # fmt: skip
def test_options_that_cannot_be_are_refused(put, words):
    done = CliRunner().invoke(app, ["validate", str(put(files.megatron([1, 1, 1]))), *words])
    assert done.exit_code == 2 and "fix" in done.output


def test_the_recipe_works_as_it_is_written(put, monkeypatch, tmp_path):
    (log,) = blocks(ROOT / "docs" / "recipes.md", "text")
    put(log.text)
    monkeypatch.chdir(tmp_path)
    said = [one for block in blocks(ROOT / "docs" / "recipes.md", "console") for one in commands(block)]
    own = [one.words[1:] for one in said if {"run.log", "rows.csv"} & set(one.words)]
    assert len(own) == 3
    for words in own:
        done = CliRunner().invoke(app, [*words, "--json"])
        assert done.exit_code == 0, done.output
        assert words[0] == "diagnose" or json.loads(done.stdout)["all"]["step_time"]["predicted"] == 1
    (row,) = csv.DictReader((tmp_path / "rows.csv").read_text().splitlines())
    assert (row["value"], row["unit"], row["n_gpus"]) == ("1187.9", "ms", "8")


def test_what_is_stated_counts_and_a_difference_is_told(put):
    log = put(files.torchtitan([1, 1, 1]))
    found = profiles.read([log], {"model": "llama-3-8b", "tp": "2"})
    assert found.tables["steps"][0]["tp"] == "2"
    told = [note for note in found.notes if "which counts" in note]
    assert told == [f"tp: {log} says 1, the command 2, which counts"]
    same = profiles.read([put(files.nccl(), "nccl.txt")], {"system": "h100"})
    assert not any("which counts" in note for note in same.notes)


def test_pipelines_that_say_no_chunks_are_not_interleaved(tmp_path):
    path = tmp_path / "kineto.json"
    path.write_text(files.kineto(), encoding="utf-8")
    for stated, cell in (({}, "1"), ({"vp": "4"}, "4"), ({"schedule": "dualpipe"}, None)):
        found = profiles.read([path], {"pp": "2"} | stated)
        assert {row.get("vp") for row in found.tables["steps"]} == {cell}
        assert any("taken as 1: vp" in note for note in found.notes) == (not stated)


def test_calibrate_reads_profiles_too(put, tmp_path):
    paths = []
    for micro in (1, 2, 4, 8):
        arguments = files.MEGATRON | {"micro_batch_size": str(micro), "global_batch_size": str(2 * micro)}
        text = files.megatron([9000, 4000, 700 * micro + 90], arguments)
        paths.append(str(put(text.replace("batch size:     4", f"batch size: {2 * micro}"), f"{micro}.log")))
    out = tmp_path / "fitted.toml"
    done = CliRunner().invoke(app, ["calibrate", "--profile", *paths, "-s", "selene", "-o", str(out)])
    assert done.exit_code == 0, done.output
    assert "profile megatron-lm" in out.read_text()


@pytest.mark.parametrize(
    "text",
    ["", "hello\n", "\x00\x01\x02", '{"a": 1}', "{", '{"traceEvents": [', '{"traceEvents": [{"ph": "X"', "[1, 2]",
     '{"traceEvents": []}', "{" * 100_000, '{"traceEvents": [' + "[" * 100_000, files.megatron([1.0, 2.0]),
     '{"completed": 0, "output_throughput": 1}', '{"completed": NaN, "output_throughput": Infinity}',
     '{"traceEvents": [], "otherData": {"leaves": {}}}', '{"otherData": {"leaves": {}}, "traceEvents": []}',
     '{"otherData": {"leaves": {"mapping.recompute": 99}}, "traceEvents": []}',
     '{"otherData": {"leaves": {"mapping.recompute": 1e400, "mapping.tp": %s}}, "traceEvents": []}' % (400 * "9"),
     "# nThread 1 nGpus 8\n"],
)  # fmt: skip
def test_foreign_and_damaged_files_are_refused_in_four_parts(put, text):
    with pytest.raises(InputError):
        profiles.read([put(text, "file.json")])


def test_long_lines_take_no_time(put):
    long = "a" + " " * 60_000 + "b\n" + "name " + "." * 60_000 + " " * 5_000 + "\n"
    assert profiles.read([put(long + files.megatron([1, 1, 1]) + long)]).tables["steps"]
    many = "\n".join([json.dumps(files.VLLM | {"duration": float(i)}) for i in range(1, 2000)])
    assert len(profiles.read([put(many, "many.jsonl")]).tables["serving"]) == 4  # equal but for a time that is not read


def test_a_damaged_archive_a_folder_and_no_file_are_refused(tmp_path):
    packed = tmp_path / "trace.json.gz"
    packed.write_bytes(gzip.compress(files.kineto().encode())[:-20])
    for path in (packed, tmp_path, tmp_path / "none.log"):
        with pytest.raises(InputError):
            profiles.read([path])


SAMPLES = {
    "megatron.log": files.megatron([9000, 4000, 1100, 1120, 1090]),
    "nemo.log": files.nemo([9, 5, 2, 2.1, 2.2]),
    "titan.log": files.torchtitan([500, 4000, 5700, 5800, 5750]),
    "maxtext.log": files.maxtext([9, 6, 5.6, 5.7, 5.65]),
    "vllm.json": json.dumps(files.VLLM),
    "sglang.jsonl": json.dumps(files.SGLANG) + "\n" + json.dumps(files.SGLANG),
    "genai.json": json.dumps(files.GENAI_PERF),
    "nccl.txt": files.nccl(),
    "kineto.json": files.kineto(),
    "smi.csv": files.nvidia_smi(),
    "dmon.txt": files.dcgmi(),
    "exporter.txt": files.dcgm_exporter(),
    "vllm.log": files.VLLM_START,
    "sglang.log": files.SGLANG_START,
    "trtllm.log": files.TENSORRT_LLM_START,
    "tpu.json": files.jax_device(),
    "gpu.json": files.jax_device("GPU"),
    "rccl.txt": files.RCCL,
}

#: Samples that tell of a run of another file.
OF_RUNS = ("smi.csv", "dmon.txt", "exporter.txt")


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(SAMPLES)), st.data())
def test_mutants_are_read_or_refused(tmp_path_factory, name, data):
    """Cut, repeated, swapped and overwritten pieces: rows with finite numbers above 0, or an error in four parts."""
    text = SAMPLES[name]
    for _ in range(data.draw(st.integers(1, 3))):
        start, length = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, 200))
        other = data.draw(
            st.one_of(
                st.just(""),
                st.text(max_size=8),
                st.sampled_from(["NaN", "-1", "1e999", "null", "[", "}", '"', "\n", "0", 400 * "9"]),
                st.just(text[start : start + length][::-1]),
            )
        )
        text = text[:start] + other + text[start + length :]
    path = tmp_path_factory.mktemp("mutant") / name
    path.write_text(text, encoding="utf-8", errors="replace")
    beside = [path.with_name("run.log")] if name in OF_RUNS else []
    for one in beside:
        one.write_text(SAMPLES["megatron.log"])
    try:
        found = profiles.read([path, *beside])
    except InputError as error:
        assert all((error.where, error.got, error.allowed, error.fix))
        return
    for rows in found.tables.values():
        assert all(0.0 < float(row.get("value") or row["latency_ms"]) < float("inf") for row in rows)


@pytest.mark.parametrize(
    ("name", "slug"),
    [("NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"), ("NVIDIA H100 PCIe", "h100-pcie-80gb"),
     ("NVIDIA H100 NVL", "h100-nvl-94gb"),
     ("NVIDIA H200", "h200-sxm-141gb"), ("AMD Instinct MI300X", "mi300x"), ("NVIDIA GeForce RTX 4090", "rtx-4090"),
     ("NVIDIA GH200 120GB", "gh200-96gb"), ("NVIDIA GH200 480GB", "gh200-96gb"),
     ("NVIDIA GH200 144G HBM3e", "gh200-144gb"), ("NVIDIA GH200", ""), ("NVIDIA Graphics Device", ""),
     ("Tesla V100-SXM2-32GB", "v100-sxm-32gb"),
     ("NVIDIA B200", "b200-sxm-180gb"), ("NVIDIA GB200", "gb200-nvl72"), ("NVIDIA L40S", "l40s"), ("", "")],
)  # fmt: skip
def test_names_of_drivers_are_accelerators(name, slug):
    assert device_slug(name) == slug


def test_kernels_have_classes():
    names = {
        "nvjet_hsh_256x128": "gemm",
        "ampere_bf16_s16816gemm_bf16_128x256": "gemm",
        "Cijk_Ailk_Bljk_BBS_BH": "gemm",
        "fmha_cutlassF_bf16_aligned": "attention",
        "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL": "nccl",
        "void at::native::reduce_kernel<512, 1>": "elementwise",
        "triton_poi_fused_add_0": "elementwise",
    }
    for name, label in names.items():
        assert list(kernels.CLASSES)[kernels.kernel_class(name)] == label
