"""A step as Chakra execution traces, one file a rank, which network simulators replay (ASTRA-sim).

Compute between messages is one node, cut where a message starts; collectives, sends and receives have their bytes and
groups. What waits for what follows from the step of a device: compute for the messages that end before it starts, a
message for the compute that ended before it. A file is a stream of messages of ``et_def.proto``
(github.com/mlcommons/chakra, version 0.0.4): ``GlobalMetadata``, then ``Node``. What that needs of Protocol Buffers is
here, without their library: fields by number, a message of a stream after its length
(https://protobuf.dev/programming-guides/encoding).
"""

from __future__ import annotations

import bisect
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from dse.errors import InputError
from dse.io import outputs
from dse.io.chrome_trace import MICROSECONDS
from dse.io.files import MARK
from dse.types import Design, Scope
from dse.views.trace import (
    COMPUTE,
    COPIES,
    FORWARD,
    INPUTS,
    DeviceStep,
    MessageTarget,
    MessageTimes,
    RankPlace,
    ScheduledStep,
    TraceKernel,
    device_step,
    message_group,
    rank_place,
)

if TYPE_CHECKING:
    from dse.capabilities.trace import TraceRequest

_VARINT, _LENGTH = 0, 2

#: Value of a field (:func:`field`).
FieldValue: TypeAlias = int | str | bytes | tuple[int, ...]


def varint(value: int) -> bytes:
    """Encode a nonnegative integer in groups of seven bits, the lowest first.

    >>> varint(300).hex()
    'ac02'
    """
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*encoded, value))


def field(number: int, value: FieldValue) -> bytes:
    """Encode a field of a message.

    Args:
        number: of the field.
        value: an integer, bool or enumeration, a negative one as its two's complement in 64 bits; a text; an encoded
            message; or nonnegative integers of a repeated field, for none as no bytes.

    >>> field(3, (1, 300)).hex(), field(2, "a").hex(), field(1, 1).hex(), field(3, ())
    ('1a0301ac02', '120161', '0801', b'')
    """
    if isinstance(value, int):
        return varint(number << 3 | _VARINT) + varint(value & 0xFFFFFFFFFFFFFFFF)
    if isinstance(value, tuple):
        value = b"".join(map(varint, value))
        if not value:
            return b""
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | _LENGTH) + varint(len(data)) + data


#: Nodes of all ranks, about a hundred bytes each.
MAX_NODES = 5_000_000

_VERSION = "0.0.4"
_COMPUTE, _SEND, _RECEIVE, _COLLECTIVE = 4, 5, 6, 7  # NodeType
_KINDS = {"all_reduce": 0, "all_gather": 2, "all_to_all": 6, "reduce_scatter": 7}  # CollectiveCommType
_INT32, _INT64, _UINT64, _BOOL, _STRING = 7, 9, 13, 27, 29  # fields of AttributeProto

#: Times closer than this are equal, s.
_ROUNDING = 1e-9

#: Tags of messages that are not between neighbouring stages follow those.
_TAGS = 1 << 30


class ChakraNode(NamedTuple):
    """A node that all ranks of a stage share, with times in whole microseconds."""

    node_id: int  #: of the node among those of its stage
    name: str
    kind: int
    dependencies: tuple[int, ...]
    start: int
    duration: int
    attributes: tuple[bytes, ...] = ()
    target: MessageTarget | None = None

    def body(self) -> bytes:
        """Encode the node without what differs between ranks."""
        fields: dict[int, FieldValue] = {1: self.node_id, 2: self.name, 3: self.kind, 5: self.dependencies}
        fields |= {6: self.start, 7: self.duration}
        encoded = [field(number, value) for number, value in fields.items()]
        return b"".join([*encoded, *(field(10, attribute) for attribute in self.attributes)])


