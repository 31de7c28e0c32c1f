"""How far a search is, and a bar that shows it."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from dse.io import counted
from dse.spec import Objective
from dse.sweep.progress import bar_on_standard_error, best_so_far


class BestValue(NamedTuple):
    """The best value of an objective so far, with its sign as the specification names it."""

    objective: str
    value: float | None  #: None where nothing can run yet
    units: str = "1"  #: as they are written

    @classmethod
    def of(cls, objective: Objective, value: float) -> BestValue:
        """Return the best value of an objective from the least that is minimised, infinite where nothing can run."""
        expression = objective.expression
        written = objective.sign * value if math.isfinite(value) else None
        return cls(expression.text, written, expression.display_units)


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
    others: tuple[BestValue, ...] = ()  #: and of the other objectives
    front_size: int = 0  #: designs on the front of several objectives

    def __str__(self) -> str:
        best_values = (BestValue(self.objective, self.best, self.units), *self.others)
        best = ", ".join(
            dict.fromkeys(
                best_so_far(best_value.value, best_value.objective, best_value.units) for best_value in best_values
            )
        )
        front = f"{self.front_size:,} on the front, " if self.front_size else ""
        return f"{self.method}: {counted(self.evaluations, 'evaluation')}, {self.rate:,.0f} designs/s, {front}{best}"


@contextlib.contextmanager
def progress_bar() -> Iterator[Callable[[SearchProgress], None]]:
    """Show a bar on standard error with rate, time left and best so far, and yield the callback that moves it."""
    with bar_on_standard_error() as bar:
        tasks: dict[str, Any] = {}

        def show(state: SearchProgress) -> None:
            if state.method not in tasks:
                tasks[state.method] = bar.add_task("", total=1.0)
            bar.update(tasks[state.method], completed=min(state.share, 1.0), description=str(state))

        yield show
