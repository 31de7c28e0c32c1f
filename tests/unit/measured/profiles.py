"""Files in the formats of tools, small and made up."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

#: Arguments of Megatron-LM as it prints them, here 22B of Korthikanti et al. on one node.
MEGATRON = {
    "bf16": "True", "fp16": "False", "fp8": "None", "context_parallel_size": "1", "ffn_hidden_size": "24576",
    "global_batch_size": "4", "group_query_attention": "False", "hidden_size": "6144", "kv_channels": "96",
    "micro_batch_size": "4", "num_attention_heads": "64", "num_experts": "None", "num_layers": "48",
    "num_query_groups": "1", "overlap_grad_reduce": "False", "pipeline_model_parallel_size": "1",
    "recompute_granularity": "selective", "recompute_modules": "['core_attn']", "seq_length": "2048",
    "sequence_parallel": "True", "swiglu": "False", "tensor_model_parallel_size": "8", "tp_comm_overlap": "False",
    "untie_embeddings_and_output_weights": "False", "use_distributed_optimizer": "True",
    "virtual_pipeline_model_parallel_size": "None", "world_size": "8",
}  # fmt: skip


def megatron(times: list[float], arguments: dict[str, str] | None = None, memory: float = 30000.0) -> str:
    """A log of Megatron-LM with these times in ms."""
    given = (MEGATRON if arguments is None else arguments).items()
    batch = int(dict(given).get("global_batch_size", "4"))
    head = "using world size: 8, data-parallel size: 1, context-parallel size: 1\n"
    block = "".join(f"[default0]:  {name} {'.' * (48 - len(name))} {value}\n" for name, value in given)
    rule = "[default0]:------------------------ {} ------------------------\n"
    lines = [
        f" [2025-03-04 10:00:{i:02d}] iteration {i + 1:8d}/     100 | consumed samples: {batch * i:12d} | elapsed time "
        f"per iteration (ms): {ms:.1f} | throughput per GPU (TFLOP/s/GPU): 180.1 | learning rate: 1.000000E-05 | "
        f"global batch size: {batch:5d} | lm loss: 1.048235E+01 | loss scale: 1.0 | "
        f"number of skipped iterations:   0 |\n"
        for i, ms in enumerate(times)
    ]
    rank = f"[Rank 0] (after 2 iterations) memory (MB) | allocated: 20000.5 | max allocated: {memory} | reserved: 3\n"
    padded = " > padded vocab (size: 50257) with 943 dummy tokens (new size: 51200)\n"
    head += rule.format("arguments") + block + rule.format("end of arguments") + padded
    return head + lines[0] + rank + "".join(lines[1:])


def nemo(times: list[float]) -> str:
    """A log of NeMo 2 with these times in s."""
    return "tensor_model_parallel_size: 4\nsequence_parallel: true\n" + "".join(
        f"[default0]:Training epoch 0, iteration {i}/99 | lr: 9.8e-08 | global_batch_size: 128 | global_step: {i} | "
        f"peak_memory_usage: 70833405952 | reduced_train_loss: 14.66 | train_step_timing in s: {s}\n"
        for i, s in enumerate(times)
    )


def torchtitan(rates: list[int], rank: int = 0) -> str:
    """A log of torchtitan with these tokens per second and device."""
    start = f"[rank{rank}]:[titan] 2025-11-25 19:44:58,838 - root - INFO - "
    said = [
        "Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=8, cp=1, tp=1, ep=1, etp=1",
        "CUDA capacity: NVIDIA H100 80GB HBM3 with 79.11GiB memory",
        "Model \x1b[34mllama3 8B \x1b[31msize: 8,030,261,248 total parameters\x1b[39m",
        "Applied selective activation checkpointing to the model",
        "Compiling each TransformerBlock with torch.compile",
        "Trainer is initialized with local batch size 2, global batch size 16, gradient accumulation steps 1, "
        "sequence length 8192, total steps 1000 (warmup 200)",
        "Training starts at step 1",
    ]
    said += [
        f"\x1b[31mstep: {i + 1:2}  \x1b[32mloss: {8.1:7.4f}  \x1b[38;2;180;60;0mgrad_norm: 1.46  \x1b[33m"
        f"memory: {60.0 + i:5.2f}GiB(75.1%)  \x1b[34mtps: {tps:,}  \x1b[36mtflops: 300.10  \x1b[35mmfu: 30.33%\x1b[39m"
        for i, tps in enumerate(rates)
    ]
    return "".join(f"{start}{text}\n" for text in said)


def maxtext(times: list[float]) -> str:
    """A log of MaxText with these times in s."""
    about = {
        "model_name": "llama2-7b", "per_device_batch_size": "4.0", "max_target_length": "4096",
        "remat_policy": "full",
        "ici_fsdp_parallelism": "-1", "ici_tensor_parallelism": "1", "dtype": "bfloat16", "quantization": "",
        "base_emb_dim": "4096", "num_experts": "1", "global_batch_size_to_train_on": "64", "weight_dtype": "float32",
        "gradient_accumulation_steps": "1", "num_slices": "1", "dcn_pipeline_parallelism": "1",
    }  # fmt: skip
    head = "".join(f"I0317 09:59:16.2427 1253 pyconfig.py:413] Config param {k}: {v}\n" for k, v in about.items())
    head += "Num_devices: 16, shape (1, 1, 16, 1, 1)\nTotal memory size: 6.4 GB, Output size: 0.2 GB\n"
    return head + "".join(
        f"completed step: {i}, seconds: {s}, TFLOP/s/device: 134.924, Tokens/s/device: 8672.758, total_weights: 196, "
        "loss: 10.374\n"
        for i, s in enumerate(times)
    )


#: What ``vllm bench serve --save-result`` writes, without its lists.
VLLM = {
    "date": "20251120-101112", "endpoint_type": "vllm", "label": None, "model_id": "meta-llama/Llama-3.1-8B-Instruct",
    "tokenizer_id": "meta-llama/Llama-3.1-8B-Instruct", "num_prompts": 320, "request_rate": "inf", "burstiness": 1.0,
    "max_concurrency": 32, "tensor_parallel_size": "1", "duration": 80.0, "completed": 320, "failed": 0,
    "total_input_tokens": 327680, "total_output_tokens": 40960, "request_throughput": 4.0, "request_goodput": None,
    "output_throughput": 512.0, "total_token_throughput": 4608.0, "mean_ttft_ms": 240.0, "median_ttft_ms": 230.0,
    "mean_tpot_ms": 11.5, "median_tpot_ms": 11.4, "mean_itl_ms": 11.5, "median_itl_ms": 9.8,
}  # fmt: skip

SGLANG = {
    "backend": "sglang", "dataset_name": "random", "request_rate": 2.0, "max_concurrency": None,
    "random_input_len": 1024, "random_output_len": 128, "random_range_ratio": 1.0, "duration": 80.0, "completed": 160,
    "server_info": {"model_path": "Qwen/Qwen3-8B", "tp_size": 2, "dp_size": 1, "pp_size": 1, "version": "0.5.2",
                    "enable_dp_attention": False},
    "total_input_tokens": 163840, "total_output_tokens": 20480, "total_output_tokens_retokenized": 20470,
    "request_throughput": 2.0, "output_throughput": 256.0, "mean_e2e_latency_ms": 1500.0, "mean_ttft_ms": 90.0,
    "mean_tpot_ms": 11.0, "mean_itl_ms": 11.0, "median_itl_ms": 10.0, "concurrency": 3.0,
}  # fmt: skip

GENAI_PERF = {
    "request_throughput": {"unit": "requests/sec", "avg": 4.0},
    "request_latency": {"unit": "ms", "avg": 1700.5, "p50": 1690.0},
    "time_to_first_token": {"unit": "ms", "avg": 240.25, "p50": 230.0},
    "inter_token_latency": {"unit": "ns", "avg": "11500000"},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 512.0},
    "output_sequence_length": {"unit": "tokens", "avg": 128.0},
    "input_sequence_length": {"unit": "tokens", "avg": 1024.0},
    "input_config": {"model": ["llama-3.1-8b"], "perf_analyzer": {"stimulus": {"concurrency": 8}}},
}  # fmt: skip


def nccl(test: str = "all_reduce", named: bool = True, ranks: int = 8) -> str:
    """Output of nccl-tests of two sizes."""
    factor = {"all_reduce": 2.0 * (ranks - 1) / ranks, "sendrecv": 1.0}.get(test, (ranks - 1) / ranks)
    redop = "sum" if "reduce" in test else "none"
    head = f"# nccl-tests version 2.17.6\n# Collective test starting: {test}_perf\n" if named else ""
    head += "# nThread 1 nGpus 8 minBytes 1024 maxBytes 1048576 step: 2(factor) warmup iters: 5 iters: 20\n#\n"
    head += "# Using devices\n" + "".join(
        f"#  Rank {i:2d} Group  0 Pid 1946{i} on     node1 device {i:2d} [0000:0f:00] NVIDIA H100 80GB HBM3\n"
        for i in range(ranks)
    )
    head += (
        "#\n#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   "
        "busbw #wrong\n#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)\n"
    )
    rows = [(33554432, 180.5), (1073741824, 3915.4)]
    return (
        head
        + "".join(
            f"{size:12d} {size // 4:13d}     float {redop:>7}      -1 {us:8.2f} {1e-3 * size / us:7.2f} "
            f"{1e-3 * size / us * factor:7.2f}      0 {us + 1:8.2f} {1e-3 * size / us:7.2f} {9.0:7.2f}    N/A\n"
            for size, us in rows
        )
        + "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 325.4\n"
    )


def kineto(
    steps: int = 3, compute: float = 6500.0, exposed: float = 1000.0, gap: float = 2500.0, hidden: float = 500.0
) -> str:
    """A trace of Kineto with these microseconds a step.

    Two products, attention, an all-reduce of which a part is hidden, an element-wise kernel; then nothing.
    """
    events = [{"ph": "M", "name": "process_name", "pid": 0, "ts": 0, "args": {"name": "python"}}]
    of_step = compute + exposed + gap
    first, second, third, last = (compute * share / 6500.0 for share in (3000.0, 2000.0, 1000.0, 500.0))
    for i in range(steps):
        t = 1e6 + i * of_step
        kernel = {"ph": "X", "cat": "kernel", "pid": 0, "tid": 7}
        sent = {
            "Collective name": "allreduce",
            "In msg nelems": 1000,
            "Out msg nelems": 1000,
            "dtype": "BFloat16",
            "Group size": 8,
        }
        busy = first + second + third
        events += [
            {
                "ph": "X",
                "cat": "user_annotation",
                "name": f"ProfilerStep#{i + 5}",
                "pid": 1,
                "tid": 1,
                "ts": t,
                "dur": of_step,
            },
            {
                "ph": "X",
                "cat": "gpu_user_annotation",
                "name": f"ProfilerStep#{i + 5}",
                "pid": 0,
                "tid": 7,
                "ts": t + 9,
                "dur": of_step,
            },
            kernel | {"name": "nvjet_hsh_256x128_64x4_2x1_v_bz_TNT", "ts": t, "dur": first},
            kernel | {"name": "void cutlass::Kernel2<cutlass_80_tensorop_gemm>", "ts": t + first, "dur": second},
            kernel | {"name": "void flash_fwd_kernel<Flash_fwd_kernel_traits>", "ts": t + first + second, "dur": third},
            kernel
            | {
                "name": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage)",
                "tid": 20,
                "ts": t + busy - hidden,
                "dur": exposed + hidden,
                "args": sent,
            },
            kernel
            | {"name": "void at::native::vectorized_elementwise_kernel<4>", "ts": t + busy + exposed, "dur": last},
        ]
    head = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}],
        "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8},
    }
    written = ",\n".join(map(json.dumps, events))
    return f'{json.dumps(head)[:-1]},\n"traceEvents": [\n{written}\n], "traceName": "t"}}'


def nsight(
    path, parts: tuple[float, float, float] = (6500.0, 1000.0, 2500.0), steps: int = 3, change: str = ""
) -> None:
    """An export of Nsight Systems at ``path``: microseconds of compute, exposed communication and gap a step."""
    compute, exposed, _ = parts
    names = ["nvjet_hsh_256x128", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage)"]
    names += [f"step {i}" for i in range(steps)]
    database = sqlite3.connect(path)
    database.executescript(
        "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,"
        " correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER);"
        "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER,"
        " textId INTEGER);"
        "CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT);"
        "INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H100 80GB HBM3');"
    )
    database.executemany("INSERT INTO StringIds VALUES (?, ?)", list(enumerate(names)))
    for process, slower in ((4711, 1.0), (4712, 3.0)):  # a second rank of the node, which does not count
        owner = process << 24
        for i in range(steps):
            t = int(1e9 + 1e3 * slower * i * sum(parts))
            ends = [t, t + int(1e3 * slower * compute), t + int(1e3 * slower * (compute + exposed))]
            for name in (0, 1):
                database.execute(
                    "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 7, 1, ?, ?, ?)",
                    (ends[name], ends[name + 1], owner, name, name),
                )
            database.execute(
                "INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, NULL, ?, ?)",
                (t, t + int(1e3 * slower * sum(parts)), owner + 12, 2 + i),
            )
    database.execute("INSERT INTO NVTX_EVENTS VALUES (5, NULL, 75, 'mark', 1, NULL)")
    database.executescript(change)
    database.commit()
    database.close()


def nccl_glued() -> str:
    """Output of nccl-tests with messages of NCCL within its lines."""
    message = "node1:7:7 [1] NCCL INFO AllReduce: opCount 0 sendbuff 0x72 count 2097152 [nranks=2]\n"
    return nccl().replace("   -1 ", f"   -1{message}{message}    ").replace("      0   ", f"      0{message}   ")


def mlperf(throughputs: tuple[float, ...] = (2.587, 2.589, 2.588)) -> str:
    """A log of MLPerf training with these samples a second."""
    keys = {"submission_benchmark": "llama2_70b_lora", "submission_platform": "1xNVIDIA H100 80GB HBM3",
            "global_batch_size": 8, "gradient_accumulation_steps": 2, "lora_rank": 16, "number_of_nodes": 1,
            "accelerators_per_node": 8}  # fmt: skip
    lines = [("init_start", None, {}), *((key, value, {}) for key, value in keys.items())]
    for number, rate in enumerate(throughputs, 1):
        lines += [("train_loss", 1.3, {"samples_count": 384 * number - 80, "lr": 0.0004})]
        lines += [("tracked_stats", {"throughput": rate}, {"step": 384 * number})]
    return "".join(
        ":::MLLOG "
        + json.dumps({"namespace": "", "time_ms": 1745582112447 + i, "event_type": "POINT_IN_TIME", "key": key,
                      "value": value, "metadata": {"file": "train.py", "lineno": 332, **about}})
        + "\n"
        for i, (key, value, about) in enumerate(lines)
    )  # fmt: skip


def golden(times: tuple[float, ...] = (29.9, 5.4, 1.21, 1.19, 1.2)) -> str:
    """Golden values of Megatron-LM with these times in s."""
    values = {str(i): value for i, value in enumerate(times, 1)}
    series = {"start_step": 1, "end_step": len(times), "step_interval": 1}
    memory = series | {"values": dict.fromkeys(values, 1150597632.0)}
    return json.dumps({"iteration-time": series | {"values": values}, "mem-max-allocated-bytes": memory}, indent=4)


def wandb(times: tuple[float, ...] = (29.9, 5.4, 1.21, 1.19, 1.2)) -> str:
    """A chart of W&B of two runs, exported as CSV, the second twice as slow."""
    names = [f"run {run} - iteration-time{end}" for run in "ab" for end in ("", "__MIN", "__MAX")]
    head = ",".join(f'"{name}"' for name in ("Step", *names))
    return head + "".join(
        "\n" + ",".join(f'"{value}"' for value in (i, *[s] * 3, *[2 * s] * 3)) for i, s in enumerate(times, 1)
    )


def serving_table(backend: str = "vllm", rate: float = 512.0) -> str:
    """The table that vLLM's client prints, after its arguments: the run of ``VLLM``."""
    rows = {
        "Successful requests": 320, "Maximum request concurrency": 32, "Benchmark duration (s)": "80.00",
        "Total input tokens": 327680, "Total generated tokens": 40960, "Request throughput (req/s)": "4.00",
        "Output token throughput (tok/s)": f"{rate:.2f}", "Mean TTFT (ms)": "240.00", "Mean TPOT (ms)": "11.50",
        "Mean ITL (ms)": "11.50", "Median ITL (ms)": "9.80",
    }  # fmt: skip
    model = "model='meta-llama/Llama-3.1-8B-Instruct'"
    head = f"Namespace(backend='{backend}', {model}, request_rate=inf, max_concurrency=32, num_prompts=320)\n"
    head += "============ Serving Benchmark Result ============\n"
    return head + "".join(f"{name + ':':<40} {value:<10}\n" for name, value in rows.items()) + "=" * 50 + "\n"


