"""Near-ties of a table: designs that differ along one axis alone, with nearly the same objective, as one row."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

from dse.io.quantities import setting
from dse.spec.axes import Label

#: Relative difference of objectives up to which designs count as equal: below what any prediction resolves.
TOLERANCE = 0.002


@dataclasses.dataclass(frozen=True)
class Fold:
    """One row of a table: its first design, and those that are as good and differ from it along one axis alone."""

    first: int  #: position of the design that the row shows, the first of them
    members: tuple[int, ...]  #: positions of all designs of the row, in their order, the first one among them
    axis: str  #: along which they differ; "" for one design
    values: tuple[Label, ...]  #: their values of it: numbers ascending, others in their order
    has_gaps: bool  #: whether designs elsewhere in the table have a value between these
    tolerance: float  #: relative, of the objective

    def note(self, name: str = "", text: Callable[[Label], str] = setting) -> str:
        """Return a text on what the row stands for, ``v 3 to 14: within 0.2 %``; empty for one design.

        A range of more than two numbers is written by its ends, unless another row has a value between them.

        Args:
            name: heading of the axis; by default its name.
            text: value of the axis → how it is written.
        """
        if not self.axis:
            return ""
        texts = list(map(text, self.values))
        is_range = len(texts) > 2 and not self.has_gaps and all(map(_is_number, self.values))
        values_text = f"{texts[0]} to {texts[-1]}" if is_range else ", ".join(texts)
        return f"{name or self.axis} {values_text}: within {100.0 * self.tolerance:.3g} %"


def fold_near_ties(
    labels: Sequence[Mapping[str, Label]],
    values: Sequence[float],
    feasible: Sequence[bool] | None = None,
    tolerance: float = TOLERANCE,
) -> list[Fold]:
    """Return the rows of a table of designs, near-ties along one axis folded into the best of them.

    Designs are folded where all their labels but those of one axis are equal, both are feasible or neither is, and any
    two of their objectives differ by at most ``tolerance`` of the smaller. A design that fits several rows joins the
    first; a row takes the axis along which it has most designs, the first of these. The first design of the table, the
    best, is always the one that its row shows.

    Args:
        labels: axis → value of each design, the best first; the same axes for all.
        values: objective of each design.
        feasible: by design; by default all are.
        tolerance: relative difference of objectives.

    Returns:
        Rows in the order of their first designs; every design is in one.

    >>> labels = [{"tp": 8, "v": 4}, {"tp": 8, "v": 3}, {"tp": 16, "v": 3}, {"tp": 8, "v": 14}]
    >>> rows = fold_near_ties(labels, [10.0, 10.01, 10.015, 10.018])
    >>> [(row.first, row.members, row.note()) for row in rows]
    [(0, (0, 1, 3), 'v 3 to 14: within 0.2 %'), (2, (2,), '')]
    """
    feasible = [True] * len(labels) if feasible is None else feasible
    rows, remaining = [], list(range(len(labels)))
    while remaining:
        first = remaining[0]
        folds = {axis: _ties(axis, remaining, labels, values, feasible, tolerance) for axis in labels[first]}
        axis = max(folds, key=lambda name: len(folds[name]), default="")
        members = folds.get(axis, [first])
        if len(members) == 1:
            axis = ""
        axis_values = [labels[i][axis] for i in members] if axis else []
        if all(map(_is_number, axis_values)):
            axis_values.sort()
        has_gaps = bool(axis) and _has_gaps(axis, members, axis_values, labels)
        rows.append(Fold(first, tuple(members), axis, tuple(axis_values), has_gaps, tolerance))
        remaining = [i for i in remaining if i not in members]
    return rows


def _ties(
    axis: str,
    candidates: Sequence[int],
    labels: Sequence[Mapping[str, Label]],
    values: Sequence[float],
    feasible: Sequence[bool],
    tolerance: float,
) -> list[int]:
    """Return the first of the candidates and those that tie with it along an axis, each with a value of its own."""
    first = candidates[0]
    others, members, axis_values = _without(axis, labels[first]), [first], [labels[first].get(axis)]
    for i in candidates[1:]:
        is_alike = axis in labels[i] and _without(axis, labels[i]) == others and feasible[i] == feasible[first]
        if is_alike and labels[i][axis] not in axis_values:
            objectives = [values[j] for j in (*members, i)]
            if all(map(math.isfinite, objectives)) and _spread(objectives) <= tolerance:
                members.append(i)
                axis_values.append(labels[i][axis])
    return members


def _spread(objectives: Sequence[float]) -> float:
    """Return the largest difference of objectives over the smallest of their magnitudes, 0 where all are equal."""
    difference = max(objectives) - min(objectives)
    return difference / max(min(map(abs, objectives)), 1e-300) if difference else 0.0


def _has_gaps(axis: str, members: Sequence[int], ends: Sequence[Label], labels: Sequence[Mapping[str, Label]]) -> bool:
    """Return True where a design outside of a row, of its other labels, has a number between the row's ends."""
    if not all(map(_is_number, ends)):
        return False
    others = _without(axis, labels[members[0]])
    return any(
        i not in members and _without(axis, row) == others and ends[0] < row[axis] < ends[-1]  # type: ignore[operator]
        for i, row in enumerate(labels)
    )


def _without(axis: str, row: Mapping[str, Label]) -> dict[str, Label]:
    """Return labels without that of an axis."""
    return {name: value for name, value in row.items() if name != axis}


def _is_number(value: Label) -> bool:
    """Return True for a number that is no truth value."""
    return not isinstance(value, bool | str)
