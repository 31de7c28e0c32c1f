"""Low-rank adapters: which products have them, and the bytes of frozen weights, of the options of several trainers."""

from __future__ import annotations

import pytest

from dse.capabilities.recipes import read_recipe
from dse.designs import leaf, short_name
from dse.tools import TOOLS
from dse.tools.reading import read
from dse.tools.rows import defaults_of


def reading_of(text, name="run.sh", **more):
    return read({name: text}, TOOLS, n_devices=8, system="h100-sxm-80gb", **more)


NAMES = ("rank", "qkv", "projection", "feed_forward", "frozen_bytes")


def adapters_of(text, name="run.sh"):
    values = reading_of(text, name).values
    short = {short_name(path): value for path, value in values.items() if path.startswith("workload.adapters.")}
    return tuple(short[key] for key in NAMES) if short else ()


TRL = "accelerate launch trl/scripts/sft.py --model_name_or_path meta-llama/Llama-2-7b-hf --bf16 "
AXOLOTL = "base_model: meta-llama/Llama-2-7b-hf\nsequence_len: 4096\nmicro_batch_size: 1\nsample_packing: true\n"
LLAMA_FACTORY = (
    "model_name_or_path: meta-llama/Llama-2-7b-hf\nstage: sft\ntemplate: llama2\ncutoff_len: 4096\nbf16: true\n"
)
SCRIPT = "torchrun --nproc_per_node 8 train_lora.py --model_name_or_path meta-llama/Llama-2-7b-hf --bf16 True "
SCRIPT += "--per_device_train_batch_size 1 "
TUNE = "model:\n  _component_: torchtune.models.llama2.{}llama2_7b\n{}\ntokenizer:\n  _component_: a.b\nbatch_size: 2\n"
TUNE += "optimizer:\n  _component_: torch.optim.AdamW\nenable_activation_checkpointing: true\ndtype: bf16\n"
EVERYTHING = "q_proj k_proj v_proj o_proj gate_proj up_proj down_proj"

#: Text, name of its file → rank, products and bytes of frozen weights.
ADAPTERS = [
    # trl/trainer/model_config.py: lora_r 16; PEFT's products of Llama are queries and values
    (TRL, "a.sh", ()),
    (TRL + "--lora_r 32", "a.sh", ()),
    (TRL + "--use_peft --torch_dtype bfloat16", "a.sh", (16, 1, 0, 0, 2)),
    (TRL + "--use_peft --lora_r 32 --lora_target_modules q_proj k_proj v_proj o_proj --dtype bfloat16", "a.sh",
     (32, 1, 1, 0, 2)),
    (TRL + "--use_peft --lora_target_modules all-linear --load_in_4bit", "a.sh", (16, 1, 1, 1, 0.5)),
    (TRL + "--use_peft --load_in_8bit", "a.sh", (16, 1, 0, 0, 1)),
    # DeepSpeed casts all weights; without a format they are loaded in 32 bits
    (TRL + "--use_peft --deepspeed zero3.json", "a.sh", (16, 1, 0, 0, 2)),
    (TRL + "--use_peft", "a.sh", (16, 1, 0, 0, 4)),
    # axolotl: weights are loaded in the format of products
    (AXOLOTL, "a.yml", ()),
    (AXOLOTL + "adapter:\nlora_r: 16\n", "a.yml", ()),
    (AXOLOTL + "adapter: lora\nlora_r: 16\nlora_target_linear: true\n", "a.yml", (16, 1, 1, 1, 2)),
    (AXOLOTL + "adapter: qlora\nload_in_4bit: true\nlora_r: 8\nlora_target_modules: [gate_proj, down_proj]\n", "a.yml",
     (8, 0, 0, 1, 0.5)),
    # hparams/finetuning_args.py of LLaMA-Factory: lora by default, rank 8, all products; frozen weights in 16 bits
    (LLAMA_FACTORY, "a.yaml", (8, 1, 1, 1, 2)),
    (LLAMA_FACTORY + "finetuning_type: full\n", "a.yaml", ()),
    (LLAMA_FACTORY + "finetuning_type: lora\nlora_rank: 64\nlora_target: q_proj,v_proj\nquantization_bit: 8\n",
     "a.yaml", (64, 1, 0, 0, 1)),
    # FastChat, LLaVA, scripts of PEFT
    (SCRIPT + "--lora_r 8 --lora_alpha 16 --lora_target_modules q_proj v_proj --q_lora False", "a.sh",
     (8, 1, 0, 0, 4)),
    (SCRIPT + "--lora_r 8 --q_lora True", "a.sh", (8, 1, 0, 0, 0.5)),
    (SCRIPT + "--lora_enable True --lora_r 128 --bits 4", "a.sh", (128, 1, 1, 1, 0.5)),
    (SCRIPT + "--lora_enable False --lora_r 128", "a.sh", ()),
    (SCRIPT + "--use_lora --lora_rank 64 --lora_target_modules 'query_key_value,dense,dense_h_to_4h'", "a.sh",
     (64, 1, 1, 1, 4)),
    (SCRIPT + "--use_peft_lora True --lora_target_modules '.*\\.(o_proj|down_proj)$' --use_4bit_quantization True",
     "a.sh", (8, 0, 1, 1, 0.5)),
    # qlora.py: 4 bits, rank 64 and all linear layers unless it trains all weights
    (SCRIPT + "--full_finetune False", "a.sh", (64, 1, 1, 1, 0.5)),
    (SCRIPT + "--full_finetune True --bits 16", "a.sh", ()),
    # torchtune: builders of a model with adapters
    (TUNE.format("", "  x: 1"), "a.yaml", ()),
    (TUNE.format("lora_", "  lora_attn_modules: ['q_proj', 'v_proj', 'output_proj']\n  lora_rank: 64"), "a.yaml",
     (64, 1, 1, 0, 2)),
    (TUNE.format("qlora_", "  lora_attn_modules: ['q_proj']\n  apply_lora_to_mlp: True\n  lora_rank: 8"), "a.yaml",
     (8, 1, 0, 1, 0.5)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "name", "right"), ADAPTERS)
