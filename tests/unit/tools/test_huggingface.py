"""Transformers, TRL, Accelerate, axolotl, LLaMA-Factory, torchtune: what files state, with the defaults of each."""

from __future__ import annotations

import json

import pytest

from dse.designs import short_name
from dse.errors import InputError
from dse.tools import TOOLS, tool_of
from dse.tools.reading import read
from dse.types import ContextExchange, Precision, Recompute


def read_files(files, n=None, **asked):
    return read(files, TOOLS, asked.pop("tool", None), n_devices=n, **asked)


def values_of(files, n=None, **asked):
    return {short_name(path): value for path, value in read_files(files, n, **asked).values.items()}


def of_wanted(found, wanted):
    return {name: found.get(name) for name in wanted}


# --- the Trainer: transformers/training_args.py ---------------------------------------------------------------

RUN = "torchrun --nproc_per_node 8 run_clm.py --model_name_or_path meta-llama/Llama-2-7b-hf --block_size 4096 "

#: Options → values on 8 devices.
TRAINER = [
    # per_device_train_batch_size 8, gradient_accumulation_steps 1; no checkpoints; 32 bits; DDP
    ("", dict(dp=8, micro_batch=8, global_batch=64, seq_len=4096, zero_stage=0, recompute=Recompute.none)),
    ("", dict(precision=Precision.fp32, parameter_bytes=4, gradient_bytes=4, overlap_dp=1, offload_optimizer=0)),
    ("--per_device_train_batch_size 2 --gradient_accumulation_steps 4", dict(micro_batch=2, global_batch=64)),
    ("--per-device-train-batch-size=2 --gradient-accumulation-steps=4", dict(micro_batch=2, global_batch=64)),
    ("--gradient_checkpointing", dict(recompute=Recompute.full)),
    ("--gradient_checkpointing True", dict(recompute=Recompute.full)),
    ("--gradient_checkpointing False", dict(recompute=Recompute.none)),
    ("--bf16", dict(precision=Precision.bf16, parameter_bytes=4, gradient_bytes=4)),
    ("--fp16 True", dict(precision=Precision.fp16)),
    ("--tf32 True", dict(precision=Precision.tf32)),
    ("--bf16 --torch_dtype bfloat16", dict(precision=Precision.bf16, parameter_bytes=2, moment_bytes=2)),
    ("--bf16 --fsdp 'full_shard auto_wrap'", dict(zero_stage=3, overlap_dp=1, parameter_bytes=4)),
    ("--bf16 --fsdp 'shard_grad_op auto_wrap'", dict(zero_stage=2)),
    ("--bf16 --fsdp 'full_shard auto_wrap offload'", dict(zero_stage=3, offload_weights=1, offload_optimizer=1)),
    ("--bf16 --fsdp ''", dict(zero_stage=0)),
    ("--optim adamw_bnb_8bit", dict(moment_bytes=1)),
    ("--optim paged_adamw_8bit", dict(moment_bytes=1)),
    ("--optim adamw_torch_4bit", dict(moment_bytes=0.5)),
    ("--attn_implementation eager", dict(attention=0)),
    ("--deepspeed zero3.json --bf16", dict(zero_stage=3, parameter_bytes=0)),
    ("--deepspeed ds_config_z2_offload.json", dict(zero_stage=2, offload_optimizer=1)),
]  # fmt: skip


@pytest.mark.parametrize(("options", "wanted"), TRAINER)
def test_trainer_states_a_run(options, wanted):
    reading = read_files({"run.sh": RUN + options})
    assert reading.tool.name == "transformers"
    assert reading.workload == "llama-2-7b"
    found = {short_name(path): value for path, value in reading.values.items()}
    assert of_wanted(found, wanted) == wanted


