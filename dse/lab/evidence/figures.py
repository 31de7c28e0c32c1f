"""From a predicted to a measured step: its causes one after the other, and both timelines side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dse.io import chrome_trace
from dse.io.chrome_trace import MICROSECONDS
from dse.lab.evidence.causes import GapExplanation, as_dict
from dse.lab.evidence.ranks import RankParts
from dse.views.plot.style import FRONT, INK, PAGE, PALE, freeze_layout, new_figure, set_title, style
from dse.views.trace import DeviceStep

if TYPE_CHECKING:
    from matplotlib.figure import Figure


#: Colours of the steps, of causes that stand out, and of what predictions err by.
_STEP, _PROMINENT, _OTHER = INK, FRONT, PALE


def gap_figure(explanation: GapExplanation, title: str = "") -> Figure:
    """Draw the causes of a gap as a waterfall in ms, from the predicted to the measured step.

    Args:
        explanation: the causes.
        title: of the figure.

    Returns:
        The figure.
    """
    rows = [("predicted", 0.0, explanation.predicted, _STEP)]
    offset = explanation.predicted
    for cause in explanation.causes:
        rows.append(
            (cause.name, offset, cause.seconds, _PROMINENT if cause in explanation.prominent_causes else _OTHER)
        )
        offset += cause.seconds
    rows.append(("measured", 0.0, explanation.measured, _STEP))
    with style():
        figure = new_figure(width=PAGE, height=2.0)
        axes = figure.subplots()
        for row_index, (_, start, length, colour) in enumerate(rows):
            axes.barh(row_index, 1e3 * length, left=1e3 * start, color=colour, height=0.62)
            end, sign = 1e3 * max(start, start + length), "" if colour == _STEP else "+" if length >= 0.0 else "−"
            axes.annotate(
                f"{sign}{1e3 * abs(length):.4g} ms",
                (end, row_index),
                xytext=(3, 0),
                va="center",
                textcoords="offset points",
            )
        axes.set_yticks(range(len(rows)), [name for name, *_ in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("Time (ms)")
        axes.margins(x=0.14)
        axes.set_xlim(left=0.0)
        set_title(figure, title)
        return freeze_layout(figure, 0.55 + 0.24 * len(rows))


def write_timelines(explanation: GapExplanation, path: str | Path, force: bool = False) -> None:
    """Write both timelines of each rank as a trace for ui.perfetto.dev, one below the other.

    Raises InputError where ``path`` must not be written.

    Args:
        explanation: gap between a trace and its design, with both timelines.
        path: JSON file to write.
        force: True to replace a file of another program.
    """
    chrome_trace.write(_events(explanation), {"diagnosis": as_dict(explanation)}, path, force)


def _events(explanation: GapExplanation) -> Iterator[dict[str, Any]]:
    """Yield the events of a Chrome trace: of each rank its two processes, then measured and predicted kernels."""
    for rank_index, (rank, expected) in enumerate(zip(explanation.ranks, explanation.expected, strict=True)):
        name = f"rank {rank.trace.rank}"
        for process, text in ((2 * rank_index, f"{name}, measured"), (2 * rank_index + 1, f"{name}, predicted")):
            yield {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": text}}
            yield {"ph": "M", "name": "process_sort_index", "pid": process, "args": {"sort_index": process}}
        yield from _measured_events(rank, 2 * rank_index)
        yield from _predicted_events(expected, 2 * rank_index + 1)


def _measured_events(rank: RankParts, process: int) -> Iterator[dict[str, Any]]:
    """Yield the kernels of a trace as events under the names of the operators that they were matched to."""
    trace, matched = rank.trace, rank.matched
    for kind, index, stream, *times in zip(
        trace.kind_index, matched.class_index, trace.stream, trace.start, trace.end, strict=True
    ):
        kernel_name = trace.kinds[kind].name
        if index >= 0:
            kernel_class = matched.classes[index]
            yield _event(kernel_class.name, kernel_class.family, process, stream, times, {"kernel": kernel_name})
        else:
            yield _event(kernel_name, "not matched", process, stream, times, {"matched": False})


def _predicted_events(expected: DeviceStep, process: int) -> Iterator[dict[str, Any]]:
    """Yield the kernels of a predicted step as events of a process."""
    for kernel in expected.kernels:
        args = {"pass": kernel.pass_name, "micro_batch": kernel.micro_batch}
        yield _event(kernel.label, kernel.family, process, kernel.stream, (kernel.start, kernel.end), args)


def _event(
    name: str, family: str, process: int, stream: int, times: Sequence[float], args: dict[str, Any]
) -> dict[str, Any]:
    """Return a kernel as a complete event of a Chrome trace, in µs; ``times``: start and end in s."""
    start, end = map(float, times)
    times_us = round(start * MICROSECONDS, 3), round((end - start) * MICROSECONDS, 3)
    return chrome_trace.span(name, family, (process, int(stream)), times_us, args)
