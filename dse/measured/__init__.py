"""Measured configurations as designs: read a table, complete open values of its rows, predict, compare.

``read_cases`` returns the configurations of a CSV file of any kind, ``predict_cases`` completes and evaluates them in
one batch, ``compare`` compares them with what was measured, ``profiles`` reads rows from files of tools. A bad row
raises nothing: it is skipped with a reason.
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
