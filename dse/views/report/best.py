"""The best design of a table as a page that computes, beside the explorer."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import numpy as np

from dse.designs.leaves import known_leaves, replace
from dse.errors import InputError
from dse.sweep.grid import compose
from dse.sweep.results.rebuilding import indices_at, labels_at
from dse.sweep.results.summary import named_designs
from dse.views.live import Live, Named, sections
from dse.views.report.lines import Lines
from dse.views.report.table import DesignTable


def of(table: DesignTable, lines: Lines) -> Live:
    """The page of the best design by the first objective.

    Raises:
        InputError: for results without a valid specification.
    """
    if table.spec is None:
        raise InputError(
            "--live",
            "results without a valid specification",
            "results of dse run or dse search",
            "run the sweep again, or write one design: dse page",
        )
    row = _best(table)
    grid = compose.build(table.spec)
    real = {interval.path for interval in table.intervals}
    rows = table.rows[[row]]
    index = int(indices_at(table.results, rows, grid, real)[0])
    ((_, design, stack, chip, model, system),) = named_designs(grid, [index])
    axes = [axis for dimension in grid.dimensions for axis in dimension.axes if axis.key in real]
    design = replace(design, {axis.key: labels_at(table.results, rows, grid, axis)[0] for axis in axes})
    same = {
        column.name: column.texts[int(column.values[row])]
        for column in table.columns
        if column.kind == "axis" and column.path not in known_leaves()
    }
    return sections(table.study, design, Named(model, system or chip, stack, chip, *_line(lines, row), same))


def _best(table: DesignTable) -> int:
    """Row of the best of the designs that can run, or of all."""
    column, status = table.column(table.start["x"]), table.column("status")
    can_run = np.array([not text for text in status.texts])[status.values]
    values = column.values if column.better == "less" else -column.values
    return int(np.where(can_run | ~can_run.any(), values, np.inf).argmin())


def _line(lines: Lines, row: int) -> tuple[Sequence[str], dict[str, str]]:
    """Words of the command that evaluates a design, and its settings by name; without a line both are empty."""
    group = lines.groups[int(lines.group[row])] if lines.group is not None else None
    if group is None or group.why:
        return (), {}
    words, stated = list[str](), dict[str, str]()
    texts = [choice.texts[choice.codes[row]] for choice in lines.choices]
    said = iter(shlex.split(" ".join([group.names, *texts])))
    for word in said:
        if word == "--set":
            name, _, value = next(said).partition("=")
            stated[name] = value
        elif word == "-n":
            next(said)  # the page says devices and replicas itself
        else:
            words.append(word)
    return words, stated
