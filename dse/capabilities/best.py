"""The best designs of a sweep or a search as tables: axes that differ, what is common to all, reasons, figures."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dse.errors import InputError
from dse.io import quantity
from dse.reports import Column, Line, Table
from dse.views.figures import draw, missing_requirement
from dse.views.words import SHORT, label_text

if TYPE_CHECKING:
    import xarray as xr

    from dse.doors import Study
    from dse.sweep.results.labelled import Labelled

#: Exit status where nothing is feasible, where figures cannot be drawn, and of an interruption.
NOTHING_FEASIBLE, NO_FIGURES, INTERRUPTED = 1, 2, 130

#: Reasons of infeasibility that a short answer has.
_MAIN_REASONS = 3


def axis_columns(labels: Sequence[Mapping[str, Any]]) -> tuple[list[Column], str]:
    """Return the columns of axes by name, and a line of the values that all designs have in common.

    Axes with equal values are in CSV and data frames alone; of a single design all are shown.

    Args:
        labels: of each design, name of an axis → value.
    """
    names = list(labels[0])
    endings = Counter(name.rpartition(".")[2] for name in names)
    columns, common_values = [], []
    for name in [*(name for name in names if name not in SHORT), *(name for name in SHORT if name in names)]:
        ending = name.rpartition(".")[2]
        heading = SHORT.get(name, ending if endings[ending] == 1 else name)
        texts = {label_text(name, design[name]) for design in labels}
        is_common = len(labels) > 1 and len(texts) == 1
        if is_common:
            common_values.append(f"{heading} {texts.pop()}")
        columns.append(Column(heading, name, functools.partial(label_text, name), hidden=is_common))
    return columns, f"same for all: {', '.join(common_values)}" if common_values else ""


def in_per_cent(places: int) -> Callable[[float], str]:
    """Return the format of a share in per cent, without a unit.

    Args:
        places: decimal places.
    """
    return lambda value: f"{100 * value:.{places}f}"


def objective_column(text: str, study: Study, heading: str = "", key: str = "") -> Column:
    """Return the column of an objective in its units.

    Args:
        text: the objective.
        study: that of its metrics.
        heading: of the column, by default the text.
        key: of the values, by default the text.
    """
    from dse.spec.expression import written_units

    return Column(heading or text, key or text, functools.partial(quantity, units=written_units(text, study)))


def folded(
    labels: Sequence[Mapping[str, Any]], values: Sequence[float], folds: bool = True
) -> tuple[list[int], list[Line]]:
    """Return the positions of the rows to show of designs, and a line on each near-tie that a row stands for.

    Args:
        labels: of each design, name of an axis → value, the best first.
        values: of the objective, of each design.
        folds: False to show all designs.
    """
    from dse.views.near_ties import fold_near_ties

    if not folds:
        return list(range(len(labels))), []
    rows = fold_near_ties(labels, values)
    notes = [
        (rank, row.note(SHORT.get(row.axis, row.axis), functools.partial(label_text, row.axis)))
        for rank, row in enumerate(rows, start=1)
    ]
    return [row.first for row in rows], [Line(f"as good as row {rank}: {note}") for rank, note in notes if note]


def reason_sections(reasons: Mapping[str, int], study: Study, has_lines: bool = True) -> list[Line | Table]:
    """Return a line for each of the main reasons of infeasibility, and the table of all as a detail.

    Args:
        reasons: reason → number of designs.
        study: that of the reasons.
        has_lines: False for the detail alone.
    """
    rows = [
        {"designs": count, "reason": name, "meaning": study.reason_meanings[name]}
        for name, count in sorted(reasons.items(), key=lambda item: -item[1])
    ]
    if not rows:
        return []
    lines = [Line(f"  {row['designs']:,}: {row['meaning']}") for row in rows[:_MAIN_REASONS] if has_lines]
    columns = [
        Column("designs", "designs", "{:,}".format),
        Column("reason of infeasibility (a design may have several)", "meaning", left=True, prose=True),
        Column("reason", "reason", hidden=True),
    ]
    return [*lines, Table("reasons", columns, rows, "designs that cannot run, by reason", show="reasons")]


def loader(labelled: Labelled | None, results: Path | None) -> Callable[[], xr.Dataset]:
    """Return the function that returns labelled results as a dataset, those of an earlier run from their file.

    Args:
        labelled: of this run, None where an earlier one has left them.
        results: file.
    """

    def load() -> xr.Dataset:
        from dse.sweep.results.files import open_results, to_xarray

        if labelled is not None:
            return to_xarray(labelled)
        assert results is not None, "results of an earlier run were read from a file"
        with open_results(results) as dataset:
            return dataset.load()

    return load


def draw_figures(results: Path, force: bool) -> tuple[list[Path], list[str], int]:
    """Draw the figures of results; what hinders it is a note, since the results are there already.

    Args:
        results: file.
        force: replace files that dse has not written.

    Returns:
        Paths, notes, and the exit status.
    """
    if missing := missing_requirement():
        return [], [f"no {missing.where}: {missing.got}; {missing.fix}"], 0
    try:
        return draw(results, force), [], 0
    except (InputError, OSError) as error:
        return [], [f"no figures: {error}"], NO_FIGURES
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        return [], [f"no figures: {error}"], NO_FIGURES
