"""Laws of what context parallelism exchanges: a ring, a gather, heads for sequence, and that inside rings."""

import dataclasses
import itertools

import pytest

import dse
from dse.designs import replace
from dse.model import lay_out, training_work
from dse.model.machine.messages import scope_time, send_all
from dse.model.machine.passes import run_passes
from dse.model.machine.rates import step_rates
from dse.model.machine.roofline import operator_times
from dse.model.parallel.layer import context_parallel
from dse.model.steps.layer import RING_LAUNCHES, small_kernels
from dse.types import ContextExchange, ContextParallel, Dimension, Infeasible, MessageKind, Scope, Window
from tests.designs import SOFTWARE, SYSTEM, WORKLOAD, make_design
from tests.programs import metrics_of

LONG = dataclasses.replace(
    WORKLOAD, tied_embeddings=0.0, learned_positions=0.0, dropout=0.0, seq_len=65536.0, n_kv_heads=8.0, global_batch=8.0
)
FLASH = dataclasses.replace(SOFTWARE, attention=1.0)
FAST = dataclasses.replace(SYSTEM, scale_up=dataclasses.replace(SYSTEM.scale_up, bandwidth=1e18, latency=0.0))


def design(kind=None, a2a_size=2.0, system=SYSTEM, **mapping):
    """A design of eight ranks that share a long sequence."""
    made = make_design(LONG, system, FLASH, **{"cp": 8, "recompute": 2, **mapping})
    if kind is None:
        return made
    exchange = ContextParallel(cp_comm_type=float(kind), a2a_size=a2a_size)
    return dataclasses.replace(made, mapping=dataclasses.replace(made.mapping, context=exchange))


def sent(made) -> float:
    """Bytes that a rank sends in one layer's forward."""
    total = 0.0
    for message in training_work(made, lay_out(made)).messages:
        if message.dimension is not Dimension.context or not message.repeated:
            continue
        alone = 1.0 if message.kind is MessageKind.send else (message.group.size - 1.0) / message.group.size
        total += float(message.size * message.times * alone)
    return total


def named(made, name):
    """The operator of this name of a layer."""
    return next(o for o in training_work(made, lay_out(made)).layer if o.name == name)


def without_sums(made) -> float:
    """Step time of a design with full recompute but for what a ring adds up."""
    forward, backward, _ = operator_times(named(made, "ring_sums"), step_rates(made))
    micro_batches = LONG.global_batch * LONG.n_layers
    return float(metrics_of(made).step_time) - micro_batches * float(2.0 * forward + backward)


@pytest.mark.parametrize("kind", [ContextExchange.p2p, ContextExchange.a2a_p2p])
def test_a_ring_by_name_is_a_ring(kind):
    """As a group of one that exchanges heads inside rings is."""
    plain, named = metrics_of(design()), metrics_of(design(kind, a2a_size=1.0))
    for name in ("step_time", "peak_memory", "energy_per_step"):
        assert float(getattr(plain, name)) == pytest.approx(float(getattr(named, name)), rel=1e-6)


def test_volumes():
    """Ring and gather: ``(c - 1)`` shares of keys and values; heads: ``(c - 1) / c`` of a share of all four tensors.

    So the more ranks, the less the second sends (Jacobs et al. 2023, section 3.2).
    """
    tokens, kv, queries = 65536.0 / 8.0, 2.0 * 8.0 * 128.0, 32.0 * 128.0
    assert sent(design()) == pytest.approx(7.0 * 2.0 * tokens * kv)
    assert sent(design(ContextExchange.all_gather)) == pytest.approx(7.0 * 2.0 * tokens * kv)
    assert sent(design(ContextExchange.a2a)) == pytest.approx(7.0 / 8.0 * 2.0 * tokens * (2.0 * queries + kv))
    # Two exchange heads, so a ring of four passes blocks of twice the tokens and half the heads.
    mixed = 0.5 * 2.0 * tokens * (2.0 * queries + kv) + 3.0 * 2.0 * tokens * kv
    assert sent(design(ContextExchange.a2a_p2p)) == pytest.approx(mixed)


def test_all_do_the_same_work():
    """Over free links steps differ by the rate of longer kernels and the sums of rings; what all keep is the same."""
    made = [design(kind, system=FAST) for kind in ContextExchange]
    rows, times = [metrics_of(one) for one in made], [without_sums(one) for one in made]
    for row, time in zip(rows[1:], times[1:], strict=True):
        assert row.step_time < rows[0].step_time and 0.95 < time / times[0] < 1.0 + 1e-6
        assert float(row.peak_memory) == pytest.approx(float(rows[0].peak_memory), rel=1e-6)
        assert float(row.model_flops) == float(rows[0].model_flops)


