"""Measured configurations as designs: read a table, complete open values of its rows, predict.

``read_cases`` returns the configurations of a CSV file of any kind, ``predict_cases`` completes and evaluates them in
one batch. A bad row raises nothing: it is skipped with a reason.
"""

from dse.measured.completion import Candidates, complete
from dse.measured.kinds import predict_cases, read_cases
from dse.measured.prediction import Prediction, evaluate_many
from dse.measured.table import Case, Meaning, Measurement, Row, Skip, read_table

__all__ = [
    "Candidates", "Case", "Meaning", "Measurement", "Prediction", "Row", "Skip", "complete", "evaluate_many",
    "predict_cases", "read_cases", "read_table",
]  # fmt: skip
