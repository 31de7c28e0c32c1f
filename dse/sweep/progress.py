"""How far a sweep is, and a bar that shows it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any


@dataclasses.dataclass(frozen=True)
class Progress:
    """The state of a running sweep."""

    done: int  #: designs evaluated or found finished
    total: int
    seconds: float  #: of this run, without tracing and compiling
    feasible: int  #: feasible designs among those done
    best: float | None  #: best value of the first objective so far
    objective: str  #: text of the first objective
    resumed: int = 0  #: designs found finished by an earlier run

    @property
    def rate(self) -> float:
        """Designs a second of this run."""
        return (self.done - self.resumed) / self.seconds if self.seconds > 0 else 0.0

    @property
    def feasible_share(self) -> float:
        """Feasible designs over designs done."""
        return self.feasible / self.done if self.done else 0.0

    def __str__(self) -> str:
        best = best_so_far(self.best, self.objective)
        return f"{self.rate:,.0f} designs/s, {self.feasible_share:.1%} feasible, {best}"


def best_so_far(best: float | None, objective: str) -> str:
    """The best value of an objective in words; None where nothing feasible was met."""
    return "none feasible yet" if best is None else f"best {objective} {best:.6g}"


@contextlib.contextmanager
def bar_on_standard_error() -> Iterator[Any]:
    """A bar of rich with share, time left and a text for every task."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    share, state_text = TextColumn("{task.percentage:>3.0f} %"), TextColumn("{task.description}")
    with Bar(BarColumn(), share, TimeRemainingColumn(), state_text, console=Console(stderr=True)) as bar:
        yield bar


@contextlib.contextmanager
def progress_bar() -> Iterator[Callable[[Progress], None]]:
    """A bar on standard error with rate, time left, feasible share and the best so far; gives the callback."""
    with bar_on_standard_error() as bar:
        task = bar.add_task("")

        def show(state: Progress) -> None:
            bar.update(task, total=state.total, completed=state.done, description=str(state))

        yield show
