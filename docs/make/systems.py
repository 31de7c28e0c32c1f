"""The page of the docs on models and systems that serve: ``python -m docs.make.systems docs/systems.md``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.serving import peers, systems
from docs.make.command import command, page_parser
from docs.make.markdown import document, filed, percent, publish, table
from dse import types
from dse.designs import catalog
from dse.fleet.pools import match
from dse.model import main_model, parameter_count
from dse.types import Workload

_WORDS = ("system", "what", "published", "peer", "phase", "model", "layers", "verified")

_INTRODUCTION = """\
# Models and systems that serve

Written by `{command}`; `tests/unit/model/serving/test_systems.py` holds the same checks. A *law* is a direction or a
bound. What is not *verified* is judged by nothing: the source gives no setting in full, or was read second hand.
What NanoFlow overlaps follows from the cores, the bandwidth and the links that kernels take from each other. Which figures
follow from a setting or a formula of ours: [studies](studies.md)."""

_OPTIONS = """\
## What a design may say

|system|leaves|what they do|
|---|---|---|
|layers with a state (Mamba, gated DeltaNet, lightning attention, RWKV)|`[recurrent]` of a workload|a state of \
one size in place of keys and values, read and written once a token; hybrids are the mean of their blocks|
|sparse attention (DSA, fixed patterns)|`[sparse]` of a workload|all keys are kept, a few are read; an indexer \
scores all|
|NanoFlow|`nano_batches`|parts of a batch side by side, bound by the busiest resource; each reads the weights|
|EnergonAI, SN40L, offloading|`far_weights`, `far_cache`; `far.capacity`, `far.bandwidth`|shares of weights and \
cache in a memory beyond the device's, read during the kernels; without `far` the host's|
|InstInfer|`far.near_bandwidth`|attention over the far share is computed near it|
|block formats of the cache|`cache_bytes` (MXFP8 1.03125 B)|memory and traffic of the cache|
|speculation|`drafts`, `acceptance`|`(1 - a^(k + 1)) / (1 - a)` tokens a step|
|Splitwise|`dse.serve_pools`, `dse pools`|a pool for prompts and one for answers|
|long contexts|`context_switch_time`|bytes of a request's cache over the link to the host|
|limits of latency|`first_token_limit`, `token_limit`, `length_spread`|`share_in_time` and `goodput`|"""

_SPLITWISE = """\
## Splitwise, not verified

`dse pools sweeps/splitwise_pools.toml`: Llama-2-70B with vLLM of 2024; times are requests a second over those of the
first line. Published: 1.75 times at equal cost, 2.35 times at equal cost and power, ± 20 %. Its traces are not here;
lengths and prices are from memory, the limits of latency ours."""

_PEERS = """\
## Peers at equal efficiencies

Llama-2-7B on one A100, the published formulas of GenZ and LLM-Viewer written again (`benchmarks/serving/peers.py`), all
with {compute:.0%} of the matrix rate and {memory:.0%} of the bandwidth. Decoding differs by norms and residuals, prefill
by the full square of attention that both count, and by the norms, activations and residuals that GenZ leaves out."""

_RATES = """\
Designs a second, a prefill and a decode step each. The peers' formulas are plain Python; ours is the whole model."""


_MODELS = """\
## Models

Every model of the catalogue with a layer that is neither plain attention nor a dense feed-forward. Approximate: chunked
attention (Llama 4) is a window; Phi-3-small's pattern is its mean; parallel blocks (PaLM, GPT-J, Falcon) have two
all-reduces a layer; vision towers and further predicted tokens are left out."""


