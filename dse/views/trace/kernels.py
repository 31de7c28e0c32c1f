"""One training step of one device, kernel by kernel: the passes of its stage with the operators and messages in them.

Kernels of compute follow one another on one stream; a message has a stream by its dimension, ends after the compute
that hides it, and lets compute wait for what is exposed of it. Sums are those of the step's closed forms.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    ledger_of,
)
from dse.views.trace.orders import PassKind, Task
from dse.views.trace.step import Step, step_of
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
    """A kernel of a device, s from the start of the step."""

    label: str  #: of the operator or message in the ledger
    family: str  #: ``matrix``, ``attention``, ``elementwise``, ``optimizer``, ``copy``, ``message`` or ``wait``
    of_pass: str  #: one of ``PASSES``, ``recompute``, or "" of none
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


class _Part(NamedTuple):
    """A kernel of a pass before it has a place in time; ``exposed``: s of a message for which compute waits."""

    kernel: TraceKernel
    exposed: float = 0.0


class DeviceStep(NamedTuple):
    """Kernels of a device of a stage in a step, in order of their starts."""

    stage: int
    kernels: list[TraceKernel]
    total: float  #: s of the step


def device_step(
    design: Design, stage: int = 0, step: Step | None = None, ledger: StepLedger | None = None
) -> DeviceStep:
    """The step of a device.

    Args:
        design: with plain numbers as leaves.
        stage: pipeline stage of the device.
        step: of the design, where it is at hand.
        ledger: the same.

    Raises:
        InputError: as of :func:`dse.views.trace.step.step_of`.
    """
    step = step_of(design) if step is None else step
    ledger = ledger_of(design) if ledger is None else ledger
    found = sorted(_Device(design, step, ledger, stage).kernels(), key=lambda one: one.start)
    return DeviceStep(stage, found, step.total)


def family_of(operator: OperatorKernels) -> str:
    """Family of the kernels of an operator."""
    if operator.kind is OperatorKind.vector:
        return "elementwise"
    return "attention" if operator.core else "matrix"


#: Windows of the messages of a forward.
_AHEAD = (Window.matrix_forward, Window.attention_forward, Window.before_attention, Window.experts_forward)

#: Scopes of the messages of a layer.
_LAYER = (Scope.layer, Scope.expert_layer)


class _Device:
    """Builds the kernels of one device."""

    def __init__(self, design: Design, step: Step, ledger: StepLedger, stage: int) -> None:
        self.step, self.ledger, self.stage = step, ledger, stage
        self.dense = float(design.workload.experts.first_dense) if design.workload.experts else 0.0
        self.trained = float(design.workload.backward)
        m = design.mapping
        self.copies = max(m.offload_weights, m.offload_activations, m.offload_optimizer) > 0.0
        self.free: dict[int, float] = {}
        self.passes: dict[Task, list[_Part]] = {}

    def kernels(self) -> Iterator[TraceKernel]:
        """All kernels of the device."""
        last = 0.0
        for event in (one for one in self.step.timeline.events if one.device == self.stage):
            start = event.start + event.received
            peer, number = self._source(event)
            if start - last > 1e-9 or (peer and self.step.message):
                begin = last if start - last > 1e-9 else max(start - self.step.message, 0.0)
                wait = self._wait("stage_input", INPUTS, begin, start, event.slot[0].micro_batch, peer)
                yield wait._replace(number=number)
            yield from self._placed(event, start)
            yield from self._sends(event)
            last = event.end
        end = self.step.timeline.makespan
        if len(self.step.plan.orders) > 1:  # the norm of all gradients, for which the optimiser waits
            yield self._wait("wait for other stages", NORM, min(last, end), end)
        yield from self._data_parallel(end)
        if self.step.optimizer:
            after = end + self.step.data_parallel
            yield TraceKernel("optimizer", "optimizer", "", COMPUTE, after, self.step.optimizer)

    # Between stages

    def _wait(self, label: str, stream: int, start: float, end: float, of: int = -1, peer: int = 0) -> TraceKernel:
        message = next((m for m in self.ledger.messages if m.scope is Scope.stage_boundary), None)
        return TraceKernel(label, "wait", "", stream, start, end - start, of, None, message if peer else None, peer)

    def _source(self, event: Event) -> tuple[int, int]:
        """Stages from here to the one whose output a slot waits for, 0 for none, and the number of the message."""
        for task in event.slot:
            back = task.kind is not PassKind.forward
            chunk = task.chunk + (1 if back else -1)
            if task.kind is PassKind.weight_gradient or not 0 <= chunk < self.step.plan.chunks:
                continue
            source = task._replace(chunk=chunk)
            if other := self.step.plan.place(source) - self.stage:
                return other, self._number(source)
        return 0, 0

    def _number(self, source: Task) -> int:
        chunks = self.step.plan.chunks
        return 2 * (source.micro_batch * chunks + source.chunk) + (source.kind is not PassKind.forward)

    def _sends(self, event: Event) -> Iterator[TraceKernel]:
        message = next((m for m in self.ledger.messages if m.scope is Scope.stage_boundary), None)
        for task in event.slot if message and self.step.message else ():
            ahead = task.kind is PassKind.forward
            chunk = task.chunk + (1 if ahead else -1)
            if task.kind is PassKind.weight_gradient or not 0 <= chunk < self.step.plan.chunks:
                continue
            if other := self.step.plan.place(task._replace(chunk=chunk)) - self.stage:
                stream = OUTPUTS if ahead else GRADIENTS
                start = max(event.end, self.free.get(stream, 0.0))
                self.free[stream] = start + self.step.message
                yield TraceKernel(
                    "stage_output",
                    "message",
                    "",
                    stream,
                    start,
                    self.step.message,
                    task.micro_batch,
                    None,
                    message,
                    other,
                    self._number(task),
                )

    # Passes

    def _placed(self, event: Event, start: float) -> Iterator[TraceKernel]:
        """The kernels of a slot in time; what it is longer than they are is the host's, or of copies."""
        parts = [(part, task.micro_batch) for task in event.slot for part in self._parts(task)]
        length = event.end - start
        nominal = sum(part.exposed if part.kernel.message else part.kernel.seconds for part, _ in parts)
        rest = length - nominal
        scale = length / nominal if nominal and (rest < _ROUNDING * length) else 1.0
        gaps = 0.0 if scale != 1.0 or self.copies else rest / max(len(parts), 1)
        owed = 0.0  # waited longer for messages in a row, for which later ones are waited for less
        for (kernel, exposed), of in parts:
            if kernel.message is None:
                yield kernel._replace(start=start, seconds=scale * kernel.seconds, micro_batch=of)
                start += scale * kernel.seconds
            else:
                seconds, waits = max(scale * kernel.seconds, scale * exposed), max(scale * exposed - owed, 0.0)
                begin = max(start + waits - seconds, self.free.get(kernel.stream, 0.0), event.start)
                self.free[kernel.stream] = begin + seconds
                yield kernel._replace(start=begin, seconds=seconds, micro_batch=of)
                waits = max(begin + seconds - start, waits)
                owed += waits - scale * exposed
                start += waits
            taken = min(max(owed, 0.0), gaps)  # what is left is taken from gaps
            owed, start = owed - taken, start + gaps - taken
        if self.copies and scale == 1.0 and rest > 0.0:
            yield TraceKernel("offload", "copy", "", COPIES, start, rest, event.slot[0].micro_batch)

    def _parts(self, task: Task) -> list[_Part]:
        """Kernels and messages of a pass, which are the same for every micro-batch."""
        key = task._replace(micro_batch=0)
        if key not in self.passes:
            self.passes[key] = [*self._of_pass(key)]
        return self.passes[key]

    def _of_pass(self, task: Task) -> Iterator[_Part]:
        count, of = round(self.step.layers[task.chunk]), task.micro_batch
        is_first, is_last = task.chunk == 0, task.chunk == self.step.plan.chunks - 1
        dense = min(self.dense, count) if is_first else 0
        sections = ["first layer" if i < dense else "layer" for i in range(count)]
        if task.kind is PassKind.forward:
            yield from self._forward("embedding", of) if is_first else ()
            for section in sections:
                yield from self._forward(section, of)
            yield from self._forward("head", of) if is_last else ()
            return
        kinds = {PassKind.input_gradient: (INPUT_GRADIENT,), PassKind.weight_gradient: (WEIGHT_GRADIENT,)}
        wanted = kinds.get(task.kind, (INPUT_GRADIENT, WEIGHT_GRADIENT))
        yield from self._backward("head", of, wanted, 0.0) if is_last else ()
        for i in reversed(range(count)):
            again = min(max(self.ledger.full * count - i, 0.0), 1.0)
            yield from self._backward(sections[i], of, wanted, again)
        yield from self._backward("embedding", of, wanted, 0.0) if is_first else ()

    def _forward(self, section: str, of: int, share: float = 1.0, of_pass: str = FORWARD) -> Iterator[_Part]:
        """Kernels and messages of a forward over a layer, the embedding or the head; ``share`` of one repeated."""
        kernels = [self._kernel(one, 0, of, share, of_pass) for one in self.ledger.of(section)]
        if "layer" in section and self.ledger.small:
            kernels.append(self._small(of, share, of_pass))
        yield from _among([part for part in kernels if part], self._messages(section, of, True, share, of_pass))

    def _backward(self, section: str, of: int, wanted: tuple[str, ...], again: float) -> Iterator[_Part]:
        in_layer, inputs = "layer" in section, INPUT_GRADIENT in wanted
        kernels: list[_Part | None] = []
        if in_layer and inputs and again:
            yield from self._forward(section, of, again, RECOMPUTE)
        elif in_layer and inputs:
            kernels += [
                self._kernel(one, 0, of, one.repeated, RECOMPUTE) for one in self.ledger.of(section) if one.repeated
            ]
            if self.ledger.small and self.ledger.repeats:
                kernels.append(self._small(of, self.ledger.repeats, RECOMPUTE))
        for one in reversed(self.ledger.of(section)):
            kernels += [self._kernel(one, PASSES.index(name), of, 1.0, name) for name in wanted]
        if in_layer and inputs and self.ledger.small:
            kernels.append(self._small(of, 2.0 * self.trained, INPUT_GRADIENT))
        messages = list(self._messages(section, of, False, 1.0, INPUT_GRADIENT)) if inputs else []
        if in_layer and inputs and not again:
            messages += self._messages(section, of, True, None, RECOMPUTE)
        yield from _among([part for part in kernels if part], iter(messages))

    def _kernel(self, one: OperatorKernels, at: int, of: int, share: float, of_pass: str) -> _Part | None:
        work = one.kernels[at]
        if work is None or not share:
            return None
        family = family_of(one)
        return _Part(TraceKernel(one.name, family, of_pass, COMPUTE, 0.0, share * work.seconds, of, work))

    def _small(self, of: int, share: float, of_pass: str) -> _Part:
        seconds = share * self.ledger.small
        return _Part(TraceKernel("small kernels", "elementwise", of_pass, COMPUTE, 0.0, seconds, of))

    def _messages(self, section: str, of: int, ahead: bool, share: float | None, of_pass: str) -> Iterator[_Part]:
        """Messages of one execution of a section; ``share`` of a repeated one, None: as often as they are repeated."""
        scopes = {"embedding": (Scope.embedding,), "head": (Scope.head,), "first layer": (Scope.layer,)}
        in_layer = "layer" in section
        for m in self.ledger.messages:
            if m.scope not in scopes.get(section, _LAYER) or m.seconds <= 0.0:
                continue
            # The closed forms count those of the embedding in its forward, of the head in its backward.
            if (m.window in _AHEAD if in_layer else section == "embedding") is not ahead:
                continue
            often = m.repeated if share is None else share
            if not often or (of_pass == RECOMPUTE and not m.repeated):
                continue
            count = max(round(m.number), 1)
            seconds = often * m.seconds / count
            exposed = seconds * (self._exposed(m, ahead and of_pass != RECOMPUTE) if in_layer else 1.0)
            kernel = TraceKernel(
                m.name, "message", of_pass, STREAMS[m.dimension], 0.0, max(seconds, exposed), of, None, m
            )
            yield from (_Part(kernel, exposed) for _ in range(count))

    def _exposed(self, message: MessageTimes, ahead: bool) -> float:
        """Exposed seconds over those on the wire of the layer's messages of a dimension in a pass."""
        kinds = {Dimension.tensor: "tensor", Dimension.context: "context", Dimension.expert: "experts"}
        exposed = self.step.exposed[kinds[message.dimension]][0 if ahead else 1]
        own = [m for m in self.ledger.messages if m.scope in _LAYER and m.dimension is message.dimension]
        if ahead:
            sent = sum(m.seconds for m in own if m.window in _AHEAD)
        else:
            again = max(self.ledger.full, 0.0)
            sent = sum(
                m.seconds * (max(m.repeated, again * bool(m.repeated)) if m.window in _AHEAD else 1.0) for m in own
            )
        return exposed / sent if sent else 0.0

    # After the last pass

    def _data_parallel(self, end: float) -> Iterator[TraceKernel]:
        """Messages of the replicas one after the other, of which the last seconds are exposed."""
        scopes = (Scope.weights, Scope.expert_weights, Scope.tied_embedding)
        own = [m for m in self.ledger.messages if m.scope in scopes and m.seconds > 0.0]
        sent = sum(m.seconds for m in own)
        stretched = max(1.0, self.step.data_parallel / sent) if sent else 1.0
        at = end + self.step.data_parallel - stretched * sent
        for m in own:
            count = max(round(m.number), 1)
            for _ in range(count):
                seconds = stretched * m.seconds / count
                yield TraceKernel(m.name, "message", "", STREAMS[Dimension.data], at, seconds, -1, None, m)
                at += seconds


def _among(kernels: list[_Part], messages: Iterator[_Part]) -> Iterator[_Part]:
    """Messages spread evenly among kernels, the last one after all of them."""
    listed, place = list(messages), 0
    for number, kernel in enumerate(kernels, 1):
        yield kernel
        while place < len(listed) and (place + 1) * len(kernels) <= number * len(listed):
            yield listed[place]
            place += 1
    yield from listed[place:]
