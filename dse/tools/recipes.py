"""Tools built on Megatron-LM: Megatron-Bridge, NeMo 1 and 2, NeMo-RL, Primus and Megatron-DeepSpeed.

Their options are Megatron-LM's by the names of their own configurations. The table of a tool has the ``sections``
(option of Megatron-LM → its path), the ``prefixes`` of paths that mean options of Megatron-LM, and what an option
``implies``.
"""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Iterator, Mapping
from typing import Any

from dse.tools.megatron import MEGATRON_LM
from dse.tools.megatron_memory import (
    SHARD_OPTIONS,
    SHARD_PATHS,
    read_shards,
    recompute_pairs,
    shard_pairs,
    with_switches,
)
from dse.tools.options import (
    CompositeOption,
    Lookup,
    OptionRule,
    Pairs,
    Tool,
    degrees,
    is_on,
    number,
    option_number,
    unwritten,
)
from dse.tools.rows import pairs_of, read_tool, table
from dse.types import ContextExchange, Precision

_Options = Mapping[str, str]


# --- names ------------------------------------------------------------------------------------------------

#: Values of an option that says nothing.
_NOTHING = ("null", "none", "~")


@functools.cache
def _attributes() -> dict[str, list[tuple[str, bool]]]:
    """Return option of Megatron-LM → (attribute or field of another name, True for its opposite)."""
    document = table("megatron-lm")
    names: dict[str, list[tuple[str, bool]]] = {}
    for key, is_negated in (("attributes", False), ("fields", False), ("negated", True), ("negated_fields", True)):
        for attribute, option in document[key].items():
            names.setdefault(option, []).append((attribute, is_negated))
    return names


@functools.cache
def _paths_of(tool: str, option: str) -> tuple[tuple[str, bool], ...]:
    """Return the paths by which a tool states an option of Megatron-LM, with True for those of its opposite."""
    document = table(tool)
    sections, further = document.get("sections", {}), document.get("read_sections", {})
    paths = [(sections[option], False)] if option in sections else []
    paths += [(path, False) for path, name in further.items() if name == option]
    attributes = [(option.removeprefix("--").replace("-", "_"), False), *_attributes().get(option, [])]
    prefixes = document.get("prefixes", [])
    paths += [(prefix + name, is_negated) for prefix in prefixes for name, is_negated in attributes]
    foreign = {*further, *(path for name, path in sections.items() if name != option)}
    return tuple(entry for entry in paths if entry[0] not in foreign or further.get(entry[0]) == option)


@functools.cache
def _implied(tool: str, option: str) -> tuple[tuple[str, str], ...]:
    """Return (option or path, value) that imply an option of Megatron-LM."""
    rows = table(tool).get("implies", {}).items()
    return tuple((key, value) for key, text in rows for name, value in pairs_of(text) if name == option)


class MegatronOptions(Mapping[str, str]):
    """Options of a tool by the names of Megatron-LM: "" for a switch, "false" for one that is off, words for a list.

    Names are looked up one by one, so that a reader learns which options a rule reads.

    >>> options = MegatronOptions(
    ...     "megatron-bridge", {"model.add_bias_linear": "false", "model.cp_comm_type": "[p2p,a2a]"}
    ... )
    >>> options["--disable-bias-linear"], options["--cp-comm-type"], "--bf16" in options
    ('', 'p2p a2a', False)
    """

    def __init__(self, tool: str, options: Mapping[str, str]) -> None:
        self._tool = tool
        self._options = options

    def __getitem__(self, option: str) -> str:
        text = self._text(option)
        if text is None:
            raise KeyError(option)
        return text

    def __iter__(self) -> Iterator[str]:
        return (option for option in _option_names() if option in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, option: object) -> bool:
        return self._text(str(option)) is not None

    def _text(self, option: str) -> str | None:
        """Return the text of an option, None without it: as it is stated, else as implied, else by default."""
        if option.startswith("@"):
            return self._options.get(option)
        default_texts, default = table(self._tool).get("defaults", {}), None
        for path, is_negated in _paths_of(self._tool, option):
            text = self._options.get(path)
            if text is None or text.lower() in _NOTHING:
                continue
            value = _as_words(text)
            value = ("" if value == "false" else "false") if is_negated else value
            if default_texts.get(path) != text:
                return value
            default = value if default is None else default
        for key, value in _implied(self._tool, option):
            source = self if key in _option_names() else self._options
            if is_on(source, key):
                return value
        return default


