"""Recipes of Megatron-LM and of tools built on it, read with the defaults of their parsers and configurations."""

from __future__ import annotations

import pytest

import dse
from dse.designs import replace
from dse.doors import TRAINING
from dse.errors import InputError
from dse.tools import TOOLS, launch, read_files, settings as read
from dse.tools.layouts import chunk_count, layer_kinds
from dse.tools.rows import defaults_of, table
from dse.tools.rule_names import option_names
from dse.types import AllToAll, Attention, ContextExchange, Graph, Precision, Recompute, Schedule

FAMILY = ("megatron-lm", "megatron-bridge", "nemo", "nemo-run", "nemo-rl", "primus", "megatron-deepspeed")

LAUNCH = "torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py --micro-batch-size 1 "
SHAPE = "--num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 "
MIXTURE = f"{SHAPE} --num-experts 64 "

#: Options of Megatron-LM → what they are read as. Defaults: megatron/training/arguments.py.
MEGATRON = {
    # 32 devices without parallelism: one micro-batch for each
    "": {"global_batch": 32, "tp": 1, "pp": 1, "cp": 1, "zero_stage": 0, "overlap_dp": 0, "sequence_parallel": 0,
         "overlap_tp": 0, "recompute": Recompute.none, "virtual_stages": 1, "precision": Precision.fp32},
    "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 4": {"global_batch": 4},
    "--data-parallel-size 32": {"dp": 32},
    "--rampup-batch-size 16 8 300000 --global-batch-size 1024": {"global_batch": 1024},
    "--tensor-model-parallel-size 2 --sequence-parallel": {"sequence_parallel": 1},
    "--sequence-parallel": {"sequence_parallel": 0},  # turned off without tensor parallelism
    "--use-distributed-optimizer --overlap-grad-reduce": {"zero_stage": 1, "overlap_dp": 1},
    "--use-megatron-fsdp": {"zero_stage": 0},  # no_shard is its default
    "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params": {"zero_stage": 3},
    "--data-parallel-sharding-strategy optim_grads_params": {"zero_stage": 0},  # of FSDP alone
    "--use-torch-fsdp2": {"zero_stage": 3, "overlap_dp": 1},
    "--use-torch-fsdp2 --torch-fsdp2-no-reshard-after-forward": {"zero_stage": 2},
    "--recompute-activations": {"recompute": Recompute.selective},
    "--recompute-granularity selective --recompute-modules core_attn": {"recompute": Recompute.selective},
    "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1": {"recompute": Recompute.full},
    # 2 layers of each chunk of 2 stages with 3 chunks: 12 of 24
    f"{SHAPE} --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 3 --recompute-granularity full "
    "--recompute-method block --recompute-num-layers 2": {"recompute_share": 0.5, "virtual_stages": 3},
    f"{MIXTURE} --recompute-granularity selective --recompute-modules moe_act layernorm":
        {"recompute": Recompute.norms},
    f"{MIXTURE} --moe-layer-recompute": {"recompute": Recompute.expert_block},
    # three forms of virtual stages
    f"{SHAPE} --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2": {"virtual_stages": 3},
    "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout 'Et|(tt|)*6tL'": {"virtual_stages": 2,
                                                                                   "uneven_layers": 1},
    "--num-layers 22 --hidden-size 2048 --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 3 "
    "--account-for-loss-in-pipeline-split --account-for-embedding-in-pipeline-split": {"virtual_stages": 2},
    "--bf16": {"precision": Precision.bf16},
    "--bf16 --fp8-format hybrid": {"precision": Precision.fp8},  # delayed scaling: one scale per tensor
    "--bf16 --fp8-format e4m3 --fp8-recipe mxfp8 --fp8-param-gather": {"precision": Precision.mxfp8,
                                                                      "weight_message_bytes": 1},
    "--bf16 --fp8-format e4m3 --fp8-recipe blockwise": {"precision": Precision.fp8_block},
    "--bf16 --fp4-format e2m1": {"precision": Precision.nvfp4},
    "--bf16 --grad-reduce-in-bf16": {"gradient_bytes": 2, "gradient_message_bytes": 2},
    "--use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16": {"moment_bytes": 2},
    "--use-precision-aware-optimizer --exp-avg-dtype bf16": {"moment_bytes": 3},  # the other stays in 32 bits
    "--optimizer-cpu-offload": {"offload_optimizer": 1, "host_update": 1},
    "--optimizer-cpu-offload --optimizer-offload-fraction 0.25": {"offload_optimizer": 0.25},
    f"{SHAPE} --cpu-offloading-num-layers 6": {"offload_activations": 0.25},
    "--context-parallel-size 8 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 4 2":
        {"cp": 8, "cp_comm_type": ContextExchange.a2a_p2p, "a2a_size": 4},
    "--context-parallel-size 2 --cp-comm-type allgather": {"cp_comm_type": ContextExchange.all_gather},
    f"{MIXTURE} --expert-model-parallel-size 8": {"ep": 8, "etp": 1, "all_to_all": AllToAll.gather, "overlap_ep": 0},
    f"{MIXTURE} --tensor-model-parallel-size 4": {"etp": 4},  # that of tp unless stated
    f"{MIXTURE} --tensor-model-parallel-size 4 --expert-tensor-parallel-size 1": {"etp": 1},
    f"{MIXTURE} --moe-token-dispatcher-type alltoall": {"all_to_all": AllToAll.pairwise},
    f"{MIXTURE} --moe-token-dispatcher-type flex --moe-enable-deepep": {"all_to_all": AllToAll.by_node},
    f"{MIXTURE} --moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep":
        {"all_to_all": AllToAll.by_node},
    f"{MIXTURE} --overlap-moe-expert-parallel-comm": {"overlap_ep": 1},
    "--no-scatter-gather-tensors-in-pipeline": {"scatter_gather": 0},
    "--attention-backend unfused": {"attention": Attention.unfused},
    "--transformer-impl local --use-flash-attn": {"attention": Attention.flash},
    "--use-tp-pp-dp-mapping": {"placement": 1},
    "--enable-cuda-graph": {"graph": Graph.layer, "host_time": None},  # of whole layers by default
    "--external-cuda-graph --cuda-graph-scope attn": {"graph": Graph.layer},
    "--cuda-graph-impl transformer_engine --cuda-graph-modules attn moe_router moe_preprocess": {"graph": Graph.layer},
    "--cuda-graph-impl none --cuda-graph-scope full": {"graph": None},  # as without a word
    "--cuda-graph-impl full_iteration": {"graph": Graph.iteration},
    "--cuda-graph-impl local --cuda-graph-scope full_iteration_inference": {"graph": None},
    "--enable-cuda-graph --cuda-graph-scope full_iteration": {"graph": Graph.iteration},
    f"{MIXTURE} --cuda-graph-impl local --cuda-graph-scope full_iteration": {"graph": Graph.iteration},
}  # fmt: skip

