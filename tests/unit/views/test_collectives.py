"""Bus bandwidth of collectives against message size."""

from __future__ import annotations

import numpy as np
import pytest

from dse.errors import InputError
from dse.types import MessageKind
from dse.views import plot
from dse.views.plot.collectives import KINDS, bus_bandwidth, topologies
from tests.figures import assert_drawn, assert_readable

SYSTEMS = topologies()
CASES = [(name, devices) for name in SYSTEMS for devices in (8, 256)]
GATHER, EXCHANGE = MessageKind.all_gather, MessageKind.all_to_all


def large(name: str, kind: MessageKind, devices: int) -> float:
    """Bus bandwidth of 1 GB."""
    return float(bus_bandwidth(SYSTEMS[name], kind, devices)[-1])


@pytest.fixture(scope="module")
def figure():
    return plot.collectives()


@pytest.mark.parametrize(("name", "devices"), CASES)
def test_rates_grow_with_size_up_to_the_links(name, devices):
    system = SYSTEMS[name]
    package = system.scale_up.package
    link = system.scale_up.bandwidth * (package.speedup if package else 1.0)
    for kind in (GATHER, EXCHANGE):
        rates = bus_bandwidth(system, kind, devices)
        assert (np.diff(rates) > -1e-6 * rates[:-1]).all() and 0.0 < rates[-1] <= link
    # A switch that reduces takes each byte once, for two passes of a ring.
    assert large(name, MessageKind.all_reduce, devices) <= (2.0 if system.scale_up.in_network_reduction else 1.0) * link


def test_order_of_topologies():
    """Exchanges: behind the bisection of a torus, and behind thin leaves; rings do not notice either."""
    assert large("torus (TPU v4)", EXCHANGE, 256) < 0.5 * large("torus (TPU v4)", GATHER, 256)
    for devices, slower in ((8, False), (256, True)):
        switch, tree = (large(name, EXCHANGE, devices) for name in ("switch (H100)", "tree 4:1 (H100)"))
        assert (tree < 0.5 * switch) if slower else tree == switch
    assert large("tree 4:1 (H100)", GATHER, 256) == large("switch (H100)", GATHER, 256)
    domain, cluster = (large("rack switch (GB200)", EXCHANGE, devices) for devices in (64, 256))
    assert domain > 5.0 * cluster, "a group of a rack stays on NVLink"


def test_the_figure(figure, tmp_path):
    assert_readable(figure)
    assert len(figure.axes) == 2 * len(KINDS)
    assert_drawn(plot.save(figure, tmp_path / "collectives.png"), figure)
    for axes in figure.axes[len(KINDS) - 1 :: len(KINDS)]:
        assert {text.get_text() for text in axes.texts} == set(SYSTEMS), "every line has its name at its end"


def test_systems_by_name():
    assert_readable(plot.collectives(["h100", "mi300x-cluster"], [4]))
    with pytest.raises(InputError, match="eos"):
        plot.collectives(["eoss"])