def write(step: ScheduledStep, design: Design, description: str, output: Path, force: bool = False) -> tuple[int, int]:
    """Write ``OUTPUT.RANK.et`` of every rank and the members of their groups in ``OUTPUT.json``; return counts.

    Returns:
        Counts of ranks and of nodes.

    Raises:
        InputError: for more than ``MAX_NODES`` nodes, and for files that must not be written.
    """
    prefix = output.with_suffix("") if output.suffix in (".et", ".json") else output
    place, stages = rank_place(design), stage_nodes(step, design)
    count = place.ranks_per_stage * sum(map(len, stages))
    if count > MAX_NODES:
        raise InputError(
            "trace",
            f"{count:,} nodes of {place.world_size:,} ranks",
            f"at most {MAX_NODES:,}",
            "a smaller global_batch and fewer replicas (dp) show the same pattern",
        )
    groups: dict[tuple[int, ...], str] = {}
    for rank in range(place.world_size):
        sender = rank_place(design, rank)
        content = b"".join(_rank_messages(stages[sender.stage], sender, groups, description))
        with outputs.replacing(prefix.with_name(f"{prefix.name}.{rank}.et"), force) as partial:
            partial.write_bytes(content)
    with outputs.replacing(prefix.with_name(f"{prefix.name}.json"), force) as partial:
        partial.write_text(json.dumps({name: list(ranks) for ranks, name in groups.items()}) + "\n", encoding="utf-8")
    return place.world_size, count


def _rank_messages(
    nodes: Sequence[tuple[ChakraNode, bytes]], place: RankPlace, groups: dict[tuple[int, ...], str], description: str
) -> Iterator[bytes]:
    """Yield the encoded messages of a rank's file, each after its length; new groups are added to ``groups``."""
    head = field(1, _VERSION) + field(2, _attribute("note", MARK)) + field(2, _attribute("design", description))
    yield varint(len(head)) + head
    ends: dict[tuple[int, MessageTarget | None], bytes] = {}
    for node, body in nodes:
        key = node.kind, node.target
        if key not in ends:
            ends[key] = b"".join(field(10, attribute) for attribute in _rank_attributes(node, place, groups))
        yield varint(len(body) + len(ends[key])) + body + ends[key]


def _rank_attributes(node: ChakraNode, place: RankPlace, groups: dict[tuple[int, ...], str]) -> list[bytes]:
    """Return the encoded attributes that differ between ranks: group of a collective, or source and destination."""
    if node.target is None:
        return []
    members = tuple(node.target.members(place))
    if node.kind == _COLLECTIVE:
        return [_attribute("pg_name", groups.setdefault(members, str(len(groups) + 1)))]
    if node.target.rank_offset is not None:
        other = place.rank + node.target.rank_offset
    else:
        step = 1 if node.kind == _SEND else -1
        other = members[(members.index(place.rank) + step) % len(members)]
    ends = (place.rank, other) if node.kind == _SEND else (other, place.rank)
    return [_attribute("comm_src", ends[0], _INT32), _attribute("comm_dst", ends[1], _INT32)]


def stage_nodes(step: ScheduledStep, design: Design) -> list[list[tuple[ChakraNode, bytes]]]:
    """Return the nodes of the ranks of each stage, each with its encoding, sends matched with receives.

    Args:
        step: all devices of a pipeline.
        design: its design.
    """
    devices = [device_step(design, stage, step) for stage in range(len(step.plan.orders))]
    kernels_by_receiver = {
        (stage + kernel.peer, kernel.number): kernel
        for stage, device in enumerate(devices)
        for kernel in device.kernels
        if kernel.peer and kernel.family == "message"
    }
    stages = []
    for stage, device in enumerate(devices):
        waits = [k for k in device.kernels if k.family == "wait" and k.peer]
        awaited = {wait.number for wait in waits if (stage, wait.number) in kernels_by_receiver}
        missing_waits = [
            kernel._replace(label="stage_input", family="wait", stream=INPUTS, peer=-kernel.peer)
            for (to, number), kernel in kernels_by_receiver.items()
            if to == stage and number not in awaited
        ]
        device_kernels = [k for k in device.kernels if k.family != "wait" or (k.number in awaited and k.peer)]
        kernels = sorted([*device_kernels, *missing_waits], key=lambda kernel: kernel.start)
        builder = _Builder(design, DeviceStep(stage, kernels, device.total), step)
        stages.append([(node, node.body()) for node in builder.nodes()])
    return stages


