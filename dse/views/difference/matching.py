"""Matching of the designs of two sides by their labels."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from dse.designs import all_leaves
from dse.types import choice_name
from dse.views.difference.side import Side

if TYPE_CHECKING:
    import pandas as pd


@dataclasses.dataclass(frozen=True)
class MatchedDesigns:
    """Rows of two sides that are the same designs."""

    first: np.ndarray  #: rows of the first side, in the order of the matched rows of the second
    second: np.ndarray
    only: tuple[np.ndarray, np.ndarray]
    unmatched: tuple[int, int]


def match(sides: tuple[Side, Side]) -> MatchedDesigns:
    """Return the rows of two sides that are the same design, matched by their labels, and the others.

    A label absent on one side has the common value of its designs there. A label with one value on each side, as a
    changed bandwidth, is a difference of the specifications and does not take part. Nor does a label that follows from
    others on both sides, as the batch from the workload.
    """
    import pandas as pd

    names = list(dict.fromkeys([*sides[0].keys, *sides[1].keys]))
    columns = [{name: _label_column(side, name, other) for name in names} for side, other in (sides, sides[::-1])]
    common = [name for name in names if _is_distinguishing([column_by_name[name] for column_by_name in columns])]
    tables = [
        pd.DataFrame({n: column_by_name[n] for n in common} | {"row": np.arange(side.count)}).iloc[side.rows]
        for column_by_name, side in zip(columns, sides, strict=True)
    ]
    for name in common:
        if tables[0][name].dtype.kind != tables[1][name].dtype.kind:
            tables = [table.assign(**{name: table[name].astype(str)}) for table in tables]
    if not common:
        common = ["row"]
    ambiguous = [table.duplicated(common, keep=False).to_numpy() for table in tables]
    return _join(
        [table[~is_ambiguous] for table, is_ambiguous in zip(tables, ambiguous, strict=True)],
        common,
        (int(ambiguous[0].sum()), int(ambiguous[1].sum())),
    )


def _is_distinguishing(columns: list[np.ndarray | None]) -> bool:
    """Return True if a label is on both sides (none None) and has several values on one of them."""
    present = [column for column in columns if column is not None]
    return len(present) == len(columns) and not all((column == column[:1]).all() for column in present)


def _join(tables: list[pd.DataFrame], common: list[str], unmatched: tuple[int, int]) -> MatchedDesigns:
    """Join tables of labels with a column ``row``: rows in both, in one only, with the counts ``unmatched``."""
    import pandas as pd

    first, second = (table[common].assign(**{f"row_{i}": table["row"]}) for i, table in enumerate(tables))
    merged = pd.merge(first, second, on=common, how="outer", indicator=True)
    rows = {
        kind: merged[merged["_merge"] == kind].sort_values("row_1" if kind == "right_only" else "row_0")
        for kind in ("both", "left_only", "right_only")
    }
    return MatchedDesigns(
        first=rows["both"]["row_0"].to_numpy(int),
        second=rows["both"]["row_1"].to_numpy(int),
        only=(rows["left_only"]["row_0"].to_numpy(int), rows["right_only"]["row_1"].to_numpy(int)),
        unmatched=unmatched,
    )


def _label_column(side: Side, name: str, other: Side) -> np.ndarray | None:
    """Return a label of every row; of a leaf that only the other side varies, its fixed value; None where unknown."""
    if name in side.keys or name in side.derived:
        values = side.column(name)
        return values.astype(float) if values.dtype.kind in "fiub" else values.astype(str)
    path = other.results[name].attrs.get("path", "")
    value = side.json_attribute("base_design").get(path)
    if not isinstance(value, int | float) or path not in all_leaves():
        return None
    enum = all_leaves()[path].get("enum")
    if enum and other.results[name].dtype.kind not in "fiub":
        return np.full(side.count, choice_name(enum(int(value))))
    return np.full(side.count, float(value))
