"""SGLang, whose tensor-parallel ranks include data-parallel attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dse.tools.engines import (
    COPIES,
    DRAFTS,
    ENGINE,
    RESERVED_ANSWER,
    SERVING,
    all_to_all_option,
    draft_model_note,
    draft_tokens,
    has_attention_dp,
    has_draft_layers,
    length_comment,
    length_option,
    node_note,
    read_expert_copies,
    replica_devices,
    token_count,
    weight_format,
    write_expert_copies,
)
from dse.tools.options import (
    ChoiceOption,
    CompositeOption,
    Lookup,
    MemoryShare,
    NumberOption,
    Pairs,
    SwitchOption,
    Tool,
    flags,
    number,
)


def _ranks(leaf: Lookup) -> Pairs:
    """Return the ranks as options; SGLang's tp ranks include the data-parallel ranks of attention."""
    tp, dp, shares_experts = leaf("mapping.tp") or 1.0, leaf("mapping.dp") or 1.0, has_attention_dp(leaf)
    pairs = [("--tp-size", number(tp * dp if shares_experts else tp))]
    if dp > 1.0:
        pairs += [("--dp-size", number(dp)), *([("--enable-dp-attention", "")] if shares_experts else [])]
    return pairs


def _read_ranks(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → ``tp`` and ``dp`` that options state."""
    values = {"mapping.dp": float(options["--dp-size"])} if "--dp-size" in options else {}
    if "--tp-size" in options:
        attention_ranks = values.get("mapping.dp", 1.0) if "--enable-dp-attention" in options else 1.0
        values["mapping.tp"] = float(options["--tp-size"]) / attention_ranks
    return values


def _experts(leaf: Lookup) -> Pairs | None:
    """Return the expert ranks as options, empty for one, None for splits that SGLang does not have.

    They lie within its tp ranks, and the quotient of both splits the width of an expert.
    """
    from dse.model.serving.work import width_split

    ep, tp = leaf("mapping.experts.ep"), leaf("mapping.tp") or 1.0
    if ep is None:
        return []
    ranks = tp * (leaf("mapping.dp") or 1.0) if has_attention_dp(leaf) else tp
    if ep * float(width_split(tp, ep, leaf("mapping.experts.etp") or 1.0)) != ranks:
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
        ranks = (leaf("mapping.dp") or 1.0) if has_attention_dp(leaf) else 1.0
        return [] if value is None else [(name, number(value * ranks))]

    def read(options: Mapping[str, str]) -> dict[str, float]:
        ranks = float(options.get("--dp-size", 1.0)) if "--enable-dp-attention" in options else 1.0
        return {path: float(options[name]) // ranks if ranks > 1.0 else float(options[name])} if name in options else {}

    return CompositeOption((path,), write, read)


#: Reserved share of an answer at a conservativeness of 1, which multiplies it.
_RESERVED_AT_ONE, _CONSERVATIVE = 0.3, "--schedule-conservativeness"


def _conservative(leaf: Lookup) -> Pairs:
    """Return the share of an answer that is reserved as an option, empty at SGLang's default."""
    reserved_share = leaf(RESERVED_ANSWER)
    if reserved_share is None or abs(reserved_share - _RESERVED_AT_ONE) < 1e-6:
        return []
    return [(_CONSERVATIVE, number(reserved_share / _RESERVED_AT_ONE))]


def _read_conservative(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → share of an answer that is reserved, at most 1, that options state."""
    return (
        {RESERVED_ANSWER: min(_RESERVED_AT_ONE * float(options[_CONSERVATIVE]), 1.0)}
        if _CONSERVATIVE in options
        else {}
    )


_ALGORITHM, _STEPS, _WIDTH, _TOKENS = (
    f"--speculative-{name}" for name in ("algorithm", "num-steps", "eagle-topk", "num-draft-tokens")
)


def _chain(leaf: Lookup) -> Pairs:
    """Return a chain of drafts as options, empty for none; SGLang counts the last known token too."""
    tokens = draft_tokens(leaf)
    algorithm = "NEXTN" if has_draft_layers(leaf) else "EAGLE"
    numbers = [(_STEPS, number(tokens)), (_WIDTH, "1"), (_TOKENS, number(tokens + 1.0))]
    return [(_ALGORITHM, algorithm), *numbers] if tokens else []


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


def _mode(role: str) -> Callable[[Lookup], Pairs]:
    """Return the function (leaves → options) of a pool with this role."""
    pairs = [("--disaggregation-mode", role), ("--disaggregation-transfer-backend", "nixl")]
    return lambda leaf: [*pairs, ("--host", "0.0.0.0"), ("--port", "8000")]


SGLANG = Tool(
    "sglang",
    "serving",
    "0.5",
    "https://docs.sglang.ai/advanced_features/server_arguments.html",
    (
        CompositeOption(("mapping.tp", "mapping.dp"), _ranks, _read_ranks),
        NumberOption("--pp-size", "mapping.pp", default=1.0),
        CompositeOption(("mapping.experts.ep", "mapping.experts.etp"), _experts, _read_experts),
        all_to_all_option("--moe-a2a-backend", "deepep"),
        CompositeOption(
            (COPIES,),
            write_expert_copies("--ep-num-redundant-experts", "%s"),
            read_expert_copies("--ep-num-redundant-experts"),
        ),
        length_option("--context-length"),
        _rank_total_option("--chunked-prefill-size", f"{SERVING}chunk"),
        SwitchOption("--enable-mixed-chunk", f"{SERVING}mixed"),
        _rank_total_option("--max-running-requests", f"{ENGINE}most_sequences"),
        MemoryShare("--mem-fraction-static", f"{SERVING}memory_share", is_of_free_memory=False),
        ChoiceOption(
            f"{SERVING}cache_bytes", {2.0: [("--kv-cache-dtype", "auto")], 1.0: [("--kv-cache-dtype", "fp8_e4m3")]}
        ),
        CompositeOption((RESERVED_ANSWER,), _conservative, _read_conservative),
        CompositeOption(DRAFTS, _chain, _read_chain),
        weight_format("--quantization", "w8a8_int8"),
    ),
    flags('python3 -m sglang.launch_server --model-path "$MODEL"'),
    {
        "--tp": "--tp-size",
        "--tensor-parallel-size": "--tp-size",
        "--dp": "--dp-size",
        "--data-parallel-size": "--dp-size",
        "--pp": "--pp-size",
        "--pipeline-parallel-size": "--pp-size",
        "--ep": "--ep-size",
        "--expert-parallel-size": "--ep-size",
    },
    dashes=True,
    vendors=("NVIDIA", "AMD", "Intel"),
    value_comments=(length_comment("--context-length"),),
    notes=(
        draft_model_note("--speculative-draft-model-path"),
        node_note(
            "start the line on each of them with --nnodes {nodes}, --node-rank and --dist-init-addr",
            lambda leaf: replica_devices(leaf) * ((leaf("mapping.dp") or 1.0) if has_attention_dp(leaf) else 1.0),
        ),
    ),
    remarks=(_chain_remark,),
    long_sequence_note="SGLang refuses a --context-length above that of its configuration",
    roles={role: _mode(role) for role in ("prefill", "decode")},
)