@functools.cache
def _option_names() -> frozenset[str]:
    """Return the names of Megatron-LM's options in its table and in those of tools that are built on it."""
    document = table("megatron-lm")
    return frozenset((*document["defaults"], *document["effects"], *_attributes(), "--num-query-groups"))


def _as_value(value: str) -> str:
    """Return the value of an option as a recipe writes it: "true" for a switch, a list in brackets."""
    if not value:
        return "true"
    return "[" + ",".join(value.split()) + "]" if " " in value else value


def _as_words(text: str) -> str:
    """Return a value of a recipe as Megatron-LM's option has it: "" for "true", a list as words, a type by its name."""
    if text.lower() in ("true", ""):
        return ""
    if text.lower() == "false":
        return "false"
    words = text.strip("[]").replace(",", " ") if not text.startswith("[[") else text
    return words.removeprefix("torch.")


def _renamed(tool: str, rule: OptionRule) -> OptionRule:
    """Return a rule of Megatron-LM by the names of the configuration of a tool."""
    document = table(tool)
    sections, prefix = document.get("sections", {}), document.get("prefixes", [""])[0]
    attributes = {option: name for name, option in reversed(table("megatron-lm")["attributes"].items())}

    def write(leaf: Lookup) -> Pairs | None:
        pairs = rule.write(leaf)
        return None if pairs is None else [(path_of(name), value_of(name, value)) for name, value in pairs]

    def path_of(option: str) -> str:
        attribute = _NEGATED.get(option) or attributes.get(option) or option.removeprefix("--").replace("-", "_")
        return str(sections.get(option, prefix + attribute))

    def value_of(option: str, value: str) -> str:
        return "false" if option in _NEGATED and option not in sections and not value else _as_value(value)

    return CompositeOption(rule.paths, write, lambda options: rule.read(MegatronOptions(tool, options)))


_NEGATED = {option: name for name, option in table("megatron-lm")["negated"].items()}


def _inherited(tool: str, row: Mapping[str, Any]) -> list[OptionRule]:
    """Return Megatron-LM's rules that a row names, by the names of a tool; of options of a command they stay."""
    patterns, exceptions = row["inherit"], row.get("except", [])
    rules: list[OptionRule] = []
    for pattern in patterns:
        matching = [rule for rule in MEGATRON_LM.rules if fnmatch.fnmatchcase(rule.paths[0], pattern)]
        rules += matching if "*" in pattern else matching[:1]
    rules = [rule for rule in rules if not any(fnmatch.fnmatchcase(rule.paths[0], name) for name in exceptions)]
    if not row.get("writes", True):
        rules = [CompositeOption(rule.paths, unwritten, rule.read) for rule in rules]
    return rules if table(tool)["line"] == "flags" else [_renamed(tool, rule) for rule in rules]


def _recipe_tool(name: str, code: Mapping[str, OptionRule], **fields: Any) -> Tool:
    """Return a tool of recipes."""
    return read_tool(name, code, functools.partial(_inherited, name), **fields)


# --- Megatron-Bridge --------------------------------------------------------------------------------------

_RECIPE_FORMATS = {
    Precision.bf16: "bf16_mixed",
    Precision.fp16: "fp16_mixed",
    Precision.fp8: "bf16_with_fp8_current_scaling_mixed",
    Precision.fp8_block: "bf16_with_fp8_subchannel_scaling_mixed",
    Precision.mxfp8: "bf16_with_mxfp8_mixed",
    Precision.nvfp4: "bf16_with_nvfp4_mixed",
}

