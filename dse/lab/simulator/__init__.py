"""Simulation of a serving engine request by request, with the model's own step time.

Plain Python and NumPy for one design, outside ``jit``: the scheduler of vLLM and SGLang, event by event. The closed
forms of ``dse.model.serving`` are tested against it. ``load`` reads or draws requests, ``limits`` and ``table`` take
what a step may hold and how long it lasts from the design, ``scheduler`` with ``cache`` serves the requests of one
rank, ``run`` those of all, ``summary`` and ``files`` say what came of it.

It knows designs and the doors, no measured rows. Start with ``run.simulate``, then ``scheduler.Scheduler``.
"""

from dse.lab.simulator import files
from dse.lab.simulator.load import RequestList, as_requests, read
from dse.lab.simulator.run import Simulation as Simulation, simulate
from dse.lab.simulator.summary import queue_grows, statistics

__all__ = [
    "RequestList",
    "as_requests",
    "files",
    "queue_grows",
    "read",
    "simulate",
    "statistics",
]