def test_heads_limit_the_exchange_and_rings_take_the_rest():
    """tp x cp beyond the heads cannot exchange them; a part of cp can."""
    whole, part = (metrics_of(design(kind, tp=8)) for kind in (ContextExchange.a2a, ContextExchange.a2a_p2p))
    assert int(whole.infeasible_reason) & Infeasible.heads_not_divisible
    assert not int(part.infeasible_reason) & Infeasible.heads_not_divisible
    assert int(metrics_of(design(ContextExchange.a2a_p2p, a2a_size=3.0)).infeasible_reason)


def test_what_is_exchanged_is_exchanged_again_where_the_core_runs_again():
    """Selective recompute runs the core of attention again, whose exchange is inside it; full recompute all of it."""
    none, selective, full = (metrics_of(design(ContextExchange.a2a, recompute=code)) for code in (0, 1, 2))
    times = [float(one.step_time_context_parallel) for one in (none, selective, full)]
    assert times[1] == pytest.approx(times[2], rel=1e-5) and times[1] == pytest.approx(1.5 * times[0], rel=1e-5)
    for code, again in ((0, 0.0), (1, 1.0), (2, 1.0)):  # energy counts them by this
        made = design(ContextExchange.a2a, recompute=code)
        layout = lay_out(made)
        sent = [m for m in training_work(made, layout).messages if m.dimension is Dimension.context and m.repeated]
        assert sent and all(float(layout.recompute.sends(m.dimension)) == again for m in sent)


# A ring, step by step

UNUSED = {"system.scale_up.processor_usage": 0.0, "system.scale_out.processor_usage": 0.0}
WHOLE = {**UNUSED, "software.cp_overlap": 1.0}


def layer(made):
    """What messages of context add to a layer's passes, the attention of these, and the messages on the wire."""
    layout, work = lay_out(made), training_work(made, lay_out(made))
    passes = run_passes(work.layer, step_rates(made), made.workload.backward)
    own = [m for m in work.messages if m.dimension is Dimension.context]
    sent = send_all(own, made.software, made.system)
    wire = {window: float(scope_time(sent, Scope.layer, window)) for window in Window}
    return context_parallel(made, layout, sent, passes), passes, wire


def round_the_ring(ranks: int, attention: float, exchange: float) -> float:
    """Seconds of a pass, event by event: each step waits for its block, which the one before it passed on."""
    there = done = 0.0  # when the block of a step has arrived, and when the step before it is done
    for _ in range(ranks):
        start = max(there, done)
        there, done = start + exchange, start + attention  # the next block is sent while this one is worked on
    return done


@pytest.mark.parametrize("ranks", [2, 4, 32])
@pytest.mark.parametrize("bandwidth", [1e9, 3e10, 3e12])
def test_a_ring_hides_what_its_steps_leave_time_for(ranks, bandwidth):
    made = replace(design(cp=ranks), {**WHOLE, "system.scale_up.bandwidth": bandwidth, "system.scale_up.domain": 64.0})
    exposed, passes, wire = layer(made)
    for found, attention, window in (
        (exposed.forward, passes.core_forward, Window.attention_forward),
        (exposed.backward, passes.core_backward, Window.attention_backward),
    ):
        each = float(attention) / ranks
        expected = round_the_ring(ranks, each, wire[window] / (ranks - 1)) - ranks * each
        assert float(found) == pytest.approx(expected, rel=1e-4, abs=1e-7)


def test_a_ring_hides_behind_long_attention_and_a_gather_never():
    """However long it takes; and a stack that cannot send beside attention hides nothing."""
    slow = {**WHOLE, "software.flash_slowdown": 1e4}
    assert float(metrics_of(replace(design(), slow)).step_time_context_parallel) == 0.0
    _, _, wire = layer(design())
    exposed, _, _ = layer(replace(design(), {**slow, "software.cp_overlap": 0.0}))
    assert float(exposed.forward) == pytest.approx(wire[Window.attention_forward])
    for values in (UNUSED, slow):
        exposed, _, wire = layer(replace(design(ContextExchange.all_gather), values))
        assert float(exposed.forward) == pytest.approx(wire[Window.before_attention]) and float(exposed.forward) > 0.0


@pytest.mark.parametrize("kind", [None, ContextExchange.all_gather, ContextExchange.a2a])
def test_more_ranks_have_less_attention_each(kind):
    """A share of the FLOPs; no less of the time than that, and more by shorter kernels and sums of a ring alone."""
    found = []
    for ranks in (1, 2, 4, 8):
        made = design(kind, cp=ranks)
        flops = float(named(made, "flash_attention").forward.flops)
        found.append((ranks * flops, float(layer(made)[1].core_forward)))
    (flops, one), *others = found
    for ranks, (more, time) in zip((2, 4, 8), others, strict=True):
        assert more == pytest.approx(flops)
        assert 1.0 - 1e-5 <= ranks * time / one < 1.6
        if kind is not None:
            assert ranks * time / one < 1.01
    assert all(b[1] < a[1] for a, b in itertools.pairwise(found))


