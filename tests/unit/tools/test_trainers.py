"""torchtitan, MaxText and DeepSpeed: what files and lines state, with the tool's defaults for what they leave out."""

from __future__ import annotations

import json

import pytest

from dse.designs import short_name
from dse.errors import InputError
from dse.tools import TOOLS
from dse.tools.deepspeed import batch_triple
from dse.tools.reading import read
from dse.tools.recognition import slice_devices
from dse.tools.rows import defaults_of
from dse.types import ContextExchange, Precision, Recompute, Schedule


def reading_of(text, tool, n=None, name="file", **asked):
    return read({name: text}, TOOLS, tool, n_devices=n, **asked)


def values_of(text, tool, n=None, **asked):
    found = reading_of(text, tool, n, **asked)
    return {short_name(path): value for path, value in found.values.items()}


# --- torchtitan: torchtitan/config/job_config.py of v0.2 and before -----------------------------------------

TITAN = "[model]\nname = 'llama3'\nflavor = '8B'\n"

#: TOML, devices → values.
TORCHTITAN = [
    # TrainingConfig: local_batch_size 8, seq_len 2048; ParallelDims: all devices are shards
    ("", 8, dict(dp=8, zero_stage=3, micro_batch=8, global_batch=64, seq_len=2048, precision=Precision.bf16)),
    # ActivationCheckpoint: selective, every second layer; compile off; sequence parallelism part of apply_tp
    ("", 8, dict(recompute=Recompute.full, recompute_share=0.5, fused_elementwise=0, sequence_parallel=1)),
    ("[training]\nlocal_batch_size = 1\n[parallelism]\ntensor_parallel_degree = 8", 64,
     dict(tp=8, dp=8, global_batch=8, zero_stage=3)),
    ("[parallelism]\ndata_parallel_replicate_degree = 4\ndata_parallel_shard_degree = 8", 32,
     dict(dp=32, dp_replicate=4, zero_stage=3, global_batch=256)),
    ("[parallelism]\ndata_parallel_replicate_degree = 8\ndata_parallel_shard_degree = 1", 8, dict(dp=8, zero_stage=0)),
    ("[parallelism]\nfsdp_reshard_after_forward = 'never'", 8, dict(zero_stage=2)),
    ("[training]\nglobal_batch_size = 512\nlocal_batch_size = 2", 8, dict(global_batch=512, micro_batch=2)),
    # a pipeline passes a local batch in micro-batches of 1
    ("[training]\nlocal_batch_size = 8\n[parallelism]\npipeline_parallel_degree = 4", 32,
     dict(pp=4, dp=8, micro_batch=1, global_batch=64, schedule=Schedule._1f1b)),
    ("[parallelism]\npipeline_parallel_degree = 4\npipeline_parallel_schedule = 'Interleaved1F1B'", 8,
     dict(virtual_stages=2)),
    # (32 layers + 1 + 1) over 5 are 7 stages: the number rounds up as pipeline_llm does
    ("[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_schedule = 'Interleaved1F1B'\n"
     "pipeline_parallel_layers_per_stage = 6", 8, dict(virtual_stages=3)),
    ("[parallelism]\npipeline_parallel_degree = 4\npipeline_parallel_schedule = 'ZBVZeroBubble'", 8,
     dict(schedule=Schedule.zb_v, virtual_stages=2)),
    ("[activation_checkpoint]\nmode = 'selective'\nselective_ac_option = 'op'", 8,
     dict(recompute=Recompute.selective_op)),
    ("[activation_checkpoint]\nmode = 'selective'\nselective_ac_option = '4'", 8,
     dict(recompute=Recompute.full, recompute_share=0.25)),
    ("[activation_checkpoint]\nmode = 'none'", 8, dict(recompute=Recompute.none)),
    ("[compile]\nenable = true", 8, dict(fused_elementwise=1)),
    ("[compile]\nenable = true\ncomponents = ['loss']", 8, dict(fused_elementwise=0)),
    # asynchronous tensor parallelism needs a compiled model
    ("[parallelism]\ntensor_parallel_degree = 8\nenable_async_tensor_parallel = true", 8, dict(overlap_tp=0)),
    ("[parallelism]\ntensor_parallel_degree = 8\nenable_async_tensor_parallel = true\n[compile]\nenable = true", 8,
     dict(overlap_tp=1)),
    ("[float8]\nrecipe_name = 'rowwise'", 8, dict(precision=Precision.bf16)),  # without its converter
    ("[parallelism]\ncontext_parallel_degree = 2\ncontext_parallel_rotate_method = 'alltoall'", 8,
     dict(cp=2, cp_comm_type=ContextExchange.p2p, dp=4)),
    ("[parallelism]\ncontext_parallel_degree = 2", 8, dict(cp_comm_type=ContextExchange.all_gather)),
    ("[training]\nenable_cpu_offload = true", 8, dict(offload_weights=1, offload_optimizer=1, host_update=1)),
    ("[training]\ndtype = 'bfloat16'", 8, dict(parameter_bytes=2, moment_bytes=2, gradient_bytes=2)),
    # names before v0.1
    ("[training]\nbatch_size = 1\ntensor_parallel_degree = 8\ndata_parallel_degree = -1\ncompile = true", 16,
     dict(tp=8, dp=2, global_batch=2, micro_batch=1, fused_elementwise=1)),
    ("[training]\nbatch_size = 8\n[experimental]\npipeline_parallel_degree = 2\npipeline_parallel_microbatches = 4", 16,
     dict(pp=2, dp=8, micro_batch=2, global_batch=64)),
    ("[float8]\nenable_float8_linear = true\nenable_fsdp_float8_all_gather = true", 8,
     dict(precision=Precision.fp8, weight_message_bytes=1)),
]  # fmt: skip

