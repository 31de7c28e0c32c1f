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
