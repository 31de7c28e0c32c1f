"""Event-driven schedule of a training step: order of passes per stage, timeline, and Chrome trace.

Plain Python for one design, separate from the model, whose closed forms are tested against it.
"""

from dse.views.trace import memory, perfetto
from dse.views.trace.groups import RankPlace, Target, group_of, place_of
from dse.views.trace.kernels import COMPUTE, COPIES, INPUTS, RECOMPUTE, DeviceStep, TraceKernel, device_step
from dse.views.trace.ledger import FORWARD, INPUT_GRADIENT, MessageTimes, ledger_of
from dse.views.trace.orders import PassKind, Task
from dse.views.trace.step import Step, step_of
from dse.views.trace.timeline import simulate

__all__ = [
    "COMPUTE",
    "COPIES",
    "FORWARD",
    "INPUTS",
    "INPUT_GRADIENT",
    "RECOMPUTE",
    "DeviceStep",
    "MessageTimes",
    "PassKind",
    "RankPlace",
    "Step",
    "Target",
    "Task",
    "TraceKernel",
    "device_step",
    "group_of",
    "ledger_of",
    "memory",
    "perfetto",
    "place_of",
    "simulate",
    "step_of",
]