CONVERTERS = [
    ("converters = ['float8']\n[float8]\nrecipe_name = 'rowwise'", Precision.fp8_row),
    ("converters = ['quantize.linear.float8']", Precision.fp8),
    ("converters = ['mx']", Precision.mxfp8),
    ("converters = []", Precision.bf16),
]


@pytest.mark.parametrize(("text", "n", "wanted"), TORCHTITAN)
def test_torchtitan_states_a_job(text, n, wanted):
    found = values_of(TITAN + text, "torchtitan", n)
    assert {name: found.get(name) for name in wanted} == wanted


@pytest.mark.parametrize(("text", "precision"), CONVERTERS)
def test_torchtitan_converts_products(text, precision):
    assert values_of(TITAN + text, "torchtitan", 8)["precision"] == precision


def test_experts_of_torchtitan_are_within_its_shards():
    text = "[model]\nname = 'qwen3'\nflavor = '30B-A3B'\n[parallelism]\nexpert_parallel_degree = 8\n"
    found = values_of(text, "torchtitan", 16)
    assert (found["ep"], found["dp"], found["zero_stage"], found["global_batch"]) == (8, 16, 3, 128)
    assert "ep" not in values_of(TITAN + "[parallelism]\nexpert_parallel_degree = 1", "torchtitan", 8)
    assert reading_of(text, "torchtitan", 16).workload == "qwen3-30b-a3b"


@pytest.mark.parametrize(("name", "flavor", "workload"), [
    ("llama3", "405B", "llama-3-1-405b"), ("llama3", "70B", "llama-3-70b"), ("deepseek_v3", "671B", "deepseek-v3"),
    ("deepseek_v3", "16B", "deepseek-v2-lite"), ("llama4", "17bx16e", "llama-4-scout"), ("llama3", "debugmodel", None),
    ("gpt_oss", "120b", "gpt-oss-120b"), ("qwen3", "0.6B", "qwen3-0-6b"),
])  # fmt: skip
def test_models_of_torchtitan_have_a_flavor(name, flavor, workload):
    text = f"[model]\nname = '{name}'\nflavor = '{flavor}'\n[training]\nseq_len = 4096"
    assert reading_of(text, "torchtitan", 8).workload == workload


