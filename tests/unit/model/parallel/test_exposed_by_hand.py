"""Messages of a layer that nothing hides, and those of them on links between domains, by pass."""

from __future__ import annotations

import dataclasses

import pytest

from dse.model import lay_out, training_work
from dse.model.machine.messages import send_all
from dse.model.machine.passes import Passes
from dse.model.parallel.layer import ExposedTime, context_parallel, expert_parallel, tensor_parallel
from dse.types import Dimension, ExpertKernels, ExpertMapping, Experts
from tests.designs import SOFTWARE, WORKLOAD, make_design

#: A layer without work, behind which nothing hides.
IDLE = Passes(*(0.0 for _ in Passes._fields))
MIXTURE = dataclasses.replace(WORKLOAD, experts=Experts(n_experts=16.0, top_k=2.0, expert_ffn=1024.0))
KERNELS = dataclasses.replace(SOFTWARE, experts=ExpertKernels())


def design(dimension, members):
    """A design with a group of a dimension; a domain has 8 devices."""
    if dimension is Dimension.tensor:
        return make_design(tp=members)
    if dimension is Dimension.context:
        return make_design(cp=members)
    plain = make_design(MIXTURE, software=KERNELS, dp=members)
    mapping = dataclasses.replace(plain.mapping, experts=ExpertMapping(ep=float(members)))
    return dataclasses.replace(plain, mapping=mapping)


@pytest.mark.parametrize(("members", "leaves"), [(4, False), (8, False), (16, True)])
@pytest.mark.parametrize(
    ("dimension", "exposed_by"),
    [
        (Dimension.tensor, tensor_parallel), (Dimension.context, context_parallel),
        (Dimension.expert, expert_parallel),
    ],
    ids=lambda value: getattr(value, "name", ""),
)  # fmt: skip
def test_all_messages_of_a_group_are_on_the_links_that_it_spans(dimension, exposed_by, members, leaves):
    """Of 16 devices in domains of 8 all seconds are on links between domains, of 8 none; each second counts once."""
    made = design(dimension, members)
    layout = lay_out(made)
    messages = send_all(training_work(made, layout).messages, made.software, made.system)
    exposed = ExposedTime(*map(float, exposed_by(made, layout, messages, IDLE)))
    sent = sum(float(s.time) for s in messages if s.message.dimension is dimension and "layer" in s.message.scope.name)
    assert exposed.forward > 0.0 and exposed.backward > 0.0
    assert exposed.total == pytest.approx(sent)
    across = (exposed.across_forward, exposed.across_backward)
    assert across == pytest.approx((exposed.forward, exposed.backward) if leaves else (0.0, 0.0))


def test_a_pass_that_is_repeated_sends_its_messages_again():
    """A backward of 3 s with one repeat of a forward of 2 s: 5 s, of which 1 and 2 s between domains."""
    exposed = ExposedTime(2.0, 3.0, 2.0, 1.0)
    assert exposed.with_repeats(1.0) == ExposedTime(2.0, 5.0, 2.0, 3.0)
    assert exposed.with_repeats(1.0, 0.0) == ExposedTime(2.0, 5.0, 2.0, 1.0)
    assert exposed.with_repeats(2.0).total == 2.0 + 7.0


@pytest.mark.parametrize(
    ("members", "requested", "forward", "backward"),
    [
        # The stack hides 0.8 of the messages of a forward within a domain, at 5 % of the compute: 1 - 0.95 x 0.8. Of a
        # backward it hides 0.5 by default, or as much as of a forward.
        (8, 1.0, 0.24, 0.24),
        (8, 0.5, 1.0 - 0.95 * 0.4, 1.0 - 0.95 * 0.5),
        (8, 0.0, 1.0, 1.0 - 0.95 * 0.5),
        # Beyond a domain 0.2 of them.
        (16, 1.0, 1.0 - 0.95 * 0.2, 1.0 - 0.95 * 0.5),
        (16, 0.5, 1.0 - 0.95 * 0.1, 1.0 - 0.95 * 0.5),
    ],
)
def test_long_products_hide_a_share_of_the_messages_of_tensor_parallelism(members, requested, forward, backward):
    software = dataclasses.replace(SOFTWARE, tp_overlap=0.8, tp_overlap_across=0.2, backward_tp_overlap=0.5)
    made = make_design(tp=members, overlap_tp=requested, software=software)
    layout = lay_out(made)
    messages = send_all(training_work(made, layout).messages, made.software, made.system)
    whole, exposed = (
        tensor_parallel(made, layout, messages, IDLE._replace(**dict.fromkeys(windows, 1e6)))
        for windows in ((), ("matrix_forward", "matrix_input_gradient", "matrix_weight_gradient"))
    )
    assert float(exposed.forward / whole.forward) == pytest.approx(forward)
    assert float(exposed.backward / whole.backward) == pytest.approx(backward)


