"""Files that tell of a run of another file, starts of engines, and traces of JAX."""

from __future__ import annotations

import contextlib
import gzip
import json
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

import dse
from dse import validate
from dse.doors import serve
from dse.errors import InputError
from dse.measured import predict_cases, profiles, read_cases
from dse.measured.comparison import write_lines
from dse.measured.decisions.evidence import compared_rows
from dse.measured.serving import cache_figures
from tests.unit.measured import profiles as files
from tests.unit.measured.test_profiles import figures, put  # noqa: F401 - a fixture

JAX = Path(__file__).parent / "data" / "jax.trace.json.gz"  # made by ``make jax-trace``
STEPS = files.megatron([9000, 4000, 1100, 1120, 1090])

#: Logs of power, and what they say of the slowest device.
LOGS = {
    "smi.csv": (files.nvidia_smi(), ("1430", "1980")), "dmon.txt": (files.dcgmi(), ("1430", "1980")),
    "exporter.txt": (files.dcgm_exporter(), ("1430", None)), "dcgm.csv": (files.dcgm_csv(), ("1430", "1980")),
}  # fmt: skip


@pytest.mark.parametrize("name", LOGS)
def test_power_of_the_run_alone_counts_and_the_slowest_clock(put, name):  # noqa: F811
    text, (clock, limit) = LOGS[name]
    found = profiles.read([put(text, name), put(STEPS)])
    (row, *_), got = found.tables["steps"], figures(found.tables["steps"])
    assert got["device_power"] == (pytest.approx(693.5), "W/device")  # of 690 to 697 W, without the idle time
    assert got["device_energy_per_step"] == (pytest.approx(693.5 * 1.1), "J/device")
    assert (row["sm_clock_mhz"], row.get("sm_clock_limit_mhz")) == (clock, limit)
    assert any("693.5 W a device, mean of 8" in note for note in found.notes)


def test_reasons_of_a_lower_clock_are_shares_of_the_run(put):  # noqa: F811
    row = profiles.read([put(STEPS), put(files.nvidia_smi(), "smi.csv")]).tables["steps"][0]
    assert (row["power_capped"], row["heat_capped"], row["gpu"]) == ("1", "0", "h100-sxm-80gb")


def test_power_and_energy_are_compared_with_those_of_the_board(put, tmp_path):  # noqa: F811
    found = profiles.read([put(STEPS), put(files.nvidia_smi(), "smi.csv")], {"system": "selene"})
    write_lines(tmp_path / "rows.csv", found.tables["steps"], True)
    report = validate(tmp_path / "rows.csv")["all"]
    assert report["device_power"]["predicted"] == report["device_energy_per_step"]["predicted"] == 1
    (one,) = predict_cases(read_cases(tmp_path / "rows.csv"))
    ratio = 1.0 + report["device_energy_per_step"]["bias"]
    assert ratio == pytest.approx(one.metrics["device_power"] * one.metrics["step_time"] / (693.5 * 1.1))


def test_power_of_serving_is_that_of_all_devices_and_of_a_token(put):  # noqa: F811
    found = profiles.read([put(files.VLLM, "result.json"), put(files.nvidia_smi(), "smi.csv")])
    got = figures(found.tables["serving"])
    assert got["avg_power_total"] == (pytest.approx(8 * 693.5), "W")
    assert got["energy_per_output_token"] == (pytest.approx(8 * 693.5 / 512.0), "J/token")


def test_power_and_memory_are_no_evidence_of_times(put, tmp_path):  # noqa: F811
    def metrics(paths, kind, **stated):
        write_lines(tmp_path / "rows.csv", profiles.read(paths, stated).tables[kind], True)
        return {c.metric for c in compared_rows([tmp_path / "rows.csv"], "here")}

    power = put(files.nvidia_smi(), "smi.csv")
    assert metrics([put(STEPS), power], "steps", system="selene") == {"step_time"}
    start, result = put(files.VLLM_START, "start.log"), put(files.VLLM, "result.json")
    assert metrics([result, start], "serving", system="h100") >= {"time_per_output_token", "time_to_first_token"}
    with pytest.raises(InputError, match="no row"):
        metrics([start], "serving", system="h100")


def test_devices_without_work_do_not_count(put):  # noqa: F811
    found = profiles.read([put(STEPS), put(files.nvidia_smi(at_work=4), "smi.csv")])
    assert figures(found.tables["steps"])["device_power"][0] == pytest.approx(691.5)


@pytest.mark.parametrize("others", [[], [STEPS, files.torchtitan([500, 4000, 5700, 5800])]])
def test_a_log_of_power_belongs_to_one_run(put, others):  # noqa: F811
    paths = [put(text, f"{number}.log") for number, text in enumerate(others)]
    with pytest.raises(InputError, match="one run"):
        profiles.read([put(files.nvidia_smi(), "smi.csv"), *paths])


