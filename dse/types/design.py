"""One point of the design space."""

from __future__ import annotations

from dse.types.display import record_html, record_text
from dse.types.fields import record
from dse.types.machine import System
from dse.types.software import Mapping, Software
from dse.types.workload import Workload


@record
class Design:
    """One point of the design space: workload x system x software x mapping."""

    _repr_html_, __repr__ = record_html, record_text

    workload: Workload
    system: System
    software: Software
    mapping: Mapping
