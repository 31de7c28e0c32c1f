"""Views of designs and results: explanations, figures, the explorer, traces, differences, lists of names.

**Answers** where the time, memory and money of a design go and what it depends on (``explanation.py``), what a results
file shows (``plot/``), what one step does event by event (``trace/``), and what differs between two results
(``difference/``).

**Knows** what is shown of training and of serving, such as headings, notes and short answers (``studies/``, which all
other modules ask), words and short names of axes (``words.py``), sections of reports (``sections.py``), and near-ties
of tables (``near_ties.py``). It evaluates nothing but single designs, and writes no command and no document.

**Start** with ``explanation.py``: plain numbers of one design, which ``sections.py`` turns into tables and lines.
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