#: Part of a format's name → format: of launchers (``--compute_dtype``), of recipes and of their fields.
_FORMAT_BY_PART = {
    "nvfp4": Precision.nvfp4,
    "mxfp8": Precision.mxfp8,
    "fp8_mx": Precision.mxfp8,
    "subchannel": Precision.fp8_block,
    "blockwise": Precision.fp8_block,
    "fp8_sc": Precision.fp8_block,
    "fp8": Precision.fp8,
    "bf16": Precision.bf16,
    "bfloat16": Precision.bf16,
    "fp16": Precision.fp16,
    "float16": Precision.fp16,
    "fp32": Precision.fp32,
    "float32": Precision.fp32,
}


def _format(name: str) -> dict[str, float]:
    """Return path → format of products by its name, empty for an unknown one."""
    text = name.lower().replace("-", "_").removeprefix("torch.")
    code = next((code for part, code in _FORMAT_BY_PART.items() if part in text), None)
    return {} if code is None else {"mapping.precision": float(code)}


def _bridge_precision(leaf: Lookup) -> Pairs | None:
    """Return the format of products as an option, None for one without a recipe."""
    code = int(leaf("mapping.precision") or 0.0)
    return [("mixed_precision", _RECIPE_FORMATS[Precision(code)])] if code in _RECIPE_FORMATS else None


def _read_bridge_precision(options: _Options) -> dict[str, float]:
    """Return path → format of products: of a launcher, of the fields of a recipe's format, or of its name."""
    prefix = "mixed_precision."
    if "--compute_dtype" in options:
        scaling = {"ds": "", "cs": "", "mx": "_mx", "ss": "_sc"}.get(options.get("--fp8_recipe", ""), "")
        return _format(options["--compute_dtype"] + scaling)
    if is_on(options, f"{prefix}fp4"):
        return {"mapping.precision": float(Precision.nvfp4)}
    if is_on(options, f"{prefix}fp8"):
        return _format(f"fp8 {options.get(f'{prefix}fp8_recipe', '')}")
    names = [name for name in ("bf16", "fp16") if is_on(options, prefix + name)]
    return _format(names[0] if names else options.get("mixed_precision", ""))


_SHARD_RULE = CompositeOption(
    SHARD_PATHS,
    lambda leaf: with_switches(shard_pairs(leaf)),
    lambda options: read_shards(options) if any(name in options for name in SHARD_OPTIONS) else {},
)

MEGATRON_BRIDGE = _recipe_tool(
    "megatron-bridge",
    {
        # empty where its file states nothing of it
        "shards": _renamed("megatron-bridge", _SHARD_RULE),
        "precision": CompositeOption(("mapping.precision",), _bridge_precision, _read_bridge_precision),
    },
)


# --- NeMo 1 -----------------------------------------------------------------------------------------------

_OPTIMISER, _SHARDED_OPTIMISERS = "model.optim.name", ("distributed_fused_adam", "mcore_distributed_optim")


def _nemo_shards(leaf: Lookup) -> Pairs | None:
    """Return ZeRO 0 or 1, by the optimiser, as options; None for what NeMo's GPT models do not have."""
    stage, overlapped = leaf("mapping.zero_stage") or 0.0, bool(leaf("mapping.overlap_dp"))
    if stage > 1.0 or (not stage and overlapped) or degrees(leaf, "dp_replicate") > [1.0]:
        return None
    if not stage:
        return [(_OPTIMISER, "fused_adam")]
    overlaps = ("model.optim.overlap_grad_sync", "model.optim.overlap_param_sync")
    return [(_OPTIMISER, _SHARDED_OPTIMISERS[0]), *((name, str(overlapped).lower()) for name in overlaps)]


