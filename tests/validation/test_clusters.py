"""Claims of studies on whole clusters: Frontier, MegaScale, and slow links between clusters (Holmes)."""

from __future__ import annotations

import itertools

import pytest

import dse
from dse.measured.prediction import evaluate_many

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def frontier():
    """Hardware FLOP utilisation of mappings of three models on Frontier: (model, tp, pp) → share of the peak."""
    found = {}
    for model, devices, batch, pipelines in (
        ("megatron-22b", 64, 1024, (1, 2, 4)), ("gpt-3-175b", 1024, 10240, (8, 16, 32)),
        ("megatron-1t", 3072, 9600, (32, 64)),
    ):  # fmt: skip
        for tp, pp in itertools.product((2, 4, 8), pipelines):
            found[model, tp, pp] = dse.design(
                model, "frontier", n_devices=devices, tp=tp, pp=pp, micro_batch=1, recompute="full", global_batch=batch,
                precision="fp16", zero_stage=1, any_option=True,
            )  # fmt: skip
    metrics = evaluate_many(list(found.values()))
    shares = zip(found, metrics["hfu"], metrics["infeasible_reason"], strict=True)
    return {name: float(share) for name, share, reason in shares if reason == 0}


@pytest.mark.parametrize(
    ("model", "published"), [("megatron-22b", 0.3838), ("gpt-3-175b", 0.3614), ("megatron-1t", 0.3196)]
)
def test_the_best_mapping_on_frontier_reaches_what_was_published(frontier, model, published):
    """Dash et al. 2023 (arXiv 2312.12705): shares of a die's 191.5 TFLOP/s, with checkpoints of activations."""
    best = max(share for (name, _, _), share in frontier.items() if name == model)
    assert published <= best <= 1.7 * published


#: MegaScale's run and its baseline: Jiang et al., NSDI 2024, tables 1 and 2, and the vocabulary of section 6.
MEGASCALE = dict(
    n_devices=12288, tp=8, pp=8, virtual_stages=6, micro_batch=1, global_batch=6144, sequence_parallel=2, zero_stage=1,
    recompute="none", software="megatron-core-te-ampere", vocab=64000, any_option=True,
)  # fmt: skip

#: What it has beside Megatron-LM (sections 3.1 and 3.2): attention and feed-forward of one input, messages of tensor
#: parallelism and of replicas that hide, the latter chunk by chunk. Its batch is that of LAMB. The window of its
#: sliding attention is not told, nor how fast its own operators are: neither is in this design.
CO_DESIGNED = dict(parallel_block=1, overlap_tp=1, overlap_dp=1, dp_by_chunk=1)


@pytest.fixture(scope="module")
def megascale():
    """Model FLOP utilisation of GPT-3 175B on 12,288 A100s: of the baseline, with all parts, with all but one."""
    plain = dict.fromkeys(CO_DESIGNED, 0)
    parts = {"baseline": plain, "all": CO_DESIGNED} | {name: CO_DESIGNED | {name: 0} for name in CO_DESIGNED}
    designs = [dse.design("gpt-3-175b", "nemo-a100", **MEGASCALE, **part) for part in parts.values()]
    found = evaluate_many(designs)
    assert not found["infeasible_reason"].any()
    return dict(zip(parts, map(float, found["mfu"]), strict=True))


def test_megascale_reaches_its_utilisation(megascale):
    """55.2 % of peak on 12,288 GPUs."""
    assert megascale["all"] == pytest.approx(0.552, abs=0.02)


def test_each_part_of_megascale_gains(megascale):
    """Without chunks that hide by themselves it would be 51.5 %, where its replicas wait for a tenth of the step."""
    lost = {name: megascale["all"] - megascale[name] for name in CO_DESIGNED}
    assert all(points > 0.004 for points in lost.values())
    assert lost["dp_by_chunk"] == pytest.approx(0.033, abs=0.01)


@pytest.mark.xfail(
    strict=True,
    reason="1.18 times: MegaScale is 54.8 % for 55.2 %, its baseline 46.4 % for 41.2 %. What that loses beside exposed "
    "messages and the bubble (slow machines, jitter, congested links, waits for data: sections 3.4, 3.6 and 5) is in "
    "no step of the model, which takes all devices and links for equal",
)
def test_megascale_is_faster_than_megatron(megascale):
    """1.34 times Megatron-LM's 41.2 %."""
    assert megascale["all"] / megascale["baseline"] == pytest.approx(1.34, abs=0.07)


def test_a_pipeline_across_slow_links_loses_less_than_replicas():
    """Holmes (Yang et al. 2023): two clusters of 256, whose NICs are 8 or 32 times as fast inside as between them."""
    mappings = [
        dict(tp=tp, pp=pp, micro_batch=1, recompute="full", zero_stage=zero, overlap_dp=hidden)
        for tp, pp, zero, hidden in itertools.product((4, 8), (2, 4, 8), (0, 1), (0, 1))
    ]
    slowed = [
        {"pods.size": 256, "pods.oversubscription": ratio, "pods.pooled": 0, "placement": placement}
        for ratio in (1, 8, 32) for placement in ("tp-cp-dp-pp", "tp-cp-pp-dp")
    ]  # fmt: skip
    designs = [
        dse.design("megatron-39-1b", "nemo-a100", n_devices=512, any_option=True, **mapping, **links)
        for mapping in mappings for links in slowed
    ]  # fmt: skip
    times = evaluate_many(designs)["step_time"].reshape(len(mappings), 3, 2)
    lost = times[:, 1:] - times[:, :1]  # by ratio, of stages across and of replicas across
    assert (lost >= -1e-4 * times[:, :1]).all() and (lost[:, :, 1] > 0.0).all()
    assert (lost[:, :, 0] < lost[:, :, 1]).all()
