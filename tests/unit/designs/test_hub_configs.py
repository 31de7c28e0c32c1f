"""Configurations as the hub has them: counts, blocks that are refused by their key, wrappers, keys by kind."""

from __future__ import annotations

import json

import pytest

import dse
from dse import types
from dse.designs import catalog, leaf
from dse.designs.catalog import huggingface
from dse.designs.catalog.huggingface import read_config
from dse.errors import InputError
from dse.model import parameter_count
from dse.model.work.parameters import main_model
from tests.hub_configs import HUNYUAN_A13B, KIMI_K2, LATENT, MIMO, MODELS, STEP, UNTIED, config, every, text_of

LLAMA = MODELS["Llama-3.1-8B"][0]


def slug(name):
    """Name of a file."""
    return "hub-" + "".join(c if c.isalnum() else "-" for c in name.lower())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A catalogue with a workload of each configuration."""
    path = tmp_path_factory.mktemp("hub")
    (path / "workloads").mkdir()
    for name, (given, _, _) in MODELS.items():
        text = huggingface.as_toml(read_config(given, name), f"the hub's {name}")
        (path / "workloads" / f"{slug(name)}.toml").write_text(text)
    return path


def test_workloads_of_the_hub_are_right_files(folder):
    assert catalog.check(folder) == []


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_the_hub_has_its_parameters(name, folder):
    """To 0.5 %; norms of queries and keys, biases, sinks, heads of some layers, no part of a workload, are 0.15 %."""
    given, published, source = MODELS[name]
    model = read_config(given, name)
    assert model.unread == () and "model_type" in model.read
    workload = catalog.record(types.Workload, slug(name), folder=folder)
    count = float(parameter_count(workload if "with MTP" in source else main_model(workload)))
    assert count == pytest.approx(published, rel=5e-3)


#: What has a block that dse does not model → the key that says so.
REFUSED = {
    "jamba": (config("jamba", 32, 4096, 32, 8, 14336, 65536, num_experts=16, num_experts_per_tok=2, attn_layer_period=8,
        attn_layer_offset=4, expert_layer_period=2, mamba_d_state=16, mamba_d_conv=4), "attn_layer_period"),
    "kimi_linear": (config("kimi_linear", 27, 2304, 32, 32, 9216, 163840, num_experts=256, num_experts_per_token=8,
        moe_intermediate_size=1024, linear_attn_config={"kda_layers": [1, 2, 3]}, **LATENT), "linear_attn_config"),
    "lfm2_moe": (config("lfm2_moe", 24, 2048, 32, 8, 7168, 65536, num_experts=32, num_experts_per_tok=4,
        moe_intermediate_size=1792, conv_L_cache=3, layer_types=["conv", "conv", "full_attention"] * 8),
        "conv_L_cache"),
    "longcat_flash": ({"model_type": "longcat_flash", "num_layers": 28, "hidden_size": 6144, "num_attention_heads": 64,
        "ffn_hidden_size": 12288, "expert_ffn_hidden_size": 2048, "n_routed_experts": 512, "moe_topk": 12,
        "zero_expert_num": 256, "vocab_size": 131072, "max_position_embeddings": 131072, **LATENT}, "zero_expert_num"),
    "t5": ({"model_type": "t5", "d_model": 512, "d_ff": 2048, "num_layers": 6, "num_decoder_layers": 6, "num_heads": 8,
        "vocab_size": 32128, "is_encoder_decoder": True}, "is_encoder_decoder"),
    "t5 without its key": ({"model_type": "t5", "d_model": 512}, "is_encoder_decoder"),
    "bert": (config("bert", 12, 768, 12, 12, 3072, 30522, 512, type_vocab_size=2), "type_vocab_size"),
    "a masked model": (config("eurobert", 12, 768, 12, 12, 3072, 128256, architectures=["EuroBertForMaskedLM"]),
        "architectures"),
    "mamba2": ({"model_type": "mamba2", "hidden_size": 2560, "num_hidden_layers": 64, "vocab_size": 50288,
        "state_size": 128}, "state_size"),
    "falcon_h1": (config("falcon_h1", 36, 2048, 8, 2, 4096, 65537, mamba_d_ssm=3072, mamba_d_state=256), "mamba_"),
    "zamba2": (config("zamba2", 54, 2560, 32, 32, 10240, 32000, num_mem_blocks=2, mamba_d_state=64), "num_mem_blocks"),
    "recurrent_gemma": (config("recurrent_gemma", 26, 2560, 10, 1, 15360, 256000, lru_width=2560), "lru_width"),
    "gemma3n": (text_of("gemma3n", config("gemma3n_text", 35, 2048, 8, 2, 16384, 262400, altup_num_inputs=4)), "altup"),
    "gemma 4 with a wider global head": (text_of("gemma4", config("gemma4_text", 60, 5376, 32, 16, 21504, 262144,
        global_head_dim=512, sliding_window=1024)), "global_head_dim"),
    "deepseek_v4": (config("deepseek_v4", 43, 4096, 64, 1, 2048, 129280, hc_mult=4), "hc_mult"),
    "minimax_m3": (config("unheard_of", 60, 6144, 64, 4, 3072, 200064, index_block_size=128, index_n_heads=4),
        "index_block"),
    "mllama": (text_of("mllama", config("mllama_text_model", 40, 4096, 32, 8, 14336, 128256,
        cross_attention_layers=[3, 8, 13])), "cross_attention_layers"),
    "a state of another name": (LLAMA | {"model_type": "unheard_of", "xssm_state": 16}, "xssm_state"),
    "experts in a narrow space": (MODELS["DBRX"][0] | {"moe_latent_size": 1024}, "moe_latent_size"),
    "attention to later tokens": (LLAMA | {"is_causal": False}, "is_causal"),
    "heads in a list": (LLAMA | {"num_attention_heads": [8, 16]}, "num_attention_heads"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_block_that_is_not_modelled_is_refused_by_its_key(name):
    given, key = REFUSED[name]
    with pytest.raises(InputError, match=key) as caught:
        read_config(given)
    error = caught.value
    assert all((error.where, error.got, error.allowed, error.fix))


@pytest.mark.parametrize(
    ("given", "change", "key"),
    [
        (LLAMA, {"num_key_value_heads": 5}, "num_key_value_heads"),
        (LLAMA, {"num_attention_heads": 24, "num_key_value_heads": 8}, "hidden_size"),
        (LLAMA, {"layer_types": ["full_attention"] * 31}, "layer_types"),
        (LLAMA, {"layer_types": ["full_attention"] * 31 + ["unheard_of"]}, "layer_types"),
        (LLAMA, {"layer_types": ["sliding_attention"] * 32}, "layer_types"),
        (LLAMA, {"layer_types": "full_attention"}, "layer_types"),
        (LLAMA, {"num_hidden_layers": 20_000}, "num_hidden_layers"),
        (LLAMA, {"q_lora_rank": 1536}, "q_lora_rank"),
        (LLAMA, {"num_experts": 8}, "num_experts"),
        (LLAMA, {"moe_intermediate_size": 1024}, "moe_intermediate_size"),
        (LLAMA, {"index_topk": 2048, "index_n_heads": 64, "index_head_dim": 128}, "index_topk"),
        (MIMO, {"hybrid_layer_pattern": [0, 1] * 20}, "hybrid_layer_pattern"),
        (MIMO, {"hybrid_layer_pattern": [0, 2] * 24}, "hybrid_layer_pattern"),
        (MIMO, {"swa_head_dim": 64}, "swa_head_dim"),
        (MIMO, {"moe_layer_freq": [0, 1, 0] + [1] * 45}, "moe_layer_freq"),
        (MIMO, {"v_head_dim": 127}, "v_head_dim"),
        (STEP, {"moe_layers_enum": "3,4,x"}, "moe_layers_enum"),
        (STEP, {"moe_layers_enum": "3,5"}, "moe_layers_enum"),
        (STEP, {"layer_types": ["full_attention"] * 46}, "layer_types"),
        (HUNYUAN_A13B, {"moe_topk": [8] * 31 + [4]}, "moe_topk"),
        (KIMI_K2, {"mlp_layer_types": ["sparse", "dense"] + ["sparse"] * 59}, "mlp_layer_types"),
        (MODELS["ERNIE-4.5-21B-A3B"][0], {"moe_layer_end_index": 20}, "moe_layer_end_index"),
        (MODELS["MiniMax-Text-01"][0], {"attn_type_list": [0, 1]}, "attn_type_list"),
        (MODELS["granite-4.0-h-small"][0], {"mamba_d_state": None}, "mamba_n_heads"),
    ],
)
def test_keys_that_contradict_are_refused_by_one_of_them(given, change, key):
    with pytest.raises(InputError, match=key) as caught:
        read_config(given | change)
    error = caught.value
    assert all((error.where, error.got, error.allowed, error.fix))


def test_a_type_without_a_row_is_read_by_its_keys_and_says_what_is_guessed():
    unknown = LLAMA | {"model_type": "unheard_of", "flavour": "vanilla", "num_spoons": 7}
    model = read_config(unknown)
    assert model.fields == read_config(LLAMA).fields
    assert model.unread == ("flavour", "num_spoons") and "bos_token_id" in model.silent and "vocab_size" in model.read
    assert "not read: flavour, num_spoons" in model.remarks and any("no row" in note for note in model.notes)
    assert read_config({key: value for key, value in LLAMA.items() if key != "model_type"}).fields == model.fields
    plain = read_config(unknown | {"hidden_act": "relu2", "sliding_window": 1024})
    assert plain.fields["gated"] is False and plain.fields["local_layers"] == 1.0
    assert any("which layers have the window" in note for note in plain.notes)


def test_a_mixture_without_a_row_is_one():
    known = MODELS["Ling-mini-2.0"][0]
    unknown = read_config(known | {"model_type": "unheard_of"})
    assert unknown.fields == read_config(known).fields
    latent = read_config(KIMI_K2 | {"model_type": "unheard_of"})
    assert latent.fields == read_config(KIMI_K2).fields
    hybrid = MODELS["Qwen3.5-397B-A17B, the text model"][0]["text_config"]
    assert read_config(hybrid | {"model_type": "unheard_of"}).fields == read_config(hybrid).fields


@pytest.mark.parametrize("part", ["text_config", "llm_config", "language_config"])
def test_the_text_model_of_several_counts(part):
    model = read_config(text_of("unheard_of_vl", LLAMA, part))
    assert model.fields == read_config(LLAMA).fields and model.model_type == "llama"
    assert model.notes[0] == "left out: the vision model (vision_config)"


def test_a_thinker_has_a_text_model_of_its_own():
    thinker = {"model_type": "qwen3_omni_moe_thinker", "text_config": MODELS["Qwen3-30B-A3B"][0],
        "audio_config": {"a": 1},
        "vision_config": {"a": 1}}  # fmt: skip
    model = read_config({"model_type": "qwen3_omni_moe", "thinker_config": thinker, "talker_config": {"a": 1}})
    assert model.fields["experts.n_experts"] == 128
    assert all(words in model.notes[0] for words in ("vision model", "audio model", "model that talks"))


def test_parts_with_the_keys_of_a_text_model_are_left_out():
    model = read_config(LLAMA | {"vision_config": {"depth": 32}, "image_token_id": 7})
    assert model.notes == ("left out: the vision model (vision_config)",) and model.unread == ()


def test_a_wrapper_says_whether_embeddings_are_tied():
    text = {key: value for key, value in LLAMA.items() if key != "tie_word_embeddings"}
    for outer, tied in ((True, True), (False, False)):
        model = read_config(text_of("qwen3_vl", text, tie_word_embeddings=outer))
        assert model.fields["tied_embeddings"] is tied
    assert read_config(text_of("gemma3", text)).fields["tied_embeddings"] is True


def test_what_a_configuration_leaves_out_is_the_default_of_its_class():
    model = read_config({"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34})
    assert model.defaults["num_attention_heads"] == 8 and model.fields["window"] == 4096
    assert model.fields["max_seq_len"] == 131072 and model.fields["tied_embeddings"] is True
    assert any("by default of the class of gemma3_text" in remark for remark in model.remarks)
    assert read_config({"model_type": "mistral"}).fields["n_kv_heads"] == 8
    with pytest.raises(InputError, match="vocab_size"):  # null is no default
        read_config({"model_type": "mistral", "vocab_size": None})


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("Olmo-3-7B", 0.75), ("Olmo-3-32B", 0.75), ("c4ai-command-a-03-2025", 0.75), ("gemma-3-1b", 22 / 26),
        ("EXAONE-4.0-32B", 0.75), ("gpt-oss-20b", 0.5), ("MiMo-V2-Flash", 39 / 48), ("Step-3.5-Flash", 33 / 45),
        ("Llama-4-Scout, the text model", 0.75), ("Phi-3-mini-4k", 1.0), ("Mistral-7B-v0.1", 1.0),
    ],
)  # fmt: skip
def test_layers_with_a_window(name, share):
    assert read_config(MODELS[name][0]).fields["local_layers"] == pytest.approx(share, abs=1e-6)


@pytest.mark.parametrize("name", ["SmolLM3-3B", "Qwen2.5-7B", "Qwen3-32B", "Mistral-Nemo-12B", "phi-4", "dots.llm1"])
def test_layers_without_a_window(name):
    assert "window" not in read_config(MODELS[name][0]).fields


def test_heads_of_two_kinds_of_layers():
    """MiMo: 64 query heads, 4 or 8 of keys; (192 + 128) / 2. Step: (12 x 64 + 33 x 96) / 45 = 87.5, 11 to a group."""
    fields = read_config(MIMO).fields
    assert (fields["n_heads"], fields["n_kv_heads"], fields["head_dim"]) == (64, 4, 160)
    fields = read_config(STEP).fields
    assert (fields["n_heads"], fields["n_kv_heads"]) == (88, 8)
    assert fields["experts.first_dense"] == 3 and fields["experts.shared_ffn"] == 1280


def test_layers_that_draft_of_a_dense_model():
    model = read_config(LLAMA | {"num_nextn_predict_layers": 1})
    assert model.fields["draft_layers"] == 1 and "experts.n_predict" not in model.fields


# --- files --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        '{"hidden_size": NaN}', '{"hidden_size": 1e999}', '{"a": -Infinity}', '{"a": 1, "a": 2}',
        '{"a": {"b": 1, "b": 1}}', '{"a": ' * 60 + "1" + "}" * 60, '{"a": ' * 99_999, "[1]", "7", "null", "{", "",
        "{" + ", ".join(f'"k{n}": 1' for n in range(30_000)) + "}", '{"a": ' + "9" * 6000 + "}",
    ],
)  # fmt: skip
def test_limits_of_a_file(text):
    with pytest.raises(InputError) as caught:
        huggingface.parse(text, "config.json")
    assert all((caught.value.where, caught.value.got, caught.value.allowed, caught.value.fix))


@pytest.mark.parametrize("given", [None, [], "text", {"a": float("nan")}, {"hidden_size": float("inf")}])
def test_values_that_are_no_configuration(given):
    with pytest.raises(InputError):
        read_config(given)


def test_the_command_writes_the_format_of_weights_and_says_what_it_left_out(tmp_path, monkeypatch):
    source, made = tmp_path / "config.json", tmp_path / "workloads" / "kimi.toml"
    source.write_text(json.dumps(MODELS["Kimi-K2.5, the text model"][0]))
    report = dse.catalog_from_config(source, output=made)
    text = made.read_text()
    assert 'checkpoint = "int4"' in text and any("vision model" in remark for remark in report.document["remarks"])
    monkeypatch.setenv("DSE_CATALOG", str(tmp_path))
    ours, theirs = (dse.design(name, "h200", kind="serving", n_devices=8, ep=8, tp=1) for name in ("kimi", "kimi-k2-5"))
    for path in catalog.SERVED_FORMAT:
        assert leaf(ours, path) == leaf(theirs, path)


def test_a_model_has_every_key_in_one_of_three_groups():
    for given, _, _ in MODELS.values():
        model = read_config(given)
        inner = next((given[key] for key in ("text_config",) if key in given), given)
        assert {*model.read} | {*model.silent} | {*model.unread} == {*inner}
        assert not {*model.read} & {*model.silent} and not {*model.silent} & {*model.unread}


def test_windows_in_a_pattern_of_letters_and_in_layers():
    letters = config(
        "unheard_of", 12, 1024, 16, 4, 4096, 32000, sliding_window=512, sliding_window_pattern="LG", **UNTIED
    )
    assert read_config(letters).fields["local_layers"] == 0.5
    listed = letters | {"layer_types": every(3, 12), "sliding_window_pattern": None}
    assert read_config(listed).fields["local_layers"] == pytest.approx(2 / 3, abs=1e-6)


#: Keys that Transformers 4 writes into every configuration, and those of makers that say nothing of the shape.
_GENERATION = dict(
    _name_or_path="", add_cross_attention=False, auto_map={}, bad_words_ids=None, begin_suppress_tokens=None,
    chunk_size_feed_forward=0, cross_attention_hidden_size=None, diversity_penalty=0.0, do_sample=False,
    encoder_no_repeat_ngram_size=0, id2label={"0": "L"}, is_decoder=False, is_encoder_decoder=False, length_penalty=1.0,
    max_length=20, no_repeat_ngram_size=0, num_beam_groups=1, num_beams=1, num_return_sequences=1, pruned_heads={},
    repetition_penalty=1.0, temperature=1.0, tf_legacy_loss=False, top_k=50, top_p=1.0, typical_p=1.0, dtype="bfloat16",
)  # fmt: skip
_OF_MAKERS = {
    "Hunyuan-A13B": dict(
        anyres_pooling_size=2, attention_head_dim=128, class_num=0, dense_list=[4096, 0], group_limited_greedy=False,
        im_end_id=6, kv_lora_rank=None, q_lora_rank=None, qk_nope_head_dim=None, v_head_dim=None, mask_init_id=13,
        moe_drop_tokens=False, n_group=False, topk_group=False, num_media_embeds=257, org_vocab_size=128167,
        pool_type="last", position_embedding_xdrope=False, use_mla=False, use_rotary_pos_emb=True, text_start_id=7,
    ),
    "Step-3.5-Flash": dict(
        moe_router_activation="sigmoid", moe_router_scaling_factor=3.0, need_fp32_gate=True, norm_expert_weight=True,
        partial_rotary_factors=[0.5] * 48, sink=False, swiglu_limits=[0.0] * 48, use_moe_router_bias=True,
        use_qk_norm=True, yarn_only_types=["full_attention"], zero_centered=True, max_seq_len=262144,
    ),
    "ERNIE-4.5-21B-A3B": dict(
        compression_ratio=1.0, moe_gate="topk", moe_group_experts=False, moe_orthogonal_loss_lambda=0.0,
        use_rmsnorm=True, moe_norm_min=1e-12, sliding_window=None, moe_layer_end_index=None,
    ),
    "GLM-5": dict(
        ep_size=1, indexer_rope_interleave=True, moe_layer_freq=1, rope_interleave=True, routed_scaling_factor=2.5,
        topk_method="noaux_tc", index_topk_freq=4, index_skip_topk_offset=3, moe_router_dtype="float32",
    ),
    "c4ai-command-a-03-2025": dict(
        order_of_interleaved_layers="local_attn_first", use_embedding_sharing=True, use_gated_activation=True,
        use_parallel_block=True, use_parallel_embedding=False, position_embedding_type="rope_gptj",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", _OF_MAKERS)
def test_keys_that_say_nothing_of_the_shape(name):
    given = MODELS[name][0]
    model = read_config(_GENERATION | given | _OF_MAKERS[name])
    assert model.unread == () and model.fields == read_config(given).fields
    assert {"temperature", "auto_map", "is_decoder"} <= {*model.silent}


def test_a_dense_feed_forward_in_parallel_with_experts_is_a_shared_one():
    """Grok-2: 64 x (3 x 8192 x (32768 + 8 x 16384) + attention 8192 x 128 x 144 + router 8 x 8192) and 2 x 131072 x
    8192 make 269.5 B."""
    grok = config("grok", 64, 8192, 64, 8, 32768, 131072, moe_intermediate_size=16384, num_local_experts=8,
        num_experts_per_tok=2, residual_moe=True, head_dim=128, sliding_window_size=-1, **UNTIED)  # fmt: skip
    fields = read_config(grok).fields
    assert fields["experts.shared_ffn"] == 32768 and "window" not in fields


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"peft_type": "LORA", "r": 16}, "adapter"),
        ({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}, "hf_quant_config.json"),
        ({"tokenizer_class": "Fast", "model_max_length": 131072}, "tokenizer"),
        ({"do_sample": True, "temperature": 0.6}, "sampling"),
        ({"weight_map": {}}, "index of weights"),
        ({"a": 1, "b": 2}, "no key of a shape, of 2 keys"),
    ],
)
def test_a_file_of_another_kind_is_named(given, words):
    with pytest.raises(InputError, match=words):
        read_config(given)


def test_a_width_of_up_and_gate_together_is_halved():
    """Qwen-7B: 7,721,324,544 on the hub."""
    qwen = {"model_type": "qwen", "hidden_size": 4096, "intermediate_size": 22016, "num_attention_heads": 32,
        "num_hidden_layers": 32, "kv_channels": 128, "vocab_size": 151936, "seq_length": 8192}  # fmt: skip
    assert read_config(qwen).fields["ffn_hidden"] == 11008
