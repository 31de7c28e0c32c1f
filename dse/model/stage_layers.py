"""How the layers of a model spread over the stages of a pipeline, and where a named schedule puts these."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model import schedules
from dse.model.choice import ceiling, nothing
from dse.types import Mapping, Scalar, Workload


class StageLayers(NamedTuple):
    """Layers of the stages of a pipeline and of their chunks, in which the ends may have fewer than the others."""

    fullest: Scalar  # layers of the fullest stage
    chunks: Scalar  # layers of a stage whose chunks all have as many as the fullest one
    short_first: Scalar  # 1 where the first chunk has a layer less than the fullest, else 0
    short_last: Scalar  # the same of the last chunk
    others: Scalar  # layers that the other stages have less than the fullest, all together

    @property
    def first_lacks(self) -> Scalar:
        """Layers that the first stage has less than the fullest one."""
        return self.short_first - (self.chunks - self.fullest)

    @property
    def last_lacks(self) -> Scalar:
        """The same of the last stage."""
        return self.short_last - (self.chunks - self.fullest)


class PipelineLayout(NamedTuple):
    """Where a schedule puts the stages of a pipeline; each on a device of its own where a mapping names none."""

    folded: Scalar = 0.0  # 1 where the first and the last are on one device
    copies: Scalar = 1.0  # stages whose weights a device holds: two where one pipeline runs from either end


def named_schedule(mapping: Mapping) -> PipelineLayout:
    """Where the schedule that a mapping names puts its stages, if it names any."""
    code, pp = mapping.schedule, mapping.pp
    return PipelineLayout() if code is None else PipelineLayout(schedules.folded(code, pp), schedules.copies(code, pp))


def chunk_layers(workload: Workload, mapping: Mapping) -> StageLayers:
    """How the layers of a model spread over the stages of a mapping, wherever its schedule puts these."""
    return stage_layers(workload.blocks, mapping.pp, mapping.virtual_stages, workload.predicted)


def stage_layers(
    n_layers: Scalar, pp: Scalar, virtual_stages: Scalar, n_predict: Scalar = 0.0
) -> StageLayers:
    """How the layers spread over ``p`` stages of ``v`` chunks: at most ``ceil(L / (p v))`` in a chunk.

    Of chunks with a layer less than that the last is the first one, for its head and loss, then the first, for its
    embedding (Megatron-LM's account_for_loss_in_pipeline_split and account_for_embedding_in_pipeline_split; Llama team
    2024, section 3.3.2). More of them run only where they are whole stages. Two stages that both have a short chunk
    are equal. A last stage that predicts further tokens has a head more for each, and as many layers less.
    """
    a_chunk = most_layers(n_layers, pp * virtual_stages)
    chunks = virtual_stages * a_chunk
    spare = pp * chunks - n_layers
    most = 1.0 if nothing(n_predict) else jnp.minimum(1.0 + n_predict, a_chunk)
    both = jnp.clip(spare - most, 0.0, 1.0)
    return StageLayers(
        fullest=chunks - jnp.where(pp == 2.0, both, 0.0),
        chunks=chunks,
        short_first=both,
        short_last=jnp.minimum(spare, most),
        others=jnp.maximum(spare - (1.0 + most), 0.0),
    )


def folded_stages(stages: StageLayers, pp: Scalar, named: PipelineLayout) -> StageLayers:
    """The same where the last stage is on the first one's device, which then has both short chunks.

    With two copies of the weights both ends of the pipeline have both, each for half of the micro-batches: layers are
    those of one copy, and those of a micro-batch on average.
    """
    if nothing(named.folded):
        return stages
    short, one_copy = stages.short_first + stages.short_last, named.copies <= 1.0
    first = short / named.copies
    # Two stages of two copies are equal: none is fuller than the ends.
    fullest = stages.chunks - jnp.where(one_copy | (pp > 2.0), 0.0, first)

    def where_folded(yes: Scalar, no: Scalar) -> Scalar:
        return jnp.where(named.folded > 0.0, yes, no)

    return stages._replace(
        fullest=where_folded(fullest, stages.fullest),
        short_first=where_folded(first, stages.short_first),
        short_last=where_folded(jnp.where(one_copy, 0.0, first), stages.short_last),
    )


def most_layers(n_layers: Scalar, parts: Scalar) -> Scalar:
    """Layers of the fullest part: ``ceil(L / parts)``.

    Where ``parts`` is constant a compiler may multiply by its reciprocal: 21 sevenths are then a little over 3.
    """
    return ceiling(n_layers / parts * (1.0 - 2.0**-21))
