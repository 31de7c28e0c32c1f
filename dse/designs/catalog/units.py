"""Texts with units to SI floats: ``quantity("3.35 TB/s", "B/s")`` is ``3.35e12``.

A small grammar of numbers and units reads them::

    quantity = factor { ["*" | "/"] factor }
    factor   = number | unit [("^" | "**") ["-"] digit] | "(" quantity ")"

Nothing is evaluated, and only units have powers, of one digit: no text takes long. A test holds the numbers to pint's.
SI and binary prefixes differ: 1 GB is 1e9 bytes, 1 GiB is 2^30. The units stand in ``dse/io/units.toml``.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import re
from collections.abc import Mapping
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from typing import NamedTuple, TypeAlias

from dse.errors import InputError, nearest
from dse.io import quantities

_PLAIN = r"(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_NUMBER = rf"[-+]?{_PLAIN}"
_QUANTITY = re.compile(rf"\s*({_NUMBER})\s*(\S*)\s*")

# Factors are decimal so that "5 us" is the float nearest to 5e-6.
_LARGE = {prefix: Decimal(10) ** (3 * i) for i, prefix in enumerate(["", "k", "M", "G", "T", "P", "E"])}
_BINARY = {prefix: Decimal(2) ** (10 * i) for i, prefix in enumerate(["Ki", "Mi", "Gi", "Ti", "Pi"], 1)}
_STEPS = {"": 0, "m": 1, "u": 2, "µ": 2, "n": 3, "p": 4, "f": 5, "a": 6}
_SMALL = {prefix: Decimal(10) ** (-3 * i) for prefix, i in _STEPS.items()}
_PREFIXES = {"c": Decimal("1e-2")} | _LARGE | _BINARY | _SMALL

#: Base units; all others are stated in terms of them.
_BASE = ("s", "m", "V", "K", "J", "B", "FLOP", "USD", "g")

#: Longest text that is read; what a quantity takes is far shorter.
_MAX_CHARACTERS = 100

_TOKEN = re.compile(rf"\s*(?:(?P<number>{_PLAIN})|(?P<name>[A-Za-zµ%]+)|(?P<mark>\*\*|[-+*/^()]))")
_POWER = re.compile(r"\s*(?:(?:\*\*|\^)\s*(-?\d)|(?<=m)([23]))(?![\d.eE])(?!\s*(?:\*\*|\^))")


def quantity(text: str, units: str, where: str = "quantity") -> float:
    """Return the number in SI ``units`` that ``text`` means.

    Args:
        text: a number and its unit, ``"3.35 TB/s"``, ``"80 GiB"``, ``"826 mm2"``; a bare
            number only where ``units`` is ``"1"``.
        units: ``1 B B/s FLOP FLOP/s s W J J/B Hz m m^2 V K USD``, and products, powers and quotients of them.
        where: what the error names.

    Returns:
        The number.

    Raises:
        InputError: for a missing unit, a wrong dimension and an unreadable text.

    >>> quantity("3.35 TB/s", "B/s"), quantity("826 mm2", "m^2")
    (3350000000000.0, 0.000826)
    """
    if len(text) > _MAX_CHARACTERS:
        excerpt = f"{text[:20]!r} … ({len(text):,} characters)"
        raise InputError(where, excerpt, _examples(units), f"write at most {_MAX_CHARACTERS} characters")
    try:
        amount, unit_amount = _amount(text), _whole(units.replace("s-1", "1/s"))
        number = float(_WIDE.divide(amount.number, unit_amount.number))
    except (ValueError, ArithmeticError):  # what Decimal says of numbers beyond its range is an ArithmeticError
        raise _unreadable(text, units, where) from None
    if amount.exponents == unit_amount.exponents and math.isfinite(number):
        return number
    if amount.exponents == unit_amount.exponents:
        raise InputError(where, repr(text), f"a finite number in {units}", "check the number")
    if not amount.exponents:
        raise InputError(where, f"{text!r} (no unit)", _examples(units), "write the unit after the number")
    raise _wrong_dimension(text, units, where)


# --- the grammar ------------------------------------------------------------------------------------------


#: Base unit → its exponent; empty of plain numbers.
Dimension: TypeAlias = Mapping[str, int]


class _Amount(NamedTuple):
    """A number of base units, each to an exponent."""

    number: Decimal
    exponents: Dimension

    def times(self, other: _Amount, sign: int) -> _Amount:
        """Return the product, or with a ``sign`` of -1 the quotient."""
        number = self.number * other.number if sign > 0 else self.number / other.number
        return _Amount(number, product_dimension(self.exponents, other.exponents, sign))


_UNITY = _Amount(Decimal(1), {})

#: Numbers of any exponent, of which those beyond a float's range are refused as such.
_WIDE = Context(Emax=MAX_EMAX, Emin=MIN_EMIN)


def _amount(text: str) -> _Amount:
    """Return the amount that a text means, a number with a unit at once; ValueError for a text that is no quantity."""
    match = _QUANTITY.fullmatch(text)
    if match is not None and (match[1][0] not in "+-" or match[2] in itertools.chain(*usual_units().values())):
        with contextlib.suppress(ValueError):
            unit = _whole(match[2]) if match[2] else _UNITY
            return unit._replace(number=_WIDE.multiply(Decimal(match[1]), unit.number))
    return _whole.__wrapped__(text)


@functools.lru_cache(maxsize=1024)
def _whole(text: str) -> _Amount:
    """Return the amount of a product that is a whole text; ValueError for another text."""
    amount, end = _product(text, 0)
    if text[end:].strip():
        raise ValueError(text)
    return amount


def _product(text: str, position: int) -> tuple[_Amount, int]:
    """Return the product of the factors from ``position`` on, and the index of its end: a closing bracket or the end.

    Raises:
        ValueError: for a text that is no product.
    """
    total, sign, factor_due = _UNITY, 1, True
    while text[position:].strip():
        token = _TOKEN.match(text, position)
        if token is None:
            raise ValueError(text)
        mark = token["mark"]
        if mark == ")":
            break
        if mark in ("*", "/") and not factor_due:
            sign, factor_due, position = (-1 if mark == "/" else 1), True, token.end()
            continue
        factor, position = _factor(text, token)
        total, sign, factor_due = total.times(factor, sign), 1, False
    if factor_due:
        raise ValueError(text)
    return total, position


def _factor(text: str, token: re.Match[str]) -> tuple[_Amount, int]:
    """Return a factor (a number, a unit with its power, or a bracket) and the index of its end.

    ValueError for any other token.
    """
    end = token.end()
    if token["mark"] == "(":
        inner, end = _product(text, end)
        close = _TOKEN.match(text, end)
        if close is None or close["mark"] != ")":
            raise ValueError(text)
        return inner, close.end()
    if token["number"]:
        return _Amount(Decimal(token["number"]), {}), end
    if token["name"] is None:  # a sign, or an operator too many
        raise ValueError(text)
    unit = _unit(token["name"])
    power = _POWER.match(text, end)
    if power is None:
        return unit, end
    exponent = int(power[1] or power[2])
    exponents = {name: exponent * unit_exponent for name, unit_exponent in unit.exponents.items() if exponent}
    return _Amount(unit.number**exponent, exponents), power.end()


def _unit(name: str) -> _Amount:
    """Return the amount of one unit with its prefix; ValueError for an unknown unit."""
    name = quantities.UNITS["words"].get(name, name)
    for prefix, factor in _PREFIXES.items():
        symbol = name.removeprefix(prefix)
        if not name.startswith(prefix) or (prefix and symbol in ("min", "day", "year", "%")):
            continue
        if symbol in _BASE:
            return _Amount(factor, {symbol: 1})
        if symbol in quantities.UNITS["derived"]:
            derived = _whole(quantities.UNITS["derived"][symbol])
            return derived._replace(number=factor * derived.number)
    raise ValueError(name)


# --- units of results -------------------------------------------------------------------------------------


def dimension(units: str) -> Dimension:
    """Return base unit → exponent of SI units as metadata write them.

    >>> dimension("W"), dimension("s-1") == dimension("Hz"), dimension("1")
    ({'J': 1, 's': -1}, True, {})
    """
    return _whole(units.replace("s-1", "1/s")).exponents


def product_dimension(first: Dimension, second: Dimension, sign: int) -> Dimension:
    """Return base unit → exponent, without zeros, of a product or of a quotient.

    Args:
        first: dimension of the first factor, or of the dividend.
        second: dimension of the second factor, or of the divisor.
        sign: 1 for a product, -1 for a quotient.
    """
    names = dict.fromkeys((*first, *second))
    exponents = {name: first.get(name, 0) + sign * second.get(name, 0) for name in names}
    return {name: exponent for name, exponent in exponents.items() if exponent}


def unit_text(dimension: Dimension) -> str:
    """Return the SI units of a dimension (base unit → exponent) as text, "1" for none.

    >>> [unit_text(dimension(units)) for units in ("J / s", "USD", "kg * USD", "1 / USD", "s^2")]
    ['W', 'USD', 'kg*USD', '1/USD', 's^2']
    """
    for name, exponents in quantities.UNITS["symbols"].items():
        if dimension == exponents:
            return name
    powers = [("kg" if name == "g" else name, dimension[name]) for name in reversed(_BASE) if name in dimension]
    numerator, divisors = (
        [_power(name, abs(exponent)) for name, exponent in powers if exponent * side > 0] for side in (1, -1)
    )
    return "/".join(["*".join(numerator) or "1", *divisors])


def _power(name: str, exponent: int) -> str:
    """Return a unit to a power as text: ``s^2``."""
    return name if exponent == 1 else f"{name}^{exponent}"


# --- errors -----------------------------------------------------------------------------------------------


def usual_units() -> dict[str, list[str]]:
    """Return SI units → the units, with and without prefixes, in which they are usually written."""
    prefixes = {
        name: ["", *values] if name != "binary" else values for name, values in quantities.UNITS["prefixes"].items()
    }
    symbols_by_units = {}
    for units, row in quantities.UNITS["usual"].items():
        row_prefixes = itertools.chain(*(prefixes[name] for name in row.get("prefixes", ["large"])))
        symbols = itertools.product(dict.fromkeys(row_prefixes), row.get("symbols", []))
        symbols_by_units[units] = list(dict.fromkeys(symbol.replace("#", prefix) for prefix, symbol in symbols))
    return symbols_by_units


def _examples(units: str) -> str:
    """Return the text of what is allowed in given units, with an example."""
    usual = quantities.UNITS["usual"].get(units, {}).get("example")
    return "a plain number" if units == "1" else f"a number in {units}" + (f", such as {usual}" if usual else "")


def _wrong_dimension(text: str, units: str, where: str) -> InputError:
    """Return the error for a quantity of another dimension."""
    if units == "1":  # bytes and kelvins, by the letters of billions and thousands
        return _not_a_number(text, where)
    return InputError(
        where, f"{text!r}, which has another dimension", _examples(units), "write the value in one of these units"
    )


#: Powers of ten whose letter stands for a power of two as well.
_BINARY_TOO = {3: 2**10, 6: 2**20}


def _not_a_number(text: str, where: str) -> InputError:
    """Return the error for a text that is no plain number, where no unit is due."""
    match = re.fullmatch(rf"\s*({_NUMBER})\s*([A-Za-z]+)\s*", text)
    if match and (power := quantities.UNITS["thousands"].get(match[2])):
        fix = _power_fix(match[1], power)
    elif text.strip().lower() in ("yes", "no", "on", "off", "true", "false"):
        fix = "write 1 or 0, or for a switch true or false"
    else:
        fix = "write a number without a unit, such as 8 or 1.5e12"
    return InputError(where, repr(text), _examples("1"), fix)


def _power_fix(number: str, power: int) -> str:
    """Return the fix for a number with a letter for ``power`` of ten; for tokens ``8k`` may be 8,192 or 8,000."""
    if "e" in number.lower():
        return "write the number out"
    if power in _BINARY_TOO and float(number).is_integer():
        return f"write {float(number) * _BINARY_TOO[power]:.0f} or {float(number) * 10**power:.0f}, whichever is meant"
    return f"write {number}e{power}"


def _unreadable(text: str, units: str, where: str) -> InputError:
    """Return the error for a text that is no quantity, with the nearest units."""
    if units == "1":
        return _not_a_number(text, where)
    unit = re.sub(rf"^\s*{_NUMBER}\s*", "", text)
    bits = re.sub(r"(?<![A-Za-z])([kMGTPE]i?)?b(?=/|p?s?$)", r"\1bit", unit)  # b may be a bit or a byte: offer both
    rate = re.sub(r"ps$", "/s", bits)
    symbols = usual_units().get(units, [])
    corrections = [symbol for symbol in (rate, rate.replace("bit", "B")) if symbol != unit and symbol in symbols]
    close = list(dict.fromkeys([*corrections, *nearest(unit, symbols)]))[:3]
    fix = (
        f"did you mean {' or '.join(repr(correction) for correction in close)}?"
        if close
        else "write a number and a unit"
    )
    return InputError(where, repr(text), _examples(units), fix)
