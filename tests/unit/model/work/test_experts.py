"""Mixtures of experts and latent attention: counts, memory and time, and what must hold of them."""

import csv
import dataclasses

import pytest

import dse
from dse import types
from dse.designs import catalog, replace
from dse.designs.catalog.load import find
from dse.errors import InputError
from dse.model import lay_out, main_model, parameter_count
from dse.model.layout import EXPERT_LEVELS
from dse.model.work.blocks import feed_forward_of
from dse.model.work.messages import tensor_messages
from dse.model.work.parameters import attention_flops, embedding_parameters, forward_flops
from dse.model.work.state import not_stored_bytes, stored_bytes
from dse.spec import sweep as specs
from dse.types import Experts, Infeasible, Latent, OperatorKind, Recompute, SequenceParallel
from tests.designs import WORKLOAD, active_parameters, work_of
from tests.unit.designs.test_catalog import REFERENCE

#: Models with experts whose layers all attend to all tokens; the others are serving's (``tests/unit/designs``).
MODELS = [
    slug
    for slug in catalog.names("workload")
    for workload in [catalog.record(types.Workload, slug)]
    if workload.experts is not None and workload.recurrent is None and workload.sparse is None
]

#: Models of which less is published than the first two digits of what a token meets.
ROUNDED = {"grok-1": 0.03}


def with_experts(workload=WORKLOAD, **values):
    """A workload whose layers have one expert of the feed-forward's width, unless told otherwise."""
    one = dict(n_experts=1.0, top_k=1.0, expert_ffn=workload.ffn_hidden)
    return dataclasses.replace(workload, experts=Experts(**{**one, **values}))


# Parameters


@pytest.mark.parametrize("slug", MODELS)
def test_counts_are_the_published_ones(slug):
    """In all to 1 %; a token's to 1 % or rounded or cut as published, with or without the input embedding.

    Of the main model: what predicts further tokens is counted apart, here and by its authors.
    """
    workload, entry = main_model(catalog.record(types.Workload, slug)), catalog.entry("workload", slug)
    assert float(parameter_count(workload)) == pytest.approx(entry.value("parameters_published"), rel=0.01)
    published, active = entry.value("active_published"), float(active_parameters(workload))
    last_digit = 1e9 if published % 1e9 == 0.0 else 1e8
    counted = (active, active - float(embedding_parameters(workload)))
    near = ROUNDED.get(slug, 0.01)
    assert any(
        abs(count / published - 1.0) < near or published - 0.5 * last_digit <= count < published + last_digit
        for count in counted
    )


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="the reference tables are not beside this checkout")
def test_counts_are_those_of_the_reference_table():
    """To 0.1 %, in all and of a token (norms of heads and biases of routers are left out here or there)."""
    with open(REFERENCE / "models.csv", encoding="utf-8", newline="") as file:
        rows = {find("workload", row["name"]): row for row in csv.DictReader(file)}
    for slug in set(MODELS) & rows.keys():
        workload, row = main_model(catalog.record(types.Workload, slug)), rows[slug]
        assert float(parameter_count(workload)) == pytest.approx(1e9 * float(row["params_calc_total_B"]), rel=1e-3)
        assert float(active_parameters(workload)) == pytest.approx(1e9 * float(row["params_calc_active_B"]), rel=1e-3)


@pytest.mark.parametrize("gated", [0.0, 1.0])
def test_one_expert_is_a_dense_model_with_a_router(gated):
    dense = dataclasses.replace(WORKLOAD, gated=gated)
    router = dense.n_layers * dense.hidden
    found = with_experts(dense)
    assert float(parameter_count(found)) == float(active_parameters(found)) == float(parameter_count(dense)) + router


def test_layers_in_front_are_dense():
    found = with_experts(n_experts=8.0, first_dense=WORKLOAD.n_layers)
    assert float(parameter_count(found)) == float(parameter_count(WORKLOAD))


def test_uncompressed_queries_of_latent_attention():
    """A latent as wide as all heads' keys and values adds its projection down to what it is projected up to."""
    w = WORKLOAD
    wide = w.n_heads * w.head_dim
    latent = Latent(q_rank=0.0, kv_rank=wide, rope_dim=0.0, v_dim=w.head_dim)
    more = w.n_layers * (wide * (w.hidden + 2 * wide) + wide - 2 * w.hidden * wide)
    found = dataclasses.replace(w, latent=latent)
    assert float(parameter_count(found)) == float(parameter_count(w)) + more