@pytest.mark.parametrize(("text", "told"), [
    ("[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_schedule = 'LoopedBFS'", "LoopedBFS"),
    ("[activation_checkpoint]\nmode = 'memory_budget'", "set recompute"),
    ("[parallelism]\nenable_async_tensor_parallel = true", "no effect without --compile.enable"),
    ("[optimizer]\nname = 'Muon'", "Muon is not modelled"),
])  # fmt: skip
def test_what_torchtitan_has_and_the_model_lacks_is_told(text, told):
    assert any(told in note for note in reading_of(TITAN + text, "torchtitan", 8).notes)


def test_effects_of_torchtitan_are_by_either_name():
    options = {
        option.option: option for option in reading_of(TITAN + "[optimizer]\nlr = 1e-4", "torchtitan", 8).options
    }
    assert options["optimizer.lr"].moves == "nothing"
    line = "torchtitan.train --optimizer.lr 1e-4 --training.seq_len 4096 --training.local-batch-size 2"
    options = {option.option: option for option in reading_of(line, "torchtitan", 8).options}
    assert options["--optimizer.lr"].moves == "nothing"
    assert options["--training.local_batch_size"].leaves["mapping.micro_batch"] == 2


# --- MaxText: src/MaxText/configs/base.yml ------------------------------------------------------------------

#: Options, devices, chip → values.
MAXTEXT = [
    # per_device_batch_size 12, fsdp of all devices of a slice
    ("", 64, "tpu-v5p", dict(dp=64, zero_stage=3, dp_replicate=1, global_batch=768, micro_batch=12, seq_len=2048)),
    ("", 64, "tpu-v5p", dict(recompute=Recompute.full, precision=Precision.bf16, parameter_bytes=4)),
    ("per_device_batch_size=4 ici_tensor_parallelism=4", 64, "tpu-v5p",
     dict(tp=4, dp=16, global_batch=256, micro_batch=16)),
    ("dcn_data_parallelism=4 ici_fsdp_parallelism=-1", 256, "tpu-v5e",
     dict(dp=256, dp_replicate=4, zero_stage=3)),
    ("dcn_fsdp_parallelism=32 ici_fsdp_parallelism=8 dcn_data_parallelism=1 per_device_batch_size=8", 256, "b200",
     dict(dp=256, dp_replicate=1, zero_stage=3, global_batch=2048, micro_batch=8)),
    ("ici_data_parallelism=-1 ici_fsdp_parallelism=1", 8, "tpu-v6e", dict(dp=8, zero_stage=0)),
    ("ici_data_parallelism=-1 ici_fsdp_parallelism=1 shard_optimizer_over_data=true", 8, "tpu-v6e", dict(zero_stage=1)),
    ("ici_fsdp_parallelism=4 ici_fsdp_transpose_parallelism=4", 16, "tpu-v6e", dict(dp=16, zero_stage=3)),
    ("ici_context_parallelism=4 per_device_batch_size=0.25", 16, "tpu-v6e",
     dict(cp=4, dp=4, global_batch=4, micro_batch=1, cp_comm_type=ContextExchange.all_gather)),
    ("ici_tensor_sequence_parallelism=4", 16, "tpu-v6e", dict(tp=4, dp=4, sequence_parallel=1)),
    ("gradient_accumulation_steps=4 per_device_batch_size=2", 8, "tpu-v6e", dict(global_batch=64, micro_batch=2)),
    # as many micro-batches as stages; 32 layers over 4 stages of 2 layers are 4 repeats
    ("dcn_pipeline_parallelism=4 num_layers_per_pipeline_stage=2 per_device_batch_size=4 dcn_data_parallelism=1", 32,
     "tpu-v5e", dict(pp=4, dp=8, global_batch=128, micro_batch=4, virtual_stages=4)),
    ("ici_pipeline_parallelism=4 num_pipeline_repeats=1 num_pipeline_microbatches=8 per_device_batch_size=2", 16,
     "tpu-v5e", dict(pp=4, dp=4, global_batch=32, micro_batch=1, schedule=Schedule.gpipe)),
    ("remat_policy=minimal", 8, "tpu-v6e", dict(recompute=Recompute.selective_op, keeps_products=1)),
    ("remat_policy=minimal_offloaded", 8, "tpu-v6e", dict(recompute=Recompute.selective_op, offload_activations=1)),
    ("remat_policy=custom decoder_layer_input=offload", 8, "tpu-v6e",
     dict(recompute=Recompute.full, offload_activations=1)),
    ("optimizer_memory_host_offload=True", 8, "tpu-v6e", dict(offload_optimizer=1)),
    ("quantization=int8", 8, "tpu-v6e", dict(precision=Precision.int8)),
    ("quantization=te_fp8_delayedscaling", 8, "h100", dict(precision=Precision.fp8)),
    ("quantization=nanoo_fp8", 8, "mi300x", dict(precision=Precision.fp8)),
    ("dtype=float32", 8, "tpu-v6e", dict(precision=Precision.fp32)),
    ("weight_dtype=bfloat16", 8, "tpu-v6e", dict(parameter_bytes=2, moment_bytes=2)),
    ("mu_dtype=bfloat16", 8, "tpu-v6e", dict(parameter_bytes=4, moment_bytes=3)),  # the second stays in 32 bits
    ("attention=dot_product", 8, "tpu-v6e", dict(attention=0)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "n", "chip", "wanted"), MAXTEXT)
