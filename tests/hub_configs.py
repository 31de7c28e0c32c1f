"""Configurations of models on the hub, written anew from public facts, with the parameters that are published.

A row: configuration, parameters, and their source. ``hub`` is the count of the safetensors files as the hub displays
it, from memory, or ``looked up`` in a public table of such counts; ``arithmetic`` adds the matrices,
        norms and biases of the published shape by hand. Where a checkpoint has
layers that predict further tokens, the count with them is marked ``with MTP``.
"""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]


def config(
    kind: str, layers: int, hidden: int, heads: int, kv: int, ffn: int, vocab: int, length: int = 131072, **more
):
    """A configuration with the keys that Llama has."""
    return {
        "model_type": kind, "num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads,
        "num_key_value_heads": kv, "intermediate_size": ffn, "vocab_size": vocab, "max_position_embeddings": length,
        "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2, "initializer_range": 0.02, "use_cache": True,
        "rms_norm_eps": 1e-5, "rope_theta": 1e6, "hidden_act": "silu", "attention_dropout": 0.0, **more,
    }  # fmt: skip


def text_of(wrapper: str, text: Config, part: str = "text_config", **more: Any) -> Config:
    """A configuration of several models, one of which is a text model."""
    return {"model_type": wrapper, part: text, "vision_config": {"hidden_size": 1152, "depth": 27}, **more}


def every(interval: int, layers: int, local: str = "sliding_attention") -> list[str]:
    """Kinds of layers of which every so manieth attends to all."""
    return ["full_attention" if (layer + 1) % interval == 0 else local for layer in range(layers)]


UNTIED, TIED = {"tie_word_embeddings": False}, {"tie_word_embeddings": True}
LATENT = dict(kv_lora_rank=512, q_lora_rank=1536, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128)
GATED_DELTA = dict(
    linear_conv_kernel_dim=4, linear_key_head_dim=128, linear_num_key_heads=16, linear_num_value_heads=64,
    linear_value_head_dim=128,
)  # fmt: skip
KIMI_K2 = config(
    "kimi_k2", 61, 7168, 64, 64, 18432, 163840, first_k_dense_replace=1, moe_intermediate_size=2048, n_group=1,
    n_routed_experts=384, n_shared_experts=1, num_experts_per_tok=8, topk_group=1, num_nextn_predict_layers=0,
    topk_method="noaux_tc", scoring_func="sigmoid", moe_layer_freq=1, aux_loss_alpha=0.001, seq_aux=True, **LATENT,
        **UNTIED,
)  # fmt: skip
INT4_EXPERTS = {
    "quant_method": "compressed-tensors", "format": "pack-quantized",
    "config_groups": {"group_0": {"input_activations": None, "output_activations": None, "targets": ["Linear"],
        "weights": {
        "num_bits": 4, "group_size": 32, "strategy": "group", "symmetric": True, "type": "int",
    }}},
    "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"],
}  # fmt: skip
MIMO = config(
    "mimo_v2_flash", 48, 4096, 64, 4, 16384, 152576, 262144, head_dim=192, v_head_dim=128, swa_num_attention_heads=64,
    swa_num_key_value_heads=8, swa_head_dim=192, swa_v_head_dim=128, sliding_window=128, sliding_window_size=128,
    attention_chunk_size=128, hybrid_layer_pattern=[int(not (n == 0 or (n + 1) % 6 == 0)) for n in range(48)],
    moe_layer_freq=[0] + [1] * 47, n_routed_experts=256, num_experts_per_tok=8, moe_intermediate_size=2048,
    n_shared_experts=None, n_group=1, topk_group=1, add_swa_attention_sink_bias=True,
        add_full_attention_sink_bias=False,
    attention_value_scale=0.707, attention_bias=False, scoring_func="sigmoid", swa_rope_theta=10000, **UNTIED,
)  # fmt: skip
STEP = config(
    "step3p5", 45, 4096, 64, 8, 11264, 128896, head_dim=128, num_attention_groups=8, sliding_window=512,
    layer_types=[["full_attention"] + ["sliding_attention"] * 3][0] * 12, moe_num_experts=288, moe_top_k=8,
    moe_intermediate_size=1280, share_expert_dim=1280, moe_layers_enum=",".join(map(str, range(3, 45))), use_moe=True,
    moe_every_n_layer=1, num_nextn_predict_layers=3, use_head_wise_attn_gate=True, att_impl_type="GQA",
    attention_other_setting={
        "attention_type": "sliding_attention", "num_attention_heads": 96, "num_attention_groups": 8, "head_dim": 128,
    },
)  # fmt: skip
HUNYUAN_A13B = config(
    "hunyuan_v1_moe", 32, 4096, 32, 8, 3072, 128167, 32768, num_experts=64, moe_topk=[8] * 32,
        num_shared_expert=[1] * 32,
    moe_intermediate_size=[3072] * 32, use_mixed_mlp_moe=True, moe_layer_num_skipped=0, use_qk_norm=True, use_cla=False,
    cla_share_factor=2, norm_type="rms", attention_bias=False, mlp_bias=False, head_dim=128, **TIED,
)  # fmt: skip

