"""Short names of the degrees of a mapping, senses and shares of metrics: common to tables, figures and messages."""

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

#: Metrics to maximise, by prefix, suffix or substring of their names.
MORE_IS_BETTER = (
    "tokens_per_",
    "per_second",
    "mfu",
    "hfu",
    "goodput",
    "share_in_time",
    "availability",
    "fits_probability",
    "concurrency_limit",
    "time_between_failures",
)

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
