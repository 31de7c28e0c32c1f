"""Formats of weights in configurations: bytes by class of tensors, and how a design serves them.

Bytes by hand: AWQ and GPTQ in groups of 128 have a 16-bit scale, with a zero point 4 bits more: 0.5 + 2 / 128 =
0.515625, and + 0.5 / 128 = 0.51953125; INT4 in groups of 32: 0.5 + 2 / 32 = 0.5625; NVFP4 one byte for 16:
0.5625; MXFP4 one for 32: 0.53125; NF4 four bytes for 64: 0.5625.
"""

from __future__ import annotations

import json

import pytest

import dse
from dse.designs import catalog, leaf
from dse.designs.catalog import huggingface
from dse.designs.catalog.huggingface import read_config
from dse.errors import InputError
from dse.types import Precision
from tests.hub_configs import INT4_EXPERTS, KIMI_K2, MODELS

LLAMA, QWEN_MOE, GLM_5 = (MODELS[name][0] for name in ("Llama-3.1-70B", "Qwen3-30B-A3B", "GLM-5"))
DEEPSEEK = KIMI_K2 | {"model_type": "deepseek_v3"}
FP8_BLOCKS = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}


def groups(bits, kind="int", activations=None, ignore=("lm_head",), targets=("Linear",), **weights):
    """A configuration of compressed-tensors with one group."""
    return {"quant_method": "compressed-tensors", "ignore": list(ignore), "config_groups": {"group_0": {
        "weights": {"num_bits": bits, "type": kind, **weights}, "input_activations": activations,
        "targets": list(targets)}}}  # fmt: skip


def modelopt(algorithm, exclude=("lm_head",), **more):
    """A hf_quant_config.json."""
    return {"producer": {"name": "modelopt"}, "quantization": {
        "quant_algo": algorithm, "exclude_modules": list(exclude), **more}}  # fmt: skip


