"""Views of designs and results: explanations, figures, the explorer, traces, differences, lists of names.

The room answers how one design spends its time, memory and energy (``explanation.py``), how results look (``plot``),
what the devices of a step do one after another (``trace``), and where two results differ (``difference``). It knows
designs, doors and results of sweeps, and evaluates nothing but single designs.

What is shown of training and of serving, such as headings, notes and short answers, is declared in ``studies``; all
other modules ask it. Start with ``explanation.py``, whose values ``sections.py`` turns into a report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dse.surface import attribute

if TYPE_CHECKING:
    from dse.views.difference import Difference, compare
    from dse.views.explanation import Explanation, explain
else:

    def __getattr__(name: str) -> Any:
        return attribute(__name__, name)


__all__ = ["Difference", "Explanation", "compare", "explain"]
