"""Simulation of a serving engine request by request, with the model's own step time.

Plain Python and NumPy for one design, outside ``jit``: the scheduler of vLLM and SGLang, event by event. The closed
forms of ``dse.model.serving`` are tested against it.
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
