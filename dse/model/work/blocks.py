"""Blocks of the layers of a workload, the only module that distinguishes their kinds.

All kinds of a block have the same members (parameters, operators, stored bytes, cache). A design without a block is
another structure; its values are the number 0 and add no equation. Feed-forwards stand here
(dense, or a mixture of experts), attention and states in other files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

import jax.numpy as jnp

from dse.model.choice import times
from dse.model.work.grouped import GroupedAttention, LatentAttention
from dse.model.work.states import NoStates, States
from dse.types import Experts, Recompute, Scalar, Sparse, Workload

T = TypeVar("T")


class Dense(NamedTuple):
    """A dense feed-forward in all layers."""

    workload: Workload
    active_share: Scalar = 0.0  # routed experts used per token, as a share of all

    def usual(self, dense: T, with_experts: Callable[[], T]) -> T:
        """Return the value of the usual kind of layer, ``dense``."""
        return dense

    def layers(self, dense: Scalar, with_experts: Callable[[], Scalar]) -> Scalar:
        """Return the sum over the layers of a model, ``dense`` for each of them."""
        return times(self.workload.n_layers, dense)

    def after_first_dense(self, dense: Scalar, with_experts: Callable[[], Scalar]) -> Scalar:
        """Return the mean over the layers after the first dense ones, with the arguments of :meth:`layers`."""
        return dense

    def common(self, tp: Scalar = 1.0) -> Scalar:
        """Return the matrix parameters of router and shared expert per layer: 0."""
        return 0.0

    def expert(self, etp: Scalar = 1.0) -> Scalar:
        """Return the parameters of one routed expert on one of ``etp`` devices: 0."""
        return 0.0

    def routed(self) -> Scalar:
        """Return the parameters of all routed experts of a layer: 0."""
        return 0.0

    def prediction(self) -> Scalar:
        """Return the parameters of multi-token prediction without its layers and shared embedding and head: 0."""
        return 0.0

    def repeated_flops(self, levels: Mapping[int, Scalar]) -> Scalar:
        """Return the forward FLOPs per token that levels of expert recompute repeat: 0.

        Args:
            levels: level → 1 where active.
        """
        return 0.0


class Mixture(NamedTuple):
    """Routed and shared experts in all layers but the first ones, or in one of ``moe_every`` of the others."""

    workload: Workload
    experts: Experts

    @property
    def active_share(self) -> Scalar:
        """Routed experts used per token, as a share of all: ``k / E``."""
        return self.experts.top_k / self.experts.n_experts

    def usual(self, dense: T, with_experts: Callable[[], T]) -> T:
        """Return the value of the usual kind of layer, that of ``with_experts()``."""
        return with_experts()

    def layers(self, dense: Scalar, with_experts: Callable[[], Scalar]) -> Scalar:
        """Return the sum of ``dense`` or ``with_experts()`` over the layers of a model and multi-token prediction."""
        blocks = self.workload.blocks
        first = jnp.minimum(self.experts.first_dense, blocks)
        return first * dense + (blocks - first) * self.after_first_dense(dense, with_experts)

    def after_first_dense(self, dense: Scalar, with_experts: Callable[[], Scalar]) -> Scalar:
        """Return the mean over the layers after the first dense ones: one in ``moe_every`` has experts."""
        return dense + (with_experts() - dense) / self.experts.moe_every

    def common(self, tp: Scalar = 1.0) -> Scalar:
        """Return the parameters of router, not split by tp, and shared expert per layer and device."""
        w = self.workload
        return w.hidden * self.experts.n_experts + (2.0 + w.gated) * w.hidden * self.experts.shared_ffn / tp

    def expert(self, etp: Scalar = 1.0) -> Scalar:
        """Return the parameters of one routed expert on one of ``etp`` devices: ``(2 or 3) h f_e / etp``."""
        return (2.0 + self.workload.gated) * self.workload.hidden * self.experts.expert_ffn / etp

    def routed(self) -> Scalar:
        """Return the parameters of all routed experts of a layer."""
        return self.experts.n_experts * self.expert()

    def prediction(self) -> Scalar:
        """Return the parameters of multi-token prediction: ``2 h^2``, three norms (DeepSeek-AI 2024, section 2.2)."""
        w = self.workload
        return w.predicted * (2.0 * w.hidden + 3.0 * w.norm_vectors) * w.hidden

    def repeated_flops(self, levels: Mapping[int, Scalar]) -> Scalar:
        """Return the repeated forward FLOPs per token of gate and up, then of down, router and shared expert."""
        w, experts = self.workload, self.experts
        wide = experts.top_k * experts.expert_ffn + experts.shared_ffn
        gate, block = levels[Recompute.expert_inner] * (1.0 + w.gated), levels[Recompute.expert_block]
        dense = w.hidden * w.ffn_hidden * (gate + block)
        return 2.0 * self.layers(dense, lambda: w.hidden * (wide * (gate + block) + block * experts.n_experts))


#: Any kind of feed-forward.
FeedForward = Dense | Mixture


def feed_forward_of(workload: Workload) -> FeedForward:
    """Return the kind of feed-forward of a workload, dense or a mixture of experts."""
    return Dense(workload) if workload.experts is None else Mixture(workload, workload.experts)


__all__ = ["FeedForward", "Shares", "attention_of", "feed_forward_of", "shares_of", "states_of"]

#: Of full or windowed attention.
DENSE_ATTENTION = Sparse(attended=1.0, sparse_layers=0.0)


class Shares(NamedTuple):
    """Shares of the blocks of a model with each part."""

    attends: Scalar = 1.0  # attention
    keeps: Scalar = 0.0  # a state in place of keys and values
    feeds: Scalar = 1.0  # a feed-forward
    gate: Scalar = 0.0  # attention with a gated output

    @property
    def norms(self) -> Scalar:
        """Norms of the model's width per block: one for attention or state, one for the feed-forward."""
        return self.attends + self.keeps + self.feeds


def shares_of(workload: Workload) -> Shares:
    """Return the shares of blocks with attention, state and feed-forward: 1, 0 and 1 except in hybrids."""
    r, blocks = workload.recurrent, workload.n_layers
    if r is None:
        return Shares()
    attends, keeps, feeds = r.attention_layers / blocks, r.recurrent_layers / blocks, r.ffn_layers / blocks
    return Shares(attends, keeps, feeds, r.output_gate)


def states_of(workload: Workload) -> States | NoStates:
    """Return the state-space block of a workload, or the record of none."""
    return NoStates() if workload.recurrent is None else States(workload.recurrent)


def attention_of(workload: Workload) -> GroupedAttention:
    """Return the attention of a workload, grouped or latent."""
    sparse, latent = workload.sparse or DENSE_ATTENTION, workload.latent
    return GroupedAttention(workload, sparse) if latent is None else LatentAttention(workload, sparse, latent)
