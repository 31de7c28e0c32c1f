"""A simulation: requests dealt to the ranks of a design, each of which serves its own.

Ranks whose tokens meet in the experts step together (:func:`run_together`): a step of each is as long as that of the
slowest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dse.doors.serving import coupled_ranks
from dse.equations import ScalarFunction
from dse.errors import InputError
from dse.lab.simulator.limits import SchedulerLimits, scheduler_limits
from dse.lab.simulator.load import Floats, Integers, RequestList, draw_requests
from dse.lab.simulator.scheduler import PlannedSteps, RankResult, Scheduler
from dse.lab.simulator.table import step_table
from dse.model.serving.work import ranks_of_experts
from dse.types import Design, Load, Requests, choice_name

#: Loads that can be simulated.
_LOADS = (Load.concurrency, Load.offline, Load.rate)

#: Shares of drawn requests that are left out of statistics: before the engine is full, and after the last arrivals.
_START, _END = 0.1, 0.05


class Simulation(NamedTuple):
    """Requests of all ranks with their times, and the sums of the ranks."""

    ranks: list[RankResult]
    limits: SchedulerLimits
    request_indices: list[Integers]  # of the requests of each rank, by arrival in the whole
    span: tuple[float, float] | None  # s, of the arrivals that statistics count; None: all of them
    is_open: bool = False  # whether requests arrive whatever is served

    def column(self, name: str) -> Floats:
        """Return a value of all requests [request]: of a result or a request by name, ``rank``, or ``request_time``."""
        request_values = np.zeros(sum(map(len, self.request_indices)))
        if name == "request_time":
            return request_values + self.limits.request_time
        for rank_index, (rank, indices) in enumerate(zip(self.ranks, self.request_indices, strict=True)):
            values = rank_index if name == "rank" else getattr(rank.requests, name, None)
            request_values[indices] = getattr(rank, name) if values is None else values
        return request_values


def simulate(
    design: Design, requests: RequestList | None = None, count: int = 10_000, seed: int = 0, keep: bool = False
) -> Simulation:
    """Serve requests with ``design`` and return them with their times.

    Args:
        design: with requests, serving options and engine (:func:`~dse.designs.records.with_serving_defaults`).
        requests: of a trace; None: ``count`` requests as the design states them.
        count: drawn requests.
        seed: of lengths, arrivals and the choice of a rank.
        keep: whether to keep records of steps, for a timeline.

    Returns:
        The requests with their times in seconds. The same seed gives the same result.

    Raises:
        InputError: for a load without a simulation, and requests that do not fit into the cache.
    """
    design_requests, ranks = design.workload.requests, max(int(design.mapping.dp), 1)
    assert design_requests is not None, "complete the design before"
    is_trace = requests is not None
    is_closed = not is_trace and bool(design_requests.load == float(Load.concurrency))
    if not is_trace and Load(int(design_requests.load)) not in _LOADS:
        got, allowed = f"load={choice_name(Load(int(design_requests.load)))}", ", ".join(map(choice_name, _LOADS))
        raise InputError("load of a simulation", got, allowed, "set load=concurrency, or give a trace")
    engine = design.software.engine
    assert engine is not None, "complete the design before"
    request_list = requests
    if request_list is None:
        request_list = draw_requests(design_requests, count, seed, float(engine.request_time), design.workload.reuse)
    in_flight = _in_flight(design_requests, ranks) if is_closed else [None] * ranks
    indices_by_rank = _request_indices(request_list, len(in_flight), seed, is_closed)
    limits = scheduler_limits(design, request_list)
    sequences = min(
        limits.sequences, limits.blocks, request_list.size, max((n for n in in_flight if n), default=1 << 30)
    )
    table = step_table(design, max(sequences, 1), limits.chunk, int(np.max(request_list.prompt + request_list.answer)))
    schedulers = []
    for indices, n_in_flight in zip(indices_by_rank, in_flight, strict=True):
        rank_requests = request_list.subset(indices)
        if n_in_flight:
            rank_requests = _in_steady_state(rank_requests, n_in_flight, seed)
        schedulers.append(Scheduler(limits, table, rank_requests, n_in_flight, keep))
    coupled, expert_share = map(float, _coupling(design)[0])
    hold = HeldPrompts(limits.prompt_timeout, limits.prompt_batching)
    n_meeting = round(float(ranks_of_experts(design)) if hold.timeout else coupled)
    if n_meeting > 1:
        meetings = (schedulers[first : first + n_meeting] for first in range(0, len(schedulers), n_meeting))
        results = [result for ranks_meeting in meetings for result in run_together(ranks_meeting, expert_share, hold)]
    else:
        results = [scheduler.run() for scheduler in schedulers]
    counts_all = is_trace or design_requests.load == float(Load.offline)
    span = None if counts_all else _span(results, max(n or 0 for n in in_flight))
    return Simulation(results, limits, indices_by_rank, span, is_open=not is_closed)


def _in_flight(requests: Requests, ranks: int) -> list[int | None]:
    """Return the count of requests in flight of each rank that has any."""
    total = max(round(float(requests.concurrency)), 1)
    per_rank, remainder = divmod(total, ranks)
    return [n for n in (per_rank + (rank < remainder) for rank in range(ranks)) if n]


def _request_indices(requests: RequestList, ranks: int, seed: int, in_turn: bool) -> list[Integers]:
    """Return the indices of the requests of each rank that has any, dealt in turn or by chance."""
    order = np.arange(requests.size)
    rank = order % ranks if in_turn or ranks == 1 else np.random.default_rng([seed, 1]).integers(ranks, size=order.size)
    if requests.session.size:  # where the context of their last turn is
        rank = np.where(requests.session < 0, rank, rank[np.maximum(requests.session, 0)])
    return [indices for rank_index in range(ranks) if len(indices := order[rank == rank_index])]


def _in_steady_state(requests: RequestList, n_in_flight: int, seed: int) -> RequestList:
    """Return requests of which the first ones are in flight at time 0, with a uniform rest of their answers."""
    share = np.random.default_rng([seed, 2]).random(requests.size)
    answer, arrival = requests.answer.copy(), requests.arrival.copy()
    answer[:n_in_flight], arrival[:n_in_flight] = np.ceil(share[:n_in_flight] * answer[:n_in_flight]), 0.0
    return requests._replace(answer=answer, arrival=arrival)


def _span(results: list[RankResult], n_in_flight: int) -> tuple[float, float]:
    """Return the seconds (start, end) between which arrivals count, of all ranks."""
    spans = []
    for result in results:
        count = result.requests.size
        first_index = min(max(int(_START * count), n_in_flight), count // 2)
        last_index = max(count - 1 - max(int(_END * count), n_in_flight), first_index)
        arrivals = np.sort(result.requests.arrival)
        spans.append((arrivals[first_index], arrivals[last_index]))
    return max(start for start, _ in spans), min(end for _, end in spans)


class HeldPrompts:
    """Prompts that are held back until all ranks have some (TensorRT-LLM, ``PyExecutor._balance_adp_requests``).

    Ranks take prompts in the same steps: once each has one, and ``batching`` steps later; or ``timeout`` steps after
    the first of them has one; or at once where a rank has nothing to decode meanwhile.
    """

    def __init__(self, timeout: int, batching: int = 0) -> None:
        self.timeout, self.batching = timeout, batching
        self._waited = self._batched = 0  # steps

    def steps(self, ranks: Sequence[Scheduler]) -> int:
        """Return the count of decode steps at most for which prompts are held back now, 0 where ranks take them."""
        if not self.timeout:
            return 0
        active = [rank for rank in ranks if not rank.is_done]
        have = [rank.has_prompts for rank in active]
        if not any(have) or not all(rank.decoding for rank in active):
            return self._release()
        left = self.batching - self._batched if all(have) else self.timeout - self._waited
        return left if left > 0 else self._release()

    def wait(self, count: int, ranks: Sequence[Scheduler]) -> None:
        """Count decode steps during which prompts were held back."""
        if all(rank.has_prompts for rank in ranks if not rank.is_done):
            self._batched += count
        else:
            self._waited += count

    def _release(self) -> int:
        """Start again with the next prompt, and return no step."""
        self._waited = self._batched = 0
        return 0


def run_together(ranks: Sequence[Scheduler], expert_share: float, hold: HeldPrompts | None = None) -> list[RankResult]:
    """Serve the requests of ranks that step together.

    A step takes ``(1 - s) max + s mean`` of the ranks' own steps with a share ``s`` of work in the experts, which all
    ranks do; of ranks without work it is nothing but waiting.

    Args:
        ranks: each with its requests.
        expert_share: share of a step's work in the experts.
        hold: which prompts wait for those of other ranks, none by default.

    Returns:
        Their results, in their order.
    """
    while not all(rank.is_done for rank in ranks):
        held = hold.steps(ranks) if hold is not None else 0
        due = [(rank, work) for rank in ranks if not rank.is_done and (work := _next_work(rank, not held)) is not None]
        if due:
            count = _step(due, len(ranks), expert_share, held or max(work.steps for _, work in due))
            if hold is not None and held:
                hold.wait(count, ranks)
            now = max(rank.now for rank, _ in due)
        else:
            now = min(rank.next_event() for rank in ranks if not rank.is_done)
        for rank in ranks:
            rank.now = now
    return [rank.result() for rank in ranks]


def _next_work(rank: Scheduler, admits: bool) -> PlannedSteps | None:
    """Return the next planned steps of a rank, after preemptions, None where nothing is due."""
    while (work := rank.plan(admits)) is not None and not work.steps:
        pass
    return work


def _step(due: Sequence[tuple[Scheduler, PlannedSteps]], ranks: int, expert_share: float, most: int) -> int:
    """Apply at most ``most`` steps that all ranks with work do at once, up to an event of any; return their count."""
    works = [work for _, work in due]
    count = min(most, *(work.steps for work in works))
    step_seconds = [work.seconds(count) for work in works]
    decode_seconds = min(step_seconds) if any(work.pieces for work in works) else 0.0
    slowest, idle = max(step_seconds), ranks - len(step_seconds)
    waiting = idle if decode_seconds else 0
    mean = (math.fsum(step_seconds) + waiting * decode_seconds) / (len(step_seconds) + waiting)
    seconds = (1.0 - expert_share) * slowest + expert_share * mean
    for rank, work in due:
        rank.apply(work, count, seconds)
    return count


#: Ranks of a design that meet in the experts, and the share of experts in a prompt.
_coupling = ScalarFunction(lambda design: (coupled_ranks(design), None), "coupled ranks")