def aiperf() -> str:
    """A result of AIPerf 0.10: the run of ``GENAI_PERF``."""
    phases = [{"name": "warmup", "type": "concurrency", "concurrency": 1, "requests": 2},
              {"name": "profiling", "type": "concurrency", "concurrency": 8, "requests": 80}]  # fmt: skip
    config = {"models": {"items": [{"name": "llama-3.1-8b"}], "strategy": "round_robin"}, "phases": phases}
    return json.dumps(GENAI_PERF | {"schema_version": "1.3", "input_config": config})


#: Output of rccl-tests, whose lines are those of nccl-tests after one of its version.
RCCL = (
    "# Collective test starting: all_reduce_perf\n# nThread 1 nGpus 8 minBytes 8388608 maxBytes 16777216 step: "
    "2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0\n#\nrccl-tests: Version develop:83d38d9\n"
    "# Using devices\n"
    + "".join(
        f"#  Rank  {i} Group  0 Pid  37300 on     node1 device  {i} [0000:{i}5:00] AMD Instinct MI300X\n"
        for i in range(8)
    )
    + "#\n#       size         count      type   redop    root     time   algbw   busbw #wrong  time  algbw  busbw\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)\n"
    "     8388608       2097152     float     sum      -1    91.10   92.08  161.14      0  94.94  88.36  154.63  0\n"
    "    16777216       4194304     float     sum      -1   121.33  138.28  242.00      0  120.47  139.26  243.71  0\n"
    "# Errors with asterisks indicate errors that have exceeded the maximum threshold.\n# Out of bounds values : 0 OK\n"
)