#: Options of Megatron-LM → the shape that they are.
SHAPES = {
    # 4 x 2048, 2048 / 16; GPT-2's 50,257 tokens in multiples of 128
    f"{SHAPE} --tokenizer-type GPT2BPETokenizer": {
        "ffn_hidden": 8192, "head_dim": 128, "n_kv_heads": 16, "vocab": 50304, "gated": 0, "tied_embeddings": 1,
        "learned_positions": 1, "rotary": 0, "norm_vectors": 2, "dropout": 1,
    },
    # 8 x 2048 / 3 = 5461.3, in multiples of 64: 85 x 64
    f"{SHAPE} --swiglu --normalization RMSNorm --position-embedding-type rope --attention-dropout 0 "
    "--hidden-dropout 0 --untie-embeddings-and-output-weights": {
        "ffn_hidden": 5440, "gated": 1, "norm_vectors": 1, "rotary": 1, "learned_positions": 0, "dropout": 0,
        "tied_embeddings": 0,
    },
    f"{SHAPE} --group-query-attention --num-query-groups 4 --kv-channels 64": {"n_kv_heads": 4, "head_dim": 64},
    f"{SHAPE} --num-query-groups 4": {"n_kv_heads": 16},  # of no use without --group-query-attention
    f"{SHAPE} --use-rotary-position-embeddings": {"rotary": 1, "learned_positions": 0},
    f"{SHAPE} --quick-geglu": {"gated": 1},
    # 32,000 in multiples of 128 x 8 = 1024
    f"{SHAPE} --vocab-size 32000 --tensor-model-parallel-size 8": {"vocab": 32768},
    f"{SHAPE} --vocab-size 32000 --tokenizer-type NullTokenizer": {"vocab": 32128},  # and the end of a document
    f"{SHAPE} --padded-vocab-size 50304 --vocab-size 50257": {"vocab": 50304},
    # 151,669 in multiples of 1187: 128 x 1187
    f"{SHAPE} --tokenizer-type HuggingFaceTokenizer --tokenizer-model Qwen/Qwen3-8B "
    "--make-vocab-size-divisible-by 1187": {"vocab": 151936},
    f"{MIXTURE} --moe-ffn-hidden-size 512 --moe-layer-freq '([0]*3+[1]*21)'": {
        "n_experts": 64, "top_k": 2, "expert_ffn": 512, "first_dense": 3, "moe_every": 1,
    },
    f"{MIXTURE} --ffn-hidden-size 1024 --moe-layer-freq 2 --moe-shared-expert-intermediate-size 256": {
        "expert_ffn": 1024, "moe_every": 2, "first_dense": 0, "shared_ffn": 256,
    },
    f"{MIXTURE} --moe-layer-freq '[0,1]*12' --moe-router-num-groups 8 --moe-router-group-topk 4": {
        "moe_every": 2, "n_groups": 8, "group_limit": 4,
    },
    f"{MIXTURE} --mtp-num-layers 1": {"n_predict": 1},
    f"{SHAPE} --multi-latent-attention": {"head_dim": 192, "rope_dim": 64, "q_rank": 0, "kv_rank": 32, "v_dim": 128},
    f"{SHAPE} --multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 64": {
        "head_dim": 128, "q_rank": 1536, "kv_rank": 512,
    },
    f"{SHAPE} --window-size 128,0 --window-attn-skip-freq 2": {"window": 128, "local_layers": 0.5},
}  # fmt: skip

