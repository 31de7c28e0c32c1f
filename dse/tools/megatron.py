"""Megatron-LM (``pretrain_gpt.py``) and, by the names of their configurations, NeMo's Megatron-Bridge and NeMo.

A layout of layers over pipeline stages (``--pipeline-model-parallel-layout``) has one letter per layer: ``E``
embedding, ``t`` transformer layer, ``m`` multi-token prediction, ``L`` loss; ``|`` ends a chunk, ``x*3`` repeats a
letter and ``(tt|)*3`` a group. Chunks are in the order in which a micro-batch passes them.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Mapping

from dse.tools.options import CompositeOption, Lookup, OptionRule, Pairs, degrees, number
from dse.tools.rows import pairs_of, read_tool, table
from dse.types import Recompute

_EXPERTS, _ROTATED = "workload.experts.", "workload.latent.rope_dim"
_STAGES, _LAYOUT = "--pipeline-model-parallel-size", "--pipeline-model-parallel-layout"
_LAYER_COUNT_SWITCHES = ("--account-for-loss-in-pipeline-split", "--account-for-embedding-in-pipeline-split")


def _head_size(leaf: Lookup) -> Pairs:
    """Return the columns of a head as options, with latent attention its rotary and its other columns."""
    size, rotated = leaf("workload.head_dim") or 0.0, leaf(_ROTATED)
    if rotated is None:
        return [("--kv-channels", number(size))]
    sizes = ("--qk-head-dim", number(size - rotated)), ("--qk-pos-emb-head-dim", number(rotated))
    return [("--multi-latent-attention", ""), *sizes]


def _read_head_size(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → columns of a head, with latent attention its rotary ones too, that options state."""
    if "--multi-latent-attention" in options and "--qk-head-dim" in options:
        rotated = float(options.get("--qk-pos-emb-head-dim", 64.0))
        return {"workload.head_dim": float(options["--qk-head-dim"]) + rotated, _ROTATED: rotated}
    if "--kv-channels" in options:
        return {"workload.head_dim": float(options["--kv-channels"])}
    if {"--hidden-size", "--num-attention-heads"} <= options.keys():
        return {"workload.head_dim": float(options["--hidden-size"]) / float(options["--num-attention-heads"])}
    return {}


def _virtual_stages(leaf: Lookup) -> Pairs:
    """Return chunks per stage as options, or the layout of a pipeline of unequal ones.

    Where the layers alone are not divisible, loss and embedding count as layers, or a layout is written.
    """
    stages, chunks = degrees(leaf, "pp", "virtual_stages")
    layers, predict_layers = int(leaf("workload.n_layers") or 0.0), int(leaf(f"{_EXPERTS}n_predict") or 0.0)
    missing_layers = -layers % int(stages * chunks)
    if stages > 1.0 and missing_layers and (predict_layers or missing_layers > len(_LAYER_COUNT_SWITCHES)):
        return [(_LAYOUT, layer_layout(layers, predict_layers, int(stages * chunks)))]
    pairs = [("--num-virtual-stages-per-pipeline-rank", number(chunks))] if chunks > 1.0 else []
    return pairs + [(name, "") for name in _LAYER_COUNT_SWITCHES[:missing_layers]]


