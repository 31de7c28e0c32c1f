"""What a file says with nothing else said: tool, version, model, chip, devices, and what each option is."""

from __future__ import annotations

import pytest

from dse.capabilities.recipes import read_recipe
from dse.designs import replace, short_name
from dse.errors import InputError
from dse.tools import design_lookup, read_files
from dse.tools.rewriting import rewritten
from dse.tools.statuses import DEFAULT, NOT_MODELLED, STATED, UNKNOWN

SERVE = """\
#!/bin/bash
# 8xH200
TP=8
exec vllm serve meta-llama/Llama-3.1-70B-Instruct \\
    --tensor-parallel-size $TP \\
    --max-num-batched-tokens 16384 \\
    --seed 1 --enable-dbo --kv-cache-dtype turboquant_k8v4 --unheard-of 3
"""
MAXTEXT = """\
model_name: llama3.1-8b
hardware: tpu
compile_topology: v5p-256
ici_fsdp_parallelism: -1
ici_tensor_parallelism: 4
per_device_batch_size: 4
remat_policy: full
"""
TITAN = """\
[model]
name = "llama3"
flavor = "8B"

[training]  # of each rank
local_batch_size = 2
seq_len = 8192

[parallelism]
tensor_parallel_degree = 2
"""
DEEPSPEED = """\
{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 8,
  "bf16": {"enabled": true},
  "zero_optimization": {"stage": 3, "overlap_comm": true}
}
"""
MEGATRON = """\
#!/bin/bash
#SBATCH --nodes=4 --gres=gpu:h100:8
ARGS=(
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
    --group-query-attention --num-query-groups 8 --swiglu --vocab-size 128256
    --seq-length 8192 --micro-batch-size 1 --global-batch-size 128
    --tensor-model-parallel-size 4 --sequence-parallel --pipeline-model-parallel-size 2
    --use-distributed-optimizer --bf16 --lr 3e-4
)
srun torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py "${ARGS[@]}"
"""
MANIFEST = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: server}
spec:
  template:
    spec:
      nodeSelector: {nvidia.com/gpu.product: NVIDIA-B200}
      containers:
      - name: server
        image: lmsysorg/sglang:v0.5.5
        command: [python3, -m, sglang.launch_server]
        args: [--model-path, deepseek-ai/DeepSeek-V3, --tp, "8", --dp, "8", --enable-dp-attention]
        resources: {limits: {nvidia.com/gpu: 8}}
