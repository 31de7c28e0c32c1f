"""Where two documents differ, and by how much."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

#: Relative changes of numbers up to this are equal. Sweeps compute in single precision (6e-8), whose last digits depend
#: on what XLA fuses; what a change of the model moves is rarely below 1e-4.
TOLERANCE = 1e-6

#: Of a list of numbers, the share of the largest that a change is measured against at least: 1e-20 beside 1 is zero.
_FLOOR = 1e-6

_NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?", re.IGNORECASE)


class Difference(NamedTuple):
    """A place of a document where another document says something else."""

    where: str
    size: float  #: relative change of a number, infinite of what is no number
    text: str


def differences(old: Any, new: Any, where: str = "") -> Iterator[Difference]:
    """Every place where the new document differs beyond the tolerance; whole numbers and texts have none."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            place = f"{where}.{key}" if where else key
            if key not in new or key not in old:
                yield Difference(place, math.inf, "is new" if key in new else "is gone")
            else:
                yield from differences(old[key], new[key], place)
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield Difference(where, math.inf, f"{len(old)} items → {len(new)}")
        floor = _FLOOR * max((abs(one) for one in old if isinstance(one, float) and math.isfinite(one)), default=0.0)
        for index, (first, second) in enumerate(zip(old, new, strict=False)):
            if isinstance(first, float) and isinstance(second, float):
                yield from _of_numbers(first, second, f"{where}[{index}]", floor)
            else:
                yield from differences(first, second, f"{where}[{index}]")
    elif isinstance(old, float) and isinstance(new, float):
        yield from _of_numbers(old, new, where, 0.0)
    elif isinstance(old, str) and isinstance(new, str):
        yield from _of_texts(old, new, where)
    elif type(old) is not type(new) or old != new:
        both = all(isinstance(one, int | float) and not isinstance(one, bool) for one in (old, new))
        yield Difference(where, relative(old, new) if both else math.inf, f"{_short(old)} → {_short(new)}")


def relative(old: float, new: float, floor: float = 0.0) -> float:
    """The change as a share of the larger of both, or of the floor."""
    if old == new or (math.isnan(old) and math.isnan(new)):
        return 0.0
    if not (math.isfinite(old) and math.isfinite(new)):
        return math.inf
    return abs(new - old) / max(abs(old), abs(new), floor)


def _of_numbers(old: float, new: float, where: str, floor: float) -> Iterator[Difference]:
    size = relative(old, new, floor)
    if size > TOLERANCE:
        yield Difference(where, size, f"{old:.7g} → {new:.7g}")


def _of_texts(old: str, new: str, where: str) -> Iterator[Difference]:
    """By line; the size is that of the numbers where nothing else differs."""
    before, after = old.splitlines(), new.splitlines()
    if len(before) != len(after):
        unlike = next(
            (i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after))
        )
        line = f"; first at line {unlike + 1}" if len(before) + len(after) > 2 else ""
        yield Difference(where, math.inf, f"{len(before)} lines → {len(after)}{line}")
        return
    for index, (first, second) in enumerate(zip(before, after, strict=True)):
        if first != second:
            place = f"{where}:{index + 1}" if len(before) > 1 else where
            yield Difference(place, _size(first, second), f"{_short(first)} → {_short(second)}")


def _size(old: str, new: str) -> float:
    """The largest change of the numbers of two lines, infinite where other words differ."""
    if _NUMBER.sub("#", old) != _NUMBER.sub("#", new):
        return math.inf
    numbers = ([float(one.replace(",", "")) for one in _NUMBER.findall(line)] for line in (old, new))
    return max((relative(*pair) for pair in zip(*numbers, strict=True)), default=math.inf)


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