#: Tool, file, and what it is read as.
RECIPES = {
    "a functional test": ("megatron-lm", """
        ENV_VARS:
          CUDA_DEVICE_MAX_CONNECTIONS: 1
        MODEL_ARGS:
          --tensor-model-parallel-size: 2
          --pipeline-model-parallel-size: 8
          --expert-model-parallel-size: 8
          --micro-batch-size: 1
          --global-batch-size: 512
          --use-distributed-optimizer: true
          --sequence-parallel: true
          --bf16: true
        """, {"tp": 2, "pp": 8, "ep": 8, "micro_batch": 1, "global_batch": 512, "zero_stage": 1,
              "sequence_parallel": 1, "precision": Precision.bf16}),
    "a layout as a shell has it": ("megatron-lm", r"""
        MODEL_ARGS:
          --pipeline-model-parallel-size: 8
          --pipeline-model-parallel-layout: Et*3\|\(tt\|\)*29m\|L
          --recompute-granularity: selective
          --recompute-modules: "[mla_up_proj moe mlp layernorm]"
        """, {"virtual_stages": 4, "recompute": Recompute.expert_block}),
    "an experiment of Primus of a dense model": ("primus", """
        modules:
          pre_trainer:
            framework: megatron
            overrides:
              micro_batch_size: 1
              global_batch_size: 256
              tensor_model_parallel_size: ${TP:8}
              pipeline_model_parallel_size: 8
              expert_model_parallel_size: 1
              recompute_granularity: full
              add_bias_linear: false
        """, {"tp": 8, "pp": 8, "micro_batch": 1, "global_batch": 256, "zero_stage": 1, "sequence_parallel": 1,
              "precision": Precision.bf16, "recompute": Recompute.full}),
    "an experiment of Primus with torchtitan": ("torchtitan", """
        modules:
          pre_trainer:
            framework: torchtitan
            model: llama3.1_70B.yaml
            overrides:
              training: {local_batch_size: 4, seq_len: 8192}
              activation_checkpoint: {mode: full}
        """, {"micro_batch": 4, "seq_len": 8192, "recompute": Recompute.full}),
    "a launcher of Megatron-Bridge": ("megatron-bridge", """
        python scripts/performance/run_script.py --model_recipe_name unknown --gpu b200 --num_gpus 256 \\
          --seq_length 4096 --global_batch_size 4096 --micro_batch_size 1 -tp 1 -pp 8 -vp 4 -ep 8 -c bf16
        """, {"tp": 1, "pp": 8, "virtual_stages": 4, "ep": 8, "micro_batch": 1, "global_batch": 4096, "zero_stage": 1,
              "precision": Precision.bf16, "overlap_dp": 1, "sequence_parallel": 0}),
    # a base of 64 GPUs with 256 sequences, on 128
    "a recipe by its name": ("megatron-bridge", """
        python scripts/performance/setup_experiment.py -m llama -mr llama3_70b -g h100 -c fp8_cs -ng 128
        """, {"tp": 4, "pp": 8, "virtual_stages": 5, "cp": 1, "global_batch": 512, "seq_len": 8192,
              "precision": Precision.fp8, "sequence_parallel": 1}),
    "further switches of a launcher": ("megatron-bridge", """
        python run_script.py -mr x -g gb200 -ng 64 -c fp8_mx -gb 128 --use_megatron_fsdp true -rl 4 \\
          --moe_flex_dispatcher_backend hybridep --moe_a2a_overlap true model.num_layers=8 model.num_moe_experts=8
        """, {"zero_stage": 3, "recompute": Recompute.full, "recompute_share": 0.5, "all_to_all": AllToAll.by_node,
              "overlap_ep": 1, "precision": Precision.mxfp8}),
    # its base has tp 2, pp 4, 5 chunks, cp 2: options of the launcher come behind (set_user_overrides)
    "a recipe with other degrees": ("megatron-bridge", """
        python run_script.py -mr llama3_70b -g b200 -ng 64 -c bf16 -tp 1 -pp 1 -cp 1 -vp None --use_megatron_fsdp true
        """, {"tp": 1, "pp": 1, "cp": 1, "virtual_stages": 1, "zero_stage": 3, "sequence_parallel": 0}),
    "a recipe with other chunks": ("megatron-bridge", """
        python run_script.py -mr deepseek_v3 -g h100 -ng 1024 -c fp8_sc -pp 8 -vp 4 --recompute_modules moe_act
        """, {"pp": 8, "virtual_stages": 4, "recompute": Recompute.norms}),
    "gradients summed in 32 bits": ("megatron-bridge", """
        torchrun run_recipe.py --recipe llama3_8b_pretrain_config ddp.grad_reduce_in_fp32=true
        """, {"gradient_message_bytes": 4, "gradient_bytes": 4}),
    "overrides of a recipe": ("megatron-bridge", """
        torchrun scripts/training/run_recipe.py --recipe llama3_8b_pretrain_config train.global_batch_size=256 \\
          model.tensor_model_parallel_size=2 mixed_precision=bf16_with_nvfp4_mixed ddp.overlap_grad_reduce=false
        """, {"tp": 2, "cp": 2, "global_batch": 256, "micro_batch": 1, "seq_len": 8192, "overlap_dp": 0,
              "precision": Precision.nvfp4}),
    "ms-swift": ("megatron-lm", """
        NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3-30B-A3B --expert_model_parallel_size 8 --max_length 8192
        """, {"ep": 8, "seq_len": 8192, "micro_batch": 1, "global_batch": 16, "precision": Precision.bf16,
              "recompute": Recompute.selective, "zero_stage": 1, "all_to_all": AllToAll.pairwise}),
    "a configuration that a run saved": ("megatron-bridge", """
        ddp: {use_distributed_optimizer: true, overlap_grad_reduce: true}
        mixed_precision: {bf16: true, fp8: e4m3, fp8_recipe: mxfp8, fp8_param_gather: true}
        model: {num_layers: 80, hidden_size: 8192, num_attention_heads: 64, num_query_groups: 8, num_moe_experts: null,
                gated_linear_unit: true, add_bias_linear: false, share_embeddings_and_output_weights: false,
                vocab_size: 128256, make_vocab_size_divisible_by: 128, tensor_model_parallel_size: 2,
                recompute_granularity: null, position_embedding_type: rope, window_size: [128, 0]}
        train: {global_batch_size: 128, micro_batch_size: 1}
        """, {"precision": Precision.mxfp8, "weight_message_bytes": 1, "n_kv_heads": 8, "gated": 1,
              "tied_embeddings": 0, "rotary": 1, "vocab": 128256, "window": 128, "local_layers": 1}),
    "NeMo 1": ("nemo", """
        trainer: {devices: 8, num_nodes: 16, precision: bf16-mixed}
        model:
          micro_batch_size: 1
          global_batch_size: 128
          tensor_model_parallel_size: 4
          encoder_seq_length: 4096
          num_layers: 80
          hidden_size: 8192
          num_attention_heads: 64
          sequence_parallel: true
          activations_checkpoint_granularity: full
          activations_checkpoint_method: block
          activations_checkpoint_num_layers: 20
          optim: {name: distributed_fused_adam}
        """, {"tp": 4, "seq_len": 4096, "zero_stage": 1, "recompute": Recompute.full, "recompute_share": 0.25,
              "precision": Precision.bf16}),
    "NeMo 2": ("nemo-run", """
        nemo llm pretrain --factory llama3_70b trainer.num_nodes=8 trainer.devices=8 \\
          trainer.strategy.tensor_model_parallel_size=8 data.micro_batch_size=2
        """, {"tp": 8, "pp": 4, "virtual_stages": 5, "cp": 2, "micro_batch": 2, "global_batch": 512, "zero_stage": 1,
              "precision": Precision.bf16}),
    "NeMo-RL": ("nemo-rl", """
        policy:
          model_name: Qwen/Qwen3-30B-A3B
          train_global_batch_size: 256
          train_micro_batch_size: 1
          max_total_sequence_length: 4096
          dtensor_cfg: {enabled: false, tensor_parallel_size: 2, sequence_parallel: false}
          megatron_cfg: {enabled: true, activation_checkpointing: true, tensor_model_parallel_size: 4,
                         sequence_parallel: true, expert_model_parallel_size: 8}
        cluster: {gpus_per_node: 8, num_nodes: 4}
        """, {"tp": 4, "ep": 8, "etp": 1, "recompute": Recompute.full, "sequence_parallel": 1, "zero_stage": 1,
              "seq_len": 4096, "precision": Precision.bf16}),
    "Megatron-DeepSpeed": ("megatron-deepspeed", f"""
        deepspeed --num_nodes 2 --num_gpus 8 pretrain_gpt.py {SHAPE} --micro-batch-size 2 --global-batch-size 64 \\
          --ds-sequence-parallel-size 4 --zero-stage 3 --deepspeed --no-pipeline-parallel --bf16 \\
          --deepspeed-activation-checkpointing --checkpoint-activations --use-flash-attn-v2
        """, {"cp": 4, "cp_comm_type": ContextExchange.a2a, "zero_stage": 3, "overlap_dp": 1, "tp": 1,
              "recompute": Recompute.full, "attention": Attention.flash}),
    "zero bubbles of Megatron-DeepSpeed": ("megatron-deepspeed", f"""
        deepspeed --num_nodes 2 --num_gpus 8 pretrain_gpt.py {SHAPE} --micro-batch-size 1 --global-batch-size 64 \\
          --pipeline-model-parallel-size 8 --zero-stage 0 --deepspeed --enable-zbh1-pipeline --fp16
        """, {"pp": 8, "schedule": Schedule.zb_h1, "zero_stage": 0, "precision": Precision.fp16}),
}  # fmt: skip


