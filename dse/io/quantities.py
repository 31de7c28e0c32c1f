"""Formatter of numbers in figures, tables and messages.

SI inside, common units outside: ``3.35 TB/s``, ``814 mm²``, ``250 µs``. Computed memory is in GiB (2^30 bytes); stated
capacities are written as sold, ``141 GB`` or ``80 GiB``.
"""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dse.io import toml

GIB = 2.0**30

_PREFIXES = [
    (1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"),
    (1e-9, "n"), (1e-12, "p"),
]  # fmt: skip

#: Table of units, how they are read and written.
UNITS = toml.table(Path(__file__).with_name("units.toml"))

#: SI units without a prefix → factor to the written units, and their name.
DISPLAY_UNITS: dict[str, tuple[float, str]] = {units: (row[0], row[1]) for units, row in UNITS["display"].items()}

#: Rates of counts, written out below a million, since "12.3 k tokens/s" reads badly.
_COUNT_RATES = ("tokens/s", "requests/s")

#: Words in names of metrics → unit of the count; prefix of a count → in words.
_COUNTED_NOUNS = (
    ("goodput_fraction", ""),
    ("tokens_per", "tokens"),
    ("requests_per", "requests"),
    ("goodput", "requests"),
)
_COUNT_PREFIXES = {"": "", "k": "thousand", "M": "million", "G": "billion", "T": "trillion"}

#: Limit below which plain numbers are written out.
_PLAIN_LIMIT = 1e6

#: Limit below which stated whole numbers are written out.
_COUNT_LIMIT = 1e9

#: Share of the largest value of an axis above which a value has the same unit.
_READABLE = 0.01

#: Rounding of single precision, within which values are equal.
_SINGLE = 2e-7


def scale(value: float, units: str) -> tuple[float, str]:
    """Return the factor from SI units to the unit in which a quantity is written, and the name of that unit.

    Args:
        value: about how large it is, in SI units.
        units: SI units.
    """
    if units == "USD" and abs(value) >= 1e6:
        return (1e-9, "billion USD") if abs(value) >= 1e9 else (1e-6, "million USD")
    if units == "USD" and 0.0 < abs(value) < 1e-3:
        return 1e6, "USD per million"
    if units == "1/m^2" and 0.0 < abs(value) < 1e8:  # defects; transistor densities are about 1e14
        return 1e-4, "/cm²"
    if units in DISPLAY_UNITS:
        return DISPLAY_UNITS[units]
    if units in _COUNT_RATES:
        return (1e-6, f"million {units}") if abs(value) >= _PLAIN_LIMIT else (1.0, units)
    if units == "kg" and value:
        return _mass(abs(value))
    if units == "B" and value >= 2**20:
        return (1.0 / GIB, "GiB") if value >= 0.01 * GIB else (1024.0 / GIB, "MiB")
    if units == "B" and abs(value) < 1.0:  # bytes of a weight: there are no thousandths of a byte
        return 1.0, "B"
    name = {"1": "", "s-1": "/s", "1/USD": "/USD"}.get(units, units)
    size = abs(value)
    written_out = (
        (units == "s" and size >= 1.0) or (not name and size < _PLAIN_LIMIT) or (name[:1] == "/" and size < 1.0)
    )
    if not size or not math.isfinite(size) or written_out:  # 0.08/s: "80 m/s" would be metres
        return 1.0, name
    unit, prefix = _prefix(size)
    return 1.0 / unit, prefix + name


def _mass(kilograms: float) -> tuple[float, str]:
    """Return the factor from kg to the unit of a mass, and its name: g, kg or t, with a prefix."""
    if 1.0 <= kilograms < 1e3:
        return 1.0, "kg"
    scaled, name = (kilograms / 1e3, "t") if kilograms >= 1e3 else (kilograms * 1e3, "g")
    unit, prefix = _prefix(scaled)
    return scaled / kilograms / unit, prefix + name


def _prefix(size: float) -> tuple[float, str]:
    """Return (power of ten, SI prefix): the largest up to a positive number, else the smallest there is."""
    return next(((power, prefix) for power, prefix in _PREFIXES if size >= 0.9999 * power), _PREFIXES[-1])


def capacity_scale(value: float) -> tuple[float, str]:
    """Return factor and unit of a stated memory in bytes: decimal ones where it is round in them, else binary."""
    if not math.isfinite(value) or value < 1e6 or abs(float(f"{value:.5g}") / value - 1.0) > _SINGLE:
        return scale(value, "B")
    unit, prefix = _prefix(min(value, 1e9))
    return 1.0 / unit, f"{prefix}B"


def quantity(value: float, units: str) -> str:
    """Return a result in SI ``units`` as text with its unit, to three digits.

    Args:
        value: result in ``units``.
        units: SI units, or what is counted, such as ``tokens/s``.

    >>> quantity(2.039e12, "B/s"), quantity(63.25, "s"), quantity(80 * GIB, "B")
    ('2.04 TB/s', '63.2 s', '80.0 GiB')
    >>> quantity(2983.0, "tokens/s"), quantity(1.42e6, "tokens/s")
    ('2,983 tokens/s', '1.42 million tokens/s')
    >>> quantity(54.63e6, "USD"), quantity(2.61e-6, "USD"), quantity(42538.3, "kg"), quantity(1.4e-4, "kg")
    ('54.6 million USD', '2.61 USD per million', '42.5 t', '140 mg')
    """
    if not value:
        return _with_unit("0", scale(value, units)[1])
    if units == "1" and abs(value) < _PLAIN_LIMIT:
        return f"{value:,.4g}"
    factor, name = scale(value, units)
    return _with_unit(digits(value * factor), name)


def displayed_value(value: float, units: str) -> float:
    """Return the number that :func:`quantity` writes, in SI ``units``; equal numbers are written equally.

    >>> (
    ...     displayed_value(63.249, "s"),
    ...     displayed_value(63.151, "s"),
    ...     displayed_value(80.01 * GIB, "B") == displayed_value(80.0 * GIB, "B"),
    ... )
    (63.2, 63.2, True)
    """
    if units == "1" and abs(value) < _PLAIN_LIMIT:
        return float(f"{value:.4g}")
    factor, _ = scale(value, units)
    return float(digits(value * factor).replace(",", "")) / factor


def setting(value: Any, units: str = "1") -> str:
    """Return a stated value in SI ``units`` as text with its unit; texts unchanged, truth as yes or no.

    To 4 digits, or 6 for large numbers and parts of a byte; whole plain numbers in full.

    Args:
        value: number in ``units``, or True or False.
        units: SI units; "1" for a plain number.

    >>> setting(141e9, "B"), setting(80 * GIB, "B"), setting(3.35e12, "B/s"), setting(8.14e-4, "m^2"), setting(True)
    ('141 GB', '80 GiB', '3.35 TB/s', '814 mm²', 'yes')
    >>> setting(0.5625, "B"), setting(0.53125, "B")
    ('0.5625 B', '0.53125 B')
    """
    if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):  # numpy's, without importing it
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    number = float(value)
    if units == "1" and abs(number) < _COUNT_LIMIT and number == int(number):
        return f"{number:.0f}"
    return _setting_text(number, *(capacity_scale(number) if units == "B" else scale(number, units)))