def _read_nemo_shards(options: _Options) -> dict[str, float]:
    """Return path → ZeRO stage, copies and overlap that options state, empty without the optimiser."""
    if _OPTIMISER not in options:
        return {}
    stage = float(options[_OPTIMISER] in _SHARDED_OPTIMISERS)
    overlap_text = options.get("model.optim.overlap_grad_sync", None if stage else "false")
    overlap = {} if overlap_text is None else {"mapping.overlap_dp": float(overlap_text.lower() == "true")}
    return {"mapping.zero_stage": stage, "mapping.dp_replicate": 1.0} | overlap


def _nemo_recompute(leaf: Lookup) -> Pairs | None:
    """Return recompute as options, None for selective recompute of more than attention, and other kinds."""
    pairs = recompute_pairs(leaf)
    if pairs is None or dict(pairs).get("--recompute-modules", "core_attn") != "core_attn":
        return None
    sections = table("nemo")["sections"]
    return [(sections[name], value) for name, value in pairs if name in sections]


def _missing_parts_note(leaf: Lookup) -> str:
    """Return the note on parts of a model that the GPT configuration lacks, "" without any."""
    if leaf("workload.latent.kv_rank") is None and not leaf("workload.experts.shared_ffn"):
        return ""
    return "latent attention and shared experts have no option of this configuration: use a recipe of the model"


def _rule_of(path: str) -> OptionRule:
    """Return Megatron-LM's rule of a leaf."""
    return next(rule for rule in MEGATRON_LM.rules if rule.paths[0] == path)


def _read_by_names(tool: str, path: str) -> Any:
    """Return the function (options of a tool → values) of Megatron-LM's rule of a leaf."""
    return _renamed(tool, _rule_of(path)).read


NEMO = _recipe_tool(
    "nemo",
    {
        "shards": CompositeOption(SHARD_PATHS, _nemo_shards, _read_nemo_shards),
        "recompute": CompositeOption(
            _rule_of("mapping.recompute").paths, _nemo_recompute, _read_by_names("nemo", "mapping.recompute")
        ),
    },
    notes=(_missing_parts_note,),
)


# --- NeMo 2, NeMo-RL and Primus ---------------------------------------------------------------------------


def _read_format(name: str) -> Any:
    """Return the function (options → format of products) of an option of names such as ``bfloat16``."""
    return lambda options: _format(options.get(name, ""))


def _run_precision(leaf: Lookup) -> Pairs | None:
    """Return the format of products as fields of the precision plug-in of NeMo 2; None for one that it lacks."""
    pairs = _rule_of("mapping.precision").write(leaf)
    fields = table("nemo-run")["sections"]
    return None if pairs is None else [(fields[name], _as_value(value)) for name, value in pairs]


def _rl_precision(leaf: Lookup) -> Pairs | None:
    """Return the format of products as an option of a policy, None for those of 8 and 4 bits."""
    names = {Precision.bf16: "bfloat16", Precision.fp16: "float16", Precision.fp32: "float32"}
    code = int(leaf("mapping.precision") or 0.0)
    return [("policy.precision", names[Precision(code)])] if code in names else None


def _read_rl_precision(options: _Options) -> dict[str, float]:
    """Return path → format of products of a policy, 8 bits where its configuration of them is on."""
    prefix = "policy.megatron_cfg.fp8_cfg."
    if is_on(options, f"{prefix}enabled"):
        return _format(f"fp8 {options.get(f'{prefix}fp8_recipe', '')}")
    return _format(options.get("policy.precision", ""))


NEMO_RUN = _recipe_tool(
    "nemo-run",
    {
        "shards": _renamed("nemo-run", _SHARD_RULE),
        "precision": CompositeOption(
            ("mapping.precision",), _run_precision, _read_by_names("nemo-run", "mapping.precision")
        ),
    },
)

