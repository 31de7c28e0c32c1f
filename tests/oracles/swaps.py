"""Swaps event by event: copies into a ring of buffers beside compute, and an update of sub-groups over drives."""

from __future__ import annotations

from collections.abc import Sequence


def step_seconds(passes: Sequence[tuple[float, float]], layers: int, depth: int, repeats: int = 6) -> float:
    """Seconds of one round of passes in the steady state.

    A copy starts when the one before it ends and a buffer is free, compute when its copy and the compute before it end.

    Args:
        passes: seconds of a layer's copy and of its compute, pass by pass.
        layers: of every pass.
        depth: copies ahead of the compute that is running; 0: each copy waits for the compute before it.
        repeats: rounds, of which the last is timed.
    """
    jobs = [job for _ in range(repeats) for job in passes for _ in range(layers)]
    copied = 0.0
    computed: list[float] = []
    for index, (copy, compute) in enumerate(jobs):
        buffer_free = computed[index - 1 - depth] if index - 1 - depth >= 0 else 0.0
        copied = max(copied, buffer_free) + copy
        computed.append(max(copied, computed[-1] if computed else 0.0) + compute)
    per_round = layers * len(passes)
    return computed[-1] - computed[-1 - per_round]


def update_seconds(
    group: tuple[float, float, float], groups: int, ahead: bool, behind: bool, in_parallel: bool
) -> float:
    """Seconds of an update: each group is read, updated and written, in DeepSpeed's order of waits.

    With ``ahead`` the next read starts when this group is there, with ``behind`` a write is waited for before the next
    one. Drives that do not read and write in parallel serve the reader first.

    Args:
        group: seconds to read, update and write one group.
        groups: how many.
        ahead: read the next group during the update of this one.
        behind: write a group during the update of the next one.
        in_parallel: drives read and write at once.
    """
    read, update, write = group
    now, drive, writing, prefetched = 0.0, 0.0, 0.0, None  # drive: when it is free; writing: work left on it
    pending_write = 0.0

    def advance(to: float) -> None:
        """Let the pending write use the drive until ``to``."""
        nonlocal pending_write, drive
        if in_parallel:
            return
        used = min(max(to - drive, 0.0), pending_write)
        pending_write -= used
        drive = max(drive, to) if pending_write > 0.0 else drive + used

    for index in range(groups):
        if prefetched is None:
            if in_parallel:
                now += read
            else:
                advance(now)
                drive = max(drive, now) + read
                now = drive
        else:
            now = max(now, prefetched)
        prefetched = None
        if ahead and index + 1 < groups:
            if in_parallel:
                prefetched = now + read
            else:
                advance(now)
                drive = max(drive, now) + read
                prefetched = drive
        now += update
        if behind:  # wait for the write before this one, then leave this one to the drive
            if in_parallel:
                now = max(now, writing)
                writing = now + write
            else:
                advance(now)
                if pending_write > 0.0:
                    now = max(drive, now) + pending_write
                    drive, pending_write = now, 0.0
                pending_write = write
                drive = max(drive, now)
        elif in_parallel:
            now += write
        else:
            now = max(drive, now) + write
            drive = now
    return max(now, writing) if in_parallel else max(now, drive + pending_write if pending_write else now)
