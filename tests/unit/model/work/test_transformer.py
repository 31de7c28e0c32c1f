"""Operators, stored activations and parameter counts of a layer: the published closed forms are special cases."""

import dataclasses

import pytest
from hypothesis import given, settings, strategies as st

from dse import types
from dse.designs import catalog
from dse.model.work import attention, parameters
from dse.model.work.operators import CastElements, FlashShape, casts, flash_attention
from dse.types import Element
from tests.designs import SOFTWARE, WORKLOAD, make_design, work_of
from tests.programs import metrics_of

GPT = st.builds(
    lambda heads, head_dim, seq_len: dataclasses.replace(
        WORKLOAD,
        n_heads=heads,
        n_kv_heads=heads,
        head_dim=head_dim,
        hidden=heads * head_dim,
        ffn_hidden=4 * heads * head_dim,
        seq_len=seq_len,
        window=seq_len,
    ),
    heads=st.sampled_from([16.0, 32.0, 96.0]),
    head_dim=st.sampled_from([64.0, 128.0]),
    seq_len=st.sampled_from([512.0, 2048.0, 4096.0]),
)


def layer_bytes(design):
    return float(work_of(design).stored_activations.mean)


@given(workload=GPT, tp=st.sampled_from([1.0, 2.0, 8.0]), b=st.sampled_from([1.0, 4.0]))
@settings(max_examples=30, deadline=None)
def test_activations_of_a_layer_are_korthikanti_table_2(workload, tp, b):
    """Korthikanti et al. 2022, table 2, each of its five rows, 16-bit with dropout, unfused attention."""
    s, h, a = workload.seq_len, workload.hidden, workload.n_heads
    sbh, square = s * b * h, 5 * a * s / h

    def of(recompute, split):
        split = split if tp > 1 else 0
        return layer_bytes(make_design(workload, tp=tp, micro_batch=b, recompute=recompute, sequence_parallel=split))

    assert of(0, 0) == pytest.approx(sbh * (10 + 24 / tp + square / tp))
    assert of(1, 0) == pytest.approx(sbh * (10 + 24 / tp))
    assert of(0, 1) == pytest.approx(sbh / tp * (34 + square))
    assert of(1, 1) == pytest.approx(sbh / tp * 34)
    assert of(2, 0) == pytest.approx(2 * sbh)


def test_a_llama_layer_keeps_what_its_operators_need():
    """RMSNorm, flash, GQA, SwiGLU, no dropout: inputs of two norms and four linear layers, q k v, gate and up."""
    w = dataclasses.replace(
        WORKLOAD, n_kv_heads=8.0, gated=1.0, ffn_hidden=14336.0, dropout=0.0, rotary=1.0, learned_positions=0.0
    )
    design = make_design(w, software=dataclasses.replace(SOFTWARE, attention=1.0))
    tokens, h, kv, f = w.seq_len, w.hidden, 8 * 128.0, w.ffn_hidden
    residual_stream = 4 * h  # two norm inputs, two norm outputs
    attention = (h + 2 * kv) + h  # q, k, v; the projection's input
    feed_forward = 2 * f + f  # gate and up; the down projection's input
    statistics = 4 * w.n_heads
    expected = tokens * (2 * (residual_stream + attention + feed_forward) + statistics)
    assert layer_bytes(design) == pytest.approx(expected)


def test_matrix_flops_of_a_layer_are_twice_its_parameters_a_token():
    design = make_design()
    work = work_of(design)
    linear = [o for o in work.layer if o.kind == "matrix"]
    flops = sum(float(o.forward.flops) for o in linear)
    assert flops == pytest.approx(2 * parameters.layer_matrix_parameters(WORKLOAD) * WORKLOAD.seq_len)
    for o in linear:
        assert float(o.input_gradient.flops) == pytest.approx(float(o.forward.flops))
        assert float(o.weight_gradient.flops) == pytest.approx(float(o.forward.flops))


def test_model_flops_are_narayanan_equation_3_without_recompute():
    """72 B s L h^2 (1 + s/(6h) + V/(12 L h)) (Korthikanti et al. 2022, appendix A)."""
    w = WORKLOAD
    published = 72 * w.global_batch * w.seq_len * w.n_layers * w.hidden**2
    published *= 1 + w.seq_len / (6 * w.hidden) + w.vocab / (12 * w.n_layers * w.hidden)
    assert float(parameters.model_flops(w)) == pytest.approx(published)


@pytest.mark.parametrize(("head_dim", "computed"), [(48, 64), (64, 64), (80, 96), (128, 128), (152, 160), (192, 192)])
def test_flash_attention_pads_heads(head_dim, computed):
    """To a multiple of 32 columns, of which only FLOPs are more: what is read and kept is as wide as it is."""
    attended = FlashShape(16.0, 2048.0, 2048.0, 2048.0**2 / 2.0, float(head_dim), 16.0)
    heads = flash_attention(attended, Element(2.0, 2.0, 4.0, 50e6), 0.0, 1.0)
    assert float(heads.forward.flops) == pytest.approx(4.0 * 16.0 * 2048.0**2 / 2.0 * computed)
    assert float(heads.forward.bytes) == pytest.approx(2.0 * 4.0 * 16.0 * 2048.0 * head_dim)


