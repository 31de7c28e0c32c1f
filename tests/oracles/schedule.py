"""Reference pipeline scheduler: the exact makespan of one schedule, event by event (NumPy, one design).

The closed forms of ``dse.model.parallel.pipeline`` are tested against it; it is not on any hot path.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Task(NamedTuple):
    """One chunk of work of a stage: a forward or a backward of one micro-batch."""

    stage: int
    chunk: int
    micro_batch: int
    forward: bool


class Event(NamedTuple):
    """A task with its start and end in seconds."""

    task: Task
    start: float
    end: float


def stage_order(stage: int, stages: int, micro_batches: int, chunks: int) -> list[Task]:
    """Order in which a stage runs its tasks: 1F1B, or interleaved 1F1B when ``chunks > 1``.

    Megatron-LM's order (Narayanan et al. 2021, figure 4): warm-up forwards, then one forward and one
    backward in turn, then the remaining backwards. Interleaving takes micro-batches ``stages`` at a time.
    """
    total = micro_batches * chunks
    warm_up = stages - stage - 1 if chunks == 1 else 2 * (stages - stage - 1) + (chunks - 1) * stages
    warm_up = min(warm_up, total)

    def task(position: int, forward: bool) -> Task:
        group, within = divmod(position, stages * chunks)
        chunk = within // stages
        return Task(
            stage, chunk if forward else chunks - 1 - chunk, group * stages + within % stages, forward
        )

    def plain(position: int, forward: bool) -> Task:
        return Task(stage, 0, position, forward)

    make = plain if chunks == 1 else task
    order = [make(i, True) for i in range(warm_up)]
    for i in range(total - warm_up):
        order += [make(warm_up + i, True), make(i, False)]
    return order + [make(i, False) for i in range(total - warm_up, total)]


def _needs(task: Task, stages: int, chunks: int) -> Task | None:
    """The task whose output ``task`` waits for, on another stage (or the last stage's own forward)."""
    step = -1 if task.forward else 1
    stage, chunk = task.stage + step, task.chunk
    if 0 <= stage < stages:
        return task._replace(stage=stage)
    chunk += step
    if 0 <= chunk < chunks:
        return task._replace(stage=stage % stages, chunk=chunk)
    return None if task.forward else task._replace(forward=True)


def simulate(
    forward: np.ndarray, backward: np.ndarray, micro_batches: int, send: float = 0.0
) -> list[Event]:
    """Run a schedule.

    Args:
        forward: seconds of one micro-batch's forward, shape ``[stages, chunks]``.
        backward: the same of its backward.
        micro_batches: micro-batches of a step; a multiple of the stages when ``chunks > 1``.
        send: seconds from the end of a task until its output is on the next stage.

    Returns:
        Every task with its times, in order of their end. Raises ValueError when the schedule deadlocks.
    """
    stages, chunks = forward.shape
    queues = [stage_order(s, stages, micro_batches, chunks) for s in range(stages)]
    done: dict[Task, float] = {}
    free = [0.0] * stages
    events: list[Event] = []
    while any(queues):
        progressed = False
        for stage, queue in enumerate(queues):
            while queue:
                task = queue[0]
                needed = _needs(task, stages, chunks)
                if needed is not None and needed not in done:
                    break
                arrival = 0.0 if needed is None else done[needed] + (send if needed.stage != stage else 0.0)
                start = max(free[stage], arrival)
                length = (forward if task.forward else backward)[stage, task.chunk]
                free[stage] = done[task] = start + float(length)
                events.append(Event(task, start, free[stage]))
                queue.pop(0)
                progressed = True
        if not progressed:
            raise ValueError("the schedule deadlocks: a stage waits for work that is never sent")
    return sorted(events, key=lambda e: e.end)


def makespan(forward: np.ndarray, backward: np.ndarray, micro_batches: int, send: float = 0.0) -> float:
    """Seconds from the first forward to the last backward; shapes as in :func:`simulate`."""
    return simulate(forward, backward, micro_batches, send)[-1].end


def in_flight(events: list[Event], stage: int, layers: Sequence[float] | None = None) -> float:
    """Most chunks whose activations a stage holds at once; with ``layers`` of its chunks, most layers."""
    held = most = 0.0
    for event in sorted((e for e in events if e.task.stage == stage), key=lambda e: (e.start, e.end)):
        size = 1.0 if layers is None else layers[event.task.chunk]
        held += size if event.task.forward else -size
        most = max(most, held)
    return most
