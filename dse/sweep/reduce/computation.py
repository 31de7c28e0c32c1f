"""Parts computed block by block: one that fails does not end the others, and memory that is short is asked for less."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from dse.spec.output import Keep
from dse.sweep.engine.engine import SweepEngine
from dse.sweep.reduce import keep as keeping
from dse.sweep.reduce.keep import Part


class Computation:
    """The parts of blocks, asked for in their order; the device works on the next one meanwhile."""

    def __init__(self, engine: SweepEngine, keep: Keep, blocks: list[range]) -> None:
        self._engine, self._keep, self._ahead = engine, keep, blocks
        self._parts = self._from_here()

    def part(self, block: range) -> Part:
        """The part of a block. One that fails is tried again alone: the next one, begun meanwhile, may have failed.

        Where the device has no memory left, its chunks are halved until they fit; the part is the same.
        """
        if not self._ahead or block != self._ahead[0]:
            return self._alone(block)
        self._ahead = self._ahead[1:]
        try:
            return next(self._parts)
        except Exception as error:
            self._parts = self._from_here()
            self._shorter_chunks(error)
            return self._alone(block)

    def _from_here(self) -> Iterator[Part]:
        return keeping.parts(self._engine, self._keep, self._ahead)

    def _alone(self, block: range) -> Part:
        while True:
            try:
                return next(keeping.parts(self._engine, self._keep, [block]))
            except Exception as error:
                if not self._shorter_chunks(error):
                    raise

    def _shorter_chunks(self, error: Exception) -> bool:
        """Whether memory was short and chunks are half as long from now on."""
        halved = _is_out_of_memory(error) and self._engine.halve()
        if halved:
            logging.getLogger("dse").warning("out of memory: %s; going on with chunks half as long", _first_line(error))
        return halved


def _is_out_of_memory(error: Exception) -> bool:
    """Python's own error, or XLA's, which has no class of its own."""
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