def _drawn(devices: int = 8, at_work: int = 8, samples: int = 100):
    """(sample, device, watts, MHz) of a node that is idle before and after a run."""
    for t in range(samples):
        for device in range(devices):
            is_run = 20 <= t < 90 and device < at_work
            yield t, device, 690.0 + device if is_run else 71.0, 1500 - 10 * device if is_run else 345


def nvidia_smi(at_work: int = 8) -> str:
    """A log of ``nvidia-smi --query-gpu=… --format=csv -l 1``."""
    head = (
        "timestamp, index, name, power.draw [W], clocks.current.sm [MHz], clocks.max.sm [MHz], utilization.gpu [%], "
        "clocks_event_reasons.active\n"
    )
    return head + "".join(
        f"2026/09/11 04:19:{t % 60:02d}.982, {device}, NVIDIA H100 80GB HBM3, {watts:.2f} W, {clock} MHz, 1980 MHz, "
        f"{99 if watts > 100.0 else 0} %, 0x{4 if watts > 100.0 else 1:016x}\n"
        for t, device, watts, clock in _drawn(at_work=at_work)
    )


def dcgmi() -> str:
    """Output of ``dcgmi dmon -e 155,100,113``, which repeats its heading."""
    head = "#Entity   POWER   SMCLK   SMMAX\nID         W       MHz             \n"
    return "".join(
        (head if t % 25 == device == 0 else "") + f"GPU {device}     {watts:.3f}   {clock}    1980\n"
        for t, device, watts, clock in _drawn()
    )