@pytest.mark.parametrize(("head_dim", "is_flash"), [(128.0, True), (200.0, False)])
def test_heads_beyond_the_widest_of_a_flash_kernel_have_unfused_attention(head_dim, is_flash):
    """Steps and memory are those of a stack without the kernel; without a limit, or within it, those with it."""
    w = dataclasses.replace(WORKLOAD, head_dim=head_dim, hidden=head_dim * WORKLOAD.n_heads)
    flash = dataclasses.replace(SOFTWARE, attention=float(types.Attention.flash), softmax_batch=4.0)
    unfused = dataclasses.replace(flash, attention=float(types.Attention.unfused))
    limited = metrics_of(make_design(w, software=dataclasses.replace(flash, flash_most_head=128.0)))
    expected = metrics_of(make_design(w, software=flash if is_flash else unfused))
    for name in ("step_time", "peak_memory", "energy_per_step"):
        assert float(getattr(limited, name)) == pytest.approx(float(getattr(expected, name)), rel=1e-6)


def test_flash_attention_computes_the_causal_half_only():
    """Unfused kernels compute the full square; flash the half, a window less."""
    s = WORKLOAD.seq_len
    assert float(attention.flash_pairs(WORKLOAD)) == pytest.approx(s * s / 2)
    windowed = dataclasses.replace(WORKLOAD, window=512.0, local_layers=1.0)
    assert float(attention.flash_pairs(windowed)) == pytest.approx(s * 512 - 512**2 / 2)
    full = work_of(make_design())
    scores = next(o for o in full.layer if o.name == "attention_scores")
    assert float(scores.forward.flops) == pytest.approx(2 * 32 * s * s * 128)


def test_model_flops_of_windowed_layers_count_the_window():
    """GPT-OSS-120B at 4,096 tokens, by hand: half of 36 layers see 128 tokens, so (4096 + 128) / 2 = 2,112 on average.

    ``4 L s a d`` = 4 x 36 x 2,112 x 64 x 64 = 1.2457e9 FLOPs a token forward, of 2.4159e9 with the whole square.
    """
    oss = catalog.record(types.Workload, "gpt-oss-120b")
    whole = dataclasses.replace(oss, local_layers=0.0)
    assert float(parameters.attention_flops(oss)) == pytest.approx(4 * 36 * 2112 * 64 * 64)
    assert float(parameters.attention_flops(whole)) == pytest.approx(4 * 36 * 4096 * 64 * 64)
    counted, square = (float(parameters.model_flops(w)) for w in (oss, whole))
    tokens = oss.global_batch * oss.seq_len
    assert square - counted == pytest.approx(3 * tokens * (2.4159e9 - 1.2457e9), rel=1e-4)
    assert square / counted == pytest.approx(1.10, abs=0.01)
    assert float(parameters.attended_tokens(dataclasses.replace(oss, window=1e6))) == 4096.0


@pytest.mark.parametrize("model", ["gpt-oss-20b", "gemma-3-27b", "mistral-7b", "llama-4-scout"])
def test_causal_model_flops_are_those_of_the_pairs_that_kernels_compute(model):
    """``model_flops`` of the pairs: 4 a d of each pair, layer and pass, whatever the windows."""
    w = dataclasses.replace(catalog.record(types.Workload, model), seq_len=16384.0)
    pairs = attention.flash_pairs(w)
    share = pairs / (w.seq_len * parameters.attended_tokens(w))
    without = float(parameters.model_flops(w, 0.0))
    by_pairs = 3.0 * w.global_batch * 4.0 * w.n_layers * w.n_heads * w.head_dim * pairs
    assert float(parameters.model_flops(w, share)) - without == pytest.approx(float(by_pairs), rel=1e-5)
    assert 0.5 <= float(share) <= 1.0


def test_grouped_queries_are_not_read_as_multi_head():
    """GQA shrinks the QKV projection and its parameters, and key/value heads replicate beyond their number."""
    grouped = dataclasses.replace(WORKLOAD, n_kv_heads=8.0)
    saved = 2 * WORKLOAD.hidden * (32 - 8) * 128
    assert parameters.layer_parameters(WORKLOAD) - float(parameters.layer_parameters(grouped)) == pytest.approx(saved)
    one = float(parameters.layer_matrix_parameters(grouped, 8.0))
    two = float(parameters.layer_matrix_parameters(grouped, 16.0))
    kv_head = 2 * WORKLOAD.hidden * 128
    assert one - kv_head == pytest.approx(2 * (two - kv_head))


def test_embedding_is_a_look_up_not_a_product():
    work = work_of(make_design())
    embedding = work.embedding[0]
    assert float(embedding.forward.flops) <= WORKLOAD.seq_len * WORKLOAD.hidden
    assert embedding.kind == "vector"


