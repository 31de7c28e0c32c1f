"""What bounds a step: parts that add up, and machines short of one thing."""

from __future__ import annotations

import jax
import pytest

from dse.designs import replace
from dse.doors.evaluation import bounds
from dse.model.accounts.bounds import BoundBy, kernel_bound
from dse.model.machine.die_links import DieLinks
from dse.model.machine.rates import rates_of
from dse.types import OperatorKind, Precision, Work
from dse.views import explain
from tests.designs import ACCELERATOR, make_design, scaled
from tests.programs import by_numpy, metrics_of

bounds_of = by_numpy(bounds)

BANDWIDTH = "system.accelerator.memory.bandwidth"


def shares(design):
    found = jax.tree.map(float, bounds_of(design))
    return {name: seconds / found.total for name, seconds in found._asdict().items()}


#: Mappings, some with other software or machine: (mapping, other leaves).
CASES = [
    *(({"tp": 2, "pp": 2, "recompute": recompute}, {}) for recompute in range(4)),
    ({"tp": 8, "cp": 2, "sequence_parallel": 1, "overlap_tp": 1}, {}),
    ({"pp": 4, "dp": 2, "virtual_stages": 2, "zero_stage": 1, "overlap_dp": 1}, {}),
    ({"dp": 8, "zero_stage": 3, "micro_batch": 2}, {"system.scale_out.bandwidth": 1e8}),
    ({"tp": 2}, {"software.host_time": 1.0}),
    ({"recompute": 2}, {"software.small_kernel_time": 1e-3, "software.step_overhead": 0.1}),
    ({"recompute": 2}, {"workload.backward": 0.0, "workload.vocab": 0.0}),
    ({"dp": 8}, {"software.jitter": 0.2}),
]


@pytest.mark.parametrize(("mapping", "others"), CASES)
def test_parts_add_up_to_the_step(mapping, others):
    design = replace(make_design(**mapping), others)
    found, metrics = bounds_of(design), metrics_of(design)
    assert float(found.total) == pytest.approx(float(metrics.step_time), rel=1e-4)
    assert all(float(seconds) >= 0.0 for seconds in found)
    waits = metrics.step_time_bubble + metrics.step_time_host + metrics.step_time_offload
    waits = waits + metrics.step_time_synchronization
    assert float(found.rest) >= 0.999 * float(waits)


def test_by_operators():
    """Of one device without recompute: the seconds of explain's operators, by their bounds."""
    design = make_design()
    told, found = explain(design), bounds_of(design)
    n = design.workload.n_layers * design.workload.global_batch
    expected = dict.fromkeys(("compute", "memory", "kernel floor"), 0.0)
    for o in told.operators:
        often = n if o.section == "layer" else design.workload.global_batch
        expected[o.forward_bound] += often * o.forward_time
        expected[o.backward_bound] += often * o.backward_time
    traffic = told.metrics["step_time_optimizer"] - design.software.step_overhead
    assert float(found.compute) == pytest.approx(expected["compute"], rel=1e-4)
    assert float(found.memory) == pytest.approx(expected["memory"] + traffic, rel=1e-4)
    assert float(found.network) == 0.0


def test_what_is_scarce_binds():
    design = make_design(tp=8, dp=2)
    plain = shares(design)
    starved, rich = (shares(scaled(design, BANDWIDTH, factor)) for factor in (0.1, 4.0))
    assert starved["memory"] > plain["memory"] > rich["memory"] and starved["memory"] > 0.5
    assert shares(scaled(design, "system.scale_up.bandwidth", 0.05))["network"] > plain["network"] > 0.0
    assert shares(replace(design, {"system.accelerator.kernels.kernel_floor": 1.0}))["rest"] > 0.9


@pytest.mark.parametrize(
    ("field", "flops", "link_time", "time"),
    [
        # 1 GB at 0.85 x 2.039 TB/s is 0.58 ms, and 1e12 FLOPs at 0.7 x 19.5 TFLOP/s are 73 ms.
        ("memory", 1.0, None, 1e-3),
        ("compute", 1e12, None, 0.1),
        # Between dies 1 GB takes 0.5 ms at 0.5 ps a byte, less than in memory, and 1 ms at 1 ps.
        ("memory", 1.0, 0.5e-12, 1e-3),
        ("die_links", 1.0, 1e-12, 1e-3),
        ("compute", 1e12, 1e-12, 0.1),
        # A floor of 4 us is over half of 6 us, not of 9 us.
        ("memory", 1.0, None, 9e-6),
        ("rest", 1.0, None, 6e-6),
        ("rest", 1.0, 1e-12, 6e-6),
    ],
)
def test_a_kernel_has_one_bound(field, flops, link_time, time):
    rates = rates_of(ACCELERATOR, float(Precision.bf16))
    if link_time is not None:
        rates = rates._replace(die_links=DieLinks(4.0, link_time, 0.0, 0.0))
    bound = kernel_bound(OperatorKind.vector, [Work(flops, 1e9)], time, rates)
    expected = dict.fromkeys(BoundBy._fields, 0.0) | {field: 1.0}
    assert {name: float(share) for name, share in bound._asdict().items()} == expected
