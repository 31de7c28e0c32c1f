"""Laws of what context parallelism exchanges: a ring, a gather, heads for sequence, and that inside rings."""

import dataclasses

import pytest

from dse.model.layout import lay_out
from dse.model.machine.messages import sent_again
from dse.model.work.training import training_work
from dse.types import ContextExchange, ContextParallel, Dimension, Infeasible, MessageKind
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
    """Over free links steps differ by the rate of longer kernels alone; what all keep is the same."""
    rows = [metrics_of(design(kind, system=FAST)) for kind in ContextExchange]
    for row in rows[1:]:
        assert 0.95 < float(row.step_time) / float(rows[0].step_time) < 1.0 + 1e-6
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
        assert sent and all(float(sent_again(m, layout)) == again for m in sent)