def test_maxtext_states_a_run(text, n, chip, wanted):
    line = f"python3 -m MaxText.train base.yml model_name=llama3.1-8b steps=10 {text}"
    found = values_of(line, "maxtext", n, system=chip)
    assert {name: found.get(name) for name in wanted} == wanted


def test_axes_of_minus_one_need_devices_and_one_a_mesh():
    line = "python3 -m MaxText.train base.yml model_name=llama3.1-8b max_target_length=4096"
    assert not {"dp", "global_batch"} & values_of(line, "maxtext").keys()
    with pytest.raises(InputError, match="are both -1"):
        values_of(f"{line} ici_tensor_parallelism=-1", "maxtext", 64, system="tpu-v5p")


def test_slices_of_gpus_are_nodes():
    line = "torchrun --nnodes 4 --nproc-per-node 8 -m MaxText.train base.yml model_name=llama2-7b hardware=gpu"
    found = values_of(f"{line} steps=3 per_device_batch_size=2", "maxtext", system="h100")
    assert (found["dp"], found["dp_replicate"], found["global_batch"]) == (32, 4, 64)


@pytest.mark.parametrize(("name", "chips"), [
    # xpk/core/system_characteristics.py: v4, v5p and tpu7x count TensorCores, two a chip
    ("v5p-256", 128), ("v4-8", 4), ("v5litepod-256", 256), ("v5e-16", 16), ("v6e-256", 256), ("tpu7x-128", 64),
    ("v5p-4x4x4", 64), ("v6e-16x16", 256), ("v5p", None), ("v5p-2x", None),
])  # fmt: skip
def test_names_of_slices_count_cores_or_chips(name, chips):
    assert slice_devices(name) == chips


def test_a_line_of_xpk_states_chip_and_slices():
    command = "python3 MaxText/train.py base.yml model_name=llama2-70b per_device_batch_size=4 ici_tensor_parallelism=2"
    line = f'xpk workload create --cluster c --tpu-type=v5p-256 --num-slices=2 --command "{command}"'
    found = reading_of(line, "", name="run.sh")
    values = {short_name(path): value for path, value in found.values.items()}
    assert found.tool.name == "maxtext" and found.devices.total == 256 and found.chip.name.startswith("tpu-v5p")
    assert (values["tp"], values["dp"], values["dp_replicate"], values["global_batch"]) == (2, 128, 2, 1024)
    gpu = reading_of(
        line.replace("--tpu-type=v5p-256 --num-slices=2", "--device-type=h100-mega-80gb-8 --num-nodes=4"), ""
    )
    assert gpu.devices.total == 32 and gpu.chip.name == "h100-sxm-80gb"


