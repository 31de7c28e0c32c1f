"""Serving: what must hold of latency, throughput and memory, and the traps that sources of rows name."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest

import dse
from dse import types
from dse.designs import catalog
from dse.doors import SERVING, serve_pools
from dse.doors.serving import bounds, serve, step_bounds
from dse.equations import recording
from dse.model import Batch, cache_bytes, parameter_count, stage_of, weight_bytes
from dse.model.work.blocks import attention_of
from dse.model.work.states import States
from dse.types import Infeasible, Serving
from tests.programs import by_numpy, compiled, served


def metrics(workload="llama-3-70b", system="h100-sxm-80gb", **settings):
    """Metrics as plain numbers by name."""
    stated = {"tp": 8, "precision": "fp8", "load": "concurrency", "drafts": 0.0, "request_time": 0.1}
    design = dse.design(workload, system, "megatron-core", any_option=True, **{**stated, **settings})
    found = served(design)
    return {name: float(getattr(found, name)) for name in SERVING.units}


LOADS = [
    dict(load="concurrency", concurrency=64), dict(load="concurrency", concurrency=64, mixed=0),
    dict(load="static", concurrency=16), dict(load="waves", concurrency=9000), dict(load="offline"),
    dict(load="concurrency", concurrency=32, drafts=3), dict(load="concurrency", concurrency=9000),
]  # fmt: skip


@pytest.mark.parametrize("load", LOADS, ids=lambda load: " ".join(f"{k} {v}" for k, v in load.items()))
def test_parts_add_up_and_everything_is_finite(load):
    found = metrics(**load)
    assert all(np.isfinite(value) for value in found.values())
    for total in SERVING.totals:
        parts = [found[name] for name in SERVING.parts(total)]
        assert min(parts) >= 0.0 and sum(parts) == pytest.approx(found[total], rel=1e-5)


def test_littles_law():
    """Requests in flight are the rate times the time of each, as far as prompts do not queue."""
    for concurrency in (4, 32, 128):
        found = metrics(concurrency=concurrency, request_time=0.0)
        flight = found["requests_per_second"] * found["request_latency"]
        assert flight == pytest.approx(concurrency, rel=0.05)


def test_a_token_takes_no_less_than_reading_the_weights():
    for tp, precision in itertools.product((1, 8), ("bf16", "fp8")):
        design = dse.design("llama-3-8b", "h100-sxm-80gb", "megatron-core", any_option=True, tp=tp, precision=precision)
        stage = stage_of(design)
        read = float(weight_bytes(stage.design, stage.layout, Serving())) * 0.85  # the embedding is looked up
        found = float(served(design).time_per_output_token)
        assert found > read / design.system.accelerator.memory.bandwidth


def test_more_in_flight_answer_more_and_wait_longer():
    rows = [metrics(concurrency=c) for c in (1, 4, 16, 64, 256, 1024)]
    for few, many in itertools.pairwise(rows):
        assert many["output_tokens_per_second"] > few["output_tokens_per_second"]
        assert many["time_per_output_token"] > few["time_per_output_token"]
        assert many["time_to_first_token"] >= few["time_to_first_token"]
        assert many["peak_memory_cache"] > few["peak_memory_cache"]


def test_cache_of_grouped_queries():
    """Yi-34B: 60 layers, 8 key/value heads of 128: 12.3 GB at 50,000 tokens, 1.0 at 4,000 (Fu 2024)."""
    yi = dict(n_layers=60.0, hidden=7168.0, n_heads=56.0, n_kv_heads=8.0, head_dim=128.0, ffn_hidden=20480.0)
    design = dse.design("llama-2-70b", "a100-sxm-80gb", "megatron-core", any_option=True, **yi)
    for tokens, gigabytes in ((50_000.0, 12.3), (4_000.0, 1.0)):
        assert 60.0 * float(cache_bytes(design, Serving(), tokens)) / 1e9 == pytest.approx(gigabytes, rel=0.02)


#: Bytes of the state of a sequence in one layer (model_fields_extra.csv: from the vendors' configurations).
STATES = {"qwen3-5-397b-a17b": 4194304, "nemotron-nano-9b-v2": 2621440, "nemotron-nano-12b-v2": 2621440}


@pytest.mark.parametrize("name", STATES)
def test_a_state_has_one_size(name):
    """Published bytes; as many for any number of tokens, split by tp."""
    shape = catalog.record(types.Workload, name)
    published = States(dataclasses.replace(shape.recurrent, convolution=0.0)).cache_bytes(1.0)
    assert published == STATES[name]
    mixed = float(shape.recurrent.attention_layers / shape.n_layers)
    design = dse.design(name, "h200", any_option=True)
    short, long = (float(cache_bytes(design, Serving(), tokens)) for tokens in (1e3, 1e6))
    heads = 2.0 * 2.0 * float(shape.n_kv_heads * shape.head_dim)
    assert long - short == pytest.approx(mixed * heads * (1e6 - 1e3), rel=1e-4)


def test_hybrids_and_sparse_attention_pay_less_for_length():
    """Time of a token grows with length: not at all with states alone, least of those that attend with an indexer."""
    long = dict(load="static", tp=8, precision="bf16", concurrency=8, output_tokens=64.0)
    added = {}
    for name in ("mamba-2-2-7b", "nemotron-nano-9b-v2", "llama-3-8b"):
        few, many = (metrics(name, prompt_tokens=tokens, **long) for tokens in (4096, 131072))
        added[name] = many["time_per_output_token"] - few["time_per_output_token"]
        assert many["feasible"]
    assert added["mamba-2-2-7b"] == pytest.approx(0.0, abs=1e-7)
    assert added["nemotron-nano-9b-v2"] < 0.3 * added["llama-3-8b"]
    whole, sparse = (
        [metrics("glm-5", ep=8, **long | more, prompt_tokens=tokens) for tokens in (1024, 131072)]
        for more in ({"attended": 1e9}, {})
    )
    assert sparse[0]["time_per_output_token"] == pytest.approx(whole[0]["time_per_output_token"], rel=1e-6)
    assert sparse[1]["time_per_output_token_attention"] < 0.4 * whole[1]["time_per_output_token_attention"]
    assert sparse[1]["time_to_first_token_prefill"] < 0.8 * whole[1]["time_to_first_token_prefill"]
    assert sparse[1]["peak_memory_cache"] == whole[1]["peak_memory_cache"]  # what is not attended to is kept


def test_a_window_costs_what_it_holds():
    """Prompts of a model all of whose layers are local: each token attends to the window, not to half of it."""
    for window, near in ((1024.0, 1024.0 * (1.0 - 1024.0 / 16384.0 / 2.0)), (1e6, 8192.0)):
        design = dse.design("mistral-7b", "h100", window=window)
        stage = stage_of(design)
        batch = Batch(0.0, 0.0, 16384.0, 8192.0)
        found = attention_of(design.workload).serving_core(Serving(), stage.layout, batch)[1].forward.flops
        pair = 4.0 * 32 * 128
        assert float(found) == pytest.approx(16384.0 * near * pair, rel=1e-5)


def test_training_tells_what_it_does_not_model():
    for name in ("mamba-2-2-7b", "glm-5"):
        found = dse.evaluate(dse.design(name, "h200", n_devices=8, tp=8, any_option=True))
        assert int(found.infeasible_reason) & Infeasible.layers_unsupported and np.isfinite(float(found.step_time))


def test_a_context_is_switched_over_the_link_to_the_host():
    """The bytes of a request's cache over that rate (Fu 2024); more of them the longer it is."""
    short, long = (metrics(prompt_tokens=tokens, output_tokens=1.0, paged=0) for tokens in (4096, 65536))
    cache = 2.0 * 2.0 * 80 * 128 * 65537  # one of eight key/value heads on each of eight devices
    bandwidth = dse.design("llama-3-70b", "h100-sxm-80gb").system.host.bandwidth
    assert long["context_switch_time"] == pytest.approx(cache / bandwidth, rel=1e-4)
    assert long["context_switch_time"] > 15.0 * short["context_switch_time"]


