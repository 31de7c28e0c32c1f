"""Progress of a sweep, and a progress bar."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from dse.io import duration, percent, quantity

#: Minimum terminal width for a bar next to the text, in columns.
_WIDE = 72


def designs_per_second(evaluated: int, seconds: float) -> float:
    """Return the evaluation rate of a run in designs/s, 0 where it has evaluated nothing.

    The distinct designs that the run itself has evaluated, over its seconds from the division of the sweep into blocks
    to the selection of what is kept, without tracing and compiling (``Summary.seconds["run"]``). Progress, summary and
    documents have this rate and no other.

    Args:
        evaluated: designs, without those that an earlier run had finished.
        seconds: s.

    >>> designs_per_second(5_000, 2.0), designs_per_second(0, 0.0)
    (2500.0, 0.0)
    """
    return evaluated / seconds if evaluated and seconds > 0.0 else 0.0


@dataclasses.dataclass(frozen=True)
class Progress:
    """The state of a running sweep."""

    done: int  #: designs evaluated or found from an earlier run
    total: int
    seconds: float  #: time of this run since its division into blocks, without tracing and compiling, s
    feasible: int  #: feasible designs among those done
    best: float | None  #: best value of the first objective so far
    objective: str  #: text of the first objective
    resumed: int = 0  #: designs found from an earlier run
    units: str = "1"  #: units of the first objective, for display

    @property
    def rate(self) -> float:
        """Evaluation rate of this run, designs/s (:func:`designs_per_second`)."""
        return designs_per_second(self.done - self.resumed, self.seconds)

    @property
    def feasible_share(self) -> float:
        """Feasible designs / designs done."""
        return self.feasible / self.done if self.done else 0.0

    def __str__(self) -> str:
        best = best_so_far(self.best, self.objective, self.units)
        return f"{self.rate:,.0f} designs/s, {percent(self.feasible_share)} feasible, {best}"


class ProgressReport:
    """Reports the progress of a run to ``receiver``, if any; the last state at the end, with the seconds of the run."""

    def __init__(self, receiver: Callable[[Progress], None] | None) -> None:
        self._receiver = receiver
        self._last: Progress | None = None

    def __call__(self, state: Progress) -> None:
        """Report a state, or keep the last one until :meth:`close`."""
        if state.done == state.total:
            self._last = state
        elif self._receiver:
            self._receiver(state)

    def close(self, seconds: float) -> None:
        """Report the last state, at the ``seconds`` of the summary, so that both have the same rate."""
        if self._receiver and self._last:
            self._receiver(dataclasses.replace(self._last, seconds=seconds))


def best_so_far(best: float | None, objective: str, units: str) -> str:
    """Return the text of an objective's best value, given in SI units; None: no feasible design yet."""
    return "none feasible yet" if best is None else f"best {objective.replace('_', ' ')} {quantity(best, units)}"


@contextlib.contextmanager
def bar_on_standard_error() -> Iterator[Any]:
    """Yield progress bars of rich with share, time left and a text per task; only the text wraps."""
    from rich.progress import BarColumn, Progress as Bar, ProgressColumn, Task, TextColumn
    from rich.table import Column
    from rich.text import Text

    from dse.io.terminal import TerminalConsole, filtered_output

    class TimeLeft(ProgressColumn):
        """Column with the time left."""

        max_refresh = 0.5

        def render(self, task: Task) -> Text:
            return Text(time_left(task.finished, task.time_remaining, task.finished_time))

    share = TextColumn("{task.percentage:>3.0f} %", table_column=Column(no_wrap=True, min_width=5))
    time_column = TimeLeft(Column(no_wrap=True, min_width=12))
    state_text = TextColumn("{task.description}", table_column=Column(overflow="fold", min_width=20), markup=False)
    console = TerminalConsole(stderr=True)
    bar_columns = [BarColumn(bar_width=20)] if console.width >= _WIDE else []
    with (
        Bar(*bar_columns, share, time_column, state_text, console=console) as bar,
        filtered_output(),
    ):  # rich reads codes in prints
        yield bar


def time_left(finished: bool, remaining: float | None, elapsed: float | None) -> str:
    """Return a bar's text on time, from seconds: the time left, empty while unknown; at the end the time taken."""
    if finished:
        return f"in {duration(elapsed or 0.0)}"
    return "" if remaining is None else f"{duration(remaining)} left"


@contextlib.contextmanager
def progress_bar() -> Iterator[Callable[[Progress], None]]:
    """Show a progress bar on standard error with rate, time left, feasible share and best value.

    Yields:
        The function for ``progress`` of :func:`dse.run`.
    """
    with bar_on_standard_error() as bar:
        task = bar.add_task("")

        def show(state: Progress) -> None:
            bar.update(task, total=state.total, completed=state.done, description=str(state))

        yield show