def test_a_hybrid_strategy_shards_within_a_node():
    line = RUN.replace("--nproc_per_node", "--nnodes 4 --nproc_per_node") + "--fsdp 'hybrid_shard auto_wrap'"
    wanted = dict(dp=32, dp_replicate=4, zero_stage=3)
    assert of_wanted(values_of({"run.sh": line}), wanted) == wanted
    assert values_of({"run.sh": line.replace("hybrid_shard", "hybrid_shard_zero2")})["zero_stage"] == 2


def test_the_batch_of_the_environment_counts_devices():
    text = "NPROC=4\n" + RUN.replace("8", "$NPROC", 1)
    assert values_of({"run.sh": text})["global_batch"] == 32


ZERO_3 = {
    "bf16": {"enabled": "auto"},
    "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "pin_memory": True}},
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
}
DEEPSPEED_RUN = (
    "deepspeed --num_gpus 8 --num_nodes 2 run_clm.py --deepspeed ds.json --model_name_or_path meta-llama/Llama-2-7b-hf"
    " --per_device_train_batch_size 4 --gradient_accumulation_steps 4 --block_size 2048 --bf16 True"
)


def test_the_program_fills_auto_of_a_configuration():
    files = {"run.sh": DEEPSPEED_RUN, "ds.json": json.dumps(ZERO_3)}
    wanted = dict(dp=16, micro_batch=4, global_batch=256, zero_stage=3, offload_optimizer=1, precision=Precision.bf16)
    for order in (files, dict(reversed(files.items()))):
        reading = read_files(order)
        assert reading.devices.total == 16
        found = {short_name(path): value for path, value in reading.values.items()}
        assert of_wanted(found, wanted) == wanted
        assert not any("not among the files" in note for note in reading.notes)


def test_a_missing_configuration_is_told():
    notes = read_files({"run.sh": DEEPSPEED_RUN.replace("ds.json", "conf/ds_z3.json")}).notes
    assert any("conf/ds_z3.json is not among the files: ZeRO 3 is read from its name" in note for note in notes)
    notes = read_files({"run.sh": DEEPSPEED_RUN}).notes
    assert any("ds.json is not among the files: what it says is unknown" in note for note in notes)


def test_an_optimiser_other_than_adam_is_told():
    assert "optim adafactor: Adam counts" in read_files({"run.sh": RUN + "--optim adafactor"}).notes
    assert not read_files({"run.sh": RUN + "--optim adamw_torch_fused"}).notes


# --- TRL: trl/trainer/sft_config.py ---------------------------------------------------------------------------

SFT = "accelerate launch --num_processes 8 sft.py --model_name_or_path Qwen/Qwen2.5-7B --dataset_name trl-lib/Capybara "

#: Options → values on 8 devices.
TRL = [
    # SFTConfig: max_length 1024, gradient_checkpointing, bf16
    ("", dict(dp=8, micro_batch=8, global_batch=64, seq_len=1024, recompute=Recompute.full, precision=Precision.bf16)),
    ("--max_length 4096", dict(seq_len=4096)),
    ("--max_seq_length 4096", dict(seq_len=4096)),
    ("--fp16 True --bf16 False", dict(precision=Precision.fp16)),
    ("--gradient_checkpointing False", dict(recompute=Recompute.none)),
    ("--activation_offloading True", dict(recompute=Recompute.full, offload_activations=1)),
    ("--dtype bfloat16", dict(parameter_bytes=2, moment_bytes=2, gradient_bytes=2)),
]  # fmt: skip


@pytest.mark.parametrize(("options", "wanted"), TRL)
def test_trl_states_a_run(options, wanted):
    reading = read_files({"sft.sh": SFT + options})
    assert (reading.tool.name, reading.workload) == ("trl", "qwen2-5-7b")
    assert of_wanted({short_name(path): value for path, value in reading.values.items()}, wanted) == wanted


