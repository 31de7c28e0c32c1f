"""Operators, messages and groups of devices of a step, as data."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from dse.types.choices import MessageKind, OperatorKind
from dse.types.fields import Scalar


class Work(NamedTuple):
    """Work of one kernel: FLOPs, device-memory bytes and, for matrix kernels, the GEMM shape."""

    flops: Scalar
    bytes: Scalar
    rows: Scalar = 1.0
    columns: Scalar = 1.0
    depth: Scalar = 1.0
    batch: Scalar = 1.0


class Operator(NamedTuple):
    """One operator of a layer.

    Attributes:
        name: label in breakdowns.
        kind: hardware unit, and with it the roofline.
        forward, input_gradient, weight_gradient: work of each pass; None where a pass has none.
        stored: bytes stored from the forward for the backward pass.
        present: 1 where the design has this operator, else 0.
        core: whether selective recompute repeats it (the attention core).
        retained_share: share of its forward that recompute operator by operator does not repeat; literal 0.0 for none.
        recomputed_from: first level of expert recompute (:class:`Recompute`) that repeats its forward; 0: only full.
        not_stored_from: first such level that does not store ``stored``; 0: only full.
    """

    name: str
    kind: OperatorKind
    forward: Work
    input_gradient: Work | None
    weight_gradient: Work | None
    stored: Scalar
    present: Scalar = 1.0
    core: bool = False
    retained_share: Scalar = 0.0
    recomputed_from: int = 0
    not_stored_from: int = 0

    @property
    def is_retained(self) -> bool:
        """True where recompute operator by operator stores anything of it."""
        return not (isinstance(self.retained_share, float) and self.retained_share == 0.0)

    @property
    def gradients(self) -> list[Work]:
        """Return the work of the backward pass, one record per kernel, empty without gradients."""
        return [work for work in (self.input_gradient, self.weight_gradient) if work is not None]


class Element(NamedTuple):
    """Bytes per element of each class of tensor, and the cache that bounds re-reads."""

    operand: Scalar  # matrix operands at the mapping's precision
    activation: Scalar  # activations and messages between operators
    gradient: Scalar  # accumulated weight gradients
    cache: Scalar  # bytes of the last on-chip cache
    reads: Scalar = 1.0  # of an activation per cast to a matrix operand
    transposed_casts: Scalar = 0.0  # 1 where transposed operands are cast separately, from inputs kept as activations
    weight: Scalar | None = None  # weights stored in fewer bytes than their operands

    @property
    def stored_input(self) -> Scalar:
        """Bytes of an input that a product keeps for its weight gradient."""
        return self.operand + self.transposed_casts * (self.activation - self.operand)

    def sixteen_bit(self) -> Element:
        """Return the bytes per element for 16-bit operators of a narrower recipe (attention core, head)."""
        return self._replace(operand=self.activation, weight=None)


class Reach(NamedTuple):
    """Shares of a device's bandwidth for a group in a domain without a switch.

    Attributes:
        ring: of collectives that use all links of the group.
        exchange: of an all-to-all.
        neighbour: of a send to the next member.
        steps: of a ring through the group.
        hops: links between two members, mean over all pairs.
    """

    ring: Scalar
    exchange: Scalar
    neighbour: Scalar
    steps: Scalar
    hops: Scalar


class Group(NamedTuple):
    """Members of a communicator: in total, and per scale-up domain."""

    size: Scalar
    local: Scalar
    share: Scalar | None = None  # of scale-out bandwidth; None: 1
    reach: Reach | None = None  # in a domain without a switch, or with packages

    @property
    def domains(self) -> Scalar:
        """Count of scale-up domains that the group spans."""
        return self.size / self.local


class Dimension(Enum):
    """Parallel dimension of a message."""

    tensor = auto()
    context = auto()
    pipeline = auto()
    data = auto()
    expert = auto()


class Scope(Enum):
    """Scope of a message, in which it is sent once; counts: :func:`dse.model.work.messages.executions`."""

    layer = auto()  # a layer and micro-batch
    expert_layer = auto()  # a layer with experts and micro-batch
    embedding = auto()  # a micro-batch of the first stage
    head = auto()  # a micro-batch of the last stage
    stage_boundary = auto()  # a micro-batch that leaves a stage, in one direction
    weights = auto()  # a step and device, of its weights
    expert_weights = auto()  # a step and device, of its routed experts
    tied_embedding = auto()  # a step and device of the first and the last stage


class Window(Enum):
    """Compute of a scope that can hide a message."""

    none = auto()
    matrix_forward = auto()
    matrix_input_gradient = auto()
    matrix_weight_gradient = auto()
    attention_forward = auto()
    attention_backward = auto()
    before_attention = auto()  # none: attention waits for it
    before_attention_backward = auto()
    experts_forward = auto()
    experts_backward = auto()
    stage_forward = auto()
    stage_backward = auto()


#: Windows of the messages of a layer's forward.
_OF_FORWARD = (Window.matrix_forward, Window.attention_forward, Window.before_attention, Window.experts_forward)


class Message(NamedTuple):
    """One message, or several equal ones in a row, of a device to the members of a group.

    Attributes:
        name: label in breakdowns.
        kind: collective, or send to the neighbour.
        dimension: parallel dimension, and so the part of the step.
        scope: unit of ``times``.
        group: members.
        size: bytes gathered, reduced or scattered in total, or sent per device.
        times: messages per execution of the scope, 0 for none; each is sent in ``pieces`` equal ones.
        window: compute that can hide it.
        sums: whether the sums of a reduction are timed separately on networks with stated volumes.
        inter_domain: bytes of an all-to-all with unequal parts that leave the domain;
            ``size`` are then those within it. The literal 0.0 for equal parts.
        mean_share: bytes of the mean device over those of the busiest, which ``size`` states.
        link_share: bandwidth between domains that kernels of their own reach; the literal 0.0: as collectives do.
        converted: bytes that kernels read and write to send fewer bits; the literal 0.0: none.
    """

    name: str
    kind: MessageKind
    dimension: Dimension
    scope: Scope
    group: Group
    size: Scalar
    times: Scalar
    pieces: Scalar = 1.0
    window: Window = Window.none
    sums: bool = False
    inter_domain: Scalar = 0.0
    mean_share: Scalar = 1.0
    link_share: Scalar = 0.0
    converted: Scalar = 0.0

    @property
    def repeated(self) -> bool:
        """True for a message of a layer's forward, which full recompute repeats."""
        return self.window in _OF_FORWARD
