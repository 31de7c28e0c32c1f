"""Laws of attention kernels: resources never hurt, no time below a bound, and one model whose forms agree."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dse import types
from dse.designs import catalog, replace
from dse.measured.kernels.formulas import attention_of
from dse.model.machine import attention_kernels
from dse.model.machine.attention_kernels import TILE, AttentionKernel
from dse.model.work.operators import Element, FlashShape, flash_attention
from tests.designs import KERNELS

CHIP = catalog.record(types.Accelerator, "h100-sxm-80gb")
SIZES = st.sampled_from([1.0, 17.0, 128.0, 129.0, 1000.0, 4096.0, 30000.0])
CONTEXTS = st.booleans().map(float)
HEAD = 128.0

attend = jax.jit(attention_kernels.attention_time)
quick = settings(deadline=None, max_examples=30)


def call(context, batch=4.0, tokens=1000.0, heads=32.0, window=0.0) -> AttentionKernel:
    return attention_of((batch, tokens, heads, 8.0, HEAD, window, 2.0, context))


@jax.jit
@jax.grad
def all_slopes(chip, tokens):
    calls = (call(context, batch=2.0, tokens=tokens) for context in (0.0, 1.0))
    return sum(attention_kernels.attention_time(one, chip) for one in calls)


@quick
@given(SIZES)
def test_slopes_of_every_leaf_are_finite(tokens):
    slopes = all_slopes(jax.tree.map(jnp.asarray, CHIP), tokens)
    assert all(np.isfinite(slope).all() for slope in jax.tree.leaves(slopes))


@quick
@given(CONTEXTS, st.sampled_from(["memory.bandwidth", "matrix_rate.bf16"]), SIZES)
def test_more_of_a_resource_never_slows_attention(context, leaf, tokens):
    head, name = leaf.split(".")
    more = replace(CHIP, {leaf: 2.0 * getattr(getattr(CHIP, head), name)})
    assert attend(call(context, tokens=tokens), more) <= attend(call(context, tokens=tokens), CHIP) * (1.0 + 1e-5)


@quick
@given(CONTEXTS, SIZES)
def test_longer_wider_attention_takes_longer(context, tokens):
    base = attend(call(context, tokens=tokens), CHIP)
    assert attend(call(context, tokens=2.0 * tokens), CHIP) >= 0.999 * base or tokens <= 1.0
    assert attend(call(context, tokens=tokens, batch=8.0), CHIP) >= 0.999 * base
    assert attend(call(context, tokens=tokens, window=64.0), CHIP) <= 1.001 * base


@pytest.mark.parametrize("context", [0.0, 1.0])
def test_attention_respects_its_bounds(context):
    shape = call(context, batch=64.0, tokens=8192.0)
    time = float(attend(shape, CHIP))
    keys = 2.0 * shape.cache_bytes * shape.batch * shape.kv_heads * shape.head_dim * shape.tokens
    pairs = shape.batch * shape.heads * shape.tokens * shape.tokens / 2.0 * context
    assert time > 0.9 * keys / CHIP.memory.bandwidth
    assert time > 4.0 * shape.head_dim * pairs / CHIP.matrix_rate.bf16


# One model


def flash(tokens, kernels, backward=False):
    """Compute seconds of flash attention of many heads in a training step, at 1 PFLOP/s."""
    element = Element(2.0, 2.0, 4.0, 50e6)
    pairs = 0.5 * tokens * tokens
    operator = flash_attention(FlashShape(4096.0, tokens, tokens, pairs, HEAD, 4096.0), element, 0.0, 1.0)
    work = operator.input_gradient if backward else operator.forward
    return work, float(attention_kernels.flash_time(work, 1e-15, kernels, backward))


@pytest.mark.parametrize("tokens", [256.0, 1024.0, 2048.0, 16384.0])
def test_a_step_is_whole_tiles_whose_start_and_diagonal_are_its_ramp(tokens):
    """Keys on the diagonal are computed whole, half a tile a row: the start of a step's kernel is that of a tile and
    ``s0 = T`` keys, ``(s + s0) / s`` of the time without either."""
    own = dataclasses.replace(CHIP.kernels.attention, context_pair=0.0, context_tile=3e-6)
    chip = dataclasses.replace(CHIP, kernels=dataclasses.replace(CHIP.kernels, attention=own))
    chains = attention_kernels.context_chains(call(1.0, batch=128.0, tokens=tokens), chip)
    start = TILE + 2.0 * own.context_tile / float(chains.cost)  # in keys
    work, measured = flash(tokens, dataclasses.replace(KERNELS, flash_sequence=start))
    rate = CHIP.matrix_rate.bf16 * own.context_efficiency
    assert float(chains.full_load_time) == pytest.approx(measured / 1e-15 / rate, rel=1e-5)
    assert measured == pytest.approx(work.flops * 1e-15 * (1.0 + start / tokens))


def test_a_backward_flop_takes_its_own_time():
    forward, backward = flash(2048.0, KERNELS)[1], flash(2048.0, KERNELS, backward=True)[1]
    assert backward == pytest.approx(2.5 * KERNELS.flash_backward * forward)


def test_many_chains_share_the_cores_and_one_is_split_over_them():
    """A full device is as fast as its cores together; a single chain on it as what its splits leave."""
    chains = attention_kernels.decode_chains(call(0.0, batch=512.0, tokens=32768.0), CHIP)
    assert float(chains.split_chain_time(1e-6)) == pytest.approx(float(chains.chain_time(chains.keys)))
    assert float(chains.full_load_time) == pytest.approx(float(chains.load * chains.chain_time(chains.keys)))
    lone = chains._replace(load=1.0 / CHIP.cores)
    assert float(lone.start) < float(lone.split_chain_time(1e-9)) < 0.05 * float(lone.chain_time(lone.keys))


def test_a_context_of_one_token_is_a_decode_step_with_an_empty_cache():
    assert float(attend(call(1.0, tokens=1.0), CHIP)) == pytest.approx(float(attend(call(0.0, tokens=0.0), CHIP)))


def head_time(kernels, head, backward=False):
    """Compute seconds of flash attention of 8,192 tokens with heads of this size, at 1 PFLOP/s."""
    tokens = 8192.0
    pairs = 0.5 * tokens * tokens
    element = Element(2.0, 2.0, 4.0, 50e6)
    operator = flash_attention(FlashShape(64.0, tokens, tokens, pairs, head, 64.0), element, 0.0, 1.0)
    work = operator.input_gradient if backward else operator.forward
    return float(attention_kernels.flash_time(work, 1e-15, kernels, backward))


def test_small_heads_wait_for_exponentials():
    """A pair takes as long as the products of ``d0`` columns at least; the backward has more products to hide it."""
    bound, free = (dataclasses.replace(KERNELS, flash_least_head=least) for least in (120.0, 1.0))
    assert head_time(bound, 128.0) == head_time(free, 128.0)
    assert head_time(bound, 64.0) == pytest.approx(head_time(free, 64.0) * 120.0 / 64.0)
    assert head_time(bound, 64.0, backward=True) == head_time(free, 64.0, backward=True)
    assert head_time(bound, 32.0, backward=True) > head_time(free, 32.0, backward=True)