NEMO_RL = _recipe_tool(
    "nemo-rl",
    {
        "shards": _renamed("nemo-rl", _SHARD_RULE),
        "precision": CompositeOption(("mapping.precision",), _rl_precision, _read_rl_precision),
    },
)

PRIMUS = _recipe_tool("primus", {})


# --- Megatron-DeepSpeed -----------------------------------------------------------------------------------

_ZERO, _SEQUENCE = "--zero-stage", "--ds-sequence-parallel-size"


def _deepspeed_stage(leaf: Lookup) -> Pairs:
    """Return the ZeRO stage as options."""
    return [("--deepspeed", ""), (_ZERO, number(leaf("mapping.zero_stage") or 0.0))]


def _read_deepspeed_stage(options: _Options) -> dict[str, float]:
    """Return path → ZeRO stage of the configuration beside, or of the option, or of Megatron-LM's own optimiser."""
    stage = option_number(options, "zero_optimization.stage")
    if stage is None and is_on(options, "--deepspeed"):
        stage = option_number(options, _ZERO)
    if stage is not None:
        return {"mapping.zero_stage": stage}
    return {"mapping.zero_stage": 1.0} if is_on(options, "--use-distributed-optimizer") else {}


def _deepspeed_overlap(leaf: Lookup) -> Pairs | None:
    """Return no options for the overlap that DeepSpeed has by default, None for the other."""
    return [] if bool(leaf("mapping.overlap_dp")) == ((leaf("mapping.zero_stage") or 0.0) >= 3.0) else None


def _read_deepspeed_overlap(options: _Options) -> dict[str, float]:
    """Return path → overlap of messages, which DeepSpeed has at stage 3 unless its configuration says otherwise."""
    stage = _read_deepspeed_stage(options).get("mapping.zero_stage")
    if "zero_optimization.overlap_comm" in options:
        return {"mapping.overlap_dp": float(is_on(options, "zero_optimization.overlap_comm"))}
    return {} if stage is None else {"mapping.overlap_dp": float(stage >= 3.0)}


def _deepspeed_recompute(leaf: Lookup) -> Pairs | None:
    """Return recompute as options, None for kinds of later versions."""
    pairs = recompute_pairs(leaf)
    if pairs is None or len(dict(pairs).get("--recompute-modules", "").split()) > 1:
        return None
    return [pair for pair in pairs if pair[0] != "--recompute-modules"]


def _deepspeed_context(leaf: Lookup) -> Pairs | None:
    """Return the ranks that a sequence is split over as an option, None for other messages than all-to-all."""
    (cp,) = degrees(leaf, "cp")
    is_a2a = leaf("mapping.context.cp_comm_type") == ContextExchange.a2a
    return ([(_SEQUENCE, number(cp))] if is_a2a else None) if cp > 1.0 else []


def _read_deepspeed_context(options: _Options) -> dict[str, float]:
    """Return path → ranks that a sequence is split over, by all-to-all (DeepSpeed-Ulysses)."""
    ranks = float(options.get(_SEQUENCE) or options.get("--context-parallel-size") or 1.0)
    if _SEQUENCE not in options and "--context-parallel-size" not in options:
        return {}
    return {"mapping.cp": ranks} | ({"mapping.context.cp_comm_type": float(ContextExchange.a2a)} if ranks > 1.0 else {})


MEGATRON_DEEPSPEED = _recipe_tool(
    "megatron-deepspeed",
    {
        "stage": CompositeOption(("mapping.zero_stage",), _deepspeed_stage, _read_deepspeed_stage),
        "overlap": CompositeOption(
            ("mapping.overlap_dp",), _deepspeed_overlap, _read_deepspeed_overlap, writes_default=True
        ),
        "recompute": CompositeOption(
            _rule_of("mapping.recompute").paths, _deepspeed_recompute, _rule_of("mapping.recompute").read
        ),
        "context": CompositeOption(
            ("mapping.cp", "mapping.context.cp_comm_type"), _deepspeed_context, _read_deepspeed_context
        ),
    },
)
