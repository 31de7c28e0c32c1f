"""Model state and activations in bytes: mixed-precision Adam, ZeRO, stages."""

import dataclasses
import math
from statistics import NormalDist

import pytest

import dse
from dse.designs import replace
from dse.model import parameter_count
from dse.model.work.parameters import attention_flops, usual_layer_parameters
from dse.types import Infeasible, MemoryTier, Scope
from tests.designs import SOFTWARE, WORKLOAD, make_design, work_of
from tests.programs import metrics_of


@pytest.mark.parametrize(
    ("stage", "bytes_per_parameter"),
    [(0, 18.0), (1, 6 + 12 / 8), (2, 2 + 16 / 8), (3, 18 / 8)],
)
def test_state_of_a_parameter_follows_zero(stage, bytes_per_parameter):
    """2 + 4 + 12 bytes with fp32 gradients; each ZeRO stage splits one more part over 8 replicas."""
    assert float(work_of(make_design(dp=8, zero_stage=stage)).state.total) == pytest.approx(bytes_per_parameter)


@pytest.mark.parametrize(("stage", "bytes_per_parameter"), [(1, 6 + 12 / 4), (2, 6 + 12 / 4), (3, 18 / 4)])
def test_a_pipeline_holds_whole_gradients_until_they_are_reduced(stage, bytes_per_parameter):
    """They accumulate over the micro-batches of a step: ZeRO 2 splits no more than ZeRO 1."""
    state = work_of(make_design(dp=4, pp=2, zero_stage=stage)).state
    assert float(state.total) == pytest.approx(bytes_per_parameter)


@pytest.mark.parametrize(("layers", "held"), [(14, 3 * 4.0), (15, 4 * 4.0), (16, 4 * 4.0)])
def test_the_second_stage_is_fullest_where_the_first_has_a_layer_less(layers, held):
    """Layers times micro-batches in flight: 4 of 4, or 3 of 4 on the second stage rather than 4 of 3 on the first."""
    small = dataclasses.replace(WORKLOAD, vocab=1024.0, n_layers=float(layers))
    m, whole = metrics_of(make_design(small, pp=4)), metrics_of(make_design(dataclasses.replace(small, n_layers=16.0)))
    assert float(m.peak_memory_activations / whole.peak_memory_activations) == pytest.approx(held / 16.0)
    assert float(m.peak_memory_weights / whole.peak_memory_weights) == pytest.approx(0.25)


@pytest.mark.parametrize(("precision", "master"), [("bf16", 4.0), ("fp32", 0.0)])
def test_moments_in_sixteen_bits_save_four_bytes(precision, master):
    """DeepSeek-V3 keeps them so (technical report, section 3.3.3); the master copy stays in fp32."""
    plain = dse.design("gpt3-6.7b", "selene", n_devices=8, dp=8, precision=precision)
    narrow = work_of(replace(plain, {"software.moment_bytes": 2.0}))
    assert float(narrow.state.optimizer) == pytest.approx(4.0 + master)
    assert float(work_of(plain).state.optimizer) == pytest.approx(8.0 + master)
    assert narrow.messages == work_of(plain).messages


def test_weights_gathered_in_eight_bits_are_half_the_message():
    """Megatron-Core's fp8-param-gather."""
    plain = dse.design("gpt3-6.7b", "selene", n_devices=8, dp=8, zero_stage=1, precision="fp8")
    gathers = [
        next(m for m in work_of(design).messages if m.name == "weights_all_gather")
        for design in (plain, replace(plain, {"software.weight_message_bytes": 1.0}))
    ]
    assert float(gathers[1].size) == pytest.approx(0.5 * float(gathers[0].size))


