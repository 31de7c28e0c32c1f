"""Which blocks the layers of a design have: the one place that asks what kinds of them a workload states.

Each answers the same questions (parameters, operators, bytes that it keeps, cache), so that nothing else asks its kind.
A design without a kind is another structure, for which its answers are the number 0 and add no equation.
"""

from __future__ import annotations

from typing import NamedTuple

from dse.model.work.feed_forward import FeedForward, feed_forward_of
from dse.model.work.grouped import Grouped
from dse.model.work.latent import Compressed
from dse.model.work.states import NoStates, States
from dse.types import Scalar, Sparse, Workload

__all__ = ["FeedForward", "Shares", "attention_of", "feed_forward_of", "shares_of", "states_of"]

#: Of attention to all tokens, or to a window of them.
EVERYTHING = Sparse(attended=1.0, sparse_layers=0.0)


class Shares(NamedTuple):
    """Of the blocks of a model, those that have each part."""

    attends: Scalar = 1.0  # to keys and values
    keeps: Scalar = 0.0  # a state in their place
    feeds: Scalar = 1.0  # a feed-forward
    gate: Scalar = 0.0  # of blocks that attend, those whose output is gated

    @property
    def norms(self) -> Scalar:
        """Norms of a block of the width of the model: one for what attends or has a state, one for a feed-forward."""
        return self.attends + self.keeps + self.feeds


def shares_of(workload: Workload) -> Shares:
    """All blocks attend and have a feed-forward, but for hybrids."""
    r, blocks = workload.recurrent, workload.n_layers
    if r is None:
        return Shares()
    attends, keeps, feeds = r.attention_layers / blocks, r.recurrent_layers / blocks, r.ffn_layers / blocks
    return Shares(attends, keeps, feeds, r.output_gate)


def states_of(workload: Workload) -> States | NoStates:
    """What keeps a state."""
    return NoStates() if workload.recurrent is None else States(workload.recurrent)


def attention_of(workload: Workload) -> Grouped:
    """What attends."""
    sparse, latent = workload.sparse or EVERYTHING, workload.latent
    return Grouped(workload, sparse) if latent is None else Compressed(workload, sparse, latent)