def test_generation_is_told():
    text = """
model_name_or_path: Qwen/Qwen2.5-1.5B-Instruct
use_vllm: true
num_generations: 16
max_prompt_length: 512
max_completion_length: 2048
per_device_train_batch_size: 16
gradient_accumulation_steps: 4
learning_rate: 1.0e-06
"""
    reading = read_files({"grpo.yaml": text}, 8)
    assert reading.tool.name == "trl"
    assert {short_name(path): value for path, value in reading.values.items()}["seq_len"] == 2560
    assert any(note.startswith("reinforcement learning") for note in reading.notes)


# --- Accelerate: files of its launcher ------------------------------------------------------------------------

FSDP_2 = """
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_offload_params: false
  fsdp_reshard_after_forward: true
  fsdp_version: 2
machine_rank: 0
mixed_precision: bf16
num_machines: 2
num_processes: 16
"""

#: Changes of a file → values on its 16 devices.
ACCELERATE = [
    ((), dict(zero_stage=3, precision=Precision.bf16, parameter_bytes=4, overlap_dp=1)),
    (("reshard_after_forward: true", "reshard_after_forward: false"), dict(zero_stage=2)),
    (("fsdp_reshard_after_forward: true", "fsdp_sharding_strategy: HYBRID_SHARD"), dict(zero_stage=3, dp_replicate=2)),
    (("fsdp_reshard_after_forward: true", "fsdp_sharding_strategy: 2"), dict(zero_stage=2)),
    (("fsdp_offload_params: false", "fsdp_offload_params: true"), dict(offload_weights=1, offload_optimizer=1)),
    (("mixed_precision: bf16", "mixed_precision: 'no'"), dict(precision=Precision.fp32)),
    (("mixed_precision: bf16", "mixed_precision: fp8"), dict(precision=Precision.fp8)),
    (("fsdp_version: 2", "fsdp_version: 2\n  fsdp_activation_checkpointing: true"), dict(recompute=Recompute.full)),
    (("machine_rank: 0", "parallelism_config:\n  parallelism_config_tp_size: 2\n  parallelism_config_cp_size: 2\n"
      "  parallelism_config_dp_replicate_size: 2\n  parallelism_config_dp_shard_size: 2\n"
      "  parallelism_config_cp_comm_strategy: alltoall"),
     dict(tp=2, cp=2, dp_replicate=2, cp_comm_type=ContextExchange.p2p)),
    (("distributed_type: FSDP", "distributed_type: MULTI_GPU"), dict(precision=Precision.bf16)),
]  # fmt: skip


@pytest.mark.parametrize(("change", "wanted"), ACCELERATE)
def test_accelerate_states_its_launcher(change, wanted):
    text = FSDP_2.replace(*change) if change else FSDP_2
    reading = read_files({"config.yaml": text})
    assert (reading.tool.name, reading.devices.total, reading.devices.nodes) == ("accelerate", 16, 2)
    assert of_wanted({short_name(path): value for path, value in reading.values.items()}, wanted) == wanted


def test_deepspeed_of_accelerate_has_its_stage():
    text = """
compute_environment: LOCAL_MACHINE
deepspeed_config:
  gradient_accumulation_steps: 4
  offload_optimizer_device: cpu
  offload_param_device: none
  zero3_init_flag: false
  zero_stage: 2
distributed_type: DEEPSPEED
mixed_precision: bf16
num_machines: 1
num_processes: 8
"""
    wanted = dict(zero_stage=2, offload_optimizer=1, precision=Precision.bf16, parameter_bytes=0)
    assert of_wanted(values_of({"default_config.yaml": text}), wanted) == wanted


def test_a_script_with_a_configuration_of_its_launcher():
    line = SFT.replace("--num_processes 8", "--config_file fsdp2.yaml")
    reading = read_files({"sft.sh": line, "fsdp2.yaml": FSDP_2})
    found = {short_name(path): value for path, value in reading.values.items()}
    wanted = dict(dp=16, zero_stage=3, micro_batch=8, global_batch=128, recompute=Recompute.full)
    assert (reading.tool.name, reading.devices.total) == ("trl", 16)
    assert of_wanted(found, wanted) == wanted


