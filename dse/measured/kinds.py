"""Kinds of measured tables, and how any of them is read, completed and predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dse.doors import Study
from dse.errors import InputError
from dse.measured import chiplets, energy, kernels, serving, steps
from dse.measured.columns import WIDE_COLUMNS
from dse.measured.filling import fill_rows
from dse.measured.names import Lookup
from dse.measured.prediction import Prediction, TableKind
from dse.measured.table import Case, Skip, in_batches, raise_skip, read_table

#: Name → kind; the first one whose columns match reads a table, training steps where none do.
KINDS = {kind.name: kind for kind in (kernels.KIND, energy.KIND, serving.KIND, chiplets.KIND, steps.KIND)}


def kind_of(columns: Sequence[str]) -> TableKind:
    """Return the kind of a table by its columns.

    Args:
        columns: of its header.

    Returns:
        One of :data:`KINDS`.

    >>> kind_of(["model", "gpu", "n_gpus", "iteration_s_measured"]).name
    'steps'
    """
    return next((kind for kind in KINDS.values() if kind is not steps.KIND and kind.matches(columns)), steps.KIND)


def read_cases(path: str | Path, measured: bool = True, cells: Mapping[str, str] | None = None) -> list[Case]:
    """Read the configurations of a table of any kind, in order.

    Rows of one configuration: :func:`dse.measured.table.group_rows`.

    Args:
        path: CSV file, gzipped or not.
        measured: a table of steps must have measured columns.
        cells: column → text of cells that rows leave empty (:func:`dse.measured.filling.fill_rows`).

    Returns:
        One case per configuration, with its rows and measurements.

    Raises:
        InputError: for a file that cannot be read, for one without required measured columns, and for ``cells`` that
            fill none.

    >>> cases = read_cases("tests/published/narayanan_2021.csv")
    >>> len(cases), cases[0].measurements[0].meaning.metric
    (16, 'step_time')
    """
    columns, rows = read_table(path)
    kind = kind_of(columns)
    if measured and kind is steps.KIND and not set(columns) & {*WIDE_COLUMNS, "metric"}:
        raise InputError(
            f"{path}: columns",
            ", ".join(columns),
            "…_measured columns, or metric, value and unit",
            f"call the measured column {next(iter(WIDE_COLUMNS))}, say (dse validate --columns); "
            "dse predict needs none",
        )
    return kind.cases(fill_rows(rows, cells or {}, kind.name))


def predict_cases(cases: Sequence[Case], lookup: Lookup | None = None, study: Study | None = None) -> list[Prediction]:
    """Predict every configuration, in order; one that cannot be predicted has the reason of a skip.

    Args:
        cases: configurations of :func:`read_cases`.
        lookup: names of rows in the catalogue; by default those of its files.
        study: study of the metrics; by default that of the cases' kind.

    Returns:
        The chosen design of each and its metrics in SI units, or the reason of a skip.

    >>> prediction = predict_cases(read_cases("tests/published/narayanan_2021.csv")[:1])[0]
    >>> prediction.stack, prediction.design.mapping.tp
    ('megatron-2021', 1.0)
    """
    lookup = lookup or Lookup()

    def outcomes(
        kind_name: str, configurations: list[tuple[Case, Any]]
    ) -> Sequence[Prediction | dict[str, float] | Skip]:
        """Return what a kind predicts of its configurations; skips as they are."""
        if not kind_name:
            return [skip for _, skip in configurations]
        return KINDS[kind_name].predict(configurations, study or KINDS[kind_name].study)

    configurations = [(case, _configuration(case, lookup)) for case in cases]
    results = in_batches(configurations, lambda pair: "" if isinstance(pair[1], Skip) else pair[0].kind, outcomes)
    return [_prediction(case, result) for case, result in zip(cases, results, strict=True)]


def _configuration(case: Case, lookup: Lookup) -> Any:
    """Return what its kind's ``complete`` makes of a case, or the reason of a skip."""
    try:
        return raise_skip(KINDS[case.kind].complete(case, lookup))
    except InputError as error:
        return Skip("not in the catalogue", str(error))
    except ValueError as error:
        return Skip("no usable number", str(error))
    except Skip as skip:
        return skip


def _prediction(case: Case, outcome: Prediction | dict[str, float] | Skip) -> Prediction:
    """Return what a kind predicts of a case as a prediction."""
    if isinstance(outcome, Prediction):
        return outcome
    return Prediction(case, skip=outcome) if isinstance(outcome, Skip) else Prediction(case, metrics=outcome)
