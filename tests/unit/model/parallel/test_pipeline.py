"""The closed forms of the pipeline against the event-driven scheduler."""

import jax
import numpy as np
import pytest
from hypothesis import given, strategies as st

from dse.model.parallel import pipeline
from dse.model.stage_layers import max_layers_per_part, stage_layers
from dse.types import Schedule
from dse.views.trace.orders import pipeline_orders
from dse.views.trace.timeline import Durations, simulate

STAGES = st.sampled_from([2, 3, 4, 8])


def run(forward, backward, n, send=0.0):
    """1F1B of stages and chunks with these seconds, ``[stage, chunk]``, event by event."""
    along = (np.asarray(part).T.reshape(-1) for part in (forward, backward, np.zeros_like(forward)))
    order = pipeline_orders(Schedule._1f1b, *forward.shape, n)
    return simulate(order, Durations(*along, latency=send))


def makespan(forward, backward, n, send=0.0):
    return run(forward, backward, n, send).makespan


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
    exact = makespan(*equal_stages(stages, chunks, forward, backward), n)
    beat = forward + backward
    closed = n * beat + pipeline.bubble_time(pipeline.PipelineStages(beat, 0.0, 0.0), float(stages), float(chunks))
    assert float(closed) == pytest.approx(exact, rel=1e-5)


@given(stages=STAGES, n=st.integers(8, 24), heavy=st.floats(0.0, 1.0))
def test_a_heavy_last_stage_sets_the_beat(stages, n, heavy):
    """With the head on the last stage the closed form is exact for 1F1B in the long run."""
    forward, backward = equal_stages(stages, 1, 1.0, 2.0)
    forward[-1] += heavy / 3
    backward[-1] += 2 * heavy / 3
    exact = makespan(forward, backward, n)
    stage = pipeline.PipelineStages(3.0, 0.0, heavy)
    closed = n * (3.0 + pipeline.slowest_extra(stage, float(stages))) + pipeline.bubble_time(stage, float(stages), 1.0)
    assert float(closed) == pytest.approx(exact, rel=0.02)