def test_weights_are_the_parameters_in_their_format():
    """In gigabytes, not gibibytes; tp splits them; embedding and head stay in 16 bits."""
    shape = catalog.record(types.Workload, "llama-3-70b")
    half, whole = metrics(tp=8), metrics(tp=4)
    assert whole["peak_memory_weights"] == pytest.approx(2.0 * half["peak_memory_weights"], rel=0.01)
    ends = 2.0 * shape.vocab * shape.hidden
    expected = float(parameter_count(shape)) - ends + 2.0 * ends
    assert 8.0 * half["peak_memory_weights"] == pytest.approx(expected, rel=0.01)


def test_memory_limits_the_batch():
    """Beyond what memory holds requests wait, for about the time that those before them take."""
    tight = dict(tp=1, precision="fp8", **{"system.accelerator.memory.capacity": 100e9})
    limit = metrics(**tight)["concurrency_limit"]
    inside, beyond = (metrics(concurrency=share * limit, **tight) for share in (0.9, 3.0))
    assert beyond["peak_memory"] <= 0.9 * 100e9 * 1.001 and not inside["infeasible_reason"]
    assert beyond["time_to_first_token_waiting"] > 10.0 * inside["time_to_first_token_waiting"]
    static = metrics(load="static", concurrency=3.0 * limit, **tight)
    assert int(static["infeasible_reason"]) == Infeasible.memory


def test_prefill_work_is_conserved():
    """The prompt of a static batch takes as long as its tokens in one step, twice the batch twice as long."""
    one, two = (metrics(load="static", concurrency=c, prompt_tokens=4096) for c in (16, 32))
    ratio = two["time_to_first_token_prefill"] / one["time_to_first_token_prefill"]
    assert ratio == pytest.approx(2.0, rel=0.03)
    cached = metrics(load="static", concurrency=16, prompt_tokens=4096, prefix_share=0.5)
    assert cached["time_to_first_token_prefill"] < 0.6 * one["time_to_first_token_prefill"]


