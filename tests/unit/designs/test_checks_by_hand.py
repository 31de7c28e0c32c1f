"""Prompts of sessions that are too short for their earlier turns, worked out by hand in comments."""

from __future__ import annotations

import dataclasses

import pytest

from dse.designs.checks import check_turns
from dse.errors import InputError
from dse.types import Requests


def check(prompt_tokens, prefix_share=0.0, output_tokens=200.0, turns=3.0):
    requests = Requests(prompt_tokens=prompt_tokens, output_tokens=output_tokens)
    check_turns(dataclasses.replace(requests, prefix_share=prefix_share), turns, "turns")


#: Three turns: prompts have 0, 1 and 2 answers of 200 tokens, 200 in the mean, and 1 to 3 new tokens, 2 in the mean.
@pytest.mark.parametrize(
    ("settings", "unshared", "least"),
    [
        (dict(prompt_tokens=201.0), 201, 202),
        (dict(prompt_tokens=402.0, prefix_share=0.5), 201, 202),
        (dict(prompt_tokens=1000.0, prefix_share=0.8), 200, 202),
        # Five turns: 0 to 4 answers, 400 tokens in the mean, and 3 new ones.
        (dict(prompt_tokens=402.0, turns=5.0), 402, 403),
        # Answers of 100 tokens: 100 and 2.
        (dict(prompt_tokens=101.0, output_tokens=100.0), 101, 102),
    ],
)
def test_a_prompt_holds_the_answers_before_it_beyond_the_shared_prefix(settings, unshared, least):
    with pytest.raises(InputError) as refused:
        check(**settings)
    assert f"{unshared} tokens" in str(refused.value) and f"{least} or more" in str(refused.value)
    share = 1.0 - settings.get("prefix_share", 0.0)
    check(**settings | {"prompt_tokens": least / share})


def test_a_single_turn_has_no_answer_before_it():
    check(1.0, turns=1.0)
    check(1.0, prefix_share=0.9, turns=1.0)
    check_turns(None, 9.0, "turns")
