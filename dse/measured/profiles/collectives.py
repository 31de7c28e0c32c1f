"""Output of nccl-tests and rccl-tests: a line a size, with the time out of place, then in place, in microseconds.

``size`` is that of the whole: what an all-gather collects and a reduce-scatter starts from. Times out of place count.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from typing import NamedTuple

from dse.measured.profiles.run import MeasuredRun, accelerator, text

SIGN = re.compile(r"#\s*size\s+count\s+type|# nThread \d+ nGpus \d+")

_TEST = re.compile(r"\b(all_reduce|all_gather|reduce_scatter|alltoall|sendrecv)_perf\b")
_RANK = re.compile(r"#\s+Rank\s+(\d+)\b.*?\bPid\s+\d+ on\s+(\S+) device\s+(\d+) \[\S*\]\s+(\S.*)$")

#: Bus bandwidth over algorithm bandwidth of ``n`` ranks tells the reductions apart.
_NAMES = {"sendrecv": "send_recv"}


class _SizeLine(NamedTuple):
    """A measured size."""

    size: int
    dtype: str
    redop: str
    microseconds: float
    ratio: float  # of bus to algorithm bandwidth


@dataclasses.dataclass
class _Test:
    """One run of a test: its name, ranks (number → host and device) and measured sizes."""

    name: str
    ranks: dict[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    alone: bool = False  #: whether processes have the same rank: each runs for itself
    found: dict[tuple[int, str, str], _SizeLine] = dataclasses.field(default_factory=dict)

    def runs(self) -> list[MeasuredRun]:
        """A row a size."""
        cells, devices = {"src": "nccl-tests"}, {accelerator(device) for _, device in self.ranks.values()}
        members = 0 if self.alone else len(self.ranks)
        if members:
            hosts = {host for host, _ in self.ranks.values()}
            cells |= {"num_gpus": text(members), "devices_per_node": text(members / len(hosts))}
        if len(devices) == 1 and devices != {""}:
            cells["system"] = devices.pop()
        name = self.name or _by_ratio(list(self.found.values()), members)
        cells |= {"collective": _NAMES.get(name, name)} if name else {}
        return [
            MeasuredRun("nccl-tests", "collectives", cells | {
                "dtype": one.dtype, "bytes": text(one.size), "latency_ms": text(1e-3 * one.microseconds),
            }) for one in self.found.values()
        ]  # fmt: skip


def read(lines: Iterable[str]) -> list[MeasuredRun]:
    """The measured sizes of the tests of an output, a row each."""
    tests, named = [_Test("")], ""
    for line in lines:
        if found := _TEST.search(line):
            named = found[1]
        if "# nThread" in line:
            tests.append(_Test(named))
            named = ""
        test = tests[-1]
        if rank := _RANK.search(line):
            test.alone |= rank[1] in test.ranks
            test.ranks[rank[1]] = rank[2], rank[4]
        elif (one := _line(line)) is not None:
            test.found[one.size, one.dtype, one.redop] = one
    return [run for test in tests for run in test.runs()]


def _line(line: str) -> _SizeLine | None:
    """A line of numbers; None for any other, and for sizes without a time."""
    words = line.split()
    if len(words) < 8 or not words[0].isdigit() or not words[1].isdigit() or not re.fullmatch(r"[a-z]\w*", words[2]):
        return None
    try:
        time, algorithm, bus = map(float, words[5:8])
        size = int(words[0])
    except ValueError:
        return None
    if not (0.0 < time < 1e12 and size > 0 and size < 1 << 60):
        return None
    return _SizeLine(size, words[2], words[3], time, bus / algorithm if algorithm > 0.0 else 0.0)


def _by_ratio(found: list[_SizeLine], members: int) -> str:
    """The reduction that the bandwidths are of, by the largest size; "" where it may be several."""
    if not found or members < 3:
        return ""
    largest = max(found, key=lambda one: one.size)
    if largest.redop == "none":
        return ""
    ratios = {"all_reduce": 2.0 * (members - 1.0) / members, "reduce_scatter": (members - 1.0) / members}
    return next((name for name, ratio in ratios.items() if abs(largest.ratio / ratio - 1.0) < 0.05), "")
