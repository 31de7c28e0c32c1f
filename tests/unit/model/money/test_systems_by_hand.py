"""What a system costs in numbers, from ports and links of one device up; every sum is worked out in comments."""

from __future__ import annotations

import dataclasses

import pytest

from dse.model.money.system import Capital, capital, fabric, scale_out_price, scale_up_price, spending, tree_levels
from dse.types import Links, Pods, Prices
from tests.designs import SCALE_OUT, SCALE_UP, SYSTEM

GB = 1e-9  # USD/(B/s) of a USD/(GB/s)

PRICES = Prices(
    server=9000.0,
    nic_price=30 * GB,
    switch=12 * GB,
    transceiver=16 * GB,
    cable=4 * GB,
    local_switch=3 * GB,
    optical_share=0.25,
    radix=64.0,
    facility=10.0,
    lifetime=1e8,
    facility_lifetime=4e8,
    in_use=0.5,
    electricity=2e-8,
    maintenance=1e-9,
)


def system(devices, pods=None, **scale_up):
    """100 GB/s in a domain, 50 GB/s out of it."""
    up = dataclasses.replace(SCALE_UP, **dict(bandwidth=100e9) | scale_up)
    out = dataclasses.replace(SCALE_OUT, bandwidth=50e9, pods=pods)
    return dataclasses.replace(SYSTEM, scale_up=up, scale_out=out, n_devices=devices)


def test_levels_of_a_tree_of_eight_ports():
    """2 x 4^l devices: 8, 32, 128."""
    assert [float(tree_levels(n, 8.0)) for n in (8.0, 9.0, 32.0, 33.0, 128.0)] == pytest.approx([1, 2, 2, 3, 3])


@pytest.mark.parametrize(
    ("devices", "pods", "found"),
    [
        # A tree of l levels: a link a level and device, the lowest of copper; its ends are 2 l, one of them the card's.
        (64.0, None, (1.0, 1.0, 0.0)),
        (2048.0, None, (3.0, 1.0, 1.0)),
        (65536.0, None, (5.0, 1.0, 2.0)),
        # Pods of two levels at a quarter of the bandwidth above: 1 + 1/4 links of light, 1 + 2 x 1.25 ports.
        (65536.0, Pods(size=2048.0, oversubscription=4.0), (3.5, 1.0, 1.25)),
        # Pods of one switch: of two links of light each has a quarter.
        (65536.0, Pods(size=64.0, oversubscription=4.0), (2.0, 1.0, 0.5)),
        (2048.0, Pods(size=2048.0, oversubscription=4.0), (3.0, 1.0, 1.0)),  # one pod
        # Two pods of two levels, joined by the upper one: 1/4 link.
        (2048.0, Pods(size=1024.0, oversubscription=4.0), (1.5, 1.0, 0.25)),
        # A dragonfly: the device's link, one in the group (two ports), half of a global one (one port).
        (65536.0, Pods(size=2048.0, detour=2.0), (4.0, 2.0, 0.5)),
        (65536.0, Pods(size=2048.0, detour=2.0, oversubscription=2.0), (3.5, 2.0, 0.25)),
    ],
)
def test_ports_and_links_of_a_device(devices, pods, found):
    assert tuple(map(float, fabric(system(devices, pods).scale_out, devices, 64.0))) == pytest.approx(found)


@pytest.mark.parametrize(
    ("devices", "pods", "each"),
    [
        # USD for a GB/s: card 30, ports 5 x 12, links 3 x 4, and two transceivers of 16 at the ends of both of light.
        (65536.0, None, 30 + 60 + 12 + 64),
        (64.0, None, 30 + 12 + 4),  # one switch, copper alone
        (65536.0, Pods(size=2048.0, oversubscription=4.0), 30 + 42 + 9 + 40),
        (65536.0, Pods(size=2048.0, detour=2.0), 30 + 48 + 10 + 16),
        (8.0, None, 0),  # one domain
    ],
)
def test_the_network_out_of_a_domain(devices, pods, each):
    """50 GB/s a device."""
    assert float(scale_out_price(system(devices, pods), PRICES)) == pytest.approx(50.0 * each)


@pytest.mark.parametrize(
    ("network", "each"),
    [
        ({}, 3.0),  # a port of the switch
        (dict(domain=2.0), 3.0),
        (dict(mesh=1.0), 2.0),  # half of a cable: the other end belongs to the other device
        # Half of a cable; a quarter of the links is of light, with a transceiver at the device's own end.
        (dict(links=Links(topology=0.0, per_device=6.0)), 2.0 + 4.0),
        (dict(domain=1.0), 0.0),
    ],
)
def test_the_network_in_a_domain(network, each):
    """100 GB/s a device."""
    assert float(scale_up_price(system(64.0, **network), PRICES)) == pytest.approx(100.0 * each)


def test_what_is_bought():
    """A device of 20,000 USD that draws 1 kW, its share of a server, 300 and 2,300 USD of networks, 10 USD a watt."""
    paid = capital(system(64.0), PRICES, 20000.0, 1000.0)
    assert tuple(map(float, paid)) == pytest.approx((20000.0, 9000.0, 300.0, 2300.0, 10000.0))
    assert float(paid.total) == pytest.approx(41600.0) and float(paid.computers) == pytest.approx(31600.0)


def test_what_is_spent():
    """Ten devices, used for half of 1e8 s: 10 / 0.5e8 = 2e-7 of their price a second; the facility over 4e8 s: 0.5e-7.

    Maintenance: 1e-9 of 31,600 USD a second, ten devices, used for half of the time: 6.32e-4. 12 kW at 2e-8 USD/J.
    """
    spent = spending(Capital(20000.0, 9000.0, 300.0, 2300.0, 10000.0), PRICES, 10.0, 12000.0)
    parts = (4e-3, 1.8e-3, 6e-5, 4.6e-4, 5e-4, 6.32e-4, 2.4e-4)
    assert tuple(map(float, spent)) == pytest.approx(parts)
    assert float(spent.total) == pytest.approx(sum(parts))
