"""Texts with units to SI floats: ``quantity("3.35 TB/s", "B/s")`` is ``3.35e12``.

The usual units are looked up in a table; anything else (``"12 * 50 Gbit/s"``) goes
through pint, which is imported only then. Both give the same number: a test holds
them to it. SI and binary prefixes differ: 1 GB is 1e9 bytes, 1 GiB is 2^30.
"""

from __future__ import annotations

import functools
import math
import re
from decimal import Decimal
from typing import Any

from dse.errors import InputError, nearest

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_QUANTITY = re.compile(rf"\s*({_NUMBER})\s*(\S*)\s*")

# Factors are decimal so that "5 us" is the float nearest to 5e-6.
_LARGE = {prefix: Decimal(10) ** (3 * i) for i, prefix in enumerate(["", "k", "M", "G", "T", "P", "E"])}
_BINARY = {prefix: Decimal(2) ** (10 * i) for i, prefix in enumerate(["Ki", "Mi", "Gi", "Ti", "Pi"], 1)}
_STEPS = {"": 0, "m": 1, "u": 2, "µ": 2, "n": 3, "p": 4, "f": 5, "a": 6}
_SMALL = {prefix: Decimal(10) ** (-3 * i) for prefix, i in _STEPS.items()}


def _table() -> dict[str, tuple[Decimal, str]]:
    """Unit as written → (factor to SI, SI units), for every unit of the fast path."""
    one = Decimal(1)
    table = {"": (one, "1"), "%": (one / 100, "1"), "USD": (one, "USD"), "K": (one, "K")}
    for prefix, factor in (_LARGE | _BINARY).items():
        table[f"{prefix}B"] = factor, "B"
        table[f"{prefix}bit"] = factor / 8, "B"
        table[f"{prefix}B/s"] = factor, "B/s"
        table[f"{prefix}bit/s"] = factor / 8, "B/s"
    for prefix, factor in _LARGE.items():
        table[f"{prefix}FLOP"] = table[f"{prefix}OP"] = factor, "FLOP"
        table[f"{prefix}FLOP/s"] = table[f"{prefix}OP/s"] = factor, "FLOP/s"
        table[f"{prefix}W"] = factor, "W"
        table[f"{prefix}Hz"] = factor, "Hz"
    for prefix, factor in _SMALL.items():
        table[f"{prefix}s"] = factor, "s"
        table[f"{prefix}J"] = factor, "J"
        table[f"{prefix}W"] = factor, "W"
        table[f"{prefix}V"] = factor, "V"
        table[f"{prefix}J/bit"] = factor * 8, "J/B"
        table[f"{prefix}J/B"] = factor, "J/B"
        table[f"{prefix}J/FLOP"] = factor, "J/FLOP"
    for unit, exponent in {"m": 0, "cm": -4, "mm": -6, "um": -12}.items():
        area = Decimal(10) ** exponent
        table[f"{unit}2"] = table[f"{unit}^2"] = area, "m^2"
        table[f"/{unit}2"] = one / area, "1/m^2"
        table[unit] = area.sqrt(), "m"
        for prefix, factor in _LARGE.items():
            table[f"{prefix}B/{unit}2"] = factor / area, "B/m^2"
            table[f"{prefix}B/s/{unit}"] = factor / area.sqrt(), "B/s/m"
    return table


_UNITS = _table()

#: Examples for error messages.
_USUAL = {
    "B": "'80 GiB' or '141 GB'", "B/s": "'3.35 TB/s' or '400 Gbit/s'", "FLOP/s": "'989 TFLOP/s'", "s": "'5 us'",
    "1/m^2": "'91.2e6 /mm2'", "B/m^2": "'3.1 MB/mm2'", "B/s/m": "'100 GB/s/mm'", "m": "'11 mm'", "V": "'0.75 V'",
    "K": "'77 K'",
    "W": "'700 W'", "Hz": "'1.98 GHz'", "m^2": "'814 mm2'", "J/B": "'6 pJ/bit'",
    "J/FLOP": "'0.5 pJ/FLOP'", "J": "'20 pJ'", "USD": "'30000 USD'",
}  # fmt: skip

