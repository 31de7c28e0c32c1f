"""Power that no work of the cores causes, paid by the tokens of its time: worked out by hand in comments."""

from __future__ import annotations

import dataclasses

import pytest

import dse
from dse.model import Batch, stage_of
from dse.model.serving.clock import StageAtClock
from dse.model.serving.energy import token_energy
from dse.model.serving.steady import EnginePhase, Phases
from dse.model.serving.step import EngineStepTime
from dse.model.serving.work import Rank
from dse.types import Power, Requests, Serving

DESIGN = dse.design("llama-3-70b", "h100", "vllm", kind="serving", any_option=True, tp=8)

#: Work takes no energy and the voltage follows the clock: leakage is ``40 W f``, and control ``100 W f^3``.
NAMES = ("matrix_energy", "vector_energy", "cache_energy", "memory_energy", "threshold", "leakage_slope")
POWER = Power(
    **dict.fromkeys(NAMES, 0.0), lowest_voltage=0.01, tdp=1e6, nominal_clock=1e9, clock=1e9,
    uncore=10.0, leakage=40.0, control=100.0,
)  # fmt: skip


def rest(decode_clock=1.0, prompt_clock=1.0, busy=1.0, chunks=0.01, **power):
    """Joules beside work of a token of eight devices at 2 requests/s with answers of 100 tokens, 200 tokens/s.

    Steps with prompts take 0.1 s; by default they are 0.01 of a token, 0.1 x 0.01 x 200 = 0.2 of the time.
    """
    accelerator = dataclasses.replace(DESIGN.system.accelerator, power=dataclasses.replace(POWER, **power))
    design = dataclasses.replace(DESIGN, system=dataclasses.replace(DESIGN.system, accelerator=accelerator))
    requests, engine = Requests(prompt_tokens=100.0, output_tokens=100.0), design.software.engine
    rank = Rank(stage_of(design), 1.0, requests, Serving(), engine)

    def phase(seconds, clock, prompt):
        batch = Batch(8.0, 1000.0, prompt, 0.0)
        stage = stage_of(design)  # of each kind of step, as where the clock is solved for
        return EnginePhase(batch, 1.0, EngineStepTime(seconds, 0.0, 0.0, 0.0), StageAtClock(stage, clock, False))

    phases = Phases(phase(0.02, decode_clock, 0.0), phase(0.1, prompt_clock, 100.0), 0.2, chunks, busy)
    return float(token_energy(rank, phases, 2.0).token.rest)


@pytest.mark.parametrize(
    ("settings", "watts"),
    [
        # At the nominal clock 10 + 40 + 100 W all the time; of an idle device 10 + 40 W.
        ({}, 150.0),
        (dict(busy=0.5), 10.0 + 40.0 + 0.5 * 100.0),
        # Uncore power and control off: 40 W of leakage for 0.8 of the time, 20 W at half of the clock for 0.2.
        (dict(uncore=0.0, control=0.0, prompt_clock=0.5), 0.8 * 40.0 + 0.2 * 20.0),
        (dict(uncore=0.0, control=0.0, decode_clock=0.5), 0.8 * 20.0 + 0.2 * 40.0),
        (dict(uncore=0.0, control=0.0, prompt_clock=0.5, chunks=0.04), 0.2 * 40.0 + 0.8 * 20.0),
        (dict(uncore=0.0, control=0.0, prompt_clock=0.5, chunks=0.0), 40.0),
        # Leakage off: 100 W of control, 12.5 W at half of the clock.
        (dict(uncore=0.0, leakage=0.0, prompt_clock=0.5), 0.8 * 100.0 + 0.2 * 12.5),
        (dict(uncore=0.0, leakage=0.0, decode_clock=0.5), 0.8 * 12.5 + 0.2 * 100.0),
        (dict(uncore=0.0, leakage=0.0, prompt_clock=0.5, busy=0.5), 0.3 * 100.0 + 0.2 * 12.5),
        (dict(decode_clock=0.5, prompt_clock=0.5), 10.0 + 20.0 + 12.5),
    ],
)
def test_each_second_is_paid_at_its_clock(settings, watts):
    assert rest(**settings) == pytest.approx(8.0 * watts / 200.0, rel=1e-5)