def test_parameters_of_a_further_predicted_token():
    """DeepSeek-V3's module has 11.5 billion of its own (its repository); embedding and head are the model's."""
    workload = catalog.record(types.Workload, "deepseek-v3")
    assert workload.experts.n_predict == 1.0
    own = float(parameter_count(workload) - parameter_count(main_model(workload)))
    assert own == pytest.approx(11.5e9, rel=0.01)
    copies = 2.0 * float(embedding_parameters(workload))
    assert own + copies == pytest.approx(14e9, abs=0.8e9)  # "14B" of the 685B that its repository lists


def test_the_published_pipelines_of_deepseek_v3_run():
    """16 stages of at most four layers, of which the last predicts the further token (DeepSeek-AI 2024, section 3.2).

    So do those of Megatron-Bridge 25.09: 4 stages of 4 chunks and 8 of 4 (its performance summary).
    """
    for pp, virtual_stages in ((16, 1), (4, 4), (8, 4)):
        asked = dict(
            pp=pp,
            virtual_stages=virtual_stages,
            ep=64,
            tp=2,
            sequence_parallel=1,
            global_batch=8192,
            recompute="full",
            any_option=True,
        )
        found = dse.evaluate(dse.design("deepseek-v3", "h100", n_devices=2048, **asked))
        assert not int(found.infeasible_reason) & int(Infeasible.layers_not_divisible)
        without = dse.evaluate(dse.design("deepseek-v3", "h100", n_devices=2048, n_predict=0, **asked))
        assert not int(without.infeasible_reason) & int(Infeasible.layers_not_divisible)  # by a layout of its own
        even = dse.evaluate(dse.design("deepseek-v3", "h100", "nemo", n_devices=2048, n_predict=0, **asked))
        assert int(even.infeasible_reason) & int(Infeasible.layers_not_divisible)
        assert float(found.parameters - without.parameters) == pytest.approx(11.6e9, rel=0.01)
        assert float(found.step_time) > float(without.step_time)


def test_what_serves_has_no_further_token_unless_it_drafts():
    """Nor a layer of one in its pipeline, nor its parameters."""
    served = dse.design("deepseek-v3", "h200", n_devices=16, kind="serving", tp=8, ep=16, etp=1)
    assert served.workload.experts.n_predict == 1.0
    plain = dse.serve(replace(served, {"workload.experts.n_predict": 0.0}))
    assert dse.serve(served) == plain
    text = (
        '[workload]\nname = "deepseek-v3"\n[system]\nname = "h200"\nn_devices = 488\n'
        "[axes]\npp = [61]\ntp = [8]\nep = [8]\n[serving]\nconcurrency = 8\n"
    )
    found = dse.sweep.plan(specs.from_text(text))[0].table
    assert found.n_mappings == 1  # 61 layers, not 62
    with pytest.raises(InputError, match="n_predict"):
        specs.from_text(text.replace("[serving]", "[serving]\nn_predict = 1"))


def test_parameters_where_every_other_layer_has_experts():
    """Llama 4 Maverick: 400 billion, 17 of them for a token (Meta 2025)."""
    workload = dataclasses.replace(
        WORKLOAD,
        n_layers=48.0,
        hidden=5120.0,
        n_heads=40.0,
        n_kv_heads=8.0,
        head_dim=128.0,
        ffn_hidden=16384.0,
        gated=1.0,
        vocab=202048.0,
        tied_embeddings=0.0,
        learned_positions=0.0,
    )
    found = with_experts(workload, n_experts=128.0, expert_ffn=8192.0, shared_ffn=8192.0, moe_every=2.0)
    assert float(parameter_count(found)) == pytest.approx(400e9, rel=0.01)
    assert float(active_parameters(found)) == pytest.approx(17e9, rel=0.02)


# Work of a layer


