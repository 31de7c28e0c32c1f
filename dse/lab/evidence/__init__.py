"""A measured step against the predicted one: the causes of the gap, and the changes that would help most.

Knows traces kernel by kernel (``traces``), the operator or message of the ledger that each kernel is (``matching``),
what a rank does with its step (``ranks``) and what the step takes less without a part of it (``state``). Start at
``diagnosis.diagnose`` (total and parts), ``causes.explain`` (causes in seconds, found by ``finding``) and
``changes.advise``.
"""

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