def dcgm_csv() -> str:
    """A table with the names of DCGM's fields."""
    head = "timestamp,gpu,DCGM_FI_DEV_POWER_USAGE,DCGM_FI_DEV_SM_CLOCK,DCGM_FI_DEV_MAX_SM_CLOCK\n"
    return head + "".join(f"{t},{device},{watts},{clock},1980\n" for t, device, watts, clock in _drawn())


def dcgm_exporter() -> str:
    """Scrapes of dcgm-exporter, one after the other."""
    scrapes: dict[int, list[str]] = {}
    for t, device, watts, clock in _drawn():
        labels = f'gpu="{device}",UUID="GPU-{device}",modelName="NVIDIA H100 80GB HBM3",Hostname="n1"'
        scrapes.setdefault(t, ["# HELP DCGM_FI_DEV_POWER_USAGE Power draw (in W)."]).extend(
            [f"DCGM_FI_DEV_POWER_USAGE{{{labels}}} {watts:.6f}", f"DCGM_FI_DEV_SM_CLOCK{{{labels}}} {clock}"]
        )
    return "".join(line + "\n" for lines in scrapes.values() for line in lines)


#: Lines of the start of vLLM 0.11.
VLLM_START = """\
(APIServer pid=928) INFO 05-13 16:41:20 [utils.py:233] non-default args: {'model_tag': 'meta-llama/Llama-3.1-8B-\
Instruct', 'model': 'meta-llama/Llama-3.1-8B-Instruct', 'max_model_len': 32768, 'gpu_memory_utilization': 0.9}
(EngineCore_DP0 pid=929) INFO 05-13 16:41:31 [core.py:97] Initializing a V1 LLM engine (v0.11.0) with config: \
model='meta-llama/Llama-3.1-8B-Instruct', speculative_config=None, dtype=torch.bfloat16, max_seq_len=32768, \
load_format=auto, tensor_parallel_size=1, pipeline_parallel_size=1, data_parallel_size=1, quantization=None, \
kv_cache_dtype=auto, device_config=cuda
(EngineCore_DP0 pid=929) INFO 05-13 16:41:59 [gpu_model_runner.py:2653] Model loading took 14.9889 GiB and 24.8 seconds
(EngineCore_DP0 pid=929) INFO 05-13 16:42:09 [gpu_worker.py:298] Available KV cache memory: 54.62 GiB
(EngineCore_DP0 pid=929) INFO 05-13 16:42:09 [kv_cache_utils.py:1087] GPU KV cache size: 447,440 tokens
(EngineCore_DP0 pid=929) INFO 05-13 16:42:09 [kv_cache_utils.py:1091] Maximum concurrency for 32,768 tokens per \
request: 13.65x
(EngineCore_DP0 pid=929) INFO 05-13 16:42:30 [gpu_model_runner.py:3480] Graph capturing finished in 6 secs, took \
0.55 GiB
"""

