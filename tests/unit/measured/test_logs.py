"""Logs and results as they lie about: right values of files of others, and made-up files in the same forms."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dse.cli import app
from dse.errors import InputError
from dse.measured import profiles
from tests.unit.measured import profiles as files
from tests.unit.measured.test_profiles import figures, put  # noqa: F401 - a fixture

REFERENCE = Path(__file__).parents[3].parent / "shared" / "reference" / "files" / "profiles"


def reference(name):
    """Return a file of the reference data, or skip."""
    path = REFERENCE / name
    if not path.exists():
        pytest.skip("the reference data is not here")
    return path


# Files of others


def test_mlperf_says_samples_a_second_its_batch_and_its_adapters():
    found = profiles.read([reference("mlperf_lora.txt")])
    assert figures(found.tables["steps"]) == {"sequences_per_s": (pytest.approx(2.588, rel=0.01), "seq/s")}
    said = {"global_batch": "8", "model": "llama-2-70b", "seq_len": "8192", "lora_rank": "16"}
    assert said.items() <= found.tables["steps"][0].items()
    assert set(found.missing.values()) == {"-s SYSTEM", "-n DEVICES"}  # of neither there is a key
    assert any("data-parallel ranks times micro-batch are 4" in note for note in found.notes)


def test_golden_values_of_megatron_are_its_steps():
    rows = profiles.read([reference("golden_moe.json")]).tables["steps"]
    assert figures(rows) == {
        "iteration_time": (pytest.approx(1.14, rel=0.01), "s"),
        "peak_memory": (pytest.approx(1.07 * 2**30, rel=0.01), "B"),
    }


@pytest.mark.parametrize(
    ("name", "collective", "system", "microseconds"),
    [
        ("nccl_2021_no_root.txt", "all_reduce", "a100-sxm-40gb", {8589934592: 63896.0, 4294967296: 32070.0}),
        ("rccl_2023_no_root.txt", "alltoall", "mi300x", {134217728: 6439.3}),
        ("nccl_debug_glued.txt", "all_reduce", "a100-pcie-80gb", {8589934592: 39658.0, 8388608: 83.33}),
    ],
)
def test_three_generations_of_nccl_tests(tmp_path, name, collective, system, microseconds):
    path = reference(name)
    rows = profiles.read([path]).tables["collectives"]
    times = {int(row["bytes"]): 1e3 * float(row["latency_ms"]) for row in rows}
    assert {row["collective"] for row in rows} == {collective} and {row["system"] for row in rows} == {system}
    assert {size: times[size] for size in microseconds} == pytest.approx(microseconds)
    words = ["calibrate", "--add", "--profile", str(path), "--catalog", str(tmp_path / "own")]
    done = CliRunner().invoke(app, [*words, "-o", str(tmp_path / "added.toml")])
    assert done.exit_code == 0, done.output
    added = (tmp_path / "added.toml").read_text()
    assert f"rows = {len(rows)}" in added and "scale_up.efficiency" in added and str(path.parent) not in added


def test_mlperf_says_the_devices_of_its_nodes(put):  # noqa: F811
    rows = profiles.read([put(files.mlperf())]).tables["steps"]
    assert figures(rows) == {"sequences_per_s": (2.588, "seq/s")}
    assert (rows[0]["n_gpus"], rows[0]["gpu"]) == ("8", "h100-sxm-80gb")


def test_mlperf_without_rates_has_those_of_its_blocks(put):  # noqa: F811
    """1,536 samples in 593.6 s, and 384 in 148.4 s: 2.5876 a second."""
    event = (
        ':::MLLOG {{"namespace": "", "time_ms": {}, "event_type": "INTERVAL_START", "key": "block_{}", "value": null, '
    )
    event += '"metadata": {{"file": "train.py", "lineno": 1, "samples_count": {}}}}}\n'
    blocks = [(1745582158906, "start", 0), (1745582752506, "stop", 1536), (1745582780000, "start", 1536)]
    blocks += [(1745582928400, "stop", 1920)]
    text = files.mlperf(()) + "".join(event.format(*block) for block in blocks)
    rows = profiles.read([put(text)]).tables["steps"]
    assert figures(rows)["sequences_per_s"] == (pytest.approx(2.5876, rel=1e-4), "seq/s")


def test_a_reduction_to_one_rank_is_said_to_be_none_of_the_table():
    with pytest.raises(InputError, match="the test reduce"):
        profiles.read([reference("nccl_2021_reduce.txt")])


def test_a_table_without_figures_says_what_it_has():
    with pytest.raises(InputError, match=r"isl 1000, osl 1000.*output_throughput xxxx") as refused:
        profiles.read([reference("bench_stdout.txt")])
    assert "without figures" in refused.value.got


# Printed tables


def test_a_printed_table_says_what_its_json_says(put):  # noqa: F811
    printed = profiles.read([put(files.serving_table())]).tables["serving"]
    written = profiles.read([put(files.VLLM | {"tensor_parallel_size": None}, "r.json")]).tables["serving"]
    assert [row | {"url_or_repo_path": ""} for row in printed] == [row | {"url_or_repo_path": ""} for row in written]


def test_a_printed_table_with_times_before_its_lines_is_read(put):  # noqa: F811
    lines = "".join(f"2025-11-20T10:11:12.1234567Z {line}\n" for line in files.serving_table().splitlines())
    rows = profiles.read([put(lines + "Mean TPOT (ms):   99.0\n")]).tables["serving"]
    assert figures(rows)["tpot_mean"] == (11.5, "ms")


def test_two_printed_tables_are_two_runs(put):  # noqa: F811
    both = files.serving_table() + files.serving_table("sglang", 600.0)
    rows = profiles.read([put(both)]).tables["serving"]
    rates = {row["framework"]: row["value"] for row in rows if row["metric"] == "output_throughput_total"}
    assert rates == {"vllm": "512", "sglang": "600"}


# Series


@pytest.mark.parametrize("is_list", [True, False])
def test_golden_values_by_step_or_in_a_list(put, is_list):  # noqa: F811
    times = ["nan", 5.0, 1.2, 1.1, 1.3]
    values = times if is_list else {str(3 * i + 1): value for i, value in enumerate(times)}
    series = {"start_step": 1, "step_interval": 3, "values": values}
    rows = profiles.read([put({"lm loss": series, "iteration-time": series}, "golden.json")]).tables["steps"]
    assert figures(rows) == {"iteration_time": (1.2, "s")}  # of 1.1 and 1.3 s, after two


def test_runs_of_a_chart_of_wandb_are_apart(put):  # noqa: F811
    rows = profiles.read([put(files.wandb(), "wandb.csv")]).tables["steps"]
    assert [float(row["value"]) for row in rows] == [1.2, 2.4]
    history = "_step,throughput(tps),memory/max_reserved(GiB),loss\n" + "".join(
        f"{i},{100 + i},{i},3\n" for i in range(5)
    )
    rows = profiles.read([put(history, "history.csv")]).tables["steps"]
    assert figures(rows) == {"tokens_per_s_per_gpu": (103.0, "token/s"), "peak_memory": (4.0, "GiB")}


# Serving


def test_aiperf_names_its_model_and_its_load_in_lists(put):  # noqa: F811
    new = json.loads(files.aiperf())
    rows = {}
    for name, document in (("old", files.GENAI_PERF), ("new", new)):
        rows[name] = profiles.read([put(document, f"{name}.json")]).tables["serving"]
    assert [row | {"url_or_repo_path": ""} for row in rows["new"]] == [
        row | {"url_or_repo_path": ""} for row in rows["old"]
    ]
    rated = new["input_config"] | {"phases": [{"name": "profiling", "type": "poisson", "rate": 4.0}]}
    rows = profiles.read([put(new | {"input_config": rated}, "rate.json")]).tables["serving"]
    assert rows[0]["batch"] == "6.802" and "ttft_mean" not in figures(rows)  # 4 requests/s of 1.7005 s each


def test_servers_with_roles_apart_say_their_model(put):  # noqa: F811
    info = {"internal_states": [files.SGLANG["server_info"] | {"disaggregation_mode": "decode"}]}
    for server in (info, {"prefill": [{}], "decode": [info]}):
        found = profiles.read([put(files.SGLANG | {"server_info": server}, "bench.jsonl")])
        row = found.tables["serving"][0]
        assert (row["model"], row["tp"], row["framework"]) == ("Qwen/Qwen3-8B", "2", "sglang")
        assert set(figures(found.tables["serving"])) == {"tpot_mean", "itl_median"}
        assert any("servers of their own" in note for note in found.notes)


def test_all_requests_at_once_are_a_burst_whatever_limit_is_stated(put):  # noqa: F811
    burst = files.VLLM | {"max_concurrency": 320}
    rows = profiles.read([put(burst, "burst.json")]).tables["serving"]
    assert (rows[0]["batch"], rows[0]["batch_kind"]) == ("320", "static batch")
    assert set(figures(rows)) == {"output_throughput_total"} and "burst" in rows[0]["note"]


@pytest.mark.parametrize(
    ("change", "is_kept"),
    [
        ({}, True),
        ({"mean_itl_ms": 46.0, "median_itl_ms": 40.0}, False),  # four tokens a message
        ({"median_itl_ms": 0.02}, False),  # messages that arrive together
    ],
)
def test_medians_between_messages_of_several_tokens_are_none_of_steps(put, change, is_kept):  # noqa: F811
    rows = profiles.read([put(files.VLLM | change, "r.json")]).tables["serving"]
    assert ("itl_median" in figures(rows)) == is_kept and "tpot_mean" in figures(rows)


def test_the_server_is_the_engine_not_the_client(put):  # noqa: F811
    start = files.SGLANG_START.replace("Qwen/Qwen3-14B", "deepseek-ai/DeepSeek-R1").replace("tp_size=4", "tp_size=8")
    start = start.replace("type=Qwen3ForCausalLM,", "type=DeepseekV3ForCausalLM, quant=fp8,")
    result = {key: value for key, value in files.VLLM.items() if key != "tensor_parallel_size"}
    result |= {"model_id": "deepseek-ai/DeepSeek-R1", "backend": "vllm"}
    row = profiles.read([put(result, "result.json"), put(start, "server.log")]).tables["serving"][0]
    said = {
        "framework": "sglang",
        "precision": "fp8-block",
        "tp": "8",
        "n_gpus": "8",
        "model": "deepseek-ai/DeepSeek-R1",
    }
    assert said.items() <= row.items()
    other = result | {"model_id": "meta-llama/Llama-3.1-8B-Instruct"}  # no result of that server
    rows = profiles.read([put(other, "result.json"), put(start, "server.log")]).tables["serving"]
    assert {row["framework"] for row in rows} == {"vllm", "sglang"}


@pytest.mark.parametrize(
    ("model", "quantization", "gigabytes", "precision"),
    [
        ("openai/gpt-oss-120b", "gpt_oss_mxfp4", "", "mxfp4"),
        ("openai/gpt-oss-120b", "None", "", "mxfp4"),  # it exists in one format
        ("deepseek-ai/DeepSeek-R1-0528", "None", "", "fp8-block"),
        ("Qwen/Qwen3-32B-FP8", "fp8", "", "fp8-block"),
        ("meta-llama/Llama-3.1-8B-Instruct", "fp8", "", "fp8"),
        ("meta-llama/Llama-3.1-8B-Instruct", "compressed-tensors", "8.5", "fp8"),  # 1.14 B a parameter
        ("meta-llama/Llama-3.1-8B-Instruct", "compressed-tensors", "", None),
    ],
)
def test_formats_of_weights(put, model, quantization, gigabytes, precision):  # noqa: F811
    text = files.VLLM_START.replace("meta-llama/Llama-3.1-8B-Instruct", model)
    text = text.replace("quantization=None", f"quantization={quantization}").replace("14.9889", gigabytes or "200")
    assert profiles.read([put(text)]).tables["serving"][0].get("precision") == precision


def test_results_have_the_format_of_a_checkpoint_that_exists_in_one(put):  # noqa: F811
    for model, precision in {"openai/gpt-oss-120b": "mxfp4", "deepseek-ai/DeepSeek-R1": "fp8-block"}.items():
        rows = profiles.read([put(files.VLLM | {"model_id": model}, "r.json")]).tables["serving"]
        assert rows[0]["precision"] == precision
    assert "precision" not in profiles.read([put(files.VLLM, "r.json")]).tables["serving"][0]


def test_weights_that_belie_a_format_are_remarked(put):  # noqa: F811
    text = files.VLLM_START.replace("quantization=None", "quantization=fp8")  # 14.99 GiB of 8.03 G parameters
    (note,) = [note for note in profiles.read([put(text)]).notes if "a parameter" in note]
    assert "weights of 2.00 B a parameter, which fp8 has not" in note


def _samples(shift=0.0, watts=(90.0, 551.9, 120.0, 690.0)):
    """A power log of one device: 100 s each of idle, a benchmark, idle, another one, from 2025-11-20 10:00 UTC."""
    head = "timestamp, index, power.draw [W]\n"
    seconds = [(i, watts[i // 100]) for i in range(400)]
    hour = 10 + int(shift)
    return head + "".join(f"2025/11/20 {hour:02d}:{i // 60:02d}:{i % 60:02d}.500, 0, {watt} W\n" for i, watt in seconds)


START = 1763632800.0  # 2025-11-20 10:00:00 UTC


@pytest.mark.parametrize(
    "window",
    [
        {"benchmark_start_time_unix": START + 110, "benchmark_end_time_unix": START + 190},
        {"date": "20251120-100310", "duration": 80.0},
    ],
)
@pytest.mark.parametrize("shift", [0, -8])
def test_power_counts_within_the_time_of_the_benchmark(put, window, shift):  # noqa: F811
    if "date" in window:
        window = window | {"date": f"20251120-{10 + shift:02d}0310"}
    watts = (90.0, 551.9, 120.0, 560.0 if shift else 690.0)
    found = profiles.read([put(files.VLLM | window, "r.json"), put(_samples(shift, watts), "smi.csv")])
    assert figures(found.tables["serving"])["avg_power_total"] == (pytest.approx(551.9), "W")
    assert any("over the 80 s of the run" in note for note in found.notes)


def test_power_of_another_time_is_said_to_be_so(put):  # noqa: F811
    window = {"benchmark_start_time_unix": START + 1e6, "benchmark_end_time_unix": START + 1e6 + 80}
    found = profiles.read([put(files.VLLM | window, "r.json"), put(_samples(), "smi.csv")])
    assert any("the log does not hold that of the run" in note for note in found.notes)
    assert any("idle for 33 % of the time between" in note for note in found.notes)


def test_power_of_each_of_several_benchmarks(put):  # noqa: F811
    """One log of power, whose headings are those of an exporter's CSV, and two results that say when they ran."""
    seconds = [(START + i, (90.0, 551.9, 120.0, 690.0)[i // 100]) for i in range(400)]
    log = "timestamp_unix,hostname,gpu_index,gpu_uuid,power_w\n"
    log += "".join(f"{at},n1,{gpu},GPU-{gpu},{watts + gpu}\n" for at, watts in seconds for gpu in range(2))
    windows = [
        {"benchmark_start_time_unix": START + at, "benchmark_end_time_unix": START + at + 80} for at in (110, 310)
    ]
    results = [put(files.VLLM | {"max_concurrency": 8 + i} | each, f"{i}.json") for i, each in enumerate(windows)]
    rows = profiles.read([*results, put(log, "samples.csv")]).tables["serving"]
    totals = [float(row["value"]) for row in rows if row["metric"] == "avg_power_total"]
    assert totals == pytest.approx([2 * 551.9 + 1, 2 * 690.0 + 1])


DECODE = (
    "[2026-03-14 04:59:{second:02d} TP0] Decode batch, #running-req: {running}, #token: {tokens}, token usage: 0.14, "
    "cuda graph: True, gen throughput (token/s): {rate}, #queue-req: 0\n"
)


def decoding(batches, start=files.SGLANG_START):
    """The log of a server of decode steps: (requests, tokens a second), a line each."""
    return start + "".join(
        DECODE.format(second=i, running=n, tokens=1000 * n, rate=rate) for i, (n, rate) in enumerate(batches)
    )


def test_lines_of_decode_steps_are_batches_against_rates(put):  # noqa: F811
    found = profiles.read([put(decoding([(32, 900.0), (32, 1600.0), (32, 1602.0), (64, 2000.0), (64, 2560.0)]))])
    rows = [row for row in found.tables["serving"] if row["metric"] == "tpot_mean"]
    assert [(row["batch"], row["isl"], row["osl"], row["batch_kind"]) for row in rows] == [
        ("32", "1000", "2", "static batch"), ("64", "1000", "2", "static batch"),
    ]  # fmt: skip
    assert [float(row["value"]) for row in rows] == pytest.approx([1e3 * 32 / 1601, 25.0])  # of steady lines alone
    assert rows[0].items() >= {"framework": "sglang", "tp": "4", "model": "Qwen/Qwen3-14B"}.items()


def test_lines_with_prompts_are_a_load_of_the_lengths_of_the_benchmark(put):  # noqa: F811
    line = "INFO 09-02 13:08:10 [loggers.py:123] Engine 000: Avg prompt throughput: {} tokens/s, Avg generation "
    line += "throughput: {} tokens/s, Running: 64 reqs, Waiting: 0 reqs, GPU KV cache usage: 10.0%\n"
    mixed = put(files.VLLM_START + 3 * line.format("900.0", "2100.0"), "mixed.log")
    alone = profiles.read([mixed])
    assert {"--set isl=…", "--set osl=…"} <= set(alone.missing.values())
    rows = profiles.read([mixed, put(files.VLLM, "r.json")]).tables["serving"]
    (row,) = [row for row in rows if row["batch"] == "64"]
    assert (row["metric"], row["value"], row["isl"], row["osl"]) == ("output_throughput_total", "2100", "1024", "128")
    decoding = put(files.VLLM_START + 3 * line.format("0.0", "2100.0"), "decode.log")
    row = next(row for row in profiles.read([decoding]).tables["serving"] if row["metric"] == "tpot_mean")
    assert row["isl"] == str(round(0.1 * 447440 / 64))  # of the cache that the engine has


def test_a_server_and_its_client_in_one_file_are_one_run(put):  # noqa: F811
    start = files.SGLANG_START.replace("Qwen/Qwen3-14B", "meta-llama/Llama-3.1-8B-Instruct")
    rows = profiles.read([put(start + files.serving_table())]).tables["serving"]
    assert {row["framework"] for row in rows} == {"sglang"} and {row["tp"] for row in rows} == {"4"}
    assert {"tpot_mean", "cache_tokens"} <= set(figures(rows))


def test_each_of_two_servers_has_its_results(put):  # noqa: F811
    first = files.VLLM | {"tensor_parallel_size": None}
    second = first | {"model_id": "Qwen/Qwen3-14B"}
    logs = [put(files.VLLM_START, "vllm.log"), put(files.SGLANG_START, "sglang.log")]
    rows = profiles.read([put(first, "1.json"), put(second, "2.json"), *logs]).tables["serving"]
    assert {(row["model"], row["framework"], row["tp"]) for row in rows} == {
        ("meta-llama/Llama-3.1-8B-Instruct", "vllm", "1"), ("Qwen/Qwen3-14B", "sglang", "4"),
    }  # fmt: skip


def test_an_engine_that_only_its_client_names_is_remarked(put):  # noqa: F811
    assert any("as its client is named" in note for note in profiles.read([put(files.VLLM, "r.json")]).notes)
    assert not any("as its client" in note for note in profiles.read([put(files.SGLANG, "r.json")]).notes)


def test_lines_with_drafted_tokens_are_no_load(put):  # noqa: F811
    text = decoding([(32, 1600.0), (32, 1602.0)]) + "SpecDecoding metrics: Mean acceptance length: 2.3\n"
    assert "tpot_mean" not in figures(profiles.read([put(text)]).tables["serving"])


def test_lines_of_several_ranks_are_of_all_of_them(put):  # noqa: F811
    start = files.SGLANG_START.replace("dp_size=1", "dp_size=2")
    lines = decoding([(32, 1600.0)] * 4, "")
    both = start + lines.replace(" TP0]", " DP0 TP0]") + lines.replace(" TP0]", " DP1 TP0]")
    alone = profiles.read([put(start + lines.replace(" TP0]", " DP1 TP0]"), "1.log")]).tables["serving"]
    assert {row["batch"] for row in alone if row["metric"] == "tpot_mean"} == {
        "64"
    }  # the other rank has a log of its own
    row = next(
        row for row in profiles.read([put(both)]).tables["serving"] if row["metric"] == "decode_throughput_total"
    )
    assert (row["batch"], row["value"], row["dp"], row["n_gpus"]) == ("64", "3200", "2", "8")


# Several runs in one file


@pytest.mark.parametrize("batch", ["4", "8"])
def test_two_runs_in_one_log_are_apart(put, batch):  # noqa: F811
    """A log that was appended to: steps begin anew, whether or not the configuration is another."""
    slow = files.megatron([9000, 4000, 1100, 1120, 1090])
    fast = files.megatron([900, 400, 210, 212, 209], files.MEGATRON | {"global_batch_size": batch})
    found = profiles.read([put(slow + fast)])
    rows = [row for row in found.tables["steps"] if row["metric"] == "iteration_time"]
    assert [(row["global_batch"], float(row["value"])) for row in rows] == [("4", 1100.0), (batch, 210.0)]
    assert any("run 1 of 2" in note for note in found.notes)


def test_two_runs_of_one_block_each_are_apart(put):  # noqa: F811
    rows = profiles.read([put(files.mlperf((2.5,)) + files.mlperf((5.0,)))]).tables["steps"]
    assert [float(row["value"]) for row in rows] == [2.5, 5.0]


def test_a_run_that_ended_at_once_does_not_count(put):  # noqa: F811
    rows = profiles.read([put(files.megatron([9000, 9000]) + files.megatron([9000, 4000, 1100]))]).tables["steps"]
    assert figures(rows)["iteration_time"] == (1100.0, "ms")


@pytest.mark.parametrize("change", ["tensor_model_parallel_size", "num_layers"])
def test_two_configurations_of_one_run_are_refused(put, change):  # noqa: F811
    other = files.MEGATRON | {change: "2"}
    block = "".join(f"  {name} {'.' * (48 - len(name))} {value}\n" for name, value in other.items())
    rule = "------------------------ arguments ------------------------\n"
    with pytest.raises(InputError, match="two configurations"):
        profiles.read([put(files.megatron([9, 9, 7, 7, 7]).replace("[default0]", "") + rule + block)])


def test_two_servers_in_one_log_are_refused(put):  # noqa: F811
    with pytest.raises(InputError, match="two configurations"):
        profiles.read([put(files.SGLANG_START + files.SGLANG_START.replace("tp_size=4", "tp_size=8"))])
    assert profiles.read([put(files.SGLANG_START + files.SGLANG_START)]).tables["serving"]
