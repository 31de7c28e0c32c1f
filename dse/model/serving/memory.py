"""Bytes of a serving engine on a device: weights, cache, its own; and how many sequences these leave room for."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.formats import operand_bytes
from dse.model.layout import Layout
from dse.model.serving.work import Stage, cache_bytes
from dse.model.work.parameters import head_parameters, stage_expert_parameters, stage_parameters
from dse.types import Design, Engine, Requests, Scalar, Serving


class Room(NamedTuple):
    """Memory of the fullest device, and what fits into it."""

    weights: Scalar
    a_sequence: Scalar  # bytes of cache
    runtime: Scalar
    sequences: Scalar  # that one rank of data parallelism holds, not rounded


def room(stage: Stage, requests: Requests, serving: Serving, engine: Engine) -> Room:
    """``(share x capacity - weights - runtime) / bytes of a sequence``.

    A sequence reserves its prompt and whole answer, or has half of its answer in the mean where pages are taken as it
    grows.
    """
    design, layout = stage.design, stage.layout
    weights = weight_bytes(design, layout, serving.expert_bytes)
    answer = requests.output_tokens * jnp.where(serving.paged > 0.0, 0.5, 1.0)
    a_sequence = layout.layers * cache_bytes(design, serving, requests.prompt_tokens + answer)
    left = serving.memory_share * design.system.accelerator.memory.capacity - weights - engine.runtime_memory
    return Room(weights, a_sequence, engine.runtime_memory, jnp.maximum(left, 0.0) / a_sequence)


def weight_bytes(design: Design, layout: Layout, expert_bytes: Scalar = 0.0) -> Scalar:
    """Bytes of the weights on the device that holds most: matrices as the recipe has them, the ends in 16.

    Weights of experts are in a format of their own where they have one. A stage of its own holds embedding and head;
    where there is one stage, it holds both.
    """
    w = design.workload
    narrow = operand_bytes(design.mapping.precision)
    ends = head_parameters(w, design.mapping.tp) * jnp.where(
        design.mapping.pp > 1.0, 1.0, 2.0 - w.tied_embeddings
    )
    experts = jnp.where(expert_bytes > 0.0, expert_bytes, narrow) * stage_expert_parameters(design, layout)
    others = narrow * jnp.maximum(stage_parameters(design, layout) - ends, 0.0)
    return others + experts + jnp.maximum(narrow, 2.0) * ends