def test_accelerate_starts_megatron():
    """Degrees of its plug-in for Megatron-LM divide the processes; the rest is as its defaults say."""
    config = """
        distributed_type: MEGATRON_LM
        megatron_lm_config: {megatron_lm_tp_degree: 2, megatron_lm_pp_degree: 4, megatron_lm_num_micro_batches: 4}
        mixed_precision: bf16
        num_machines: 2
        num_processes: 16
        """
    settings = read_files({"config.yaml": config}).settings
    wanted = {"tp": 2, "pp": 4, "dp": 2, "zero_stage": 0, "sequence_parallel": 0, "recompute": 0, "overlap_dp": 0}
    assert {name: settings[name] for name in wanted} == wanted
    more = "{megatron_lm_use_distributed_optimizer: true, megatron_lm_sequence_parallelism: true,"
    settings = read_files({"config.yaml": config.replace("{megatron_lm_tp", f"{more} megatron_lm_tp")}).settings
    assert (settings["zero_stage"], settings["sequence_parallel"]) == (1, 1)


@pytest.mark.parametrize("tool", ["accelerate", "torchtune"])
def test_a_file_in_part_is_read_alone(tool):
    assert tool_of(tool).reads_only


# --- axolotl and LLaMA-Factory --------------------------------------------------------------------------------

AXOLOTL = """
base_model: NousResearch/Meta-Llama-3.1-8B
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
sequence_len: 4096
sample_packing: true
micro_batch_size: 2
gradient_accumulation_steps: 4
optimizer: adamw_torch_fused
learning_rate: 2e-5
bf16: auto
"""

#: Further lines → values on 8 devices.
AXOLOTL_LINES = [
    ("", dict(dp=8, micro_batch=2, global_batch=64, seq_len=4096, zero_stage=0, precision=Precision.bf16)),
    ("", dict(recompute=Recompute.none, parameter_bytes=2)),
    ("gradient_checkpointing: true", dict(recompute=Recompute.full)),
    ("gradient_checkpointing: offload", dict(recompute=Recompute.full, offload_activations=1)),
    ("flash_attention: true", dict(attention=1)),
    ("fsdp:\n  - full_shard\n  - auto_wrap\nfsdp_config:\n  fsdp_offload_params: true",
     dict(zero_stage=3, offload_weights=1, parameter_bytes=4)),
    ("fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n  offload_params: false", dict(zero_stage=3)),
    ("deepspeed: deepspeed_configs/zero1.json", dict(zero_stage=1, parameter_bytes=0)),
    ("deepspeed: deepspeed_configs/zero3_bf16_cpuoffload_params.json",
     dict(zero_stage=3, offload_weights=1, offload_optimizer=None)),
    ("context_parallel_size: 2\ngradient_checkpointing: true", dict(cp=2, dp=4, global_batch=32)),
    ("tensor_parallel_size: 4\ndp_shard_size: 2\nfsdp_version: 2", dict(tp=4, dp=2, global_batch=16)),
    ("liger_fused_linear_cross_entropy: true", dict(logit_bytes=0)),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "wanted"), AXOLOTL_LINES)
def test_axolotl_states_a_run(lines, wanted):
    reading = read_files({"run.yaml": f"{AXOLOTL}{lines}\n"}, 8)
    assert (reading.tool.name, reading.workload) == ("axolotl", "llama-3-1-8b")
    assert of_wanted({short_name(path): value for path, value in reading.values.items()}, wanted) == wanted


LLAMA_FACTORY = """
model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
stage: sft
do_train: true
finetuning_type: full
dataset: identity
template: llama3
output_dir: saves
learning_rate: 1.0e-5
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
"""

