"""Measured tables against the model: how far predictions are from measurements, and why a row is left out.

A row becomes a case, a case a design or arguments of a formula, and that a prediction, an error and a line of a table.
The room knows the kinds of tables (training steps, serving, kernels, energy, bills), their columns and figures
(``kinds.toml``, ``columns.toml``), what sources mean and leave out (``rules.toml``), and how open values of a row are
completed. A bad row raises nothing: it is skipped with a reason.

Start at ``kinds.read_cases`` (rows → cases), ``kinds.predict_cases`` (cases → predictions, one batch a kind) and
``comparison.compare`` (errors). A kind is a ``prediction.TableKind`` and a table of ``kinds.toml``. ``profiles`` reads
rows from files of tools, ``kernels`` has the formulas of single kernels, ``uncertainty`` the spread of predictions,
``decisions`` what follows from both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dse.surface import attribute

if TYPE_CHECKING:
    from dse.measured import profiles
    from dse.measured.columns import OUTPUT_COLUMNS, SERVING_COLUMNS, STEP_COLUMNS, TRACE_PARTS
    from dse.measured.comparison import Comparison, compare
    from dse.measured.completion import Candidates as Candidates, complete
    from dse.measured.energy import RelativeStudy as RelativeStudy
    from dse.measured.filling import cells_of as cells_of
    from dse.measured.kinds import KINDS, kind_of, predict_cases, read_cases
    from dse.measured.names import Lookup, accelerator_of
    from dse.measured.prediction import Prediction, evaluate_many
    from dse.measured.table import Case, Meaning as Meaning, Measurement as Measurement, Row as Row, Skip, read_table
else:

    def __getattr__(name: str) -> Any:
        return attribute(__name__, name)


__all__ = [
    "KINDS",
    "OUTPUT_COLUMNS",
    "SERVING_COLUMNS",
    "STEP_COLUMNS",
    "TRACE_PARTS",
    "Case",
    "Comparison",
    "Lookup",
    "Prediction",
    "Skip",
    "accelerator_of",
    "compare",
    "complete",
    "evaluate_many",
    "kind_of",
    "predict_cases",
    "profiles",
    "read_cases",
    "read_table",
]  # fmt: skip
