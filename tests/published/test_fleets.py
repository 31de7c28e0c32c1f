"""Decode pools of DeepSeek-V3 with experts on many ranks, as their makers publish them: claims, in no fit.

Nothing of the engine's policy is stated: balance and copies of experts and two-batch overlap are its defaults. Prompts
come from other pools, so that all of them are in the cache.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

import dse
from tests.programs import served


class Pool(NamedTuple):
    """A pool as published."""

    published: float  # output tokens/s a device
    system: str
    software: str
    ranks: int
    sequences: int  # a rank
    prompt: int  # tokens
    answer: int  # tokens


#: 22.3k tokens/s of a node of 8, prompts of 2,000 tokens, 256 requests a rank: SGLang team, "Deploying DeepSeek with PD
#: Disaggregation and Large-scale Expert Parallelism on 96 H100 GPUs", lmsys.org/blog/2025-05-05-large-scale-ep.
H100 = Pool(2787.0, "h100-sxm-80gb", "sglang", 72, 256, 2000, 100)

#: bf16 attention and fp8 experts, 768 requests a rank: SGLang team, "Deploying DeepSeek on GB200 NVL72 with PD and
#: Large Scale EP (Part II)", lmsys.org/blog/2025-09-25-gb200-part-2.
GB200 = Pool(9087.0, "gb200-nvl72", "sglang", 48, 768, 2000, 100)

#: 14.8k tokens/s of a node of 8, 4,989 cached tokens in the mean, 20 to 22 tokens/s a user, so 88 users a rank:
#: DeepSeek-AI, "DeepSeek-V3/R1 Inference System Overview", deepseek-ai/open-infra-index, 2025. Its engine is not
#: public.
H800 = Pool(1850.0, "h800-sxm-80gb", "sglang", 144, 88, 4489, 1000)

#: vLLM team, "Large Scale Serving: DeepSeek @ 2.2k tok/s/H200 with Wide-EP", blog.vllm.ai, December 2025. The requests
#: of a rank are not published: taken as those of SGLang on H100; half of them give 0.8 of the rate.
H200 = Pool(2200.0, "h200-sxm-141gb", "vllm", 32, 256, 2000, 1000)

POOLS = {"H100": H100, "GB200": GB200, "H800": H800, "H200": H200}


def rate(pool: Pool, **policy) -> float:
    """Output tokens/s a device."""
    found = served(
        dse.design(
            "deepseek-v3", pool.system, pool.software, tp=1, dp=pool.ranks, ep=pool.ranks, n_devices=pool.ranks,
            precision="fp8-block", concurrency=pool.sequences * pool.ranks, prompt_tokens=pool.prompt,
            output_tokens=pool.answer, prefix_share=1.0, **policy,
        )
    )  # fmt: skip
    assert int(found.infeasible_reason) == 0
    return float(found.output_tokens_per_second_per_device)


@pytest.mark.parametrize("name", POOLS)
def test_decode_pools_are_within_30_percent(name):
    assert 0.7 < rate(POOLS[name]) / POOLS[name].published < 1.3


@pytest.mark.parametrize("name", ["H100", "H800", "H200"])
def test_halves_gain_where_the_exchange_leaves_nodes(name):
    assert rate(POOLS[name]) > 1.1 * rate(POOLS[name], step_overlap="off")