"""

#: File → name, text, and tool, version where it is stated, workload, chip, devices.
RECOGNISED = {
    "a script": ("serve.sh", SERVE, "vllm", "", "llama-3-1-70b", "h200-sxm-141gb", 8),
    "a slice of a TPU": ("train.yml", MAXTEXT, "maxtext", "", "llama-3-1-8b", "tpu-v5p-pod", 128),
    "a job of a scheduler": ("train.sbatch", MEGATRON, "megatron-lm", "", None, "h100-sxm-80gb", 32),
    "a manifest": ("server.yaml", MANIFEST, "sglang", "0.5.5", "deepseek-v3", "b200-sxm-180gb", 8),
}


@pytest.mark.parametrize(
    ("file", "text", "tool", "version", "workload", "chip", "devices"), RECOGNISED.values(), ids=RECOGNISED
)
def test_a_recipe_alone_says_tool_model_chip_and_devices(file, text, tool, version, workload, chip, devices):
    reading = read_files({file: text})
    assert reading.tool.name == tool and reading.workload == workload and reading.system == chip
    assert reading.devices.total == devices and reading.has_version == bool(version)
    assert reading.version == (version or reading.tool.version) and not reading.missing


def test_a_shape_is_a_model():
    reading = read_files({"train.sbatch": MEGATRON})
    shape = {short_name(path): value for path, value in reading.shape.items()}
    assert (shape["n_layers"], shape["hidden"], shape["n_kv_heads"], shape["gated"]) == (32, 4096, 8, 1)
    assert reading.fields[0] and "lr" not in reading.settings
    assert reading.settings["sequence_parallel"] == 1 and reading.settings["zero_stage"] == 1


def status_of(reading, option):
    return next(row for row in reading.options if row.option == option)


def test_each_option_is_stated_a_default_not_modelled_or_unknown():
    reading = read_files({"serve.sh": SERVE})
    assert status_of(reading, "--tensor-parallel-size").status == STATED
    assert status_of(reading, "--tensor-parallel-size").leaves == {"mapping.tp": 8.0}
    assert status_of(reading, "--model").moves == "model"
    default = status_of(reading, "--gpu-memory-utilization")
    assert (default.status, default.leaves) == (DEFAULT, {"mapping.serving.memory_share": 0.9})
    moves = {name: status_of(reading, name).moves for name in ("--enable-dbo", "--seed")}
    assert moves == {"--enable-dbo": "time", "--seed": "nothing"}
    assert {status_of(reading, name).status for name in moves} == {NOT_MODELLED}
    # a word that no rule has is no value of its option
    unknown = [status_of(reading, name) for name in ("--unheard-of", "--kv-cache-dtype")]
    assert [(row.status, row.leaves) for row in unknown] == [(UNKNOWN, {}), (UNKNOWN, {})]
    assert "cache_bytes" not in reading.settings
    assert {"tp", "chunk"} <= set(map(short_name, reading.stated)) and "mapping.pp" not in reading.stated


def test_a_value_that_a_default_decides_is_a_default():
    """Bridge's recipes split sequences where tensors are; the degree is the file's, the split is not."""
    reading = read_files({"a.yaml": "model:\n  tensor_model_parallel_size: 4\n"}, "megatron-bridge")
    assert reading.settings["sequence_parallel"] == 1 and "mapping.sequence_parallel" not in reading.stated
    off = read_files(
        {"a.yaml": "model: {tensor_model_parallel_size: 4, sequence_parallel: false}\n"}, "megatron-bridge"
    )
    assert off.settings["sequence_parallel"] == 0 and "mapping.sequence_parallel" in off.stated
    steps = read_files({"a.sh": "python -m sglang.launch_server --model-path m --tp 8 --dp 8 --enable-dp-attention"})
    assert steps.settings["chunk"] == 1024 and "mapping.serving.chunk" not in steps.stated  # 8192 over 8 ranks


def test_what_is_missing_is_named():
    bare = read_files({"serve.sh": "vllm serve some/model-of-mine -tp 8"})
    assert [text.partition(":")[0] for text in bare.missing] == [
        "name the model (some/model-of-mine is not in the catalogue)", "name the system or the accelerator",
    ]  # fmt: skip
    assert not read_files(
        {"serve.sh": "vllm serve some/model-of-mine -tp 8"}, workload="qwen3-8b", system="h100"
    ).missing
    train = read_files({"a.sh": "pretrain_gpt.py --tensor-model-parallel-size 8 --bf16"}, "megatron-lm")
    assert any("number of devices" in text for text in train.missing)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("--nnodes 4", "--nnodes 5", "5 data-parallel ranks"),  # for 128 sequences
        ("parallel-size 4", "parallel-size 3", "32 devices"),
        ("--tensor-model-parallel-size 4", "--tensor-model-parallel-size 8 --num-attention-heads 20", "20 heads"),
        ("--global-batch-size 128", "--global-batch-size 126", "global batch of 126"),
        ("--micro-batch-size 1", "--micro-batch-size one", "numbers for"),
    ],
)
def test_contradictions_are_refused(old, new, told):
    text = MEGATRON.replace("#SBATCH --nodes=4 --gres=gpu:h100:8", "# H100").replace(old, new)
    with pytest.raises(InputError) as refused:
        read_files({"train.sbatch": text})
    assert told in str(refused.value) and refused.value.where == "train.sbatch"


def test_what_is_not_recognised_says_what_was_seen():
    with pytest.raises(InputError, match=r"not recognised.*seen: steps, colour") as refused:
        read_files({"a.yaml": "steps: 10\ncolour: red\n"})
    assert "--for" in refused.value.fix


FILES = {
    "serve.sh": (SERVE, {}),
    "train.yml": (MAXTEXT, {}),
    "train.toml": (TITAN, dict(system="h100", n_devices=64)),
    "ds_config.json": (DEEPSPEED, dict(workload="llama-3-8b", system="h100", n_devices=16)),
}

#: File, what changes, and the lines that it has then.
CHANGES = [
    ("serve.sh", {"mapping.tp": 4.0}, ["    --tensor-parallel-size 4 \\"]),
    ("serve.sh", {"mapping.pp": 2.0}, ["    --pipeline-parallel-size 2 --tensor-parallel-size $TP \\"]),
    ("train.yml", {"mapping.recompute": 0.0}, ["remat_policy: minimal_with_context"]),
    ("train.toml", {"mapping.tp": 4.0, "mapping.dp": 16.0},
     ["tensor_parallel_degree = 4", "data_parallel_shard_degree = 16", "global_batch_size = 64"]),
    ("train.toml", {"mapping.recompute": 0.0}, ["[activation_checkpoint]", 'mode = "none"']),
    ("ds_config.json", {"mapping.micro_batch": 4.0},
     ['  "train_micro_batch_size_per_gpu": 4,', '  "gradient_accumulation_steps": 4,']),
    ("ds_config.json", {"mapping.zero_stage": 2.0},
     ['  "zero_optimization": {"stage": 2, "overlap_comm": true}']),
]  # fmt: skip


def changed(file, moves):
    """The text with moves, None where the file cannot say them; the values before and after."""
    text, options = FILES[file]
    recipe = read_recipe({file: text}, **options)
    with recipe.named_workload() as name:
        design = recipe.request(name).design
    designs = (design, replace(design, moves))
    lookups = tuple(design_lookup(one, recipe.workload, recipe.system) for one in designs)
    texts = rewritten({file: text}, recipe.reading, lookups, moves, lambda texts: read_recipe(texts, **options).reading)
    if texts is None:
        return None, {}, {}
    return texts[file], recipe.reading.values, read_recipe(texts, **options).reading.values


@pytest.mark.parametrize(("file", "moves", "lines"), CHANGES)
def test_a_changed_file_says_the_change_and_nothing_else(file, moves, lines):
    text, before, after = changed(file, moves)
    assert sorted(set(text.splitlines()) - set(FILES[file][0].splitlines())) == sorted(lines)
    of_share = {"mapping.recompute_share"}  # says nothing without recompute
    differing = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)} - of_share
    assert differing == set(moves) and {path: after[path] for path in moves} == moves


def test_a_change_that_a_file_cannot_say_is_none():
    """Micro-batches of 4 on 32 ranks are more than the 64 sequences of a step; vLLM has no ZeRO."""
    assert changed("train.toml", {"mapping.micro_batch": 4.0})[0] is None
    assert changed("serve.sh", {"mapping.serving.mixed": 0.5})[0] is None


def test_new_tables_of_json_and_comments_of_toml_stay_valid():
    text, _, after = changed("ds_config.json", {"mapping.offload_optimizer": 1.0})
    assert (
        '"device": "cpu"' in text and after["mapping.offload_optimizer"] == 1.0 and after["mapping.zero_stage"] == 3.0
    )
    text, *_ = changed("train.toml", {"mapping.tp": 4.0, "mapping.dp": 16.0})
    assert "[training]  # of each rank" in text and text.startswith(TITAN[:40])


def test_a_switch_before_a_variable_without_a_value_is_on():
    """A shell leaves nothing of ``${sp_options}`` that nothing assigns."""
    line = (
        "torchrun pretrain_gpt.py --tensor-model-parallel-size 8 --bf16 ${a} --use-distributed-optimizer ${sp_options}"
    )
    settings = read_files({"run.sh": line}).settings
    assert (settings["zero_stage"], settings["tp"]) == (1, 8)


def test_tasks_of_a_node_are_devices_where_nothing_else_says_these():
    head = "#!/bin/bash\n#SBATCH --nodes=8\n#SBATCH --ntasks-per-node=1\n"
    line = "srun python pretrain_gpt.py --tensor-model-parallel-size 1\n"
    assert read_files({"a.sbatch": f"{head}#SBATCH --gres=gpu:8\n{line}"}).devices.total == 64
    assert read_files({"a.sbatch": head.replace("=1", "=4") + line}).devices.total == 32


def test_the_first_node_is_read_and_models_by_their_addresses():
    script = 'if [ "$NODE_RANK" == "0" ]; then\n vllm serve Qwen/Qwen3-8B -tp 2 -pp 2\nelse\n ray start\nfi\n'
    assert read_files({"a.sh": script}).settings["pp"] == 2
    manifest = "model: {uri: 'hf://Qwen/Qwen3-8B'}\nargs: [vllm, serve, /mnt/models, -tp, '2']\n"
    assert read_files({"a.yaml": manifest}).workload == "qwen3-8b"
