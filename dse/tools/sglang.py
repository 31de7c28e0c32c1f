"""SGLang, whose tensor-parallel ranks include data-parallel attention."""

from __future__ import annotations

from collections.abc import Mapping

from dse.tools.engines import (
    DRAFTS,
    ENGINE,
    SERVING,
    draft_tokens,
    engine,
    has_attention_dp,
    has_draft_layers,
    replica_devices,
    token_count,
    weight_format,
)
from dse.tools.options import CompositeOption, Lookup, Pairs, degrees, memory_share, number
from dse.tools.rows import pairs_of


def _attention_ranks(leaf: Lookup) -> float:
    """Return the number of data-parallel ranks of attention, 1 for replicas that share nothing."""
    return degrees(leaf, "dp")[0] if has_attention_dp(leaf) else 1.0


def _read_attention_ranks(options: Mapping[str, str]) -> float:
    """Return the number of data-parallel ranks of attention that options state, 1 for none."""
    return float(options.get("--dp-size", 1.0)) if "--enable-dp-attention" in options else 1.0


def _ranks(leaf: Lookup) -> Pairs:
    """Return the ranks as options; SGLang's tp ranks include the data-parallel ranks of attention."""
    tp, dp = degrees(leaf, "tp", "dp")
    pairs = [("--tp-size", number(tp * _attention_ranks(leaf)))]
    if dp > 1.0:
        pairs += [("--dp-size", number(dp)), *([("--enable-dp-attention", "")] if has_attention_dp(leaf) else [])]
    return pairs


def _read_ranks(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → ``tp`` and ``dp`` that options state."""
    values = {"mapping.dp": float(options["--dp-size"])} if "--dp-size" in options else {}
    if "--tp-size" in options:
        values["mapping.tp"] = float(options["--tp-size"]) / _read_attention_ranks(options)
    return values


def _experts(leaf: Lookup) -> Pairs | None:
    """Return the expert ranks as options, empty for one, None for splits that SGLang does not have.

    They lie within its tp ranks, and the quotient of both splits the width of an expert.
    """
    from dse.model.serving.work import width_split

    ep, (tp, etp) = leaf("mapping.experts.ep"), degrees(leaf, "tp", "experts.etp")
    if ep is None:
        return []
    if ep * float(width_split(tp, ep, etp)) != tp * _attention_ranks(leaf):
        return None
    return [("--ep-size", number(ep))] if ep > 1.0 else []


def _read_experts(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → expert ranks that options state, empty for none."""
    return {"mapping.experts.ep": float(options["--ep-size"])} if "--ep-size" in options else {}


def _rank_total_option(name: str, path: str) -> CompositeOption:
    """Return the rule of an option that states a number per rank for all data-parallel ranks of attention.

    SGLang divides it by these ranks, rounding down.
    """

    def write(leaf: Lookup) -> Pairs:
        value = leaf(path)
        return [] if value is None else [(name, number(value * _attention_ranks(leaf)))]

    def read(options: Mapping[str, str]) -> dict[str, float]:
        ranks = _read_attention_ranks(options)
        return {path: float(options[name]) // ranks if ranks > 1.0 else float(options[name])} if name in options else {}

    return CompositeOption((path,), write, read)


_ALGORITHM, _STEPS, _WIDTH, _TOKENS = (
    f"--speculative-{name}" for name in ("algorithm", "num-steps", "eagle-topk", "num-draft-tokens")
)


def _chain(leaf: Lookup) -> Pairs:
    """Return a chain of drafts as options, empty for none; SGLang counts the last known token too."""
    tokens, algorithm = draft_tokens(leaf), "NEXTN" if has_draft_layers(leaf) else "EAGLE"
    text = f"{_ALGORITHM} {algorithm} {_STEPS} {number(tokens)} {_WIDTH} 1 {_TOKENS} {number(tokens + 1.0)}"
    return pairs_of(text) if tokens else []


def _read_chain(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → length of the longest chain of drafts, the depth of a tree, that options state."""
    if _STEPS in options:
        return {DRAFTS[0]: token_count(options[_STEPS], _STEPS)}
    return {DRAFTS[0]: token_count(str(float(options[_TOKENS]) - 1.0), _TOKENS)} if _TOKENS in options else {}


def _chain_remark(options: Mapping[str, str]) -> str:
    """Return the remark on a tree of drafts, or on SGLang's own choice of drafts; else ""."""
    if _STEPS in options and options.get(_WIDTH, "1") != "1":
        return f"{_WIDTH} {options[_WIDTH]}: a tree of drafts counts as a chain of its depth"
    if _ALGORITHM in options and not {_STEPS, _TOKENS} & options.keys():
        return f"{_ALGORITHM} states no number of drafted tokens: set drafts"
    return ""


SGLANG = engine(
    "sglang",
    "--context-length",
    {
        "ranks": CompositeOption(("mapping.tp", "mapping.dp"), _ranks, _read_ranks),
        "experts": CompositeOption(("mapping.experts.ep", "mapping.experts.etp"), _experts, _read_experts),
        "chunk": _rank_total_option("--chunked-prefill-size", f"{SERVING}chunk"),
        "most_sequences": _rank_total_option("--max-running-requests", f"{ENGINE}most_sequences"),
        "memory": memory_share("--mem-fraction-static", f"{SERVING}memory_share", is_of_free_memory=False),
        "drafts": CompositeOption(DRAFTS, _chain, _read_chain),
        "weights": weight_format("--quantization", "w8a8_int8"),
    },
    lambda leaf: replica_devices(leaf) * _attention_ranks(leaf),
    remarks=(_chain_remark,),
)
