"""How far a search is, and a bar that shows it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from dse.sweep.progress import bar_on_standard_error, best_so_far


@dataclasses.dataclass(frozen=True)
class SearchProgress:
    """The state of a running method."""

    method: str
    share: float  #: of its budget
    rate: float  #: evaluations a second, all seeds together
    evaluations: int  #: of all seeds
    best: float | None  #: best value of the first objective so far, as it is written
    objective: str
    units: str = "1"  #: units of the objective, as they are written

    def __str__(self) -> str:
        best = best_so_far(self.best, self.objective, self.units)
        return f"{self.method}: {self.evaluations:,} evaluations, {self.rate:,.0f} designs/s, {best}"


@contextlib.contextmanager
def progress_bar() -> Iterator[Callable[[SearchProgress], None]]:
    """A bar on standard error with rate, time left and the best so far; gives the callback."""
    with bar_on_standard_error() as bar:
        tasks: dict[str, Any] = {}

        def show(state: SearchProgress) -> None:
            if state.method not in tasks:
                tasks[state.method] = bar.add_task("", total=1.0)
            bar.update(tasks[state.method], completed=min(state.share, 1.0), description=str(state))

        yield show