def test_a_configuration_beside_states_offload():
    """The file that --deepspeed_config names says where the optimiser is, and the format."""
    script = f"deepspeed --num_nodes 1 --num_gpus 8 pretrain_gpt.py {SHAPE} --micro-batch-size 1 --deepspeed"
    config = '{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}, "bf16": {"enabled": true}}'
    reading = read_files({"run.sh": script + " --deepspeed_config ds.json --zero-stage 3", "ds.json": config})
    settings = reading.settings
    assert reading.tool.name == "megatron-deepspeed"
    assert (settings["zero_stage"], settings["offload_optimizer"], settings["precision"]) == (3, 1, Precision.bf16)


def settings_of(reading):
    return reading.settings | {path.rpartition(".")[2]: value for path, value in reading.shape.items()}


def assert_read(reading, expected):
    values = settings_of(reading)
    assert {name: values.get(name) for name in expected} == pytest.approx(expected), reading.options


@pytest.mark.parametrize("options", MEGATRON, ids=range(len(MEGATRON)))
def test_options_of_megatron_are_read_with_its_defaults(options):
    assert_read(read_files({"train.sh": LAUNCH + options}), MEGATRON[options])


@pytest.mark.parametrize("options", SHAPES, ids=range(len(SHAPES)))
def test_a_shape_is_completed_as_its_parser_does(options):
    assert_read(read_files({"train.sh": LAUNCH + options}), SHAPES[options])


