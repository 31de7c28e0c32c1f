"""How far a sweep is, and a bar that shows it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from dse.io.quantities import duration, percent, quantity

#: Minimum columns of a terminal for a bar next to the words.
_WIDE = 72


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
    units: str = "1"  #: units of the first objective, as they are written

    @property
    def rate(self) -> float:
        """Designs a second of this run."""
        return (self.done - self.resumed) / self.seconds if self.seconds > 0 else 0.0

    @property
    def feasible_share(self) -> float:
        """Feasible designs over designs done."""
        return self.feasible / self.done if self.done else 0.0

    def __str__(self) -> str:
        best = best_so_far(self.best, self.objective, self.units)
        return f"{self.rate:,.0f} designs/s, {percent(self.feasible_share)} feasible, {best}"


def best_so_far(best: float | None, objective: str, units: str) -> str:
    """The best value of an objective in words; None where nothing feasible was met."""
    return "none feasible yet" if best is None else f"best {objective.replace('_', ' ')} {quantity(best, units)}"


@contextlib.contextmanager
def bar_on_standard_error() -> Iterator[Any]:
    """A bar of rich with share, time left and a text for every task; only the text is ever broken into lines."""
    from rich.console import Console
    from rich.progress import BarColumn, ProgressColumn, Task, TextColumn
    from rich.progress import Progress as Bar
    from rich.table import Column
    from rich.text import Text

    class TimeLeft(ProgressColumn):
        """The time to wait, in words."""

        max_refresh = 0.5

        def render(self, task: Task) -> Text:
            return Text(time_left(task.finished, task.time_remaining, task.finished_time))

    share = TextColumn("{task.percentage:>3.0f} %", table_column=Column(no_wrap=True, min_width=5))
    left = TimeLeft(Column(no_wrap=True, min_width=12))
    state_text = TextColumn("{task.description}", table_column=Column(overflow="fold", min_width=20))
    console = Console(stderr=True)
    drawn = [BarColumn(bar_width=20)] if console.width >= _WIDE else []
    with Bar(*drawn, share, left, state_text, console=console) as bar:
        yield bar


def time_left(finished: bool, remaining: float | None, taken: float | None) -> str:
    """What a bar says of time: how long there is to wait, at the end how long it took."""
    if finished:
        return f"in {duration(taken or 0.0)}"
    return "" if remaining is None else f"{duration(remaining)} left"


@contextlib.contextmanager
def progress_bar() -> Iterator[Callable[[Progress], None]]:
    """A bar on standard error with rate, time left, feasible share and the best so far.

    Yields:
        What :func:`dse.run` takes as ``progress``.
    """
    with bar_on_standard_error() as bar:
        task = bar.add_task("")

        def show(state: Progress) -> None:
            bar.update(task, total=state.total, completed=state.done, description=str(state))

        yield show
