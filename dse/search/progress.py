"""How far a search is, and a bar that shows it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any


@dataclasses.dataclass(frozen=True)
class SearchProgress:
    """The state of a running method."""

    method: str
    share: float  #: of its budget
    rate: float  #: evaluations a second, all seeds together
    evaluations: int  #: of all seeds
    best: float | None  #: best value of the first objective so far, as it is written
    objective: str

    def __str__(self) -> str:
        best = "none feasible yet" if self.best is None else f"best {self.objective} {self.best:.6g}"
        return f"{self.method}: {self.evaluations:,} evaluations, {self.rate:,.0f}/s, {best}"


@contextlib.contextmanager
def progress_bar() -> Iterator[Callable[[SearchProgress], None]]:
    """A bar on standard error with rate, time left and the best so far; gives the callback."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    share, state_text = TextColumn("{task.percentage:>3.0f} %"), TextColumn("{task.description}")
    with Progress(BarColumn(), share, TimeRemainingColumn(), state_text, console=Console(stderr=True)) as bar:
        tasks: dict[str, Any] = {}

        def show(state: SearchProgress) -> None:
            if state.method not in tasks:
                tasks[state.method] = bar.add_task("", total=1.0)
            bar.update(tasks[state.method], completed=min(state.share, 1.0), description=str(state))

        yield show