def test_a_shape_without_a_name_has_the_sizes_of_base_yml():
    line = "python3 -m MaxText.train base.yml base_emb_dim=6144 base_num_decoder_layers=48 base_num_query_heads=24"
    shape = {short_name(path): value for path, value in reading_of(line, "maxtext", 64).shape.items()}
    assert (shape["hidden"], shape["n_layers"], shape["n_heads"]) == (6144, 48, 24)
    assert (shape["ffn_hidden"], shape["head_dim"], shape["vocab"]) == (7168, 128, 32000)
    assert not reading_of("python3 -m MaxText.train base.yml model_name=llama2-7b steps=1", "maxtext", 8).shape


@pytest.mark.parametrize("policy", ["save_qkv_proj", "save_dot_except_mlp", "custom out_proj=device"])
def test_policies_between_two_are_told(policy):
    line = f"python3 -m MaxText.train base.yml model_name=llama2-7b remat_policy={policy}"
    found = reading_of(line, "maxtext", 8)
    assert found.values["mapping.recompute"] == Recompute.full
    assert any("more than full recompute" in note for note in found.notes)


@pytest.mark.parametrize(("name", "workload"), [
    ("deepseek3-671b", "deepseek-v3"), ("llama4-17b-16e", "llama-4-scout"), ("gpt3-6b", None), ("gpt3-52k", None),
    ("llama3.3-70b", "llama-3-1-70b"), ("qwen3-235b-a22b", "qwen3-235b-a22b"), ("kimi-k2-1t", "kimi-k2"),
])  # fmt: skip
def test_models_of_maxtext_are_those_of_the_catalogue(name, workload):
    line = f"python3 -m MaxText.train base.yml model_name={name} max_target_length=4096"
    assert reading_of(line, "maxtext", 8).workload == workload


# --- DeepSpeed: deepspeed/runtime/config.py, zero/config.py, zero/offload_config.py -------------------------

TRIPLES = [
    ((256.0, 4.0, None, 16.0), (256.0, 4.0, 16.0)), ((None, 4.0, 2.0, 16.0), (128.0, 4.0, 16.0)),
    ((256.0, None, 4.0, 16.0), (256.0, 4.0, 16.0)), ((256.0, None, None, 16.0), (256.0, 16.0, 16.0)),
    ((None, 4.0, None, 16.0), (64.0, 4.0, 16.0)), ((256.0, 4.0, 4.0, None), (256.0, 4.0, 16.0)),
    ((None, 4.0, None, None), (None, 4.0, None)),
]  # fmt: skip


@pytest.mark.parametrize(("known", "wanted"), TRIPLES)
def test_deepspeed_completes_its_batch(known, wanted):
    assert batch_triple(*known) == wanted


#: Configuration, devices → values.
DEEPSPEED = [
    # stage 0, no offload, 32 bits
    ({"train_micro_batch_size_per_gpu": 2}, 8, dict(zero_stage=0, overlap_dp=0, precision=Precision.fp32, dp=8)),
    ({"train_micro_batch_size_per_gpu": 2}, 8, dict(global_batch=16, micro_batch=2)),
    ({"zero_optimization": {"stage": 3}, "bf16": {"enabled": True}}, 8,
     dict(zero_stage=3, overlap_dp=1, precision=Precision.bf16)),
    ({"zero_optimization": {"stage": 2, "overlap_comm": True}, "fp16": {"enabled": True}}, 8,
     dict(zero_stage=2, overlap_dp=1, precision=Precision.fp16)),
    ({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}, 8,
     dict(offload_optimizer=1, pinned=0, host_update=1, offload_gradients=1, gradient_copy_bytes=4, offload_weights=0)),
    ({"zero_optimization": {"stage": 2, "cpu_offload": True}}, 8, dict(offload_optimizer=1, host_update=1)),
    ({"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}}, 8,
     dict(offload_weights=1, storage_weights=1, pinned=1)),
    ({"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8, "zero_quantized_weights": True,
                            "zero_quantized_gradients": True}}, 32,
     dict(secondary=1, weights_over=8, gathered_bytes=1, scattered_bytes=0.5)),
    ({"zero_optimization": {"stage": 3, "mics_shard_size": 8}, "train_batch_size": 32}, 32, dict(dp_replicate=4)),
    ({"tensor_parallel": {"autotp_size": 4}, "train_batch_size": 32}, 16, dict(tp=4, dp=4, micro_batch=8)),
    ({"sequence_parallel_size": 4, "train_batch_size": 4}, 16,
     dict(cp=4, dp=4, cp_comm_type=ContextExchange.a2a, micro_batch=1)),
    ({"communication_data_type": "fp32", "train_batch_size": 8}, 8, dict(gradient_message_bytes=4)),
    ({"bfloat16": {"enabled": True}, "train_batch_size": 8}, 8, dict(precision=Precision.bf16)),
]  # fmt: skip


