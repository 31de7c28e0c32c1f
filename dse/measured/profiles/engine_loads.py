"""Lines that an engine writes while it runs, as runs: a batch of requests against the rate of their tokens.

A line is of the steps since the one before, of one data-parallel rank. Lines without prompts since then are of decode
steps alone: a time per token of ``batch / rate`` at the context that the cache holds. Lines with prompts are of a
steady load. Lines count where as many requests run as in the line before, and batches that have a share of the lines.
"""

from __future__ import annotations

import dataclasses
import re
import statistics
from collections.abc import Sequence

from dse.io import counted
from dse.measured.profiles.run import Figure, MeasuredRun, number_text

#: Share of the lines from which a batch counts, and largest change of the requests since the line before.
_SHARE, _CHANGE = 0.05, 0.1

#: Decode steps that a row of decode steps alone has: one after the first token.
_STEPS = 2

#: Lines that are kept; the process that writes one, and its data-parallel rank.
_MAX_LINES = 200_000
_PROCESS = re.compile(r"\bEngine \d{1,6}\b|\b(?:DP|TP|EP|PP)\d{1,6}\b")
_REPLICA = re.compile(r"(?:Engine |DP)\d")


@dataclasses.dataclass(frozen=True)
class _LoadLine:
    """A line: requests that run, tokens a second, tokens of the cache (a share of it below 0), what it is of."""

    running: float
    rate: float
    cached: float
    has_prompts: bool
    is_steady: bool
    is_of_rank: bool


class EngineLoads:
    """Lines of a log that tell of the load of an engine.

    Args:
        patterns: of such lines, with groups ``running`` and ``rate``, and those of ``tokens``, ``usage`` (% or share),
            ``prompt`` (tokens of prompts a second) and ``drafted`` that a tool has.
        prompts: words of lines that tell of prompts of the next line.
        drafts: words of lines that tell of drafted tokens in all lines.
    """

    def __init__(self, patterns: Sequence[str], prompts: str = "", drafts: str = "") -> None:
        """Compile the patterns; no lines yet."""
        self._patterns = [re.compile(pattern) for pattern in patterns]
        self._prompts, self._drafts, self._has_drafts = prompts, drafts, False
        self._lines: list[_LoadLine] = []
        self._before: dict[str, float] = {}
        self._pending: set[str] = set()
        self._n_drafted = 0

    def add(self, line: str) -> bool:
        """Add a line, and return whether it tells of the load."""
        self._has_drafts |= bool(self._drafts) and self._drafts in line
        process = " ".join(_PROCESS.findall(line))
        if self._prompts and self._prompts in line:
            self._pending.add(process)
            return True
        match = next((found for pattern in self._patterns if (found := pattern.search(line))), None)
        if match is None:
            return False
        groups = {name: float(text.rstrip("%")) for name, text in match.groupdict().items() if text and text != "."}
        running, rate = groups["running"], groups["rate"]
        has_prompts = process in self._pending or groups.get("prompt", 0.0) > 0.0
        before = self._before.get(process, 0.0)
        self._before[process] = running
        self._pending.discard(process)
        if groups.get("drafted", 0.0) > 1.0:
            self._n_drafted += 1
        elif running >= 1.0 and 0.0 < rate < 1e9 and len(self._lines) < _MAX_LINES:
            is_share = "usage" in groups and "tokens" not in groups
            cached = -0.01 * groups["usage"] if is_share else groups.get("tokens", 0.0)
            is_steady = abs(before - running) <= _CHANGE * running
            is_of_rank = _REPLICA.search(process) is not None
            self._lines.append(_LoadLine(running, rate, cached, has_prompts, is_steady, is_of_rank))
        return True

    def runs(self, engine: MeasuredRun) -> list[MeasuredRun]:
        """Return the runs of the lines of an engine, those of equal requests as one; [] where tokens are drafted."""
        if self._has_drafts:
            return []
        lines = [line for line in self._lines if line.is_steady] or self._lines
        replicas = float(engine.cells.get("dp", "1"))
        remark = "" if any(line.is_steady for line in lines) else "; requests change from line to line"
        if self._n_drafted:
            remark += f"; {self._n_drafted} lines with drafted tokens do not count"
        cache_tokens = engine.peaks["cache_tokens"].value if "cache_tokens" in engine.peaks else 0.0
        by_batch: dict[tuple[bool, float, float], list[_LoadLine]] = {}
        for line in lines:
            by_batch.setdefault((line.has_prompts, line.running, replicas if line.is_of_rank else 1.0), []).append(line)
        runs = []
        for (has_prompts, running, ranks), alike in sorted(by_batch.items()):
            if len(alike) < _SHARE * len(lines):
                continue
            rate = statistics.median(line.rate for line in alike)
            cached = statistics.median(line.cached for line in alike)
            context = (cached if cached > 0.0 else -cached * cache_tokens) / running
            run = MeasuredRun(engine.tool, "load", engine.cells | {"batch": number_text(ranks * running)})
            run.note = f"median of {counted(len(alike), 'line')} that the engine wrote while it ran{remark}"
            if has_prompts:
                run.cells["batch_kind"] = "concurrency"
                run.peak(Figure("output_throughput_total", ranks * rate, "token/s"))
            else:
                run.cells |= {"batch_kind": "static batch", "osl": str(_STEPS)}
                run.cells |= {"isl": number_text(round(context))} if context >= 1.0 else {}
                run.peak(Figure("tpot_mean", 1e3 * running / rate, "ms"))
                run.peak(Figure("decode_throughput_total", ranks * rate, "token/s"))
            runs.append(run)
        return runs
