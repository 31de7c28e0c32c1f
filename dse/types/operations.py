"""What is done and sent in a step, as data: kernels, operators, groups of devices, messages."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from dse.types.choices import MessageKind, OperatorKind
from dse.types.fields import Scalar


class Work(NamedTuple):
    """One kernel's work: FLOPs, bytes through device memory and, for matrix kernels, its GEMM shape."""

    flops: Scalar
    bytes: Scalar
    rows: Scalar = 1.0
    columns: Scalar = 1.0
    depth: Scalar = 1.0
    batch: Scalar = 1.0


class Operator(NamedTuple):
    """One operator of a layer.

    Attributes:
        name: what a breakdown shows.
        kind: which units of the device run it, and with it which roofline applies.
        forward, input_gradient, weight_gradient: the work of each pass; None where a pass has none.
        stored: bytes kept from the forward for the backward pass.
        present: 1 where the design has this operator, else 0.
        core: whether selective recompute repeats it (the attention core).
        kept: share of its forward that recompute operator by operator does not repeat; 0.0 itself where it does all.
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
    kept: Scalar = 0.0
    recomputed_from: int = 0
    not_stored_from: int = 0

    @property
    def is_kept(self) -> bool:
        """Whether recompute operator by operator keeps anything of it."""
        return not (isinstance(self.kept, float) and self.kept == 0.0)

    @property
    def gradients(self) -> list[Work]:
        """The work of the backward pass, kernel by kernel."""
        return [work for work in (self.input_gradient, self.weight_gradient) if work is not None]


class Element(NamedTuple):
    """Bytes of one element of each class of tensor, and the cache that bounds re-reads."""

    operand: Scalar  # matrix operands at the mapping's precision
    activation: Scalar  # activations and messages between operators
    gradient: Scalar  # accumulated weight gradients
    cache: Scalar  # bytes of the last on-chip cache
    reads: Scalar = 1.0  # of an activation, by its cast to a matrix operand
    weight: Scalar | None = None  # weights where they are narrower than they are multiplied

    def sixteen_bit(self) -> Element:
        """The same for operators that a narrower recipe leaves in 16 bits (attention core, head)."""
        return self._replace(operand=self.activation, weight=None)


class Reach(NamedTuple):
    """What a group has of its domain where no switch gives each member all of its bandwidth: shares of that bandwidth.

    Attributes:
        ring: of collectives that use all links of the group at once.
        exchange: of what a member sends in an all-to-all.
        neighbour: of what it sends to the next one.
        steps: of a message that goes around.
        hops: links that a byte of an all-to-all takes, in the mean.
    """

    ring: Scalar
    exchange: Scalar
    neighbour: Scalar
    steps: Scalar
    hops: Scalar


class Group(NamedTuple):
    """Members of a communicator: in all, and inside one scale-up domain; ``share`` of scale-out bandwidth they have."""

    size: Scalar
    local: Scalar
    share: Scalar | None = None  # 1 where it is not said
    reach: Reach | None = None  # in a domain without a switch, or with packages

    @property
    def domains(self) -> Scalar:
        """Scale-up domains the group spans."""
        return self.size / self.local


class Dimension(Enum):
    """The parallelism that a message serves."""

    tensor = auto()
    context = auto()
    pipeline = auto()
    data = auto()
    expert = auto()


class Scope(Enum):
    """Of what a message is sent once; :func:`dse.model.work.messages.executions` tells how often that is in a step."""

    layer = auto()  # a layer and micro-batch
    expert_layer = auto()  # the same of a layer with experts
    embedding = auto()  # a micro-batch of the first stage
    head = auto()  # a micro-batch of the last stage
    stage_boundary = auto()  # a micro-batch that leaves a stage, in one direction
    weights = auto()  # a step and device, of the weights that it holds
    expert_weights = auto()  # a step and device, of the routed experts that it holds
    tied_embedding = auto()  # a step and device of the first and the last stage


class Window(Enum):
    """The compute of its scope that a message may hide behind."""

    none = auto()
    matrix_forward = auto()
    matrix_input_gradient = auto()
    matrix_weight_gradient = auto()
    attention_forward = auto()
    attention_backward = auto()
    before_attention = auto()  # nothing: the attention waits for it
    before_attention_backward = auto()
    experts_forward = auto()
    experts_backward = auto()
    stage_forward = auto()
    stage_backward = auto()


class Message(NamedTuple):
    """One message, or several equal ones in a row, of a device to the members of a group.

    Attributes:
        name: what a breakdown shows.
        kind: which collective it is, or a send to the neighbour.
        dimension: the parallelism that it serves, and so the part of the step that it belongs to.
        scope: of what it is sent so many ``times``.
        group: who takes part.
        size: bytes: gathered, reduced or scattered in all, or sent by a device.
        times: how often; 0 where the design has no such message. Each is cut into ``pieces`` equal ones.
        window: what it may hide behind.
        repeated: whether full recompute sends it again.
        sums: whether the sums of a reduction are timed apart from the wire on networks that state their traffic.
        inter_domain: bytes of an all-to-all with unequal parts that leave the domain;
            ``size`` are then those within it. The number 0.0 itself where parts are equal.
        mean_share: bytes that the mean device sends over those of the busiest, for which ``size`` is given.
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
    repeated: bool = False
    sums: bool = False
    inter_domain: Scalar = 0.0
    mean_share: Scalar = 1.0