@pytest.mark.parametrize(("document", "n", "wanted"), DEEPSPEED)
def test_deepspeed_states_a_run(document, n, wanted):
    found = values_of(json.dumps(document), "deepspeed", n, workload="llama-3-8b")
    assert {name: found.get(name) for name in wanted} == wanted


def test_auto_is_filled_in_by_another_program():
    document = {
        "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
        "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"},
        "zero_optimization": {"stage": 3, "overlap_comm": True, "offload_optimizer": {"device": "cpu"},
                              "offload_param": {"device": "cpu"}, "reduce_bucket_size": "auto"},
    }  # fmt: skip
    found = values_of(json.dumps(document), "deepspeed", 8, workload="llama-3-8b")
    assert not {"precision", "micro_batch", "global_batch"} & found.keys()
    assert found["zero_stage"] == 3 and found["offload_optimizer"] == found["offload_weights"] == 1


@pytest.mark.parametrize(
    "tool", ["torchtitan", "maxtext", "deepspeed", "transformers", "trl", "axolotl", "llama-factory", "torchtune"]
)
def test_defaults_and_effects_name_options_that_the_tool_has(tool):
    """A default that decides no leaf, and no rule reads, would say nothing; an effect has one of four words."""
    from dse.tools.rule_names import option_names

    entry = TOOLS[tool]
    assert set(defaults_of(entry)) <= option_names(entry)
    assert set(entry.effects.values()) <= {"time", "memory", "time and memory", "nothing"}


# --- older and newer forms of torchtitan ------------------------------------------------------------------------


def test_torchtitan_of_2024_has_as_many_micro_batches_as_stages():
    text = "[model]\nname = 'llama3'\nflavor = '8B'\n[training]\nbatch_size = 8\n[experimental]\n"
    text += "pipeline_parallel_degree = 4\n"
    assert values_of(text, "torchtitan", 8)["micro_batch"] == 2.0
    assert values_of(text + "pipeline_parallel_microbatches = 8\n", "torchtitan", 8)["micro_batch"] == 1.0
    assert values_of(text.replace("degree = 4", "degree = 1"), "torchtitan", 8)["micro_batch"] == 8.0


@pytest.mark.parametrize("option", ["no_enable_sequence_parallel", "no-enable-sequence-parallel"])
def test_torchtitan_turns_a_switch_off(option):
    text = f"torchrun -m torchtitan.train --module llama3 --config llama3_70b --parallelism.{option}"
    found = reading_of(text, "torchtitan", 8)
    assert found.workload == "llama-3-1-70b"
    assert {short_name(path): value for path, value in found.values.items()}["sequence_parallel"] == 0.0
    assert any("what --config llama3_70b sets besides is unknown" in note for note in found.notes)


def test_torchtitan_tells_generations_by_the_path_of_the_tokenizer():
    text = "[model]\nname = 'llama3'\nflavor = '70B'\n"
    assert reading_of(text, "torchtitan", 8).workload == "llama-3-70b"
    assert reading_of(text + "hf_assets_path = './hf/Llama-3.1-70B'", "torchtitan", 8).workload == "llama-3-1-70b"
    assert reading_of(text + "hf_assets_path = './hf/Llama-3.1-8B'", "torchtitan", 8).workload == "llama-3-70b"


