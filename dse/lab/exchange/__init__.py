"""Steps as files of other tools: writers of ``dse trace --format`` (group ``dse.exchange`` of entry points)."""

from dse.lab.exchange.chakra import write_chakra
from dse.lab.exchange.kineto import write_kineto

__all__ = [
    "write_chakra",
    "write_kineto",
]
