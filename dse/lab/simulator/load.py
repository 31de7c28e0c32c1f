"""Requests of a simulation: read from a trace, or drawn."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dse.errors import InputError, unknown_name
from dse.io import inputs
from dse.model.serving.reuse import turn_growth
from dse.types import Load, Requests, Reuse

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

#: Columns of a trace; the last three are optional.
COLUMNS = ("arrival_s", "prompt_tokens", "answer_tokens", "prefix_id", "prefix_tokens", "session_id")

#: Relative standard deviation of the answers of a closed loop that states none.
_LOOP_SPREAD = 0.05

#: Most tokens of a prompt or an answer, and most seconds of a trace.
_MAX_TOKENS, _MAX_SECONDS = 1e8, 1e9

_ALLOWED = f"a CSV file with columns {', '.join(COLUMNS[:3])} and, if any, {', '.join(COLUMNS[3:])}"


class RequestList(NamedTuple):
    """Requests in the order of their arrivals."""

    arrival: Floats  # s; of a closed loop the time after the end of another request
    prompt: Integers  # tokens
    answer: Integers  # tokens
    prefix: Integers  # number of the shared prefix, -1 none
    prefix_tokens: Integers
    session: Integers = np.zeros(0, np.int64)  # number of the session, -1 none; empty: no sessions
    turn: Integers = np.zeros(0, np.int64)  # above 0 it arrives ``arrival`` seconds after the end of the one before

    @property
    def size(self) -> int:
        """Number of requests."""
        return int(self.arrival.size)

    def subset(self, chosen: NDArray[np.int64] | slice) -> RequestList:
        """Return the requests at indices or in a slice."""
        arrival, *columns = self
        return RequestList(arrival[chosen], *(column[chosen] if column.size else column for column in columns))

    def following(self) -> tuple[dict[int, int], list[int]]:
        """Return index of a request → that of the next turn of its session, and indices of those that follow none."""
        next_turn, last, first = dict[int, int](), dict[int, int](), list[int]()
        for i, (session, turn) in enumerate(zip(self.session.tolist(), self.turn.tolist(), strict=True)):
            if turn:
                next_turn[last[session]] = i
            else:
                first.append(i)
            last[session] = i
        return next_turn, first if self.turn.size else list(range(self.size))

    def contexts(self) -> list[int]:
        """Return the cache key of each request's context, below those of prefixes: of its session, or of it alone.

        Empty without sessions where there is at most one prefix: nobody asks for a context then.
        """
        sessions = self.session if self.session.size else np.full(self.size, -1)
        if sessions.max() < 0 and len(set(self.prefix.tolist()) - {-1}) < 2:
            return []
        request_keys = sessions.max() + 1 + np.arange(self.size)
        return (-2 - np.where(sessions < 0, request_keys, sessions)).tolist()


def draw_requests(
    requests: Requests, count: int, seed: int, request_time: float = 0.0, reuse: Reuse | None = None
) -> RequestList:
    """Return ``count`` requests drawn as a design states them, in the order of their arrivals.

    Times between arrivals have a gamma distribution (Poisson arrivals: shape 1), lengths a lognormal one by their mean
    and relative standard deviation, rounded to whole tokens. Both are scaled so that their mean is as stated. In a
    closed loop equal answers and equal times between them keep requests in step for ever, which no traffic does: there
    the time outside the engine is exponential, and answers without a stated spread vary by 5 %.

    Args:
        requests: arrivals and lengths.
        count: number of requests.
        seed: of all that is drawn.
        request_time: mean time between an answer and the next request of a closed loop, s.
        reuse: prefixes and sessions; None: one prefix.

    Raises:
        InputError: for mean lengths below a token, and sessions of a closed loop.
    """
    for name, mean in (("prompt_tokens", requests.prompt_tokens), ("output_tokens", requests.output_tokens)):
        if mean < 1.0:
            raise InputError(f"--set {name}", f"{float(mean):g}", "1 or more, as whole tokens are drawn", "set 1")
    random = np.random.default_rng(seed)
    arrival, is_closed = np.zeros(count), requests.load == float(Load.concurrency)
    if is_closed:
        arrival = random.exponential(request_time, count)
    if requests.load == float(Load.rate):
        rate = float(1.0 if requests.request_rate is None else requests.request_rate)
        arrival = np.cumsum(_gaps(random, float(requests.arrival_variation), count)) / rate
    prompt = _lengths(random, float(requests.prompt_tokens), float(requests.length_spread), count)
    default_spread = _LOOP_SPREAD if is_closed else 0.0
    spread = float(default_spread if requests.answer_spread is None else requests.answer_spread)
    answer = _lengths(random, float(requests.output_tokens), spread, count)
    prefix_tokens = np.minimum(np.floor(float(requests.prefix_share) * requests.prompt_tokens), prompt - 1)
    if reuse is not None and round(float(reuse.turns)) > 1:
        return _sessions(
            random, requests, reuse, RequestList(arrival, prompt, answer, prompt, prefix_tokens.astype(np.int64))
        )
    groups = np.zeros(count, np.int64) if reuse is None else _groups(random, reuse, count)
    return RequestList(arrival, prompt, answer, np.where(prefix_tokens > 0, groups, -1), prefix_tokens.astype(np.int64))


def _groups(random: np.random.Generator, reuse: Reuse, count: int) -> Integers:
    """Draw the index of a prefix ``count`` times by Zipf's law."""
    weights = np.arange(1.0, round(float(reuse.prefix_groups)) + 1.0) ** -float(reuse.prefix_skew)
    return random.choice(weights.size, count, p=weights / weights.sum())