def main() -> None:
    """Write the page that the arguments name."""
    asked = page_parser(__doc__).parse_args()
    checks = [check for system in systems.SYSTEMS for check in system()]
    parts = [
        _INTRODUCTION.format(command=command("docs.make.systems")),
        _OPTIONS,
        "## Published figures and laws",
        f"{len(checks)} checks, {sum(check.verified for check in checks)} of them verified: "
        + filed("systems_checks", ["system", "what", "published", "ours", "verified"], map(_row, checks)),
        _SPLITWISE,
        table(
            ["what", "USD / 1000 requests", "W / (request/s)", "times at equal price", "at equal power", "at both"],
            _pools(),
            _WORDS,
        ),
        _PEERS.format(compute=peers.COMPUTE, memory=peers.MEMORY),
        *_peers(peers.compare()),
        _RATES,
        table(["what", "designs/s"], [[name, f"{rate:,.0f}"] for name, rate in peers.rates().items()], _WORDS),
        _MODELS,
        filed("systems_models", ["model", "layers", "parameters, 1e9", "published, 1e9"], _models()),
    ]
    publish(asked.page, document(parts))


def _row(check: systems.Check) -> list[str]:
    ours = f"{check.ours:.4g} {check.unit}".strip()
    return [check.system, check.what, check.published, ours, "yes" if check.verified else "no"]


def _peers(compared: Sequence[peers.Compared]) -> list[str]:
    """Largest difference by peer and phase, and a file of all."""
    largest: dict[tuple[str, str], float] = {}
    for c in compared:
        key = c.peer, c.phase
        largest[key] = max(largest.get(key, 0.0), c.difference, key=abs)
    every = filed(
        "systems_peers",
        ["peer", "phase", "batch", "prompt", "theirs, ms", "ours, ms", "difference"],
        map(_compared, compared),
    )
    rows = [[*key, percent(difference, "+")] for key, difference in largest.items()]
    return [table(["peer", "phase", "largest difference"], rows, _WORDS), f"By batch and prompt: {every}"]


def _compared(c: peers.Compared) -> list[str]:
    return [
        c.peer,
        c.phase,
        f"{c.batch:g}",
        f"{c.prompt:g}",
        f"{1e3 * c.theirs:.2f}",
        f"{1e3 * c.ours:.2f}",
        percent(c.difference, "+"),
    ]


def _pools() -> Iterator[list[str]]:
    """Pools beside the best engines that do both."""
    found = match("sweeps/splitwise_pools.toml")
    for one in (*found.together, *found.pools):
        names = [f"{part.accelerator}, {part.labels['concurrency']} in flight" for part in one.parts]
        what = f"{names[0]}, both" if one.decode is None else f"prompts {names[0]}; answers {names[1]}"
        gains = [f"{gain:.2f}" for gain in one.gain(found.together[0])]
        yield [what, f"{1e3 * one.price:.3f}", f"{one.watts:,.0f}", *gains]


def _models() -> Iterator[list[str]]:
    for slug in catalog.names("workload"):
        shape = catalog.record(types.Workload, slug)
        kinds = "; ".join(_kinds(shape))
        if kinds:
            published = catalog.entry("workload", slug).value("parameters_published")
            counted = float(parameter_count(main_model(shape))) / 1e9
            yield [slug, kinds, f"{counted:.3g}", "–" if published is None else f"{published / 1e9:.3g}"]


def _kinds(shape: Workload) -> Iterator[str]:
    """What the layers of a model are beside plain attention and a dense feed-forward."""
    r, sparse = shape.recurrent, shape.sparse
    if shape.latent is not None:
        yield "latent attention"
    if r is not None:
        yield f"{r.recurrent_layers:g} with a state, {r.attention_layers:g} that attend, {r.ffn_layers:g} feed-forwards"
    if sparse is not None:
        yield f"sparse attention to {sparse.attended:g} tokens" + (", indexer" if sparse.index_heads else "")
    if shape.local_layers > 0.0:
        yield f"window of {shape.window:g} in {float(shape.local_layers):.0%}"
    if shape.experts is not None:
        yield f"{shape.experts.n_experts:g} experts, {shape.experts.top_k:g} a token"


if __name__ == "__main__":
    main()
