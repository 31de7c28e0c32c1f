"""Numbers as people write them: one formatter for figures and tables."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from dse.designs.catalog.units import quantity as read
from dse.doors import STUDIES
from dse.io import digits, duration, quantity, setting
from dse.io.quantities import GIB, prefixed, settings


@pytest.mark.parametrize(
    ("value", "units", "text"),
    [
        (8e-13, "J/B", "0.8 pJ/B"), (0.03, "J", "30 mJ"), (2.5e-4, "s", "250 µs"), (90.0, "s", "90 s"),
        (0.0, "W", "0 W"), (1e9, "Hz", "1 GHz"), (1e6, "J", "1 MJ"), (8.14e-4, "m^2", "814 mm²"),
        (0.5, "1", "0.5"), (15000.0, "1", "15000"), (80 * GIB, "B", "80 GiB"), (141e9, "B", "141 GB"),
        (30720e9, "B", "30720 GB"), (64e6, "B", "64 MB"), (3.35e12, "B/s", "3.35 TB/s"), (1048576.0, "1", "1048576"),
        (True, "1", "yes"), ("n7", "1", "n7"), ("$x_1$", "1", "$x_1$"),
    ],
)  # fmt: skip
def test_values_that_somebody_set(value, units, text):
    assert setting(value, units) == text


@pytest.mark.parametrize("study", STUDIES.values(), ids=str)
def test_rates_say_of_what(study):
    """No "2.98 k/s": what is counted a second has a name, and is written out below a million."""
    rates = [name for name, units in study.units.items() if units == "s-1"]
    assert rates and all(study.display_units[name] in ("tokens/s", "requests/s") for name in rates)
    assert quantity(2983.0, study.display_units[rates[0]]) == "2,983 tokens/s"
    assert quantity(14.2e6, study.display_units[rates[0]]) == "14.2 million tokens/s"
    assert study.display_units["peak_memory"] == "B"


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (1234.5, "1,234"), (63.255, "63.3"), (0.0123, "0.0123"), (math.inf, "inf")]
)
def test_plain_numbers(value, text):
    assert digits(value) == text


def test_counts_take_decimal_prefixes():
    assert prefixed(312e12, "FLOP") == "312 TFLOP"
    assert (prefixed(2e9, "B"), prefixed(0.5, "FLOP")) == ("2.00 GB", "0.500 FLOP")


def test_an_axis_has_one_unit():
    assert settings([0.9e9, 1.41e9], "Hz") == ["0.9 GHz", "1.41 GHz"]
    assert settings([80 * GIB, 141e9], "B") == ["80 GiB", "141 GB"], "memory as it is sold"
    assert settings(["n7", "n5"]) == ["n7", "n5"] and settings([], "s") == []


@pytest.mark.parametrize("capacity", [c * 1e9 for c in (16, 24, 80, 96, 141, 180, 192, 288)])
def test_capacities_of_data_sheets_are_written_as_there(capacity):
    """In double and in the single precision of results."""
    assert setting(capacity, "B") == f"{capacity / 1e9:.0f} GB"
    assert setting(float(f"{capacity:.8e}"), "B") == f"{capacity / 1e9:.0f} GB"


@given(st.floats(1e-12, 1e18), st.sampled_from(["s", "B", "B/s", "FLOP/s", "W", "J", "Hz", "V", "1"]))
def test_what_is_written_reads_back(value, units):
    """To the digits shown, in units that dse itself reads; and never with an exponent or a long tail."""
    for text, places in ((setting(value, units), 6e-4), (quantity(value, units), 6e-3)):
        number, _, unit = text.replace(",", "").replace("µ", "u").partition(" ")
        assert len(number) < 22
        counts = {"": 1.0, "T": 1e12, "G": 1e9, "M": 1e6, "P": 1e15, "E": 1e18}
        again = float(number) * counts[unit] if units == "1" else read(f"{number} {unit}", units)
        assert again == pytest.approx(value, rel=places, abs=6e-13)


@given(st.floats(0.0, 1e8))
def test_durations_read_back(value):
    seconds = {"d": 86400, "h": 3600, "min": 60, "s": 1}
    words = duration(value).replace(",", "").split()
    total = sum(int(n) * seconds[unit] for n, unit in zip(words[::2], words[1::2], strict=True))
    assert abs(total - value) <= (0.5 if value < 3600 else 60 if value < 86400 else 3600)


def test_rates_below_one_have_no_prefix():
    """80 m/s would be metres a second."""
    assert quantity(0.0815, "s-1") == "0.0815/s" and quantity(1290.0, "s-1") == "1.29 k/s"
    assert quantity(0.02, "1/USD") == "0.0200/USD"