def _sessions(random: np.random.Generator, requests: Requests, reuse: Reuse, base: RequestList) -> RequestList:
    """Return sessions whose first requests arrive as stated, others an exponential think time after an answer.

    Args:
        random: of think times, prefixes and new tokens.
        requests: mean lengths, from which follow the new tokens of a turn.
        reuse: turns, think time, prefixes.
        base: arrivals at the rate of all requests, answers, and tokens of the prefixes.
    """
    if requests.load != float(Load.rate):
        got = f"{float(reuse.turns):g} turns per session without a rate"
        raise InputError("load of a simulation", got, "load=rate", "set request_rate, or give a trace with session_id")
    count, turns = base.size, round(float(reuse.turns))
    session, turn = np.divmod(np.arange(count), turns)
    mean_new_tokens = float(turn_growth(requests, reuse)[0])
    new_tokens = _lengths(random, mean_new_tokens, float(requests.length_spread), count)
    prefix_tokens = math.floor(float(requests.prefix_share) * float(requests.prompt_tokens))
    history = np.cumsum(new_tokens + base.answer) - new_tokens - base.answer
    prompt = prefix_tokens + history - history[session * turns] + new_tokens
    starts = turns * base.arrival[: session[-1] + 1]
    arrival = np.where(turn > 0, random.exponential(float(reuse.think_time), count), starts[session])
    groups = _groups(random, reuse, count)[session] if prefix_tokens else np.full(count, -1)
    return RequestList(arrival, prompt, base.answer, groups, np.full(count, prefix_tokens), session, turn)


def as_requests(request_list: RequestList, requests: Requests) -> Requests:
    """Return ``requests`` with the mean rate, the lengths and the spreads of a trace, and without a shared prefix.

    Requests that all arrive at once are offline.

    Args:
        request_list: the trace.
        requests: of a design, whose other leaves stay.
    """
    seconds = float(request_list.arrival[-1] - request_list.arrival[0])
    gaps = np.diff(request_list.arrival)
    mean = [float(column.mean()) for column in (request_list.prompt, request_list.answer)]
    spread = [min(float(column.std() / column.mean()), 1.0) for column in (request_list.prompt, request_list.answer)]
    return dataclasses.replace(
        requests,
        prompt_tokens=mean[0],
        output_tokens=mean[1],
        length_spread=spread[0],
        answer_spread=spread[1],
        prefix_share=0.0,
        load=float(Load.rate if seconds else Load.offline),
        request_rate=(request_list.size - 1.0) / seconds if seconds else None,
        arrival_variation=float(np.var(gaps) / np.mean(gaps) ** 2) if seconds else 1.0,
    )


