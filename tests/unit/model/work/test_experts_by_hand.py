"""Feed-forwards of dense layers and of mixtures of experts in numbers, worked out by hand in comments."""

from __future__ import annotations

import dataclasses

import pytest

from dse.model.work.blocks import feed_forward_of
from dse.model.work.parameters import recomputed_flops
from dse.types import AllToAll, ExpertKernels, ExpertMapping, Experts, Precision, Recompute
from tests.designs import SOFTWARE, WORKLOAD, make_design, work_of

#: One dense layer of 100 x 200, three with eight experts of 100 x 30, of which two serve a token, and one of 100 x 40.
MIXTURE = dataclasses.replace(
    WORKLOAD,
    n_layers=4.0,
    hidden=100.0,
    ffn_hidden=200.0,
    gated=1.0,
    experts=Experts(n_experts=8.0, top_k=2.0, expert_ffn=30.0, shared_ffn=40.0, first_dense=1.0),
)
PLAIN = dataclasses.replace(MIXTURE, gated=0.0)


@pytest.mark.parametrize(
    ("workload", "inner", "block", "multiplications"),
    [
        # Gate and up: two matrices of 100 x 200, then in three layers of 100 x (2 x 30 + 40).
        (MIXTURE, 1.0, 0.0, 2 * 20_000 + 3 * 2 * 10_000),
        (PLAIN, 1.0, 0.0, 20_000 + 3 * 10_000),
        # Down is one of each; the router has 100 x 8.
        (MIXTURE, 0.0, 1.0, 20_000 + 3 * (10_000 + 800)),
        (PLAIN, 0.0, 1.0, 20_000 + 3 * (10_000 + 800)),
        (MIXTURE, 1.0, 1.0, 3 * 20_000 + 3 * (3 * 10_000 + 800)),
        (MIXTURE, 0.0, 0.0, 0),
    ],
)
def test_products_that_a_recompute_of_experts_repeats(workload, inner, block, multiplications):
    levels = {Recompute.norms: 0.0, Recompute.expert_inner: inner, Recompute.expert_block: block}
    assert float(recomputed_flops(workload, levels)) == 2.0 * multiplications


def test_a_recompute_of_all_parts_repeats_the_forward_of_the_feed_forward():
    """Two FLOPs for each parameter that a token uses: 2 of 8 experts, router and shared expert."""
    feed_forward = feed_forward_of(MIXTURE)
    used = feed_forward.common() + feed_forward.active_share * feed_forward.routed()
    dense = 3.0 * MIXTURE.hidden * MIXTURE.ffn_hidden
    levels = dict.fromkeys((Recompute.norms, Recompute.expert_inner, Recompute.expert_block), 1.0)
    assert float(recomputed_flops(MIXTURE, levels)) == pytest.approx(2.0 * float(dense + 3.0 * used))


def test_parameters_of_experts():
    """An expert has 3 x 100 x 30, the router 100 x 8 and the shared expert 3 x 100 x 40."""
    feed_forward = feed_forward_of(MIXTURE)
    assert float(feed_forward.expert()) == 9000.0 and float(feed_forward.expert(3.0)) == 3000.0
    assert float(feed_forward.routed()) == 72_000.0
    assert float(feed_forward.common()) == 800.0 + 12_000.0 and float(feed_forward.common(4.0)) == 800.0 + 3000.0


@pytest.mark.parametrize(
    ("workload", "mapping", "elements"),
    [
        # 2048 tokens x 16384 columns.
        (WORKLOAD, {}, 33_554_432),
        (WORKLOAD, {"tp": 4}, 8_388_608),
        (dataclasses.replace(WORKLOAD, gated=1.0), {"micro_batch": 2}, 67_108_864),
        # Two experts of 1024 columns serve each of 2048 tokens, beside one of 512 for all.
        (
            dataclasses.replace(
                WORKLOAD, experts=Experts(n_experts=4.0, top_k=2.0, expert_ffn=1024.0, shared_ffn=512.0)
            ),
            {},
            2048 * (2 * 1024 + 512),
        ),
    ],
    ids=["dense", "split", "gated", "experts"],
)
@pytest.mark.parametrize(("precision", "size"), [(Precision.bf16, 2.0), (Precision.fp8, 1.0)])
def test_outputs_of_the_activation_that_are_kept(workload, mapping, elements, precision, size):
    """2 B an element that feeds the last product, 1 B in a format of 8 bits; nothing where they are computed again."""
    stored = []
    for share in (0.0, 0.5, 1.0):
        software = dataclasses.replace(SOFTWARE, activation_output_kept=share, experts=ExpertKernels())
        design = make_design(workload, software=software, precision=precision, **mapping)
        with_experts = dataclasses.replace(design.mapping, experts=ExpertMapping())
        design = dataclasses.replace(design, mapping=with_experts if workload.experts else design.mapping)
        stored.append(float(work_of(design).stored_activations.mean))
    assert stored[2] - stored[0] == pytest.approx(size * elements, rel=1e-4)
    assert stored[1] == pytest.approx(0.5 * (stored[0] + stored[2]))