def test_starts_of_engines_say_their_memory_and_what_they_are(put):  # noqa: F811
    found = profiles.read([put(files.VLLM_START)])
    assert figures(found.tables["serving"]) == {
        "weight_memory": (14.9889, "GiB"),
        "cache_memory": (54.62, "GiB"),
        "graph_memory": (0.55, "GiB"),
        "cache_tokens": (447440.0, "token"),
    }
    said = {
        "framework": "vllm",
        "tp": "1",
        "n_gpus": "1",
        "precision": "bf16",
        "memory_share": "0.9",
        "longest": "32768",
        "model": "meta-llama/Llama-3.1-8B-Instruct",
    }
    assert said.items() <= found.tables["serving"][0].items() and found.missing == {"the system": "-s SYSTEM"}
    rows = profiles.read([put(files.SGLANG_START)]).tables["serving"]
    assert figures(rows) == {
        "weight_memory": (7.08, "GiB"),
        "cache_memory": (11.38, "GiB"),
        "graph_memory": (1.04, "GiB"),
        "cache_tokens": (298447.0, "token"),
    }
    assert (rows[0]["tp"], rows[0]["static_share"], rows[0]["model"]) == ("4", "0.8", "Qwen/Qwen3-14B")
    rest = profiles.read([put(files.TENSORRT_LLM_START)])
    assert figures(rest.tables["serving"]) == {"cache_memory": (78.3, "GiB"), "cache_tokens": (3731744.0, "token")}
    assert set(rest.missing.values()) == {"-w MODEL", "-s SYSTEM", "-n DEVICES"}


def test_blocks_of_older_engines_are_tokens(put):  # noqa: F811
    old = files.VLLM_START.replace("GPU KV cache size: 447,440 tokens", "# GPU blocks: 27965, # CPU blocks: 2048")
    assert figures(profiles.read([put(old)]).tables["serving"])["cache_tokens"][0] == 447440.0


def test_cache_of_an_engine_is_compared(put, tmp_path):  # noqa: F811
    found = profiles.read([put(files.VLLM_START)], {"system": "h100"})
    write_lines(tmp_path / "rows.csv", found.tables["serving"], True)
    report = validate(tmp_path / "rows.csv")["all"]
    assert {"peak_memory_weights", "cache_memory", "cache_tokens"} <= report.keys()
    assert all(report[name]["predicted"] == 1 for name in ("peak_memory_weights", "cache_memory", "cache_tokens"))
    (one,) = predict_cases(read_cases(tmp_path / "rows.csv"))
    assert float(one.chosen.mapping.serving.memory_share) == pytest.approx(0.9)
    a_token = 2 * 32 * 8 * 128 * 2  # keys and values, layers, heads, their size, bytes
    assert one.metrics["cache_tokens"] * a_token == pytest.approx(one.metrics["cache_memory"], rel=1e-6)


def test_room_of_a_cache_holds_the_sequences_that_the_model_admits():
    made = dse.design("llama-3-70b", "h100", tp=4, prompt_tokens=2000, output_tokens=1, concurrency=1, n_devices=4)
    held = cache_figures(made)["cache_tokens"] / 2001.0
    most = float(made.software.engine.most_sequences)
    assert min(held, most) == pytest.approx(float(serve(made).concurrency_limit), rel=2e-3)


def test_a_start_fills_what_results_of_its_engine_leave_open(put):  # noqa: F811
    result = {name: value for name, value in files.VLLM.items() if name != "tensor_parallel_size"}
    found = profiles.read([put(result, "result.json"), put(files.VLLM_START)], {"system": "h100"})
    assert not found.missing
    (row, *_), got = found.tables["serving"], figures(found.tables["serving"])
    assert (row["tp"], row["isl"], row["memory_share"]) == ("1", "1024", "0.9")
    assert {"tpot_mean", "cache_tokens"} <= got.keys() and len({r["config_id"] for r in found.tables["serving"]}) == 1
    other = profiles.read([put(files.SGLANG, "sglang.json"), put(files.VLLM_START)]).tables["serving"]
    assert {r["framework"] for r in other} == {"sglang", "vllm"}  # another engine: a run of its own


def test_jax_on_a_host_is_read_as_its_trace_says():
    found = profiles.read([JAX])
    (row,) = found.tables["steps"]
    told = json.loads(gzip.decompress(JAX.read_bytes()))["traceEvents"]
    steps = {e["args"]["step_num"]: (e["ts"], e["dur"]) for e in told if "step_num" in e.get("args", {})}
    assert sorted(steps) == ["0", "1", "2", "3", "4", "5"]
    starts = [start for start, _ in steps.values()]
    ends = [*starts[1:], sum(steps["5"])]
    lengths = [end - start for start, end in zip(starts, ends, strict=True)]
    assert float(row["value"]) == pytest.approx(1e-3 * statistics.median(lengths[1:]))
    ours = [e for e in told if "hlo_op" in e.get("args", {}) and e["args"]["device_ordinal"] == "0"]
    for column, sign in {"nccl_ms": "all-reduce", "gemm_ms": "dot"}.items():
        sums = [
            sum(e["dur"] for e in ours if e["args"]["hlo_op"].startswith(sign) and start <= e["ts"] < end)
            for start, end in zip(starts[1:], ends[1:], strict=True)
        ]
        assert float(row[column]) == pytest.approx(1e-3 * statistics.median(sums), rel=1e-3)
    assert any("all-reduce: 1 a step" in note for note in found.notes)


