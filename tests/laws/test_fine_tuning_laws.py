"""Laws of low-rank adapters and of packed documents."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest

from dse.model import lay_out, training_work
from dse.model.work.parameters import attention_flops, model_flops
from dse.types import Adapters, Design, Latent, Packing
from tests.designs import SOFTWARE, WORKLOAD, make_design
from tests.laws.test_expert_laws import MIXTURE, with_experts
from tests.programs import metrics_of

LLAMA = dataclasses.replace(
    WORKLOAD, gated=1.0, tied_embeddings=0.0, learned_positions=0.0, dropout=0.0, n_kv_heads=8.0, global_batch=64.0
)
FLASH = dataclasses.replace(SOFTWARE, attention=1.0, gradient_cache=1.0)


def fine_tuning(workload=LLAMA, packing=None, mapping=None, **adapters) -> Design:
    """A design whose workload trains adapters, unless ``rank`` is None."""
    record = None if adapters.get("rank", 16.0) is None else Adapters(**{"rank": 16.0, **adapters})
    workload = dataclasses.replace(workload, adapters=record, packing=packing and Packing(document=packing))
    return make_design(workload, software=FLASH, **{"tp": 2, "dp": 4, "zero_stage": 1, **(mapping or {})})


def both(**mapping):
    """Metrics of the same mapping that trains adapters, and that trains all."""
    return metrics_of(fine_tuning(mapping=mapping)), metrics_of(fine_tuning(rank=None, mapping=mapping))


@pytest.mark.parametrize("mapping", [{}, {"zero_stage": 3}, {"pp": 2, "recompute": 2}])
def test_adapters_cost_less_than_training_all(mapping):
    """Less memory, time and energy; of the state hardly more than the weights is left."""
    tuned, whole = both(**mapping)
    for name in ("peak_memory", "step_time", "energy_per_step", "model_flops"):
        assert float(getattr(tuned, name)) < float(getattr(whole, name))
    assert float(tuned.peak_memory_weights) > float(whole.peak_memory_weights)  # those of the adapters
    state = float(tuned.peak_memory_gradients + tuned.peak_memory_optimizer)
    assert 0.0 < state < 0.02 * float(whole.peak_memory_gradients + whole.peak_memory_optimizer)
    assert float(tuned.step_time_backward) < 0.8 * float(whole.step_time_backward)
    assert float(tuned.step_time_data_parallel) <= float(whole.step_time_data_parallel)


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
@pytest.mark.parametrize("split", [0.0, 1.0])
def test_adapters_are_slower_only_by_messages_that_weight_gradients_hid(tp, split):
    """All else is faster, and all of it where nothing hides in either: frameworks wait for what frozen layers send."""
    mapping = dict(tp=tp, dp=8 // tp, sequence_parallel=split * float(tp > 1))
    tuned, whole = both(**mapping)
    computed = [float(m.step_time - m.step_time_tensor_parallel) for m in (tuned, whole)]
    assert computed[0] < computed[1]
    waiting = [
        metrics_of(
            dataclasses.replace(
                design, software=dataclasses.replace(design.software, tp_overlap=0.0, backward_tp_overlap=0.0)
            )
        )
        for design in (fine_tuning(mapping=mapping), fine_tuning(rank=None, mapping=mapping))
    ]
    assert float(waiting[0].step_time) < float(waiting[1].step_time)


@pytest.mark.parametrize("parts", [{}, {"feed_forward": 0.0}, {"qkv": 0.0}])
def test_tp_splits_adapters(parts):
    """Parameters, and so what is kept, sent and updated; what is added to a split sequence too."""
    whole, split = (
        training_work(design, lay_out(design))
        for design in (
            fine_tuning(mapping=dict(tp=tp, dp=8 // tp, sequence_parallel=float(tp > 1)), **parts) for tp in (1, 8)
        )
    )
    assert float(split.trained.adapter_parameters) == pytest.approx(float(whole.trained.adapter_parameters) / 8.0)
    sums = [[o.forward.bytes for o in work.layer if o.name == "adapter_projection_sum"] for work in (whole, split)]
    assert float(sums[1][0]) == pytest.approx(float(sums[0][0]) / 8.0)


def test_adapters_have_the_parameters_of_the_paper():
    """``r (n + m)`` a matrix, whatever tp splits; the products of the operators are counted."""
    w, r = LLAMA, 16.0
    qkv = w.hidden + (w.n_heads + 2 * w.n_kv_heads) * w.head_dim
    output = w.n_heads * w.head_dim + w.hidden
    ffn = (w.hidden + 2 * w.ffn_hidden) + (w.ffn_hidden + w.hidden)
    for parts, expected in (
        ({}, qkv + output + ffn),
        ({"projection": 0.0, "feed_forward": 0.0}, qkv),
        ({"qkv": 0.0}, output + ffn),
    ):
        design = fine_tuning(mapping=dict(tp=1), rank=r, **parts)
        trained = training_work(design, lay_out(design)).trained
        assert float(trained.adapter_parameters) == r * expected


def test_model_flops_are_two_passes_of_frozen_matrices():
    """Three of the attention square: 6 N becomes 4 N (as NeMo counts its LoRA rows)."""
    tuned = dataclasses.replace(LLAMA, adapters=Adapters())
    square = attention_flops(LLAMA) * LLAMA.global_batch * LLAMA.seq_len
    matrices = float(model_flops(LLAMA)) - 3.0 * square
    assert float(model_flops(tuned)) == pytest.approx(2.0 / 3.0 * matrices + 3.0 * square, rel=1e-6)


def test_time_and_memory_grow_with_the_rank_and_with_what_is_adapted():
    """And a narrower format of frozen weights takes less memory alone."""
    rows = [
        metrics_of(fine_tuning(**adapters))
        for adapters in (dict(rank=8.0, feed_forward=0.0), dict(rank=8.0), dict(rank=64.0), dict(rank=256.0))
    ]
    for less, more in itertools.pairwise(rows):
        assert float(less.step_time) < float(more.step_time)
        assert float(less.peak_memory) < float(more.peak_memory)
    eight, four = metrics_of(fine_tuning(rank=64.0, frozen_bytes=1.0)), metrics_of(fine_tuning(rank=64.0))
    assert float(eight.step_time) == float(four.step_time)
    weights = [float(m.peak_memory_weights) for m in (eight, four)]
    assert 0.5 < weights[0] / weights[1] < 0.53


def test_documents_as_long_as_the_sequence_are_one():
    """Packing one document changes nothing; more of them take attention alone, to the FLOP."""
    plain, packed = metrics_of(fine_tuning(rank=None)), metrics_of(fine_tuning(rank=None, packing=LLAMA.seq_len))
    for name in ("step_time", "peak_memory", "energy_per_step", "mfu_causal"):
        assert float(getattr(plain, name)) == pytest.approx(float(getattr(packed, name)), rel=1e-5)
    quarter = metrics_of(fine_tuning(rank=None, packing=LLAMA.seq_len / 4))
    assert float(quarter.step_time) < float(packed.step_time)
    assert float(quarter.peak_memory) == pytest.approx(float(packed.peak_memory), rel=1e-6)
    causal, every = float(quarter.mfu_causal * quarter.step_time), float(packed.mfu_causal * packed.step_time)
    flops = float(model_flops(LLAMA))
    square = 3.0 * attention_flops(LLAMA) * LLAMA.global_batch * LLAMA.seq_len
    assert causal / every == pytest.approx((flops - 7.0 / 8.0 * square) / (flops - square / 2.0), rel=1e-4)


@pytest.mark.slow
def test_routed_experts_are_frozen():
    """A mixture trains the adapters of its attention and shared expert, and keeps no state of routed experts."""
    latent = Latent(q_rank=512.0, kv_rank=256.0, rope_dim=64.0, v_dim=96.0)
    design = fine_tuning(dataclasses.replace(LLAMA, latent=latent), mapping=dict(sequence_parallel=1, zero_stage=3))
    mixture = dataclasses.replace(MIXTURE, shared_ffn=2048.0, first_dense=1.0)
    tuned = metrics_of(with_experts(design, mixture, ep=4))
    assert 0.0 < float(tuned.peak_memory_optimizer) < 0.1 * float(tuned.peak_memory_weights)
    assert all(np.isfinite(value) for value in jax.tree.leaves(tuned))