def _read_virtual_stages(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → chunks per stage that options state, empty for none."""
    if "--num-virtual-stages-per-pipeline-rank" in options:
        return {"mapping.virtual_stages": float(options["--num-virtual-stages-per-pipeline-rank"])}
    if {_LAYOUT, _STAGES} <= options.keys():
        return {"mapping.virtual_stages": chunk_count(options[_LAYOUT]) / float(options[_STAGES])}
    names = ("--num-layers-per-virtual-pipeline-stage", "--num-layers", _STAGES)
    if not set(names) <= options.keys():
        return {}
    chunk, layers, stages = (float(options[name]) for name in names)
    return {"mapping.virtual_stages": layers / stages / chunk}


def _recompute(leaf: Lookup) -> Pairs | None:
    """Return recompute as options, None for a kind that Megatron-LM does not have."""
    code = leaf("mapping.recompute") or 0.0
    if code != Recompute.full:
        return pairs_of(_RECOMPUTED[code]) if code in _RECOMPUTED else None
    recompute_share, layers = leaf("mapping.recompute_share") or 0.0, leaf("workload.n_layers") or 0.0
    stages, chunks = degrees(leaf, "pp", "virtual_stages")
    method = "uniform" if recompute_share >= 1.0 else "block"
    layers_per_chunk = 1.0 if method == "uniform" else round(recompute_share * layers / (stages * chunks))
    text = f"--recompute-granularity full --recompute-method {method} --recompute-num-layers {number(layers_per_chunk)}"
    return pairs_of(text)


_SELECTIVE = "--recompute-granularity selective --recompute-modules core_attn"
_RECOMPUTED = {
    float(Recompute.none): "",
    float(Recompute.selective): _SELECTIVE,
    float(Recompute.norms): f"{_SELECTIVE} layernorm moe_act mla_up_proj",
    float(Recompute.expert_block): f"{_SELECTIVE} layernorm mla_up_proj moe",
}


def _read_recompute(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → code of recompute that options state, empty for none."""
    granularity = options.get("--recompute-granularity")
    if granularity == "full":
        return {"mapping.recompute": float(Recompute.full)}
    if granularity != "selective" and "--recompute-activations" not in options:
        return {}
    modules = options.get("--recompute-modules", "core_attn").split()
    levels = {"moe": Recompute.expert_block, "moe_act": Recompute.norms}
    level = next((level for module, level in levels.items() if module in modules), Recompute.selective)
    return {"mapping.recompute": float(level)}


_SHARDED = {
    0.0: "",
    1.0: "--use-distributed-optimizer",
    2.0: "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads",
    3.0: "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params",
}


def _shards(leaf: Lookup) -> Pairs:
    """Return ZeRO stage, its overlap with compute, and copies of the shards as options."""
    stage, (copies,) = leaf("mapping.zero_stage") or 0.0, degrees(leaf, "dp_replicate")
    pairs = pairs_of(_SHARDED[stage])
    pairs += [("--num-distributed-optimizer-instances", number(copies))] if copies > 1.0 else []
    overlaps = ["--overlap-grad-reduce", *(["--overlap-param-gather"] if stage else [])]
    return pairs + [(name, "") for name in overlaps if leaf("mapping.overlap_dp")]


#: Switches that recipes and presets turn on, so that they are written where they are off.
SHARD_SWITCHES = ("--use-distributed-optimizer", "--overlap-grad-reduce")

#: Options that say how the state is split.
SHARD_OPTIONS = frozenset((*SHARD_SWITCHES, "--overlap-param-gather", "--use-megatron-fsdp"))


def with_switches(pairs: Pairs) -> Pairs:
    """Return options with the sharding switches that are off added, but the first with Megatron's FSDP."""
    values_by_option = dict(pairs)
    off_switches = SHARD_SWITCHES if "--use-megatron-fsdp" not in values_by_option else SHARD_SWITCHES[1:]
    return [*pairs, *((name, "false") for name in off_switches if name not in values_by_option)]


def _read_shards(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → ZeRO stage, overlap and copies that options state, those of the tool's defaults else."""
    active_switches = {name for name in SHARD_OPTIONS if options.get(name, "false").lower() != "false"}
    strategy = options.get("--data-parallel-sharding-strategy", "")
    split = float(bool(active_switches & {"--use-distributed-optimizer", "--overlap-param-gather"}))
    return {
        "mapping.zero_stage": {"optim_grads": 2.0, "optim_grads_params": 3.0}.get(strategy, split),
        "mapping.overlap_dp": float("--overlap-grad-reduce" in active_switches),
        "mapping.dp_replicate": float(options.get("--num-distributed-optimizer-instances", 1.0)),
    }


def _expert_layers(leaf: Lookup) -> Pairs | None:
    """Return the layers with experts as options, empty for all, None for dense ones in front and in turns."""
    n_dense, interval = leaf(f"{_EXPERTS}first_dense"), leaf(f"{_EXPERTS}moe_every") or 1.0
    if n_dense is None or (n_dense == 0.0 and interval == 1.0):
        return []
    if n_dense == 0.0:
        return [("--moe-layer-freq", number(interval))]
    expert_layers = (leaf("workload.n_layers") or 0.0) - n_dense
    return [("--moe-layer-freq", f"([0]*{number(n_dense)}+[1]*{number(expert_layers)})")] if interval == 1.0 else None


_SPLIT = ("mapping.zero_stage", "mapping.overlap_dp", "mapping.dp_replicate")
_RECOMPUTE = ("mapping.recompute", "mapping.recompute_share")

MEGATRON_LM = read_tool(
    "megatron-lm",
    {
        "head_size": CompositeOption(("workload.head_dim", _ROTATED), _head_size, _read_head_size),
        "expert_layers": CompositeOption((f"{_EXPERTS}first_dense", f"{_EXPERTS}moe_every"), _expert_layers),
        "virtual_stages": CompositeOption(("mapping.virtual_stages",), _virtual_stages, _read_virtual_stages),
        "shards": CompositeOption(_SPLIT, _shards, _read_shards),
        "recompute": CompositeOption(_RECOMPUTE, _recompute, _read_recompute),
    },
)


# --- layouts ----------------------------------------------------------------------------------------------

_GROUP, _LETTER = re.compile(r"\(([^()]*)\)\*(\d+)"), re.compile(r"([A-Za-z])\*(\d+)")


def chunk_sizes(n_layers: int, n_predict: int, n_chunks: int) -> list[int]:
    """Return the number of transformer layers, by chunk, without those of multi-token prediction.

    Short chunks as in :func:`dse.model.stage_layers.stage_layers`: the last for loss and for heads and layers of
    multi-token prediction, the first for the embedding, then the last again, then others from the end.

    >>> chunk_sizes(61, 1, 8)
    [8, 8, 8, 8, 8, 8, 8, 5]
    """
    largest = -(-(n_layers + n_predict) // n_chunks)
    sizes = [largest] * n_chunks
    missing = largest * n_chunks - n_layers
    inner_chunks = ((chunk, 1) for chunk in range(-2, -n_chunks, -1))
    for chunk, limit in ((-1, 1 + 2 * n_predict), (0, 1), (-1, largest), *inner_chunks):
        reduction = min(missing, limit, sizes[chunk])
        sizes[chunk], missing = sizes[chunk] - reduction, missing - reduction
    return sizes


def layer_layout(n_layers: int, n_predict: int, n_chunks: int) -> str:
    """Return the layout of a pipeline as Megatron-LM's text.

    Args:
        n_layers: transformer layers of the model.
        n_predict: layers of multi-token prediction.
        n_chunks: chunks of all stages.

    >>> layer_layout(61, 1, 16), layer_layout(61, 0, 16)
    ('Etttt|(tttt|)*14tmL', 'Ettt|(tttt|)*14ttL')
    """
    sizes = chunk_sizes(n_layers, n_predict, n_chunks)
    middle = ""
    for size, run in itertools.groupby(sizes[1:-1]):
        count, chunk = len(list(run)), "t" * size + "|"
        middle += chunk if count == 1 else f"({chunk})*{count}"
    return f"E{'t' * sizes[0]}|{middle}{'t' * sizes[-1]}{'m' * n_predict}L"


def chunk_count(text: str) -> int:
    """Return the number of chunks of a layout in Megatron-LM's text.

    >>> chunk_count("Et*3|(tt|)*29mL")
    31
    """
    while (match := _GROUP.search(text)) is not None:
        text = text[: match.start()] + match[1] * int(match[2]) + text[match.end() :]
    return _LETTER.sub(lambda match: match[1] * int(match[2]), text).count("|") + 1


# --- recipes ----------------------------------------------------------------------------------------------


def _recipe_option(tool: str, rule: OptionRule) -> OptionRule:
    """Return a rule of Megatron-LM with the names of the configuration of a recipe's tool.

    The table of the tool has the ``sections``: option → its path, where that is not ``model.`` with underscores.
    """
    sections = table(tool)["sections"]
    option_by_section = {section: flag for flag, section in sections.items()}

    def write(leaf: Lookup) -> Pairs | None:
        pairs = rule.write(leaf)
        return None if pairs is None else [(name_of(name), _as_value(value)) for name, value in pairs]

    def read(options: Mapping[str, str]) -> dict[str, float]:
        megatron_options = {flag(name): _as_words(value) for name, value in options.items()}
        return rule.read({n: v for n, v in megatron_options.items() if v.lower() != "false" or n in SHARD_SWITCHES})

    def name_of(option: str) -> str:
        return sections.get(option, "model." + option.removeprefix("--").replace("-", "_"))

    def flag(name: str) -> str:
        return option_by_section.get(name, "--" + name.rpartition(".")[2].replace("_", "-"))

    return CompositeOption(rule.paths, write, read)


def _inherited(tool: str, path: str) -> OptionRule:
    """Return Megatron-LM's rule of a leaf with the names of a recipe's tool."""
    return _recipe_option(tool, next(rule for rule in MEGATRON_LM.rules if rule.paths[0] == path))


def _as_value(value: str) -> str:
    """Return the value of an option as a recipe writes it: "true" for a switch, a list in brackets."""
    if not value:
        return "true"
    return "[" + ",".join(value.split()) + "]" if " " in value else value


def _as_words(value: str) -> str:
    """Return a value of a recipe as Megatron-LM's option has it: "" for "true", a list as words."""
    return "" if value.lower() == "true" else value.strip("[]").replace(",", " ")


MEGATRON_BRIDGE = read_tool(
    "megatron-bridge",
    {
        # empty where its file states nothing of it
        "shards": _recipe_option(
            "megatron-bridge",
            CompositeOption(
                _SPLIT,
                lambda leaf: with_switches(_shards(leaf)),
                lambda options: _read_shards(options) if SHARD_OPTIONS & options.keys() else {},
            ),
        )
    },
    functools.partial(_inherited, "megatron-bridge"),
)


# --- NeMo -------------------------------------------------------------------------------------------------

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


def _read_nemo_shards(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → ZeRO stage, copies and overlap that options state, empty without the optimiser."""
    if _OPTIMISER not in options:
        return {}
    stage = float(options[_OPTIMISER] in _SHARDED_OPTIMISERS)
    overlap_text = options.get("model.optim.overlap_grad_sync", None if stage else "false")
    overlap = {} if overlap_text is None else {"mapping.overlap_dp": float(overlap_text.lower() == "true")}
    return {"mapping.zero_stage": stage, "mapping.dp_replicate": 1.0} | overlap


def _nemo_recompute(leaf: Lookup) -> Pairs | None:
    """Return recompute as options, None for selective recompute of more than attention, and other kinds."""
    pairs = _recompute(leaf)
    if pairs is None or dict(pairs).get("--recompute-modules", "core_attn") != "core_attn":
        return None
    sections = table("nemo")["sections"]
    return [(sections[name], value) for name, value in pairs if name in sections]


def _read_nemo_recompute(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → code of recompute that options state, empty for none."""
    code = {"selective": 1.0, "full": 2.0}.get(options.get("model.activations_checkpoint_granularity", ""))
    return {} if code is None else {"mapping.recompute": code}


def _missing_parts_note(leaf: Lookup) -> str:
    """Return the note on parts of a model that the GPT configuration lacks, "" without any."""
    if leaf("workload.latent.kv_rank") is None and not leaf("workload.experts.shared_ffn"):
        return ""
    return "latent attention and shared experts have no option of this configuration: use a recipe of the model"


NEMO = read_tool(
    "nemo",
    {
        "shards": CompositeOption(_SPLIT, _nemo_shards, _read_nemo_shards),
        "recompute": CompositeOption(_RECOMPUTE, _nemo_recompute, _read_nemo_recompute),
    },
    functools.partial(_inherited, "nemo"),
    notes=(_missing_parts_note,),
)