def test_torchtitan_is_configured_by_variables():
    text = "NGPU=8 MODULE=llama3 CONFIG=llama3_8b ./run_train.sh --training.local_batch_size 2"
    found = read({"run.sh": text}, TOOLS)
    assert (found.workload, found.devices.total) == ("llama-3-1-8b", 8)


# --- MaxText: variables, runners, capacity, diffusion -----------------------------------------------------------


def test_maxtext_reads_variables():
    text = "export M_PER_DEVICE_BATCH_SIZE=2\npython3 -m MaxText.train base.yml model_name=llama3.1-8b "
    found = read({"run.sh": text}, TOOLS, n_devices=8, system="tpu-v6e")
    assert {short_name(path): value for path, value in found.values.items()}["global_batch"] == 16.0
    stated = read({"run.sh": text + "per_device_batch_size=4"}, TOOLS, n_devices=8, system="tpu-v6e")
    assert {short_name(path): value for path, value in stated.values.items()}["global_batch"] == 32.0


@pytest.mark.parametrize(("program", "model", "slug"), [
    ("benchmarks/benchmark_runner.py xpk", "llama3_1_70b_8192", "llama-3-1-70b"),
    ("-m benchmarks.maxtext_xpk_runner", "mixtral_8x7b_dropped", "mixtral-8x7b"),
])  # fmt: skip
def test_a_runner_of_maxtext_has_no_degrees(program, model, slug):
    found = read({"run.sh": f"python3 {program} --device_type=v6e-256 --num_slices=2 --model_name={model}"}, TOOLS)
    assert (found.workload, found.devices.total, found.values) == (slug, 512, {})
    assert any(f"give the options of {model}" in text for text in found.missing)


@pytest.mark.parametrize(("options", "capacity"), [
    ("sparse_matmul=False megablox=False capacity_factor=1.25", 1.25),
    ("sparse_matmul=False", None),
    ("capacity_factor=1.25", None),  # sparse products drop no token
])  # fmt: skip
def test_maxtext_drops_tokens_of_dense_products(options, capacity):
    text = f"python3 -m MaxText.train base.yml model_name=mixtral-8x7b {options}"
    found = read({"run.sh": text}, TOOLS, n_devices=8, system="tpu-v6e")
    assert found.shape.get("workload.experts.capacity") == capacity
    assert found.values.get("software.experts.grouped_efficiency") == (capacity and 1.0)
    assert any("all experts compute all tokens" in note for note in found.notes) == (options == "sparse_matmul=False")


@pytest.mark.parametrize("text", [
    "python3 -m src.maxdiffusion.train_wan a.yml per_device_batch_size=1 ici_fsdp_parallelism=8",
    "xpk workload create --device-type=v5p-16 --num-slices=1 --command='python3 -m maxdiffusion.train_wan a.yml "
    "per_device_batch_size=1'",
])  # fmt: skip
def test_diffusion_is_refused(text):
    with pytest.raises(InputError, match="diffusion"):
        read({"run.sh": text}, TOOLS)


# --- DeepSpeed: contradictions, and arguments of the Trainer ----------------------------------------------------

TRAINER = "deepspeed --num_gpus 8 train.py --model_name_or_path facebook/opt-13b --per_device_train_batch_size 4 "


def test_deepspeed_refuses_batches_that_contradict_the_devices():
    config = {"train_batch_size": 256, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8}
    with pytest.raises(InputError, match="a batch of 256, but 4 sequences x 8 micro-batches x 4 replicas = 128"):
        reading_of(json.dumps(config), "deepspeed", 4)
    assert batch_triple(256.0, 4.0, 8.0, 8.0) == (256.0, 4.0, 8.0)
    files = {"a.sh": TRAINER + "--gradient_accumulation_steps 2 --deepspeed d.json"}
    with pytest.raises(InputError, match="= 64"):
        read(files | {"d.json": '{"train_batch_size": 256, "zero_optimization": {"stage": 2}}'}, TOOLS)


