"""Ledger of one pass of a stage over a batch: attention, layers with and without experts, the head, messages."""

from __future__ import annotations

from typing import NamedTuple

from dse.model.choice import plus, times
from dse.model.serving.work import Stage, StepWork, dense_layers
from dse.model.work.batch import Batch
from dse.model.work.blocks import feed_forward_of
from dse.model.work.ledger import Phase, Runs, Sends
from dse.types import Scalar


class StagePass(NamedTuple):
    """Ledger of one pass of a stage, for its time, energy and bounds."""

    attention: Runs  # attention and state-space operators
    other_operators: tuple[Runs, ...]  # all other operators, the head last
    messages: Sends  # per layer
    hand_over: Sends  # per pass, to the next stage
    expert_layers: Scalar  # layers with experts

    @property
    def layers(self) -> Scalar:
        """Count of layers of the stage, with its share of the layers that draft tokens."""
        return self.attention.times

    @property
    def phase(self) -> Phase:
        """Ledger of all operators and messages of the pass."""
        return Phase((self.attention, *self.other_operators), (self.messages, self.hand_over))


def stage_pass(stage: Stage, work: StepWork, batch: Batch) -> StagePass:
    """Return the ledger of a pass of a stage: operators of ``work`` and its messages with their execution counts.

    Each draft runs a layer (with experts where the model has experts) and the head once more; the ``pp`` stages share
    these layers like the head, which belongs to the last stage and counts as ``1 / pp`` in each.
    :attr:`Operator.core` marks the operators of attention and of states.
    """
    pp, dense_count = stage.design.mapping.pp, dense_layers(stage)
    layers = stage.layout.layers + batch.drafting / pp
    none: Scalar = 0.0
    expert_count = plus(layers, times(-1.0, dense_count))
    layer, dense = Runs(work.layer, expert_count), Runs(work.dense_layer, dense_count)
    other_runs = (runs.where(lambda o: not o.core) for runs in (layer, dense))
    return StagePass(
        attention=layer._replace(times=layers).where(lambda o: o.core),
        other_operators=(*other_runs, Runs(work.head, (1.0 + batch.drafting) / pp)),
        messages=Sends(work.messages, layers),
        hand_over=Sends(work.hand_over),
        expert_layers=feed_forward_of(stage.design.workload).usual(none, lambda: expert_count),
    )
