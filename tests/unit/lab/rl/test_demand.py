"""Counts of a step of post-training, by hand."""

from __future__ import annotations

from dse.lab.rl.demand import RlDemand

DEMAND = RlDemand("llama-3-8b", "h100", 16, prompts=64, samples=8, prompt_tokens=500.0, output_tokens=2000.0)


def test_a_step_trains_on_prompt_and_answer_of_every_sample():
    """64 prompts with 8 answers each are 512 sequences, of 500 + 2000 tokens: 1,280,000."""
    assert DEMAND.answers == 512
    assert DEMAND.tokens == 1_280_000.0
    assert DEMAND._replace(prompt_tokens=1000.0).tokens - DEMAND.tokens == 512 * 500.0


def test_the_longest_answer_is_four_times_the_mean_unless_it_is_set():
    assert DEMAND.most_tokens == 8000.0
    assert DEMAND._replace(output_tokens=100.0).most_tokens == 400.0
    assert DEMAND._replace(longest=3000.0).most_tokens == 3000.0
