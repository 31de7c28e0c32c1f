"""How a noun is written: frozen records whose leaves carry symbol, units, a long name and bounds."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple, TypeAlias, TypeVar, dataclass_transform

import jax

T = TypeVar("T")

#: One real number: a Python or NumPy float or a (traced) JAX scalar; an array of them under ``vmap``.
Scalar: TypeAlias = float | jax.Array


#: Magnitudes of SI numbers that leaves may have: single precision holds products of several of them.
SMALLEST, LARGEST = 1e-24, 1e24


def has_usual_magnitude(value: float) -> bool:
    """Whether a number is 0 or of a magnitude that leaves may have; neither an infinity nor NaN is."""
    return value == 0.0 or SMALLEST <= abs(value) <= LARGEST


class Bounds(NamedTuple):
    """The values that a leaf may have: from ``low`` to ``high``, both included, of a usual magnitude or 0.

    >>> 0.5 in SHARE, 1.5 in SHARE, 0.0 in POSITIVE, 2.5 in COUNT
    (True, False, False, False)
    >>> str(COUNT), str(POSITIVE_SHARE)
    ('a whole number, more than 0', 'more than 0, at most 1')
    """

    low: float = 0.0
    high: float = math.inf
    above: bool = False  #: whether ``low`` itself is too small
    whole: bool = False
    switch: bool = False  #: whether true and false are values though numbers go beyond 1: off, on, and variants of on

    def __contains__(self, value: object) -> bool:
        if not isinstance(value, int | float) or not has_usual_magnitude(value):
            return False
        if self.whole and value != int(value):
            return False
        return value <= self.high and (value > self.low if self.above else value >= self.low)

    @property
    def takes_truth(self) -> bool:
        """Whether true and false are values: of what is 0 or 1 at most, and of switches."""
        return self.switch or self.high <= 1.0

    def __str__(self) -> str:
        least = f"more than {self.low:g}" if self.above else f"{self.low:g} or more"
        parts = ["a whole number"] * self.whole + [least] * math.isfinite(self.low)
        return ", ".join([*parts, *[f"at most {self.high:g}"] * math.isfinite(self.high)]) or "a finite number"


NOT_NEGATIVE, POSITIVE, SIGNED = Bounds(), Bounds(above=True), Bounds(low=-math.inf)
SHARE, POSITIVE_SHARE = Bounds(high=1.0), Bounds(high=1.0, above=True)
COUNT, YES_OR_NO = Bounds(above=True, whole=True), Bounds(high=1.0, whole=True)


def metadata(
    symbol: str, units: str, text: str, default: Any = dataclasses.MISSING, bounds: Bounds = NOT_NEGATIVE, **extra: Any
) -> Any:
    """A dataclass field with what inputs and labelled outputs need.

    Args:
        symbol: as the literature writes it, or an empty text.
        units: SI units; ``"1"`` where there are none.
        text: what the field is, as datasets call it (``long_name``).
        default: value where none is given; without one a value must be given.
        bounds: values that it may have: read by the catalogue, :func:`dse.design`, axes and calibration.
        **extra: more of the metadata: ``enum`` of a choice, ``group`` of a metric, ``counts`` of a rate without a unit,
            the things that it counts, ``absent`` of a leaf that a record may lack, the value that means the same.
    """
    about = {"symbol": symbol, "units": units, "long_name": text, "bounds": bounds, **extra}
    return dataclasses.field(default=default, metadata=about)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(metadata, dataclasses.field))
def record(cls: type[T]) -> type[T]:
    """Make ``cls`` a frozen keyword-only dataclass whose fields are pytree leaves or records."""
    cls = dataclasses.dataclass(frozen=True, kw_only=True)(cls)
    return jax.tree_util.register_dataclass(cls)


def field_metadata(cls: type, name: str) -> dict[str, Any]:
    """Symbol, units and long name of field ``name`` of a record class."""
    return dict(next(f.metadata for f in dataclasses.fields(cls) if f.name == name))
