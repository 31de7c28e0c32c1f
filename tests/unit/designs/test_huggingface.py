"""Workloads from configurations of Hugging Face: shapes as the catalogue has them, what is no dense decoder refused."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from dse import types
from dse.cli import app
from dse.designs import catalog
from dse.designs.catalog import huggingface
from dse.designs.catalog.huggingface.families import KEYS
from dse.errors import InputError
from dse.model import parameter_count

LLAMA_3_8B = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 4096,
    "intermediate_size": 14336, "max_position_embeddings": 8192, "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "rope_scaling": None, "rope_theta": 500000.0, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "vocab_size": 128256, "attention_dropout": 0.0, "pretraining_tp": 1,
}  # fmt: skip
GPT_2 = {
    "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "model_type": "gpt2",
    "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_inner": None, "n_layer": 12, "n_positions": 1024,
    "resid_pdrop": 0.1, "vocab_size": 50257,
}  # fmt: skip
GEMMA_2_9B = {
    "model_type": "gemma2",
    "head_dim": 256,
    "hidden_size": 3584,
    "intermediate_size": 14336,
    "num_hidden_layers": 42,
    "max_position_embeddings": 8192,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "sliding_window": 4096,
    "vocab_size": 256000,
}
FALCON_7B = {
    "model_type": "falcon",
    "hidden_size": 4544,
    "num_attention_heads": 71,
    "num_hidden_layers": 32,
    "alibi": False,
    "multi_query": True,
    "new_decoder_architecture": False,
    "vocab_size": 65024,
    "max_position_embeddings": 2048,
}
QWEN_2_5_7B = {
    "model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "max_position_embeddings": 32768,
    "max_window_layers": 28, "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4,
    "sliding_window": 131072, "use_sliding_window": False, "tie_word_embeddings": False, "vocab_size": 152064,
}  # fmt: skip
MISTRAL_7B = {
    "model_type": "mistral",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 32768,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "sliding_window": 4096,
    "tie_word_embeddings": False,
    "vocab_size": 32000,
}
KNOWN = {
    "llama-3-8b": LLAMA_3_8B,
    "gpt-2-small": GPT_2,
    "gemma-2-9b": GEMMA_2_9B,
    "falcon-7b": FALCON_7B,
    "qwen2-5-7b": QWEN_2_5_7B,
    "mistral-7b": MISTRAL_7B,
}


def write(config, folder, name="config.json"):
    path = folder / name
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


@pytest.mark.parametrize("slug", KNOWN)
def test_a_configuration_is_the_workload_of_the_catalogue(slug, tmp_path):
    """But for length, batch and tokens that it was trained with, which the configuration does not have."""
    source, made = write(KNOWN[slug], tmp_path), tmp_path / "workloads" / "made.toml"
    done = CliRunner().invoke(app, ["catalog", "from-config", str(source), "-o", str(made)])
    assert done.exit_code == 0, done.output
    assert catalog.check(tmp_path) == []
    ours, theirs = (vars(catalog.record(types.Workload, name, folder=tmp_path)) for name in (slug, "made"))
    apart = {"seq_len", "global_batch", "run_tokens"} | ({"window"} if ours["local_layers"] == 0.0 else set())
    assert {name: value for name, value in theirs.items() if name not in apart} == {
        name: value for name, value in ours.items() if name not in apart
    }


@pytest.mark.parametrize(("config", "published"), [(LLAMA_3_8B, 8.03e9), (GPT_2, 0.124e9)])
def test_parameters_are_those_published(config, published, tmp_path):
    (tmp_path / "workloads").mkdir()
    (tmp_path / "workloads" / "made.toml").write_text(huggingface.as_toml(huggingface.read_config(config), "made"))
    count = float(parameter_count(catalog.record(types.Workload, "made", folder=tmp_path)))
    assert count == pytest.approx(published, rel=5e-3)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"num_local_experts": 8}, "num_local_experts"),
        ({"kv_lora_rank": 512}, "kv_lora_rank"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"model_type": "mamba"}, "state_size"),
        ({"model_type": ["llama"]}, "model_type"),
        ({"num_attention_heads": [8, 16]}, "num_attention_heads"),
        ({"num_key_value_heads": 5}, "num_key_value_heads"),
        ({"hidden_size": "4096"}, "hidden_size"),
        ({"hidden_size": 4097}, "hidden_size"),
        ({"hidden_size": 10**30}, "hidden_size"),
        ({"vocab_size": True}, "vocab_size"),
        ({"vocab_size": None}, "vocab_size"),
        ({"intermediate_size": None}, "intermediate_size"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings"),
    ],
)
def test_what_is_no_dense_decoder_is_refused_by_its_key(change, named):
    with pytest.raises(InputError, match=named):
        huggingface.read_config(LLAMA_3_8B | change)


def test_a_stretched_context_is_trained_at_the_length_before():
    stretched = LLAMA_3_8B | {
        "max_position_embeddings": 131072,
        "rope_scaling": {"original_max_position_embeddings": 8192, "factor": 8.0},
    }
    found = huggingface.read_config(stretched).fields
    assert found["seq_len"] == 8192 and found["max_seq_len"] == 131072


def test_one_dense_expert_is_none():
    assert (
        huggingface.read_config(LLAMA_3_8B | {"num_experts": 0, "num_local_experts": None}).fields
        == huggingface.read_config(LLAMA_3_8B).fields
    )


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"a": ' + "[" * 100_000, '{"a": ' + "9" * 5_000 + "}", "\x00"])
def test_what_is_no_configuration_is_told(text, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(text)
    done = CliRunner().invoke(app, ["catalog", "from-config", str(path), "-o", str(tmp_path / "made.toml")])
    assert done.exit_code == 2 and not (tmp_path / "made.toml").exists()


def test_neither_the_configuration_nor_a_strangers_file_is_replaced(tmp_path):
    source, other = write(LLAMA_3_8B, tmp_path), tmp_path / "mine.toml"
    other.write_text("mine")
    command = ["catalog", "from-config", str(source), "-o"]
    assert CliRunner().invoke(app, [*command, str(source)]).exit_code == 2
    assert CliRunner().invoke(app, [*command, str(other)]).exit_code == 2 and other.read_text() == "mine"
    assert CliRunner().invoke(app, [*command, str(other), "--force"]).exit_code == 0
    other.write_text(other.read_text() + "global_batch = 64\n")  # made one's own again
    assert CliRunner().invoke(app, [*command, str(other)]).exit_code == 2
    assert CliRunner().invoke(app, [*command, str(tmp_path / "none" / "x.toml")]).exit_code == 0
    assert CliRunner().invoke(app, ["catalog", "from-config", "/dev/zero", "-o", str(other)]).exit_code == 2


def test_a_name_stays_a_name(tmp_path):
    (tmp_path / "workloads").mkdir()
    made = tmp_path / "workloads" / "made.toml"
    made.write_text(huggingface.as_toml(huggingface.read_config(LLAMA_3_8B), 'a "name"\n\x7f\\', "con\x1bfig.json"))
    assert catalog.entry("workload", "made", folder=tmp_path).name == 'a "name"\\'


ODD = (
    None, True, False, 0, 1, -1, 2**63, 10**400, 0.5, 1e308, float("inf"), float("nan"), "", "8", "\x1b[31m", [], [8],
    {}, {"original_max_position_embeddings": -1}, {"a": []}, [["sliding_attention"]] * 32,
)  # fmt: skip
MORE_KEYS = ("layer_types", "use_sliding_window", "max_window_layers", "rope_scaling", "alibi", "head_dim")


@pytest.mark.parametrize("slug", KNOWN)
def test_odd_values_are_read_or_refused(slug, tmp_path):
    """What is read is a file of the catalogue that dse can use."""
    made = tmp_path / "workloads" / "made.toml"
    made.parent.mkdir()
    for key in {*KNOWN[slug], *KEYS["blocks"], *MORE_KEYS}:
        for odd in ODD:
            try:
                text = huggingface.as_toml(huggingface.read_config(KNOWN[slug] | {key: odd}), "made")
            except InputError as error:
                assert all((error.where, error.got, error.allowed, error.fix)), (key, odd)
                continue
            made.write_text(text)
            assert catalog.record(types.Workload, "made", folder=tmp_path).n_layers >= 1