def test_a_pipeline_is_throughput_not_latency():
    """Stages each work on a part of the batch: one sequence gains nothing, many do."""
    few, many = (
        [metrics(tp=1, pp=pp, precision="fp8", concurrency=c, prompt_tokens=128) for pp in (1, 4)] for c in (1, 512)
    )
    assert few[1]["time_per_output_token"] > 0.9 * few[0]["time_per_output_token"]
    assert many[1]["output_tokens_per_second"] > 1.5 * many[0]["output_tokens_per_second"]


@pytest.mark.parametrize(("load", "prompt"), [("concurrency", 128), ("concurrency", 32000), ("static", 32000)])
def test_one_prompt_crosses_a_pipeline_stage_by_stage(load, prompt):
    """Of one piece it takes the sum over the stages, however many; pieces of a chunk follow each other."""
    of = dict(tp=2, concurrency=1, prompt_tokens=prompt, output_tokens=200, load=load)
    level = [f"system.{link}.{value}" for link in ("scale_up", "scale_out") for value in ("bandwidth", "latency")]
    at_once = dict(zip(level, (1e15, 1e-9) * 2, strict=True))
    real, whole = (
        [metrics(pp=pp, chunk=32768, **of, **links)["time_to_first_token_prefill"] for pp in (1, 2, 4, 8)]
        for links in ({}, at_once)
    )
    assert whole == pytest.approx([whole[0]] * 4, rel=5e-3)
    assert real == sorted(real), "real links take time to hand on"
    cut = [metrics(pp=pp, chunk=4000, **of)["time_to_first_token_prefill"] for pp in (1, 4)]
    pieces = min(max(prompt / 4000, 1.0), 4.0 if load == "static" else 8.0)  # a batch is cut into one a stage
    assert cut[1] / cut[0] == pytest.approx((pieces + 3.0) / (4.0 * pieces), rel=0.15)


@pytest.mark.parametrize(
    ("link", "tp", "pp", "borders"),
    [
        ("scale_up", 1, 4, 3), ("scale_up", 1, 8, 7),
        ("scale_out", 1, 8, 0), ("scale_out", 2, 8, 1), ("scale_out", 2, 16, 3),
    ],
)  # fmt: skip
def test_stages_hand_on_what_they_have_computed(link, tp, pp, borders):
    """A prompt crosses each border once, those between nodes of eight devices alone on the slower network."""
    of = dict(tp=tp, pp=pp, concurrency=1, prompt_tokens=32000, output_tokens=200, chunk=32768)
    rates = 50e9, 25e9
    fast, slow = (metrics(**of, **{f"system.{link}.bandwidth": rate}) for rate in rates)
    added = slow["time_to_first_token_prefill"] - fast["time_to_first_token_prefill"]
    efficiency = getattr(dse.design("llama-3-70b", "h100").system, link).efficiency
    sent = 2.0 * 8192 * 32000 / tp  # each rank its share
    wire = borders * sent / efficiency * (1 / rates[1] - 1 / rates[0])
    assert added == pytest.approx(wire, rel=0.1) and added >= wire, "of a link that takes time to fill"


def test_prompts_of_others_fill_a_pipeline():
    """As many prompts at once as stages are in all of them; their work is what it was."""
    batch = [metrics(pp=4, tp=2, load="static", concurrency=c, prompt_tokens=4096) for c in (1, 4, 8)]
    first = [found["time_to_first_token_prefill"] for found in batch]
    assert first[1] / first[0] == pytest.approx(7.0 / 4.0, rel=0.03)
    assert first[2] / first[1] == pytest.approx(2.0, rel=0.03)


def test_of_a_full_mesh_a_group_has_the_links_to_its_members():
    """Two of eight devices have one of seven links, as in training; all eight have them all."""
    of = dict(system="mi300x", concurrency=64, prompt_tokens=8000, output_tokens=64)
    for tp, links in ((2, 1 / 7), (8, 1.0)):
        switch, mesh, slow = (
            metrics(tp=tp, **of, **{"system.scale_up.mesh": mesh, **link})["time_to_first_token_prefill"]
            for mesh, link in ((0, {}), (1, {}), (0, {"system.scale_up.bandwidth": links * _bandwidth("mi300x")}))
        )
        assert mesh == pytest.approx(slow, rel=1e-4)
        assert mesh > 1.2 * switch if tp == 2 else mesh == pytest.approx(switch, rel=1e-6)


def _bandwidth(system):
    return float(dse.design("llama-3-8b", system).system.scale_up.bandwidth)


def test_a_narrow_cache_holds_more():
    wide, narrow = metrics(tp=2), metrics(tp=2, cache_bytes=1.0)
    assert narrow["concurrency_limit"] == pytest.approx(2.0 * wide["concurrency_limit"], rel=1e-5)


def test_experts_touched():
    """A few tokens read a few experts: a step of one token is far below that of many, which read all."""
    rows = [
        metrics("qwen3-235b-a22b", tp=8, ep=1, etp=8, concurrency=c, prompt_tokens=1.0)["time_per_output_token_matrix"]
        for c in (1, 8, 64, 512)
    ]
    assert rows[1] > 1.5 * rows[0] and rows[3] < 3.0 * rows[2]


