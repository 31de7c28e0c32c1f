"""The documents a user writes: sweeps, searches and co-designs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dse.surface import attribute

if TYPE_CHECKING:
    from dse.spec.axes import Axis
    from dse.spec.expression import Expression
    from dse.spec.search import SearchSpec
    from dse.spec.sweep import Objective, SweepSpec
else:

    def __getattr__(name: str) -> Any:
        return attribute(__name__, name)


__all__ = ["Axis", "Expression", "Objective", "SearchSpec", "SweepSpec"]
