"""Short names of axes, texts of their values, and shares among metrics: common to tables, figures and messages."""

from __future__ import annotations

from typing import Any

#: Leaf of the mapping → its letters, in the order of columns.
LETTERS = {
    "tp": "tp",
    "pp": "pp",
    "dp": "dp",
    "cp": "cp",
    "micro_batch": "mb",
    "virtual_stages": "v",
}

#: Axis → its heading, in the order of the columns; other axes keep their names.
SHORT = {
    **LETTERS,
    "schedule": "schedule",
    "recompute": "recompute",
    "recompute_share": "recompute share",
    "zero_stage": "zero",
    "sequence_parallel": "sp",
    "overlap_dp": "overlap dp",
    "overlap_tp": "overlap tp",
    "dp_replicate": "copies",
    "offload_weights": "offload w",
    "offload_activations": "offload a",
    "offload_optimizer": "offload o",
}

#: Metrics in per cent.
IN_PER_CENT = (
    "mfu",
    "mfu_causal",
    "hfu",
    "fits_probability",
    "goodput_fraction",
    "prefill_share",
    "availability",
    "share_in_time",
)


def label_text(name: str, value: Any) -> str:
    """Return the value of an axis as text, with the unit of its leaf for a number.

    Args:
        name: of the axis.
        value: number in SI units, truth value, or name of a choice.

    >>> label_text("tp", 8.0), label_text("memory.bandwidth", 3.35e12), label_text("recompute", "full")
    ('8', '3.35 TB/s', 'full')
    """
    from dse.designs import all_leaves, leaf_path
    from dse.io import setting

    if isinstance(value, bool | str):
        return setting(value)
    return setting(value, all_leaves()[leaf_path(name)]["units"])