def test_dropout_off_removes_its_masks_and_kernels():
    off = dataclasses.replace(WORKLOAD, dropout=0.0)
    assert layer_bytes(make_design(off)) < layer_bytes(make_design())
    assert float(metrics_of(make_design(off)).step_time) < float(metrics_of(make_design()).step_time)


@pytest.mark.parametrize("name", ["gpt-3-175b", "llama-3-70b", "gopher-280b", "gemma-2-27b", "mistral-7b"])
def test_operators_do_the_model_flops(name):
    """The linear layers and the full attention square of all operators are the model FLOPs by convention.

    Unfused kernels, which mask windows, compute the square of windowed layers too.
    """
    workload = dataclasses.replace(catalog.record(types.Workload, name), local_layers=0.0)
    work = work_of(make_design(dataclasses.replace(workload, global_batch=1.0)))
    passes = [
        work.flops
        for o in (*work.layer, *work.head)
        if o.kind in ("matrix", "matrix_16")
        for work in (o.forward, o.input_gradient, o.weight_gradient)
        if work is not None
    ]
    layers = [float(f) for f in passes[:-3]]
    head = [float(f) for f in passes[-3:]]
    total = workload.n_layers * sum(layers) + sum(head)
    published = float(parameters.model_flops(dataclasses.replace(workload, global_batch=1.0)))
    assert total == pytest.approx(published, rel=1e-5)


@pytest.mark.parametrize("gated", [0.0, 1.0])
def test_operator_by_operator_recompute_keeps_every_other_product(gated):
    """Outputs of query, value, gate (and down where it is the seventh), of the flash kernel, and the layer's input."""
    w = dataclasses.replace(WORKLOAD, n_kv_heads=8.0, gated=gated, ffn_hidden=14336.0, dropout=0.0)
    software = dataclasses.replace(SOFTWARE, attention=1.0)
    h, kv, f = w.hidden, 8 * 128.0, w.ffn_hidden
    products = [("query", h, h), ("key", h, kv), ("value", h, kv), ("output", h, h), ("up", h, f), ("down", f, h)]
    if gated:
        products.insert(4, ("gate", h, f))
    kept = [columns for _, _, columns in products[::2]]
    design = make_design(w, software=software, recompute=3)
    assert layer_bytes(design) == pytest.approx(2 * w.seq_len * (h + sum(kept) + h))
    # What runs again: the products not kept, less the last, whose output no backward needs.
    again = [rows * columns for name, rows, columns in products[1::2] if name != "down"]
    hfu, mfu = (float(getattr(metrics_of(design), name)) for name in ("hfu", "mfu"))
    flops = float(metrics_of(design).model_flops) * (hfu / mfu - 1.0)
    assert flops == pytest.approx(2 * w.n_layers * w.global_batch * w.seq_len * sum(again), rel=1e-4)


def test_operator_by_operator_recompute_costs_less_time_than_whole_layers_and_more_memory():
    w = dataclasses.replace(WORKLOAD, gated=1.0, dropout=0.0)
    software = dataclasses.replace(SOFTWARE, attention=1.0)
    none, single, full = (metrics_of(make_design(w, software=software, recompute=code)) for code in (0, 3, 2))
    for metric, least_first in (("step_time", (none, single, full)), ("peak_memory", (full, single, none))):
        values = [float(getattr(one, metric)) for one in least_first]
        assert values == sorted(values) and len(set(values)) == 3, metric


def test_casts_by_row_move_what_torchao_counts():
    """8 elements of inputs, 12 of gradients, 4 of weights, from 2 B to 1 B, as torchao's roofline counts them.

    Inputs 3 B forward and 5 B backward, gradients 3 + 5, weights 3 forward and 7 backward; gradients of the 8 inputs
    and 4 weights are read and written in 2 B to be scaled.
    """
    elements = CastElements(8.0, 12.0, 4.0)
    row, tensor = (Element(1.0, 2.0, 4.0, 50e6, transposed_casts=apart) for apart in (1.0, 0.0))
    by_row, by_tensor = (casts(elements, element, 1.0, True) for element in (row, tensor))
    assert float(by_row.forward.bytes) == 8 * 3 + 4 * 3
    assert float(by_row.input_gradient.bytes) == 8 * 5 + 12 * (3 + 5) + 4 * 7 + 4 * (8 + 4)
    assert (float(by_tensor.forward.bytes), float(by_tensor.input_gradient.bytes)) == (8 * 4, 12 * 4)
    # Frozen weights have no gradient: no transposed inputs and gradients, and no gradient of weights to scale.
    frozen = casts(elements, row, 1.0, False)
    assert float(frozen.input_gradient.bytes) == 12 * 3 + 4 * 7 + 4 * 8
    # Without a backward an operand is read and written once, whatever its scales.
    served = {float(casts(elements, element, 0.0, True).forward.bytes) for element in (row, tensor)}
    assert served == {8 * 3}
    assert (row.stored_input, tensor.stored_input, row.sixteen_bit().stored_input) == (2.0, 1.0, 2.0)
