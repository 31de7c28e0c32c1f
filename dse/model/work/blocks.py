"""Blocks of the layers of a workload, the only module that distinguishes their kinds.

All kinds of a block have the same members (parameters, operators, stored bytes, cache). A design without a block is
another structure; its values are the number 0 and add no equation.
"""

from __future__ import annotations

from typing import NamedTuple

from dse.model.work.feed_forward import FeedForward, feed_forward_of
from dse.model.work.grouped import Grouped
from dse.model.work.latent import Compressed
from dse.model.work.states import NoStates, States
from dse.types import Scalar, Sparse, Workload

__all__ = ["FeedForward", "Shares", "attention_of", "feed_forward_of", "shares_of", "states_of"]

#: Of full or windowed attention.
EVERYTHING = Sparse(attended=1.0, sparse_layers=0.0)


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
    """Shares of the parts of blocks: 1 attention and 1 feed-forward, except in hybrids."""
    r, blocks = workload.recurrent, workload.n_layers
    if r is None:
        return Shares()
    attends, keeps, feeds = r.attention_layers / blocks, r.recurrent_layers / blocks, r.ffn_layers / blocks
    return Shares(attends, keeps, feeds, r.output_gate)


def states_of(workload: Workload) -> States | NoStates:
    """The state-space block of a workload."""
    return NoStates() if workload.recurrent is None else States(workload.recurrent)


def attention_of(workload: Workload) -> Grouped:
    """The attention block of a workload."""
    sparse, latent = workload.sparse or EVERYTHING, workload.latent
    return Grouped(workload, sparse) if latent is None else Compressed(workload, sparse, latent)