#: Model → configuration, parameters, source.
MODELS: dict[str, tuple[Config, float, str]] = {
    "Seed-OSS-36B": (config("seed_oss", 64, 5120, 80, 8, 27648, 155136, 524288, head_dim=128, attention_bias=True,
        attention_out_bias=False, **UNTIED), 36_151_104_512, "hub, looked up"),
    "SmolLM3-3B": (config("smollm3", 36, 2048, 16, 4, 11008, 128256, 65536, no_rope_layers=[1, 1, 1, 0] * 9,
        no_rope_layer_interval=4, use_sliding_window=False, sliding_window=None, **TIED), 3_075_098_624, "hub"),
    "Olmo-3-7B": (config("olmo3", 32, 4096, 32, 32, 11008, 100278, 65536, sliding_window=4096, layer_types=every(4, 32),
        **UNTIED), 7_298_011_136, "hub"),
    "Olmo-3-32B": (config("olmo3", 64, 5120, 40, 8, 27648, 100278, 65536, sliding_window=4096, **UNTIED),
        32_233_522_176, "arithmetic"),
    "granite-3.3-8b": (config("granite", 40, 4096, 32, 8, 12800, 49159, embedding_multiplier=12.0, logits_scaling=16.0,
        residual_multiplier=0.22, attention_multiplier=0.0078125, **TIED), 8_170_864_640, "hub"),
    "c4ai-command-r7b-12-2024": (config("cohere2", 32, 4096, 32, 8, 14336, 256000, 132096, sliding_window=4096,
        sliding_window_pattern=4, logit_scale=0.25, layer_norm_eps=1e-5, head_dim=128), 8_027_607_040, "hub: 8.03 B"),
    "c4ai-command-a-03-2025": (config("cohere2", 64, 12288, 96, 8, 36864, 256000, 131072, sliding_window=4096,
        layer_switch=4, head_dim=128), 111_057_580_032, "hub: 111 B"),
    "Apertus-8B": (config("apertus", 32, 4096, 32, 8, 21504, 131072, 65536, qk_norm=True, post_norm=False, **UNTIED)
        | {"hidden_act": "xielu"}, 8_053_338_176, "hub, looked up"),
    "Apertus-70B": (config("apertus", 80, 8192, 64, 8, 43008, 131072, 65536, **UNTIED) | {"hidden_act": "xielu"},
        70.6e9, "hub: 70.6 B"),
    "gemma-3-1b": (config("gemma3_text", 26, 1152, 4, 1, 6912, 262144, 32768, head_dim=256, sliding_window=512,
        sliding_window_pattern=6), 999_885_952, "hub"),
    "gemma-3-4b, the text model": (text_of("gemma3", {"model_type": "gemma3_text", "hidden_size": 2560,
        "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}), 3_880_263_168,
        "hub 4,300,079,472 with 420 M of images"),
    "gemma-3-27b, the text model": (text_of("gemma3", {"model_type": "gemma3_text", "hidden_size": 5376,
        "head_dim": 128,
        "intermediate_size": 21504, "num_attention_heads": 32, "num_hidden_layers": 62, "num_key_value_heads": 16,
        "query_pre_attn_scalar": 168, "sliding_window": 1024}), 27_009_346_304,
        "hub 27,432,406,640 with 423 M of images"),
    "Llama-4-Scout, the text model": (text_of("llama4", config("llama4_text", 48, 5120, 40, 8, 8192, 202048, 10485760,
        head_dim=128, intermediate_size_mlp=16384, interleave_moe_layer_step=1, num_local_experts=16,
        num_experts_per_tok=1, attention_chunk_size=8192, no_rope_layers=[], use_qk_norm=True)),
        107_769_840_640, "hub 108,641,793,536 with 872 M of images"),
    "Llama-4-Maverick, the text model": (text_of("llama4", config("llama4_text", 48, 5120, 40, 8, 8192, 202048, 1048576,
        head_dim=128, intermediate_size_mlp=16384, interleave_moe_layer_step=2, num_local_experts=128,
        num_experts_per_tok=1, attention_chunk_size=8192)), 400_711_848_960,
        "hub 401,583,781,376 with 872 M of images"),
    "Qwen3-VL-235B-A22B, the text model": (text_of("qwen3_vl_moe", config("qwen3_vl_moe_text", 94, 4096, 64, 4, 12288,
        151936, 262144, head_dim=128, num_experts=128, num_experts_per_tok=8, moe_intermediate_size=1536,
        decoder_sparse_step=1, mlp_only_layers=[]), tie_word_embeddings=False), 235_093_634_560,
        "hub of Qwen3-235B-A22B"),
    "Qwen3.5-397B-A17B, the text model": (text_of("qwen3_5_moe", config("qwen3_5_moe_text", 60, 4096, 32, 2, 0, 248320,
        262144, head_dim=256, num_experts=512, num_experts_per_tok=10, moe_intermediate_size=1024,
        shared_expert_intermediate_size=1024, full_attention_interval=4, attn_output_gate=True, mtp_num_hidden_layers=1,
        layer_types=every(4, 60, "linear_attention"), **GATED_DELTA) | {"intermediate_size": None}),
        396_346_350_336, "hub 403,397,928,944, looked up, less 456,010,480 of images and 6,595,568,128 of MTP"),
    "Kimi-K2.5, the text model": (text_of("kimi_k25", KIMI_K2 | {"quantization_config": INT4_EXPERTS},
        tie_word_embeddings=False), 1_026_408_232_448, "arithmetic, and Kimi-K2's 1026 B"),
    "GLM-4.5": (config("glm4_moe", 92, 5120, 96, 8, 12288, 151552, head_dim=128, moe_intermediate_size=1536,
        n_routed_experts=160, n_shared_experts=1, num_experts_per_tok=8, first_k_dense_replace=3, n_group=1,
        topk_group=1,
        num_nextn_predict_layers=1, attention_bias=True, use_qk_norm=True, partial_rotary_factor=0.5, **UNTIED),
        356_785_898_816, "hub of GLM-4.6, of the same shape, looked up, with MTP"),
    "GLM-4.5-Air": (config("glm4_moe", 46, 4096, 96, 8, 10944, 151552, head_dim=128, moe_intermediate_size=1408,
        n_routed_experts=128, n_shared_experts=1, num_experts_per_tok=8, first_k_dense_replace=1, n_group=1,
        topk_group=1,
        num_nextn_predict_layers=1, attention_bias=True, **UNTIED), 109_227_310_848,
        "hub 110,468,824,832, looked up, with MTP, less 2 x 151,552 x 4,096 of it twice"),
    "GLM-5": (config("glm_moe_dsa", 78, 6144, 64, 64, 12288, 154880, 202752, moe_intermediate_size=2048, head_dim=64,
        n_routed_experts=256, n_shared_experts=1, num_experts_per_tok=8, first_k_dense_replace=3, n_group=1,
        topk_group=1,
        kv_lora_rank=512, q_lora_rank=2048, qk_nope_head_dim=192, qk_rope_head_dim=64, qk_head_dim=256, v_head_dim=256,
        index_topk=2048, index_n_heads=32, index_head_dim=128, num_nextn_predict_layers=1, **UNTIED),
        753_864_139_008, "hub, looked up, with MTP"),
    "MiniMax-M2": (config("minimax_m2", 62, 3072, 48, 8, 1536, 200064, 196608, head_dim=128, num_local_experts=256,
        num_experts_per_tok=8, num_mtp_modules=3, mtp_transformer_layers=1, use_mtp=True, shared_intermediate_size=0,
        attn_type_list=[1] * 62, rotary_dim=64, use_qk_norm=True, qk_norm_type="per_layer", use_routing_bias=True,
        scoring_func="sigmoid", **UNTIED), 228_689_764_864, "hub, looked up"),
    "ERNIE-4.5-21B-A3B": (config("ernie4_5_moe", 28, 2560, 20, 4, 12288, 103424, head_dim=128, use_bias=False,
        moe_num_experts=64, moe_k=6, moe_num_shared_experts=2, moe_intermediate_size=1536, moe_layer_start_index=1,
        moe_layer_end_index=27, moe_layer_interval=1, moe_capacity=[64, 64, 64], moe_use_aux_free=True,
        num_nextn_predict_layers=0, **TIED), 21_825_437_888, "hub: 21.8 B"),
    "ERNIE-4.5-300B-A47B": (config("ernie4_5_moe", 54, 8192, 64, 8, 28672, 103424, use_bias=False, moe_num_experts=64,
        moe_k=8, moe_num_shared_experts=0, moe_intermediate_size=3584, moe_layer_start_index=3, moe_layer_end_index=53,
        moe_layer_interval=1, **UNTIED), 299.5e9, "arithmetic; its name: 300 B"),
    "Hunyuan-A13B": (HUNYUAN_A13B, 80_393_183_232, "hub: 80.4 B"),
    "Ling-lite-1.5": (config("bailing_moe", 28, 2048, 16, 4, 1408, 126464, 32768, first_k_dense_replace=0,
        moe_intermediate_size=1408, num_experts=64, num_shared_experts=2, num_experts_per_tok=6, norm_head=False,
        use_bias=False, use_qkv_bias=False, norm_topk_prob=True, **UNTIED), 16_801_974_272, "hub: 16.8 B"),
    "Ling-mini-2.0": (config("bailing_moe", 20, 2048, 16, 4, 5120, 157184, 32768, head_dim=128, first_k_dense_replace=1,
        moe_intermediate_size=512, moe_shared_expert_intermediate_size=512, num_experts=256, num_shared_experts=1,
        num_experts_per_tok=8, n_group=8, topk_group=4, use_qk_norm=True, partial_rotary_factor=0.5,
        num_nextn_predict_layers=0, moe_router_enable_expert_bias=True, score_function="sigmoid", router_dtype="fp32",
        **UNTIED), 16_255_643_392, "hub, looked up"),
    "Ling-1T": (config("bailing_moe_v2", 80, 8192, 64, 8, 18432, 157184, 32768, head_dim=128, first_k_dense_replace=4,
        moe_intermediate_size=2048, moe_shared_expert_intermediate_size=2048, num_experts=256, num_shared_experts=1,
        num_experts_per_tok=8, n_group=8, topk_group=4, use_qk_norm=True, **UNTIED), 999_705_328_640, "hub, looked up"),
    "MiMo-V2-Flash": (MIMO, 309e9, "its card: 309 B"),
    "Step-3.5-Flash": (STEP, 196.81e9, "its card: 196.81 B"),
    "Phi-3-mini-4k": (config("phi3", 32, 3072, 32, 32, 8192, 32064, 4096, sliding_window=2047, attention_bias=False,
        original_max_position_embeddings=4096, resid_pdrop=0.0, embd_pdrop=0.0, **UNTIED), 3_821_079_552, "hub"),
    "phi-4": (config("phi3", 40, 5120, 40, 10, 17920, 100352, 16384, sliding_window=None, **UNTIED), 14_659_507_200,
        "hub"),
    "Phi-4-mini": (config("phi3", 32, 3072, 24, 8, 8192, 200064, partial_rotary_factor=0.75, sliding_window=262144,
        **TIED), 3_836_021_760, "hub"),
    "Mistral-7B-v0.1": (config("mistral", 32, 4096, 32, 8, 14336, 32000, 32768, sliding_window=4096, **UNTIED),
        7_241_732_096, "hub"),
    "Mistral-Small-24B": (config("mistral", 40, 5120, 32, 8, 32768, 131072, 32768, head_dim=128, sliding_window=None,
        **UNTIED), 23_572_403_200, "hub"),
    "Mistral-Nemo-12B": (config("mistral", 40, 5120, 32, 8, 14336, 131072, head_dim=128, sliding_window=None, **UNTIED),
        12_247_782_400, "hub"),
    "Mixtral-8x7B": (config("mixtral", 32, 4096, 32, 8, 14336, 32000, 32768, num_local_experts=8, num_experts_per_tok=2,
        sliding_window=None, output_router_logits=False, router_aux_loss_coef=0.02, **UNTIED), 46_702_792_704,
        "hub, looked up"),
    "Mixtral-8x22B": (config("mixtral", 56, 6144, 48, 8, 16384, 32768, 65536, num_local_experts=8,
        num_experts_per_tok=2,
        sliding_window=None, **UNTIED), 140_630_071_296, "hub"),
    "gpt-oss-20b": (config("gpt_oss", 24, 2880, 64, 8, 2880, 201088, head_dim=64, num_local_experts=32,
        num_experts_per_tok=4, experts_per_token=4, sliding_window=128, attention_bias=True, swiglu_limit=7.0,
        layer_types=["sliding_attention", "full_attention"] * 12, initial_context_length=4096,
        quantization_config={"quant_method": "mxfp4", "modules_to_not_convert": [
            "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}, **UNTIED),
        20_914_757_184, "hub, looked up"),
    # others, by the same rules
    "Llama-3.1-8B": (config("llama", 32, 4096, 32, 8, 14336, 128256, **UNTIED), 8_030_261_248, "hub"),
    "Llama-3.1-70B": (config("llama", 80, 8192, 64, 8, 28672, 128256, **UNTIED), 70_553_706_496, "hub"),
    "Llama-3.1-405B": (config("llama", 126, 16384, 128, 8, 53248, 128256, **UNTIED), 405_853_388_800, "hub"),
    "Qwen2.5-7B": (config("qwen2", 28, 3584, 28, 4, 18944, 152064, use_sliding_window=False, sliding_window=131072,
        max_window_layers=28, **UNTIED), 7_615_616_512, "hub"),
    "Qwen3-32B": (config("qwen3", 64, 5120, 64, 8, 25600, 151936, 40960, head_dim=128, **UNTIED), 32_762_123_264,
        "hub"),
    "Qwen3-30B-A3B": (config("qwen3_moe", 48, 2048, 32, 4, 6144, 151936, 40960, head_dim=128, num_experts=128,
        num_experts_per_tok=8, moe_intermediate_size=768, decoder_sparse_step=1, mlp_only_layers=[], **UNTIED),
        30_532_122_624, "hub"),
    "OLMo-2-13B": (config("olmo2", 40, 5120, 40, 40, 13824, 100352, 4096, **UNTIED), 13_716_198_400, "hub"),
    "glm-4-9b": (config("glm", 40, 4096, 32, 2, 13696, 151552, head_dim=128, attention_bias=True, **UNTIED),
        9_399_951_360, "hub"),
    "EXAONE-4.0-32B": (config("exaone4", 64, 5120, 40, 8, 27392, 102400, head_dim=128, sliding_window=4096,
        sliding_window_pattern="LLLG", **UNTIED), 32_003_216_384, "hub"),
    "internlm2_5-7b": (config("internlm2", 32, 4096, 32, 8, 14336, 92544, 32768, bias=False, **UNTIED), 7_737_708_544,
        "hub"),
    "starcoder2-7b": (config("starcoder2", 32, 4608, 36, 4, 18432, 49152, 16384, sliding_window=4096, use_bias=True,
        mlp_type="default", norm_epsilon=1e-5), 7_173_923_840, "hub"),
    "phi-2": (config("phi", 32, 2560, 32, 32, 10240, 51200, 2048, **UNTIED) | {"hidden_act": "gelu_new"}, 2_779_683_840,
        "hub"),
    "gpt-neox-20b": (config("gpt_neox", 44, 6144, 64, 64, 24576, 50432, 2048, use_parallel_residual=True, **UNTIED)
        | {"hidden_act": "gelu_fast"}, 20_554_567_680, "arithmetic; its name: 20 B"),
    "Phi-3.5-MoE": (config("phimoe", 32, 4096, 32, 8, 6400, 32064, num_local_experts=16, num_experts_per_tok=2,
        attention_bias=True, lm_head_bias=True, sliding_window=131072, **UNTIED), 41_873_153_344, "hub"),
    "dots.llm1": (config("dots1", 62, 4096, 32, 32, 10944, 152064, 32768, head_dim=128, n_routed_experts=128,
        n_shared_experts=2, num_experts_per_tok=6, moe_intermediate_size=1408, first_k_dense_replace=1, n_group=1,
        topk_group=1, sliding_window=None, **UNTIED), 142_774_381_696, "hub"),
    "c4ai-command-r-v01": (config("cohere", 40, 8192, 64, 64, 22528, 256000, 8192, logit_scale=0.0625), 34_980_831_232,
        "hub"),
    "MiniCPM3-4B": (config("minicpm3", 62, 2560, 40, 40, 6400, 73448, 32768, q_lora_rank=768, kv_lora_rank=256,
        qk_nope_head_dim=64, qk_rope_head_dim=32, scale_emb=12, scale_depth=1.4, dim_model_base=256), 4_074_154_240,
        "hub"),
    "DBRX": ({"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "max_seq_len": 32768,
        "vocab_size": 100352, "attn_config": {"kv_n_heads": 8, "clip_qkv": 8, "rope_theta": 500000},
        "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4}, "emb_pdrop": 0.0,
        "resid_pdrop": 0.0, **UNTIED}, 131_596_523_520, "hub"),
    "granite-4.0-h-small": (config("granitemoehybrid", 40, 4096, 32, 8, 768, 100352, num_local_experts=72,
        num_experts_per_tok=10, shared_intermediate_size=1536, mamba_n_heads=128, mamba_d_head=64, mamba_n_groups=1,
        mamba_d_state=128, mamba_d_conv=4, mamba_expand=2, mamba_chunk_size=256, mamba_conv_bias=True,
        mamba_proj_bias=False, position_embedding_type="nope",
        layer_types=["mamba"] * 5 + ["attention"] + (["mamba"] * 9
        + ["attention"]) * 3 + ["mamba"] * 4, **TIED), 32_207_337_984, "hub: 32.2 B"),
    "granite-4.0-micro": (config("granitemoehybrid", 40, 2560, 40, 8, 8192, 100352, num_local_experts=0,
        num_experts_per_tok=0, shared_intermediate_size=8192, mamba_n_heads=128, mamba_d_head=40, mamba_n_groups=1,
        mamba_d_state=256, mamba_d_conv=4, position_embedding_type="rope", layer_types=["attention"] * 40, **TIED),
        3_402_836_480, "hub: 3.40 B"),
    "MiniMax-Text-01": (config("minimax_text_01", 80, 6144, 64, 8, 9216, 200064, 10240000, head_dim=128,
        num_local_experts=32, num_experts_per_tok=2, attn_type_list=([0] * 7 + [1]) * 10, shared_intermediate_size=0,
        layernorm_full_attention_alpha=3.55, postnorm=True, rotary_dim=64, sliding_window=None, **UNTIED),
        456_089_655_296, "hub, looked up"),
    "Qwen3-Coder-Next": (config("qwen3_next", 48, 2048, 16, 2, 5120, 151936, 262144, head_dim=256, num_experts=512,
        num_experts_per_tok=10, moe_intermediate_size=512, shared_expert_intermediate_size=512, decoder_sparse_step=1,
        full_attention_interval=4, mlp_only_layers=[], **GATED_DELTA | {"linear_num_value_heads": 32}, **UNTIED),
        79_674_391_296, "hub, looked up"),
    "Nemotron-3-Nano-30B-A3B": (config("nemotron_h", 52, 2688, 32, 2, 1856, 131072, 262144, head_dim=128,
        moe_intermediate_size=1856, moe_shared_expert_intermediate_size=3712, n_routed_experts=128, n_shared_experts=1,
        num_experts_per_tok=6, mamba_num_heads=64, mamba_head_dim=64, ssm_state_size=128, n_groups=8, conv_kernel=4,
        hybrid_override_pattern="MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", n_group=1, topk_group=1,
        mlp_hidden_act="relu2", **UNTIED), 31_577_937_344, "hub, looked up"),
    "gpt-oss-120b": (config("gpt_oss", 36, 2880, 64, 8, 2880, 201088, head_dim=64, num_local_experts=128,
        num_experts_per_tok=4, sliding_window=128, attention_bias=True, quantization_config={"quant_method": "mxfp4"},
        **UNTIED), 116_829_156_672, "hub, looked up"),
    "Qwen1.5-MoE-A2.7B": (config("qwen2_moe", 24, 2048, 16, 16, 5632, 151936, 8192, num_experts=60,
        num_experts_per_tok=4, moe_intermediate_size=1408, shared_expert_intermediate_size=5632, max_window_layers=21,
        decoder_sparse_step=1, sliding_window=32768, use_sliding_window=False, **UNTIED), 14_315_784_192,
        "hub, looked up"),
}  # fmt: skip
