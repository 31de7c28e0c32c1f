"""Megatron-LM (``pretrain_gpt.py``): rules of its mapping; those of the model's shape are in ``megatron_shape``.

Switches may be "false", as defaults and recipes state them. Defaults and their sources stand in
``tables/megatron-lm.toml``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from dse.tools.megatron_memory import MEMORY_RULES, recompute_remark
from dse.tools.megatron_pipeline import read_uneven_stages, read_virtual_stages, stage_remark, virtual_stage_pairs
from dse.tools.megatron_shape import SHAPE_RULES
from dse.tools.options import (
    N_EXPERTS,
    WORLD_SIZE,
    CompositeOption,
    Lookup,
    Pairs,
    degrees,
    is_dense,
    is_on,
    number,
    option_number,
    unwritten,
)
from dse.tools.rows import read_tool
from dse.types import ContextExchange, Graph, Recompute, SequenceParallel

_TENSOR, _STAGES, _CONTEXT = (f"--{name}-parallel-size" for name in ("tensor-model", "pipeline-model", "context"))
_Options = Mapping[str, str]


def _degree(options: _Options, name: str) -> float:
    """Return a degree of parallelism, 1 without the option."""
    return option_number(options, name) or 1.0


# --- batches and degrees ----------------------------------------------------------------------------------


def _global_batch(leaf: Lookup) -> Pairs:
    """Return the sequences of a step as an option."""
    batch = leaf("workload.global_batch")
    return [] if batch is None else [("--global-batch-size", number(batch))]


def _read_global_batch(options: _Options) -> dict[str, float]:
    """Return path → sequences of a step; without the option one micro-batch per replica, of which devices tell.

    A batch that ramps up counts at its end.
    """
    batch = option_number(options, "--global-batch-size")
    micro, devices = option_number(options, "--micro-batch-size"), option_number(options, WORLD_SIZE)
    if batch is None and micro and devices:
        batch = micro * devices / (_degree(options, _TENSOR) * _degree(options, _STAGES) * _degree(options, _CONTEXT))
    return {} if batch is None else {"workload.global_batch": batch}


def _read_replicas(options: _Options) -> dict[str, float]:
    """Return path → replicas, which forks state by an option, and the programs of others by an attribute."""
    replicas = option_number(options, "--data-parallel-size")
    return {} if not replicas else {"mapping.dp": replicas}


def _sequence_parallel(leaf: Lookup) -> Pairs | None:
    """Return sequence parallelism as an option, None for that of stage boundaries alone."""
    variant, (tp,) = leaf("mapping.sequence_parallel") or 0.0, degrees(leaf, "tp")
    if variant == SequenceParallel.at_stage_boundaries:
        return None
    return [("--sequence-parallel", "")] if variant and tp > 1.0 else []


def _read_sequence_parallel(options: _Options) -> dict[str, float]:
    """Return path → sequence parallelism, which Megatron-LM turns off without tensor parallelism."""
    if "--sequence-parallel" not in options:
        return {}
    is_split = is_on(options, "--sequence-parallel") and option_number(options, _TENSOR) != 1.0
    return {"mapping.sequence_parallel": float(is_split)}


_EXCHANGES = {
    "p2p": ContextExchange.p2p,
    "all_gather": ContextExchange.all_gather,
    "allgather": ContextExchange.all_gather,
    "a2a": ContextExchange.a2a,
    "a2a+p2p": ContextExchange.a2a_p2p,
}
_EXCHANGE_PATHS = ("mapping.context.cp_comm_type", "mapping.context.a2a_size")
_LEVELS = "--hierarchical-context-parallel-sizes"


def _context_exchange(leaf: Lookup) -> Pairs | None:
    """Return the messages of context parallelism as options."""
    code, group = map(leaf, _EXCHANGE_PATHS)
    if code is None:
        return []
    name = next((name for name, exchange in _EXCHANGES.items() if exchange == code), None)
    if name is None:
        return None
    (cp,) = degrees(leaf, "cp")
    if code != ContextExchange.a2a_p2p or not group or group >= cp:
        return [("--cp-comm-type", name)]
    return [("--cp-comm-type", name), (_LEVELS, f"{number(group)} {number(cp / group)}")]


def _read_context_exchange(options: _Options) -> dict[str, float]:
    """Return path → messages of context parallelism, where all layers have the same, and ranks of an all-to-all."""
    names = set(options.get("--cp-comm-type", "").replace(",", " ").split())
    levels = options.get(_LEVELS, "").strip("[]").replace(",", " ").split()
    if len(names) != 1 or (name := names.pop()) not in _EXCHANGES or option_number(options, _CONTEXT) == 1.0:
        return {}
    group = {_EXCHANGE_PATHS[1]: float(levels[0])} if name == "a2a+p2p" and len(levels) > 1 else {}
    return {_EXCHANGE_PATHS[0]: float(_EXCHANGES[name])} | group


def _expert_tp(leaf: Lookup) -> Pairs:
    """Return the ranks that an expert is split over as an option; without it Megatron-LM takes those of tp."""
    ranks = leaf("mapping.experts.etp")
    return [] if ranks is None else [("--expert-tensor-parallel-size", number(ranks))]


def _read_expert_tp(options: _Options) -> dict[str, float]:
    """Return path → ranks that an expert is split over: those of tp where a mixture of experts states none."""
    ranks, tp = (option_number(options, name) for name in ("--expert-tensor-parallel-size", _TENSOR))
    if ranks is None and is_on(options, "--num-experts", N_EXPERTS):
        ranks = tp
    return {} if ranks is None else {"mapping.experts.etp": ranks}


# --- CUDA graphs ------------------------------------------------------------------------------------------

#: Path of the rule of CUDA graphs.
GRAPH = "mapping.graph"
_KIND, _SCOPE, _SWITCHES = "--cuda-graph-impl", "--cuda-graph-scope", ("--enable-cuda-graph", "--external-cuda-graph")
#: Modules of a captured layer: all of a dense one, of a mixture's without the experts, whose rows are not known before.
_DENSE_MODULES, _MIXTURE_MODULES = "attn mlp", "attn moe_router moe_preprocess"


def graph_pairs(leaf: Lookup) -> Pairs | None:
    """Return CUDA graphs as options; None for those of layers under full recompute, which Megatron-LM refuses."""
    code, is_mixture = leaf(GRAPH) or 0.0, leaf("workload.experts.n_experts") is not None
    if code == Graph.iteration:
        return [(_KIND, "local"), (_SCOPE, "full_iteration"), ("--no-check-for-nan-in-loss-and-grad", "")]
    if code == Graph.none:
        return []
    modules = _MIXTURE_MODULES if is_mixture else _DENSE_MODULES
    is_recomputed = leaf("mapping.recompute") == Recompute.full
    return None if is_recomputed else [(_KIND, "transformer_engine"), (_SCOPE, modules)]


def _graph_modules(options: _Options) -> set[str]:
    """Return the modules of a layer that graphs hold, or the words for all of it, empty where nothing is said."""
    return set(re.findall(r"\w+", options.get(_SCOPE, "").rpartition("CudaGraphScope.")[2].lower()))


def _read_graphs(options: _Options) -> dict[str, float]:
    """Return path → CUDA graphs; those of parts of a layer count as of layers, those of inference say nothing."""
    modules, kind = _graph_modules(options), options.get(_KIND, "").lower()
    switches = _SWITCHES if not kind else ()  # of older versions
    if not is_on(options, _KIND, *switches):
        return {GRAPH: float(Graph.none)} if any(name in options for name in (_KIND, *_SWITCHES)) else {}
    if kind == "full_iteration" or "full_iteration" in modules:
        return {GRAPH: float(Graph.iteration)}
    return {} if modules == {"full_iteration_inference"} else {GRAPH: float(Graph.layer)}


def _graph_remark(options: _Options) -> str:
    """Return the remark on graphs of parts of a layer, which count as those of layers, "" for none."""
    modules, whole = _graph_modules(options), _DENSE_MODULES if is_dense(options) else _MIXTURE_MODULES
    is_part = modules and "full" not in modules and not modules >= set(whole.split()[:2])
    if _read_graphs(options).get(GRAPH) != Graph.layer or not is_part:
        return ""
    return f"{_SCOPE} {' '.join(sorted(modules))} counts as graph=layer"


# --- the tool ---------------------------------------------------------------------------------------------


_REMARKS = {
    ("--hybrid-override-pattern", "--hybrid-layer-pattern", "--is-hybrid-model"): "layers of state space models",
    ("--heterogeneous-layers-config-path", "--heterogeneous-layers-config-encoded-json"): "layers of several shapes",
    ("--experimental-attention-variant", "--linear-attention-type"): "linear and sparse attention",
    ("--retro-add-retriever", "--bert-embedder-type", "--vision-pretraining"): "models that are no language models",
}


def _shape_remark(options: _Options) -> str:
    """Return the remark on parts of a model that no rule reads, "" for none."""
    parts = [part for names, part in _REMARKS.items() if is_on(options, *names) or any(options.get(n) for n in names)]
    return f"{' and '.join(parts)} are not read: name the model, or give its configuration" if parts else ""


MEGATRON_LM = read_tool(
    "megatron-lm",
    SHAPE_RULES
    | MEMORY_RULES
    | {
        "global_batch": CompositeOption(("workload.global_batch",), _global_batch, _read_global_batch),
        "replicas": CompositeOption(("mapping.dp",), unwritten, _read_replicas),
        "sequence_parallel": CompositeOption(
            ("mapping.sequence_parallel",), _sequence_parallel, _read_sequence_parallel
        ),
        "context_exchange": CompositeOption(_EXCHANGE_PATHS, _context_exchange, _read_context_exchange),
        "expert_tp": CompositeOption(("mapping.experts.etp",), _expert_tp, _read_expert_tp),
        "graphs": CompositeOption((GRAPH,), graph_pairs, _read_graphs),
        "uneven_stages": CompositeOption(("software.uneven_layers",), unwritten, read_uneven_stages),
        "virtual_stages": CompositeOption(("mapping.virtual_stages",), virtual_stage_pairs, read_virtual_stages),
    },
    remarks=(_shape_remark, recompute_remark, stage_remark, _graph_remark),
)