def test_adapters_are_read(text, name, right):
    assert adapters_of(text, name) == right


def test_adapters_have_a_prediction():
    text = AXOLOTL + "adapter: qlora\nload_in_4bit: true\nlora_r: 8\nlora_target_linear: true\nbf16: true\n"
    recipe = read_recipe({"a.yml": text}, system="h100-sxm-80gb", n_devices=8)
    assert not recipe.missing
    with recipe.named_workload() as name:
        design = recipe.request(name).design
    assert leaf(design, "workload.adapters.rank") == 8.0
    assert leaf(design, "workload.adapters.frozen_bytes") == 0.5


def test_experts_have_no_adapters():
    text = AXOLOTL.replace("meta-llama/Llama-2-7b-hf", "mistralai/Mixtral-8x7B-v0.1")
    more = "adapter: lora\nlora_r: 8\nlora_target_linear: true\n"
    notes = reading_of(text + more, "a.yml").notes
    assert any("routed experts are not modelled" in note for note in notes)
    whole = reading_of(text + more + "lora_modules_to_save: [embed_tokens, lm_head]\n", "a.yml").notes
    assert any("lora_modules_to_save" in note for note in whole)
    assert not any("adapters" in note for note in reading_of(AXOLOTL + more, "a.yml").notes)


def test_defaults_of_adapters():
    assert defaults_of(TOOLS["trl"])["lora_r"] == "16"
    assert defaults_of(TOOLS["llama-factory"])["lora_target"] == "all"


def test_options_of_adapters_are_stated():
    options = {option.option: option for option in reading_of(TRL + "--use_peft --lora_r 32 --lora_alpha 64").options}
    assert options["lora_r"].status == "stated"
    assert list(options["lora_r"].leaves.values()) == [32.0]
    assert options["lora_alpha"].status == "not modelled"


@pytest.mark.parametrize("kind", ["oft", "ia3", "anything"])
def test_other_kinds_of_adapters_have_no_prediction(kind):
    found = reading_of(AXOLOTL + f"adapter: {kind}\nlora_r: 16\n", "a.yml")
    assert any(f"not {kind}" in text for text in found.missing)
    assert not any(path.startswith("workload.adapters.") for path in found.values)


def test_arguments_of_llama_factory_alone_are_its():
    text = "torchrun --nproc_per_node 8 src/train.py --stage pt --model_name_or_path meta-llama/Llama-2-7b-hf "
    text += "--finetuning_type full --cutoff_len 4096 --per_device_train_batch_size 4 --fp16"
    assert reading_of(text).tool.name == "llama-factory"
    assert reading_of(SCRIPT).tool.name == "transformers"