class _Builder:
    """Builds the nodes of one device in order."""

    def __init__(self, design: Design, device: DeviceStep, step: ScheduledStep) -> None:
        self.design, self.device, self.step = design, device, step
        self.ranks_per_stage, self.last_stage = rank_place(design).ranks_per_stage, len(step.plan.orders) - 1
        self.chakra_nodes: list[ChakraNode] = []
        self.kernel_run: list[TraceKernel] = []  #: compute kernels without a message between them
        self.computed: list[tuple[float, int]] = []  #: end and number of the nodes of compute
        self.pending: list[tuple[float, int]] = []  #: those of messages that no compute waited for
        self.last_node_by_pass: dict[tuple[int, bool], int] = {}  #: pass → its last node
        self.last_node_by_stream: dict[int, int] = {}  #: stream → its last node
        self.tied_tag, self.ring_tag = _TAGS // 2, _TAGS  #: of messages between the ends of the model, around rings

    def nodes(self) -> list[ChakraNode]:
        """Return all nodes of the device."""
        for kernel in self.device.kernels:
            if kernel.stream not in (COMPUTE, COPIES):
                self._flush(kernel.start)
                self._message(kernel)
                continue
            if self.kernel_run and (
                kernel.start > self.kernel_run[-1].end + _ROUNDING
                or _pass_key(kernel) != _pass_key(self.kernel_run[-1])
            ):
                self._flush()
            self.kernel_run.append(kernel)
        self._flush()
        return self.chakra_nodes

    def _flush(self, until: float = float("inf")) -> None:
        """Add a node of the compute kernels before ``until`` (s), where a running one is cut."""
        run = [part for kernel in self.kernel_run for part in _split_kernel(kernel, until)]
        finished = [kernel for kernel in run if kernel.end <= until + _ROUNDING]
        self.kernel_run = run[len(finished) :]
        if not finished:
            return
        start, end, waits_for_all = finished[0].start, finished[-1].end, finished[0].family == "optimizer"
        awaited = [message for message in self.pending if waits_for_all or message[0] <= start + _ROUNDING]
        self.pending = [message for message in self.pending if message not in awaited]
        predecessors = [*self.computed[-1:], *awaited]
        dependencies = [node_index for _, node_index in predecessors]
        ready = max((time for time, _ in predecessors), default=0.0)
        if start - ready > _ROUNDING and not waits_for_all:
            dependencies = [
                self._add("host", _COMPUTE, dependencies, ready, start, (_attribute("is_cpu_op", False, _BOOL),))
            ]
        works = [kernel.shape for kernel in finished if kernel.shape is not None]
        label = finished[0].label if len(finished) == 1 else f"{finished[0].label} to {finished[-1].label}"
        of_pass = f"{finished[0].pass_name} {finished[0].micro_batch}: " if finished[0].pass_name else ""
        work = (
            _attribute("is_cpu_op", False, _BOOL),
            _attribute("num_ops", round(sum(work.flops for work in works)), _INT64),
            _attribute("tensor_size", round(sum(work.bytes for work in works)), _UINT64),
        )
        self.computed.append((end, self._add(of_pass + label, _COMPUTE, dependencies, start, end, work)))
        self.last_node_by_pass[_pass_key(finished[0])] = self.computed[-1][1]

    def _message(self, kernel: TraceKernel) -> None:
        """Add the nodes of a message: a collective, or a send or receive."""
        message = kernel.message
        if message is None or (not kernel.peer and message.ranks < 2.0):
            return
        index = bisect.bisect_right(self.computed, kernel.start + _ROUNDING, key=lambda compute: compute[0])
        dependencies = (
            {self.last_node_by_stream[kernel.stream]} if kernel.stream in self.last_node_by_stream else set[int]()
        )
        if kernel.family == "message" and kernel.peer:  # of a pass, which may have ended before the lane is free
            dependencies.add(self.last_node_by_pass[kernel.micro_batch, kernel.number % 2 == 0])
        elif index:
            dependencies.add(self.computed[index - 1][1])
        sending = self.step.message if kernel.family == "wait" else kernel.seconds
        for kind, target, tag in self._message_nodes(kernel, message):
            attributes = [_attribute("is_cpu_op", False, _BOOL), _attribute("comm_size", _bytes_of(message), _INT64)]
            if kind == _COLLECTIVE:
                attributes.append(_attribute("comm_type", _KINDS[message.kind], _INT64))
            else:
                attributes.append(_attribute("comm_tag", tag, _INT32))
            end = kernel.start + sending
            node_index = self._add(kernel.label, kind, list(dependencies), kernel.start, end, tuple(attributes), target)
            self.pending.append((kernel.end, node_index))
            self.last_node_by_stream[kernel.stream] = node_index

    def _message_nodes(self, kernel: TraceKernel, message: MessageTimes) -> Iterator[tuple[int, MessageTarget, int]]:
        """Yield (kind, target, tag) of the nodes of a message."""
        if kernel.peer:
            kind = _RECEIVE if kernel.family == "wait" else _SEND
            yield kind, MessageTarget(rank_offset=kernel.peer * self.ranks_per_stage), kernel.number
        elif message.kind in _KINDS:
            yield _COLLECTIVE, message_group(message, self.design, self.device.stage), 0
        elif message.scope is Scope.tied_embedding:
            if self.device.stage in (0, self.last_stage):
                rank_offset = (self.last_stage - 2 * self.device.stage) * self.ranks_per_stage
                self.tied_tag += 1
                yield from ((kind, MessageTarget(rank_offset=rank_offset), self.tied_tag) for kind in (_SEND, _RECEIVE))
        else:  # around a ring
            ring = message_group(message, self.design, self.device.stage)
            self.ring_tag += 1
            yield from ((kind, ring, self.ring_tag) for kind in (_SEND, _RECEIVE))

    def _add(
        self,
        name: str,
        kind: int,
        dependencies: Sequence[int],
        start: float,
        end: float,
        attributes: tuple[bytes, ...],
        target: MessageTarget | None = None,
    ) -> int:
        """Add a node and return its index; times in seconds."""
        start_us, end_us = (round(seconds * MICROSECONDS) for seconds in (start, end))
        node_index, sorted_dependencies = len(self.chakra_nodes), tuple(sorted(dependencies))
        self.chakra_nodes.append(
            ChakraNode(node_index, name, kind, sorted_dependencies, start_us, end_us - start_us, attributes, target)
        )
        return node_index


