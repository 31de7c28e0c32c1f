"""Energy of a token, and of it what no work causes, paid in its time: worked out by hand in comments."""

from __future__ import annotations

import dataclasses

import pytest

import dse
from dse.model import Batch, stage_of
from dse.model.machine.operator_energy import PassJoules
from dse.model.serving import energy
from dse.model.serving.clock import StageAtClock
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
    return float(energy.token_energy(rank, phases, 2.0).token.rest)


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


#: Of a pass: joules of cores, cache, memory and network at the nominal voltage, of which the cores count 1/2 and 1/4.
DECODE = energy._PhaseEnergy(PassJoules(2.0, 0.3, 0.5, 0.1), 500.0, 0.5, clocks=100.0, leakage=40.0)
MIXED = energy._PhaseEnergy(PassJoules(6.0, 0.7, 1.5, 0.4), 700.0, 0.25, clocks=50.0, leakage=20.0)


def energies(monkeypatch, busy=1.0, chunks=0.01, sequences=8.0):
    """Energy of a token of 4 x 2 devices, 200 tokens/s, in steps of 20 ms and with prompts of 100 ms.

    3 passes a step decode, 2 have prompts. Decode steps are 0.11 of a token.
    """
    monkeypatch.setattr(energy, "_phase_energy", lambda rank, phase: MIXED if phase.batch.prompt else DECODE)
    power = dataclasses.replace(POWER, cooling=2.0, memory_cooling=3.0)
    accelerator = dataclasses.replace(DESIGN.system.accelerator, power=power)
    system = dataclasses.replace(DESIGN.system, accelerator=accelerator, host_power=5.0, pue=1.5)
    mapping = dataclasses.replace(DESIGN.mapping, tp=4.0, pp=2.0)
    design = dataclasses.replace(DESIGN, system=system, mapping=mapping)
    requests = Requests(prompt_tokens=100.0, output_tokens=100.0)
    rank = Rank(stage_of(design), 1.0, requests, Serving(), design.software.engine)

    def phase(seconds, passes, count, prompt):
        step = EngineStepTime(seconds, 0.0, 0.0, 0.0)
        clock = StageAtClock(stage_of(design), 1.0, False)
        return EnginePhase(Batch(count, 1000.0, prompt, 0.0), passes, step, clock)

    phases = Phases(phase(0.02, 3.0, 8.0, 0.0), phase(0.1, 2.0, sequences, 100.0), 0.11, chunks, busy)
    return energy.token_energy(rank, phases, 2.0)


def test_energy_of_a_token(monkeypatch):
    """Decode: 8 devices x 3 passes x 0.1 steps alone and x 0.01 with prompts, 2.4 and 0.24 passes.

    Prompts: 8 x 2 x 0.01 = 0.16 passes of what they add, 4, 0.4, 1.0 and 0.3 J.
    """
    found = energies(monkeypatch)
    assert float(found.token.decode) == pytest.approx(2.0 * (2.4 / 2 + 0.24 / 4) + 0.9 * 2.64)
    assert float(found.token.prefill) == pytest.approx(0.16 * (4.0 / 4 + 1.7))
    # 0.04 device seconds a token: 10 W, 0.8 x 40 + 0.2 x 20 W, 0.8 x 100 + 0.2 x 50 W, and 5 W of the host.
    assert float(found.token.rest) == pytest.approx(0.04 * (10.0 + 36.0 + 90.0))
    assert float(found.token.host) == pytest.approx(0.2)
    on_device = 4.896 + 0.432 + 5.44
    assert float(found.average) == pytest.approx(on_device / 0.04)
    # Coolers: 2 J a joule of cores, caches, leakage and clocks, 3 J of memory.
    cores, memory = 2.52 + 0.792 + 0.16 + 0.064 + 0.04 * 126.0, 2.64 * 0.5 + 0.16
    assert float(found.token.cryogenics) == pytest.approx(2.0 * cores + 3.0 * memory)
    assert float(found.token.facility) == pytest.approx(0.5 * (on_device + 0.2 + 21.592))
    assert (float(found.decode), float(found.prefill), float(found.provisioned)) == (500.0, 700.0, 1e6)


def test_steps_of_a_token_are_no_more_than_fit_into_its_time(monkeypatch):
    """Of 2 ms a token 1 ms are a hundredth of a step with prompts, and 1 ms is 0.05 decode steps, not 0.1."""
    found = energies(monkeypatch, busy=0.4)
    assert float(found.token.decode) == pytest.approx(2.0 * (1.2 / 2 + 0.24 / 4) + 0.9 * 1.44)
    assert float(found.token.prefill) == pytest.approx(0.16 * (4.0 / 4 + 1.7))


def test_prompts_that_do_not_mix_take_all_of_their_steps(monkeypatch):
    """Of 2 ms a token at most 0.02 steps with prompts of 6, 0.7, 1.5 and 0.4 J, and no time is left to decode."""
    found = energies(monkeypatch, busy=0.4, chunks=0.05, sequences=0.0)
    assert float(found.token.decode) == pytest.approx(0.0, abs=1e-6)
    assert float(found.token.prefill) == pytest.approx(0.32 * (6.0 / 4 + 2.6))
