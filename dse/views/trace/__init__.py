"""Event-driven schedule of a training step: order of passes per stage, timeline, and Chrome trace.

Plain Python for one design, separate from the model, whose closed forms are tested against it.
"""

from dse.views.trace import memory, perfetto
from dse.views.trace.groups import MessageTarget, RankPlace, message_group, rank_place
from dse.views.trace.kernels import COMPUTE, COPIES, INPUTS, RECOMPUTE, DeviceStep, TraceKernel, device_step
from dse.views.trace.ledger import FORWARD, INPUT_GRADIENT, MessageTimes, step_ledger
from dse.views.trace.orders import PassKind, Task
from dse.views.trace.step import ScheduledStep, schedule_step
from dse.views.trace.timeline import simulate

__all__ = [
    "COMPUTE",
    "COPIES",
    "FORWARD",
    "INPUTS",
    "INPUT_GRADIENT",
    "RECOMPUTE",
    "DeviceStep",
    "MessageTarget",
    "MessageTimes",
    "PassKind",
    "RankPlace",
    "ScheduledStep",
    "Task",
    "TraceKernel",
    "device_step",
    "memory",
    "message_group",
    "perfetto",
    "rank_place",
    "schedule_step",
    "simulate",
    "step_ledger",
]
