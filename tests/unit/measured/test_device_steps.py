"""Steps of a device: kernels belong to the step that launched them, which lasts to the first kernel of the next."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from dse.errors import InputError
from dse.measured import profiles
from dse.measured.profiles import kernels, messages
from dse.measured.profiles.device_steps import MARK_ROWS, Marks, StepKind
from tests.unit.measured import profiles as files
from tests.unit.measured.test_profiles import figures, put  # noqa: F401 - a fixture

#: Files that people have, with their right values.
EXAMPLES = Path(__file__).parents[4] / "shared" / "reference" / "files" / "profiles"

#: Names of kernels of a step of the traces made here, with their µs: 10 ms in all, 1 ms of it a message.
KERNELS = (
    ("indexSelect_embedding_kernel", 500.0), *[("nvjet_hsh_256x128", 1000.0), ("flash_fwd_kernel", 500.0)] * 3,
    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 1000.0), *[("flash_bwd_kernel", 500.0)] * 3,
    ("multi_tensor_apply_kernel<AdamFunctor>", 2500.0),
)  # fmt: skip


def trace(steps=4, host=9_000.0, first=1_000.0, gap=0.0, mark="ProfilerStep#{}", launches=True, **head):
    """A trace whose host marks steps of ``host`` µs and launches all kernels at their begin.

    The device runs them one after the other from ``first`` µs on, with ``gap`` µs after each step; a step that was
    launched before the first mark runs before them.
    """
    events, at, number = [], 1e6 + first - sum(us for _, us in KERNELS) - gap, 0
    for step in range(-1, steps):
        begin = 1e6 + step * host
        if step >= 0 and mark:
            name = mark.format(step)
            events.append(
                {"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": 1, "ts": begin, "dur": host}
            )
        for name, us in KERNELS:
            number += 1
            args = {"device": 0, "stream": 7, "correlation": number}
            launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "dur": 3.0}
            events.append(
                {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": at, "dur": us, "args": args}
            )
            if launches:
                events.append(launch | {"ts": begin + 10.0 + number, "args": {"correlation": number}})
            at += us
        at += gap
    return json.dumps({"schemaVersion": 1, "traceEvents": events} | head)


def row_of(path, **stated):
    """The one row of a profile."""
    found = profiles.read([path], stated)
    ((row,),) = found.tables.values()
    return row, " ".join(found.notes)


def parts(row):
    """Part → ms of a row."""
    return {name.removesuffix("_ms"): float(value) for name, value in row.items() if name.endswith("_ms")}


@pytest.mark.parametrize("first", [1_000.0, 35_000.0])
def test_a_host_far_ahead_of_its_device_marks_no_time(put, first):  # noqa: F811
    """Steps of 10 ms on the device, of 9 ms on the host: kernels run up to 4 ms after their mark, or 35 ms."""
    row, notes = row_of(put(trace(first=first), "trace.json"))
    assert figures([row]) == {"iteration_time": (pytest.approx(10.0), "ms")}
    found = parts(row)
    assert found == pytest.approx(
        {"nccl": 1.0, "gemm": 3.0, "attention": 3.0, "elementwise": 3.0, "kernels": 10.0, "compute": 9.0,
         "exposed_nccl": 1.0, "gap": 0.0, "host": 9.0}
    )  # fmt: skip
    assert "on the host a step takes 9 ms" in notes


def test_kernels_that_spill_over_their_step_belong_to_it(put):  # noqa: F811
    """The optimiser, a quarter of the step, runs while the host marks the next step."""
    row, _ = row_of(put(trace(host=12_000.0, first=3_000.0, gap=2_000.0), "trace.json"))
    assert figures([row])["iteration_time"] == (pytest.approx(12.0), "ms")
    assert parts(row)["gap"] == pytest.approx(2.0) and parts(row)["elementwise"] == pytest.approx(3.0)
    alone, _ = row_of(put(trace(1, host=12_000.0, first=3_000.0, gap=2_000.0), "one.json"))
    assert float(alone["value"]) == pytest.approx(12.0) and parts(alone)["kernels"] == pytest.approx(10.0)


@settings(max_examples=25, deadline=None)
@given(steps=st.integers(2, 6), host=st.floats(1_000.0, 10_000.0), first=st.floats(100.0, 1e5), gap=st.floats(0.0, 5e3))
def test_where_the_device_is_behind_its_own_time_counts(tmp_path_factory, steps, host, first, gap):
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    path.write_text(trace(steps, host, first, gap))
    row, _ = row_of(path)
    found = parts(row)
    last_is_seen = steps == 2  # whose gap nothing tells, and which alone counts
    assert float(row["value"]) == pytest.approx(10.0 + (0.0 if last_is_seen else 1e-3 * gap), abs=1e-6)
    assert found["kernels"] == pytest.approx(10.0) and found["nccl"] == pytest.approx(1.0)
    assert found["compute"] + found["exposed_nccl"] + found["gap"] == pytest.approx(float(row["value"]))


def test_marks_that_launch_nothing_are_no_steps(put):  # noqa: F811
    document = json.loads(trace(2, host=12_000.0, gap=2_000.0))
    stub = {
        "ph": "X",
        "cat": "user_annotation",
        "name": "ProfilerStep#9",
        "pid": 1,
        "tid": 1,
        "ts": 1e6 + 24e3,
        "dur": 49,
    }
    document["traceEvents"].append(stub)
    row, notes = row_of(put(document, "trace.json"))
    assert float(row["value"]) == pytest.approx(12.0) and "median of 1 timed step" in notes


def test_keys_after_the_events_are_read(put):  # noqa: F811
    groups = [
        {"pg_name": "0", "pg_desc": "default_pg", "pg_size": 64, "ranks": list(range(64))},
        {"pg_name": "1", "pg_desc": "TENSOR_MODEL_PARALLEL_GROUP", "pg_size": 8, "ranks": list(range(8))},
        {"pg_name": "2", "pg_desc": "mesh_pp", "pg_size": 2, "ranks": [0, 32]},
        {"pg_name": "3", "pg_desc": "EXPERT_MODEL_PARALLEL_GROUP", "pg_size": 4, "ranks": [8, 9, 10, 11]},
        {"pg_name": "4", "pg_desc": "expert_model_parallel_group", "pg_size": 16, "ranks": list(range(16))},
        {"pg_name": "5", "pg_desc": "DATA_PARALLEL_GROUP", "pg_size": 4, "ranks": [0, 8, 16, 24]},
    ]
    text = trace(
        deviceProperties=[{"name": "NVIDIA H100 80GB HBM3"}],
        distributedInfo={"rank": 0, "world_size": 64, "pg_config": groups},
    )
    assert text.index("traceEvents") < text.index("deviceProperties")
    row, _ = row_of(put(text, "trace.json"))
    said = {"gpu": "h100-sxm-80gb", "n_gpus": "64", "tp": "8", "pp": "2", "ep": "16", "dp": "4"}
    assert said.items() <= row.items()


#: Names of marks, and what their steps do.
MARKS = {
    "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk32785sqsq32sqsk32785)": ("decode", 32, 0, 32785),
    "execute_context_2(4096)_generation_0(0)": ("prefill", 2, 4096, 0),
    "execute_context_1(512)_generation_7(7)": ("mixed", 8, 512, 0),
    "execute_new_0_cached_64": ("decode", 64, 0, 0),
    "step[DECODE bs=32]": ("decode", 32, 0, 0),
    "step[EXTEND bs=2 toks=12 c_sqsq=80 c_sqsk=120 c_sk=20]": ("prefill", 2, 12, 0),
    "step[IDLE bs=0]": ("idle", 0, 0, 0),
    "prefill[bs=2 tok=16384]": ("prefill", 2, 16384, 0),
    "[Executor] _forward_step 7: 0 ctx reqs, 16 gen reqs": ("decode", 16, 0, 0),
    "[Executor] _forward_step 7: 1 ctx reqs, 900 ctx tokens, 0 gen reqs": ("prefill", 1, 900, 0),
    "ProfilerStep#550": ("", 0, 0, 0),
    "iteration3": ("", 0, 0, 0),
    "Optimizer.step#SGD.step": ("", 0, 0, 0),
}


@pytest.mark.parametrize("name", MARKS)
def test_marks_of_frameworks_and_engines_are_known(name):
    marks = Marks()
    assert marks.row_of(name) >= 0 and marks.kind_of(name) == StepKind(*MARKS[name])


def test_other_names_mark_nothing():
    marks = Marks()
    names = ("## forward ##", "DistributedDataParallel.forward", "nccl:all_reduce", "Optimizer.zero_grad#SGD.zero_grad")
    assert all(marks.row_of(name) < 0 for name in names)
    assert len({row.pattern for row in MARK_ROWS}) == len(MARK_ROWS)


def test_a_mark_may_be_stated(put):  # noqa: F811
    path = put(trace(mark="my loop {}"), "trace.json")
    row, _ = row_of(path, step_mark=r"my loop \d+")
    assert float(row["value"]) == pytest.approx(10.0) and "step_mark" not in row
    for pattern in ("never", "("):
        with pytest.raises(InputError):
            profiles.read([path], {"step_mark": pattern})


def test_steps_between_ends_of_an_optimiser(put):  # noqa: F811
    """Five steps, of which the ends of five optimisers bound four."""
    document = json.loads(trace(5, mark=""))
    for step in range(5):
        end = 1e6 + 9_000.0 * (step + 1) - 5.0
        name = "Optimizer.step#AdamW.step"
        document["traceEvents"].append(
            {"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": 1, "ts": end - 50, "dur": 50}
        )
    row, notes = row_of(put(document, "trace.json"))
    assert float(row["value"]) == pytest.approx(10.0) and "median of 2 timed steps" in notes


@pytest.mark.parametrize("launches", [True, False])
def test_without_marks_the_period_of_the_kernels_counts(put, launches):  # noqa: F811
    row, notes = row_of(put(trace(5, gap=300.0, mark="", launches=launches), "trace.json"))
    assert float(row["value"]) == pytest.approx(10.3) and "by the period of the kernels" in notes
    assert parts(row)["gap"] == pytest.approx(0.3)


def test_the_period_of_layers_is_none_of_steps(put):  # noqa: F811
    """One forward pass of 12 layers, with an embedding before and a head after them."""
    layer = [(f"kernel_{i}", 10.0) for i in range(9)]
    names = [("embedding", 5.0), ("copy", 5.0), *layer * 12, ("norm", 5.0), ("head", 5.0), ("argmax", 5.0)]
    events = [
        {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": 1e6 + 20.0 * i, "dur": us}
        for i, (name, us) in enumerate(names)
    ]
    with pytest.raises(InputError, match="no period in 113 kernels"):
        profiles.read([put({"schemaVersion": 1, "traceEvents": events}, "trace.json")])


def test_phases_of_an_engine_are_runs_of_their_own(put):  # noqa: F811
    document = json.loads(trace(8, mark="step[DECODE bs=32]"))
    marks = [event for event in document["traceEvents"] if event["cat"] == "user_annotation"]
    for event in marks[:3]:
        event["name"] = "step[EXTEND bs=4 toks=4096]"
    rows = profiles.read([put(document, "trace.json")]).tables["serving"]
    decode, prefill = sorted(rows, key=lambda row: row["metric"] != "tpot_mean")
    assert (decode["batch"], decode["framework"], float(decode["value"])) == ("32", "sglang", pytest.approx(10.0))
    assert (prefill["metric"], prefill["batch"], prefill["isl"]) == ("ttft_mean", "4", "1024")


def test_marks_of_the_device_alone_are_enough(put):  # noqa: F811
    document = json.loads(trace(5, gap=500.0, mark="", launches=False))
    for step in range(5):
        begin = 1e6 + 1_000.0 + 10_500.0 * step
        mark = {"ph": "X", "cat": "gpu_user_annotation", "name": "step[DECODE bs=8]", "pid": 0, "tid": 7, "ts": begin}
        document["traceEvents"] += [mark | {"dur": 10_000.0}, mark | {"tid": 9, "ts": begin + 4_000.0, "dur": 900.0}]
    row, notes = row_of(put(document, "trace.json"))
    assert (row["batch"], float(row["value"])) == ("8", pytest.approx(10.5)) and "decode of 8 requests" in notes


def test_a_forward_pass_alone_is_said_to_be_one(put):  # noqa: F811
    document = json.loads(trace())
    document["traceEvents"] = [event for event in document["traceEvents"] if not re.search("bwd|Adam", event["name"])]
    _, notes = row_of(put(document, "trace.json"))
    assert "forward only" in notes
    _, notes = row_of(put(trace(), "trace.json"))
    assert "forward only" not in notes


def test_of_several_devices_the_busiest_counts(put):  # noqa: F811
    document = json.loads(trace())
    others = [
        event | {"args": event["args"] | {"device": 1}} for event in document["traceEvents"][::9] if "args" in event
    ]
    document["traceEvents"] += [event for event in others if event["cat"] == "kernel"]
    row, notes = row_of(put(document, "trace.json"))
    assert parts(row)["kernels"] == pytest.approx(10.0) and "one of 2 devices" in notes


# Classes

#: Class → names of kernels of PyTorch, vLLM, SGLang, TensorRT-LLM, DeepEP, FlashInfer, AITER and others.
NAMES = {
    "nccl": [
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "void deep_ep::internode::dispatch<false, 8, false, 16384, 8>(int4*, float*)",
        "void uccl::ep::internode::combine<8, __nv_bfloat16, 16384>(int4*)",
        "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*)",
        "void deep_ep::internode_ll::combine<true, 7168, 9>(void*)",
        "_ZN7deep_ep9internode8dispatchILb1ELi8ELb0EEEvP4int4",
        "void deep_ep::internode::cached_notify<true>(int)",
        "void nvshmemi_transfer_rma<nvshmemi_threadgroup_thread>",
        "void multimem_all_reduce_kernel<c10::BFloat16, 16>",
        "multimem_all_gather_kernel",
        "void one_shot_all_reduce_kernel<c10::BFloat16, 16, 8, false>",
        "two_shot_all_reduce_kernel",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)",
        "void aiter::cross_device_reduce_2stage<__hip_bfloat16, 8, false>",
        "void tensorrt_llm::kernels::ar_fusion::allreduce_fusion_kernel_oneshot_lamport<...>",
        "tensorrt_llm::kernels::mnnvl::twoShotAllReduceKernel",
        "mori::moe::EpDispatchIntraNodeKernel<__hip_bfloat16>",
        "kuserbuffers_pushrecv<int4>",
        "all_gather_into_tensor_lamport",
        "quickreduce::allreduce_prototype_twoshot",
    ],
    "gemm": [
        "void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 7168u>",
        "sm100_m_grouped_fp8_fp4_gemm_contiguous_1d1d_impl",
        "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_bA32_bB32_t128x8x512u2_s5",
        "bmm_Bfloat16_E2m1E2m1_Fp32_tile128x64",
        "fused_moe_kernel",
        "void marlin_moe_wna16::Marlin<__nv_bfloat16, 256, 1, 8, 8>",
        "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x256x128x1",
        "_ZN5aiter47fmoe_bf16_blockscaleFp8_g1u1_vs_silu_1tg_ps_32x256E",
        "_w8a8_block_fp8_matmul",
        "void ck::kernel_moe_gemm_2lds<ck::GridwiseMoeGemm>",
        "void wvSplitK_hf_sml_<__hip_bfloat16, 64, 1>",
        "cublasLt::splitKreduce_kernel",
        "nvjet_tst_128x64_64x8_2x1_v_bz_NNT",
        "cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::GroupProblemShape>>",
    ],
    "quantization": [
        "void vllm::dynamic_per_token_scaled_fp8_quant_kernel<c10::BFloat16>",
        "void per_token_group_quant_8bit_kernel<c10::BFloat16, c10::Float8_e4m3fn, true>",
        "_per_token_group_quant_fp8_colmajor",
        "void vllm::cvt_fp16_to_fp4<__nv_bfloat16, false>",
        "void tensorrt_llm::kernels::quantize_with_block_size<(BlockScaleQuantizationType)1>",
        "transformer_engine::dispatch::mxfp8::quantize_kernel::quantize_mxfp8_kernel",
        "void transformer_engine::cast_transpose_fused_kernel_notaligned",
        "_dynamic_mxfp4_quant_kernel",
    ],
    "routing": [
        "void vllm::moe::topkGating<8, 128, 4, 16, 32>",
        "void vllm::moe::topkGatingSoftmax<float, 4, 128, 4, 16>",
        "void vllm::moe::moe_align_block_size_kernel<int>",
        "void vllm::moe::count_and_sort_expert_tokens_kernel<int>",
        "void vllm::moe::moe_sum_kernel<c10::BFloat16, 8>",
        "void grouped_topk_fused_kernel<float>",
        "moe_fused_gate_kernel",
        "void moe::dev::routing::routingIndicesClusterKernel<>",
        "void tensorrt_llm::kernels::finalizeMoeRoutingKernel",
        "void tensorrt_llm::kernels::expandInputRowsKernel",
        "_fwd_kernel_ep_scatter_1",
        "deepep_permute_triton_kernel",
        "_permute_kernel",
        "_row_id_map_pass_1_kernel",
        "void deep_ep::layout::get_dispatch_layout<256, 32, 8>",
    ],
    "cache": [
        "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16, (vllm::Fp8KVCacheDataType)0>",
        "void vllm::concat_and_cache_mla_kernel<__nv_bfloat16>",
        "void (anonymous namespace)::store_kvcache<2048l, 4, false, long>",
        "set_mla_kv_buffer_kernel",
        "void vllm::indexer_k_quant_and_cache_kernel",
        "void tensorrt_llm::kernels::applyBiasRopeUpdateKVCacheV2<__nv_bfloat16>",
        "flashinfer::AppendPagedKVCacheKernel",
    ],
    "attention": [
        "void flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits>",
        "void paged_attention_ll4mi_QKV_mfma16_kernel<0, __hip_bfloat16, (vllm::Fp8KVCacheDataType)0>",
        "flashinfer::BatchPrefillWithPagedKVCacheKernel<KernelTraits>",
        "flashinfer::BatchDecodeWithPagedKVCacheKernel",
        "fmhaSm100fKernel_QkvE4m3OBfloat16HQk576HV512",
        "_fwd_grouped_kernel_stage1",
        "kernel_unified_attention_2d",
        "void flash_fwd_mla_combine_kernel<float>",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16",
    ],
    "elementwise": [
        "void vllm::rms_norm_kernel<c10::BFloat16>",
        "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256E",
        "void vllm::act_and_mul_kernel<c10::BFloat16, &silu_kernel>",
        "void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>",
        "void flashinfer::BatchQKApplyRotaryPosIdsCosSinCacheKernel",
        "void flashinfer::sampling::TopKTopPSamplingFromProbKernel",
        "triton_poi_fused_add_0",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("label", "name"), [(label, name) for label, names in NAMES.items() for name in names])
def test_kernels_of_public_engines_have_classes(label, name):
    assert [*kernels.CLASSES, "memcpy", "other"][kernels.kernel_class(name)] == label


# Messages


def test_bus_bandwidth_by_hand():
    """An all-reduce of 8 ranks moves 2 · 7/8 of its bytes, an all-gather 7/8: nccl-tests, doc/PERFORMANCE.md."""
    assert messages.TracedMessage("allreduce", 1000, 8).bus_factor == pytest.approx(1.75)
    assert messages.TracedMessage("allgather_base", 1000, 8).bus_factor == pytest.approx(0.875)
    assert messages.TracedMessage("broadcast", 1000, 8).bus_factor == 1.0
    assert messages.TracedMessage("allreduce", 1000).bus_factor == 0.0


def test_a_collective_stands_beside_its_bandwidth_and_link(put):  # noqa: F811
    """1.8 GB over 8 ranks in 9 ms: 350 GB/s of bus, 77.8 % of the 450 GB/s of a device of an H100."""
    sent = {"Collective name": "allreduce", "In msg nelems": 900_000_000, "dtype": "BFloat16", "Group size": 8}
    document = json.loads(trace(4, deviceProperties=[{"name": "NVIDIA H100 80GB HBM3"}]))
    reduces = [event for event in document["traceEvents"] if event["name"].startswith("nccl")]
    for event in reduces:
        event["args"] |= sent | {"Process Group Ranks": str([*range(8)])}
        event["dur"] = 9_000.0
    _, notes = row_of(put(document, "trace.json"))
    assert "allreduce of 1,800,000,000 B over 8 ranks: 1 a step, 9 ms" in notes
    assert "at 350 GB/s of bus (77.8 % of scale-up link)" in notes and "wait" not in notes
    reduces[-1]["dur"] = 36_000.0
    _, notes = row_of(put(document, "trace.json"))
    assert "ranks wait for each other" in notes


# Nsight Systems


def test_an_export_without_processes_counts_its_device(tmp_path):
    path = tmp_path / "report.sqlite"
    files.nsight(path)
    database = sqlite3.connect(path)
    database.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE globalPid <> (4711 << 24)")
    database.execute("DELETE FROM NVTX_EVENTS WHERE globalTid >> 24 <> 4711")
    database.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN globalPid")
    database.commit()
    database.close()
    row, notes = row_of(path)
    assert figures([row]) == {"iteration_time": (pytest.approx(10.0), "ms")} and "no column globalPid" in notes


def test_an_export_without_ranges_is_divided_by_the_period_of_its_kernels(tmp_path):
    path = tmp_path / "report.sqlite"
    files.nsight(path, steps=0)
    database = sqlite3.connect(path)
    database.executemany(
        "INSERT INTO StringIds VALUES (?, ?)", [(100 + i, name) for i, (name, _) in enumerate(KERNELS)]
    )
    at = 1_000_000
    for _ in range(4):
        for number, (_, us) in enumerate(KERNELS):
            values = (at, at + int(1e3 * us), 4711 << 24, 100 + number)
            database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 7, 1, ?, ?, 0)", values)
            at += int(1e3 * us)
    database.commit()
    database.close()
    row, notes = row_of(path)
    assert float(row["value"]) == pytest.approx(10.0) and "by the period of the kernels" in notes


# Files that people have


def example(name):
    """The row and remarks of a file of the examples; skip where they are absent."""
    if not EXAMPLES.is_dir():
        pytest.skip("the reference files are not beside this checkout")
    return row_of(EXAMPLES / name)


#: File → its right step time and parts, ms (README of the folder).
RIGHT = {
    "kineto_gpu_behind.json.gz": (18.97, {"nccl": 15.65, "kernels": 22.7}),  # of 15.4 to 15.9, and of 22.5 to 22.9
    "kineto_stub_step.json.gz": (9.288, {"kernels": 0.149}),
    "kineto_nccl_metadata.json.gz": (222.3, {}),
    "kineto_gap_a100.json.gz": (216.2, {"gap": 138.9, "nccl": 34.1}),
    "sglang_decode_trace.json.gz": (
        None, {"kernels": 9.76, "gemm": 5.78, "attention": 2.13, "elementwise": 1.66, "other": 0.19}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_files_that_people_have_are_right_within_a_hundredth(name):
    step, right = RIGHT[name]
    row, _ = example(name)
    if step is not None:
        assert float(row["value"]) == pytest.approx(step, rel=0.01)
    found = parts(row)
    assert {part: found[part] for part in right} == pytest.approx(right, rel=0.01)


def test_what_files_that_people_have_say_besides():
    row, _ = example("kineto_device_after_events.json.gz")
    assert row["gpu"] == "h100-sxm-80gb"
    _, notes = example("kineto_nccl_metadata.json.gz")
    said = re.search(
        r"allreduce of 26,550,272 B over 2 ranks: 1 a step, [\d.]+ ms, mean 2.405 ms at ([\d.]+) GB/s", notes
    )
    assert said and float(said[1]) == pytest.approx(11.04, rel=1e-3)
    row, notes = example("kineto_gap_a100.json.gz")
    sent = float(re.search(r"SendRecv: 15 a step, ([\d.]+) ms", notes)[1])
    assert sent <= float(row["nccl_ms"]) * 1.001
    row, notes = example("sglang_decode_trace.json.gz")
    assert "decode of 32 requests" in notes and (row["framework"], row["batch"], row["gpu"]) == (
        "sglang",
        "32",
        "mi300x",
    )
    with pytest.raises(InputError, match="globalPid"):
        profiles.read([EXAMPLES / "nsys_no_globalpid.sqlite"])


@pytest.mark.parametrize(
    ("change", "system", "told"),
    [
        (
            {"deviceProperties": [{"name": "AMD Instinct MI300X"}]},
            "h100",
            "is of mi300x, the command says h100-sxm-80gb",
        ),
        ({"call": "hipLaunchKernel"}, "h100", "ran on a device of AMD, the command says h100-sxm-80gb of NVIDIA"),
        ({"memory": 100 << 30}, "h100", "100 GiB in use, more than the 79.1 GiB of h100-sxm-80gb"),
        ({"memory": 60 << 30, "deviceProperties": [{"name": "NVIDIA H100 80GB HBM3"}]}, "h100", ""),
    ],
)
def test_the_stated_machine_is_held_against_the_file(put, change, system, told):  # noqa: F811
    document = json.loads(trace()) | {key: value for key, value in change.items() if key == "deviceProperties"}
    for event in document["traceEvents"]:
        if event["cat"] == "cuda_runtime":
            event["name"] = change.get("call", event["name"])
    if taken := change.get("memory"):
        args = {"Total Allocated": taken, "Total Reserved": taken, "Device Type": 1, "Device Id": 0}
        event = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": 1e6, "args": args}
        document["traceEvents"].append(event)
    notes = " ".join(profiles.read([put(document, "trace.json")], {"system": system}).notes)
    assert told in notes and (told or "which counts" not in notes)
    found = profiles.read([put(document, "trace.json")])
    measured = figures(found.tables["steps"])
    assert measured.get("peak_memory", (0.0, "B")) == (float(change.get("memory", 0)), "B")