#: Further lines → values on 8 devices.
LLAMA_FACTORY_LINES = [
    # cutoff_len 2048; checkpoints unless disable_gradient_checkpointing
    ("", dict(dp=8, micro_batch=1, global_batch=16, seq_len=2048, recompute=Recompute.full, zero_stage=0)),
    ("cutoff_len: 8192\nbf16: true", dict(seq_len=8192, precision=Precision.bf16, parameter_bytes=4)),
    ("disable_gradient_checkpointing: true", dict(recompute=Recompute.none)),
    ("bf16: true\npure_bf16: true", dict(parameter_bytes=2, moment_bytes=2, gradient_bytes=2)),
    ("deepspeed: examples/deepspeed/ds_z3_config.json\nbf16: true", dict(zero_stage=3, parameter_bytes=0)),
    ("deepspeed: examples/deepspeed/ds_z2_offload_config.json\nbf16: true", dict(zero_stage=2, offload_optimizer=1)),
    ("optim: adamw_8bit", dict(moment_bytes=1)),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "wanted"), LLAMA_FACTORY_LINES)
def test_llama_factory_states_a_run(lines, wanted):
    reading = read_files({"run.yaml": f"{LLAMA_FACTORY}{lines}\n"}, 8)
    assert (reading.tool.name, reading.workload) == ("llama-factory", "llama-3-8b")
    assert of_wanted({short_name(path): value for path, value in reading.values.items()}, wanted) == wanted


TORCHTUNE = """
tokenizer:
  _component_: torchtune.models.llama3.llama3_tokenizer
  max_seq_len: 4096
dataset:
  _component_: torchtune.datasets.alpaca_dataset
  packed: true
model:
  _component_: torchtune.models.llama3_1.llama3_1_8b
optimizer:
  _component_: torch.optim.AdamW
  lr: 2e-5
loss:
  _component_: torch.nn.CrossEntropyLoss
batch_size: 2
gradient_accumulation_steps: 4
dtype: bf16
"""

#: Further lines → values on 8 devices.
TORCHTUNE_LINES = [
    # FSDP is always on, and weights are in the format of products
    ("", dict(dp=8, micro_batch=2, global_batch=64, seq_len=4096, zero_stage=3, precision=Precision.bf16)),
    ("", dict(recompute=Recompute.none, parameter_bytes=2, moment_bytes=2, gradient_bytes=2, fused_elementwise=0)),
    ("fsdp_reshard_after_forward: false", dict(zero_stage=2)),
    ("fsdp_cpu_offload: true", dict(offload_weights=1, offload_optimizer=1)),
    ("enable_activation_checkpointing: true\nenable_activation_offloading: true",
     dict(recompute=Recompute.full, offload_activations=1)),
    ("compile: true", dict(fused_elementwise=1)),
    ("enable_fp8_training: true", dict(precision=Precision.fp8, parameter_bytes=2)),
    ("tensor_parallel_dim: 2\ndata_parallel_replicate_dim: 2\ndata_parallel_shard_dim: -1",
     dict(tp=2, dp=4, dp_replicate=2, global_batch=32)),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "wanted"), TORCHTUNE_LINES)
def test_torchtune_states_a_run(lines, wanted):
    reading = read_files({"run.yaml": f"{TORCHTUNE}{lines}\n"}, 8)
    assert (reading.tool.name, reading.workload, reading.notes) == ("torchtune", "llama-3-1-8b", ())
    assert of_wanted({short_name(path): value for path, value in reading.values.items()}, wanted) == wanted
    assert not [entry.option for entry in reading.options if entry.status == "unknown"]


def test_a_command_of_torchtune_counts_before_its_file():
    line = "tune run --nnodes 2 --nproc_per_node 8 full_finetune_distributed --config run.yaml batch_size=1 dtype=fp32"
    reading = read_files({"run.sh": line, "run.yaml": TORCHTUNE})
    found = {short_name(path): value for path, value in reading.values.items()}
    wanted = dict(micro_batch=1, global_batch=64, precision=Precision.fp32, parameter_bytes=4, moment_bytes=None)
    assert (reading.devices.total, reading.devices.nodes) == (16, 2)
    assert of_wanted(found, wanted) == wanted


