"""Definition of records: frozen, with symbol, units, long name and bounds of every leaf."""

from __future__ import annotations

import dataclasses
import functools
import math
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar, dataclass_transform

from dse.types import pytrees

if TYPE_CHECKING:
    import jax

    Scalar: TypeAlias = float | jax.Array
else:
    #: One real number: a Python or NumPy float or a (traced) JAX scalar; an array of them under ``vmap``.
    Scalar = float

T = TypeVar("T")


#: Allowed magnitudes of SI numbers, so that products of several are exact to single precision.
SMALLEST, LARGEST = 1e-24, 1e24


def has_usual_magnitude(value: float) -> bool:
    """Return true for 0 and for a number of an allowed magnitude, false for infinities and NaN."""
    return value == 0.0 or SMALLEST <= abs(value) <= LARGEST


class Bounds(NamedTuple):
    """Allowed values of a leaf: from ``low`` to ``high``, both included, of an allowed magnitude or 0.

    >>> 0.5 in SHARE, 1.5 in SHARE, 0.0 in POSITIVE, 2.5 in COUNT
    (True, False, False, False)
    >>> str(COUNT), str(POSITIVE_SHARE)
    ('a whole number, more than 0', 'more than 0, at most 1')
    """

    low: float = 0.0
    high: float = math.inf
    above: bool = False  #: whether ``low`` itself is excluded
    is_integer: bool = False
    switch: bool = False  #: whether true and false are allowed for numbers beyond 1: off, on, and variants of on

    def __contains__(self, value: object) -> bool:
        if not isinstance(value, int | float) or not has_usual_magnitude(value):
            return False
        if self.is_integer and value != int(value):
            return False
        return value <= self.high and (value > self.low if self.above else value >= self.low)

    @property
    def takes_truth(self) -> bool:
        """True where true and false are allowed: for values of 0 or 1, and for switches."""
        return self.switch or self.high <= 1.0

    def __str__(self) -> str:
        least = f"more than {self.low:g}" if self.above else f"{self.low:g} or more"
        parts = ["a whole number"] * self.is_integer + [least] * math.isfinite(self.low)
        return ", ".join([*parts, *[f"at most {self.high:g}"] * math.isfinite(self.high)]) or "a finite number"


NOT_NEGATIVE, POSITIVE, SIGNED = Bounds(), Bounds(above=True), Bounds(low=-math.inf)
SHARE, POSITIVE_SHARE = Bounds(high=1.0), Bounds(high=1.0, above=True)
COUNT, YES_OR_NO = Bounds(above=True, is_integer=True), Bounds(high=1.0, is_integer=True)


def number(
    text: str,
    units: str = "1",
    *,
    default: Any = dataclasses.MISSING,
    bounds: Bounds = NOT_NEGATIVE,
    symbol: str = "",
    **extra: Any,
) -> Any:
    """Return a dataclass field for a leaf, with metadata (symbol, units, long name, bounds) for inputs and outputs.

    Leaves with bounds of their kind are declared by ``positive``, ``share``, ``positive_share``, ``count``,
    ``yes_or_no``, ``integer`` and ``choice``, which take the same arguments.

    Args:
        text: meaning, as ``long_name`` in datasets.
        units: SI units; ``"1"`` for none.
        default: default value; without one a value is required.
        bounds: allowed values, checked by the catalogue, :func:`dse.design`, axes and calibration.
        symbol: as in the literature, or "".
        **extra: further metadata: ``enum`` of a choice, ``source`` of a default, ``absent``: value equivalent to the
            absence of an optional leaf.
    """
    about = {"symbol": symbol, "units": units, "long_name": text, "bounds": bounds, **extra}
    return dataclasses.field(default=default, metadata=about)


positive, share = functools.partial(number, bounds=POSITIVE), functools.partial(number, bounds=SHARE)
positive_share, count = functools.partial(number, bounds=POSITIVE_SHARE), functools.partial(number, bounds=COUNT)
yes_or_no = functools.partial(number, bounds=YES_OR_NO)
integer = functools.partial(number, bounds=Bounds(is_integer=True))


def choice(text: str, enum: type[IntEnum], **about: Any) -> Any:
    """Return a dataclass field for a leaf that is the code of a choice.

    Args:
        text: meaning, as ``long_name`` in datasets.
        enum: the choices.
        **about: further arguments of :func:`number`.
    """
    return number(text, enum=enum, **about)


@dataclass_transform(
    frozen_default=True,
    kw_only_default=True,
    field_specifiers=(number, positive, share, positive_share, count, yes_or_no, integer, choice, dataclasses.field),
)
def record(cls: type[T]) -> type[T]:
    """Make ``cls`` a frozen keyword-only dataclass whose fields are pytree leaves or records.

    Returns:
        The class, a pytree of JAX as soon as that is imported (:mod:`dse.types.pytrees`).
    """
    cls = dataclasses.dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)(cls)
    for name in ("__init__", "__repr__", "__eq__", "__hash__"):
        if getattr(cls, name) is getattr(object, name):
            setattr(cls, name, vars(_Methods)[name])
    pytrees.register(cls)
    return cls


@functools.cache
def _defaults(cls: type[Any]) -> tuple[frozenset[str], dict[str, Any]]:
    """Return the names of all fields of a record class, and name → default of those that have one."""
    fields = dataclasses.fields(cls)
    defaults = {field.name: field.default for field in fields if field.default is not dataclasses.MISSING}
    return frozenset(field.name for field in fields), defaults


class _Methods:
    """Methods of all records: what dataclasses compile for each class takes as long as NumPy's import."""

    def __init__(self, **values: Any) -> None:
        """Set the fields; TypeError for one that is missing or that the class does not have."""
        cls: Any = type(self)
        names, defaults = _defaults(cls)
        state = defaults | values
        if state.keys() != names:
            unknown, missing = sorted(state.keys() - names), sorted(names - state.keys())
            fault = f"unexpected keyword argument {unknown[0]!r}" if unknown else f"no value for {', '.join(missing)}"
            raise TypeError(f"{type(self).__name__}: {fault}")
        self.__dict__.update(state)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in _values(self))
        return f"{type(self).__qualname__}({values})"

    def __eq__(self, other: object) -> Any:
        return _values(self) == _values(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(_values(self)))


def _values(record: Any) -> list[tuple[str, Any]]:
    """Return (name, value) of the fields of a record, in order."""
    return [(field.name, getattr(record, field.name)) for field in dataclasses.fields(record)]


def field_metadata(cls: type, name: str) -> dict[str, Any]:
    """Return key → value of the metadata of a field of a record class.

    Args:
        cls: record class, such as :class:`dse.types.Software`.
        name: one of its fields.

    Returns:
        ``symbol``, ``units``, ``long_name`` and ``bounds``, as far as the field states them.

    Raises:
        StopIteration: for a name that the class does not have.
    """
    return dict(next(f.metadata for f in dataclasses.fields(cls) if f.name == name))
