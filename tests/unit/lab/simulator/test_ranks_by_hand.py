"""Ranks that step together, and keys of contexts in a cache, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from dse.lab.simulator.load import RequestList
from dse.lab.simulator.run import HeldPrompts, run_together
from dse.lab.simulator.scheduler import PlannedSteps

PROMPT = [(0, 100)]


class Rank:
    """A scheduler with a list of planned steps, whose result is the list of steps that it did, with their seconds."""

    def __init__(self, *works):
        self.works, self.applied, self.now = [*works], [], 0.0

    @property
    def is_done(self):
        return not self.works

    def plan(self, admits=True):
        return self.works[0]

    def apply(self, work, count, seconds):
        assert self.works.pop(0) is work
        self.applied.append((count, seconds))
        self.now += seconds

    def result(self):
        return self.applied


def step(seconds, pieces=(), steps=1, slope=0.0):
    return PlannedSteps(seconds, slope, steps, 8, 100 if pieces else 0, list(pieces))


@pytest.mark.parametrize(
    ("share", "seconds"),
    # The mean of 10, 4 and 1 ms is 5 ms, the longest 10 ms.
    [(0.0, 10e-3), (0.5, 7.5e-3), (1.0, 5e-3)],
)
def test_a_step_is_the_slowest_but_for_the_share_of_the_experts(share, seconds):
    for results in run_together([Rank(step(10e-3)), Rank(step(4e-3)), Rank(step(1e-3))], share):
        assert results == [(1, pytest.approx(seconds))]


def test_ranks_without_work_join_a_step_with_prompts_as_long_as_the_shortest():
    """A prompt of 10 ms beside answers of 2 ms and two idle ranks: a mean of (10 + 2 + 2 x 2) / 4 = 4 ms."""
    prompt, answers = run_together([Rank(step(10e-3, PROMPT)), Rank(step(2e-3)), Rank(), Rank()], 0.5)[:2]
    assert prompt == answers == [(1, pytest.approx(0.5 * 10e-3 + 0.5 * 4e-3))]


def test_ranks_without_work_do_not_count_in_a_step_of_answers():
    """4 and 2 ms have a mean of 3 ms, whoever idles."""
    for results in run_together([Rank(step(4e-3)), Rank(step(2e-3)), Rank(), Rank()], 0.5)[:2]:
        assert results == [(1, pytest.approx(0.5 * 4e-3 + 0.5 * 3e-3))]


def test_steps_together_end_with_the_fewest():
    """Of 5 and 3 planned steps 3: 3 x 3 ms, and 4 + 5 + 6 ms of one that is 1 ms longer each step, a mean of 12 ms."""
    results = run_together([Rank(step(3e-3, steps=5)), Rank(step(4e-3, steps=3, slope=1e-3))], 1.0)
    assert results == [[(3, pytest.approx(12e-3))]] * 2


class Waiting:
    """A rank that decodes, with or without a request that waits."""

    is_done = False

    def __init__(self, has_prompts, decoding=1):
        self.has_prompts, self.decoding = has_prompts, decoding


def test_prompts_are_held_until_all_ranks_have_some_or_the_first_has_waited_long():
    one, both = [Waiting(True), Waiting(False)], [Waiting(True), Waiting(True)]
    hold = HeldPrompts(timeout=5, batching=2)
    assert hold.steps(one) == 5
    hold.wait(3, one)
    assert hold.steps(one) == 2
    assert hold.steps(both) == 2  # all have some now, and wait for more
    hold.wait(2, both)
    assert hold.steps(both) == 0  # taken; the next ones wait anew
    assert hold.steps(one) == 5
    hold.wait(5, one)
    assert hold.steps(one) == 0 and hold.steps(one) == 5
    assert hold.steps([Waiting(True), Waiting(False, decoding=0)]) == 0  # a rank has nothing else to do
    assert hold.steps([Waiting(False), Waiting(False)]) == 0
    assert HeldPrompts(timeout=0).steps(one) == 0


def requests(sessions, prefixes):
    count = len(sessions)
    turns = np.array([sessions[:i].count(session) if session >= 0 else 0 for i, session in enumerate(sessions)])
    fixed = np.arange(float(count)), np.full(count, 100), np.full(count, 10), np.array(prefixes), np.zeros(count, int)
    return RequestList(*fixed, session=np.array(sessions), turn=turns)


@pytest.mark.parametrize("sessions", [[-1, -1, -1, -1], [0, -1, 0, -1], [0, 1, 0, -1], [1, 1, 0, 0]])
def test_contexts_are_shared_by_the_turns_of_a_session_and_by_nothing_else(sessions):
    """Keys are whole numbers below -1, which prefixes and their absence have."""
    keys = requests(sessions, [0, 1, 0, 1]).contexts()
    assert all(isinstance(key, int) and key < -1 for key in keys)
    for i, (key, session) in enumerate(zip(keys, sessions, strict=True)):
        alike = {j for j, other in enumerate(keys) if other == key}
        assert alike == ({j for j, other in enumerate(sessions) if other == session} if session >= 0 else {i})


def test_no_context_is_asked_for_without_sessions_and_with_one_prefix():
    assert requests([-1, -1], [0, 0]).contexts() == [] == requests([-1, -1], [-1, 0]).contexts()