def test_options_without_a_shape_say_nothing_of_one():
    reading = read_files({"train.sh": f"{LAUNCH} --tensor-model-parallel-size 2 --bf16"})
    assert reading.shape == {} and "etp" not in reading.settings


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_of_the_family_are_recognised_and_read(name):
    tool, text, expected = RECIPES[name]
    lines = [line.removeprefix("        ") for line in text.strip("\n").splitlines()]
    reading = read_files({"recipe": "\n".join(lines)})
    assert reading.tool.name == tool
    assert_read(reading, expected)


def test_a_dense_model_has_no_experts():
    reading = read_files(
        {"train.sh": f"{LAUNCH} {SHAPE} --expert-model-parallel-size 1 --tensor-model-parallel-size 4"}
    )
    assert not any("experts" in path for path in {**reading.values, **reading.shape})


@pytest.mark.parametrize(
    ("options", "text"),
    [("--moe-layer-freq '[1,1,0]*8'", "neither dense layers"), ("--moe-layer-freq '[__import__(0)]'", "no list"),
     ("--moe-layer-freq '[0]*99999999'", "more than"), ("--tensor-model-parallel-size eight", "could not convert"),
     ("--tensor-model-parallel-size 0", "tp of at least 1"),
     ("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout '(t|)*99999999'", "letters")],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(options, text):
    with pytest.raises(InputError, match=text):
        read_files({"train.sh": f"{LAUNCH} {MIXTURE} {options}"}, "megatron-lm")


#: Tool → whether it has an option of graphs of layers in dense models and in mixtures, and of one of the iteration.
GRAPHS = {
    "megatron-lm": (True, True, True), "megatron-bridge": (True, True, True), "nemo-run": (True, True, True),
    "primus": (True, True, True), "nemo": (True, False, False), "nemo-rl": (False, False, False),
}  # fmt: skip


@pytest.mark.parametrize("tool", GRAPHS)
def test_graphs_are_written_and_read_back(tool):
    """Or are told to have no option; a line without graphs states none."""
    options = dict(n_devices=8, ep=8, any_option=True)
    dense, mixture = dse.design("llama-3-8b", "h100"), dse.design("qwen3-30b-a3b", "h100", **options)
    dense_layer, mixture_layer, iteration = GRAPHS[tool]
    cases = [(dense, 1.0, dense_layer), (mixture, 1.0, mixture_layer), (dense, 2.0, iteration), (dense, 0.0, True)]
    for design, code, is_written in cases:
        line = launch(replace(design, {"mapping.graph": code}), tool, TRAINING)
        assert ("mapping.graph" not in line.unsupported) == is_written
        assert read(tool, line.text, design).get("graph", 0.0) == (code if is_written else 0.0)


def test_graphs_of_layers_are_not_recomputed_whole():
    """Megatron-LM refuses them; the iteration's is another."""
    design = dse.design("llama-3-8b", "h100", recompute="full")
    for code in (Graph.layer, Graph.iteration):
        line = launch(replace(design, {"mapping.graph": float(code)}), "megatron-lm", TRAINING)
        assert ("mapping.graph" in line.unsupported) == (code is Graph.layer)


@pytest.mark.parametrize(
    ("options", "is_told"),
    [(f"{SHAPE} --cuda-graph-scope attn", True), (f"{SHAPE} --cuda-graph-scope attn mlp", False), (SHAPE, False),
     (f"{MIXTURE} --cuda-graph-scope attn moe_router", False), (f"{MIXTURE} --cuda-graph-scope moe_router", True)],
)  # fmt: skip
def test_graphs_of_parts_of_a_layer_count_as_of_layers(options, is_told):
    reading = read_files({"train.sh": f"{LAUNCH} --cuda-graph-impl transformer_engine {options}"})
    assert reading.settings["graph"] == Graph.layer
    assert any("counts as graph=layer" in note for note in reading.notes) == is_told


def test_remarks_say_what_counts_as_something_else():
    text = f"{LAUNCH} {SHAPE} --recompute-granularity selective --recompute-modules core_attn mlp"
    assert any("counts as recompute=selective" in note for note in read_files({"train.sh": text}).notes)
    hybrid = read_files({"train.sh": f"{LAUNCH} {SHAPE} --hybrid-override-pattern M-M*"})
    assert any("state space" in note for note in hybrid.notes)
    stages = f"{LAUNCH} --pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 5"
    assert any("layout of layers" in note for note in read_files({"train.sh": stages}).notes)


@pytest.mark.parametrize("tool", FAMILY)
def test_tables_name_what_rules_read(tool):
    """Each default decides a leaf, and each effect is one of four."""
    names = option_names(TOOLS[tool])
    assert set(TOOLS[tool].effects.values()) <= {"time", "memory", "time and memory", "nothing"}
    assert set(defaults_of(TOOLS[tool])) <= names
    of_shapes = (row["values"] for row in TOOLS[tool].other_defaults)
    assert set(TOOLS[tool].off_options) <= set(TOOLS[tool].defaults).union(*of_shapes)


def test_options_of_the_parser_are_in_its_table():
    """Those of each group of arguments.py: whoever states one is told what it moves."""
    text = (
        "--lr --weight-decay --clip-grad --adam-beta1 --save --save-interval --load --ckpt-format --async-save --seed "
        "--init-method-std --log-interval --tensorboard-dir --wandb-project --train-iters --eval-iters --data-path "
        "--split --mock-data --num-workers --distributed-backend --timing-log-level "
        "--manual-gc --rotary-base --norm-epsilon --qk-layernorm --moe-aux-loss-coeff --moe-router-dtype "
        "--moe-router-load-balancing-type --disable-bias-linear --max-position-embeddings --use-mcore-models "
        "--exit-interval"
    )
    effects = TOOLS["megatron-lm"].effects
    reading = read_files({"t.sh": f"{LAUNCH} {text.replace(' ', ' 1 ')} 1 --tensor-model-parallel-size 2"})
    moves = {option.option: option.moves for option in reading.options if option.option in text.split()}
    assert set(moves) == set(text.split()) and set(moves.values()) == {"nothing"}
    assert effects["--cuda-graph-*"] == "time and memory" and effects["--moe-grouped-gemm"] == "time"


def test_lists_of_layers_by_hand():
    assert layer_kinds("([1]*3+[0]*1)*2") == [1, 1, 1, 0, 1, 1, 1, 0]
    assert chunk_count("E|(t|)*3,m|m||L") == 8
    for text in ("", "[", "([1]*2", "[1]*x", "2", "[1]]", "[1]*2*", "a"):
        with pytest.raises(ValueError, match=r"list|invalid|literal"):
            layer_kinds(text)


def test_shapes_say_what_they_need():
    assert "--num-layers" in table("megatron-lm")["shape_options"]


# --- scripts and functions that are called ----------------------------------------------------------------

#: What a call says → what it is read as: sbatch_benchmarking.sh and runtime.conf of Megatron-MoE-ModelZoo.
CALLS = {
    "MODEL=Mixtral-8x22B PR=fp8 TP=4 GBS=512 bash sbatch_benchmarking.sh": {
        "tp": 4, "pp": 8, "ep": 8, "micro_batch": 1, "global_batch": 512, "precision": Precision.fp8_block,
        "weight_message_bytes": 1, "moment_bytes": 2, "all_to_all": AllToAll.by_node, "devices": 128,
        "workload": "mixtral-8x22b", "zero_stage": 1, "sequence_parallel": 1,
    },
    "export GB200_CLUSTER=1 MODEL=DeepSeek-V3; NNODES=64 DISPATCHER=alltoall A2A_OVERLAP=1 VPP=2 MBS=2 "
    "bash ./sbatch_benchmarking.sh --micro-batch-size 4": {
        "micro_batch": 4, "virtual_stages": 2, "devices": 256, "all_to_all": AllToAll.pairwise, "overlap_ep": 1,
        "precision": Precision.bf16,
    },
}  # fmt: skip


@pytest.mark.parametrize("line", CALLS)
def test_variables_of_a_script_that_is_not_there(line):
    """Variables count as the script has them, and the reading says so."""
    reading = read_files({"run.sh": line})
    found = {**reading.settings, "devices": reading.devices.total, "workload": reading.workload}
    assert {name: found[name] for name in CALLS[line]} == CALLS[line]
    assert any("sbatch_benchmarking.sh is not among the files" in note for note in reading.notes)


def test_variables_of_no_script_state_nothing():
    line = f"TP=4 {LAUNCH} {SHAPE}"
    assert read_files({"run.sh": line}).settings["tp"] == 1


def test_a_script_by_places_is_asked_for():
    """Values by place say nothing without the script that names them."""
    with pytest.raises(InputError, match=r"run_mcore_qwen\.sh"):
        read_files({"run.sh": "cd examples/qwen2_5\nsh run_mcore_qwen.sh dsw 7B 1 8 1e-5 1e-6 128 128 bf16 4 2"})


#: Calls of recipes of NeMo 2: nemo/collections/llm/recipes.
FACTORIES = {
    "\"llama3_70b(num_nodes=16, name='x')\"": {"tp": 4, "pp": 4, "cp": 2, "seq_len": 8192, "devices": 128,
                                              "workload": "llama-3-70b", "gradient_message_bytes": 4},
    "'llama3_8b(num_nodes=2, num_gpus_per_node=4, performance_mode=True)'": {
        "cp": 2, "devices": 8, "workload": "llama-3-8b", "overlap_tp": 1, "gradient_message_bytes": 2},
    "'llama3_8b(num_nodes=2)' trainer.num_nodes=4 trainer.devices=8": {"devices": 32},
    "'llama3_8b(num_nodes=open(1))' trainer.num_nodes=1": {"devices": 8},
}  # fmt: skip


@pytest.mark.parametrize("factory", FACTORIES)
def test_arguments_of_a_recipe(factory):
    """Arguments of a recipe's function are options, stated ones count before them."""
    reading = read_files({"run.sh": f"nemo llm pretrain --factory {factory} data.micro_batch_size=1"})
    found = {**reading.settings, "devices": reading.devices.total, "workload": reading.workload}
    assert {name: found[name] for name in FACTORIES[factory]} == FACTORIES[factory]


def test_a_policy_states_its_gradients():
    """NeMo-RL states the format in which gradients are summed."""
    config = """
        policy:
          model_name: meta-llama/Llama-3.1-8B
          train_micro_batch_size: 1
          megatron_cfg:
            enabled: true
            distributed_data_parallel_config: {grad_reduce_in_fp32: %s}
        """
    sizes = [read_files({"grpo.yaml": config % text}).settings["gradient_message_bytes"] for text in ("true", "false")]
    assert sizes == [4, 2]


EXPERIMENT = """
    modules:
      pre_trainer:
        framework: %s
        model: %s
        overrides: %s
    """

#: Script, framework, model and overrides of an experiment of Primus → what they are read as.
EXPERIMENTS = {
    "options behind a script": (
        "NNODES=2 PRIMUS_PP=4 EXP=examples/megatron/configs/MI325X/x.yaml bash ./examples/run_slurm_pretrain.sh "
        "--micro-batch-size 4 --recompute_granularity full --recompute_method uniform --recompute_num_layers 1",
        "megatron", "llama3_70B.yaml",
        "{micro_batch_size: 1, global_batch_size: 64, pipeline_model_parallel_size: '${PRIMUS_PP:1}'}",
        {"tool": "primus", "devices": 16, "chip": "mi325x", "micro_batch": 4, "global_batch": 64, "pp": 4,
         "recompute": Recompute.full, "workload": "llama-3-70b"},
    ),
    "a container": (
        "docker run -it --rm --device /dev/kfd --env NNODES=4 -e GPUS_PER_NODE=8 -e TP=8 --shm-size 64G rocm/primus "
        "bash -c 'bash examples/run_pretrain.sh --patch_zero_bubble True --enable_zero_bubble True'",
        "megatron", "llama3.1_8B.yaml",
        "{pipeline_model_parallel_size: 2, tensor_model_parallel_size: '${TP:1}', micro_batch_size: 1}",
        {"tool": "primus", "devices": 32, "tp": 8, "pp": 2, "schedule": Schedule.zb_h1, "workload": "llama-3-1-8b"},
    ),
    "a launcher": (
        "primus-cli slurm -N 4 -- train pretrain --config examples/megatron/configs/MI300X/x.yaml --seq_length 8192",
        "megatron", "mixtral_8x7B_v0.1.yaml",
        "{patch_primus_pipeline: true, pp_algorithm: zbv-formatted, pipeline_model_parallel_size: 2, "
        "global_batch_size: 64}",
        {"tool": "primus", "devices": 32, "chip": "mi300x", "seq_len": 8192, "schedule": Schedule.zb_v},
    ),
    "layers by number": (
        "NNODES=32 EXP=examples/megatron/configs/MI355X/x.yaml bash examples/run_pretrain.sh",
        "megatron", "mixtral_8x7B_v0.1.yaml",
        "{recompute_granularity: full, recompute_layer_ids: '0,3,4,4,31', pipeline_model_parallel_size: 2, "
        "use_turbo_deepep: true, global_batch_size: 256}",
        {"tool": "primus", "chip": "mi355x", "recompute": Recompute.full, "recompute_share": 4 / 32,
         "all_to_all": AllToAll.by_node},
    ),
    "torchtitan": (
        "EXP=examples/torchtitan/configs/MI355X/x.yaml bash examples/run_pretrain.sh --training.local_batch_size 3",
        "torchtitan", "llama3.1_70B-fp8.yaml",
        "{training: {local_batch_size: 1, seq_len: 8192}, parallelism: {tensor_parallel_degree: 2, "
        "enable_async_tensor_parallel: true}}",
        {"tool": "torchtitan", "chip": "mi355x", "micro_batch": 3, "precision": Precision.fp8, "overlap_tp": 1,
         "recompute": Recompute.none, "workload": "llama-3-1-70b"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("is_first", [True, False])
def test_experiments_of_primus(name, is_first):
    """Options behind its scripts count before those of its file, variables in it, and the path names the chip."""
    script, framework, model, overrides, wanted = EXPERIMENTS[name]
    files = [("run.sh", script), ("x.yaml", EXPERIMENT % (framework, model, overrides))]
    reading = read_files(dict(files if is_first else reversed(files)))
    found = {"tool": reading.tool.name, "devices": reading.devices.total, "chip": reading.system}
    found |= {"workload": reading.workload, **reading.settings}
    assert {key: found[key] for key in wanted} == wanted
    assert not any("not among the files" in note for note in reading.notes)


@pytest.mark.parametrize("framework, tool", [("megatron", "primus"), ("torchtitan", "torchtitan")])
def test_an_experiment_that_is_not_there(framework, tool):
    """The path of an experiment names framework, chip and model; what it states is open."""
    batch = {"primus": "--micro_batch_size 2", "torchtitan": "--training.local_batch_size 2"}[tool]
    path = f"examples/{framework}/configs/MI300X/llama3.1_70B-BF16-pretrain.yaml"
    reading = read_files({"run.sh": f"EXP={path} bash examples/run_pretrain.sh {batch}"})
    assert (reading.tool.name, reading.system, reading.workload) == (tool, "mi300x", "llama-3-1-70b")
    assert reading.settings["micro_batch"] == 2
    assert any(note.startswith("llama3.1_70B-BF16-pretrain.yaml not among the files") for note in reading.notes)


def test_what_stands_beside_a_trainer_is_named():
    """Options of a container and variables of libraries are named with what they move, and are no options of a run."""
    line = (
        "docker run --rm --shm-size 64G -e NCCL_IB_HCA=a -e MBS=2 -e LR=1 --env=GPU_MAX_HW_QUEUES=2 -v /a:/b image:1 "
    )
    reading = read_files({"run.sh": f"{line} bash -c 'torchrun --nproc_per_node 8 pretrain_gpt.py {SHAPE} "
                                    "--micro-batch-size $MBS --bf16'"})  # fmt: skip
    moves = {option.option: option.moves for option in reading.options if option.status == "not modelled"}
    assert reading.settings["micro_batch"] == 2
    assert (moves["--rm"], moves["--shm-size"], moves["NCCL_IB_HCA"]) == ("nothing", "nothing", "time")
    assert moves["GPU_MAX_HW_QUEUES"] == "time"
    assert "LR" not in moves
