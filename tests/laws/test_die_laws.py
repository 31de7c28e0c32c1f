"""Laws of accelerators of several dies: bytes that cross between them, area, and what is designed once."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import pytest
from hypothesis import given, strategies as st

import dse
from dse import types
from dse.designs import catalog
from dse.doors.evaluation import bounds
from dse.model.machine import technology
from dse.model.machine.die_links import crossings, served_bytes
from dse.model.money.device import manufacture, parts_of
from dse.model.money.die import die_yield
from dse.sweep.results.chip_limits import limit_notes
from dse.types import Fab, OperatorKind, Work

MM2 = 1e-6
FREE = {"chip.die_link_density": 1e24, "chip.die_link_energy": 0.0, "chip.die_link_latency": 0.0}
DIES = st.floats(1.0, 64.0)
SIZES = st.integers(1, 1 << 15).map(float)


@given(few=DIES, more=DIES, rows=SIZES, columns=SIZES, batch=st.integers(1, 64), kind=st.sampled_from(OperatorKind))
def test_more_dies_never_lower_the_bytes_that_cross(few, more, rows, columns, batch, kind):
    few, more = sorted((few, more))
    work = Work(1.0, 1.0, rows, columns, 1.0, float(batch))
    one, other = (float(crossings(dies) * served_bytes(kind, work, dies)) for dies in (few, more))
    assert one <= other * (1.0 + 1e-5) and one >= (few - 1.0) / few * (1.0 - 1e-5) - 1e-6


def test_four_dies_cross_one_edge_and_share_a_square_product_as_a_grid():
    assert float(crossings(1.0)) == 0.0
    assert [float(crossings(n)) for n in (2.0, 4.0, 16.0)] == pytest.approx([0.5, 1.0, 2.5])
    square, thin = Work(1.0, 1.0, 4096.0, 4096.0), Work(1.0, 1.0, 1.0, 4096.0)
    assert float(served_bytes(OperatorKind.matrix, square, 4.0)) == pytest.approx(2.0)
    assert float(served_bytes(OperatorKind.matrix, thin, 4.0)) == 1.0  # weights of a decoded token are read once
    assert served_bytes(OperatorKind.vector, square, 4.0) == 1.0


def _step(**chip):
    mapping = dict(n_devices=8, tp=2, dp=4, micro_batch=1, global_batch=64, precision="bf16")
    return dse.design("llama-3-8b", "gpu", **mapping, **chip)


@pytest.mark.parametrize("dies", [2.0, 4.0, 16.0])
def test_free_links_are_no_links(dies):
    one, several = (dse.evaluate(_step(**{"made.chiplets": n}, **FREE)) for n in (1.0, dies))
    for metric in ("step_time", "energy_per_step", "peak_power"):
        assert float(getattr(several, metric)) == pytest.approx(float(getattr(one, metric)), rel=1e-6)


def test_links_take_energy_by_their_crossings_and_time_where_they_are_thin():
    one, two, four = (dse.evaluate(_step(**{"made.chiplets": n})) for n in (1.0, 2.0, 4.0))
    assert float(one.energy_per_step) < float(two.energy_per_step) < float(four.energy_per_step)
    assert float(four.energy_per_step / one.energy_per_step) < 1.05
    thin = _step(**{"made.chiplets": 4.0, "chip.die_link_density": "5 GB/s/mm"})
    assert float(dse.evaluate(thin).step_time) > 1.1 * float(four.step_time)
    assert float(bounds(thin).die_links) > 0.1 * float(bounds(thin).total)
    assert float(bounds(_step(**{"made.chiplets": 4.0})).die_links) == 0.0


def test_the_links_of_the_catalogue_are_those_of_its_networks():
    b200, gpu = (catalog.record(types.Accelerator, name).chip for name in ("generated-b200", "gpu"))
    hbi, ucie = (catalog.record(types.Network, name) for name in ("nv-hbi", "ucie-advanced"))
    assert b200.die_link_density * b200.die_area**0.5 == pytest.approx(hbi.bandwidth)
    assert (b200.die_link_energy, gpu.die_link_energy) == pytest.approx((hbi.energy, ucie.energy), rel=1e-6, abs=0.0)


def _made(chip=None, **dies):
    device = catalog.record(types.Accelerator, "gpu")
    chip = dataclasses.replace(device.chip, **(chip or {}))
    return dataclasses.replace(device, chip=chip, made=dataclasses.replace(device.made, **dies))


def _design(device):
    """USD of a compute die's design."""
    compute, _, _ = manufacture(parts_of(device, device.made, Fab()), device.made, Fab()).nre
    return float(compute.modules + compute.chips)


