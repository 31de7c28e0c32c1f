"""Links between the dies of a generated accelerator in numbers, worked out by hand in comments."""

from __future__ import annotations

import dataclasses
import math

import pytest

from dse import types
from dse.designs import catalog
from dse.model.machine.die_links import crossing_time, crossings, die_links, served_bytes
from dse.types import OperatorKind, Work
from tests.designs import ACCELERATOR


def made(dies, base_dies=1.0, **chip):
    """An accelerator of 400 mm2 whose dies have 100 GB/s a millimetre, 2 pJ a byte and 10 ns a crossing."""
    device = catalog.record(types.Accelerator, "gpu")
    memory = dataclasses.replace(device.chip.memory, unit_latency=100e-9)
    chip = (
        dict(
            die_area=400e-6,
            base_area=0.0,
            memory=memory,
            die_link_density=1e14,
            die_link_energy=2e-12,
            die_link_latency=10e-9,
        )
        | chip
    )
    dies = dataclasses.replace(device.made, chiplets=dies, base_chiplets=base_dies)
    return dataclasses.replace(device, chip=dataclasses.replace(device.chip, **chip), made=dies)


@pytest.mark.parametrize("dies", [2.0, 4.0, 16.0])
def test_a_quarter_of_all_bytes_crosses_the_middle_each_way(dies):
    """Half of the bytes are read on the left, half of these from memory on the right: 1/4 from right to left.

    The middle of 20 x 20 mm is 20 mm of edge, 2 TB/s: 1e12 bytes served take 0.25e12 / 2e12 = 0.125 s.
    """
    assert float(die_links(made(dies)).byte_time) * 1e12 == pytest.approx(0.125)


def test_one_die_has_no_links_and_stated_rates_include_theirs():
    assert float(die_links(made(1.0)).byte_time) == 0.0 and float(die_links(made(1.0)).byte_energy) == 0.0
    assert die_links(ACCELERATOR) is None


@pytest.mark.parametrize(
    ("dies", "mean"),
    # Two: half of the bytes cross the one edge. 2 x 2: 1/2 an axis. 3 x 3: of 0 1 2, 1 0 1, 2 1 0 the mean is 8/9 an
    # axis. 4 x 4: 20/16 an axis.
    [(1.0, 0.0), (2.0, 0.5), (4.0, 1.0), (9.0, 16.0 / 9.0), (16.0, 2.5)],
)
def test_edges_between_two_random_dies(dies, mean):
    """A byte takes 2 pJ and 10 ns for each of them, beyond the 100 ns of the memory."""
    links = die_links(made(dies))
    assert float(crossings(dies)) == pytest.approx(mean, abs=1e-6)
    assert float(links.byte_energy) * 1e12 == pytest.approx(2.0 * mean, abs=1e-6)
    assert float(links.latency) == pytest.approx(100e-9 + 10e-9 * mean)


def test_base_dies_hold_the_memory_and_the_links():
    """Four base dies of 1,600 mm2 under one compute die: 40 mm of middle, 4 TB/s; one edge a byte."""
    links = die_links(made(1.0, 4.0, base_area=1600e-6))
    assert float(links.dies) == 4.0
    assert float(links.byte_time) * 1e12 == pytest.approx(0.25 / 4.0)
    assert float(links.byte_energy) * 1e12 == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("rows", "columns", "batch", "dies", "times"),
    [
        # Stripes of rows: the 4096 rows are read once, the 1024 columns by all four: (4096 + 4 x 1024) / 5120.
        (4096.0, 1024.0, 1.0, 4.0, 1.6),
        (1024.0, 1024.0, 1.0, 4.0, 2.0),  # 2 x 2: both operands by two dies
        (1024.0, 1024.0, 4.0, 4.0, 1.0),  # four products, a die each
        (1024.0, 1024.0, 2.0, 8.0, 2.0),  # two products on four dies each
        (1.0, 4096.0, 1.0, 4.0, 1.0),  # each column by one die; the one row is nothing
    ],
)
def test_bytes_that_several_dies_read(rows, columns, batch, dies, times):
    work = Work(1.0, 3e9, rows, columns, 1.0, batch)
    for kind in (OperatorKind.matrix, OperatorKind.matrix_16, OperatorKind.grouped):
        assert float(served_bytes(kind, work, dies)) == pytest.approx(times * 3e9)
    assert float(served_bytes(OperatorKind.vector, work, dies)) == 3e9


def test_a_product_crosses_for_as_long_as_its_bytes_take():
    """1 GB of a product of 4096 x 1024 that four dies read 1.6 times: 1.6e9 / 4 / 2e12 = 0.2 ms."""
    work = Work(1.0, 1e9, 4096.0, 1024.0)
    assert float(crossing_time(OperatorKind.matrix, work, die_links(made(4.0)))) == pytest.approx(0.2e-3)
    assert float(crossing_time(OperatorKind.flash, work, die_links(made(4.0)))) == pytest.approx(0.125e-3)
    assert math.isclose(float(crossing_time(OperatorKind.flash, work, die_links(made(1.0)))), 0.0)