def test_drafts_pay_where_they_are_accepted():
    """3 drafts at 0.63 are 2.3 tokens a step; none accepted only cost."""
    plain, good, bad = (
        metrics(concurrency=4, **drafts)
        for drafts in ({}, dict(drafts=3, acceptance=0.63), dict(drafts=3, acceptance=0.0))
    )
    gain = plain["time_per_output_token"] / good["time_per_output_token"]
    assert 1.9 < gain < 2.3 and bad["time_per_output_token"] > plain["time_per_output_token"]


def test_limits_are_reasons():
    late = metrics(concurrency=256, first_token_limit=0.05)
    slow = metrics(concurrency=256, token_limit=0.001)
    fine = metrics(concurrency=256, first_token_limit=5.0, token_limit=0.5)
    reasons = [int(found["infeasible_reason"]) for found in (late, slow, fine)]
    assert reasons == [Infeasible.latency, Infeasible.latency, 0]


def test_an_offline_queue_promises_no_first_token():
    """It has no end: a limit of the first token is kept by none, one of output tokens as ever."""
    free, first, token = (
        metrics(load="offline", prompt_tokens=2048, **limit)
        for limit in ({}, {"first_token_limit": 1e5}, {"token_limit": 10.0})
    )
    assert free["goodput"] == free["requests_per_second"] == pytest.approx(token["goodput"])
    assert not free["infeasible_reason"] and not token["infeasible_reason"]
    assert first["goodput"] == 0.0 and int(first["infeasible_reason"]) == Infeasible.latency
    assert first["requests_per_second"] == free["requests_per_second"]


def test_goodput():
    """What is answered in time: all without limits, less the tighter they are and the more lengths spread."""
    load = dict(concurrency=128, prompt_tokens=4096)
    free = metrics(**load)
    assert free["share_in_time"] == 1.0 and free["goodput"] == free["requests_per_second"]
    first, token = free["time_to_first_token"], free["time_per_output_token"]
    alone = free["time_to_first_token"] - free["time_to_first_token_waiting"]
    shares = [metrics(first_token_limit=limit, **load)["share_in_time"] for limit in (0.99 * alone, first, 5.0 * first)]
    # Of exponential waiting 1 - 1/e ends within the mean.
    assert shares[0] == 0.0 and shares[1] == pytest.approx(1.0 - np.exp(-1.0), rel=1e-3) and shares[2] > 0.9
    tight = dict(first_token_limit=1.1 * alone, **load)
    assert metrics(length_spread=0.5, **tight)["share_in_time"] != metrics(**tight)["share_in_time"]
    shares = [metrics(token_limit=share * token, **load)["share_in_time"] for share in (0.8, 1.0, 1.2)]
    assert shares[0] < 0.05 and shares[1] == pytest.approx(0.5, abs=0.01) and shares[2] > 0.95


@pytest.mark.parametrize(
    ("prompt", "output", "published"),
    [(128, 128, 29526.0), (128, 2048, 25399.0), (2048, 128, 3794.0), (2048, 2048, 11969.0)],
)
def test_offline_throughput_without_any_fit(prompt, output, published):
    """TensorRT-LLM 0.17, Llama-3-8B in fp8 on one H200 (NVIDIA/TensorRT-LLM, performance overview).

    Its benchmark gives the engine up to 4,096 requests (``dse/measured/serving_rows.py``).
    """
    found = metrics(
        "llama-3-8b",
        "h200-sxm-141gb",
        tp=1,
        cache_bytes=1.0,
        load="offline",
        most_sequences=4096.0,
        prompt_tokens=prompt,
        output_tokens=output,
    )
    assert found["output_tokens_per_second"] == pytest.approx(published, rel=0.15)


@pytest.mark.parametrize(("tp", "ep"), [(8, 1), (8, 2), (8, 8), (4, 1), (1, 1)])
def test_no_expert_lies_twice_in_the_ranks_of_tp(tp, ep):
    """A stack that splits layers over tp splits experts too: by their width where ep leaves ranks over."""
    split = metrics("mixtral-8x7b", "h200", tp=tp, ep=ep, concurrency=8.0, precision="bf16")
    stated = metrics("mixtral-8x7b", "h200", tp=tp, ep=ep, etp=tp / ep, concurrency=8.0, precision="bf16")
    assert split == stated
    assert split["peak_memory_weights"] == pytest.approx(46.7e9 * 2.0 / tp, rel=0.02)


def test_a_longer_chunk_takes_memory():
    """405B on eight H200s: three vectors of 16,384 and the feed-forward's 2 x 53,248 / 8, two bytes each, a token."""
    room = [
        metrics("llama-3-405b", "h200", tp=8, concurrency=8.0, precision="fp8", prompt_tokens=131072.0, chunk=chunk)
        for chunk in (2048.0, 8192.0, 32768.0, 131072.0)
    ]
    runtime = [one["peak_memory_runtime"] for one in room]
    assert runtime[1] == 2.5e9
    for chunk, one in ((2048, runtime[0]), (131072, runtime[3])):
        assert one - runtime[1] == pytest.approx((chunk - 8192) * 2 * (3 * 16384 + 2 * 53248 / 8), rel=1e-4)
    assert room[3]["concurrency_limit"] < room[2]["concurrency_limit"] < room[1]["concurrency_limit"]


