"""Capabilities of a software stack that a mapping needs, for the infeasibility bit, tables of mappings and messages.

Comparisons are arithmetic: values may be Python numbers, NumPy arrays or traced scalars.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dse.types import Recompute

#: Options of a mapping that a capability of the same name limits.
LIMITED = ("zero_stage", "sequence_parallel", "overlap_dp", "overlap_tp", "cp", "virtual_stages", "dp_replicate")


def required_capabilities(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Return name of capability → amount that a mapping needs of it.

    Args:
        mapping: options and degrees by field.
    """
    recompute = mapping["recompute"]
    offloaded = mapping["offload_weights"] + mapping["offload_activations"] + mapping["offload_optimizer"]
    optional = {name: mapping[name] for name in ("schedule", "graph") if mapping.get(name) is not None}
    return (
        {name: mapping[name] for name in LIMITED}
        | optional
        | {
            # 1 at code 1, between 1 and 2 at code 3, 0 at codes 0 and 2, more than any stack has at those of experts.
            "selective_recompute": recompute * (2.0 - recompute) * (1.0 - 0.75 * (recompute - 1.0)),
            "offload": offloaded / 3.0,
        }
    )


def missing_capabilities(mapping: Mapping[str, Any], can: Mapping[str, Any]) -> dict[str, Any]:
    """Return name of capability → true where a mapping needs more of it than a stack has.

    Args:
        mapping: options and degrees of a mapping by field.
        can: :class:`dse.types.Capabilities` by field.

    >>> mapping = dict(zero_stage=1, sequence_parallel=1, overlap_dp=0, overlap_tp=1, cp=1, virtual_stages=4)
    >>> mapping |= dict(dp_replicate=1, recompute=1, offload_weights=0, offload_activations=0, offload_optimizer=0)
    >>> from dse.types import Capabilities
    >>> capabilities = vars(Capabilities(overlap_tp=0.0, zero_stage=1.0))
    >>> [name for name, is_missing in missing_capabilities(mapping, capabilities).items() if is_missing]
    ['overlap_tp']
    """
    is_missing = {name: amount > can[name] for name, amount in required_capabilities(mapping).items()}
    if mapping.get("experts") is not None:  # every stack has the levels of expert recompute
        is_missing["selective_recompute"] = is_missing["selective_recompute"] & (mapping["recompute"] < Recompute.norms)
    return is_missing
