"""One training step of one device, kernel by kernel: the passes of its stage with the operators and messages in them.

Kernels of compute follow one another on one stream; a message has a stream by its dimension, ends after the compute
that hides it, and lets compute wait for what is exposed of it. Sums are those of the step's closed forms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from dse.types import Design, Dimension, OperatorKind, Scope, Window
from dse.views.trace.ledger import (
    FORWARD,
    INPUT_GRADIENT,
    PASSES,
    WEIGHT_GRADIENT,
    KernelWork,
    MessageTimes,
    OperatorKernels,
    StepLedger,
    step_ledger,
)
from dse.views.trace.orders import PassKind, Task, receiver_of, source_of
from dse.views.trace.step import ScheduledStep, schedule_step
from dse.views.trace.timeline import Event

#: Streams of a device.
COMPUTE, COPIES = 7, 29
STREAMS = {Dimension.tensor: 20, Dimension.context: 21, Dimension.expert: 22, Dimension.data: 25}
OUTPUTS, GRADIENTS, INPUTS, NORM = 23, 24, 26, 27

#: Pass of a forward that the backward repeats.
RECOMPUTE = "recompute"

#: Share of a pass below which its sums differ from the closed form's by rounding alone.
_ROUNDING = 1e-4


class TraceKernel(NamedTuple):
    """A kernel or message of a device, in seconds from the start of the step."""

    label: str  #: of the operator or message in the ledger
    family: str  #: ``matrix``, ``attention``, ``elementwise``, ``optimizer``, ``copy``, ``message`` or ``wait``
    pass_name: str  #: one of ``PASSES``, ``recompute``, or "" of none
    stream: int
    start: float
    seconds: float
    micro_batch: int = -1
    shape: KernelWork | None = None  #: of an operator
    message: MessageTimes | None = None
    peer: int = 0  #: stages from here to where a message between stages comes from or goes to
    number: int = 0  #: of a message between stages, the same where it is sent and received

    @property
    def end(self) -> float:
        """End, s from the start of the step."""
        return self.start + self.seconds


class _PassKernel(NamedTuple):
    """A kernel of a pass without a start time, and the seconds for which compute waits if it is a message."""

    kernel: TraceKernel
    exposed: float = 0.0


class DeviceStep(NamedTuple):
    """Kernels of a device of a stage in a step, in order of their starts."""

    stage: int
    kernels: list[TraceKernel]
    total: float  #: s of the step


def device_step(
    design: Design, stage: int = 0, step: ScheduledStep | None = None, ledger: StepLedger | None = None
) -> DeviceStep:
    """Schedule the kernels of one device in a step.

    Args:
        design: with plain numbers as leaves.
        stage: pipeline stage of the device.
        step: of the design, where it is at hand.
        ledger: of the design, where it is at hand.

    Returns:
        Kernels in order of their starts, seconds from the start of the step.

    Raises:
        InputError: as of :func:`dse.views.trace.step.schedule_step`.
    """
    step = schedule_step(design) if step is None else step
    ledger = step_ledger(design) if ledger is None else ledger
    kernels = sorted(_Device(design, step, ledger, stage).kernels(), key=lambda kernel: kernel.start)
    return DeviceStep(stage, kernels, step.total)


def family_of(operator: OperatorKernels) -> str:
    """Return the family of the kernels of an operator: ``elementwise``, ``attention`` or ``matrix``."""
    if operator.kind is OperatorKind.vector:
        return "elementwise"
    return "attention" if operator.core else "matrix"


#: Windows of the messages of a forward.
_AHEAD = (Window.matrix_forward, Window.attention_forward, Window.before_attention, Window.experts_forward)

#: Scopes of the messages of a layer.
_LAYER = (Scope.layer, Scope.expert_layer)


class _Device:
    """Builds the kernels of one device."""

    def __init__(self, design: Design, step: ScheduledStep, ledger: StepLedger, stage: int) -> None:
        self.step, self.ledger, self.stage = step, ledger, stage
        self.dense = float(design.workload.experts.first_dense) if design.workload.experts else 0.0
        self.trained = float(design.workload.backward)
        m = design.mapping
        self.copies = max(m.offload_weights, m.offload_activations, m.offload_optimizer) > 0.0
        self.stream_end: dict[int, float] = {}
        self.passes: dict[Task, list[_PassKernel]] = {}
        self.boundary = next((m for m in ledger.messages if m.scope is Scope.stage_boundary), None)

    def kernels(self) -> Iterator[TraceKernel]:
        """Yield all kernels and messages of the device in the step, not in order of time."""
        last = 0.0
        for event in (e for e in self.step.timeline.events if e.device == self.stage):
            start = event.start + event.received
            peer, message_number = self._input_source(event)
            if start - last > 1e-9 or (peer and self.step.message):
                begin = last if start - last > 1e-9 else max(start - self.step.message, 0.0)
                wait = self._wait_kernel("stage_input", INPUTS, begin, start, event.slot[0].micro_batch, peer)
                yield wait._replace(number=message_number)
            yield from self._scheduled_kernels(event, start)
            yield from self._sent_messages(event)
            last = event.end
        end = self.step.timeline.makespan
        if len(self.step.plan.orders) > 1:  # the norm of all gradients, for which the optimiser waits
            yield self._wait_kernel("wait for other stages", NORM, min(last, end), end)
        if self.step.synchronization:
            yield self._wait_kernel("wait for other replicas", NORM, end, self.step.passes_end)
            end = self.step.passes_end
        yield from self._data_parallel(end)
        if self.step.optimizer:
            optimizer_start = end + self.step.data_parallel
            yield TraceKernel("optimizer", "optimizer", "", COMPUTE, optimizer_start, self.step.optimizer)

    # Between stages

    def _wait_kernel(
        self, label: str, stream: int, start: float, end: float, micro_batch: int = -1, peer: int = 0
    ) -> TraceKernel:
        """Return a wait from ``start`` to ``end`` (s) as a kernel, with the message where a ``peer`` sends one."""
        message = self.boundary if peer else None
        return TraceKernel(label, "wait", "", stream, start, end - start, micro_batch, None, message, peer)

    def _input_source(self, event: Event) -> tuple[int, int]:
        """Return (stages from here to the source of a slot's input, number of its message), zeros for none."""
        for task in event.slot:
            source = source_of(task, self.step.plan.chunks)
            if source and (stage_offset := self.step.plan.place(source) - self.stage):
                return stage_offset, self._message_number(source)
        return 0, 0

    def _message_number(self, source: Task) -> int:
        """Return the number of the message with the output of a pass, unique in the step."""
        chunks = self.step.plan.chunks
        return 2 * (source.micro_batch * chunks + source.chunk) + (source.kind is not PassKind.forward)

    def _sent_messages(self, event: Event) -> Iterator[TraceKernel]:
        """Yield the messages of a slot to other stages, a stream's one after the other."""
        seconds = self.step.message
        for task in event.slot if self.boundary and seconds else ():
            receiver = receiver_of(task, self.step.plan.chunks)
            if receiver and (stage_offset := self.step.plan.place(receiver) - self.stage):
                stream = OUTPUTS if task.kind is PassKind.forward else GRADIENTS
                start = max(event.end, self.stream_end.get(stream, 0.0))
                self.stream_end[stream] = start + seconds
                yield TraceKernel(
                    "stage_output",
                    "message",
                    "",
                    stream,
                    start,
                    seconds,
                    task.micro_batch,
                    message=self.boundary,
                    peer=stage_offset,
                    number=self._message_number(task),
                )

    # Passes

    def _scheduled_kernels(self, event: Event, start: float) -> Iterator[TraceKernel]:
        """Yield the kernels of a slot from ``start`` (s), stretched or with gaps where the slot is longer."""
        parts = [(part, task.micro_batch) for task in event.slot for part in self._pass_kernels(task)]
        slot_seconds = event.end - start
        nominal_seconds = sum(part.exposed if part.kernel.message else part.kernel.seconds for part, _ in parts)
        excess_seconds = slot_seconds - nominal_seconds
        is_stretched = nominal_seconds and excess_seconds < _ROUNDING * slot_seconds
        scale = slot_seconds / nominal_seconds if is_stretched else 1.0
        gap_seconds = 0.0 if scale != 1.0 or self.copies else excess_seconds / max(len(parts), 1)
        excess_wait = 0.0  # waited longer for messages in a row, for which later ones are waited for less
        for (kernel, exposed), micro_batch in parts:
            if kernel.message is None:
                yield kernel._replace(start=start, seconds=scale * kernel.seconds, micro_batch=micro_batch)
                start += scale * kernel.seconds
            else:
                seconds = max(scale * kernel.seconds, scale * exposed)
                wait_seconds = max(scale * exposed - excess_wait, 0.0)
                begin = max(start + wait_seconds - seconds, self.stream_end.get(kernel.stream, 0.0), event.start)
                self.stream_end[kernel.stream] = begin + seconds
                yield kernel._replace(start=begin, seconds=seconds, micro_batch=micro_batch)
                wait_seconds = max(begin + seconds - start, wait_seconds)
                excess_wait += wait_seconds - scale * exposed
                start += wait_seconds
            gap_used = min(max(excess_wait, 0.0), gap_seconds)  # what is left is taken from gaps
            excess_wait, start = excess_wait - gap_used, start + gap_seconds - gap_used
        if self.copies and scale == 1.0 and excess_seconds > 0.0:
            yield TraceKernel("offload", "copy", "", COPIES, start, excess_seconds, event.slot[0].micro_batch)

    def _pass_kernels(self, task: Task) -> list[_PassKernel]:
        """Return kernels and messages of a pass, without start times, equal for every micro-batch."""
        key = task._replace(micro_batch=0)
        if key not in self.passes:
            self.passes[key] = [*self._build_pass(key)]
        return self.passes[key]

    def _build_pass(self, task: Task) -> Iterator[_PassKernel]:
        """Yield kernels and messages of a pass in order, without start times."""
        count = round(self.step.layers[task.chunk])
        is_first, is_last = task.chunk == 0, task.chunk == self.step.plan.chunks - 1
        dense = min(self.dense, count) if is_first else 0
        sections = ["first layer" if i < dense else "layer" for i in range(count)]
        ends = ["embedding"] * is_first, ["head"] * is_last
        if task.kind is PassKind.forward:
            for section in [*ends[0], *sections, *ends[1]]:
                yield from self._forward(section)
            return
        kinds = {PassKind.input_gradient: (INPUT_GRADIENT,), PassKind.weight_gradient: (WEIGHT_GRADIENT,)}
        passes = kinds.get(task.kind, (INPUT_GRADIENT, WEIGHT_GRADIENT))
        layers = [
            (sections[i], min(max(self.ledger.full_recompute_share * count - i, 0.0), 1.0))
            for i in reversed(range(count))
        ]
        for section, recompute_share in [*((end, 0.0) for end in ends[1]), *layers, *((end, 0.0) for end in ends[0])]:
            yield from self._backward(section, passes, recompute_share)

    def _forward(self, section: str, share: float = 1.0, of_pass: str = FORWARD) -> Iterator[_PassKernel]:
        """Yield kernels and messages of a forward over one section, of which ``share`` is executed."""
        operators = self.ledger.section_operators(section)
        kernels = [*self._operator_kernels((operator, 0, share, of_pass) for operator in operators)]
        if "layer" in section:
            kernels += self._small_kernels(share, of_pass)
        yield from _interleave(kernels, self._section_messages(section, True, share, of_pass))

    def _backward(self, section: str, passes: tuple[str, ...], recompute_share: float) -> Iterator[_PassKernel]:
        """Yield kernels and messages of a backward over one section, with the share that is recomputed."""
        in_layer, inputs = "layer" in section, INPUT_GRADIENT in passes
        operators = self.ledger.section_operators(section)
        kernels: list[_PassKernel] = []
        if in_layer and inputs and recompute_share:
            yield from self._forward(section, recompute_share, RECOMPUTE)
        elif in_layer and inputs:
            kernels += self._operator_kernels((operator, 0, operator.repeated, RECOMPUTE) for operator in operators)
            if self.ledger.small_kernel_repeats:
                kernels += self._small_kernels(self.ledger.small_kernel_repeats, RECOMPUTE)
        kernels += self._operator_kernels(
            (operator, PASSES.index(name), 1.0, name) for operator in reversed(operators) for name in passes
        )
        if in_layer and inputs:
            kernels += self._small_kernels(2.0 * self.trained, INPUT_GRADIENT)
        messages = list(self._section_messages(section, False, 1.0, INPUT_GRADIENT)) if inputs else []
        if in_layer and inputs and not recompute_share:
            messages += self._section_messages(section, True, None, RECOMPUTE)
        yield from _interleave(kernels, iter(messages))

    @staticmethod
    def _operator_kernels(executions: Iterable[tuple[OperatorKernels, int, float, str]]) -> Iterator[_PassKernel]:
        """Yield the kernels of (operator, index of its pass, share of its time, name of the pass) that have any."""
        for operator, pass_index, share, of_pass in executions:
            work = operator.kernels[pass_index]
            if work is not None and share:
                family, seconds = family_of(operator), share * work.seconds
                yield _PassKernel(TraceKernel(operator.name, family, of_pass, COMPUTE, 0.0, seconds, shape=work))

    def _small_kernels(self, share: float, of_pass: str) -> list[_PassKernel]:
        """Return the small kernels of a layer as one kernel, of ``share`` of a forward's time; none without any."""
        seconds = share * self.ledger.small_kernel_seconds
        kernel = TraceKernel("small kernels", "elementwise", of_pass, COMPUTE, 0.0, seconds)
        return [_PassKernel(kernel)] if self.ledger.small_kernel_seconds else []

    def _section_messages(
        self, section: str, is_forward: bool, share: float | None, of_pass: str
    ) -> Iterator[_PassKernel]:
        """Yield the messages of a section, of which ``share`` is executed (None: as often as they are repeated)."""
        scopes = {"embedding": (Scope.embedding,), "head": (Scope.head,), "first layer": (Scope.layer,)}
        in_layer = "layer" in section
        for m in self.ledger.messages:
            if m.scope not in scopes.get(section, _LAYER) or m.seconds <= 0.0:
                continue
            # The closed forms count those of the embedding in its forward, of the head in its backward.
            if (m.window in _AHEAD if in_layer else section == "embedding") is not is_forward:
                continue
            executions = m.repeated if share is None else share
            if not executions or (of_pass == RECOMPUTE and not m.repeated):
                continue
            count = max(round(m.number), 1)
            seconds = executions * m.seconds / count
            exposed_share = self._exposed_share(m, is_forward and of_pass != RECOMPUTE) if in_layer else 1.0
            exposed = seconds * exposed_share
            stream, longest = STREAMS[m.dimension], max(seconds, exposed)
            kernel = TraceKernel(m.name, "message", of_pass, stream, 0.0, longest, message=m)
            yield from (_PassKernel(kernel, exposed) for _ in range(count))

    def _exposed_share(self, message: MessageTimes, is_forward: bool) -> float:
        """Return exposed over wire seconds of a layer's messages of a dimension in a pass, 0 without any."""
        kinds = {Dimension.tensor: "tensor", Dimension.context: "context", Dimension.expert: "experts"}
        exposed_seconds = self.step.exposed[kinds[message.dimension]][0 if is_forward else 1]
        messages = [m for m in self.ledger.messages if m.scope in _LAYER and m.dimension is message.dimension]
        if is_forward:
            wire_seconds = sum(m.seconds for m in messages if m.window in _AHEAD)
        else:
            recompute_share = max(self.ledger.full_recompute_share, 0.0)
            wire_seconds = sum(
                m.seconds * (max(m.repeated, recompute_share * bool(m.repeated)) if m.window in _AHEAD else 1.0)
                for m in messages
            )
        return exposed_seconds / wire_seconds if wire_seconds else 0.0

    # After the last pass

    def _data_parallel(self, end: float) -> Iterator[TraceKernel]:
        """Yield the messages between replicas one by one; those after ``end`` (s) of the passes are exposed."""
        scopes = (Scope.weights, Scope.expert_weights, Scope.tied_embedding)
        messages = [m for m in self.ledger.messages if m.scope in scopes and m.seconds > 0.0]
        wire_seconds = sum(m.seconds for m in messages)
        stretch = max(1.0, self.step.data_parallel / wire_seconds) if wire_seconds else 1.0
        start = end + self.step.data_parallel - stretch * wire_seconds
        for m in messages:
            count = max(round(m.number), 1)
            for _ in range(count):
                seconds = stretch * m.seconds / count
                yield TraceKernel(m.name, "message", "", STREAMS[Dimension.data], start, seconds, -1, None, m)
                start += seconds


def _interleave(kernels: list[_PassKernel], messages: Iterator[_PassKernel]) -> Iterator[_PassKernel]:
    """Yield messages evenly spread among kernels, the last one after all of them."""
    message_list, sent_count = list(messages), 0
    for kernel_count, kernel in enumerate(kernels, 1):
        yield kernel
        while sent_count < len(message_list) and (sent_count + 1) * len(kernels) <= kernel_count * len(message_list):
            yield message_list[sent_count]
            sent_count += 1
    yield from message_list[sent_count:]