@given(die=st.floats(100.0, 800.0), more=st.floats(1.0, 400.0), dies=st.sampled_from([1.0, 2.0, 4.0]))
def test_design_grows_with_unique_area_and_not_with_repeated_cores(die, more, dies):
    def chip(cores, rest):
        return _made({"die_area": (cores + rest) * MM2, "core_area": cores / (cores + rest)}, chiplets=dies)

    die *= dies  # no die above the reticle, which would be split
    cores, rest = 0.6 * min(die, 400.0 * dies), 0.4 * min(die, 400.0 * dies)
    one, larger, wider = chip(cores, rest), chip(cores + more, rest), chip(cores, rest + more)
    links = [float(parts_of(device, device.made, Fab()).links) for device in (one, larger)]
    rate = float(one.chip.node.design_cost / Fab().design_area)
    assert _design(larger) == pytest.approx(_design(one) + 0.3 * rate * (links[1] - links[0]) / dies, rel=1e-4)
    assert _design(wider) > _design(one)


def test_four_dies_of_200_mm2_have_a_tenth_in_links_and_sixteen_four_tenths():
    chip = dataclasses.replace(_made().chip, die_area=800.0 * MM2)
    shares = [float(technology.split_area(chip, n)) / chip.die_area for n in (1.0, 2.0, 4.0, 8.0, 16.0)]
    assert shares[0] == 0.0 and shares[2] == pytest.approx(0.1, rel=0.01)
    assert shares == sorted(shares) and 0.4 < shares[-1] < 0.6


def test_cores_that_may_be_off_raise_the_yield():
    device = _made(chiplets=2.0)
    bare = dataclasses.replace(device, chip=dataclasses.replace(device.chip, spare_cores=0.0))
    with_spares, without = (
        die_yield(400.0 * MM2, one.chip.node, Fab(), parts_of(one, one.made, Fab()).redundant) for one in (device, bare)
    )
    assert float(without) < 0.7 < float(with_spares)
    rest = die_yield(400.0 * MM2, device.chip.node, Fab(), None)
    assert float(without) == pytest.approx(float(rest), rel=0.02)  # all cores must work: nearly one area


def test_what_holds_the_best_chips_is_a_line_each():
    board = catalog.record(types.Accelerator, "scd-board").chip
    assert limit_notes([None]) == []
    frugal = dataclasses.replace(board, memory=dataclasses.replace(board.memory, unit_energy=0.1 * 8e-12))
    (text,) = (note for note in limit_notes([frugal, board]) if "memory" in note)
    assert text.startswith("1 of the 2 best designs: the power for memory moves 5.57 of the 30 TB/s of its stacks")


def test_a_superconducting_board_waits_for_its_memory():
    """Little's law: data in flight fill a share of the cores' memory, one latency long."""
    board = catalog.record(types.Accelerator, "scd-board").chip

    def bandwidth(latency):
        memory = dataclasses.replace(board.memory, unit_latency=latency, unit_energy=0.0)
        return float(technology.memory_tier(dataclasses.replace(board, memory=memory)).bandwidth)

    held = board.in_flight * float(technology.core_memory(board))
    assert bandwidth(0.0) == bandwidth(30e-9) == pytest.approx(30e12)
    assert bandwidth(100e-6) == pytest.approx(held / 100e-6)
    slow, fast = (
        dse.serve(
            dse.design(
                "llama-3-70b",
                "scd-board",
                tp=8,
                concurrency=1,
                precision="bf16",
                kind="serving",
                **{"chip.memory.unit_latency": latency},
            )
        )
        for latency in (1e-6, 0.0)
    )
    layers = 80 * 4 * 1e-6  # at least four kernels a layer
    assert float(slow.time_per_output_token - fast.time_per_output_token) > layers
    assert jnp.isfinite(slow.time_per_output_token)
