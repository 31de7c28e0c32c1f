"""Low-rank adapters (LoRA, QLoRA) of trainers on Transformers, and of torchtune: rules of the options that state them.

Names of options are those of TRL's ``ModelConfig`` (trl/trainer/model_config.py), of axolotl's ``PeftConfig``
(src/axolotl/utils/schemas/peft.py), of LLaMA-Factory's ``LoraArguments`` (hparams/finetuning_args.py), of torchtune's
builders (``lora_llama3_1_70b``), and of scripts: qlora.py, FastChat, LLaVA, PEFT's examples.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from dse.tools.options import N_EXPERTS, CompositeOption, Lookup, Pairs, is_on, option_number, option_on
from dse.tools.trainer import mixed_precision, names_nothing, runs_deepspeed, weight_format

_Options = Mapping[str, str]

_RANK, _FROZEN = "workload.adapters.rank", "workload.adapters.frozen_bytes"
_FEED_FORWARD = "workload.adapters.feed_forward"

#: Leaf → names of the products that it is of, in checkpoints of several families.
_PRODUCTS = {
    "workload.adapters.qkv": (
        "q_proj", "k_proj", "v_proj", "qkv_proj", "query_key_value", "c_attn", "Wqkv", "W_pack", "in_proj", "q_a_proj",
        "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "wq", "wk", "wv", "linear_qkv", "query", "key", "value",
        "self_attention.query_key_value", "attn.c_attn",
    ),
    "workload.adapters.projection": (
        "o_proj", "out_proj", "output_proj", "dense", "wo", "linear_proj", "attn.c_proj", "c_proj",
    ),
    _FEED_FORWARD: (
        "gate_proj", "up_proj", "down_proj", "gate_up_proj", "fc1", "fc2", "w1", "w2", "w3", "c_fc", "c_proj",
        "mlp.c_proj", "fc_in", "fc_out", "dense_h_to_4h", "dense_4h_to_h", "linear_fc1", "linear_fc2", "up_gate_proj",
    ),
}  # fmt: skip

#: Options that say which weights train, and switches of adapters.
_KINDS = ("adapter", "finetuning_type", "train_type")
_SWITCHES = ("use_peft", "use_lora", "use_peft_lora", "lora_enable")
_QUANTIZED_SWITCHES = ("use_qlora", "q_lora")
_WHOLE, _COMPONENT = "full_finetune", "model._component_"
_ADAPTED = ("lora", "qlora")

#: Kinds of training of all weights.
_WHOLE_KINDS = ("", "full")

_RANKS = ("lora_r", "lora_rank", "model.lora_rank")
_MODULES = ("lora_target_modules", "lora_modules", "lora_target", "target_modules", "model.lora_attn_modules")
_ALL_WORDS = ("all", "all-linear", "all_linear")

#: Rank of adapters where nothing says it: of PEFT and LLaMA-Factory, of TRL and of qlora.py.
_PEFT_RANK, _SCRIPT_RANK = 8.0, 64.0


def _kind(options: _Options) -> str:
    """Return which weights train, in small letters, "" where no option says it."""
    return next((options[name].lower() for name in _KINDS if not names_nothing(options.get(name, ""))), "")


def _has_adapters(options: _Options) -> bool:
    """True where adapters alone train."""
    ranks = [option_number(options, name) for name in _RANKS]
    if any(name in options for name in _KINDS):
        return _kind(options) in _ADAPTED
    if "lora_" in options.get(_COMPONENT, "") or any(option_on(options, name) for name in _QUANTIZED_SWITCHES):
        return True
    if _WHOLE in options:
        return not option_on(options, _WHOLE)
    if any(name in options for name in _SWITCHES):
        return any(option_on(options, name) for name in _SWITCHES)
    return any(ranks)


def _bits(options: _Options) -> float | None:
    """Return the bits of a frozen weight that is stored in less than 16, None for one that is not."""
    switches = ("load_in_4bit", "use_4bit_quantization", *_QUANTIZED_SWITCHES)
    switches_of_8 = ("load_in_8bit", "use_8bit_quantization")
    stated = next(filter(None, (option_number(options, name) for name in ("quantization_bit", "bits"))), None)
    is_of_4 = "qlora_" in options.get(_COMPONENT, "") or is_on(options, "model.quantize_base", *switches)
    if is_on(options, *switches_of_8):
        return 8.0
    if is_of_4 or _kind(options) == "qlora" or (stated is None and _WHOLE in options):
        return 4.0
    return stated if stated and stated < 16.0 else None


def _frozen_bytes(options: _Options) -> float:
    """Return the bytes of a frozen weight: in the format in which it is loaded."""
    bits, weights = _bits(options), weight_format(options)
    casts = mixed_precision(options) is not None
    is_cast = casts and (runs_deepspeed(options) or "finetuning_type" in options)  # LLaMA-Factory: compute_dtype
    return bits / 8.0 if bits else 2.0 if weights is not None or is_cast else 4.0


def _modules(options: _Options) -> set[str] | None:
    """Return the names of the products that have adapters, None for all of them."""
    text = next((options[name] for name in _MODULES if not names_nothing(options.get(name, ""))), "")
    finds_all = option_on(options, "lora_target_linear") or _WHOLE in options or option_on(options, "lora_enable")
    if finds_all or text.strip("'\"[]").lower() in _ALL_WORDS or ("finetuning_type" in options and not text):
        return None
    names = set(re.findall(r"[A-Za-z_]\w*", text)) | set(re.findall(r"[\w.]+", text))
    if option_on(options, "model.apply_lora_to_mlp"):
        names |= {"gate_proj", "up_proj", "down_proj"}
    return names if text else {"q_proj", "v_proj"}  # of PEFT, for most families (peft/utils/constants.py)


def _read(options: _Options) -> dict[str, float]:
    """Return path → rank, products and bytes of frozen weights of adapters that options state, empty without them."""
    rank = next(filter(None, (option_number(options, name) for name in _RANKS)), None)
    values = {_RANK: rank or (_SCRIPT_RANK if _WHOLE in options else _PEFT_RANK), _FROZEN: _frozen_bytes(options)}
    modules = _modules(options)
    if not _has_adapters(options):
        return {}
    flags = {path: float(modules is None or bool(modules & set(names))) for path, names in _PRODUCTS.items()}
    return values | (flags if any(flags.values()) else {})


def _write(leaf: Lookup) -> Pairs | None:
    """Return no options for a model that trains whole, None for adapters, which are read alone."""
    return [] if leaf(_RANK) is None else None


ADAPTERS = CompositeOption((_RANK, *_PRODUCTS, _FROZEN), _write, _read)


# --- remarks ----------------------------------------------------------------------------------------------


def adapter_limit(options: _Options) -> str:
    """Return that training of some weights is not modelled, "" for training of all and for low-rank adapters."""
    kind, bits = _kind(options), _bits(options)
    if _has_adapters(options) or (kind in _WHOLE_KINDS and not bits):
        return ""
    name = f"weights of {bits:g} bits without adapters" if kind in _WHOLE_KINDS and bits else kind
    return f"training of all weights and of low-rank adapters is modelled, not {name}: it takes other memory and time"


def adapter_remark(options: _Options) -> str:
    """Return what adapters have that the model lacks, "" for nothing."""
    if not _has_adapters(options):
        return ""
    values, experts = _read(options), option_number(options, N_EXPERTS) or 0.0
    whole = next((name for name in _WHOLE_MODULES if not names_nothing(options.get(name, ""))), "")
    lacks = []
    if _FEED_FORWARD not in values:
        lacks.append("the names of their products are unknown: all products of a layer count")
    if experts and values.get(_FEED_FORWARD):
        lacks.append("those of routed experts are not modelled: less memory and time")
    if whole:
        lacks.append(f"weights that train with them ({whole}) are not modelled: less memory")
    return f"adapters: {'; '.join(lacks)}" if lacks else ""


#: Options that name further weights which train as a whole.
_WHOLE_MODULES = ("lora_modules_to_save", "additional_target", "modules_to_save")
