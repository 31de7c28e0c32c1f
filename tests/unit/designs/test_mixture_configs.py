"""Mixtures of experts from configurations of Hugging Face: shapes of the catalogue, counts as published, refusals."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import dse
from dse import types
from dse.cli import app
from dse.designs import catalog
from dse.designs.catalog import huggingface
from dse.designs.catalog.huggingface.families import KEYS
from dse.errors import InputError
from dse.model import main_model, parameter_count
from dse.model.work.parameters import embedding_parameters
from tests.designs import active_parameters


def config(kind, layers, hidden, heads, kv_heads, vocab, **more):
    """Keys that all have, and more."""
    return {
        "model_type": kind,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocab,
        "max_position_embeddings": 131072,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "attention_dropout": 0.0,
        "router_aux_loss_coef": 0.001,
        **more,
    }


def deepseek(experts, top_k, width, shared, first, **more):
    return dict(
        n_routed_experts=experts,
        num_experts_per_tok=top_k,
        moe_intermediate_size=width,
        n_shared_experts=shared,
        first_k_dense_replace=first,
        **more,
    )


LATENT = dict(kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128)
FP8 = {"quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}}
QWEN_3_235B = config(
    "qwen3_moe",
    94,
    4096,
    64,
    4,
    151936,
    head_dim=128,
    intermediate_size=12288,
    moe_intermediate_size=1536,
    num_experts=128,
    num_experts_per_tok=8,
    decoder_sparse_step=1,
    mlp_only_layers=[],
    norm_topk_prob=True,
    sliding_window=None,
    use_sliding_window=False,
    max_window_layers=94,
)
DEEPSEEK_V3 = config(
    "deepseek_v3",
    61,
    7168,
    128,
    128,
    129280,
    intermediate_size=18432,
    q_lora_rank=1536,
    n_group=8,
    topk_group=4,
    topk_method="noaux_tc",
    moe_layer_freq=1,
    num_nextn_predict_layers=1,
    ep_size=1,
    scoring_func="sigmoid",
    rope_scaling={"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096},
    **deepseek(256, 8, 2048, 1, 3),
    **LATENT,
    **FP8,
)
LLAMA_4_MAVERICK = config(
    "llama4_text",
    48,
    5120,
    40,
    8,
    202048,
    head_dim=128,
    intermediate_size=8192,
    intermediate_size_mlp=16384,
    interleave_moe_layer_step=2,
    num_local_experts=128,
    num_experts_per_tok=1,
    attention_chunk_size=8192,
    use_qk_norm=False,
)
GPT_OSS_120B = config(
    "gpt_oss",
    36,
    2880,
    64,
    8,
    201088,
    head_dim=64,
    intermediate_size=2880,
    num_local_experts=128,
    num_experts_per_tok=4,
    experts_per_token=4,
    sliding_window=128,
    attention_bias=True,
    swiglu_limit=7.0,
    layer_types=["sliding_attention", "full_attention"] * 18,
    initial_context_length=4096,
    rope_scaling={"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096},
    quantization_config={"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
)
DELTA = dict(
    linear_conv_kernel_dim=4,
    linear_key_head_dim=128,
    linear_num_key_heads=16,
    linear_num_value_heads=32,
    linear_value_head_dim=128,
    full_attention_interval=4,
    partial_rotary_factor=0.25,
)
QWEN_3_NEXT = config(
    "qwen3_next",
    48,
    2048,
    16,
    2,
    151936,
    head_dim=256,
    intermediate_size=5120,
    moe_intermediate_size=512,
    shared_expert_intermediate_size=512,
    num_experts=512,
    num_experts_per_tok=10,
    decoder_sparse_step=1,
    mlp_only_layers=[],
    **DELTA,
)
NEMOTRON_3_NANO = config(
    "nemotron_h",
    52,
    2688,
    32,
    2,
    131072,
    head_dim=128,
    intermediate_size=1856,
    moe_intermediate_size=1856,
    moe_shared_expert_intermediate_size=3712,
    n_routed_experts=128,
    num_experts_per_tok=6,
    n_shared_experts=1,
    hybrid_override_pattern="MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    mamba_num_heads=64,
    mamba_head_dim=64,
    ssm_state_size=128,
    n_groups=8,
    conv_kernel=4,
    chunk_size=128,
    mamba_ssm_cache_dtype="float32",
    n_group=1,
    topk_group=1,
    mamba_proj_bias=False,
)
#: Of the catalogue, but for what is beside each: leaves that its file leaves out.
KNOWN = {
    "qwen3-235b-a22b": (QWEN_3_235B, {}),
    "qwen3-30b-a3b": (QWEN_3_235B | {
        "num_hidden_layers": 48, "hidden_size": 2048, "num_attention_heads": 32, "intermediate_size": 6144,
        "moe_intermediate_size": 768,
    }, {}),
    "mixtral-8x7b": (config(
        "mixtral", 32, 4096, 32, 8, 32000, intermediate_size=14336, num_local_experts=8, num_experts_per_tok=2,
        sliding_window=None,
    ), {}),
    "gpt-oss-120b": (GPT_OSS_120B, {}),
    "llama-4-maverick": (LLAMA_4_MAVERICK, {}),
    "deepseek-moe-16b": (config(
        "deepseek", 28, 2048, 16, 16, 102400, intermediate_size=10944, moe_layer_freq=1, **deepseek(64, 6, 1408, 2, 1)
    ), {}),
    "deepseek-v2-lite": (config(
        "deepseek_v2", 27, 2048, 16, 16, 102400, intermediate_size=10944, q_lora_rank=None, n_group=1, topk_group=1,
        topk_method="greedy", moe_layer_freq=1, **deepseek(64, 6, 1408, 2, 1), **LATENT,
    ), {}),
    "deepseek-v2": (config(
        "deepseek_v2", 60, 5120, 128, 128, 102400, intermediate_size=12288, q_lora_rank=1536, n_group=8, topk_group=3,
        topk_method="group_limited_greedy", **deepseek(160, 6, 1536, 2, 1), **LATENT,
    ), {}),
    "deepseek-v3": (DEEPSEEK_V3, {}),
    "kimi-k2": (config(
        "kimi_k2", 61, 7168, 64, 64, 163840, intermediate_size=18432, q_lora_rank=1536, n_group=1, topk_group=1,
        num_nextn_predict_layers=0, **deepseek(384, 8, 2048, 1, 1), **LATENT, **FP8,
    ), {}),
    "minimax-m2-5": (config(
        "minimax_m2", 62, 3072, 48, 8, 200064, head_dim=128, intermediate_size=1536, num_local_experts=256,
        num_experts_per_tok=8, num_mtp_modules=3, mtp_transformer_layers=1, use_mtp=True, shared_intermediate_size=0,
        attn_type_list=[1] * 62,
    ), {"n_predict": 3.0}),
    "glm-5": (config(
        "glm_moe_dsa", 78, 6144, 64, 64, 154880, intermediate_size=12288, q_lora_rank=2048, kv_lora_rank=512,
        qk_nope_head_dim=192, qk_rope_head_dim=64, v_head_dim=256, index_topk=2048, index_n_heads=32,
        index_head_dim=128, num_nextn_predict_layers=1, **deepseek(256, 8, 2048, 1, 3),
    ), {"n_predict": 1.0}),
    "deepseek-v3-2": (DEEPSEEK_V3 | {
        "model_type": "deepseek_v32", "index_topk": 2048, "index_n_heads": 64, "index_head_dim": 128,
    }, {}),
    "glm-4-5": (config(
        "glm4_moe", 92, 5120, 96, 8, 151552, head_dim=128, intermediate_size=12288, n_group=1, topk_group=1,
        num_nextn_predict_layers=1, attention_bias=True, **deepseek(160, 8, 1536, 1, 3),
    ), {"n_predict": 1.0}),
    "glm-4-5-air": (config(
        "glm4_moe", 46, 4096, 96, 8, 151552, head_dim=128, intermediate_size=10944, n_group=1, topk_group=1,
        attention_bias=True, **deepseek(128, 8, 1408, 1, 1),
    ), {}),
    "qwen3-next-80b-a3b": (QWEN_3_NEXT, {}),
    "qwen3-5-35b-a3b": (QWEN_3_NEXT | {
        "model_type": "qwen3_5_moe_text", "intermediate_size": None, "num_hidden_layers": 40,
        "vocab_size": 248320, "num_experts": 256, "num_experts_per_tok": 8,
        "mtp_num_hidden_layers": 1, "attn_output_gate": True,
        "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 10,
    }, {}),
    "qwen3-5-397b-a17b": (QWEN_3_NEXT | {
        "model_type": "qwen3_5_moe_text", "intermediate_size": None, "num_hidden_layers": 60, "hidden_size": 4096,
        "num_attention_heads": 32, "vocab_size": 248320, "moe_intermediate_size": 1024,
        "shared_expert_intermediate_size": 1024, "linear_num_value_heads": 64,
    }, {}),
    "nemotron-3-nano-30b-a3b": (NEMOTRON_3_NANO, {}),
}  # fmt: skip
GLM_4_5 = KNOWN["glm-4-5"][0]
#: Configuration, parameters, those of a token, and the last digit that these are published with.
PUBLISHED = {
    "GLM-4.5": (GLM_4_5, 355e9, 32e9, 1e9),
    "GLM-4.5-Air": (GLM_4_5 | {
        "num_hidden_layers": 46, "hidden_size": 4096, "intermediate_size": 10944,
        **deepseek(128, 8, 1408, 1, 1),
    }, 106e9, 12e9, 1e9),
    "Qwen2-57B-A14B": (config(
        "qwen2_moe", 28, 3584, 28, 4, 151936, intermediate_size=18944, moe_intermediate_size=2560,
        shared_expert_intermediate_size=20480, num_experts=64, num_experts_per_tok=8, decoder_sparse_step=1,
        use_sliding_window=False, sliding_window=65536,
    ), 57.4e9, 14e9, 1e9),
    "OLMoE-1B-7B": (config(
        "olmoe", 16, 2048, 16, 16, 50304, intermediate_size=1024, num_experts=64, num_experts_per_tok=8
    ), 6.92e9, 1.3e9, 1e8),
    "DeepSeek-V3": (DEEPSEEK_V3, 671e9, 37e9, 1e9),
    "Kimi-K2": (KNOWN["kimi-k2"][0], 1026e9, 32e9, 1e9),
    "gpt-oss-120b": (GPT_OSS_120B, 116.8e9, 5.1e9, 1e8),
    "Llama-4-Maverick": (LLAMA_4_MAVERICK, 400e9, 17e9, 1e9),
    "Qwen3-235B": (QWEN_3_235B, 235e9, 22e9, 1e9),
    "Qwen3-Next-80B": (QWEN_3_NEXT, 79.674e9, 3.875e9, 1e6),
    "Nemotron-3-Nano": (NEMOTRON_3_NANO, 31.6e9, 3.6e9, 1e8),
    "GLM-5": (KNOWN["glm-5"][0], 744e9, 40e9, 1e9),
    "MiniMax-M2.5": (KNOWN["minimax-m2-5"][0], 229e9, 10e9, 1e9),
}  # fmt: skip


def made(folder, found):
    """The workload of a configuration, by the command."""
    source, file = folder / "config.json", folder / "workloads" / "made.toml"
    source.write_text(json.dumps(found), encoding="utf-8")
    done = CliRunner().invoke(app, ["catalog", "from-config", str(source), "-o", str(file)])
    assert done.exit_code == 0, done.output
    assert catalog.check(folder) == []
    return catalog.record(types.Workload, "made", folder=folder)


@pytest.mark.parametrize("slug", KNOWN)
def test_a_configuration_of_a_mixture_is_the_workload_of_the_catalogue(slug, tmp_path):
    found, more = KNOWN[slug]
    ours, theirs = vars(catalog.record(types.Workload, slug)), vars(made(tmp_path, found))
    apart = {"seq_len", "global_batch", "run_tokens", "experts"} | ({"window"} if not ours["local_layers"] else set())
    assert {k: v for k, v in theirs.items() if k not in apart} == {k: v for k, v in ours.items() if k not in apart}
    assert vars(theirs["experts"]) == vars(ours["experts"]) | more


@pytest.mark.parametrize("name", PUBLISHED)
def test_counts_are_the_published_ones_in_all_and_of_a_token(name, tmp_path):
    """To 1 %, of a token to the last published digit too, with or without the input embedding."""
    found, total, active, digit = PUBLISHED[name]
    model = main_model(made(tmp_path, found))
    assert float(parameter_count(model)) == pytest.approx(total, rel=0.01)
    met = float(active_parameters(model))
    counts = (met, met - float(embedding_parameters(model)))
    assert any(abs(one / active - 1.0) < 0.01 or active - 0.5 * digit <= one < active + digit for one in counts)


def test_a_workload_that_was_made_of_one_can_be_trained_and_served(tmp_path, monkeypatch):
    file = tmp_path / "workloads" / "mine.toml"
    file.parent.mkdir()
    file.write_text(huggingface.as_toml(huggingface.read_config(DEEPSEEK_V3), "mine"))
    monkeypatch.setenv("DSE_CATALOG", str(tmp_path))
    asked = dict(n_devices=2048, pp=16, ep=64, global_batch=15360, recompute="full")
    made = (dse.design(name, "h800", any_option=True, seq_len=4096, **asked) for name in ("mine", "deepseek-v3"))
    ours, theirs = map(dse.evaluate, made)
    assert float(ours.step_time) == float(theirs.step_time)


def test_what_is_left_out_is_told(tmp_path):
    told = huggingface.read_config(GPT_OSS_120B).remarks
    assert told[0] == "left out: attention sinks and biases of attention (0.184 million)" and "mxfp4" in told[1]
    assert 'note = "left out: attention sinks' in huggingface.as_toml(huggingface.read_config(GPT_OSS_120B), "made")
    assert any("predicts 1 further" in remark for remark in huggingface.read_config(DEEPSEEK_V3).remarks)
    assert huggingface.read_config(QWEN_3_235B).remarks == []


@pytest.mark.parametrize(
    ("found", "change", "named"),
    [
        (QWEN_3_235B, {"num_experts": None}, "n_routed_experts"),
        (QWEN_3_235B, {"num_experts_per_tok": 256}, "num_experts_per_tok"),
        (QWEN_3_235B, {"moe_intermediate_size": None}, "moe_intermediate_size"),
        (QWEN_3_235B, {"mlp_only_layers": [5]}, "mlp_only_layers"),
        (QWEN_3_235B, {"mlp_only_layers": [0, 99]}, "mlp_only_layers"),
        (QWEN_3_235B, {"decoder_sparse_step": 3}, "decoder_sparse_step"),
        (QWEN_3_235B, {"layer_types": ["linear_attention", "full_attention"] * 47}, "layer_types"),
        (QWEN_3_235B, {"kv_lora_rank": 512}, "kv_lora_rank"),
        (QWEN_3_235B, {"quantization_config": {"bits": 4}}, "quantization_config"),
        (DEEPSEEK_V3, {"qk_rope_head_dim": None}, "qk_rope_head_dim"),
        (DEEPSEEK_V3, {"kv_lora_rank": "512"}, "kv_lora_rank"),
        (DEEPSEEK_V3, {"first_k_dense_replace": 62}, "first_k_dense_replace"),
        (DEEPSEEK_V3, {"moe_layer_freq": [0, 1, 0] + [1] * 58}, "moe_layer_freq"),
        (DEEPSEEK_V3, {"moe_layer_freq": 2}, "moe_layer_freq"),
        (DEEPSEEK_V3, {"index_topk": 2048}, "index_topk"),
        (DEEPSEEK_V3, {"model_type": "deepseek_v4", "hc_mult": 4}, "hc_mult"),
        (DEEPSEEK_V3, {"model_type": "longcat_flash"}, "zero_expert_num"),
        (QWEN_3_NEXT, {"full_attention_interval": None}, "full_attention_interval"),
        (NEMOTRON_3_NANO, {"moe_latent_size": 1024}, "moe_latent_size"),
        (NEMOTRON_3_NANO, {"hybrid_override_pattern": "M-" * 13 + "ME" * 13}, "hybrid_override_pattern"),
        (NEMOTRON_3_NANO, {"hybrid_override_pattern": "M?" * 26}, "hybrid_override_pattern"),
        (NEMOTRON_3_NANO, {"num_hidden_layers": 53}, "hybrid_override_pattern"),
        (LLAMA_4_MAVERICK, {"moe_layers": [0, 1, 2]}, "moe_layers"),
        (KNOWN["minimax-m2-5"][0], {"attn_type_list": [0, 1] * 31}, "attn_type_list"),
    ],
)
def test_layers_that_are_not_modelled_are_refused_by_their_key(found, change, named):
    with pytest.raises(InputError, match=named) as caught:
        huggingface.as_toml(huggingface.read_config(found | change), "made")
    error = caught.value
    assert all((error.where, error.got, error.allowed, error.fix))


def test_dense_layers_in_front_may_be_listed():
    listed = huggingface.read_config(
        DEEPSEEK_V3 | {"moe_layer_freq": [0] * 3 + [1] * 58, "first_k_dense_replace": None}
    ).fields
    assert listed == huggingface.read_config(DEEPSEEK_V3).fields
    front = huggingface.read_config(QWEN_3_235B | {"mlp_only_layers": [0, 1]}).fields
    assert front["experts.first_dense"] == 2 and front["ffn_hidden"] == 12288


ODD = (
    None, True, False, 0, 1, -1, 2**63, 0.5, float("inf"), float("nan"), "", "8", [], [8], {}, {"a": []}, [["x"]] * 61,
    {"quant_method": "fp8"}, {"quant_method": []},
)  # fmt: skip


@pytest.mark.parametrize("slug", ["deepseek-v3", "gpt-oss-120b", "llama-4-maverick", "glm-5", "minimax-m2-5"])
def test_odd_values_are_read_or_refused(slug, tmp_path):
    """What is read is a file of the catalogue that dse can use."""
    found, file = KNOWN[slug][0], tmp_path / "workloads" / "made.toml"
    file.parent.mkdir()
    for key in {
        *found,
        *KEYS["blocks"],
        "moe_layers",
        "use_mtp",
        "topk_method",
        "n_group",
        "mlp_only_layers",
    }:
        for odd in ODD:
            try:
                text = huggingface.as_toml(huggingface.read_config(found | {key: odd}), "made")
            except InputError as error:
                assert all((error.where, error.got, error.allowed, error.fix)), (key, odd)
                continue
            file.write_text(text)
            is_dense = catalog.record(types.Workload, "made", folder=tmp_path).experts is None
            assert not is_dense or (key in KEYS["mixture"]["count"] and odd in (0, 1)), (key, odd)


def test_a_hybrid_without_experts_has_the_blocks_of_the_catalogue(tmp_path):
    """Nemotron Nano 9B v2: every block is one part, and a feed-forward is dense."""
    found = config(
        "nemotron_h",
        56,
        4480,
        40,
        8,
        131072,
        head_dim=128,
        intermediate_size=15680,
        mamba_num_heads=128,
        mamba_head_dim=80,
        ssm_state_size=128,
        n_groups=8,
        conv_kernel=4,
        mamba_ssm_cache_dtype="bfloat16",
        hybrid_override_pattern="M" * 27 + "*" * 4 + "-" * 25,
    )
    ours = catalog.record(types.Workload, "nemotron-nano-9b-v2")
    theirs = made(tmp_path, found)
    assert vars(theirs.recurrent) == vars(ours.recurrent) and theirs.experts is None
    assert float(parameter_count(theirs)) == float(parameter_count(ours))
    told = huggingface.read_config(QWEN_3_NEXT | {"model_type": "qwen3_5_moe_text", "mtp_num_hidden_layers": 1}).remarks
    assert told == ["left out: the layer that predicts a further token"]
