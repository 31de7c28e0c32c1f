"""SGLang, whose tensor-parallel ranks include data-parallel attention."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping

from dse.tools.engines import (
    DRAFTS,
    ENGINE,
    HOST_CACHE,
    SERVING,
    draft_tokens,
    engine,
    has_attention_dp,
    has_draft_layers,
    replica_devices,
    token_count,
    weight_format,
    wide_experts,
)
from dse.tools.options import (
    CAPACITY,
    N_EXPERTS,
    WEIGHTS,
    ByteDependentOption,
    CompositeOption,
    Lookup,
    Pairs,
    degrees,
    is_on,
    memory_share,
    number,
    number_of,
)
from dse.tools.rows import pairs_of
from dse.types.choices import AllToAll

_TP, _DP, _EP, _ATTENTION_DP = "--tp-size", "--dp-size", "--ep-size", "--enable-dp-attention"


def _size(options: Mapping[str, str], name: str) -> float:
    """Return the number that an option states, 1 without it."""
    return number_of(options[name]) if options.get(name) else 1.0


def _attention_ranks(leaf: Lookup) -> float:
    """Return the number of data-parallel ranks of attention, 1 for replicas that share nothing."""
    return degrees(leaf, "dp")[0] if has_attention_dp(leaf) else 1.0


def _read_attention_ranks(options: Mapping[str, str]) -> float:
    """Return the number of data-parallel ranks of attention that options state, 1 for none."""
    return _size(options, _DP) if is_on(options, _ATTENTION_DP) else 1.0


def _ranks(leaf: Lookup) -> Pairs:
    """Return the ranks as options; SGLang's tp ranks include the data-parallel ranks of attention."""
    tp, dp = degrees(leaf, "tp", "dp")
    pairs = [(_TP, number(tp * _attention_ranks(leaf)))]
    if dp > 1.0:
        pairs += [(_DP, number(dp)), *([(_ATTENTION_DP, "")] if has_attention_dp(leaf) else [])]
    return pairs


