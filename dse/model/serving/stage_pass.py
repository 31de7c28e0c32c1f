"""The ledger of one pass of a stage through a batch: attention, layers with and without experts, the head, messages."""

from __future__ import annotations

from typing import NamedTuple

from dse.model.choice import plus, times
from dse.model.serving.batch import Batch
from dse.model.serving.work import Stage, StepWork, dense_layers
from dse.model.work.blocks import feed_forward_of
from dse.model.work.ledger import Phase, Runs, Sends
from dse.types import Scalar


class StagePass(NamedTuple):
    """One pass of a stage: the same ledger for its time, its energy, and what bounds it."""

    attention: Runs  # and what layers with a state do in its place
    others: tuple[Runs, ...]  # matrices and all else, the head last
    messages: Sends  # of a layer
    hand_over: Sends  # of a pass, to the next stage
    expert_layers: Scalar  # of its layers those that have experts

    @property
    def layers(self) -> Scalar:
        """Layers of the stage, with its share of those that draft tokens."""
        return self.attention.times

    @property
    def phase(self) -> Phase:
        """Everything."""
        return Phase((self.attention, *self.others), (self.messages, self.hand_over))


def stage_pass(stage: Stage, work: StepWork, batch: Batch) -> StagePass:
    """How often a pass runs the operators of ``work`` and sends its messages.

    Drafts of tokens are a layer, with experts where the model has some, and the head once more for each; layers that
    draft are shared by the ``pp`` stages, as the head is: the last one's, and counted as a share of it in each. Layers
    without experts attend as the others do (:attr:`Operator.core` says which operators are of attention, or stand in
    its place).
    """
    pp, plain = stage.design.mapping.pp, dense_layers(stage)
    layers = stage.layout.layers + batch.drafting / pp
    none: Scalar = 0.0
    with_experts = plus(layers, times(-1.0, plain))
    layer, dense = Runs(work.layer, with_experts), Runs(work.dense_layer, plain)
    others = (runs.where(lambda o: not o.core) for runs in (layer, dense))
    return StagePass(
        attention=layer._replace(times=layers).where(lambda o: o.core),
        others=(*others, Runs((work.head,), (1.0 + batch.drafting) / pp)),
        messages=Sends(work.messages, layers),
        hand_over=Sends(work.hand_over),
        expert_layers=feed_forward_of(stage.design.workload).usual(none, lambda: with_experts),
    )