def test_a_card_alone_has_no_buffers_for_peers():
    """vLLM 0.19 has 41,408 tokens of an 8B's cache on an RTX 4090 with steps of 2,048 (LLMServingSim), 128 KiB each.

    By hand: 0.9 x 23.64 GiB - 16.06 GB of weights - (2.5 - 0.5 - 6,144 x 2 x (3 x 4,096 + 2 x 14,336) / 1e9) GB.
    """
    settings = dict(tp=1, precision="bf16", chunk=2048.0, prompt_tokens=1024.0, output_tokens=1.0)
    found = metrics("llama-3-8b", "rtx-4090", **settings)
    free = 0.9 * 23.64 * 2**30 - found["peak_memory_weights"] - found["peak_memory_runtime"]
    assert found["peak_memory_runtime"] == pytest.approx(2e9 - 6144 * 2 * (3 * 4096 + 2 * 14336), rel=1e-4)
    assert free / 131072 == pytest.approx(41_408, rel=0.05)


def test_chains_of_keys_in_latent_attention_by_hand():
    """61 layers x 8,192.5 cached tokens x 5.5 ns = 2.75 ms more a token on MI300X, for one sequence and for 16."""
    for sequences in (1.0, 16.0):
        settings = dict(tp=8, concurrency=sequences, prompt_tokens=8192.0, output_tokens=2.0, precision="fp8_block")
        attention = [
            metrics("deepseek-v3", "mi300x", **settings, latent_key=key)["time_per_output_token_attention"]
            for key in (0.0, 5.5e-9)
        ]
        assert attention[1] - attention[0] == pytest.approx(61 * 8192.5 * 5.5e-9, rel=2e-3)


def test_sums_over_two_nodes_by_hand():
    """Two sums in each of 61 layers pass the threads of two hosts: 122 x 25 us = 3.05 ms; within a node none does."""
    for tp, more in ((8, 0.0), (16, 122 * 25e-6)):
        settings = dict(tp=tp, concurrency=1.0, prompt_tokens=1024.0, output_tokens=64.0, precision="fp8")
        sums = [
            metrics("deepseek-v3", "h200", **settings, crossing_time=time)["time_per_output_token_communication"]
            for time in (0.0, 25e-6)
        ]
        assert sums[1] - sums[0] == pytest.approx(more, rel=1e-3, abs=1e-9)


def test_a_shared_prefix_is_stored_once():
    """32,768 tokens of which nine tenths are shared: room for ten times as many, and one copy of what they share."""

    def found(share):
        settings = dict(tp=8, prompt_tokens=32768, output_tokens=1, concurrency=1, prefix_share=share)
        return dse.serve(dse.design("llama-3-70b", "h100", any_option=True, **settings))

    apart, shared = found(0.0), found(0.9)
    prefix = 0.9 * 32768 / 32768.5
    room = float(apart.concurrency_limit)
    assert float(shared.concurrency_limit) == pytest.approx((room - prefix) / (1.0 - prefix), rel=1e-3)
    assert float(shared.peak_memory_cache) == pytest.approx(float(apart.peak_memory_cache), rel=1e-4)


@pytest.mark.parametrize(
    ("workload", "mapping", "most", "with_energy"),
    [("llama-3-70b", dict(tp=8), 3_290, 3_900), ("deepseek-v3", dict(tp=8, ep=8), 5_817, 6_860)],
)
def test_the_program_stays_small(workload, mapping, most, with_energy):
    """As sweeps have it, without energy, money and carbon unless they are asked for.

    The bill of an accelerator whose dies are known takes 438 equations, what its system costs and emits 142,
    percentiles a quarter of what has no group. A host that works while the device does takes 33, the busiest rank and
    ranks that step together 90, the last wave of a queue 11, gathered tokens and ranks in phase 5, their rings 8, steps
    without a graph 8, experts of unequal popularity that a step reads 28, the square
    of narrow slices 1, prompts that never shorten a step 1, those of answers
    that end together 3, attention of engines as measured alone 5, launches and memory that follow the clock 17, balance
     and copies of experts 37, steps in two halves 160 and 25 for their energy, halves that nothing hides 6, memory of
     short steps and of devices without peers 5, sums over several nodes 7, chains of keys of latent attention 18.
    """
    design = SERVING.complete(dse.design(workload, "h100", any_option=True, concurrency=64, **mapping))
    asked = set(SERVING.units).difference(*map(SERVING.group, SERVING.optional))

    def count(kept):
        def function(point):
            found = serve(point)
            return {name: getattr(found, name) for name in kept}

        return len(recording.trace(function, jax.tree.map(np.float32, design))[0].equations)

    unpriced, tails = count(asked | SERVING.group("energy")), SERVING.group("tails")
    assert count(asked) <= most and unpriced <= with_energy
    assert count(set(SERVING.units) - tails) <= unpriced + 640
    assert count(asked | tails) <= 1.3 * most  # of which a further step of the engine is two thirds


