"""Event-driven schedule of a training step: order of passes per stage, timeline, and Chrome trace.

Plain Python for one design, separate from the model, whose closed forms are tested against it.

Start with ``orders.py`` (which device runs which pass, and which pass sends to which), then ``timeline.py`` (starts and
ends of an order), ``step.py`` (both for a design); ``kernels.py`` fills the passes of one device with the operators and
messages of ``ledger.py``, ``perfetto.py`` and the writers of :mod:`dse.lab.exchange` read them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dse.surface import attribute

if TYPE_CHECKING:
    from dse.views.trace import memory, perfetto
    from dse.views.trace.groups import (
        MessageTarget as MessageTarget,
        RankPlace as RankPlace,
        message_group as message_group,
        rank_place,
    )
    from dse.views.trace.kernels import COMPUTE, COPIES, INPUTS, RECOMPUTE, DeviceStep, TraceKernel, device_step
    from dse.views.trace.ledger import FORWARD, INPUT_GRADIENT, MessageTimes as MessageTimes, step_ledger
    from dse.views.trace.orders import PassKind, Task as Task
    from dse.views.trace.step import ScheduledStep, schedule_step
    from dse.views.trace.timeline import simulate
else:

    def __getattr__(name: str) -> Any:
        return attribute(__name__, name)


__all__ = [
    "COMPUTE",
    "COPIES",
    "FORWARD",
    "INPUTS",
    "INPUT_GRADIENT",
    "RECOMPUTE",
    "DeviceStep",
    "PassKind",
    "ScheduledStep",
    "TraceKernel",
    "device_step",
    "memory",
    "perfetto",
    "rank_place",
    "schedule_step",
    "simulate",
    "step_ledger",
]