@pytest.mark.parametrize("device", ["TPU", "GPU"])
def test_jax_on_devices_counts_the_first(put, device):  # noqa: F811
    found = profiles.read([put(files.jax_device(device), "jax.json")])
    (row,) = found.tables["steps"]
    assert figures([row]) == {"iteration_time": (10.0, "ms")}
    parts = {"gemm": 6.0, "nccl": 2.0, "exposed_nccl": 1.0, "elementwise": 1.0, "compute": 7.0, "gap": 2.0}
    assert {name: float(row[f"{name}_ms"]) for name in parts} == pytest.approx(parts)


def test_jax_on_a_device_behind_its_host_belongs_to_the_step_that_launched_it(put):  # noqa: F811
    """Steps that do not wait: the host takes 1 ms for each, the device 10 ms, 25 ms later."""
    document = json.loads(files.jax_device("GPU", steps=4))
    number = 0
    for event in [*document["traceEvents"]]:
        if event["ph"] != "X":
            continue
        step = int((event["ts"] - 1000.0) // 10_000.0)
        if "step_num" in event["args"]:
            event |= {"ts": 1000.0 + 1000.0 * step, "dur": 1000.0}
        elif event["tid"] in (3, 4):
            number += 1
            launch = {
                "ph": "X",
                "pid": 701,
                "tid": 9,
                "name": "cuLaunchKernel",
                "ts": 1100.0 + 1000.0 * step,
                "dur": 2.0,
            }
            document["traceEvents"].append(launch | {"args": {"correlation_id": str(number)}})
            event["ts"] += 25_000.0
            event["args"]["correlation_id"] = str(number)
    (row,) = profiles.read([put(document, "jax.json")]).tables["steps"]
    assert figures([row]) == {"iteration_time": (pytest.approx(10.0), "ms")}
    assert float(row["gemm_ms"]) == pytest.approx(6.0) and float(row["host_ms"]) == pytest.approx(1.0)


@pytest.mark.parametrize("device", ["TPU", "GPU"])
def test_planes_of_the_profiler_are_read_as_its_trace(put, tmp_path, device):  # noqa: F811
    text, path = files.jax_device(device), tmp_path / "host.xplane.pb"
    path.write_bytes(files.xplane(text))
    ((expected,), (found,)) = (profiles.read([one]).tables["steps"] for one in (put(text, "jax.json"), path))
    assert found | {"url_or_repo_path": ""} == expected | {"url_or_repo_path": ""}


@pytest.mark.slow
def test_planes_and_trace_of_one_run_of_jax_agree(tmp_path):
    """A real run; its planes name files of the machine, so that none is kept."""
    paths = tmp_path / "jax.trace.json.gz", tmp_path / "jax.xplane.pb"
    subprocess.run([sys.executable, "-m", "tests.unit.measured.jax_trace", *map(str, paths)], check=True)
    ((expected,), (found,)) = (profiles.read([one]).tables["steps"] for one in paths)
    assert {name for name in expected if name.endswith("_ms")} == {name for name in found if name.endswith("_ms")}
    for name in expected:
        if name.endswith("_ms") or name == "value":
            assert float(found[name]) == pytest.approx(float(expected[name]), rel=1e-6)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damaged_planes_are_read_or_refused(tmp_path_factory, data):
    content = bytearray(files.xplane(files.jax_device()))
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(content)))
        content[start : start + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=9))
    path = tmp_path_factory.mktemp("planes") / "host.xplane.pb"
    path.write_bytes(content)
    with contextlib.suppress(InputError):
        profiles.read([path])


def test_rccl_tests_are_read_as_nccl_tests(put):  # noqa: F811
    rows = profiles.read([put(files.RCCL)]).tables["collectives"]
    said = {"system": "mi300x", "num_gpus": "8", "devices_per_node": "8", "collective": "all_reduce", "dtype": "float"}
    assert said.items() <= rows[0].items()
    assert [(row["bytes"], row["latency_ms"]) for row in rows] == [("8388608", "0.0911"), ("16777216", "0.12133")]


@pytest.mark.parametrize(
    "text",
    [
        "timestamp, power.draw [W]\n",
        "timestamp, power.draw [W]\n1, [N/A]\n",
        "#Entity  POWER\nGPU 0  N/A\n",
        'DCGM_FI_DEV_POWER_USAGE{gpu="0"} NaN\n',
        "server_args=ServerArgs(model_path='a')\n",
        '{"displayTimeUnit": "ns", "traceEvents": []}',
        '{"displayTimeUnit": "ns", "traceEvents": [{"ph": "X"',
        "INFO non-default args: {'model': 'a'}\n",
    ],
)
def test_logs_without_figures_are_refused(put, text):  # noqa: F811
    with pytest.raises(InputError):
        profiles.read([put(text), put(STEPS, "steps.log")])
