"""Output of nccl-tests and rccl-tests: a line a size, with the time out of place, then in place, in microseconds.

``size`` is that of the whole: what an all-gather collects and a reduce-scatter starts from. Times out of place count.
Versions differ in their columns (``redop`` and ``root`` may be missing), so that the heading says which is which, and
size over time has to be the printed bandwidth. Messages of NCCL within a line are taken out of it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from decimal import Decimal
from typing import NamedTuple

from dse.errors import InputError
from dse.measured.profiles.run import MeasuredRun, device_slug, number_text

SIGNATURE = re.compile(r"#\s*size\s+count\s+type|# nThread \d+ nGpus \d+")

_TESTS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv")
_TEST = re.compile(rf"\b({'|'.join(_TESTS)}|reduce|broadcast|gather|scatter|hypercube)_perf\b")
_RANK = re.compile(r"#\s+Rank\s+(\d+)\b.*?\bPid\s+\d+ on\s+(\S+) device\s+(\d+) \[\S*\]\s+(\S.*)$")

#: Bus bandwidth over algorithm bandwidth of ``n`` ranks tells the reductions apart.
_NAMES = {"sendrecv": "send_recv"}

#: Columns of lines without a heading: those of versions since 2022.
_COLUMNS = ("size", "count", "type", "redop", "root", "time", "algbw", "busbw")
_HEADING = re.compile(r"#\s*(size\s+count\s+type\s.*)")

#: What NCCL_DEBUG prints, up to and with the end of its line, wherever the output of the test then stands.
_DEBUG = re.compile(r"[A-Za-z][\w.-]*(?::\d+){1,2} \[\d+\] NCCL (?:INFO|WARN|TRACE|ABORT)\b.*$")

_NUMBER = re.compile(r"-?\d{1,20}(?:\.\d{1,9})?(?:e[+-]?\d{1,2})?", re.ASCII)

#: Begin of a line of numbers, and characters of one that messages of NCCL divide.
_ROW, _LINE = re.compile(r"\s*\d+\s+\d+\s"), 1 << 12

#: Largest difference of size over time from the printed bandwidth, besides what printing rounds.
_MAX_DEVIATION = 0.02


class _SizeLine(NamedTuple):
    """A measured size of a collective."""

    size: int
    dtype: str
    redop: str
    microseconds: float
    ratio: float  # of bus to algorithm bandwidth
    is_rooted: bool  # whether one rank alone sends or receives the whole


@dataclasses.dataclass
class _Test:
    """One run of a test: its name, ranks (number → host and device) and measured sizes."""

    name: str
    ranks: dict[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    has_repeated_ranks: bool = False  #: whether processes have the same rank: each runs for itself
    size_lines: dict[tuple[int, str, str], _SizeLine] = dataclasses.field(default_factory=dict)

    def runs(self) -> list[MeasuredRun]:
        """Return one run per measured size, or raise InputError for a test that is no collective of the tables."""
        cells, devices = {"src": "nccl-tests"}, {device_slug(device) for _, device in self.ranks.values()}
        n_ranks = 0 if self.has_repeated_ranks else len(self.ranks)
        if n_ranks:
            hosts = {host for host, _ in self.ranks.values()}
            cells |= {"num_gpus": number_text(n_ranks), "devices_per_node": number_text(n_ranks / len(hosts))}
        if len(devices) == 1 and devices != {""}:
            cells["system"] = devices.pop()
        rooted_line = next((line for line in self.size_lines.values() if line.is_rooted), None)
        rooted_name = (
            "" if rooted_line is None else "broadcast, gather or scatter" if rooted_line.redop == "none" else "reduce"
        )
        name = self.name or rooted_name or _reduction_name(list(self.size_lines.values()), n_ranks)
        if self.size_lines and name not in ("", *_TESTS):
            raise InputError("collective", f"the test {name}", ", ".join(_TESTS), "leave its lines out")
        cells |= {"collective": _NAMES.get(name, name)} if name else {}
        return [
            MeasuredRun(
                "nccl-tests",
                "collectives",
                cells
                | {
                    "dtype": line.dtype,
                    "bytes": number_text(line.size),
                    "latency_ms": number_text(1e-3 * line.microseconds),
                },
            )
            for line in self.size_lines.values()
        ]


def read(lines: Iterable[str]) -> list[MeasuredRun]:
    """Read the measured sizes of the tests of an output, one run each.

    Raises:
        InputError: for columns without times or bandwidths, a time that is not that of its bandwidth, and a test that
            is no collective of the tables.
    """
    tests, current_name, columns, fragment = (
        [_Test("")],
        "",
        _COLUMNS,
        "",
    )  # fragment: of a line that a message of NCCL divides
    for number, line_text in enumerate(lines, 1):
        if message := _DEBUG.search(line_text):
            head = line_text[: message.start()]
            fragment += head if fragment or _ROW.match(head) else ""
            fragment = fragment[:_LINE]
            continue
        line, fragment = fragment + line_text, ""
        if (test_name := _TEST.search(line)) and "concluded" not in line:
            current_name = test_name[1]
            if not tests[-1].size_lines:  # older versions name a test after its devices
                tests[-1].name = tests[-1].name or current_name
        if "# nThread" in line:
            tests.append(_Test(current_name))
        if heading := _HEADING.search(line):
            columns = tuple(heading[1].split())
        test = tests[-1]
        if rank := _RANK.search(line):
            test.has_repeated_ranks |= rank[1] in test.ranks
            test.ranks[rank[1]] = rank[2], rank[4]
        elif (size_line := _parse_line(line.split(), columns, f"line {number}")) is not None:
            test.size_lines[size_line.size, size_line.dtype, size_line.redop] = size_line
            current_name = ""
    return [run for test in tests for run in test.runs()]


def _parse_line(fields: list[str], columns: tuple[str, ...], where: str) -> _SizeLine | None:
    """Return a line of numbers under a heading, None for any other line and for sizes without a time.

    Raises InputError for a heading without times or bandwidths, and a time that is not that of its bandwidth.
    """
    if (
        len(fields) < 6
        or not fields[0].isdigit()
        or not fields[1].isdigit()
        or not re.fullmatch(r"[a-z]\w*", fields[2])
    ):
        return None
    if missing := [name for name in ("time", "algbw", "busbw") if name not in columns]:
        raise InputError(where, f"a heading without {', '.join(missing)}", " ".join(_COLUMNS), "run the test again")
    cells = dict(reversed(list(zip(columns, fields, strict=False))))  # of two times the first: out of place
    printed = [cells.get(name, "") for name in ("size", "time", "algbw", "busbw")]
    if not all(map(_NUMBER.fullmatch, printed)):
        return None
    size, time, algorithm, bus = map(Decimal, printed)
    if not time or time > 10**12 or not 0 < size < 1 << 60:
        return None
    if not _is_consistent(size, time, algorithm):
        got = f"{size} B in {time} us beside an algbw of {algorithm} GB/s"
        allowed = f"size / time within {100.0 * _MAX_DEVIATION:g} % of algbw"
        raise InputError(where, got, allowed, "give the output with the heading of its columns, unchanged")
    ratio = float(bus / algorithm) if algorithm > 0 else 0.0
    return _SizeLine(
        int(size), fields[2], cells.get("redop", "none"), float(time), ratio, cells.get("root", "-1").isdigit()
    )


def _is_consistent(size: Decimal, microseconds: Decimal, bandwidth: Decimal) -> bool:
    """Return True where a bandwidth in GB/s is that of a size in B and a time, within 2 % and printed digits."""
    half_time, half_bandwidth = _half_digit(microseconds), _half_digit(bandwidth)
    if microseconds < 0:
        return False
    slowest, fastest = microseconds + half_time, max(microseconds - half_time, Decimal("1e-9"))
    low, high = (1 - _MAX_DEVIATION) * float(size / slowest), (1 + _MAX_DEVIATION) * float(size / fastest)
    return low <= 1e3 * float(bandwidth + half_bandwidth) and 1e3 * float(bandwidth - half_bandwidth) <= high


def _half_digit(printed: Decimal) -> Decimal:
    """Return half a unit of the last printed digit."""
    return Decimal(5).scaleb(int(printed.as_tuple().exponent) - 1)


def _reduction_name(size_lines: list[_SizeLine], n_ranks: int) -> str:
    """Return the reduction that the bandwidths of the largest size are of, "" where it may be several."""
    if not size_lines or n_ranks < 3:
        return ""
    largest = max(size_lines, key=lambda line: line.size)
    if largest.redop == "none":
        return ""
    ratios = {"all_reduce": 2.0 * (n_ranks - 1.0) / n_ranks, "reduce_scatter": (n_ranks - 1.0) / n_ranks}
    return next((name for name, ratio in ratios.items() if abs(largest.ratio / ratio - 1.0) < 0.05), "")