#: Lines of the start of SGLang 0.5.
SGLANG_START = """\
[2025-10-16 09:05:22] server_args=ServerArgs(model_path='Qwen/Qwen3-14B', context_length=None, dtype='auto', \
quantization=None, kv_cache_dtype='auto', mem_fraction_static=0.8, tp_size=4, pp_size=1, dp_size=1)
[2025-10-16 09:05:50 TP0] Load weight begin. avail mem=23.10 GB
[2025-10-16 09:06:02 TP0] Load weight end. type=Qwen3ForCausalLM, dtype=torch.bfloat16, avail mem=16.00 GB, \
mem usage=7.08 GB.
[2025-10-16 09:06:22 TP3] KV Cache is allocated. #tokens: 298447, K size: 5.69 GB, V size: 5.69 GB
[2025-10-16 09:06:30 TP0] Capture cuda graph end. Time elapsed: 5.37 s. mem usage=1.04 GB. avail mem=2.82 GB.
[2025-10-16 09:06:31 TP0] max_total_num_tokens=298447, chunked_prefill_size=2048, max_running_requests=3730, \
context_len=40960, available_gpu_mem=2.82 GB
"""

#: Lines of the start of TensorRT-LLM 1.0, which prints no arguments.
TENSORRT_LLM_START = """\
[TensorRT-LLM] TensorRT-LLM version: 1.0.0
[TensorRT-LLM][INFO] Max KV cache blocks per sequence: 65 [window size=2051], tokens per block=32, primary blocks=116617
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 78.30 GiB for max tokens in paged KV cache (3731744).
"""