@pytest.mark.parametrize("options", ["--fp16 --bf16", "--bf16"])
def test_two_formats_are_refused(options):
    config = {"zero_optimization": {"stage": 2}, "fp16": {"enabled": True if options == "--bf16" else "auto"}}
    from dse.tools.reading import check

    found = read({"a.sh": f"{TRAINER} {options} --deepspeed d.json", "d.json": json.dumps(config)}, TOOLS)
    with pytest.raises(InputError, match="two number formats"):
        check(found, "files")


def test_arguments_of_the_trainer_fill_in_a_configuration_of_deepspeed():
    config = {
        "zero_optimization": {
            "stage": 3,
            "zero_quantized_weights": True,
            "zero_quantized_gradients": True,
            "zero_hpz_partition_size": 8,
            "sub_group_size": 1e8,
            "offload_optimizer": {"device": "cpu", "pin_memory": True, "ratio": 0.3, "pipeline_read": True},
        },
        "bf16": {"enabled": "auto"},
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
    }
    options = (
        "--gradient_accumulation_steps 2 --gradient_checkpointing --bf16 --model_max_length 2048 --deepspeed d.json"
    )
    found = read({"a.sh": TRAINER + options, "d.json": json.dumps(config)}, TOOLS)
    values = {short_name(path): value for path, value in found.values.items()}
    right = dict(
        micro_batch=4, global_batch=64, seq_len=2048, recompute=Recompute.full, precision=Precision.bf16, zero_stage=3,
        gathered_bytes=1, scattered_bytes=0.5, secondary=1, offload_optimizer=0.3, sub_group_size=1e8, pipeline_read=1,
    )  # fmt: skip
    assert {name: values.get(name) for name in right} == right


@pytest.mark.parametrize(("name", "slug"), [
    ("openai-community/gpt2", "gpt-2-small"), ("openai-community/gpt2-xl", "gpt-2-xl"), ("google/flan-t5-xxl", None),
    ("llama3_1_70b", "llama-3-1-70b"), ("qwen2_5_7b", "qwen2-5-7b"), ("llama-2-7b", "llama-2-7b"),
])  # fmt: skip
@pytest.mark.parametrize("option", ["--model_name_or_path", "--model_path", "--config_name", "--model"])
def test_models_have_several_names(option, name, slug):
    found = read(
        {"a.sh": f"torchrun --nproc_per_node 8 train.py {option} {name} --per_device_train_batch_size 4"}, TOOLS
    )
    assert (found.workload, found.model_text) == (slug, name)


def test_a_host_file_states_devices():
    files = {
        "a.sh": "deepspeed --hostfile=hosts " + TRAINER[22:] + " --bf16",
        "hosts": "a slots=8\n#b slots=8\nc slots=8\n",
    }
    found = read(files, TOOLS)
    assert found.devices == (16, 2, 8)
    assert read(files | {"a.sh": TRAINER}, TOOLS).devices.total == 8


def test_arguments_of_a_program_of_deepspeed_are_read():
    line = "deepspeed --num_gpus=8 train.py --deepspeed_config d.json --model_path facebook/opt-13b "
    config = '{"train_batch_size": 64, "gradient_accumulation_steps": 4, "zero_optimization": {"stage": 2}}'
    files = {"a.sh": f"{line} --gradient_checkpointing --max_seq_length 2048 --model-parallel-size 2", "d.json": config}
    found = read(files, TOOLS)
    values = {short_name(path): value for path, value in found.values.items()}
    right = dict(recompute=Recompute.full, seq_len=2048, tp=2, dp=4, micro_batch=4)
    assert found.workload == "opt-13b"
    assert {name: values.get(name) for name in right} == right


def test_defaults_of_maxtext_are_no_absent_file():
    found = reading_of("python3 -m MaxText.train configs/base.yml model_name=llama3.1-8b", "maxtext", 8)
    assert not found.notes


def test_a_script_that_is_not_there_is_named():
    with pytest.raises(InputError, match=r"v5p/llama2_70b.sh is not among the files"):
        read({"a.sh": "bash MaxText/configs/v5p/llama2_70b.sh RUN_NAME=x"}, TOOLS)
