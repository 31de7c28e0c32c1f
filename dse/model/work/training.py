"""What one training step has to do, without time: operators, messages, parameters, bytes."""

from __future__ import annotations

from typing import NamedTuple

from dse.model.layout import Layout
from dse.model.work import offload
from dse.model.work.messages import training_messages
from dse.model.work.offload import OnHost
from dse.model.work.parameters import layer_parameters, stage_parameters
from dse.model.work.state import Kept, StateBytes, kept_bytes, state_bytes
from dse.model.work.transformer import embedding_operators, head_operators, layer_operators
from dse.types import Design, Message, Operator, Scalar


class TrainingWork(NamedTuple):
    """The work of a step: lists of operators for one micro-batch on one device, messages, and bytes."""

    layer: tuple[Operator, ...]
    embedding: tuple[Operator, ...]
    head: tuple[Operator, ...]
    messages: tuple[Message, ...]
    parameters: Scalar  # of the device that holds most
    state: StateBytes  # of one parameter
    kept: Kept
    on_host: OnHost


def training_work(design: Design, layout: Layout) -> TrainingWork:
    """The work of a step of ``design``."""
    layer = tuple(layer_operators(design, layout))
    parameters, a_layer = stage_parameters(design, layout), layer_parameters(design.workload, design.mapping.tp)
    kept, state = kept_bytes(design, layout, layer), state_bytes(design, layout)
    return TrainingWork(
        layer=layer,
        embedding=tuple(embedding_operators(design, layout)),
        head=tuple(head_operators(design, layout)),
        messages=training_messages(design, layout, parameters),
        parameters=parameters,
        state=state,
        kept=kept,
        on_host=offload.on_host(design.mapping, a_layer * state.weights, kept.mean, a_layer * state.optimizer),
    )