def operators_of_gpt_oss(kernels, precision, all_to_all):
    """Name → operator of a layer with biases, clamps and scaled rotary positions."""
    experts = Experts(n_experts=4.0, top_k=2.0, expert_ffn=1024.0, biased=1.0, clamped=1.0)
    workload = dataclasses.replace(WORKLOAD, gated=1.0, rotary=1.0, scaled_rotary=1.0, experts=experts)
    software = dataclasses.replace(SOFTWARE, experts=kernels)
    design = make_design(workload, software=software, precision=precision)
    mapping = dataclasses.replace(design.mapping, experts=ExpertMapping(all_to_all=float(all_to_all)))
    return {op.name: op for op in work_of(dataclasses.replace(design, mapping=mapping)).layer}


def passes(operators, name):
    """Bytes of the forward and of the backward of an operator."""
    return float(operators[name].forward.bytes), float(operators[name].input_gradient.bytes)


@pytest.mark.parametrize(
    ("all_to_all", "bias_bytes"),
    [
        # Weights in 2 B: 6 passes of 2 B forward, 8 backward.
        (AllToAll.pairwise, (12, 16)),
        # In 4 B: 4 written; 2 and 4 read, 4 written; 4 and 4 joined; 4 and 2 cast. Backward: 6 cast, 6 of the sum,
        # 4 joined, 12 times the weight and summed, 12 times the bias and summed.
        (AllToAll.by_node, (28, 40)),
    ],
    ids=["16 bits", "fp32"],
)
def test_single_kernels_of_gpt_oss(all_to_all, bias_bytes):
    """2048 tokens of 4096 columns, each to two experts of 1024 gated columns; 32 heads of 128 of queries and keys."""
    operators = operators_of_gpt_oss(ExpertKernels(), Precision.bf16, all_to_all)

    def both(name):
        return passes(operators, name)

    assert both("experts_bias") == tuple(4096 * 4096 * each for each in bias_bytes)
    # Of 2 x 1024 columns: clamped 4, joined 4. Backward: gate compared 3, selected 5; linear part compared twice 6,
    # both joined 3, selected 5; on the mean of the two 11, joined 4.
    assert both("experts_clamp") == (4096 * 2048 * 8, 4096 * 2048 * 15)
    assert float(operators["experts_clamp"].stored) == 4096 * 2048 * 2
    assert both("rotary") == (2048 * 8192 * 24, 2048 * 8192 * 28)


def test_what_fused_products_leave_to_other_kernels():
    """4096 rows of 4096 columns on one device: moved, cast and summed for biases, but neither clamped nor activated."""
    operators = operators_of_gpt_oss(ExpertKernels(fused=1.0), Precision.mxfp8, AllToAll.by_node)
    assert passes(operators, "experts_bias") == (0.0, 4096 * 4096 * 2)  # the gradient is read once
    assert passes(operators, "experts_clamp") == passes(operators, "experts_activation") == (0.0, 0.0)
    # Of 2048 tokens and 4096 rows, in 2 B, read or written there and as many back.
    assert passes(operators, "permute") == ((2048 + 4096) * 4096 * 4,) * 2
    # Inputs of queries, keys and values, of their projection and of the first products, each read in 2 B and written
    # twice in 1 B and a 32nd. Backward: gradients of the projection, of queries, keys and values, of second products.
    inputs, gradients = 2048 * 2 * 4096 + 4096 * 4096, 2048 * (1 + 3) * 4096 + 4096 * 4096
    assert passes(operators, "quantization") == (inputs * 4.0625, gradients * 4.0625)