#: Units of the slow path. pint's own list holds bits to be dimensionless, so that GB would pass for a number.
_DEFINITIONS = """
atto- = 1e-18 = a-
femto- = 1e-15 = f-
pico- = 1e-12 = p-
nano- = 1e-9 = n-
micro- = 1e-6 = u- = µ-
milli- = 1e-3 = m-
centi- = 1e-2 = c-
kilo- = 1e3 = k-
mega- = 1e6 = M-
giga- = 1e9 = G-
tera- = 1e12 = T-
peta- = 1e15 = P-
exa- = 1e18 = E-
kibi- = 2**10 = Ki-
mebi- = 2**20 = Mi-
gibi- = 2**30 = Gi-
tebi- = 2**40 = Ti-
pebi- = 2**50 = Pi-
second = [time] = s
minute = 60 * second = min
hour = 60 * minute = h
day = 24 * hour
year = 365.25 * day
hertz = 1 / second = Hz
meter = [length] = m
volt = [voltage] = V
kelvin = [temperature] = K
joule = [energy] = J
watt = joule / second = W
watt_hour = watt * hour = Wh
bit = [information]
byte = 8 * bit = B
operation = [operation] = FLOP = OP
dollar = [currency] = USD
percent = 0.01 = %
"""


def quantity(text: str, units: str, where: str = "quantity") -> float:
    """The number in SI ``units`` that ``text`` means.

    Args:
        text: a number and its unit, ``"3.35 TB/s"``, ``"80 GiB"``, ``"826 mm2"``; a bare
            number only where ``units`` is ``"1"``.
        units: ``1 B B/s FLOP FLOP/s s W J J/B Hz m m^2 V K USD`` and quotients of them, or what pint can convert to.
        where: what the error names.

    A missing unit, a wrong dimension and an unreadable text are InputErrors.
    """
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2] not in _UNITS:
        return _finite(_by_pint(text, units, where), text, units, where)
    factor, found = _UNITS[match[2]]
    if found == units:
        _finite(float(match[1]), text, units, where)
        return _finite(float(Decimal(match[1]) * factor), text, units, where)
    if found == "1":
        raise InputError(where, f"{text!r} (no unit)", _examples(units), "write the unit after the number")
    raise _wrong_dimension(text, units, where)


def _finite(value: float, text: str, units: str, where: str) -> float:
    if math.isfinite(value):
        return value
    raise InputError(where, repr(text), f"a finite number in {units}", "check the number")


def _by_pint(text: str, units: str, where: str) -> float:
    """The same through pint's parser, for units outside the table."""
    registry = _registry()
    target = registry.Unit("dimensionless" if units == "1" else units)
    try:
        value = registry.Quantity(_powers(text))
        magnitude = float(value.to(target).magnitude) if value.is_compatible_with(target) else None
    except Exception:  # pint's parser raises many kinds on a text that is no quantity
        raise _unreadable(text, units, where) from None
    if magnitude is None:
        raise _wrong_dimension(text, units, where)
    return magnitude


def _powers(text: str) -> str:
    """``mm2`` as pint writes it: ``mm**2``."""
    return re.sub(r"\b([a-zA-Z]*m)([23])\b", r"\1**\2", text)


@functools.cache
def _registry() -> Any:
    import pint

    registry: Any = pint.UnitRegistry(None)
    registry.load_definitions(_DEFINITIONS.strip().splitlines())
    return registry


def _examples(units: str) -> str:
    usual = _USUAL.get(units)
    return "a plain number" if units == "1" else f"a number in {units}" + (f", such as {usual}" if usual else "")


def _wrong_dimension(text: str, units: str, where: str) -> InputError:
    return InputError(where, f"{text!r}, another dimension", _examples(units), "write the value in one of these units")


def _unreadable(text: str, units: str, where: str) -> InputError:
    unit = re.sub(rf"^\s*{_NUMBER}\s*", "", text)
    close = nearest(unit, [u for u, (_, si) in _UNITS.items() if si == units and u])
    fix = f"did you mean {' or '.join(repr(c) for c in close)}?" if close else "write a number and a unit"
    return InputError(where, repr(text), _examples(units), fix)
