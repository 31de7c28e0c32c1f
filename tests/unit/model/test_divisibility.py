"""One list of divisibility rules: the table of mappings, the bits of the model and the host agree."""

from __future__ import annotations

import itertools
from collections import Counter

import jax
import numpy as np
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
