"""Link energy of a step is the bytes of every message times their price, counted a second time."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from dse.designs import replace
from tests.designs import designs, make_design
from tests.oracles import links
from tests.programs import metrics_of

#: Devices of a scale-up domain; groups of powers of two tile them.
DOMAINS = [1.0, 2.0, 4.0, 8.0, 32.0, 512.0]
PRICES = st.sampled_from([0.0, 10e-12, 60e-12])


@given(
    design=designs(),
    domain=st.sampled_from(DOMAINS),
    up=PRICES,
    out=PRICES,
    scatter_gather=st.sampled_from([0.0, 1.0]),
    backward=st.sampled_from([0.0, 1.0]),
)
def test_links_are_paid_for_every_byte(design, domain, up, out, scatter_gather, backward):
    design = replace(
        design,
        {
            "system.scale_up.domain": domain,
            "system.scale_up.energy": up,
            "system.scale_out.energy": out,
            "software.scatter_gather": scatter_gather,
            "workload.backward": backward,
        },
    )
    parts = links.step_energy(design)
    assert float(metrics_of(design).energy_per_step_network) == pytest.approx(sum(parts.values()), rel=2e-5), parts


def test_a_ring_of_four_over_two_domains():
    """Two of four hops leave a domain; every device sends three quarters of an all-gather, and twice that to sum."""
    assert links.ring_bytes("all_gather", 8.0, 4) == links.ring_bytes("reduce_scatter", 8.0, 4) == 6.0
    assert links.ring_bytes("all_reduce", 8.0, 4) == 12.0
    prices = {"system.scale_up.domain": 2.0, "system.scale_up.energy": 1.0, "system.scale_out.energy": 3.0}
    found = links.rings(replace(make_design(tp=4, dp=2), prices))
    assert found == links.Rings(tensor=2.0, context=1.0, replicas=3.0, copies=1.0, stages=1.0)
