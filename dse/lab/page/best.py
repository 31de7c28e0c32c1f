"""Where a model begins beside results: at their best design, or at another that computes theirs too."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dse.designs import all_leaves, leaf, leaves_of, replace
from dse.designs.records import OF_MONEY
from dse.errors import InputError
from dse.lab.page.lines import Lines, words_and_settings
from dse.lab.page.model import CatalogNames, Start, with_money
from dse.lab.page.table import DesignTable
from dse.sweep.grid import compose
from dse.sweep.results.rebuilding import indices_at, labels_at
from dse.sweep.results.summary import named_designs

#: Catalogue names that columns of results may hold.
_NAMES = ("workload", "system", "accelerator", "software")


def start(table: DesignTable, lines: Lines) -> Start:
    """Return the start of a model at the best design by the first objective.

    Args:
        table: designs of the results.
        lines: their command lines.

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
        if column.kind == "axis" and column.path not in all_leaves()
    }
    return Start(
        table.study, design, CatalogNames(model, system or chip, stack, chip, *_command_line(lines, row), same)
    )


def start_with_results(table: DesignTable, lines: Lines, page_start: Start) -> Start:
    """Return the start at a stated design of a page that also computes the designs of a table.

    Args:
        table: designs of the results.
        lines: their command lines.
        page_start: the stated design.

    Raises:
        InputError: for results of another study or of other records, and without a valid specification.
    """
    best = start(table, lines)
    designs = (with_money(candidate.study.complete(candidate.design)) for candidate in (page_start, best))
    page_paths, result_paths = (
        {path for path in leaves_of(candidate_design) if leaf(candidate_design, path) is not None}
        for candidate_design in designs
    )
    money = tuple(f"{record}." for record in OF_MONEY)
    if (
        page_start.study is not best.study
        or result_paths - page_paths
        or any(not path.startswith(money) for path in page_paths - result_paths)
    ):
        raise InputError(
            "-w, -s",
            f"{page_start.names.title}, where the results are of {best.names.title}",
            "a design with the records of the results",
            "dse page RESULTS.nc --live, which begins at their best design",
        )
    paths = {name: table.column(name).path for name in best.names.same}
    same = {
        name: getattr(page_start.names, paths[name]) if paths[name] in _NAMES else text
        for name, text in best.names.same.items()
    }
    return page_start._replace(names=page_start.names._replace(same=same), base=best.design)


def _best(table: DesignTable) -> int:
    """Return the index of the row of the best of the designs that can run, or of all where none can."""
    column, status = table.column(table.start["x"]), table.column("status")
    can_run = np.array([not text for text in status.texts])[status.values]
    values = column.values if column.better == "less" else -column.values
    return int(np.where(can_run | ~can_run.any(), values, np.inf).argmin())


def _command_line(lines: Lines, row: int) -> tuple[Sequence[str], dict[str, str]]:
    """Return the words of the command that evaluates a design, and its settings, name → text; empty without a line."""
    group = lines.groups[int(lines.group[row])] if lines.group is not None else None
    if group is None or group.why:
        return (), {}
    words, settings = words_and_settings(" ".join([group.names, *(c.texts[c.codes[row]] for c in lines.choices)]))
    settings.pop("n_devices", None)  # the page says devices and replicas itself
    return words, settings