def test_a_configuration_of_torchtune_that_is_not_there_has_no_prediction():
    reading = read_files({"run.sh": "tune run full_finetune_distributed --config llama3/8B_full batch_size=1"}, 8)
    assert "give llama3/8B_full too: what it says is unknown" in reading.missing


@pytest.mark.parametrize("text", [
    AXOLOTL + "adapter: llama-adapter\n",
    LLAMA_FACTORY.replace("full", "freeze"),
    LLAMA_FACTORY + "quantization_bit: 4\n",
])  # fmt: skip
def test_training_of_some_weights_has_no_prediction(text):
    reading = read_files({"run.yaml": text}, 8, system="h100-sxm-80gb")
    assert any("training of all weights and of low-rank adapters is modelled" in limit for limit in reading.limits)
    assert any("is modelled, not" in text for text in reading.missing)


def test_training_of_all_weights_lacks_nothing():
    assert not read_files({"run.yaml": AXOLOTL}, 8).limits
    assert not read_files({"run.yaml": LLAMA_FACTORY}, 8).limits
    assert not read_files({"run.yaml": AXOLOTL + "load_in_4bit: false\nadapter:\n"}, 8).limits


def test_preferences_are_told():
    reading = read_files({"run.yaml": LLAMA_FACTORY.replace("sft", "dpo")}, 8)
    assert any(note.startswith("dpo: two sequences of a pair") for note in reading.notes)


# --- all of them ----------------------------------------------------------------------------------------------

#: Files and their values → what an option does that has no leaf.
EFFECTS = [
    (AXOLOTL, "sample_packing", "time"),
    (AXOLOTL, "learning_rate", "nothing"),
    (LLAMA_FACTORY, "template", "nothing"),
    (LLAMA_FACTORY + "flash_attn: fa2\npacking: true\n", "packing", "time"),
    (LLAMA_FACTORY + "warmup_ratio: 0.1\n", "warmup_ratio", "nothing"),
    (LLAMA_FACTORY + "use_galore: true\n", "use_galore", "time and memory"),
]


@pytest.mark.parametrize(("text", "option", "moves"), EFFECTS)
def test_what_moves_without_a_leaf_is_told(text, option, moves):
    options = {entry.option: entry for entry in read_files({"run.yaml": text}, 8).options}
    assert (options[option].status, options[option].moves) == ("not modelled", moves)


@pytest.mark.parametrize("text", [AXOLOTL, LLAMA_FACTORY])
def test_samples_have_no_unknown_option(text):
    assert not [entry.option for entry in read_files({"run.yaml": text}, 8).options if entry.status == "unknown"]


def test_a_batch_that_is_no_number_is_refused():
    with pytest.raises(InputError, match="micro_batch"):
        read_files({"run.yaml": LLAMA_FACTORY.replace("batch_size: 1", "batch_size: many")}, 8)


@pytest.mark.parametrize(("line", "counts"), [
    ("deepspeed --include localhost:0,1,2,3 run_clm.py", (1, 4)),
    ("deepspeed --include=worker-0:0,1@worker-1:2,3 run_clm.py", (2, 4)),
    ("deepspeed --include worker-0@worker-1 run_clm.py", (None, None)),
    ("CUDA_VISIBLE_DEVICES=0,1 python run_clm.py", (None, 2)),
    ("CUDA_VISIBLE_DEVICES=0,1,2,3 torchrun --nproc_per_node 2 run_clm.py", (None, 2)),
])  # fmt: skip
def test_devices_are_those_that_a_launcher_lists(line, counts):
    options = " --model_name_or_path meta-llama/Llama-2-7b-hf --per_device_train_batch_size 2 --bf16"
    devices = read_files({"run.sh": line + options}).devices
    assert (devices.nodes, devices.total) == counts
