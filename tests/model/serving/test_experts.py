"""Serving of mixtures: the busiest of several ranks, and ranks that step together, against draws."""

import dataclasses

import numpy as np
import pytest

import dse
from dse.model.serving.steady import prompt_intake
from dse.model.serving.work import SKEW, busiest_rank, largest_deviate, stage_of, with_experts_met
from dse.model.work.batch import Batch
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
    skewed = dataclasses.replace(
        mixture().workload, requests=dataclasses.replace(Requests(), expert_skew=spread)
    )  # fmt: skip
    expected = (loads.max(1) / loads.mean(1)).mean() - 1.0
    assert float(busiest_rank(skewed, float(experts), float(ranks))) - 1.0 == pytest.approx(expected, rel=0.2)


@pytest.mark.parametrize("independent", [3, 10, 40, 160])
def test_experts_that_the_busiest_rank_reads(independent):
    """Ranks of whole experts read unequal numbers of them, up to twice the mean with few tokens."""
    design = mixture(ep=8)
    stage = stage_of(design)
    batch = Batch(independent / SKEW, 1024.0, 0.0, 0.0)
    busiest, mean = (
        float(with_experts_met(stage.layout, stage.design, batch, 1.0, is_mean).experts.local)
        for is_mean in (False, True)
    )
    rng = np.random.default_rng(0)
    read = [
        np.bincount(np.unique(rng.random((independent, 256)).argpartition(8)[:, :8]) // 32, minlength=8)
        for _ in range(400)
    ]
    assert mean == pytest.approx(np.mean(read), rel=0.06)
    assert busiest == pytest.approx(np.mean(np.max(read, 1)), rel=0.08)


def test_slices_of_experts_have_no_busiest_rank():
    times = [float(served(mixture(ep=1, expert_skew=skew)).time_per_output_token) for skew in (0.0, 2.0)]
    whole = [float(served(mixture(ep=8, concurrency=512, expert_skew=skew)).time_per_output_token) for skew in (0.0, 2.0)]
    assert times[0] == times[1] and whole[0] < whole[1]


@pytest.mark.parametrize("own", [0.05, 0.3, 0.8])
def test_a_step_waits_for_prompts_of_any_rank(own):
    intake = prompt_intake(Requests(), Serving(), 8.0)._replace(ranks=8.0)
    has = np.random.default_rng(0).random((100_000, 8)) < own
    assert float(intake.delaying(own)) == pytest.approx(has.any(1).mean(), rel=0.02)  # nothing shared
    assert float(intake._replace(shared=1.0).delaying(own)) == pytest.approx(own)
    assert float(intake._replace(ranks=1.0).delaying(own)) == pytest.approx(own)


def test_ranks_with_attention_of_their_own_wait_for_prompts_of_each_other():
    """As many requests a rank: alone its prompts delay its own answers, together those of all."""
    shared = dict(workload="deepseek-v3", precision="fp8", prompt_tokens=4096, output_tokens=512)
    alone, together = (
        served(dse.design(
            shared["workload"], "h200", "vllm", any_option=True, tp=1, n_devices=ranks, ep=ranks,
            concurrency=16 * ranks, **{k: v for k, v in shared.items() if k != "workload"},
            **{"memory.capacity": "1600 GB"},
        ))  # fmt: skip
        for ranks in (1, 8)
    )
    assert float(together.time_per_output_token_prefill) > 1.05 * float(alone.time_per_output_token_prefill)


def test_a_host_hands_the_inputs_of_a_step_to_every_further_rank():
    without, with_it = (
        float(served(dse.design("llama-3-70b", "h100", "vllm", tp=8, rank_time=f"{ms} ms")).time_per_output_token_host)
        for ms in (0, 1)
    )
    assert with_it - without == pytest.approx(7e-3, rel=1e-3)