def settings(values: Sequence[Any], units: str = "1") -> list[str]:
    """Return the values of one axis as texts, all in the unit of the largest where the smallest is readable in it.

    >>> settings([0.9e9, 1.41e9], "Hz"), settings([1e-9, 1.0], "s")
    (['0.9 GHz', '1.41 GHz'], ['1 ns', '1 s'])
    """
    numbers = [abs(value) for value in values if isinstance(value, float) and value]
    differs = not numbers or len(numbers) != len(values) or not min(numbers) >= _READABLE * max(numbers)
    if differs or units in ("1", "B"):
        return [setting(value, units) for value in values]
    return [_setting_text(value, *scale(max(numbers), units)) for value in values]


def _setting_text(number: float, factor: float, name: str) -> str:
    """Return ``number`` times ``factor`` as text with a unit, to 4 digits, or 6 for large or small ones."""
    number *= factor
    has_few_digits = abs(number) < 1e4 and (name != "B" or abs(number) >= 1.0)
    return _with_unit(f"{number:.{4 if has_few_digits else 6}g}", name)


def seconds(value: float) -> str:
    """Return a time as text in s, ms, µs or ns, to three digits."""
    return quantity(value, "s")


def duration(value: float) -> str:
    """Return a waiting time as text, in its two largest units.

    Args:
        value: seconds.

    >>> duration(42.3), duration(80.0), duration(7500.0), duration(2e5)
    ('42 s', '1 min 20 s', '2 h 5 min', '2 d 7 h')
    """
    total_seconds = round(value)
    units = [(86400, "d"), (3600, "h"), (60, "min"), (1, "s")]
    for (major_seconds, major_name), (minor_seconds, minor_name) in itertools.pairwise(units):
        if total_seconds >= major_seconds:
            remainder = total_seconds % major_seconds // minor_seconds
            return f"{total_seconds // major_seconds:,} {major_name}" + (
                f" {remainder} {minor_name}" if remainder else ""
            )
    return f"{total_seconds} s"


