"""Designs from names: catalogue, records, leaves by path, checks, range of calibration.

It answers what design a workload, a system, a stack and some settings make (:func:`design`), what a name of a leaf
means and which values it may have (:func:`leaf_path`, :func:`leaf_value`), and whether a design lies within the rows
that its stack was fitted to (:func:`uncalibrated_quantities`).

It knows the catalogue (:mod:`dse.designs.catalog`), which records a design may lack (``records.toml``) and what stated
values contradict each other (``checks.py``); it evaluates nothing.

Start with ``composing.py``, which puts the parts together, then ``leaves.py`` and ``records.py``.
"""

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
