"""One list of divisibility rules: the table of mappings, the bits of the model and the host agree."""

from __future__ import annotations

import itertools
from collections import Counter

import jax
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import dse
from dse.designs import replace
from dse.doors import TRAINING
from dse.model import lay_out
from dse.model.accounts.feasibility import RequiredMemory, infeasible_reason
from dse.model.choice import divides
from dse.model.divisibility import COPIES_PATH, EXPERT_RULES, RULES, SHAPE_PATHS, fits
from dse.spec import Axis
from dse.sweep.grid.degrees import MappingSpec, Shape, degree_rows
from dse.types import Infeasible
from tests.programs import served

DIVISIBLE = sum({int(rule.reason) for rule in (*RULES, *EXPERT_RULES)})
DESIGN = dse.design("mixtral-8x7b", "selene", tp=8)
DEGREE_VALUES = {
    "mapping.tp": (1, 2, 3, 4), "mapping.cp": (1, 2), "mapping.pp": (1, 2, 3), "mapping.micro_batch": (1, 2),
    "mapping.virtual_stages": (1, 2), "mapping.experts.ep": (1, 2, 3), "mapping.experts.etp": (1, 2),
}  # fmt: skip

sizes = st.builds(
    Shape,
    n_layers=st.integers(1, 12),
    n_heads=st.sampled_from([2, 4, 6, 12]),
    n_kv_heads=st.sampled_from([1, 2, 6]),
    ffn_hidden=st.sampled_from([8, 12, 64]),
    seq_len=st.sampled_from([2, 6, 8]),
    global_batch=st.integers(1, 24),
    n_devices=st.sampled_from([1, 2, 4, 6, 12, 24]),
    n_experts=st.sampled_from([2, 3, 6, 8]),
    expert_ffn=st.sampled_from([3, 8]),
    shared_ffn=st.sampled_from([0, 3, 4]),
    n_predict=st.integers(0, 1),
    redundant_experts=st.just(0),
)


@jax.jit
@jax.vmap
def bits(values):
    """Bits of the designs at these leaves that tell of divisibility."""
    design = replace(DESIGN, values)
    return infeasible_reason(design, lay_out(design), RequiredMemory(0.0, 0.0, 0.0), False) & DIVISIBLE


@settings(max_examples=60, deadline=None)
@given(shape=sizes)
def test_the_table_of_mappings_is_what_the_model_calls_divisible(shape):
    axes = {path: Axis(path, path, "", tuple(map(float, values))) for path, values in DEGREE_VALUES.items()}
    parts = MappingSpec(axes, (), True, TRAINING, has_experts=True)
    rows = degree_rows(parts, shape, Counter())
    found = set(zip(*(rows[path].tolist() for path in parts.degrees), strict=True))
    drawn = [dict(zip(DEGREE_VALUES, values, strict=True)) for values in itertools.product(*DEGREE_VALUES.values())]
    for one in drawn:
        one["mapping.dp"] = shape.n_devices / (one["mapping.tp"] * one["mapping.cp"] * one["mapping.pp"])
        one |= dict(zip(SHAPE_PATHS, shape, strict=True))
        del one[COPIES_PATH]  # of designs that serve
    columns = {path: np.array([one[path] for one in drawn], np.float32) for path in drawn[0]}
    fit = (np.asarray(bits(columns)) == 0) & (columns["mapping.dp"] % 1.0 == 0.0)
    assert found == {tuple(one[path] for path in parts.degrees) for one, yes in zip(drawn, fit, strict=True) if yes}


@given(shape=sizes, tp=st.integers(1, 8), pp=st.integers(1, 8), stages=st.integers(1, 3), split=st.integers(0, 3))
def test_host_and_model_ask_alike(shape, tp, pp, stages, split):
    values = shape._asdict() | {
        "tp": tp,
        "pp": pp,
        "dp": 1,
        "cp": 1,
        "micro_batch": 1,
        "virtual_stages": stages,
        "sequence_parallel": split,
        "dp_replicate": 1,
        "n_micro_batches": shape.global_batch,
    }
    traced = jax.tree.map(np.float32, values)
    assert {k: bool(v) for k, v in fits(traced, divides).items()} == {k: bool(v) for k, v in fits(values).items()}


@pytest.mark.parametrize(
    ("pp", "virtual_stages", "uneven_layers", "fit"),
    [
        (5, 1, None, True),  # of ten layers two a stage
        (4, 1, None, True),  # with loss and embedding twelve places, three a stage
        (4, 3, None, True),  # twelve chunks, of which loss and embedding are two
        (7, 1, None, False),
        (7, 1, 1.0, True),  # two stages of a layer and the others of two, in a stack where stages may differ
        (7, 1, 0.0, False),
        (9, 1, 1.0, True),  # one stage of two layers
        (11, 1, 1.0, True),  # a stage of the loss alone
        (12, 1, 1.0, True),  # and one of the embedding alone
        (13, 1, 1.0, False),  # a stage of nothing
        (5, 3, 1.0, False),  # 15 chunks
    ],
)
def test_stages_of_ten_layers(pp, virtual_stages, uneven_layers, fit):
    sizes = dict(n_heads=8, n_kv_heads=8, ffn_hidden=64, n_layers=10, global_batch=60, seq_len=64, n_micro_batches=60)
    plain = dict.fromkeys(("tp", "dp", "cp", "micro_batch", "dp_replicate"), 1) | {"sequence_parallel": 0}
    values = sizes | plain | {"pp": pp, "virtual_stages": virtual_stages, "uneven_layers": uneven_layers}
    assert bool(fits(values)[Infeasible.layers_not_divisible]) is fit


@pytest.mark.parametrize(
    ("ranks", "copies", "fit"),
    [
        (8, 0, True),
        (16, 0, False),  # eight experts on sixteen ranks
        (16, 8, True),  # a copy of each
        (16, 4, False),  # twelve
        (4, 4, True),
        (8, 4, False),
    ],
)
def test_ranks_of_an_engine_have_as_many_experts_and_copies(ranks, copies, fit):
    """Mixtral has eight experts."""
    mapping = dict(n_devices=ranks, tp=1, ep=ranks, redundant_experts=copies)
    design = dse.design("mixtral-8x7b", "h100", "vllm", kind="serving", any_option=True, **mapping)
    assert bool(int(served(design).infeasible_reason) & int(Infeasible.experts_not_divisible)) is not fit