@given(stages=STAGES, layers=st.integers(8, 40), n=st.integers(16, 32))
def test_stages_that_differ_by_a_layer(stages, layers, n):
    """The fullest stage, ``ceil(L / p)`` layers, sets the beat; the others are crossed once, in ``L - ceil(L / p)``.

    The exact makespan differs by less than a layer a stage, in which stages ahead or behind wait or catch up.
    """
    held = np.array([layers // stages + (stage < layers % stages) for stage in range(stages)], float)[:, None]
    exact = makespan(held, 2.0 * held, n)
    most = float(max_layers_per_part(float(layers), float(stages)))
    stage = pipeline.PipelineStages(3.0 * most, 0.0, 0.0, spare=3.0 * (stages * most - layers))
    closed = n * 3.0 * most + float(pipeline.bubble_time(stage, float(stages), 1.0))
    assert most == held.max()
    assert abs(exact - closed) <= 3.0 * stages


def uneven_chunks(stages, chunks, layers):
    """Layers of every chunk: the last has one less than the others, or the last and the first, where they must."""
    most = -(-layers // (stages * chunks))
    held = np.full((stages, chunks), float(most))
    held[-1, -1] -= stages * chunks * most - layers >= 1
    held[0, 0] -= stages * chunks * most - layers >= 2
    assert held.sum() == layers
    return held


@st.composite
def uneven_pipelines(draw):
    """(stages, chunks, layers, rounds): layers that only divide with loss, or loss and embedding, counted."""
    stages, chunks, most = draw(st.tuples(STAGES, st.sampled_from([1, 2, 4]), st.integers(1, 4)))
    less = draw(st.integers(1, 2 if stages > 2 or chunks > 1 else 1))
    return stages, chunks, max(stages * chunks * most - less, 1), draw(st.integers(1, 4))


@given(uneven_pipelines(), st.floats(0.0, 0.05), st.floats(0.0, 2.0))
def test_makespan_of_stages_whose_ends_have_a_layer_less(pipe, embedding, head):
    """Embedding and head take the place of a layer each, or less or more of it (in layers).

    Lighter ends let their neighbours catch up: the exact makespan is less by up to three layers of one micro-batch. A
    first stage that is slower by its embedding alone may catch up on that too. Two stages that are both short may wait
    for each other at every round.
    """
    stages, chunks, layers, rounds = pipe
    held = uneven_chunks(stages, chunks, layers)
    held[0, 0] += embedding
    held[-1, -1] += head
    n = rounds * stages
    exact = makespan(held, 2.0 * held, n)
    found = stage_layers(float(layers), float(stages), float(chunks))
    fullest = float(found.fullest)
    ends = embedding - float(found.first_lacks), head - float(found.last_lacks)
    stage = pipeline.PipelineStages(3.0 * fullest, *(3.0 * end for end in ends), spare=3.0 * float(found.middle_lacks))
    beat = 3.0 * fullest + float(pipeline.slowest_extra(stage, float(stages)))
    closed = n * beat + float(pipeline.bubble_time(stage, float(stages), float(chunks)))
    assert beat == pytest.approx(3.0 * held.sum(axis=1).max(), rel=1e-5)
    waits = rounds if stages == 2 and stages * float(found.chunks) - layers == 2.0 else 0.5
    assert -(3.0 + n * embedding) <= (exact - closed) / 3.0 <= waits


@given(uneven_pipelines())
def test_layers_in_flight_of_uneven_chunks(pipe):
    """Exactly as many layers' activations as the first, the second and the last stage hold at their peaks."""
    stages, chunks, layers, rounds = pipe
    held, n = uneven_chunks(stages, chunks, layers), rounds * stages
    timeline = run(held + 1e-3, 2.0 * held + 1e-3, n)
    found = stage_layers(float(layers), float(stages), float(chunks))
    p, v, n = float(stages), float(chunks), float(n)
    assert [float(x) for x in (found.fullest, found.fullest - found.first_lacks, found.fullest - found.last_lacks)] == [
        held.sum(axis=1).max(),
        held[0].sum(),
        held[-1].sum(),
    ]
    first = pipeline.in_flight(p, v, n) * found.chunks - found.short_first * pipeline.in_first_chunk(p, v, n)
    last = pipeline.in_flight(p, v, n, p - 1.0) * found.chunks - found.short_last * pipeline.in_last_chunk(p, v, n)
    assert float(first) == pytest.approx(timeline.in_flight(0, held.T.reshape(-1)))
    assert float(last) == pytest.approx(timeline.in_flight(stages - 1, held.T.reshape(-1)))
    if stages > 2:
        second = pipeline.in_flight(p, v, n, 1.0) * found.fullest
        assert float(second) == pytest.approx(timeline.in_flight(1, held.T.reshape(-1)))


@pytest.mark.parametrize(("layers", "parts"), [(21, 7), (77, 7), (161, 7), (126, 16), (128, 128)])
def test_constant_parts_divide_exactly(layers, parts):
    """A compiler may multiply by the reciprocal of a constant: 21 sevenths are then a little over 3."""
    assert float(jax.jit(lambda n: max_layers_per_part(n, float(parts)))(np.float32(layers))) == -(-layers // parts)


@pytest.mark.parametrize(("stages", "chunks", "n"), [(4, 1, 16), (4, 2, 16), (8, 3, 24), (4, 1, 2), (2, 4, 8)])
def test_micro_batches_in_flight(stages, chunks, n):
    """The first and the last stage hold as many chunks as the closed form says (Korthikanti 2022, 4.2.3)."""
    timeline = run(*equal_stages(stages, chunks, 1.0, 2.0), n)
    first = float(pipeline.in_flight(float(stages), float(chunks), float(n)))
    last = float(pipeline.in_flight(float(stages), float(chunks), float(n), stages - 1.0))
    assert timeline.in_flight(0) == pytest.approx(first * chunks)
    assert timeline.in_flight(stages - 1) == pytest.approx(last * chunks)


def test_one_stage_has_no_bubble_and_sends_nothing():
    stages = pipeline.PipelineStages(3.0, 0.5, 0.7)
    assert float(pipeline.bubble_time(stages, 1.0, 1.0)) == pytest.approx(0.0, abs=1e-6)
    assert float(pipeline.exposed_sends(1.0, 1.0, 8.0, 0.5)) == 0.0
    assert float(pipeline.slowest_extra(stages, 1.0)) == pytest.approx(1.2)


@pytest.mark.parametrize(("stages", "chunks", "rounds"), [(4, 2, 1), (4, 2, 4), (8, 4, 1), (8, 4, 4)])
def test_an_interleaved_schedule_that_hides_its_sends_waits_for_fill_and_drain(stages, chunks, rounds):
    """The first micro-batch crosses every chunk, the last comes back: 2 (p v - 1) hops, whatever n."""
    work = equal_stages(stages, chunks, 1.0, 2.0)
    n, send = rounds * stages, 1e-3
    hops = (makespan(*work, n, send) - makespan(*work, n)) / send
    closed = pipeline.exposed_sends(float(stages), float(chunks), float(n), 1.0)
    assert float(closed) == pytest.approx(hops, rel=1e-6)
