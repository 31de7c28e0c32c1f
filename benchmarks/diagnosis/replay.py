"""Traces of the ranks of a step run again with other durations: kernels start when what they waited for has ended.

Knows the files alone. A kernel of compute follows the one before it, and the messages that ended when it began; a
message starts at the same point of the kernel beside it; one of several ranks ends for all after the last has come;
one between stages after it was sent.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

#: A kernel's event of a trace.
Event = dict[str, Any]

#: Times closer than this are the same, µs.
_SAME = 0.02


class Node(NamedTuple):
    """Start and end of a kernel: ``2 i`` and ``2 i + 1``."""

    rank: int
    event: Event


def is_message(event: Event) -> bool:
    """Whether a kernel is one of NCCL."""
    return str(event["name"]).startswith("nccl")


def kernels_of(events: Sequence[Event]) -> list[Event]:
    """Kernels and copies of a trace in order of their starts."""
    return sorted((one for one in events if one.get("cat") in ("kernel", "gpu_memcpy")), key=lambda one: one["ts"])


class Replay:
    """The kernels of some ranks and what each waits for."""

    def __init__(self, files: Mapping[int, Sequence[Event]], ranks_of_stage: int) -> None:
        self.nodes = [Node(rank, event) for rank, events in files.items() for event in kernels_of(events)]
        self.origin = min(node.event["ts"] for node in self.nodes)
        self.of_stage = ranks_of_stage
        self.start = np.array([node.event["ts"] for node in self.nodes])
        self.end = self.start + [node.event["dur"] for node in self.nodes]
        self.waits: list[list[tuple[int, float]]] = [[] for _ in range(2 * len(self.nodes))]  # (node, seconds after)
        self.partway: dict[int, tuple[int, float]] = {}  # start of a message → (kernel, share of it)
        self.together: dict[int, list[int]] = {}  # message → those of other ranks
        self.wire = self.end - self.start
        self.gap: dict[int, float] = {}
        for rank in files:
            self._link([i for i, node in enumerate(self.nodes) if node.rank == rank])
        self._collectives()
        self._between_stages()

    def _link(self, own: list[int]) -> None:
        """What the kernels of a rank wait for on the rank itself."""
        compute = [i for i in own if not is_message(self.nodes[i].event)]
        messages = [i for i in own if is_message(self.nodes[i].event)]
        waited = [i for i in messages if self.nodes[i].event["args"]["Collective name"] != "send"]
        blocking = sorted((self.end[i], i) for i in waited)
        ends = np.array([end for end, _ in blocking])
        before, last = -1, self.origin
        for i in compute:
            first, stop = np.searchsorted(ends, [last - _SAME, self.start[i] + _SAME])
            found = [j for end, j in blocking[first:stop] if not self._of_replicas(j) or self.start[i] - end < _SAME]
            gap = max(self.start[i] - max([last, *(self.end[j] for j in found)]), 0.0)
            self.gap[i] = gap if gap > _SAME else 0.0
            self.waits[2 * i] += [(2 * j + 1, self.gap[i]) for j in (*found, *([before] if before >= 0 else []))]
            before, last = i, self.end[i]
        starts = self.start[compute]
        previous: dict[int, int] = {}
        for i in messages:
            stream = self.nodes[i].event["tid"]
            queued = previous.get(stream, -1)
            if queued >= 0:
                self.waits[2 * i].append((2 * queued + 1, 0.0))
            if queued < 0 or self.start[i] - self.end[queued] > _SAME:
                at = int(np.searchsorted(starts, self.start[i] - _SAME)) - 1
                if at >= 0:
                    k = compute[at]
                    share = (self.start[i] - self.start[k]) / max(self.end[k] - self.start[k], 1e-9)
                    if share >= 1.0 - 1e-6:  # after the kernel, and the messages that ended since
                        first, stop = np.searchsorted(ends, [self.end[k] - _SAME, self.start[i] + _SAME])
                        found = [
                            j
                            for end, j in blocking[first:stop]
                            if self.start[j] < self.start[i] - _SAME
                            and (not self._of_replicas(j) or self.start[i] - end < _SAME)
                        ]
                        gap = max(self.start[i] - max([self.end[k], *(self.end[j] for j in found)]), 0.0)
                        self.waits[2 * i] += [(2 * j + 1, gap) for j in (k, *found)]
                    else:
                        self.partway[i] = k, max(share, 0.0)
                        self.waits[2 * i].append((2 * k, 0.0))
            previous[stream] = i

    def _of_replicas(self, i: int) -> bool:
        """Whether a message is one of gradients or weights, which end anywhere beside the passes."""
        return str(self.nodes[i].event["args"].get("Process Group Name", "")).startswith("data")

    def _collectives(self) -> None:
        groups: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        count: dict[tuple[Any, ...], int] = defaultdict(int)
        for i, (rank, event) in enumerate(self.nodes):
            about = event["args"]
            if not is_message(event) or about["Collective name"] in ("send", "recv"):
                continue
            key = about["Process Group Name"], about["Process Group Ranks"], about["Collective name"]
            groups[(*key, count[rank, *key])].append(i)
            count[rank, *key] += 1
        for own in groups.values():
            least = min(self.wire[i] for i in own)
            for i in own:
                self.together[i], self.wire[i] = own, least
                self.waits[2 * i + 1] += [(2 * j, 0.0) for j in own if j != i]

    def _between_stages(self) -> None:
        sent: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        for i, (_, event) in enumerate(self.nodes):
            about = event["args"]
            if about.get("Collective name") == "send" and "Src Rank" in about:
                sent[self._ends(about)].append(i)
        for i, (rank, event) in enumerate(self.nodes):
            about = event["args"]
            if about.get("Collective name") == "recv":
                found = sent.get(self._ends(about), [])
                if found:
                    j = next((k for k in found if self.nodes[k].rank % self.of_stage == rank % self.of_stage), found[0])
                    self.wire[i] = max(self.end[i] - max(self.start[i], self.start[j]), 0.0)
                    self.waits[2 * i + 1].append((2 * j, 0.0))

    def _ends(self, about: Mapping[str, Any]) -> tuple[int, int, int]:
        return about["Src Rank"] // self.of_stage, about["Dst Rank"] // self.of_stage, about["Seq"]

    def run(
        self,
        factor: Callable[[int, Event], float],
        stalls: Mapping[int, float] | None = None,
        noise: np.ndarray | float = 1.0,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Starts and ends in µs with durations times ``noise`` and ``factor`` (of rank and event).

        ``stalls``: µs before kernels.
        """
        scale = noise * np.array([factor(node.rank, node.event) for node in self.nodes])
        for i, own in self.together.items():
            scale[i] = scale[min(own)]
        length, stalls = self.wire * scale, stalls or {}
        time = np.zeros(2 * len(self.nodes))
        after: list[list[int]] = [[] for _ in time]
        left = np.zeros(len(time), int)
        for node, needed in enumerate(self.waits):
            own = [(node - 1, 0.0)] if node % 2 else []
            left[node] = len(needed) + len(own)
            for other, _ in (*needed, *own):
                after[other].append(node)
        ready, seen = deque(np.flatnonzero(left == 0).tolist()), 0
        while ready:
            node = ready.popleft()
            seen += 1
            i = node // 2
            if node % 2:
                time[node] = max([time[node - 1], *(time[j] for j, _ in self.waits[node])]) + length[i]
            else:
                start = max((time[j] + gap for j, gap in self.waits[node]), default=self.start[i] - self.origin)
                if i in self.partway:
                    k, share = self.partway[i]
                    start = max(start, time[2 * k] + share * length[k])
                time[node] = start + stalls.get(i, 0.0)
            for other in after[node]:
                left[other] -= 1
                if not left[other]:
                    ready.append(other)
        if seen != len(time):
            raise ValueError("kernels that wait for each other")
        return time[0::2], time[1::2]

    def rewritten(
        self, files: Mapping[int, Sequence[Event]], start: np.ndarray, end: np.ndarray
    ) -> dict[int, list[Event]]:
        """The files with these times; the step of each lasts as long as the longest."""
        moved = {id(node.event): (s, e) for node, s, e in zip(self.nodes, start, end, strict=True)}
        whole = float(end.max())
        found: dict[int, list[Event]] = {}
        for rank, events in files.items():
            found[rank] = []
            for event in events:
                if id(event) in moved:
                    s, e = moved[id(event)]
                    event = event | {"ts": round(self.origin + s, 3), "dur": round(e - s, 3)}
                elif event.get("cat") == "user_annotation":
                    event = event | {"ts": self.origin, "dur": round(whole, 3)}
                found[rank].append(event)
        return found