@pytest.mark.parametrize("slug", MODELS)
def test_flops_of_the_operators_are_those_of_the_parameters(slug):
    """Forward FLOPs of the matrices of all layers: two a token and parameter that it meets."""
    design = dse.design(slug, "b200-node", micro_batch=1)
    design = dataclasses.replace(design, workload=main_model(design.workload))
    w, work = design.workload, work_of(design)
    matrices = (OperatorKind.matrix, OperatorKind.matrix_16, OperatorKind.grouped)
    usual, first = (
        sum(float(o.present * o.forward.flops) for o in layer if o.kind in matrices and not o.core)
        for layer in (work.layer, work.lists.first_layer)
    )
    dense = w.experts.first_dense
    total = dense * first + (w.n_layers - dense) * feed_forward_of(w).after_first_dense(first, lambda: usual)
    expected = (forward_flops(w) - attention_flops(w)) * w.seq_len
    assert total == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("slug", ["deepseek-v2", "deepseek-v3"])
def test_bytes_that_a_layer_of_latent_attention_and_experts_keeps(slug):
    """Counted tensor by tensor as Megatron-Core with Transformer Engine keeps them for the backward, in 16 bits."""
    design = dse.design(slug, "b200-node", micro_batch=1)
    w, x, a = design.workload, design.workload.experts, design.workload.latent
    tokens, rows = w.seq_len, w.seq_len * x.top_k
    residuals_and_norms = 8 * tokens * w.hidden
    low_rank = 2 * tokens * (a.q_rank + a.kv_rank + a.rope_dim) + 2 * tokens * (a.q_rank + a.kv_rank)
    heads = tokens * w.n_heads * (2 * 2 * w.head_dim + 2 * 2 * a.v_dim + 4)  # q, k; v, output; log-sum-exp
    routed = rows * (2 * w.hidden + 4 * x.expert_ffn + 2 * x.expert_ffn)
    shared, router = 6 * tokens * x.shared_ffn, 5 * tokens * x.n_experts + 12 * rows
    expected = residuals_and_norms + low_rank + heads + routed + shared + router
    layer = work_of(design).layer
    assert float(stored_bytes(layer)) == pytest.approx(expected, rel=1e-6)
    # Levels of recompute: norms, inputs of the second matrices, and all heads; gate and up; rows and routing.
    norms = 4 * tokens * w.hidden + 2 * tokens * (a.q_rank + a.kv_rank) + 4 * tokens * w.n_heads * w.head_dim
    norms += 2 * tokens * w.n_heads * a.v_dim + 2 * rows * x.expert_ffn + 2 * tokens * x.shared_ffn
    inner = norms + 4 * rows * x.expert_ffn + 4 * tokens * x.shared_ffn
    block = inner + 2 * rows * w.hidden + router
    for level, not_stored in zip(EXPERT_LEVELS, (norms, inner, block), strict=True):
        assert float(not_stored_bytes(design, lay_out(design), layer, level)) == pytest.approx(not_stored, rel=1e-6)


def test_tp_gathers_what_latent_attention_compresses():
    """DeepSeek-V3: 1,536 columns of queries, 512 of keys and values and 64 rotated ones in place of 7,168."""
    design = dse.design(
        "deepseek-v3", "eos", "megatron-core-b200", n_devices=64, tp=8, ep=8, sequence_parallel=1, any_option=True
    )
    sent = times_sent(design)
    columns = (1536.0 + 512.0 + 64.0) / 7168.0  # and one shared expert, which gathers all of its input
    assert sent["forward_all_gather"] == pytest.approx(1.0 + columns)
    assert sent["forward_reduce_scatter"] == sent["backward_all_gather"] == 2.0
    assert sent["backward_reduce_scatter"] == sent["inputs_all_gather"] == pytest.approx(1.0 + columns)
    whole = times_sent(replace(design, {"mapping.sequence_parallel": 0.0}))
    assert whole["forward_all_reduce"] == 2.0 and whole["backward_all_reduce"] == pytest.approx(1.0 + columns)
    kept = {"mapping.sequence_parallel": float(SequenceParallel.keep_gathered)}
    assert times_sent(replace(design, kept))["inputs_all_gather"] == 0.0
    again = kept | {"mapping.recompute": float(Recompute.selective)}  # of the attention alone
    assert times_sent(replace(design, again))["inputs_all_gather"] == pytest.approx(columns)


def times_sent(design):
    """How often each message of tensor parallelism sends the activations of a layer."""
    return {m.name: float(m.times) for m in tensor_messages(design, lay_out(design))}
