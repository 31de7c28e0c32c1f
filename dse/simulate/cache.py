"""Blocks of a rank's cache: those of single requests, and shared prefixes, evicted least recently used first."""

from __future__ import annotations

from collections import OrderedDict


class BlockCache:
    """Blocks that are taken, and prefixes that are kept after their last request as long as nobody needs the room."""

    def __init__(self, blocks: int) -> None:
        self.blocks, self.used, self.most = blocks, 0, 0
        self.set_aside = 0  # blocks for the sequences that decode in the next step
        self._held: dict[int, list[int]] = {}  # prefix in use → blocks, requests
        self._idle: OrderedDict[int, int] = OrderedDict()  # prefix that nobody uses → blocks
        self._idle_blocks = 0

    @property
    def room(self) -> int:
        """Blocks that can be had, those of idle prefixes included."""
        return self.blocks - self.used + self._idle_blocks - self.set_aside

    def take(self, count: int) -> bool:
        """Take blocks, from idle prefixes where none are free; False, and nothing changes, where there are too few."""
        if count > self.room:
            return False
        while count > self.blocks - self.used:
            _, freed = self._idle.popitem(last=False)
            self._idle_blocks -= freed
            self.used -= freed
        self.used += count
        self.most = max(self.most, self.used)
        return True

    def release(self, count: int) -> None:
        """Give blocks of a request back."""
        self.used -= count

    def take_with_prefix(self, prefix: int, shared: int, count: int) -> tuple[int, int] | None:
        """Take ``count`` blocks of which the first ``shared`` are those of a prefix.

        Returns:
            Blocks of the prefix that were there already, and all blocks of the prefix that the request refers to; None,
            and nothing changes, where there are too few.
        """
        if held := self._held.get(prefix):
            hit = min(shared, held[0])
            if not self.take(count - hit):
                return None
            held[1] += 1
            return hit, hit
        blocks = self._idle.pop(prefix, 0)
        self._idle_blocks -= blocks  # not to be evicted for its own request
        hit = min(shared, blocks)
        if self.take(count - hit):
            self._held[prefix] = [blocks or shared, 1]
            return hit, hit or shared
        if blocks:
            self._idle[prefix] = blocks
            self._idle_blocks += blocks
        return None

    def leave(self, prefix: int) -> None:
        """A request ends that uses a prefix; after the last one it is idle."""
        held = self._held[prefix]
        held[1] -= 1
        if not held[1]:
            del self._held[prefix]
            self._idle[prefix] = held[0]
            self._idle_blocks += held[0]