def _gaps(random: np.random.Generator, variation: float, count: int) -> Floats:
    """Draw times between arrivals with mean 1; ``variation``: squared relative standard deviation."""
    if variation <= 0.0:
        return np.ones(count)
    gaps = random.gamma(1.0 / variation, variation, count)
    return gaps / gaps.mean()


def _lengths(random: np.random.Generator, mean: float, spread: float, count: int) -> Integers:
    """Draw lognormal lengths by mean and relative standard deviation ``spread``, in whole tokens, at least 1."""
    variance = math.log1p(spread * spread)
    factors = np.exp(random.normal(-0.5 * variance, math.sqrt(variance), count)) if spread else np.ones(count)
    return np.maximum(np.rint(mean / factors.mean() * factors), 1).astype(np.int64)


def read(path: str | Path) -> RequestList:
    """Return the requests of a trace, ordered by arrival.

    Args:
        path: CSV file with the columns ``COLUMNS``.

    Returns:
        Arrivals in seconds, and lengths in tokens.

    Raises:
        InputError: for a file, a column or a cell that cannot be used, with its line.
    """
    lines = csv.reader(io.StringIO(inputs.text(path, _ALLOWED, limit=inputs.MAX_TABLE_BYTES, unpack=True)))
    head = [name.strip() for name in next(lines, [])]
    for name in head:
        if name not in COLUMNS:
            raise unknown_name(f"{path}: line 1", name, COLUMNS, "columns")
    for name in (*COLUMNS[:3], *COLUMNS[3:5] * ("prefix_id" in head or "prefix_tokens" in head)):
        if head.count(name) != 1:
            got = "it twice" if name in head else f"columns {', '.join(head) or 'none'}"
            raise InputError(f"{path}: column {name}", got, _ALLOWED, "state it once in the first line")
    rows = [_row(str(path), line_number, head, cells) for line_number, cells in enumerate(lines, 2) if any(cells)]
    if not rows:
        raise InputError(str(path), "no requests", "a line per request", "add one")
    prefix, session = (_ids([row[index] for row in rows]) for index in (0, 1))
    arrival, prompt, answer, prefix_tokens = np.array([row[2:] for row in rows]).T.astype(np.float64)
    order = np.argsort(arrival, kind="stable")
    columns = [prompt, answer, prefix, prefix_tokens, *([session, 0.0 * prompt] if max(session) >= 0 else [])]
    return RequestList(arrival, *(np.array(column, np.int64) for column in columns)).subset(order)


def _ids(names: Sequence[Any]) -> list[int]:
    """Return the index of each name in the order of their first use, -1 for ""."""
    ids: dict[str, int] = {"": -1}
    return [ids.setdefault(name, len(ids) - 1) for name in names]


def _row(path: str, line_number: int, head: list[str], cells: list[str]) -> tuple[str, str, float, float, float, float]:
    """Return names of prefix and session, arrival, prompt, answer and prefix tokens of one line of a trace."""
    where = f"{path}: line {line_number}"
    if len(cells) != len(head):
        fix = "check its commas and quotes"
        raise InputError(where, f"{len(cells)} cells", f"{len(head)}, as in the first line", fix)
    cell_by_column = dict(zip(head, map(str.strip, cells), strict=True))
    name = cell_by_column.get("prefix_id", "")
    prompt = _number(where, cell_by_column, "prompt_tokens", 1.0, _MAX_TOKENS)
    prefix_tokens = _number(where, cell_by_column, "prefix_tokens", 0.0, prompt) if name else 0.0
    answer = _number(where, cell_by_column, "answer_tokens", 1.0, _MAX_TOKENS)
    arrival = _number(where, cell_by_column, "arrival_s", 0.0, _MAX_SECONDS)
    return name, cell_by_column.get("session_id", ""), arrival, prompt, answer, prefix_tokens


def _number(where: str, cells: dict[str, str], name: str, minimum: float, maximum: float) -> float:
    """Return the number in a column of a line, or raise InputError where it is not within its limits."""
    text, is_token_count = cells[name], name != "arrival_s"
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not minimum <= value <= maximum or (is_token_count and value != int(value)):
        allowed = f"a {'whole ' * is_token_count}number from {minimum:g} to {maximum:g}"
        raise InputError(f"{where}: {name}", repr(text), allowed, "correct the cell, or leave the line out")
    return value
