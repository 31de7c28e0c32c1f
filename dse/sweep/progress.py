"""Progress of a sweep, and a progress bar."""

from __future__ import annotations

import contextlib
import dataclasses
import html
import sys
import time
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


class _NotebookBars:
    """Progress bars below a cell of a notebook, which show after two seconds and are empty at the end."""

    #: Seconds before the first bar, and between two states of one.
    DELAY, PERIOD = 2.0, 0.2

    def __init__(self) -> None:
        self._start = self._updated = time.monotonic()
        self._handle: Any = None
        self._bars: list[str] = []

    def add_task(self, text: str, total: float = 1.0) -> int:
        """Return the number of a new bar."""
        self._bars.append(_bar_html(0.0, total, text))
        return len(self._bars) - 1

    def update(self, task: int, completed: float, total: float = 1.0, description: str = "") -> None:
        """Show the state of a bar."""
        self._bars[task] = _bar_html(completed, total, description)
        now = time.monotonic()
        if now - self._start < self.DELAY or now - self._updated < self.PERIOD:
            return
        self._updated = now
        self._show("".join(self._bars))

    def close(self) -> None:
        """Remove the bars."""
        if self._handle is not None:
            self._show("")

    def _show(self, text: str) -> None:
        from IPython.display import HTML, display

        if self._handle is None:
            self._handle = display(HTML(text), display_id=True)
        else:
            self._handle.update(HTML(text))


def _bar_html(completed: float, total: float, text: str) -> str:
    """Return a bar as HTML, with a text next to it."""
    return f'<div><progress value="{completed:g}" max="{total:g}"></progress> {html.escape(text)}</div>'


def is_notebook() -> bool:
    """Return True in a process that executes the cells of a notebook."""
    return "ipykernel" in sys.modules


@contextlib.contextmanager
def shown(
    progress: bool | Callable[..., None] | None,
    bar: Callable[[], contextlib.AbstractContextManager[Callable[..., None]]],
) -> Iterator[Callable[..., None] | None]:
    """Yield what is called with each state of a run: a function of the caller, that of a bar, or None.

    Args:
        progress: the function, whether to show a bar, or None for a bar in notebooks alone.
        bar: context that yields the function of a bar.
    """
    if callable(progress):
        yield progress
    elif progress or (progress is None and is_notebook()):
        with bar() as show:
            yield show
    else:
        yield None


@contextlib.contextmanager
def bar_on_standard_error() -> Iterator[Any]:
    """Yield progress bars of rich with share, time left and a text per task; only the text wraps.

    In a notebook they are below its cell.
    """
    if is_notebook():
        bars = _NotebookBars()
        try:
            yield bars
        finally:
            bars.close()
        return
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
    """Show a progress bar on standard error, or in a notebook, with rate, time left, feasible share and best value.

    Yields:
        The function for ``progress`` of :func:`dse.run`.
    """
    with bar_on_standard_error() as bar:
        tasks: list[Any] = []  # of a sweep that has finished before there is none

        def show(state: Progress) -> None:
            if not tasks:
                tasks.append(bar.add_task("", total=state.total))
            bar.update(tasks[0], total=state.total, completed=state.done, description=str(state))

        yield show
