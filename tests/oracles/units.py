"""Quantities as pint reads them: an implementation of its own to hold the table and the grammar of units to."""

from __future__ import annotations

import functools
import re
from typing import Any

#: pint's own list holds bits to be dimensionless, so that GB would pass for a number.
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
gram = [mass] = g
watt = joule / second = W
watt_hour = watt * hour = Wh
bit = [information]
byte = 8 * bit = B
operation = [operation] = FLOP = OP
dollar = [currency] = USD
percent = 0.01 = %
"""


def by_pint(text: str, units: str) -> float:
    """The number of ``units`` that a text means."""
    registry = _registry()
    target = registry.Unit("dimensionless" if units == "1" else units)
    return float(registry.Quantity(re.sub(r"\b([a-zA-Z]*m)([23])\b", r"\1**\2", text)).to(target).magnitude)


@functools.cache
def _registry() -> Any:
    import pint

    registry: Any = pint.UnitRegistry(None)
    registry.load_definitions(_DEFINITIONS.strip().splitlines())
    return registry
