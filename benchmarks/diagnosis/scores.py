"""Whether a draw's fault is named, alone, and its seconds."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.diagnosis.faults import FAULTS, Draw, draw
from dse.lab.evidence.causes import Cause, explain
from dse.lab.evidence.traces import read_trace

#: Relative error of the seconds up to which they are right.
CLOSE = 0.15

#: Words of a cause's name by what a fault concerns.
_WORDS = {"matrix": "matrix", "attention": "attention", "elementwise": "element-wise"}


class Score(NamedTuple):
    """A draw and what was found."""

    draw: Draw
    named: tuple[str, ...]  #: of all causes that stand out
    is_named: bool  #: whether that is the fault, and nothing else; without a fault, nothing
    seconds: float  #: of the cause of the fault's kind
    step: float  #: s, measured

    @property
    def is_close(self) -> bool:
        """Whether the seconds are right."""
        return self.draw.fault == "none" or abs(self.seconds / self.draw.seconds - 1.0) <= CLOSE


def score(number: int, first: int = 0) -> Score:
    """The score of one of many draws, which take the faults in turn; ``first``: number of the first of each fault."""
    fault = FAULTS[number % len(FAULTS)]
    with tempfile.TemporaryDirectory(prefix="dse-") as folder:
        drawn = draw(fault, first + number // len(FAULTS), Path(folder))
        traces = [trace for path in drawn.files if (trace := read_trace(path)) is not None]
    found = explain(drawn.stated, traces)
    named = found.prominent_causes
    right = not named if fault == "none" else len(named) == 1 and _is_of(named[0], drawn)
    seconds = sum(one.seconds for one in found.causes if one.kind == fault)
    return Score(drawn, tuple(one.name for one in named), right, seconds, found.measured)


def _is_of(cause: Cause, drawn: Draw) -> bool:
    """Whether a cause is the fault: of its kind, and about the same link, rank or family."""
    if cause.kind != drawn.fault:
        return False
    if drawn.fault in ("link", "kernels"):
        return cause.name.startswith(_WORDS.get(drawn.about, drawn.about))
    return drawn.fault != "rank" or cause.name.split()[1] == drawn.about


def table(scores: Sequence[Score]) -> str:
    """Lines by fault: draws, named, seconds within the limit, median and largest error."""
    lines = [f"{'fault':12}{'draws':>7}{'named':>7}{f'within {CLOSE:.0%}':>12}{'median error':>14}{'largest':>9}"]
    for fault in (*FAULTS, "all"):
        own = [one for one in scores if fault in ("all", one.draw.fault)]
        errors = sorted(abs(one.seconds / one.draw.seconds - 1.0) for one in own if one.draw.fault != "none")
        named, close = sum(one.is_named for one in own), sum(one.is_close for one in own if one.draw.fault != "none")
        shown = f"{close:>5} of {len(errors):<4}{errors[len(errors) // 2]:>13.1%}{errors[-1]:>9.1%}" if errors else ""
        lines.append(f"{fault:12}{len(own):>7}{named:>7}{shown}")
    return "\n".join(lines)


def missed(one: Score) -> str:
    """What was found instead of a fault."""
    drawn, named = one.draw, ", ".join(one.named) or "nothing"
    found, cost, step = (f"{1e3 * seconds:.3g} ms" for seconds in (one.seconds, drawn.seconds, one.step))
    return f"{drawn.fault} {drawn.about}: named {named}, {found} of {cost} of a step of {step}; {drawn.described}"
