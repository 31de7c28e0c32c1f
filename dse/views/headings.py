"""Short names of the degrees of a mapping, common to tables, figures and messages."""

from __future__ import annotations

#: Leaf of the mapping → its letters, in the order of columns.
LETTERS = {
    "tp": "tp", "pp": "pp", "dp": "dp", "cp": "cp", "micro_batch": "mb", "virtual_stages": "v",
}  # fmt: skip
