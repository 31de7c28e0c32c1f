"""Scheduler of one data-parallel rank, event by event.

First come, first served, as in vLLM (V1) and SGLang: a step has a budget of tokens, of which each decoding sequence
takes one and prompts, in chunks, the rest; a waiting request is admitted where sequences, budget and cache blocks
allow it; where decoding lacks blocks, the last admitted request loses its own and is computed again later. Engines
that do not mix compute prompts first. Steps that only decode are taken together up to the next event.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dse.lab.simulator.cache import BlockCache, CacheHit
from dse.lab.simulator.limits import BLOCK, SchedulerLimits
from dse.lab.simulator.load import Floats, Integers, RequestList
from dse.lab.simulator.table import StepTable


class StepRecord(NamedTuple):
    """Steps with the same work, for a timeline."""

    start: float  # s
    seconds: float
    steps: int
    sequences: int  # that decode
    prompt: int  # tokens
    waiting: int  # requests
    running: int  # requests that are admitted
    blocks: int  # blocks


class RankResult(NamedTuple):
    """Requests of one rank with their times in seconds, and sums over its steps."""

    requests: RequestList
    admitted: Floats
    first: Floats  # first token
    finish: Floats
    preemptions: Integers
    hit: Integers  # prompt tokens found in the cache
    busy: float  # s with a step
    decoding: float  # decoding sequences times seconds
    block_seconds: float  # cache blocks times seconds
    most_used: int  # blocks
    blocks: int
    steps: int
    steps_with_prompts: int
    records: list[StepRecord]


class PlannedSteps(NamedTuple):
    """Planned steps with the same work."""

    first: float  # s of the first step
    slope: float  # s by which each further one is longer
    steps: int
    sequences: int  # that decode
    prompt: int  # tokens
    pieces: list[tuple[int, int]]  # requests whose prompts are computed, with their tokens

    def seconds(self, count: int) -> float:
        """Return the seconds of the first ``count`` steps."""
        return count * (self.first + 0.5 * self.slope * (count - 1))


class _Progress:
    """A request in the engine."""

    __slots__ = ("answer", "blocks", "epoch", "growth_steps", "prompt", "shared", "start", "tokens_done", "tokens_left")

    def __init__(self, prompt: int, answer: int) -> None:
        self.prompt, self.answer = prompt, answer  # tokens to compute before the next one, tokens to come
        self.tokens_left = self.tokens_done = self.blocks = self.epoch = self.start = 0
        self.shared = False  # True where it refers to its prefix
        self.growth_steps: NDArray[np.int64] | None = None  # decode steps that take a further block


class Scheduler:
    """Serves the requests of one rank by :meth:`run`.

    Args:
        limits: what a step may hold.
        table: seconds of a step.
        requests: in the order of their arrivals; of a closed loop ``arrival`` is the time after the end of another one.
        in_flight: requests of a closed loop; None where arrivals are those of the requests.
        keep: whether to keep records of steps.
    """

    def __init__(
        self,
        limits: SchedulerLimits,
        table: StepTable,
        requests: RequestList,
        in_flight: int | None = None,
        keep: bool = False,
    ) -> None:
        count = requests.size
        self.limits, self.table, self.requests, self.keep = limits, table, requests, keep
        self.prompt, self.answer = requests.prompt.tolist(), requests.answer.tolist()
        self.prefix, self.prefix_tokens = requests.prefix.tolist(), requests.prefix_tokens.tolist()
        self.arrival = requests.arrival.tolist()
        self.following, first = requests.following()
        if in_flight is not None:  # each of a closed loop is followed by the next that has not been sent
            first = list(range(min(in_flight, count)))
            self.following = {}
        self.closed, self.unsent = in_flight is not None, len(first)
        self.arrival_heap = [(self.arrival[i], i) for i in first]
        heapq.heapify(self.arrival_heap)
        self.admitted, self.first, self.finish = ([math.nan] * count for _ in range(3))
        self.preemptions, self.hit = [0] * count, [0] * count
        self.cache, self.keys = BlockCache(limits.blocks, limits.tiers), requests.contexts()
        self.loading_heap: list[tuple[float, int]] = []  # when the blocks of other tiers are there, request
        self.loaded = 0.0  # when the link is free
        self.progress: dict[int, _Progress] = {}  # of requests that have not ended
        self.waiting: deque[int] = deque()
        self.running: dict[int, None] = {}  # in the order of admission
        self.prefilling: list[int] = []
        self.end_heap: list[tuple[int, int, int]] = []  # decode step that ends it, request, epoch
        self.decoding, self.token_offset = 0, 0.0  # sequences; their cached tokens less those of the steps so far
        self.now, self.decode_step, self.steps, self.steps_with_prompts, self.ended = 0.0, 0, 0, 0, 0
        self.busy = self.sequence_time = self.block_time = 0.0
        self.horizon = 2 + math.ceil(max(self.answer) / limits.speed)
        self.first_step = 0  # decode step of the first entry of ``blocks_by_step``
        self.blocks_by_step = np.zeros(2 * self.horizon, np.int64)  # further blocks of each decode step
        self.records: list[StepRecord] = []

    def run(self) -> RankResult:
        """Serve all requests and return the result."""
        while not self.is_done:
            if (work := self.plan()) is None:
                self.now = self.next_event()
            elif work.steps:
                self.apply(work, work.steps, work.seconds(work.steps))
        return self.result()

    @property
    def is_done(self) -> bool:
        """True where all requests have ended."""
        return self.ended == len(self.arrival)

    @property
    def has_prompts(self) -> bool:
        """True where a request waits and there is a place for it, and room for its blocks."""
        self._arrive()
        if not self.waiting or len(self.running) >= self.limits.sequences:
            return False
        progress = self.progress[self.waiting[0]]
        return self._blocks_to_admit(progress) <= self.cache.room

    def plan(self, admits: bool = True) -> PlannedSteps | None:
        """Return the next steps, of count 0 after a preemption, or None where nothing is due.

        ``admits``: whether waiting requests are admitted.
        """
        self._arrive()
        if not self.running and not (self.waiting and admits):
            return None
        pieces = self._pieces(admits)
        self.cache.set_aside = 0
        if pieces:
            return self._prompts(pieces)
        return self._decode() if self.decoding else None

    def next_event(self) -> float:
        """Return the time in s at which the next request or block of another tier comes, infinity for none."""
        return min((heap[0][0] for heap in (self.loading_heap, self.arrival_heap) if heap), default=math.inf)

    def result(self) -> RankResult:
        """Return the requests with their times in s, and sums over steps."""
        return RankResult(
            requests=self.requests._replace(arrival=np.array(self.arrival)),
            admitted=np.array(self.admitted),
            first=np.array(self.first),
            finish=np.array(self.finish),
            preemptions=np.array(self.preemptions),
            hit=np.array(self.hit),
            busy=self.busy,
            decoding=self.sequence_time,
            block_seconds=self.block_time,
            most_used=self.cache.most,
            blocks=self.cache.blocks,
            steps=self.steps,
            steps_with_prompts=self.steps_with_prompts,
            records=self.records,
        )

    # Requests come, are admitted, and end

    def _arrive(self) -> None:
        """Move the requests that have come into the queue, and those that are loaded to the prompts."""
        while self.loading_heap and self.loading_heap[0][0] <= self.now:
            self.prefilling.append(heapq.heappop(self.loading_heap)[1])
        while self.arrival_heap and self.arrival_heap[0][0] <= self.now:
            _, i = heapq.heappop(self.arrival_heap)
            self.progress[i] = _Progress(self.prompt[i], self.answer[i])
            self.waiting.append(i)

    def _blocks_to_admit(self, progress: _Progress) -> int:
        """Return the blocks that a request takes at its admission, those of a prefix included."""
        return self.limits.blocks_of(progress.prompt + self.limits.reserved * progress.answer)

    def _admit(self, i: int) -> bool:
        """Give a waiting request its blocks and return whether there were enough; by its index."""
        progress = self.progress[i]
        blocks = self._blocks_to_admit(progress)
        shared_blocks = min(self.prefix_tokens[i], progress.prompt - 1) // BLOCK if self.prefix[i] >= 0 else 0
        cache_hit = None
        if self.keys:
            context_blocks = max((progress.prompt - 1) // BLOCK - shared_blocks, 0)
            context = self.keys[i], context_blocks
            cache_hit = self.cache.take_with_context(*context, blocks, self.prefix[i], shared_blocks)
        elif shared_blocks:
            cache_hit = self.cache.take_with_prefix(self.prefix[i], shared_blocks, blocks)
        if cache_hit is None and not (shared_blocks and self.running):  # alone it may evict even its own prefix
            cache_hit = CacheHit(0, 0, 0.0) if self.cache.take(blocks) else None
        if cache_hit is None:
            return False
        hit_blocks, referenced_blocks, seconds = cache_hit
        if seconds:
            self.loaded = max(self.now, self.loaded) + seconds
            heapq.heappush(self.loading_heap, (self.loaded, i))
        progress.shared, progress.blocks = referenced_blocks > 0, blocks - referenced_blocks
        progress.tokens_done, progress.tokens_left = hit_blocks * BLOCK, progress.prompt - hit_blocks * BLOCK
        self.running[i] = None
        if math.isnan(self.admitted[i]):
            self.admitted[i], self.hit[i] = self.now, progress.tokens_done
        return True

    def _remove(self, i: int, keep_context: bool = False) -> _Progress:
        """Take a request out of the engine, with its blocks unless they stay as its context; return its progress."""
        progress = self.progress[i]
        del self.running[i]
        n_grown = 0
        if progress.growth_steps is not None:
            n_grown = int(np.searchsorted(progress.growth_steps, self.decode_step))
            np.subtract.at(self.blocks_by_step, progress.growth_steps[n_grown:] - self.first_step, 1)
        if keep_context:
            self.cache.keep(self.keys[i], progress.blocks + n_grown)
        else:
            self.cache.release(progress.blocks + n_grown)
        if progress.shared:
            self.cache.leave(self.prefix[i])
        progress.growth_steps = None
        return progress

    def _stop_decoding(self, progress: _Progress) -> None:
        """Remove a request from the decoding sequences."""
        self.decoding -= 1
        self.token_offset -= progress.prompt - self.limits.speed * progress.start

    def _end_request(self, i: int) -> None:
        """End a request, by its index, and send the one that follows it."""
        self._remove(i, keep_context=bool(self.keys))
        del self.progress[i]
        self.finish[i] = self.now
        self.ended += 1
        following = self.unsent if self.closed else self.following.get(i, len(self.arrival))
        if following < len(self.arrival):
            self.unsent += 1
            self.arrival[following] += self.now
            heapq.heappush(self.arrival_heap, (self.arrival[following], following))

    def _preempt(self) -> None:
        """Put the last admitted request back at the head of the queue, with all its tokens to be computed."""
        i = next(reversed(self.running))
        progress = self._remove(i)
        if i in self.prefilling:
            self.prefilling.remove(i)
        elif any(i == request for _, request in self.loading_heap):
            self.loading_heap = [entry for entry in self.loading_heap if entry[1] != i]
        else:
            n_generated = min(int((self.decode_step - progress.start) * self.limits.speed), progress.answer - 1)
            self._stop_decoding(progress)
            progress.prompt, progress.answer = progress.prompt + 1 + n_generated, progress.answer - n_generated
        progress.epoch += 1
        self.preemptions[i] += 1
        self.waiting.appendleft(i)

    # Steps

    def _pieces(self, admits: bool) -> list[tuple[int, int]]:
        """Admit waiting requests that fit, and return (index of a request, tokens) of the prompts in the next step."""
        limits, pieces = self.limits, []
        budget = limits.chunk - int(self.decoding * limits.rows) * limits.mixed
        if limits.mixed:
            self._make_room()
        for i in self.prefilling:
            if budget <= 0:
                break
            pieces.append((i, min(self.progress[i].tokens_left, budget)))
            budget -= pieces[-1][1]
        if not admits or (self.steps % limits.admission_steps and self.running):
            return pieces
        while self.waiting and budget > 0 and len(self.running) < limits.sequences:
            i = self.waiting[0]
            if (limits.unsplit_prompts and budget < self.prompt[i] <= limits.chunk) or not self._admit(i):
                break
            self.waiting.popleft()
            if self.loading_heap and any(i == request for _, request in self.loading_heap):
                continue
            self.prefilling.append(i)
            pieces.append((i, min(self.progress[i].tokens_left, budget)))
            budget -= pieces[-1][1]
        return pieces

    def _make_room(self) -> None:
        """Preempt requests until the next decode step has its blocks, and set these aside."""
        while (n_blocks := int(self.blocks_by_step[self.decode_step - self.first_step])) > self.cache.room:
            self._preempt()
        self.cache.set_aside = n_blocks

    def _prompts(self, pieces: list[tuple[int, int]]) -> PlannedSteps:
        """Return one planned step with pieces of prompts."""
        prompt = sum(tokens for _, tokens in pieces)
        reach = sum(tokens * (self.progress[i].tokens_done + 0.5 * tokens) for i, tokens in pieces) / prompt
        sequences = self.decoding if self.limits.mixed else 0
        seconds = self.table.mixed(sequences, self._context(), prompt, reach)
        return PlannedSteps(seconds, 0.0, 1, sequences, prompt, pieces)

    def apply(self, work: PlannedSteps, count: int, seconds: float) -> None:
        """Do ``count`` steps of planned work, in ``seconds`` for all of them."""
        self.steps_with_prompts += bool(work.pieces)
        self._advance(seconds, count, work.sequences, work.prompt)
        for i, tokens in work.pieces:
            progress = self.progress[i]
            progress.tokens_done, progress.tokens_left = progress.tokens_done + tokens, progress.tokens_left - tokens
            if not progress.tokens_left:
                self.prefilling.remove(i)
                self._first_token(i, progress)

    def _first_token(self, i: int, progress: _Progress) -> None:
        """Give a computed prompt its first token, from which on its request decodes."""
        if math.isnan(self.first[i]):
            self.first[i] = self.now
        progress.answer -= 1
        if not progress.answer:
            self._end_request(i)
            return
        limits, progress.start = self.limits, self.decode_step
        steps = math.ceil(progress.answer / limits.speed)
        heapq.heappush(self.end_heap, (self.decode_step + steps, i, progress.epoch))
        self.decoding += 1
        self.token_offset += progress.prompt - limits.speed * progress.start
        base, n_blocks = limits.fixed + limits.per_token * progress.prompt, limits.blocks_of(progress.prompt)
        if limits.per_token:
            n_blocks = max(n_blocks, limits.blocks_of(progress.prompt + limits.reserved * (progress.answer + 1)))
            last = math.ceil((base + steps * limits.speed) / BLOCK)
            steps_to_block = (np.arange(n_blocks, last) * BLOCK - base) // limits.speed
            progress.growth_steps = self.decode_step + steps_to_block.astype(np.int64)
            np.add.at(self.blocks_by_step, progress.growth_steps - self.first_step, 1)

    def _decode(self) -> PlannedSteps:
        """Return steps without prompts up to the next event; where blocks lack, preempt a request and return none."""
        while self.progress.get(self.end_heap[0][1], _NO_REQUEST).epoch != self.end_heap[0][2]:
            heapq.heappop(self.end_heap)  # preempted since
        limits, count = self.limits, self.end_heap[0][0] - self.decode_step
        if self.waiting and (turn := self.steps % limits.admission_steps):
            count = min(count, limits.admission_steps - turn)
        context = self._context()
        if context < self.table.contexts[-1]:
            count = min(count, max(math.ceil((self.table.knot(context) - context) / limits.speed), 1))
        if count > (available_steps := self._steps_with_blocks(count)):
            if not available_steps:
                self._preempt()
                return PlannedSteps(0.0, 0.0, 0, 0, 0, [])
            count = available_steps
        first_seconds, slope = self.table.decode(self.decoding, context), 0.0
        if count > 1:
            last_seconds = self.table.decode(self.decoding, context + (count - 1) * limits.speed)
            slope = (last_seconds - first_seconds) / (count - 1)
        event_times = [self.loading_heap[0][0]] if self.loading_heap else []
        if self.arrival_heap and not self.waiting and len(self.running) < limits.sequences:
            event_times.append(self.arrival_heap[0][0])
        if event_times:
            count = min(count, _steps_until(min(event_times) - self.now, first_seconds, slope))
        return PlannedSteps(first_seconds, slope, count, self.decoding, 0, [])

    def _steps_with_blocks(self, count: int) -> int:
        """Return the count of decode steps, at most ``count``, that the cache has blocks for."""
        index = self.decode_step - self.first_step
        cumulative_blocks = self.blocks_by_step[index : index + count].cumsum()
        return int(np.searchsorted(cumulative_blocks, self.cache.room, side="right"))

    def _context(self) -> float:
        """Return the mean count of cached tokens of decoding sequences, 0 without any."""
        return self.token_offset / self.decoding + self.limits.speed * self.decode_step if self.decoding else 0.0

    def _advance(self, seconds: float, count: int, sequences: int, prompt: int) -> None:
        """Advance the time by steps with the same work, and end requests whose answers are complete."""
        if self.keep:
            requests = len(self.waiting), len(self.running)
            self.records.append(StepRecord(self.now, seconds, count, sequences, prompt, *requests, self.cache.occupied))
        self.now += seconds
        self.busy += seconds
        self.steps += count
        self.block_time += self.cache.occupied * seconds
        if not sequences:
            return
        self.sequence_time += sequences * seconds
        index = self.decode_step - self.first_step
        succeeded = self.cache.take(int(self.blocks_by_step[index : index + count].sum()))
        assert succeeded, "steps were counted by the blocks that they need"
        self.decode_step += count
        if self.decode_step - self.first_step >= self.horizon:
            self._drop_past_steps()
        while self.end_heap and self.end_heap[0][0] <= self.decode_step:
            _, i, epoch = heapq.heappop(self.end_heap)
            if (progress := self.progress.get(i, _NO_REQUEST)).epoch == epoch:
                self._stop_decoding(progress)
                self._end_request(i)

    def _drop_past_steps(self) -> None:
        """Forget the blocks of steps that are over."""
        past = self.decode_step - self.first_step
        self.blocks_by_step = np.concatenate((self.blocks_by_step[past:], np.zeros(past, np.int64)))
        self.first_step = self.decode_step


#: Of a request that has ended.
_NO_REQUEST = _Progress(0, 0)
_NO_REQUEST.epoch = -1


def _steps_until(seconds: float, first: float, slope: float) -> int:
    """Return the least count of steps, at least 1, that take ``seconds``: ``k (first + slope (k - 1) / 2)``.

    >>> _steps_until(10.0, 1.0, 0.0), _steps_until(10.0, 1.0, 1.0), _steps_until(10.1, 1.0, 1.0)
    (10, 4, 5)
    """
    linear = first - 0.5 * slope
    root = math.sqrt(max(linear * linear + 2.0 * slope * seconds, 0.0))
    return max(math.ceil(2.0 * seconds / (linear + root) - 1e-9), 1)