def span(value: float) -> str:
    """Return a time as text in its largest unit, to three digits.

    Args:
        value: seconds.

    >>> span(9.5e5), span(7500.0), span(80.0), span(0.0125)
    ('11.0 days', '2.08 h', '80.0 s', '12.5 ms')
    """
    for unit, name in ((86400.0, "days"), (3600.0, "h")):
        if value >= unit:
            return f"{digits(value / unit)} {name}"
    return seconds(value)


def gib(value: float) -> str:
    """Return bytes as text in GiB, to three digits."""
    return f"{digits(value / GIB)} GiB"


def percent(share: float | None) -> str:
    """Return a share (0 to 1) as text in per cent, a dash for None."""
    return "–" if share is None else f"{100 * share:.1f} %"


def prefixed(value: float, name: str) -> str:
    """Return a count as text to three digits with an SI prefix and its unit: ``312 TFLOP``."""
    unit, prefix = _prefix(abs(value)) if abs(value) >= 1.0 else (1.0, "")
    return _with_unit(digits(value / unit), prefix + name)


def counted_units(name: str, units: str) -> str:
    """Return the units of a metric for an axis, with the noun of what it counts; unchanged for others.

    Args:
        name: of the metric.
        units: as written, with a prefix.

    >>> counted_units("tokens_per_second", "k/s"), counted_units("goodput", "/s"), counted_units("step_time", "s")
    ('thousand tokens/s', 'requests/s', 's')
    """
    prefix, slash, denominator = units.partition("/")
    counted_noun = next((counted_noun for word, counted_noun in _COUNTED_NOUNS if word in name), "")
    if not (slash and counted_noun and prefix in _COUNT_PREFIXES):
        return units
    return f"{_COUNT_PREFIXES[prefix]} {counted_noun}/{denominator}".lstrip()


def digits(value: float) -> str:
    """Return a number as text to three digits, without an exponent where it is readable.

    >>> digits(1234.5), digits(0.0123), digits(1.5e-9)
    ('1,234', '0.0123', '1.5e-09')
    """
    if not value or not math.isfinite(value):
        return f"{value:g}"
    decimals = 2 - math.floor(math.log10(abs(value)))
    return f"{value:.3g}" if decimals > 6 else f"{value:,.{max(0, decimals)}f}"


def counted(count: Any, noun: str, plural: str = "") -> str:
    """Return a count with its noun, singular or plural; whole numbers get separators of thousands, floats none.

    Args:
        count: number of things.
        noun: their name in the singular.
        plural: their name in the plural where it is not the noun with an s.

    >>> counted(1, "design"), counted(34716, "design"), counted(1, "entry", "entries")
    ('1 design', '34,716 designs', '1 entry')
    >>> counted(1.0, "draft"), counted(1.5, "draft")
    ('1 draft', '1.5 drafts')
    """
    number = f"{count:,}" if isinstance(count, numbers.Integral) else f"{count:g}"
    return f"{number} {noun if count == 1 else plural or f'{noun}s'}"


def _with_unit(number: str, name: str) -> str:
    """Return a number with its unit as text, a space between them unless the unit begins with "/"."""
    return f"{number} {name}".rstrip() if not name.startswith("/") else f"{number}{name}"
