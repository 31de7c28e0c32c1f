"""A step as files of other tools: the traces that a profiler has, and those that network simulators replay.

Writers of ``dse trace --format`` (group ``dse.exchange`` of entry points): ``kineto`` knows the traces of the PyTorch
profiler, ``chakra`` execution traces and the wire format of Protocol Buffers. Start at their ``write``.
"""

from dse.lab.exchange.chakra import write_chakra
from dse.lab.exchange.kineto import write_kineto

__all__ = [
    "write_chakra",
    "write_kineto",
]
