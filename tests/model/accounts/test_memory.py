"""Model state and activations in bytes: mixed-precision Adam, ZeRO, stages."""

import dataclasses

import pytest

from dse.model.work.parameters import parameter_count
from tests.designs import SOFTWARE, WORKLOAD, make_design, work_of
from tests.programs import metrics_of


@pytest.mark.parametrize(
    ("stage", "bytes_per_parameter"),
    [(0, 18.0), (1, 6 + 12 / 8), (2, 2 + 16 / 8), (3, 18 / 8)],
)
def test_state_of_a_parameter_follows_zero(stage, bytes_per_parameter):
    """2 + 4 + 12 bytes with fp32 gradients; each ZeRO stage splits one more part over 8 replicas."""
    assert float(work_of(make_design(dp=8, zero_stage=stage)).state.total) == pytest.approx(bytes_per_parameter)


def test_sixteen_bit_gradients_save_two_bytes():
    software = dataclasses.replace(SOFTWARE, gradient_bytes=2.0)
    assert float(work_of(make_design(software=software)).state.total) == pytest.approx(16.0)


def test_full_precision_training_needs_no_master_copy():
    """fp32: weights 4, gradients 4, two moments 8."""
    assert float(work_of(make_design(precision=0)).state.total) == pytest.approx(16.0)


def test_state_of_the_whole_model_is_18_bytes_a_parameter():
    m = metrics_of(make_design())
    held = m.peak_memory_weights + m.peak_memory_gradients + m.peak_memory_optimizer
    held = float(held + m.peak_memory_embedding_and_head)
    assert held == pytest.approx(18 * float(parameter_count(WORKLOAD)), rel=1e-6)


def test_the_first_stage_holds_as_many_micro_batches_as_stages():
    one, four = metrics_of(make_design(pp=1)), metrics_of(make_design(pp=4))
    assert float(four.peak_memory_activations) == pytest.approx(float(one.peak_memory_activations))
    interleaved = metrics_of(make_design(pp=4, virtual_stages=2))
    assert float(interleaved.peak_memory_activations) == pytest.approx(
        float(four.peak_memory_activations) * (1 + 3 / 8)
    )


def test_a_large_vocabulary_can_make_the_last_stage_the_fullest():
    big = dataclasses.replace(WORKLOAD, vocab=512000.0, tied_embeddings=0.0, global_batch=8.0)
    m = metrics_of(make_design(big, pp=2, micro_batch=8, recompute=2))
    assert float(m.peak_memory_logits) > 8 * 2048 * 512000 * 4.0 * 0.99