@pytest.mark.parametrize(("stage", "bytes_per_parameter"), [(0, 16.0), (1, 8 + 8 / 8), (3, 16 / 8)])
def test_weights_that_are_updated_in_place_have_no_master_copy(stage, bytes_per_parameter):
    """4 + 4 + 8 bytes: fp32 weights, cast as they are gathered, are their own master copy (weight_dtype of MaxText)."""
    in_place = dataclasses.replace(SOFTWARE, parameter_bytes=4.0)
    design = make_design(software=in_place, dp=8, zero_stage=stage)
    assert float(work_of(design).state.total) == pytest.approx(bytes_per_parameter)
    narrow = dataclasses.replace(in_place, parameter_bytes=2.0, moment_bytes=2.0, gradient_bytes=2.0)
    assert float(work_of(make_design(software=narrow)).state.total) == pytest.approx(8.0)
    full = make_design(precision=0), make_design(software=in_place, precision=0)
    assert float(work_of(full[0]).state.total) == float(work_of(full[1]).state.total)


KEEPS = dataclasses.replace(SOFTWARE, keeps_products=1.0, attention=1.0)


def test_products_that_are_kept_are_those_that_the_backward_needs():
    """Of a layer: its input, queries, keys, values, the attention's output and what feeds the activation.

    The output of the feed-forward is no residual of anything; nor is the attention's, where both run side by side.
    """
    tokens, h = WORKLOAD.seq_len, WORKLOAD.hidden
    gated = dataclasses.replace(WORKLOAD, gated=1.0, dropout=0.0)
    kept = work_of(make_design(gated, software=KEEPS, recompute=3)).stored_activations.mean
    assert float(kept) == pytest.approx(2.0 * tokens * (5.0 * h + 2.0 * gated.ffn_hidden))
    side = dataclasses.replace(gated, parallel_block=1.0)
    kept = work_of(make_design(side, software=KEEPS, recompute=3)).stored_activations.mean
    assert float(kept) == pytest.approx(2.0 * tokens * (4.0 * h + 2.0 * gated.ffn_hidden))


@pytest.mark.parametrize("software", [KEEPS, dataclasses.replace(KEEPS, keeps_products=0.0)])
@pytest.mark.parametrize("changes", [{}, {"gated": 1.0, "dropout": 0.0}, {"parallel_block": 1.0}, {"n_kv_heads": 4.0}])
def test_more_recompute_never_takes_more_memory(software, changes):
    """None, some products' outputs, inputs of layers alone; time goes the other way."""
    workload = dataclasses.replace(WORKLOAD, parallel_block=0.0)
    designs = [make_design(dataclasses.replace(workload, **changes), software=software, recompute=r) for r in (0, 3, 2)]
    peaks, times = zip(*((float(m.peak_memory), float(m.step_time)) for m in map(metrics_of, designs)), strict=True)
    assert peaks[0] >= peaks[1] >= peaks[2] and times[0] <= times[1] <= times[2]


def test_what_keeps_products_runs_its_attention_again():
    """FLOPs of the core, not of products, are repeated."""
    none, kept, other = (
        metrics_of(make_design(software=dataclasses.replace(KEEPS, keeps_products=k), recompute=r))
        for k, r in ((1.0, 0), (1.0, 3), (0.0, 3))
    )
    again = float(kept.hfu * kept.step_time - none.hfu * none.step_time)
    core = float(attention_flops(WORKLOAD)) / float(none.model_flops) * WORKLOAD.seq_len * WORKLOAD.global_batch
    assert again / float(none.mfu * none.step_time) == pytest.approx(core, rel=1e-4)
    assert float(kept.peak_memory) > float(other.peak_memory)


def test_a_layer_side_by_side_has_one_norm_and_fewer_messages():
    """One input is gathered and one gradient comes back: 2 + 2 of eight messages of a split layer remain, and a sum."""
    designs = [
        make_design(dataclasses.replace(WORKLOAD, parallel_block=p), tp=4, sequence_parallel=2) for p in (0.0, 1.0)
    ]
    serial, side = (work_of(design) for design in designs)
    assert float(side.stored_activations.mean) < float(serial.stored_activations.mean)
    counts = [
        sum(float(m.times) for m in work.messages if m.scope is Scope.layer and m.group.size == 4.0)
        for work in (serial, side)
    ]
    assert counts == [8.0, 5.0]


