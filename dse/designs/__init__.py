"""Designs from names: catalogue, records, leaves by path, checks, range of calibration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dse.surface import attribute

if TYPE_CHECKING:
    from dse.designs.calibrated import accelerator_of, lookup_of, uncalibrated_quantities
    from dse.designs.composing import design
    from dse.designs.leaves import all_leaves, is_integer, leaf, leaf_path, leaf_value, leaves_of, replace, short_name
else:

    def __getattr__(name: str) -> Any:
        return attribute(__name__, name)


__all__ = [
    "accelerator_of",
    "all_leaves",
    "design",
    "is_integer",
    "leaf",
    "leaf_path",
    "leaf_value",
    "leaves_of",
    "lookup_of",
    "replace",
    "short_name",
    "uncalibrated_quantities",
]
