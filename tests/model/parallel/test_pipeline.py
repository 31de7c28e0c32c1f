"""The closed forms of the pipeline against the event-driven scheduler."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.model.layout import most_layers
from dse.model.parallel import pipeline
from tests.oracles import schedule

STAGES = st.sampled_from([2, 3, 4, 8])


def equal_stages(stages, chunks, forward, backward):
    return np.full((stages, chunks), forward / chunks), np.full((stages, chunks), backward / chunks)


@given(
    stages=STAGES,
    rounds=st.integers(1, 5),
    chunks=st.sampled_from([1, 2, 3]),
    forward=st.floats(0.5, 2.0),
    backward=st.floats(0.5, 4.0),
)
def test_makespan_of_equal_stages_is_exact(stages, rounds, chunks, forward, backward):
    """n beats and the bubble (p - 1)(t_f + t_b) / v (Narayanan et al. 2021, section 2.2)."""
    n = rounds * stages
    exact = schedule.makespan(*equal_stages(stages, chunks, forward, backward), n)
    beat = forward + backward
    closed = n * beat + pipeline.bubble_time(pipeline.Stages(beat, 0.0, 0.0), float(stages), float(chunks))
    assert float(closed) == pytest.approx(exact, rel=1e-5)


@given(stages=STAGES, n=st.integers(8, 24), heavy=st.floats(0.0, 1.0))
def test_a_heavy_last_stage_sets_the_beat(stages, n, heavy):
    """With the head on the last stage the closed form is exact for 1F1B in the long run."""
    forward, backward = equal_stages(stages, 1, 1.0, 2.0)
    forward[-1] += heavy / 3
    backward[-1] += 2 * heavy / 3
    exact = schedule.makespan(forward, backward, n)
    stage = pipeline.Stages(3.0, 0.0, heavy)
    closed = n * (3.0 + pipeline.slowest_extra(stage, float(stages))) + pipeline.bubble_time(stage, float(stages), 1.0)
    assert float(closed) == pytest.approx(exact, rel=0.02)


@given(stages=STAGES, layers=st.integers(8, 40), n=st.integers(16, 32))
def test_stages_that_differ_by_a_layer(stages, layers, n):
    """The fullest stage, ``ceil(L / p)`` layers, sets the beat; the others are crossed once, in ``L - ceil(L / p)``.

    The exact makespan differs by less than a layer a stage, in which stages ahead or behind wait or catch up.
    """
    held = np.array([layers // stages + (stage < layers % stages) for stage in range(stages)], float)[:, None]
    exact = schedule.makespan(held, 2.0 * held, n)
    most = float(most_layers(float(layers), float(stages)))
    stage = pipeline.Stages(3.0 * most, 0.0, 0.0, spare=3.0 * (stages * most - layers))
    closed = n * 3.0 * most + float(pipeline.bubble_time(stage, float(stages), 1.0))
    assert most == held.max()
    assert abs(exact - closed) <= 3.0 * stages


@pytest.mark.parametrize(("stages", "chunks", "n"), [(4, 1, 16), (4, 2, 16), (8, 3, 24), (4, 1, 2), (2, 4, 8)])
def test_micro_batches_in_flight(stages, chunks, n):
    """The first and the last stage hold as many chunks as the closed form says (Korthikanti 2022, 4.2.3)."""
    events = schedule.simulate(*equal_stages(stages, chunks, 1.0, 2.0), n)
    first = float(pipeline.in_flight(float(stages), float(chunks), float(n)))
    last = float(pipeline.in_flight_last(float(stages), float(chunks), float(n)))
    assert schedule.in_flight(events, 0) == pytest.approx(first * chunks)
    assert schedule.in_flight(events, stages - 1) == pytest.approx(last * chunks)


def test_one_stage_has_no_bubble_and_sends_nothing():
    stages = pipeline.Stages(3.0, 0.5, 0.7)
    assert float(pipeline.bubble_time(stages, 1.0, 1.0)) == pytest.approx(0.0, abs=1e-6)
    assert float(pipeline.exposed_sends(1.0, 1.0, 8.0, 0.5)) == 0.0
    assert float(pipeline.slowest_extra(stages, 1.0)) == pytest.approx(1.2)


@pytest.mark.parametrize(("stages", "chunks", "rounds"), [(4, 2, 1), (4, 2, 4), (8, 4, 1), (8, 4, 4)])
def test_an_interleaved_schedule_that_hides_its_sends_waits_for_fill_and_drain(stages, chunks, rounds):
    """The first micro-batch crosses every chunk, the last comes back: 2 (p v - 1) hops, whatever n."""
    work = equal_stages(stages, chunks, 1.0, 2.0)
    n, send = rounds * stages, 1e-3
    hops = (schedule.makespan(*work, n, send) - schedule.makespan(*work, n)) / send
    closed = pipeline.exposed_sends(float(stages), float(chunks), float(n), 1.0)
    assert float(closed) == pytest.approx(hops, rel=1e-6)