def test_buffers_of_every_operator_grow_with_sequences_and_leave_room_for_fewer():
    """Six vectors of the hidden size, heads and feed-forward by tp, the scores' square: by hand, of Llama 3 70B."""
    stated = dict(load="static", prompt_tokens=1024, precision="fp16", system="h200-sxm-141gb")
    plain, own, more = (
        metrics(**stated, **k)
        for k in (
            dict(concurrency=8),
            dict(concurrency=8, own_buffers=1),
            dict(concurrency=16, own_buffers=1),
        )
    )
    heads = (4 * 64 + 4 * 8) * 128 / 8
    each = 2 * 1024 * (6 * 8192 + heads + 2 * 28672 / 8 + (64 / 8 + 1) * 1024) + 8 * 128256
    assert own["peak_memory_runtime"] - plain["peak_memory_runtime"] == pytest.approx(8 * each, rel=1e-3)
    assert more["peak_memory_runtime"] - own["peak_memory_runtime"] == pytest.approx(8 * each, rel=1e-3)
    assert own["concurrency_limit"] < plain["concurrency_limit"]
    assert own["request_latency"] == plain["request_latency"]


def test_a_slow_host_shows_where_the_device_does_not_hide_it():
    """Of a Grace processor what follows the kernels is 1.25 times as long; with all of it hidden nothing is."""
    asked = dict(load="static", concurrency=256, system="gb200-nvl72", layer_time=0.0, host_step_time=2e-3)
    (fast, slow), (before, after) = (
        [
            metrics(**asked, host_overlap=hidden, **{"system.host_slowdown": slow})["time_per_output_token_host"]
            for slow in (1.0, 1.25)
        ]
        for hidden in (0.0, 1.0)
    )
    assert slow == pytest.approx(1.25 * fast) and before == after == pytest.approx(0.0, abs=1e-9)


def test_a_request_alone_waits_for_no_prompt_but_its_own():
    """Mean-value analysis: its own long prompt delays none of its tokens, and each step reads its whole cache."""
    alone = metrics(concurrency=1, prompt_tokens=131072, output_tokens=256, request_time=0.0)
    static = metrics(load="static", concurrency=1, prompt_tokens=131072, output_tokens=256, request_time=0.0)
    assert alone["time_per_output_token_prefill"] == 0.0
    assert alone["time_per_output_token"] == pytest.approx(static["time_per_output_token"], rel=1e-5)
    assert alone["requests_per_second"] * alone["request_latency"] == pytest.approx(1.0, rel=0.01)


def test_plain_numbers_and_jax_agree():
    """In double precision to rounding; in single precision a wait is what is left of times ten times as long."""
    design = dse.design("llama-3-8b", "h100", precision="fp8", concurrency=32)
    with jax.enable_x64(True):
        exact, traced_exactly = dse.serve(design), compiled(serve)(design)
    plain, traced = dse.serve(design), compiled(serve)(design)
    waited = 3e-5 * float(exact.time_to_first_token)
    for name in SERVING.units:
        assert float(getattr(exact, name)) == pytest.approx(float(getattr(traced_exactly, name)), rel=1e-12)
        close = pytest.approx(float(getattr(traced, name)), rel=2e-5, abs=waited if "first_token" in name else None)
        assert float(getattr(plain, name)) == close


def test_energy_by_phase():
    """Prompts draw more than decoding, less than what is provisioned; a slower clock takes longer and less energy.

    At a low clock prompts draw less than decoding, whose memory and caches keep their voltage.
    """
    many = dict(concurrency=64, prompt_tokens=4096)
    fast, slow = metrics(**many), metrics(**many, **{"power.clock": 1.2e9})
    assert fast["decode_power"] < fast["prefill_power"]
    for found in (fast, slow):
        assert found["average_power"] < found["peak_power"] < found["provisioned_power"]
        assert found["average_power"] == pytest.approx(
            found["energy_per_output_token"] * found["output_tokens_per_second"], rel=1e-5
        )
    assert slow["time_to_first_token"] > fast["time_to_first_token"]
    assert slow["energy_per_output_token_prefill"] < fast["energy_per_output_token_prefill"]
    assert metrics(concurrency=512)["energy_per_output_token"] < metrics(concurrency=4)["energy_per_output_token"]


