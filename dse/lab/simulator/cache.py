"""Blocks of a rank's cache: those of single requests, shared prefixes, contexts; least recently used evicted first."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple


class CacheTier:
    """A cache beyond device memory that takes what the tier above evicts."""

    def __init__(self, blocks: int, seconds: float) -> None:
        self.blocks, self.seconds, self.used = blocks, seconds, 0  # seconds: to load a block
        self.blocks_by_key: OrderedDict[int, int] = OrderedDict()  # key → blocks

    def put(self, key: int, count: int) -> None:
        """Set the blocks of a key, which is then the most recent; the tier may hold too many."""
        self.pop(key)
        self.blocks_by_key[key] = count
        self.used += count

    def pop(self, key: int) -> int:
        """Remove a key and return the count of its blocks, 0 where it is absent."""
        count = self.blocks_by_key.pop(key, 0)
        self.used -= count
        return count


class CacheHit(NamedTuple):
    """Blocks that an admitted request reuses."""

    hit: int  # blocks of its prefix and its session's context that were there
    common: int  # blocks of the prefix that it refers to
    seconds: float  # to load those of other tiers


class BlockCache:
    """Blocks in use, and prefixes and contexts that stay after their use until their room is needed.

    Args:
        blocks: of device memory.
        tiers: blocks and seconds of a block of each further tier.
    """

    def __init__(self, blocks: int, tiers: tuple[tuple[int, float], ...] = ()) -> None:
        self.blocks, self.used, self.most = blocks, 0, 0
        self.set_aside = 0  # blocks for the sequences that decode in the next step
        self.tiers = [CacheTier(*tier) for tier in tiers]
        self._prefixes_in_use: dict[int, list[int]] = {}  # prefix in use → blocks, requests
        self._idle: OrderedDict[int, int] = OrderedDict()  # prefix or context that nobody uses → blocks
        self._idle_blocks = 0

    @property
    def room(self) -> int:
        """Count of blocks that can be taken, those of idle prefixes and contexts included."""
        return self.blocks - self.used + self._idle_blocks - self.set_aside

    @property
    def occupied(self) -> int:
        """Count of blocks of requests in the engine."""
        return self.used - self._idle_blocks

    def take(self, count: int) -> bool:
        """Take blocks, from idle prefixes and contexts where none are free; return whether there were enough."""
        if count > self.room:
            return False
        while count > self.blocks - self.used:
            key, freed = self._idle.popitem(last=False)
            self._idle_blocks -= freed
            self.used -= freed
            self._lower(0, key, freed)
        self.used += count
        self.most = max(self.most, self.occupied)
        return True

    def release(self, count: int) -> None:
        """Give ``count`` blocks of a request back."""
        self.used -= count

    def keep(self, key: int, count: int) -> None:
        """End a request whose ``count`` own blocks stay, idle, as the context of a session."""
        self.used -= self._forget(key)
        self._set_idle(key, count)

    def take_with_prefix(self, prefix: int, shared: int, count: int) -> CacheHit | None:
        """Take ``count`` blocks of which the first ``shared`` are those of a prefix, and return what was reused.

        Returns:
            Blocks of the prefix that were there already, and all of its blocks that the request refers to; None, and
            nothing is taken, where there are too few.
        """
        if entry := self._prefixes_in_use.get(prefix):
            hit = min(shared, entry[0])
            if not self.take(count - hit):
                return None
            entry[1] += 1
            return CacheHit(hit, hit, 0.0)
        blocks = self._forget(prefix)  # not to be evicted for its own request
        hit = min(shared, blocks)
        if self.take(count - hit):
            seconds = 0.0
            if not blocks:
                blocks, seconds = self._loaded(prefix)
                hit = min(shared, blocks)
            self._prefixes_in_use[prefix] = [max(blocks, hit) or shared, 1]
            return CacheHit(hit, hit or shared, seconds)
        if blocks:
            self._set_idle(prefix, blocks)
        return None

    def take_with_context(self, key: int, max_context: int, count: int, prefix: int, shared: int) -> CacheHit | None:
        """Take ``count`` blocks, up to ``max_context`` of them a context behind a prefix, and return what was reused.

        None, and nothing is taken, where there are too few.
        """
        blocks = self._forget(key)
        if shared:
            prefix_hit = self.take_with_prefix(prefix, shared, count - blocks)
        else:
            prefix_hit = CacheHit(0, 0, 0.0) if self.take(count - blocks) else None
        if prefix_hit is None:
            if blocks:
                self._set_idle(key, blocks)
            return None
        follows_prefix = prefix_hit.hit == shared  # without its prefix a context is of no use
        hit, seconds = (blocks, 0.0) if blocks else self._loaded(key) if follows_prefix else (0, 0.0)
        return CacheHit(
            prefix_hit.hit + min(hit, max_context) * follows_prefix, prefix_hit.common, prefix_hit.seconds + seconds
        )

    def leave(self, prefix: int) -> None:
        """End a request's use of a prefix, which is idle after the last one."""
        entry = self._prefixes_in_use[prefix]
        entry[1] -= 1
        if not entry[1]:
            del self._prefixes_in_use[prefix]
            self._set_idle(prefix, entry[0])

    def _set_idle(self, key: int, count: int) -> None:
        """Let the blocks of a prefix or context stay, idle, until their room is needed."""
        self._idle[key] = count
        self._idle_blocks += count

    def _forget(self, key: int) -> int:
        """Remove an idle prefix or context and return the count of its blocks, which are in use from now on."""
        blocks = self._idle.pop(key, 0)
        self._idle_blocks -= blocks
        return blocks

    def _lower(self, tier_index: int, key: int, count: int) -> None:
        """Put evicted blocks into a tier, and what that evicts into the next one."""
        if tier_index == len(self.tiers) or count > self.tiers[tier_index].blocks:
            return
        tier = self.tiers[tier_index]
        tier.put(key, count)
        while tier.used > tier.blocks:
            evicted_key = next(iter(tier.blocks_by_key))
            self._lower(tier_index + 1, evicted_key, tier.pop(evicted_key))

    def _loaded(self, key: int) -> tuple[int, float]:
        """Remove a prefix or context from its tier; return the count of its blocks and seconds of their load, or 0."""
        for tier in self.tiers:
            if blocks := tier.pop(key):
                return blocks, blocks * tier.seconds
        return 0, 0.0
