"""Layers per stage and chunk of a pipeline, and the placement of stages by a named schedule."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model import schedules
from dse.model.choice import ceiling, nothing, select
from dse.types import Mapping, Scalar, Workload


class StageLayers(NamedTuple):
    """Layers of the stages and chunks of a pipeline, fewer at its ends."""

    fullest: Scalar  # layers of the largest stage
    chunks: Scalar  # layers of a stage of largest chunks
    short_first: Scalar  # 1 where the first chunk has one layer less than the largest, else 0
    short_last: Scalar  # layers that the last chunk lacks
    middle_lacks: Scalar  # layers that all other stages together lack

    @property
    def first_lacks(self) -> Scalar:
        """Layers that the first stage has less than the largest."""
        return self.short_first - (self.chunks - self.fullest)

    @property
    def last_lacks(self) -> Scalar:
        """Layers that the last stage has less than the largest."""
        return self.short_last - (self.chunks - self.fullest)


class PipelineLayout(NamedTuple):
    """Placement of the stages of a pipeline, by default each on a device of its own."""

    folded: Scalar = 0.0  # 1 where the first and the last stage are on one device
    copies: Scalar = 1.0  # stages whose weights a device holds: 2 with pipelines in both directions


def schedule_layout(mapping: Mapping) -> PipelineLayout:
    """Return whether the stages are folded, and their copies per device, under the schedule of a mapping."""
    code, pp = mapping.schedule, mapping.pp
    return (
        PipelineLayout()
        if code is None
        else PipelineLayout(schedules.folded(code, pp), schedules.stage_copies(code, pp))
    )


def chunk_layers(workload: Workload, mapping: Mapping) -> StageLayers:
    """Return the counts of layers of stages and chunks of a mapping, before its schedule folds them."""
    return stage_layers(workload.blocks, mapping.pp, mapping.virtual_stages, workload.predicted)


def stage_layers(n_layers: Scalar, pp: Scalar, virtual_stages: Scalar, n_predict: Scalar = 0.0) -> StageLayers:
    """Return the counts of layers of ``p`` stages of ``v`` chunks: at most ``ceil(L / (p v))`` per chunk.

    The last chunk is the first with a layer less, for head and loss, then the first chunk, for the embedding
    (Megatron-LM's account_for_loss_in_pipeline_split and account_for_embedding_in_pipeline_split; Llama team 2024,
    section 3.3.2). Under a free layout further ones come from the last chunk, which may have only the loss
    (Megatron-Bridge's layouts of DeepSeek-V3), and then from any others. Two stages with a short chunk each are equal.
    With multi-token prediction the last stage has a further head and a layer less per token.

    Args:
        n_layers: layers of the model.
        pp: stages.
        virtual_stages: chunks of a stage.
        n_predict: further tokens of multi-token prediction.
    """
    max_chunk = max_layers_per_part(n_layers, pp * virtual_stages)
    chunks = virtual_stages * max_chunk
    spare = pp * chunks - n_layers
    max_last_lack = 1.0 if nothing(n_predict) else jnp.minimum(1.0 + n_predict, max_chunk)
    short_first = jnp.clip(spare - max_last_lack, 0.0, 1.0)
    further_spare = jnp.maximum(spare - max_last_lack - short_first, 0.0)
    short_last = jnp.minimum(spare, max_last_lack) + jnp.where(
        virtual_stages > 1.0, jnp.minimum(further_spare, max_chunk - max_last_lack), 0.0
    )
    return StageLayers(
        fullest=chunks - jnp.where(pp == 2.0, short_first, 0.0),
        chunks=chunks,
        short_first=short_first,
        short_last=short_last,
        middle_lacks=spare - short_first - short_last,
    )


def folded_stages(stages: StageLayers, pp: Scalar, schedule: PipelineLayout) -> StageLayers:
    """Return the counts of layers of stages, where folded with both short chunks on one device.

    With two copies of the weights both ends of the pipeline have both, each for half of the micro-batches: layers are
    those of one copy, averaged over micro-batches.
    """
    if nothing(schedule.folded):
        return stages
    short, one_copy = stages.short_first + stages.short_last, schedule.copies <= 1.0
    first = short / schedule.copies
    # Two stages of two copies are equal, and none is larger than the ends.
    fullest = stages.chunks - jnp.where(one_copy | (pp > 2.0), 0.0, first)
    folded = stages._replace(fullest=fullest, short_first=first, short_last=jnp.where(one_copy, 0.0, first))
    return select(schedule.folded > 0.0, folded, stages)._replace(
        chunks=stages.chunks, middle_lacks=stages.middle_lacks
    )


def max_layers_per_part(n_layers: Scalar, parts: Scalar) -> Scalar:
    """Return the count of layers of the largest part: ``ceil(L / parts)``.

    For constant ``parts`` a compiler may multiply by the reciprocal, which makes 21 sevenths a little more than 3.
    """
    return ceiling(n_layers / parts * (1.0 - 2.0**-21))