def test_a_power_limit_slows_prompts_before_it_slows_decoding():
    """A lower limit is never faster, none is drawn over, the one as sold changes nothing (POLCA, Patel et al. 2024)."""
    limits = (100.0, 250.0, 300.0, 400.0, 550.0, 700.0)
    stated = dict(concurrency=64, prompt_tokens=4096, request_time=0.0, mixed=0)
    designs = [
        dse.design("llama-3-8b", "h100-sxm-80gb", "megatron-core", any_option=True, **stated, **limit)
        for limit in ({}, *({"power.limit": watts} for watts in limits))
    ]
    free, many = served(designs[0]), [served(one) for one in designs[1:]]
    found = jax.tree.map(lambda *values: np.array(values), *many)
    for name in ("time_to_first_token_prefill", "time_per_output_token", "request_latency"):
        assert np.all(np.diff(getattr(found, name)) <= 1e-6 * getattr(found, name)[1:])
        assert getattr(found, name)[-1] == pytest.approx(float(getattr(free, name)), rel=1e-3)
    for name in ("decode_power", "prefill_power"):
        assert np.all(getattr(found, name)[1:] <= 1.01 * np.array(limits[1:]))
    assert np.all(np.diff(found.device_power) >= -1e-3)
    nominal = float(designs[0].system.accelerator.power.nominal_clock)
    assert float(free.decode_clock_reached) == float(free.prefill_clock_reached) == nominal
    assert np.all(found.prefill_clock_reached <= found.decode_clock_reached * (1.0 + 1e-3))
    for clocks in (found.decode_clock_reached, found.prefill_clock_reached):
        assert np.all(np.diff(clocks) >= -1e-3 * nominal) and np.all(clocks <= nominal)
    # At 550 W prompts are slower, and decoding is not; its own time is all but the interruptions by prompts.
    own = found.time_per_output_token - found.time_per_output_token_prefill
    assert found.time_to_first_token_prefill[4] > 1.01 * found.time_to_first_token_prefill[5]
    assert own[4] == pytest.approx(own[5], rel=5e-3) and own[1] > 1.05 * own[5]
    assert [int(reason) for reason in found.infeasible_reason] == [Infeasible.power, 0, 0, 0, 0, 0]


def test_weights_narrower_than_their_products_take_fewer_bytes_and_no_less_compute():
    """W4A16: a token of one sequence follows the bytes of the weights, a long prompt the rate of 16 bits."""
    asked = dict(precision="bf16", concurrency=1, prompt_tokens=8192, output_tokens=64, tp=4)
    wide, narrow = (metrics("llama-3-70b", "a100", weight_bytes=size, **asked) for size in (0.0, 0.53))
    ends = 2 * 2 * 128256 * 8192 / 4  # embedding and head stay in 16 bits
    layers = wide["peak_memory_weights"] - ends
    assert narrow["peak_memory_weights"] - ends == pytest.approx(0.53 / 2.0 * layers, rel=1e-3)
    saved = (wide["peak_memory_weights"] - narrow["peak_memory_weights"]) / 2.039e12
    gain = wide["time_per_output_token"] - narrow["time_per_output_token"]
    assert saved < gain < 1.4 * saved  # over what kernels reach of the bandwidth
    assert narrow["time_to_first_token_prefill"] == pytest.approx(wide["time_to_first_token_prefill"], rel=0.03)
    assert narrow["concurrency_limit"] > 1.3 * wide["concurrency_limit"]


def test_what_drafts_tokens_is_a_layer_more_however_many_it_drafts():
    """The module of DeepSeek-V3 that predicts a further token has 11.5 thousand million weights of its own."""
    held = [
        metrics("deepseek-v3", "h200", tp=8, precision="fp8", drafts=drafts)["peak_memory_weights"]
        for drafts in (0.0, 1.0, 3.0)
    ]
    assert held[1] == held[2] and 8.0 * (held[1] - held[0]) == pytest.approx(11.5e9, rel=0.1)


def test_an_indexer_of_8_bit_keys_computes_in_8_bits():
    """DSA scores every token in fp8 (DeepSeek-AI 2025): twice as fast where the chip has a rate of it."""
    asked = dict(tp=8, precision="fp8", concurrency=1, prompt_tokens=131072, output_tokens=16)
    narrow, wide = (metrics("glm-5", "h200", index_bytes=size, **asked) for size in (1.0, 2.0))
    assert narrow["time_to_first_token_prefill"] < 0.85 * wide["time_to_first_token_prefill"]


@pytest.mark.parametrize("chip", ["a100", "h100", "mi300x"])
def test_a_deep_limit_is_used_up(chip):
    """Below the clock at which cores ask for less than the memory has, time grows faster, and so power falls faster."""
    stated = dict(tp=8, concurrency=16, prompt_tokens=2048, output_tokens=512)
    sold = dse.design("llama-3-70b", chip, **stated).system.accelerator.power.tdp
    for share in (0.36, 0.4, 0.55):
        found = dse.serve(dse.design("llama-3-70b", chip, **stated, **{"power.limit": share * sold}))
        assert float(found.decode_power) == pytest.approx(share * sold, rel=0.02)
        assert float(found.device_power) < 1.01 * share * sold