def test_sums_of_a_ring_pass_through_memory():
    """Every step but the first reads two and writes one: outputs; gradients of queries, and of its keys and values.

    Its kernel reads the queries again, and writes outputs of its own. What is there at once has no sums.
    """
    queries, blocks = 2.0 * 32.0 * 8192.0 * 128.0, 2.0 * 8.0 * 8192.0 * 128.0
    sums = named(design(), "ring_sums")
    assert float(sums.present) == 1.0 and float(sums.forward.bytes) == pytest.approx(7.0 * 3.0 * queries)
    assert float(sums.input_gradient.bytes) == pytest.approx(7.0 * 3.0 * (queries + 2.0 * blocks))
    ring, once = (named(design(kind), "flash_attention") for kind in (None, ContextExchange.all_gather))
    assert float(ring.forward.bytes - once.forward.bytes) == pytest.approx(7.0 * 2.0 * queries)
    for made in (design(cp=1), design(ContextExchange.all_gather), design(ContextExchange.a2a)):
        assert float(named(made, "ring_sums").present) == 0.0
    # Two exchange heads: a ring of four, on twice the queries of half the heads.
    mixed = named(design(ContextExchange.a2a_p2p), "ring_sums")
    assert float(mixed.forward.bytes) == pytest.approx(3.0 * 3.0 * queries)


def test_steps_of_a_ring_launch_their_kernels():
    """Each but the first so many more; what is there at once has none, and one rank what it had."""
    made = [design(kind) for kind in (None, *ContextExchange)]
    plain, floor = made[0].software.small_kernel_time, made[0].system.accelerator.kernels.kernel_floor
    found = [float(small_kernels(one, lay_out(one)) - plain) / (RING_LAUNCHES * floor) for one in made]
    assert found == pytest.approx([7.0, 7.0, 0.0, 0.0, 3.0])  # by name, a gather, heads, rings of four inside them
    assert float(small_kernels(design(cp=1), lay_out(design(cp=1)))) == plain


def test_long_sequences_are_bound_by_attention():
    """Attention grows with the square of the tokens, all else with the tokens."""
    shares = []
    for tokens in (16384.0, 131072.0, 1048576.0):
        made = replace(design(), {**WHOLE, "workload.seq_len": tokens, "workload.window": tokens})
        _, passes, _ = layer(made)
        core = 16.0 * 8.0 * float(passes.core_forward + passes.core_backward + passes.core_forward)  # full recompute
        shares.append(core / float(metrics_of(made).step_time))
    assert shares[0] < shares[1] < shares[2] < 1.0 and shares[2] > 0.95


@pytest.mark.parametrize("kind", [None, *ContextExchange])
def test_faster_links_are_never_slower(kind):
    made = replace(design(kind, cp=16), {"software.cp_overlap": 1.0})
    rates = [{"system.scale_out.bandwidth": bandwidth} for bandwidth in (1e9, 1e10, 3e10, 1e11, 1e12)]
    times = [float(metrics_of(replace(made, rate)).step_time) for rate in rates]
    assert all(b <= a * (1.0 + 1e-6) for a, b in itertools.pairwise(times)) and times[-1] < times[0]


def test_a_kernel_of_context_parallelism_is_its_alone():
    """It takes as long as the usual one, so many times slower, does; one rank has the usual one."""
    values = {"software.cp_flash_slowdown": 1.6, "software.cp_overlap": 1.0}
    alone = design(cp=1)
    assert metrics_of(replace(alone, values)).step_time == metrics_of(alone).step_time
    shared = replace(design(), {"software.cp_overlap": 1.0})
    own, usual = (
        metrics_of(replace(shared, {name: 1.6})) for name in ("software.cp_flash_slowdown", "software.flash_slowdown")
    )
    assert float(own.step_time) == pytest.approx(float(usual.step_time))
    assert float(own.step_time) > float(metrics_of(shared).step_time)


def test_a_ring_of_a_million_tokens_wins_where_each_hop_has_a_nic_of_its_own():
    """Over tp = 8 each device sends its part of a block by its own NIC, hidden behind attention, and a gather waits.

    At tp = 1 one NIC of a node carries the whole block from node to node, where a gather has all eight.
    """

    def exposed(tp, kind):
        made = dse.design(
            "llama-3-8b",
            "eos",
            "megatron-bridge",
            tp=tp,
            cp=512 // tp,
            seq_len=2**20,
            global_batch=1,
            micro_batch=1,
            recompute="full",
            cp_comm_type=kind,
        )
        found = metrics_of(made)
        return float(found.step_time_context_parallel), float(found.step_time)

    wide, narrow = ([exposed(tp, kind) for kind in ("p2p", "all-gather")] for tp in (8, 1))
    assert wide[0][0] < 0.1 * wide[1][0] and wide[0][1] < wide[1][1]
    block = 2.0 * 2**20 / 512 * 2.0 * 1024.0  # keys and values of 8 heads in 16 bits
    crossing = 511 * block / 50e9 * 32  # forward or recompute, at the rate of a NIC; the backward sends twice as much
    assert narrow[0][1] > 4.0 * crossing and narrow[0][1] > narrow[1][1]