@pytest.mark.parametrize(("splits", "reason"), [(None, Infeasible.sequence_not_divisible), (1.0, 0)])
def test_residuals_may_be_split_along_the_hidden_size(splits, reason):
    """PaLM: 12 ranks of tp, 2,048 tokens, hidden 18,432; one fully sharded tensor a layer is saved."""
    software = dataclasses.replace(SOFTWARE, splits_hidden=splits)
    small = dataclasses.replace(WORKLOAD, hidden=4608.0, n_heads=36.0, n_kv_heads=36.0, ffn_hidden=18432.0)
    metrics = metrics_of(make_design(small, software=software, tp=12, sequence_parallel=2))
    assert int(metrics.infeasible_reason) & ~int(Infeasible.memory) == reason


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


@pytest.mark.parametrize(("resharding", "bytes_per_parameter"), [(1.0, 18 / 4), (0.0, 6 + 12 / 4)])
def test_a_stack_that_does_not_reshard_under_a_pipeline_keeps_weights_and_gradients_whole(
    resharding, bytes_per_parameter
):
    """FSDP there splits the optimiser alone, as ZeRO 1 does; without a pipeline it splits all."""
    software = dataclasses.replace(SOFTWARE, pipeline_resharding=resharding)
    state = work_of(make_design(software=software, dp=4, pp=2, zero_stage=3)).state
    assert float(state.total) == pytest.approx(bytes_per_parameter)
    alone = work_of(make_design(software=software, dp=4, zero_stage=3)).state
    assert float(alone.total) == pytest.approx(18 / 4)


@pytest.mark.parametrize(("stage", "moved"), [(0, 0.0), (1, 0.0), (2, 1.0), (3, 3.0)])
def test_a_stack_that_gathers_matrices_holds_one_where_others_hold_a_layer(stage, moved):
    """Gradients before they are scattered from ZeRO 2 on, two times the weights that are gathered from 3 on.

    The others gather the outermost unit whole, with positions and the last norm; this one the head alone.
    """

    def peak(by_matrix):
        software = dataclasses.replace(SOFTWARE, gathers_matrices=by_matrix)
        return float(metrics_of(make_design(software=software, dp=8, zero_stage=stage)).peak_memory)

    layer = float(usual_layer_parameters(WORKLOAD))
    saved = 2.0 * moved * (layer - WORKLOAD.hidden * WORKLOAD.ffn_hidden)
    if stage == 3:
        saved += 2.0 * (WORKLOAD.seq_len + 1.0) * WORKLOAD.hidden
    assert peak(0.0) - peak(1.0) == pytest.approx(saved, rel=1e-3, abs=1.0)


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_recompute_of_some_layers_is_linear_in_their_share(share):
    none, full = metrics_of(make_design(recompute=0)), metrics_of(make_design(recompute=2))
    some = metrics_of(make_design(recompute=2, recompute_share=share))
    for metric in ("peak_memory_activations", "step_time_recompute", "step_time", "energy_per_step"):
        ends = float(getattr(none, metric)), float(getattr(full, metric))
        expected = ends[0] + share * (ends[1] - ends[0])
        assert float(getattr(some, metric)) == pytest.approx(expected, rel=1e-5), metric


def test_the_chance_to_fit_is_even_where_all_memory_is_used():
    need = float(metrics_of(make_design()).peak_memory)
    chances = []
    for share in (0.5, 0.95, 1.0, 1.05, 2.0):
        memory = MemoryTier(capacity=need * share, bandwidth=2.039e12)
        design = make_design()
        accelerator = dataclasses.replace(design.system.accelerator, memory=memory)
        system = dataclasses.replace(design.system, accelerator=accelerator)
        chances.append(float(metrics_of(dataclasses.replace(design, system=system)).fits_probability))
    assert chances == sorted(chances)
    assert chances[2] == pytest.approx(0.5, abs=1e-3)
    # A normal distribution of the logarithm, as wide as where no peak of the framework was measured.
    expected = [NormalDist(sigma=0.133).cdf(math.log(share)) for share in (0.5, 0.95, 1.0, 1.05, 2.0)]
    assert chances == pytest.approx(expected, abs=0.01)
