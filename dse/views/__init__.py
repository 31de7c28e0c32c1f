"""Views of designs and results: explanations, figures, the explorer, traces, differences, lists of names."""

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