ALL, EXPERTS_ALONE = "all", "experts"
ATTENTION_AND_MORE = ["re:.*self_attn.*", "re:.*shared_expert.*", "re:.*mlp.gate$", "lm_head"]
#: Name → configuration, format, checkpoint of the workload file, bytes of weights, bytes of experts.
FORMATS = {
    "fp8 in blocks": (DEEPSEEK, FP8_BLOCKS, "fp8", 1.0, 1.0),
    "fp8 of a tensor": (LLAMA, {"quant_method": "fp8", "activation_scheme": "static"}, "fp8", 1.0, 0.0),
    "fp8 of fbgemm": (LLAMA, {"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["lm_head"]}, "fp8", 1.0, 0.0),
    "fp8 by row": (LLAMA, groups(8, "float", {"num_bits": 8, "type": "float", "dynamic": True}, strategy="channel"),
        "fp8", 1.0, 0.0),
    "fp8 weights alone": (LLAMA, groups(8, "float"), "", 1.0, 0.0),
    "int8": (LLAMA, groups(8, "int", {"num_bits": 8, "type": "int"}, strategy="channel"), "int8", 1.0, 0.0),
    "int8 weights alone": (LLAMA, groups(8, "int", group_size=128), "", 1.015625, 0.0),
    "int4 of a dense model": (LLAMA, groups(4, "int", group_size=128, symmetric=True), "int4", 0.515625, 0.0),
    "int4 with fp8 activations": (LLAMA, groups(4, "int", {"num_bits": 8, "type": "float"}, group_size=128), "fp8",
        0.515625, 0.0),
    "int4 of experts": (KIMI_K2, INT4_EXPERTS, "int4", 2.0, 0.5625),
    "int4 of all of a mixture": (QWEN_MOE, groups(4, "int", group_size=128), "int4", 0.515625, 0.515625),
    "nvfp4": (LLAMA, groups(4, "float", {"num_bits": 4, "type": "float", "group_size": 16}, group_size=16), "nvfp4",
        0.5625, 0.0),
    "nvfp4 weights alone": (LLAMA, groups(4, "float", group_size=16), "", 0.5625, 0.0),
    "nvfp4 of experts": (GLM_5, modelopt("NVFP4", ["lm_head", *(f"model.layers.{n}.self_attn*" for n in range(78))],
        group_size=16), "nvfp4", 1.5, 0.5625),
    "modelopt in config.json": (LLAMA, {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"],
        "kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "fp8", 1.0, 0.0),
    "modelopt, weights alone": (LLAMA, modelopt("W4A16_AWQ", group_size=128), "int4", 0.515625, 0.0),
    "modelopt, W4A8": (LLAMA, modelopt("W4A8_AWQ", group_size=128, kv_cache_quant_algo="FP8"), "fp8", 0.515625, 0.0),
    "modelopt, layer by layer": (QWEN_MOE, modelopt("MIXED_PRECISION", quantized_layers={
        "model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
        "model.layers.0.mlp.experts.0.up_proj": {"quant_algo": "NVFP4", "group_size": 16}}), "nvfp4", 1.0, 0.5625),
    "awq": (LLAMA, {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}, "int4",
        0.519531, 0.0),
    "awq of a mixture": (QWEN_MOE, {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True,
        "modules_to_not_convert": ["self_attn", "mlp.gate"]}, "int4", 2.0, 0.519531),
    "gptq": (LLAMA, {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": True}, "int4",
        0.515625, 0.0),
    "gptq in 8 bits": (LLAMA, {"quant_method": "gptq", "bits": 8, "group_size": -1, "sym": True}, "", 1.0, 0.0),
    "auto-round": (LLAMA, {"quant_method": "auto-round", "bits": 4, "group_size": 64, "sym": True}, "int4", 0.53125,
        0.0),
    "mxfp4": (MODELS["gpt-oss-20b"][0], {"quant_method": "mxfp4"}, "mxfp4", 2.0, 0.53125),
    "mxfp4 of quark": (LLAMA, {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4",
        "group_size": 32}, "input_tensors": {"dtype": "fp4"}}, "exclude": ["lm_head"]}, "mxfp4", 0.53125, 0.0),
    "nf4": (LLAMA, {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, "int4",
        0.5625, 0.0),
    "8 bits of bitsandbytes": (LLAMA, {"load_in_8bit": True}, "", 1.0, 0.0),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_bytes_of_weights(name):
    given, quantization, checkpoint, weight, expert = FORMATS[name]
    beside = quantization if "producer" in quantization else None
    model = read_config(given if beside else given | {"quantization_config": quantization}, quantization=beside)
    made = model.checkpoint
    assert (made.checkpoint, made.expert_bytes) == (checkpoint, expert)
    if (
        name == "nvfp4 of experts"
    ):  # attention in 16 bits, dense layers and shared experts in 4: a mean by their weights
        assert made.bytes_by_class["attention"] == 2.0 and made.bytes_by_class["shared_expert"] == 0.5625
        assert 0.5625 < made.weight_bytes < 2.0
    else:
        assert made.weight_bytes == pytest.approx(weight, abs=1e-6)
    assert model.notes[-1].startswith("the checkpoint keeps its weights in ")


@pytest.mark.parametrize("name", FORMATS)
def test_a_design_is_served_in_that_format(name, tmp_path, monkeypatch):
    given, quantization, checkpoint, _, expert = FORMATS[name]
    (tmp_path / "workloads").mkdir()
    model = read_config(given, quantization=quantization)
    (tmp_path / "workloads" / "made.toml").write_text(huggingface.as_toml(model, "made"))
    monkeypatch.setenv("DSE_CATALOG", str(tmp_path))
    system = "b200" if "fp4" in name or "modelopt" in name else "h200"
    values = catalog.served_format("made", {
        f"system.accelerator.matrix_rate.{rate}": 1e15 for rate in ("fp8", "fp4", "int8")
    })  # fmt: skip
    precision, weights, experts = values.values()
    eight_or_nvfp4 = {"fp8": Precision.fp8, "int8": Precision.int8, "nvfp4": Precision.nvfp4}
    assert precision == eight_or_nvfp4.get(checkpoint, Precision.bf16)
    operand = {"fp8": 1.0, "int8": 1.0, "nvfp4": 0.5625}.get(checkpoint, 2.0)
    assert (weights or operand) == pytest.approx(model.checkpoint.weight_bytes, abs=5e-3)
    if expert:
        assert (experts or weights or operand) == pytest.approx(model.checkpoint.expert_bytes, abs=5e-3)
    by_hand = model.checkpoint.leaves()
    assert Precision[by_hand["mapping.precision"]] == precision
    for path, value in (("mapping.serving.weight_bytes", weights), ("mapping.serving.expert_bytes", experts)):
        assert (by_hand[path] or operand) == pytest.approx(value or operand, abs=5e-3) or "expert" in path
    if name in ("fp8 in blocks", "awq", "int4 of experts"):
        design = dse.design("made", system, kind="serving", n_devices=8, tp=8)
        assert leaf(design, "mapping.precision") == precision and dse.serve(design).feasible


def test_a_device_without_four_bit_products_widens_them(tmp_path, monkeypatch):
    (tmp_path / "workloads").mkdir()
    model = read_config(LLAMA, quantization=modelopt("NVFP4"))
    (tmp_path / "workloads" / "made.toml").write_text(huggingface.as_toml(model, "made"))
    monkeypatch.setenv("DSE_CATALOG", str(tmp_path))
    expected = {"h200": (Precision.bf16, 0.5625), "b200": (Precision.nvfp4, 0.0)}
    for system, (precision, weight) in expected.items():
        design = dse.design("made", system, kind="serving", n_devices=8, tp=8)
        assert leaf(design, "mapping.precision") == precision
        assert leaf(design, "mapping.serving.weight_bytes") == weight


def test_the_case_of_a_dense_model_in_fp8():
    """compressed-tensors with num_bits 8 and no format of activations: weights alone, one byte."""
    model = read_config(LLAMA | {"quantization_config": groups(8, "float")})
    assert model.checkpoint.weight_bytes == 1.0 and model.fields["weight_bytes"] == "1 B"


def test_a_share_of_the_layers_in_16_bits_counts_by_its_weights():
    """4 of 80 layers, and the down projection of all others: (4 + 76 / 3) / 80 of the feed-forwards."""
    ignore = [f"model.layers.{layer}.mlp.{matrix}_proj" for layer in range(4) for matrix in ("gate", "up", "down")]
    quantization = groups(8, "float", {"num_bits": 8, "type": "float"}, ["re:.*down_proj", *ignore])
    by_class = read_config(LLAMA | {"quantization_config": quantization}).checkpoint.bytes_by_class
    share = (4 + 76 / 3) / 80
    assert by_class["attention"] == 1.0 and by_class["feed_forward"] == pytest.approx(1 + share, abs=1e-5)


def test_layers_with_bits_of_their_own():
    quantization = {"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": True}
    quantization["extra_config"] = {f"model.layers.{n}.self_attn.o_proj": {"bits": 16} for n in range(80)}
    by_class = read_config(LLAMA | {"quantization_config": quantization}).checkpoint.bytes_by_class
    assert by_class["attention"] == pytest.approx(0.25 * 2 + 0.75 * 0.515625, abs=1e-6)


def test_groups_of_layers_with_formats_of_their_own():
    two = groups(4, "int", group_size=32)
    two["config_groups"]["group_1"] = {"weights": {"num_bits": 8, "type": "float"}, "targets": ["re:.*self_attn.*"]}
    by_class = read_config(QWEN_MOE | {"quantization_config": two}).checkpoint.bytes_by_class
    assert by_class == {"attention": 1.0, "experts": 0.5625}


def test_a_cache_in_8_bits_is_said():
    for quantization in (FORMATS["modelopt in config.json"][1], FORMATS["modelopt, W4A8"][1]):
        model = read_config(LLAMA, quantization=quantization)
        assert model.checkpoint.cache_bytes == 1.0 and "its cache in 1 B" in model.notes[-1]


def test_a_file_of_modelopt_lies_with_a_configuration(tmp_path):
    source, made = tmp_path / "config.json", tmp_path / "made.toml"
    source.write_text(json.dumps(LLAMA))
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(modelopt("NVFP4", group_size=16)))
    dse.catalog_from_config(source, output=made)
    assert 'checkpoint = "nvfp4"' in made.read_text()


@pytest.mark.parametrize(
    "quantization", [None, {}, modelopt(None), {"quant_method": "modelopt", "quant_algo": "NO_QUANT"}]
)
def test_weights_in_16_bits_have_no_format(quantization):
    assert read_config(LLAMA, quantization=quantization).checkpoint is None


@pytest.mark.parametrize(
    ("quantization", "key"),
    [
        ({"bits": 4}, "quant_method"), ({"quant_method": "aqlm"}, "quant_method"), ({"quant_method": ["fp8"]},
        "quant_method"),
        ([1], "quantization_config"), ("fp8", "quantization_config"), ({"quant_method": "awq", "bits": "4"}, "bits"),
        ({"quant_method": "awq", "bits": 99}, "bits"), ({"quant_method": "awq", "group_size": 1.5}, "group_size"),
        ({"quant_method": "compressed-tensors"}, "config_groups"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": 1}}, "config_groups"),
        (groups(4, "complex"), "weights"), (groups("4"), "weights"), (groups(None), "weights"),
        (modelopt("FP7"), "quant_algo"), (modelopt(4), "quant_algo"), ({"quant_method": "bitsandbytes"},
        "load_in_4bit"),
        ({"quant_method": "quark"}, "dtype"),
    ],
)  # fmt: skip
def test_a_format_that_dse_cannot_tell_is_refused(quantization, key):
    with pytest.raises(InputError, match=key) as caught:
        read_config(LLAMA | {"quantization_config": quantization})
    error = caught.value
    assert all((error.where, error.got, error.allowed, error.fix))


def test_patterns_of_a_file_are_no_expressions():
    """One that would take years to match is words."""
    hostile = ["re:" + "(a+)+" * 30 + "$", "re:(" * 5000, "re:.*" * 5000 + "self_attn"]
    model = read_config(LLAMA | {"quantization_config": groups(8, "float", ignore=hostile)})
    assert model.checkpoint.name == "fp8"
