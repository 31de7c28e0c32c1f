"""What a stage runs in one pass of a step, and how often: attention, layers with and without experts, the head."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dse.model.serving.batch import Batch
from dse.model.serving.work import Stage, StepWork, dense_layers
from dse.types import Operator, Scalar


class Runs(NamedTuple):
    """Operators that run one after the other, and how often they do."""

    operators: tuple[Operator, ...]
    times: Scalar

    def of(self, belongs: Callable[[Operator], bool]) -> Runs:
        """Those of them that belong, as often."""
        return Runs(tuple(o for o in self.operators if belongs(o)), self.times)


class StagePass(NamedTuple):
    """One pass of a stage: the same list for its time, its energy, and what bounds it."""

    attention: Runs  # and what layers with a state do in its place
    others: tuple[Runs, ...]  # matrices and all else, the head last
    layers: Scalar  # of the stage, with its share of those that draft tokens
    expert_layers: Scalar  # those of them that have experts

    @property
    def runs(self) -> tuple[Runs, ...]:
        """Everything."""
        return (self.attention, *self.others)


def stage_pass(stage: Stage, work: StepWork, batch: Batch) -> StagePass:
    """How often a pass runs the operators of ``work``.

    Drafts of tokens are a layer, with experts where the model has some, and the head once more for each; layers that
    draft are shared by the ``pp`` stages, as the head is: the last one's, and counted as a share of it in each. Layers
    without experts attend as the others do (:attr:`Operator.core` says which operators are of attention, or stand in
    its place).
    """
    pp = stage.design.mapping.pp
    layers = stage.layout.layers + batch.drafting / pp
    whole, head = Runs(work.layer, layers), Runs((work.head,), (1.0 + batch.drafting) / pp)
    attention, rest = whole.of(lambda o: o.core), whole.of(lambda o: not o.core)
    if stage.layout.experts is None:
        return StagePass(attention, (rest, head), layers, 0.0)
    plain = dense_layers(stage)
    dense = Runs(work.dense_layer, plain).of(lambda o: not o.core)
    return StagePass(attention, (rest._replace(times=layers - plain), dense, head), layers, layers - plain)
