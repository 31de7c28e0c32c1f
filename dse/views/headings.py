"""Short names of the degrees of a mapping, and shares among metrics: common to tables, figures and messages."""

from __future__ import annotations

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
    **LETTERS, "schedule": "schedule",
    "recompute": "recompute", "recompute_share": "recompute share", "zero_stage": "zero", "sequence_parallel": "sp",
    "overlap_dp": "overlap dp", "overlap_tp": "overlap tp", "dp_replicate": "copies",
    "offload_weights": "offload w", "offload_activations": "offload a", "offload_optimizer": "offload o",
}  # fmt: skip

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
