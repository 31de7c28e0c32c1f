"""Where a model begins beside results: at their best design, or at another that computes theirs too."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import numpy as np

from dse.designs.leaves import known_leaves, leaf, leaves_of, replace
from dse.designs.records import OF_MONEY
from dse.errors import InputError
from dse.lab.page.lines import Lines
from dse.lab.page.model import Named, Start, with_money
from dse.lab.page.table import DesignTable
from dse.sweep.grid import compose
from dse.sweep.results.rebuilding import indices_at, labels_at
from dse.sweep.results.summary import named_designs

#: Catalogue names that columns of results may hold.
_NAMES = ("workload", "system", "accelerator", "software")


def start(table: DesignTable, lines: Lines) -> Start:
    """The best design by the first objective.

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
    return Start(table.study, design, Named(model, system or chip, stack, chip, *_line(lines, row), same))


def beside(table: DesignTable, lines: Lines, asked: Start) -> Start:
    """A stated design with which the page computes those of a table too, whose catalogue names are its own.

    Raises:
        InputError: for results of another study or of other records, and without a valid specification.
    """
    best = start(table, lines)
    designs = (with_money(each.study.complete(each.design)) for each in (asked, best))
    ours, theirs = ({path for path in leaves_of(one) if leaf(one, path) is not None} for one in designs)
    money = tuple(f"{record}." for record in OF_MONEY)
    if asked.study is not best.study or theirs - ours or any(not path.startswith(money) for path in ours - theirs):
        raise InputError(
            "-w, -s",
            f"{asked.names.title}, where the results are of {best.names.title}",
            "a design with the records of the results",
            "dse page RESULTS.nc --live, which begins at their best design",
        )
    paths = {name: table.column(name).path for name in best.names.same}
    same = {
        name: getattr(asked.names, paths[name]) if paths[name] in _NAMES else text
        for name, text in best.names.same.items()
    }
    return asked._replace(names=asked.names._replace(same=same), base=best.design)


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
