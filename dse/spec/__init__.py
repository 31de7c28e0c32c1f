"""The documents a user writes: sweeps, searches and co-designs.

A document is sections of TOML, or the same as a dictionary. ``sweep`` reads those of a sweep, ``search`` adds
``[search]`` and continuous axes, ``codesign`` what a descent is told, ``pools`` the overlays of a fleet. ``axes`` has
the values of one axis, ``space`` the sections that define designs, ``document`` sections as pydantic models with
errors in four parts, ``expression`` and ``reading`` the language of constraints and objectives.

It knows leaves and metrics by name, unit and bounds, evaluates nothing, and returns values in SI units. Start at
``sweep.from_document``.
"""

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