def _read_ranks(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → ``tp`` and ``dp`` that options state."""
    values = {"mapping.dp": _size(options, _DP)} if options.get(_DP) else {}
    if options.get(_TP):
        values["mapping.tp"] = _size(options, _TP) / _read_attention_ranks(options)
    return values


def _uneven_ranks(options: Mapping[str, str]) -> str:
    """Return that ranks of attention or of experts do not divide those of tp (``check_server_args``), else ""."""
    ranks = _size(options, _TP)
    for name, part in ((f"{_DP} under {_ATTENTION_DP}", _read_attention_ranks(options)), (_EP, _size(options, _EP))):
        if ranks % part:
            return f"{name} of {part:g}, which does not divide the {ranks:g} ranks of {_TP}"
    return ""


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
    return [(_EP, number(ep))] if ep > 1.0 else []


_DISPATCH = "--moe-a2a-backend"

#: Backend of the exchange of experts → copies of a token. All but none put whole experts on every tp rank
#: (``_a2a_ep_size`` of ``server_args.py``).
_BACKENDS = {
    "deepep": AllToAll.by_node,
    "deepep_v2": AllToAll.by_node,
    "mori": AllToAll.by_node,
    "mooncake": AllToAll.pairwise,
    "nixl": AllToAll.pairwise,
    "pplx": AllToAll.pairwise,
    "flashinfer": AllToAll.by_rank,
    "megamoe": AllToAll.by_rank,
    "ascend_fuseep": AllToAll.by_rank,
}

#: Switches of versions before 0.5 for the same.
_OLD_SWITCHES = ("--enable-deepep-moe", "--enable-ep-moe")


def _backend(options: Mapping[str, str]) -> AllToAll | None:
    """Return the copies of a token of the stated exchange of experts, None for one within each layer's sum."""
    if is_on(options, _OLD_SWITCHES[0]):
        return AllToAll.by_node
    return _BACKENDS.get(options.get(_DISPATCH, "").lower())


def _read_expert_ranks(options: Mapping[str, str]) -> float | None:
    """Return the ranks of whole experts that options state, None without any."""
    if options.get(_TP) and (_backend(options) is not None or any(is_on(options, name) for name in _OLD_SWITCHES)):
        return _size(options, _TP)
    return _size(options, _EP) if options.get(_EP) else None


def _read_experts(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → ranks of experts; under data-parallel attention all tp ranks hold a mixture's experts once.

    They split the width of an expert as far as they do not hold whole ones.
    """
    ep, attention_ranks = _read_expert_ranks(options), _read_attention_ranks(options)
    values = {} if ep is None else {"mapping.experts.ep": ep}
    if attention_ranks > 1.0 and options.get(_TP) and number_of(options.get(N_EXPERTS, "1")) > 0.0:
        width = _size(options, _TP) / (ep or 1.0)
        values |= {"mapping.experts.ep": ep or 1.0} | ({"mapping.experts.etp": width} if width > 1.0 else {})
    return values


def _dispatch(leaf: Lookup) -> Pairs | None:
    """Return the exchange of experts as an option, empty for none of its own, None for one that it lacks.

    Without an option ranks of attention gather the tokens of all.
    """
    flavour = leaf("mapping.experts.all_to_all") or 0.0
    if flavour == float(AllToAll.by_node):
        return [(_DISPATCH, "deepep")]
    is_gather = flavour == float(AllToAll.gather) and _attention_ranks(leaf) > 1.0
    return [] if is_gather or flavour == float(AllToAll.pairwise) else None


def _read_dispatch(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → exchange of experts: of the stated backend, else gathers of the tokens of all ranks.

    Empty where no whole experts are on ranks with tokens of their own, as far as options say it.
    """
    backend = _backend(options)
    if backend is None and _read_attention_ranks(options) > 1.0 and (_read_expert_ranks(options) or 1.0) > 1.0:
        backend = AllToAll.gather if options.get(_DISPATCH) == "none" else None
    return {} if backend is None else {"mapping.experts.all_to_all": float(backend)}


_DENSE, _SHARED, _HEAD = (f"mapping.slices.{name}_tp" for name in ("dense", "shared", "head"))
_DENSE_SIZE, _WHOLE_HEAD = "--moe-dense-tp-size", "--enable-dp-lm-head"


def _is_sliced(leaf: Lookup, path: str) -> bool | None:
    """Return whether a part is in slices over all ranks of tp, False for one whole on each rank; None for others."""
    size, ranks = leaf(path) or 1.0, degrees(leaf, "tp")[0] * _attention_ranks(leaf)
    return {ranks: True, 1.0: False}.get(size)


def _slices(path: str, whole: Pairs) -> Callable[[Lookup], Pairs | None]:
    """Return the rule that writes a part that ranks of attention have in slices unless ``whole`` is stated."""

    def write(leaf: Lookup) -> Pairs | None:
        is_sliced = _is_sliced(leaf, path)
        if is_sliced is None:
            return None
        return whole if _attention_ranks(leaf) > 1.0 and not is_sliced else []

    return write


def _shared(leaf: Lookup) -> Pairs | None:
    """Return no option: shared experts are in slices unless an exchange of experts is stated, None for others."""
    has_exchange = leaf("mapping.experts.all_to_all") == float(AllToAll.by_node)
    has_shared = bool(leaf("workload.experts.shared_ffn")) and _attention_ranks(leaf) > 1.0
    is_open = leaf(_SHARED) is None or not has_shared
    return [] if is_open or _is_sliced(leaf, _SHARED) is not has_exchange else None


def _shared_note(leaf: Lookup) -> str:
    """Return the note that SGLang has shared experts in slices, which a design has whole on each rank; else ""."""
    is_whole = leaf(_SHARED) is None and bool(leaf("workload.experts.shared_ffn")) and _attention_ranks(leaf) > 1.0
    if not is_whole or leaf("mapping.experts.all_to_all") == float(AllToAll.by_node):
        return ""
    return f"without {_DISPATCH} all ranks of {_TP} hold shared experts once, in slices: set shared_tp to their number"


def _read_slices(path: str, is_whole: Callable[[Mapping[str, str]], bool]) -> Callable[..., dict[str, float]]:
    """Return the reader of a part: of all ranks of tp under data-parallel attention, 1 for one whole on each rank."""

    def read(options: Mapping[str, str]) -> dict[str, float]:
        if _read_attention_ranks(options) <= 1.0 or not options.get(_TP):
            return {}
        return {path: 1.0 if is_whole(options) else _size(options, _TP)}

    return read


def _has_whole_shared(options: Mapping[str, str]) -> bool:
    """Return true where each rank has shared experts whole: none, or those beside an exchange (``deepseek_v2.py``)."""
    return _backend(options) is not None or number_of(options.get(N_EXPERTS, "1")) == 0.0


_SLICES = (
    CompositeOption(
        (_DENSE,),
        _slices(_DENSE, [(_DENSE_SIZE, "1")]),
        _read_slices(_DENSE, lambda options: options.get(_DENSE_SIZE) == "1"),
    ),
    CompositeOption((_SHARED,), _shared, _read_slices(_SHARED, _has_whole_shared), writes_default=True),
    CompositeOption(
        (_HEAD,),
        _slices(_HEAD, [(_WHOLE_HEAD, "")]),
        _read_slices(_HEAD, lambda options: is_on(options, _WHOLE_HEAD)),
    ),
)


def _meeting_ranks(options: Mapping[str, str]) -> float:
    """Return the ranks of whole experts whose ranks of attention have tokens of their own, 1 for none."""
    return (_read_expert_ranks(options) or 1.0) if _read_attention_ranks(options) > 1.0 else 1.0


_BALANCE, _COPIES, _LOCATION = "--enable-eplb", "--ep-num-redundant-experts", "--init-expert-location"


def _balanced(is_balanced: bool, copies: float, experts: float) -> Pairs:
    """Return the switch of the load balancer and the number of copies as options, empty for neither."""
    return [*([(_BALANCE, "")] if is_balanced else []), *([(_COPIES, number(copies))] if copies else [])]


def _read_balance(options: Mapping[str, str]) -> tuple[bool | None, float | None]:
    """Return whether experts are placed by load, as the balancer does and a file of measured loads; and their copies.

    A line that states copies alone has the first experts twice (``init_trivial``), which balances nothing.
    """
    copies = number_of(options[_COPIES]) if options.get(_COPIES) else 0.0 if is_on(options, _BALANCE) else None
    is_placed = is_on(options, _BALANCE) or options.get(_LOCATION, "trivial") != "trivial"
    return (is_placed if is_placed or copies or _BALANCE in options else None), copies


def _rank_total_option(name: str, path: str) -> CompositeOption:
    """Return the rule of an option that states a number per rank for all data-parallel ranks of attention.

    SGLang divides it by these ranks, rounding down.
    """

    def write(leaf: Lookup) -> Pairs:
        value = leaf(path)
        return [] if value is None else [(name, number(value * _attention_ranks(leaf)))]

    def read(options: Mapping[str, str]) -> dict[str, float]:
        return {path: _per_rank(options, name)} if options.get(name) else {}

    return CompositeOption((path,), write, read)


def _per_rank(options: Mapping[str, str], name: str) -> float:
    """Return the number that an option states for all data-parallel ranks of attention, of one of them."""
    value, ranks = number_of(options[name]), _read_attention_ranks(options)
    return value // ranks if ranks > 1.0 else value


_CHUNK, _PROMPT_TOKENS = "--chunked-prefill-size", "--max-prefill-tokens"


def _read_chunk(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → tokens of a step; with -1 prompts are not cut, and a step takes as many as another option says."""
    if not options.get(_CHUNK):
        return {}
    if number_of(options[_CHUNK]) > 0.0:
        return {f"{SERVING}chunk": _per_rank(options, _CHUNK)}
    return {f"{SERVING}chunk": number_of(options.get(_PROMPT_TOKENS) or "16384"), f"{SERVING}whole_prompts": 1.0}


_CONSERVATIVENESS, _RESERVED = "--schedule-conservativeness", f"{SERVING}reserved_answer"

#: Share of an answer reserved at a conservativeness of 1, which multiplies it; and its factor under data-parallel
#: attention (``_handle_data_parallelism`` of ``server_args.py``).
_RESERVED_SHARE, _ATTENTION_FACTOR = 0.3, 0.3


def _reserved(leaf: Lookup) -> Pairs:
    """Return the conservativeness for the reserved share of an answer, empty for its default with and without ranks."""
    share = leaf(_RESERVED)
    factor = _RESERVED_SHARE * (_ATTENTION_FACTOR if _attention_ranks(leaf) > 1.0 else 1.0)
    if share is None or any(abs(share / default - 1.0) < 1e-6 for default in (factor, _RESERVED_SHARE)):
        return []
    return [(_CONSERVATIVENESS, number(share / factor))]


def _read_reserved(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → reserved share of an answer, at most all of it."""
    if not options.get(_CONSERVATIVENESS):
        return {}
    factor = _RESERVED_SHARE * (_ATTENTION_FACTOR if _read_attention_ranks(options) > 1.0 else 1.0)
    return {_RESERVED: min(number_of(options[_CONSERVATIVENESS]) * factor, 1.0)}


_MEMORY, _BY_MEMORY, _MIB = "--mem-fraction-static", "by-memory", 2.0**20


@dataclasses.dataclass(frozen=True)
class _StaticShare(ByteDependentOption):
    """Share of memory for weights and cache, which SGLang derives from the memory of a device where none is stated."""

    def read(self, options: Mapping[str, str]) -> dict[str, float]:
        """Return an empty mapping; ValueError for an invalid number."""
        return {} if options.get(self.name) == _BY_MEMORY else super().read(options)

    def read_for_design(self, options: Mapping[str, str], leaf: Lookup) -> dict[str, float]:
        """Return path → value for a design, at most 1."""
        if options.get(self.name) == _BY_MEMORY:
            options = {**options, self.name: f"{static_share(options, leaf(CAPACITY) or 0.0):.3f}"}
        return super().read_for_design(options, leaf)


def static_share(options: Mapping[str, str], capacity: float) -> float:
    """Return the share of memory that SGLang 0.5 takes for weights and cache, by ``_handle_gpu_memory_settings``.

    ``(M - r) / M`` with ``r = 512 + 1.5 max(chunk, 2048) + 2 g + 1024 tp pp / 8``, all in MiB, for ``g`` sequences in
    the largest graph; under data-parallel attention of ``d`` ranks ``3 g d`` more, and ``1.5 g d`` for g above 300. On
    devices of more than 60 GiB at least 10 GiB. Drafts take 2 GiB more.

    Args:
        options: option → text.
        capacity: of a device, B.

    >>> static_share({"--tp-size": "8"}, 80 * 2.0**30)  # 14.5 GiB of 80
    0.81875
    """
    memory = capacity / _MIB
    if memory <= 0.0:
        return 0.88
    tp, pp, dp = _size(options, _TP), _size(options, "--pp-size"), _read_attention_ranks(options)
    chunk = number_of(options.get(_CHUNK) or ("8192" if memory < 160 * 1024 else "16384"))
    tokens = chunk if chunk > 0.0 else number_of(options.get(_PROMPT_TOKENS) or "16384")
    graph = number_of(options["--cuda-graph-max-bs"]) if options.get("--cuda-graph-max-bs") else _graph_size(memory, tp)
    reserved = 512.0 + 1.5 * max(tokens, 2048.0) + 2.0 * graph + 128.0 * tp * pp
    if dp > 1.0:
        reserved += graph * dp * (4.5 if graph > 300.0 else 3.0)
    reserved = max(reserved, 10240.0) if memory > 60 * 1024 else reserved
    reserved += 2048.0 if options.get(_ALGORITHM) else 0.0
    return max((memory - reserved) / memory, 0.05)


def _graph_size(memory: float, tp: float) -> float:
    """Return the sequences of the largest graph of SGLang 0.5, by the memory of a device in MiB and tp."""
    sizes = ((20, 8, 8), (35, 24, 80), (60, 32, 160), (160, 256, 512))
    for limit, small, large in sizes:
        if memory < limit * 1024:
            return float(small if tp < 4.0 else large)
    return 512.0


_HOST, _HOST_SIZE, _HOST_RATIO = "--enable-hierarchical-cache", "--hicache-size", "--hicache-ratio"


@dataclasses.dataclass(frozen=True)
class _HostRatio(ByteDependentOption):
    """Host's cache over the device's, which is what the static share of memory leaves beside the weights."""

    def write(self, leaf: Lookup) -> Pairs:
        """Return no option."""
        return []

    def read(self, options: Mapping[str, str]) -> dict[str, float]:
        """Return an empty mapping; ValueError for an invalid number."""
        return super().read(options) if is_on(options, _HOST) else {}

    def read_for_design(self, options: Mapping[str, str], leaf: Lookup) -> dict[str, float]:
        """Return path → bytes for a design, empty for no such cache and for one of a stated size."""
        ratio = self._number(options)
        if ratio is None or not is_on(options, _HOST) or number_of(options.get(_HOST_SIZE) or "0"):
            return {}
        capacity, text = leaf(CAPACITY) or 0.0, options.get(_MEMORY, _BY_MEMORY)
        share = static_share(options, capacity) if text == _BY_MEMORY else number_of(text)
        return {self.path: ratio * max(share * capacity - (leaf(WEIGHTS) or 0.0), 0.0)}


_ALGORITHM, _STEPS, _WIDTH, _TOKENS = (
    f"--speculative-{name}" for name in ("algorithm", "num-steps", "eagle-topk", "num-draft-tokens")
)


def _chain(leaf: Lookup) -> Pairs:
    """Return a chain of drafts as options, empty for none; SGLang counts the last known token too."""
    tokens, algorithm = draft_tokens(leaf), "NEXTN" if has_draft_layers(leaf) else "EAGLE"
    text = f"{_ALGORITHM} {algorithm} {_STEPS} {number(tokens)} {_WIDTH} 1 {_TOKENS} {number(tokens + 1.0)}"
    return pairs_of(text) if tokens else []


#: Models of which SGLang drafts 3 tokens where no number is stated, by their names; of others 5 in trees of width 4
#: (``auto_choose_speculative_params`` of ``server_args.py``).
_SHORT_CHAINS = re.compile(r"deepseek|gpt-oss|kimi-k2|/ling-|/ring-", re.IGNORECASE)


def _read_chain(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → length of the longest chain of drafts, the depth of a tree, that options state or imply."""
    if _STEPS in options:
        return {DRAFTS[0]: token_count(options[_STEPS], _STEPS)}
    if _TOKENS in options:
        return {DRAFTS[0]: token_count(str(float(options[_TOKENS]) - 1.0), _TOKENS)}
    algorithm, model = options.get(_ALGORITHM, "").upper(), options.get("--model-path", "")
    if algorithm not in ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE") or not model:
        return {}
    is_short = algorithm == "STANDALONE" or bool(_SHORT_CHAINS.search(model))
    return {DRAFTS[0]: 3.0 if is_short else 5.0}


def _chain_remark(options: Mapping[str, str]) -> str:
    """Return the remark on a tree of drafts, or on SGLang's own choice of drafts; else ""."""
    if _STEPS in options and options.get(_WIDTH, "1") != "1":
        return f"{_WIDTH} {options[_WIDTH]}: a tree of drafts counts as a chain of its depth"
    if _ALGORITHM not in options or {_STEPS, _TOKENS} & options.keys():
        return ""
    drafts = _read_chain(options).get(DRAFTS[0])
    if drafts is None:
        return f"{_ALGORITHM} states no number of drafted tokens: set drafts"
    return f"{_ALGORITHM} states no number of drafted tokens: {drafts:g} are SGLang's default for this model"


def _host_remark(options: Mapping[str, str]) -> str:
    """Return the remark that the host's cache is a multiple of the device's, where no size is stated; else ""."""
    if not is_on(options, _HOST) or number_of(options.get(_HOST_SIZE) or "0"):
        return ""
    return f"{_HOST}: host_cache is {options.get(_HOST_RATIO, '2')} x the cache of a device, by the design's bytes"


_SHARE = memory_share(_MEMORY, f"{SERVING}memory_share", is_of_free_memory=False)

SGLANG = engine(
    "sglang",
    "--context-length",
    {
        "ranks": (CompositeOption(("mapping.tp", "mapping.dp"), _ranks, _read_ranks), *_SLICES),
        "experts": CompositeOption(
            ("mapping.experts.ep", "mapping.experts.etp"), _experts, _read_experts, writes_default=True
        ),
        "wide_experts": wide_experts("--enable-two-batch-overlap", _balanced, _read_balance, _meeting_ranks),
        "dispatch": CompositeOption(("mapping.experts.all_to_all",), _dispatch, _read_dispatch),
        "chunk": dataclasses.replace(_rank_total_option(_CHUNK, f"{SERVING}chunk"), read=_read_chunk),
        "most_sequences": _rank_total_option("--max-running-requests", f"{ENGINE}most_sequences"),
        "memory": _StaticShare(_SHARE.name, _SHARE.path, _SHARE.line, _SHARE.meaning, _SHARE.high),
        "host_ratio": _HostRatio(_HOST_RATIO, HOST_CACHE, lambda leaf: None, "a ratio"),
        "reserved": CompositeOption((_RESERVED,), _reserved, _read_reserved),
        "drafts": CompositeOption(DRAFTS, _chain, _read_chain),
        "weights": weight_format("--quantization", "w8a8_int8"),
    },
    lambda leaf: replica_devices(leaf) * _attention_ranks(leaf),
    remarks=(_chain_remark, _host_remark),
    notes=(_shared_note,),
    contradictions=(_uneven_ranks,),
)
