"""State-space layers of a serving step; hybrid models as the mean of their blocks."""

from __future__ import annotations

import math

import jax.numpy as jnp

from dse.model.choice import nothing, required
from dse.model.layout import Layout
from dse.model.work.batch import Batch
from dse.model.work.blocks import shares_of
from dse.model.work.operators import NORM, Flops, elementwise, linear
from dse.model.work.states import States
from dse.types import Design, Operator, OperatorKind, Scalar, Work

#: Prompt tokens of a chunk, between two states (Dao and Gu 2024, section 6: 64 to 256).
CHUNK = 128.0

#: FLOPs per token and element of a state: decay, outer product, product with a query.
_FLOPS = 6.0

#: Rows of a kernel that fills the device.
_FULL_ROWS = 128.0 * 64.0


def hybrid_operators(operators: list[Operator], design: Design, layout: Layout, batch: Batch) -> list[Operator]:
    """Return the operators of a hybrid's mean block, with shares of attention and state layers; others unchanged."""
    attends, keeps, feeds, gated = shares_of(design.workload)
    if nothing(keeps):
        return operators
    names = [operator.name for operator in operators]
    first, second = names.index("attention_residual"), names.index("ffn_residual")
    gate = linear("attention_gate", layout.tokens, layout.query_width, design.workload.hidden, layout.element, 0.0)
    norm_and_residual = [_operator_share(operators[i], attends + keeps) for i in (0, first)]
    return [
        norm_and_residual[0],
        *(_operator_share(o, attends) for o in operators[1:first]),
        _operator_share(gate, attends * gated),
        *(_operator_share(o, keeps) for o in state_operators(design, layout, batch)),
        norm_and_residual[1],
        *(_operator_share(o, feeds) for o in operators[first + 1 : second + 1]),
        *operators[second + 1 :],
    ]


def _operator_share(operator: Operator, share: Scalar) -> Operator:
    """Return the operator in a share of the blocks: its ``present`` times ``share``."""
    return operator._replace(present=operator.present * share)


def state_operators(design: Design, layout: Layout, batch: Batch) -> list[Operator]:
    """Return the operators of one state-space layer on a device, in place of attention.

    Decode reads and writes the state once per token. A prompt is computed in chunks of ``C`` tokens: ``C (N + P) H``
    FLOPs per token within the chunk, ``4 N P H`` with the state, which is written after each chunk.
    """
    r, e, tp = required(design.workload.recurrent, "workload.recurrent"), layout.element, design.mapping.tp
    act, tokens, states = e.activation, layout.tokens, States(r)
    size, (keys, values, gates) = states.size(tp), states.columns(tp)
    queries = batch.sequences * (1.0 + batch.drafts)
    token_bytes = act * (2.0 * keys + 2.0 * values)
    decode_bytes = 2.0 * r.state_bytes * batch.sequences * size + queries * token_bytes
    decode = Work(_FLOPS * queries * size, decode_bytes, _FULL_ROWS, math.inf)
    heads = r.state_heads / tp
    chunked = batch.prompt * (CHUNK * heads * (r.state_key_dim + r.state_value_dim) + 4.0 * size)
    prefill = Work(chunked, batch.prompt * (token_bytes + r.state_bytes * size / CHUNK), _FULL_ROWS, math.inf)
    mixed, taps = tokens * (2.0 * keys + values), Flops(2.0 * r.convolution, 0.0)
    return [
        linear("state_in", tokens, 2.0 * keys + values + gates, design.workload.hidden, e, 0.0),
        elementwise("state_convolution", mixed, 2.0 * act, 2.0 * act, 0.0, taps, jnp.minimum(r.convolution, 1.0)),
        Operator("decode_state", OperatorKind.flash, decode, None, None, 0.0, core=True),
        Operator("prefill_state", OperatorKind.flash, prefill, None, None, 0.0, core=True),
        elementwise("state_norm", tokens * values, 3.0 * act, 3.0 * act, 0.0, flops=NORM),
        linear("state_out", tokens, design.workload.hidden, values, e, 0.0),
    ]