def jax_device(device: str = "TPU", steps: int = 3) -> str:
    """A trace of JAX of steps of 10 ms on two devices, the second of which is slower."""
    streams = device == "GPU"
    lanes = {"Steps": 1, "XLA Modules": 2, "XLA Ops": 3, "Async XLA Ops": 4}
    lanes = {"Stream #14(Compute)": 3, "Stream #20(Async)": 4, "XLA Ops": 5} if streams else lanes
    events = [{"ph": "M", "pid": 701, "name": "process_name", "args": {"name": "/host:CPU"}}]
    for pid in (1, 2):
        events += [{"ph": "M", "pid": pid, "name": "process_name", "args": {"name": f"/device:{device}:{pid - 1}"}}]
        events += [
            {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": name}}
            for name, tid in lanes.items()
        ]
    for step in range(steps):
        t = 1000.0 + 10_000.0 * step
        if streams:
            events += [
                {
                    "ph": "X",
                    "pid": 701,
                    "tid": 9,
                    "ts": t,
                    "dur": 10_000.0,
                    "name": "train",
                    "args": {"step_num": str(step)},
                }
            ]
        for pid in (1, 2):
            of_step = {"ph": "X", "pid": pid, "tid": 1, "ts": t, "dur": 10_000.0, "name": str(step)}
            events += [] if streams else [of_step]
            operators = [
                ("fusion.7", 0.0, 6000.0, 3, "convolution fusion", "nvjet_hsh_256x128"),
                ("all-reduce-start.1", 5000.0, 2000.0, 4, "all-reduce", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"),
                ("loop_fusion.3", 7000.0, 1000.0, 3, "loop fusion", "loop_fusion_3"),
                ("while.1", 0.0, 8000.0, 3, "while", "while.1"),
            ]
            for name, start, length, tid, category, kernel in operators:
                if streams and name == "while.1":
                    continue
                about = {"hlo_op": name} | ({} if streams else {"hlo_category": category})
                span = {"ph": "X", "pid": pid, "ts": t + start, "dur": length * pid, "args": about}
                events.append(span | {"tid": tid, "name": kernel if streams else name})
                events += [span | {"tid": 5, "name": name}] if streams else []
    return json.dumps({"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}, "traceEvents": events})


def _field(number: int, value: int | str | bytes) -> bytes:
    """A field of a protocol buffer."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    content = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """A whole number, seven bits a byte, the lowest first."""
    head = b""
    while value > 0x7F:
        head, value = head + bytes([value & 0x7F | 0x80]), value >> 7
    return head + bytes([value])


def xplane(trace: str) -> bytes:
    """A trace of JAX as the profiler itself keeps it (``XSpace``)."""
    events, content = json.loads(trace)["traceEvents"], b""
    for process in (event for event in events if event["name"] == "process_name"):
        own = [event for event in events if event["pid"] == process["pid"]]
        threads = {event["tid"]: event["args"]["name"] for event in own if event["name"] == "thread_name"}
        spans = [event for event in own if event["ph"] == "X"]
        threads |= {event["tid"]: "python" for event in spans if event["tid"] not in threads}
        kinds = {name: number for number, name in enumerate(dict.fromkeys(event["name"] for event in spans), 1)}
        keys = {
            key: number
            for number, key in enumerate(sorted({key for event in spans for key in event.get("args", {})}), 1)
        }
        plane = _field(1, process["pid"]) + _field(2, process["args"]["name"])
        for tid, name in threads.items():
            line = _field(1, tid) + _field(2, name) + _field(3, 500_000)  # its begin, ns
            for event in (event for event in spans if event["tid"] == tid):
                times = _field(2, round(1e6 * (event["ts"] - 500.0))) + _field(3, round(1e6 * event["dur"]))
                stats = b"".join(
                    _field(4, _field(1, keys[key]) + (_field(4, int(value)) if value.isdecimal() else _field(5, value)))
                    for key, value in event.get("args", {}).items()
                )
                line += _field(4, _field(1, kinds[event["name"]]) + times + stats)
            plane += _field(3, line)
        for field, table in ((4, kinds), (5, keys)):
            for name, number in table.items():
                plane += _field(field, _field(1, number) + _field(2, _field(1, number) + _field(2, name)))
        content += _field(1, plane)
    return content


def written(folder: Path) -> None:
    """One file of each format in a folder, under the names of ``docs/profiles.md``."""
    texts = {
        "megatron-4.log": megatron([9310.2, 1421.7, 1187.9, 1190.4, 1186.2]),
        "megatron-8.log": megatron([8950.3, 2570.1, 2395.5, 2391.8, 2393.0], MEGATRON | {"global_batch_size": "8"}),
        "nemo.log": nemo([41.0, 16.3, 15.52, 15.49, 15.50]),
        "torchtitan.log": torchtitan([900, 5400, 5800, 5790, 5810]),
        "maxtext.log": maxtext([30.0, 9.5, 6.52, 6.49, 6.50]),
        "vllm.json": json.dumps(VLLM | {"mean_ttft_ms": 720.0, "mean_tpot_ms": 13.1, "median_itl_ms": 10.9,
                                        "output_throughput": 1710.0, "total_token_throughput": 15390.0}),
        "sglang.jsonl": json.dumps(SGLANG | {"mean_tpot_ms": 4.6, "mean_itl_ms": 4.6, "mean_ttft_ms": 260.0,
                                             "mean_e2e_latency_ms": 850.0, "median_itl_ms": 4.2}),
        "genai-perf.json": json.dumps(GENAI_PERF | {
            "inter_token_latency": {"unit": "ms", "avg": 9.1}, "request_latency": {"unit": "ms", "avg": 1290.0},
            "time_to_first_token": {"unit": "ms", "avg": 135.0},
            "output_token_throughput": {"unit": "tokens/sec", "avg": 790.0},
        }),
        "nccl.txt": nccl(),
        "kineto.json": kineto(compute=12.9e6, exposed=4e5, gap=5e5),
        "vllm-start.log": VLLM_START, "sglang-start.log": SGLANG_START, "tensorrt-llm-start.log": TENSORRT_LLM_START,
        "rccl.txt": RCCL, "power.csv": nvidia_smi(), "jax.json": jax_device(),
    }  # fmt: skip
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    shutil.copy(Path(__file__).parent / "data" / "jax.trace.json.gz", folder)  # a real one
    nsight(folder / "nsight.sqlite", (12.9e6, 4e5, 5e5))
