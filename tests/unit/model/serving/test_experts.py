"""Serving of mixtures: the busiest of several ranks, and ranks that step together, against draws."""

import dataclasses

import numpy as np
import pytest

import dse
from dse.designs.records import with_serving_defaults
from dse.lab.simulator.limits import scheduler_limits
from dse.lab.simulator.load import draw_requests
from dse.lab.simulator.run import run_together
from dse.lab.simulator.scheduler import Scheduler
from dse.lab.simulator.table import step_table
from dse.model import Batch, lay_out, stage_of
from dse.model.serving.intake import prompt_intake
from dse.model.serving.work import busiest_rank, idle_expert_share, largest_deviate, with_active_experts
from dse.model.work.transformer import expert_layer_operators
from dse.types import Requests, Serving
from tests.programs import served


def mixture(**settings):
    return dse.design("deepseek-v3", "h200", "vllm", any_option=True, precision="fp8", tp=8, **settings)


@pytest.mark.parametrize("n", [2, 3, 4, 8, 16, 64, 256])
def test_the_largest_of_normal_deviates(n):
    drawn = np.random.default_rng(n).standard_normal((20_000, n)).max(1).mean()
    assert float(largest_deviate(float(n))) == pytest.approx(drawn, rel=0.06)


@pytest.mark.parametrize(("experts", "ranks", "spread"), [(256, 8, 0.7), (128, 8, 0.7), (16, 4, 0.5), (256, 64, 0.3)])
def test_the_busiest_rank_of_experts_of_unequal_popularity(experts, ranks, spread):
    """Popularity of a gamma distribution: of the wanted spread, and never negative."""
    shape = spread**-2
    drawn = np.random.default_rng(0).gamma(shape, 1.0 / shape, (20_000, ranks, experts // ranks))
    loads = drawn.sum(2)
    skewed = dataclasses.replace(mixture().workload, requests=dataclasses.replace(Requests(), expert_skew=spread))
    expected = (loads.max(1) / loads.mean(1)).mean() - 1.0
    assert float(busiest_rank(skewed, float(experts), float(ranks))) - 1.0 == pytest.approx(expected, rel=0.2)


@pytest.mark.parametrize("independent", [3, 10, 40, 160])
def test_experts_that_the_busiest_rank_reads(independent):
    """Ranks of whole experts read unequal numbers of them, up to twice the mean with few tokens."""
    design = mixture(ep=8, expert_skew=0.0)
    stage = stage_of(design)
    batch = Batch(float(independent), 1024.0, 0.0, 0.0)
    busiest, mean = (
        float(with_active_experts(stage.layout, stage.design, batch, 1.0, is_mean).experts.local)
        for is_mean in (False, True)
    )
    rng = np.random.default_rng(0)
    read = [
        np.bincount(np.unique(rng.random((independent, 256)).argpartition(8)[:, :8]) // 32, minlength=8)
        for _ in range(400)
    ]
    assert mean == pytest.approx(np.mean(read), rel=0.06)
    assert busiest == pytest.approx(np.mean(np.max(read, 1)), rel=0.08)


@pytest.mark.parametrize("spread", [0.5, 1.0])
@pytest.mark.parametrize("tokens", [1, 8, 32, 128])
def test_experts_of_unequal_popularity_that_tokens_leave(spread, tokens):
    """Draws by popularity, which a gamma distribution has; one token leaves all but those that it chooses."""
    rng, experts, chosen = np.random.default_rng(0), 128, 4
    popular = np.log(rng.gamma(spread**-2, spread**2, (400, 1, experts)) + 1e-12)
    ranked = popular + rng.gumbel(size=(400, tokens, experts))  # in the order of draws without replacement
    routes = ranked.argpartition(-chosen)[..., -chosen:].reshape(400, -1)
    left = 1.0 - np.mean([len(np.unique(route)) for route in routes]) / experts
    skewed = dataclasses.replace(mixture().workload, requests=dataclasses.replace(Requests(), expert_skew=spread))
    assert float(idle_expert_share(float(tokens), chosen / experts, skewed)) == pytest.approx(left, abs=0.03)


def test_slices_of_experts_have_no_busiest_rank():
    """Unequal popularity leaves more experts unread; whole experts lose a part of that to the busiest rank."""
    slices, whole = (
        [served(mixture(ep=ep, concurrency=512, expert_skew=skew)).time_per_output_token for skew in (0.0, 2.0)]
        for ep in (1, 8)
    )
    assert slices[1] / slices[0] < 0.95 * whole[1] / whole[0]
    assert float(busiest_rank(mixture(expert_skew=2.0).workload, 256.0, 1.0)) == pytest.approx(1.0)


@pytest.mark.parametrize("own", [0.05, 0.3, 0.8])
def test_a_step_waits_for_prompts_of_any_rank(own):
    intake = prompt_intake(Requests(), Serving(), 8.0)._replace(ranks=8.0)
    has = np.random.default_rng(0).random((100_000, 8)) < own
    assert float(intake.delaying_prompts(own)) == pytest.approx(has.any(1).mean(), rel=0.02)  # nothing shared
    assert float(intake._replace(shared_work_share=1.0).delaying_prompts(own)) == pytest.approx(own)
    assert float(intake._replace(ranks=1.0).delaying_prompts(own)) == pytest.approx(own)


def test_ranks_with_attention_of_their_own_wait_for_prompts_of_each_other_where_these_are_not_balanced():
    """As many requests a rank: prompts delay the answers of their own rank, without balance those of all."""
    shared = {"precision": "fp8", "prompt_tokens": 4096, "output_tokens": 512, "memory.capacity": "1600 GB"}

    def delay(many, **balance):
        mapping = dict(tp=1, n_devices=many, ep=many, concurrency=16 * many)
        found = served(dse.design("deepseek-v3", "h200", "vllm", any_option=True, **mapping, **shared, **balance))
        return float(found.time_per_output_token_prefill)

    alone, balanced, apart = delay(1), delay(8), delay(8, prompt_balance=0)
    assert delay(1, prompt_balance=0) == pytest.approx(alone)
    assert alone < balanced < 1.5 * alone  # experts are exchanged, and the busiest rank has more of them
    assert apart > 3.0 * balanced
    assert delay(8, prompt_balance=1) == pytest.approx(balanced, rel=1e-6)


def test_a_host_hands_the_inputs_of_a_step_to_every_further_rank():
    """And hides it, as far as asked, behind what the device does meanwhile."""

    def host(ms, overlap):
        made = dse.design("llama-3-70b", "h100", "vllm", tp=8, rank_time=f"{ms} ms", host_overlap=overlap)
        found = served(made)
        return float(found.time_per_output_token_host), float(found.time_per_output_token)

    plain, slow, hidden = host(0, 0.0), host(1, 0.0), host(1, 1.0)
    assert slow[0] - plain[0] == pytest.approx(7e-3, rel=1e-3)
    assert hidden[1] < plain[1]  # the device takes longer than the host
    half = host(1, 0.5)
    assert half[0] == pytest.approx(0.5 * (slow[0] + hidden[0]), rel=1e-4)


def test_ranks_that_are_simulated_together():
    """One rank together with none is one alone; of eight each step is as long as that of the slowest."""
    one = with_serving_defaults(
        dse.design(
            "deepseek-v3",
            "h200",
            "vllm",
            any_option=True,
            precision="fp8",
            tp=1,
            n_devices=8,
            ep=8,
            concurrency=128,
            prompt_tokens=2000,
            output_tokens=200,
        )
    )
    limits, asked = (
        scheduler_limits(one, draw_requests(one.workload.requests, 160, 0, 0.0)),
        draw_requests(one.workload.requests, 160, 0, 0.0),
    )
    table = step_table(one, 16, limits.chunk, int(np.max(asked.prompt + asked.answer)))

    def ranks(count):
        return [Scheduler(limits, table, asked.subset(np.arange(r, 160, count)), 16) for r in range(count)]

    (alone,), (same,) = [scheduler.run() for scheduler in ranks(1)], run_together(ranks(1), 0.3)
    assert same.finish == pytest.approx(alone.finish, rel=1e-9)
    apart, together = [scheduler.run() for scheduler in ranks(8)], run_together(ranks(8), 0.3)
    assert all((b.finish >= a.finish * (1 - 1e-9)).all() for a, b in zip(apart, together, strict=True))
    assert max(b.finish.max() for b in together) > 1.05 * max(a.finish.max() for a in apart)


def test_a_forward_pass_casts_tokens_once_and_copies_narrow_ones():
    """Products of 8 bits need a transposed operand in the backward only; two experts a token, on one device."""
    trained = dse.design("mixtral-8x7b", "h200-sxm-141gb", precision="fp8")
    answered = dataclasses.replace(trained, workload=dataclasses.replace(trained.workload, backward=0.0))
    (wide, cast), (narrow, once) = (
        [
            next(o.forward.bytes for o in expert_layer_operators(one, lay_out(one)) if o.name == name)
            for name in ("permute", "quantization")
        ]
        for one in (trained, answered)
    )
    assert float(narrow / wide) == pytest.approx((1.0 + 2.0) / (2.0 + 2.0))
    element, w = lay_out(trained).element, trained.workload
    read = element.reads * 2.0
    dense, ffn = w.hidden + w.n_heads * w.head_dim, w.experts.expert_ffn
    expected = (read + 1.0) * (dense + w.hidden + 2.0 * ffn) / ((read + 2.0) * (dense + 2.0 * w.hidden + 2.0 * ffn))
    assert float(once / cast) == pytest.approx(float(expected), rel=1e-3)