@pytest.mark.parametrize(
    ("members", "pp", "requested", "hidden"),
    [
        # Of 16 micro-batches one fills the device: 15/16 of the passes have an opposite one.
        (4, 1, 1.0, 15 / 16),
        (4, 1, 0.5, 0.5 * 15 / 16),
        (16, 1, 0.5, 0.5 * 15 / 16),
        # Left open it is what the stack does in pipelines between domains: here half of it, behind 1 - 4/33 of the
        # passes, 2 x 2 chunks of 16 x 2 + 2 - 1.
        (4, 2, -1.0, 0.0),
        (16, 1, -1.0, 0.0),
        (16, 2, -1.0, 0.5 * 29 / 33),
    ],
)
def test_paired_passes_hide_a_share_of_the_messages_of_experts(members, pp, requested, hidden):
    """At 15 % of the compute, which the exchange takes."""
    whole, exposed = exchanges(members, pp, requested, IDLE, Passes(*(1e6 for _ in Passes._fields)))
    for part in ("forward", "backward"):
        share = float(getattr(exposed, part) / getattr(whole, part))
        assert share == pytest.approx(1.0 - (1.0 - 0.15) * hidden), part


def exchanges(members, pp, requested, *passes):
    """Return the exposed messages of 16 micro-batches beside each of ``passes``, at 15 % of the compute."""
    kernels = ExpertKernels(overlap_across=0.5, exchange_cores=0.15)
    workload = dataclasses.replace(MIXTURE, global_batch=16.0 * members)
    software = dataclasses.replace(SOFTWARE, experts=kernels)
    plain = make_design(workload, software=software, dp=members, pp=pp, virtual_stages=pp)
    mapping = dataclasses.replace(plain.mapping, experts=ExpertMapping(ep=float(members), overlap_ep=requested))
    made = dataclasses.replace(plain, mapping=mapping)
    layout = lay_out(made)
    messages = send_all(training_work(made, layout).messages, made.software, made.system)
    return [expert_parallel(made, layout, messages, seconds) for seconds in passes]


@pytest.mark.parametrize("part", ["forward", "input_gradient", "weight_gradient", "recompute"])
def test_the_compute_of_either_pass_hides_the_messages_of_both(part):
    """1 us of any of it hides 0.85 us of them, since the exchange takes 15 % of the cores."""
    whole, exposed = exchanges(4, 1, 1.0, IDLE, IDLE._replace(**{part: 1e-6}))
    assert float(whole.forward) > 1e-6 and float(whole.forward) == pytest.approx(float(whole.backward))
    assert float(whole.total - exposed.total) == pytest.approx(0.85e-6, rel=1e-3)
    assert float(exposed.forward) == pytest.approx(float(exposed.backward))


@pytest.mark.parametrize("members", [2, 4, 8])
def test_all_steps_of_a_ring_but_one_hide_its_messages(members):
    """Of 1 us of attention (members - 1) / members, at 5 % of the compute; longer attention hides 0.6 of them."""
    made = make_design(cp=members, software=dataclasses.replace(SOFTWARE, cp_overlap=0.6))
    layout = lay_out(made)
    messages = send_all(training_work(made, layout).messages, made.software, made.system)
    whole, brief, long = (
        context_parallel(made, layout, messages, IDLE._replace(core_forward=seconds, core_backward=seconds))
        for seconds in (0.0, 1e-6, 1e6)
    )
    for part in ("forward", "backward"):
        sent = float(getattr(whole, part))
        assert sent > 2e-6
        hidden = 0.95 * 1e-6 * (members - 1) / members
        assert float(getattr(brief, part)) == pytest.approx(sent - hidden, abs=0.02 * hidden)
        assert float(getattr(long, part)) == pytest.approx((1.0 - 0.95 * 0.6) * sent)
