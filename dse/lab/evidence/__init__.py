"""A measured step against the predicted one: traces matched to the ledger, causes of the gap, changes that help."""

from dse.lab.evidence.causes import GapExplanation, as_dict, explain, step_parts
from dse.lab.evidence.changes import Advice, advise, settings_of
from dse.lab.evidence.diagnosis import Diagnosis, StepPart as StepPart, diagnose
from dse.lab.evidence.figures import gap_figure, write_timelines
from dse.lab.evidence.traces import is_trace, read_trace

__all__ = [
    "Advice",
    "Diagnosis",
    "GapExplanation",
    "advise",
    "as_dict",
    "diagnose",
    "explain",
    "gap_figure",
    "is_trace",
    "read_trace",
    "settings_of",
    "step_parts",
    "write_timelines",
]