def _pass_key(kernel: TraceKernel) -> tuple[int, bool]:
    """Return the index of the micro-batch of a kernel of compute, and whether it is of the forward."""
    return kernel.micro_batch, kernel.pass_name == FORWARD


def _split_kernel(kernel: TraceKernel, time: float) -> Iterator[TraceKernel]:
    """Yield a kernel, or its two parts where it runs at ``time`` (s)."""
    share_before = (time - kernel.start) / kernel.seconds if kernel.seconds > 0.0 else 0.0
    if not _ROUNDING < time - kernel.start < kernel.seconds - _ROUNDING:
        yield kernel
        return
    for share, start in ((share_before, kernel.start), (1.0 - share_before, time)):
        work = kernel.shape
        work = work and work._replace(flops=share * work.flops, bytes=share * work.bytes)
        yield kernel._replace(start=start, seconds=share * kernel.seconds, shape=work)


def _bytes_of(message: MessageTimes) -> int:
    """Return the count of bytes of one kernel of a message, whose number of kernels is rounded."""
    return max(round(message.size * message.number / max(round(message.number), 1)), 1)


# Attributes


def _attribute(name: str, value: int | str, value_field: int = _STRING) -> bytes:
    """Encode an attribute, a text or a number; ``value_field``: number of the field of its type."""
    return field(1, name) + field(value_field, value)


def write_chakra(request: TraceRequest) -> str:
    """Write the Chakra execution traces of all ranks and return what was written in words.

    Returns:
        Counts of nodes and ranks, such as "1,024 nodes of 8 ranks".
    """
    ranks, nodes = write(request.step, request.design, request.description, request.output, request.force)
    return f"{nodes:,} nodes of {ranks:,} ranks"
