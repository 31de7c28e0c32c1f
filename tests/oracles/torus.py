"""Collectives on small tori by sending every part from device to device over single links, which carry a byte a second.

Nothing here reads the model: devices are coordinates, every part takes a path of neighbours, and bytes are counted on
each directed link. A phase takes as long as its fullest link.
"""

from __future__ import annotations

import itertools
from collections import defaultdict

Device = tuple[int, ...]
Axes = tuple[tuple[int, bool], ...]  # length, whether it wraps around


def devices(axes: Axes) -> list[Device]:
    """All devices of a torus."""
    return list(itertools.product(*(range(length) for length, _ in axes)))


def paths(start: int, stop: int, length: int, wraps: bool) -> list[list[int]]:
    """The shortest ways along one axis: one, or two of equal length around a ring."""
    if not wraps:
        step = 1 if stop > start else -1
        return [list(range(start, stop + step, step))]
    ahead, back = (stop - start) % length, (start - stop) % length
    ways = [[(start + i) % length for i in range(ahead + 1)], [(start - i) % length for i in range(back + 1)]]
    shortest = min(ahead, back)
    return [way for way in ways if len(way) == shortest + 1]


def _carry(load: dict, at: Device, axis: int, stop: int, axes: Axes, size: float) -> None:
    """Count ``size`` bytes from a device along one axis."""
    ways = paths(at[axis], stop, *axes[axis])
    for number, way in enumerate(ways):
        for here, there in itertools.pairwise(way):
            # Of a ring of two both ways lead to the same device, over links of their own.
            link = ((*at[:axis], here, *at[axis + 1 :]), axis, there, number if axes[axis][0] == 2 else 0)
            load[link] += size / len(ways)


def all_gather(axes: Axes, size: float) -> float:
    """Seconds of multi-ring: as many parts as axes, each gathered axis by axis, every part beginning with another."""
    active = [axis for axis, (length, _) in enumerate(axes) if length > 1]
    everyone = devices(axes)
    # Every part: device → parts of other devices that it holds.
    held = [{device: {device} for device in everyone} for _ in active]
    ways = {axis: 2 if axes[axis][1] else 1 for axis in active}
    weights = [ways[axis] / sum(ways.values()) for axis in active]
    time = 0.0
    for phase in range(len(active)):
        load: dict = defaultdict(float)
        for part, weight in enumerate(weights):
            axis = active[(part + phase) % len(active)]
            length = axes[axis][0]
            before = {device: frozenset(chunks) for device, chunks in held[part].items()}
            for device in everyone:
                chunk = weight * size / len(everyone) * len(before[device])
                _spread(load, device, axis, axes, chunk)
                for stop in range(length):
                    held[part][(*device[:axis], stop, *device[axis + 1 :])] |= before[device]
        time += max(load.values())
    assert all(chunks == set(everyone) for one in held for chunks in one.values())
    return time


def _spread(load: dict, device: Device, axis: int, axes: Axes, chunk: float) -> None:
    """Send a chunk to all others of an axis, on the way from neighbour to neighbour: once over each link."""
    length, wraps = axes[axis]
    if not wraps:
        for stop in (0, length - 1):
            if stop != device[axis]:
                _carry(load, device, axis, stop, axes, chunk)
        return
    if length == 2:
        _carry(load, device, axis, 1 - device[axis], axes, chunk)
        return
    # Half each way, all around but for the last hop: every link carries (n - 1) / 2 chunks of the ring's n.
    for direction in (1, -1):
        for hop in range(length - 1):
            here, there = (device[axis] + direction * hop) % length, (device[axis] + direction * (hop + 1)) % length
            load[(*device[:axis], here, *device[axis + 1 :]), axis, there, direction] += 0.5 * chunk


def all_to_all(axes: Axes, size: float) -> float:
    """Seconds in which every device sends each one ``1 / N`` of ``size``, first along x, then y, then z."""
    everyone, load = devices(axes), defaultdict(float)
    for start, stop in itertools.permutations(everyone, 2):
        at = start
        for axis in range(len(axes)):
            if at[axis] != stop[axis]:
                _carry(load, at, axis, stop[axis], axes, size / len(everyone))
                at = (*at[:axis], stop[axis], *at[axis + 1 :])
    return max(load.values())


def poorest(axes: Axes) -> int:
    """Links of the device that has the fewest."""
    return sum(0 if length == 1 else 2 if wraps else 1 for length, wraps in axes)


def narrowest_cut(axes: Axes) -> float:
    """Bytes over the links of the plane that divides the torus worst, of an all-to-all of one byte a device."""
    total = len(devices(axes))
    worst = 0.0
    for length, wraps in axes:
        if length > 1:
            half = length // 2
            crossing = (total // length) * (2 if wraps else 1)
            worst = max(worst, half * (total // length) * (length - half) / length / crossing)
    return worst
