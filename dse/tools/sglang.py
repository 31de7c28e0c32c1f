"""SGLang, whose tensor-parallel ranks include data-parallel attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dse.tools.engines import (
    COPIES,
    DRAFTS,
    ENGINE,
    KEPT,
    SERVING,
    attends_apart,
    copies,
    drafted,
    drafts_itself,
    formats,
    length_words,
    messages,
    model_length,
    names_no_draft,
    over_nodes,
    read_copies,
    replica,
    whole,
)
from dse.tools.options import (
    ChoiceOption,
    Lookup,
    MemoryShare,
    NumberOption,
    Pairs,
    SwitchOption,
    Tool,
    Written,
    flags,
    number,
)


def _ranks(leaf: Lookup) -> Pairs:
    """Its tp ranks include the data-parallel ranks of attention."""
    tp, dp, together = leaf("mapping.tp") or 1.0, leaf("mapping.dp") or 1.0, attends_apart(leaf)
    found = [("--tp-size", number(tp * dp if together else tp))]
    if dp > 1.0:
        found += [("--dp-size", number(dp)), *([("--enable-dp-attention", "")] if together else [])]
    return found


def _read_ranks(given: Mapping[str, str]) -> dict[str, float]:
    found = {"mapping.dp": float(given["--dp-size"])} if "--dp-size" in given else {}
    if "--tp-size" in given:
        apart = found.get("mapping.dp", 1.0) if "--enable-dp-attention" in given else 1.0
        found["mapping.tp"] = float(given["--tp-size"]) / apart
    return found


def _experts(leaf: Lookup) -> Pairs | None:
    """Ranks of experts within its tp ranks, whose quotient splits the width of an expert; None for other splits."""
    from dse.model.serving.work import width_split

    ep, tp = leaf("mapping.experts.ep"), leaf("mapping.tp") or 1.0
    if ep is None:
        return []
    ranks = tp * (leaf("mapping.dp") or 1.0) if attends_apart(leaf) else tp
    if ep * float(width_split(tp, ep, leaf("mapping.experts.etp") or 1.0)) != ranks:
        return None
    return [("--ep-size", number(ep))] if ep > 1.0 else []


def _read_experts(given: Mapping[str, str]) -> dict[str, float]:
    return {"mapping.experts.ep": float(given["--ep-size"])} if "--ep-size" in given else {}


def _of_all_ranks(name: str, path: str) -> Written:
    """A number per rank, stated for all data-parallel ranks of attention: SGLang divides, rounding down."""

    def write(leaf: Lookup) -> Pairs:
        value = leaf(path)
        ranks = (leaf("mapping.dp") or 1.0) if attends_apart(leaf) else 1.0
        return [] if value is None else [(name, number(value * ranks))]

    def read(given: Mapping[str, str]) -> dict[str, float]:
        ranks = float(given.get("--dp-size", 1.0)) if "--enable-dp-attention" in given else 1.0
        return {path: float(given[name]) // ranks if ranks > 1.0 else float(given[name])} if name in given else {}

    return Written((path,), write, read)


#: Reserved share of an answer at a conservativeness of 1, which multiplies it.
_KEPT_AT_ONE, _CONSERVATIVE = 0.3, "--schedule-conservativeness"


def _conservative(leaf: Lookup) -> Pairs:
    kept = leaf(KEPT)
    if kept is None or abs(kept - _KEPT_AT_ONE) < 1e-6:
        return []
    return [(_CONSERVATIVE, number(kept / _KEPT_AT_ONE))]


def _read_conservative(given: Mapping[str, str]) -> dict[str, float]:
    return {KEPT: min(_KEPT_AT_ONE * float(given[_CONSERVATIVE]), 1.0)} if _CONSERVATIVE in given else {}


_ALGORITHM, _STEPS, _WIDTH, _TOKENS = (
    f"--speculative-{name}" for name in ("algorithm", "num-steps", "eagle-topk", "num-draft-tokens")
)


def _chain(leaf: Lookup) -> Pairs:
    """A chain of drafts, which SGLang counts with the known token before them."""
    tokens = drafted(leaf)
    algorithm = "NEXTN" if drafts_itself(leaf) else "EAGLE"
    numbers = [(_STEPS, number(tokens)), (_WIDTH, "1"), (_TOKENS, number(tokens + 1.0))]
    return [(_ALGORITHM, algorithm), *numbers] if tokens else []


def _read_chain(given: Mapping[str, str]) -> dict[str, float]:
    """Length of the longest chain: the depth of a tree."""
    if _STEPS in given:
        return {DRAFTS[0]: whole(given[_STEPS], _STEPS)}
    return {DRAFTS[0]: whole(str(float(given[_TOKENS]) - 1.0), _TOKENS)} if _TOKENS in given else {}


def _chain_remark(given: Mapping[str, str]) -> str:
    """Remark on a tree, or on SGLang's own choice of drafts."""
    if _STEPS in given and given.get(_WIDTH, "1") != "1":
        return f"{_WIDTH} {given[_WIDTH]}: a tree of drafts counts as a chain of its depth"
    if _ALGORITHM in given and not {_STEPS, _TOKENS} & given.keys():
        return f"{_ALGORITHM} states no number of drafted tokens: set drafts"
    return ""


def _mode(role: str) -> Callable[[Lookup], Pairs]:
    apart = [("--disaggregation-mode", role), ("--disaggregation-transfer-backend", "nixl")]
    return lambda leaf: [*apart, ("--host", "0.0.0.0"), ("--port", "8000")]


SGLANG = Tool(
    "sglang",
    "serving",
    "0.5",
    "https://docs.sglang.ai/advanced_features/server_arguments.html",
    (
        Written(("mapping.tp", "mapping.dp"), _ranks, _read_ranks),
        NumberOption("--pp-size", "mapping.pp", plain=1.0),
        Written(("mapping.experts.ep", "mapping.experts.etp"), _experts, _read_experts),
        messages("--moe-a2a-backend", "deepep"),
        Written((COPIES,), copies("--ep-num-redundant-experts", "%s"), read_copies("--ep-num-redundant-experts")),
        model_length("--context-length"),
        _of_all_ranks("--chunked-prefill-size", f"{SERVING}chunk"),
        SwitchOption("--enable-mixed-chunk", f"{SERVING}mixed"),
        _of_all_ranks("--max-running-requests", f"{ENGINE}most_sequences"),
        MemoryShare("--mem-fraction-static", f"{SERVING}memory_share", of_rest=False),
        ChoiceOption(
            f"{SERVING}cache_bytes", {2.0: [("--kv-cache-dtype", "auto")], 1.0: [("--kv-cache-dtype", "fp8_e4m3")]}
        ),
        Written((KEPT,), _conservative, _read_conservative),
        Written(DRAFTS, _chain, _read_chain),
        formats("--quantization", "w8a8_int8"),
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
    value_comments=(length_words("--context-length"),),
    notes=(
        names_no_draft("--speculative-draft-model-path"),
        over_nodes(
            "start the line on each of them with --nnodes {nodes}, --node-rank and --dist-init-addr",
            lambda leaf: replica(leaf) * ((leaf("mapping.dp") or 1.0) if attends_apart(leaf) else 1.0),
        ),
    ),
    remarks=(_chain_remark,),
    beyond="SGLang refuses a --context-length above that of its configuration",
    roles={role: _mode(role) for role in ("prefill", "decode")},
)