def test_pools_serve_as_the_slower_of_them():
    """Splitwise: what decodes waits for no prompts; the cache of a prompt travels once."""
    stated = dict(precision="fp8", prompt_tokens=1500, output_tokens=150, request_time=0.0)

    def pool(tp, concurrency, **more):
        return dse.design("llama-3-70b", "h100", any_option=True, tp=tp, concurrency=concurrency, **stated, **more)

    one = by_numpy(serve_pools)
    found = one(pool(4, 1.0), pool(4, 64.0))
    many = one(pool(4, 1.0), pool(4, 256.0))
    together = served(pool(4, 64.0))
    assert found.time_per_output_token < together.time_per_output_token
    assert max(float(found.prefill_load), float(found.decode_load)) == pytest.approx(1.0)
    assert many.prefill_load >= found.prefill_load and many.decode_load < found.decode_load
    cache = 2.0 * 2.0 * 80 * 2 * 128 * 1500  # two of eight key/value heads a device
    bandwidth = pool(4, 1.0).system.scale_out.bandwidth
    assert float(found.transfer_time) == pytest.approx(cache / bandwidth, rel=1e-5)
    assert found.request_latency == pytest.approx(
        float(found.time_to_first_token + 149.0 * found.time_per_output_token), rel=1e-5
    )
    tokens_an_hour = 3600.0 * 150.0 * found.requests_per_second
    assert 1.2 < float(found.cost_per_token * tokens_an_hour) / 8.0 < 2.2  # USD of an hour of an H100


def test_pools_that_cannot_serve_are_told():
    """By the bits of each: heads that tp does not divide, weights or prompts that no memory holds, late tokens."""
    stated = dict(workload="llama-3-70b", system="h100", any_option=True, prompt_tokens=1500, output_tokens=150)

    def pool(**more):
        return dse.design(**{**stated, "tp": 8, "precision": "fp8", "concurrency": 4, **more})

    def reasons(prefill, decode):
        found = dse.serve_pools(prefill, decode)
        own = int(found.prefill_infeasible_reason), int(found.decode_infeasible_reason)
        assert bool(found.feasible) == (own == (0, 0)) and int(found.infeasible_reason) == own[0] | own[1]
        return tuple(map(Infeasible, own))

    none = Infeasible(0)
    assert reasons(pool(), pool(concurrency=65536)) == (none, none)
    assert reasons(pool(tp=1, precision="bf16"), pool()) == (Infeasible.memory, none)
    assert reasons(pool(concurrency=65536), pool()) == (Infeasible.memory, none)
    assert Infeasible.heads_not_divisible in reasons(pool(), pool(tp=3))[1]
    assert reasons(pool(first_token_limit=0.001), pool(token_limit=0.001)) == (Infeasible.latency,) * 2
    assert reasons(pool(first_token_limit=5.0), pool(token_limit=1.0, concurrency=9000)) == (none, none)
    with pytest.raises(dse.InputError, match="give both pools one workload"):
        dse.serve_pools(pool(), pool(workload="llama-3-8b"))


def test_requests_that_a_pool_does_not_hold_wait():
    """By Little's law: all that are in flight are answered at the rate of the pool."""
    stated = dict(workload="llama-3-70b", system="h100", any_option=True, prompt_tokens=1500, output_tokens=150)
    prefill = dse.design(**stated, tp=8, precision="fp8", concurrency=4)
    found = {
        many: dse.serve_pools(prefill, dse.design(**stated, tp=8, precision="fp8", concurrency=many))
        for many in (64, 4096, 65536)
    }
    assert found[64].waiting_time == 0.0
    rate = found[65536].requests_per_second / found[65536].decode_load
    assert (65536 - 4096) / float(rate) == pytest.approx(
        float(found[65536].waiting_time - found[4096].waiting_time), rel=1e-3
    )
    for one in found.values():
        whole = one.time_to_first_token + one.waiting_time + 149.0 * one.time_per_output_token
        assert float(one.request_latency) == pytest.approx(float(whole), rel=1e-5)


def test_what_bounds_a_token_adds_up():
    """Decoding few waits for memory and links, prompts for compute; of both kinds of steps and of the token."""
    for workload, mapping in (("llama-3-70b", dict(tp=8)), ("deepseek-v3", dict(tp=8, ep=8))):
        stated = dict(concurrency=16, prompt_tokens=8192, precision="fp8", any_option=True)
        design = dse.design(workload, "h200-sxm-141gb", "vllm", **stated, **mapping)
        by_step, by_token = step_bounds(design), bounds(design)
        assert float(by_token.total) == pytest.approx(float(serve(design).time_per_output_token), rel=1e-5)
        assert min(map(float, (*by_token, *by_step.decode, *by_step.prefill))) >= 0.0
        assert by_step.decode.memory > 5.0 * by_step.decode.compute
        assert by_step.prefill.compute > by_step.prefill.memory


def test_servers_are_provisioned_for_more_than_they_draw():
    """POLCA (Patel et al. 2024): provisioned over peak 1.30 or more, a DGX A100 by its rating of 6.5 kW (data sheet).

    By the limits of its devices there is less to spare: in prompts these are near them.
    """
    found = metrics("llama-2-70b", "a100-sxm-80gb", precision="bf16", concurrency=16, output_tokens=256, pue=1.0)
    assert 6500.0 / found["peak_power"] >= 1.30
    assert 1.0 <= found["provisioned_power"] / found["peak_power"] < 1.30
    assert found["decode_power"] < 0.95 * found["prefill_power"]
