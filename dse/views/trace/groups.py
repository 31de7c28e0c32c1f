"""Ranks of a design, and the groups that their messages go to; traces of ranks share them."""

from __future__ import annotations

from typing import NamedTuple

from dse.types import Design, Dimension, Schedule, Scope
from dse.views.trace.ledger import MessageTimes


class RankPlace(NamedTuple):
    """A rank among all: tp is innermost, then cp, dp, and pp."""

    rank: int
    world_size: int
    stage: int
    ranks_per_stage: int  #: ranks of a stage

    def group(self, members: int, stride: int) -> list[int]:
        """Return the ranks of the group of ``members`` of the stage, ``stride`` ranks apart, that the rank is in."""
        first, stage_rank = self.stage * self.ranks_per_stage, self.rank - self.stage * self.ranks_per_stage
        start = stage_rank // (members * stride) * (members * stride) + stage_rank % stride
        return [first + start + i * stride for i in range(members)]

    def neighbour(self, stages: int) -> int:
        """Return the rank at the same place of the stage ``stages`` further, whether or not there is one."""
        return self.rank + stages * self.ranks_per_stage


def rank_place(design: Design, rank: int = 0) -> RankPlace:
    """Return the place of a rank in the pipeline of a design.

    Args:
        design: with plain numbers as leaves.
        rank: rank among all devices, from 0.
    """
    m = design.mapping
    ranks_per_stage = round(float(m.tp * m.cp * m.dp))
    return RankPlace(rank, round(ranks_per_stage * float(m.pp)), rank // ranks_per_stage, ranks_per_stage)


class MessageTarget(NamedTuple):
    """Receivers of a message: a group of the stage, with its mirror on another stage, or a single rank."""

    size: int = 0  #: members of the stage
    stride: int = 1
    mirror: int = 0  #: ranks from here to the same place of a stage with the same weights, 0 without one
    rank_offset: int | None = None  #: ranks from here to a single one

    def members(self, place: RankPlace) -> list[int]:
        """Return the ranks of the group that a rank is in, its mirror included; empty for a single receiver."""
        ranks = place.group(self.size, self.stride) if self.size else []
        return sorted((*ranks, *(rank + self.mirror for rank in ranks))) if self.mirror else ranks


def message_group(message: MessageTimes, design: Design, stage: int) -> MessageTarget:
    """Return the receivers of a message of a stage, as a group.

    Gradients of weights that two stages hold (DualPipe) go to a group over both.

    Args:
        message: of the ledger of the design.
        design: with plain numbers as leaves.
        stage: pipeline stage, from 0.
    """
    m = design.mapping
    members, stride = max(round(message.ranks), 1), max(_stride(message, design), 1)
    is_dualpipe = m.schedule is not None and float(m.schedule) == Schedule.dualpipe
    spans_stages = is_dualpipe and message.scope in (Scope.weights, Scope.expert_weights)
    if not spans_stages or members % 2:
        return MessageTarget(members, stride)
    mirror = (round(float(m.pp)) - 1 - 2 * stage) * rank_place(design).ranks_per_stage
    return MessageTarget(members // 2, stride, mirror)


def _stride(message: MessageTimes, design: Design) -> int:
    """Return the distance in ranks of neighbours of the group of a message: tp is innermost, then cp, then dp."""
    m, experts = design.mapping, design.mapping.experts
    if message.name.endswith("copies_all_reduce"):  # whole shards apart
        return round(float(m.tp * m.cp * m.dp) / message.ranks)
    if experts is not None and message.scope is Scope.expert_weights:
        return round(float(experts.ep * experts.etp))
    if experts is not None and message.dimension is Dimension.expert:
        return round(float(experts.etp)) if message.kind == "all_to_all" else 1
    return 1 if message.dimension in (Dimension.tensor, Dimension.pipeline) else round(float(m.tp))
