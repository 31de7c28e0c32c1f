"""Systems of the literature that serve, peers at equal efficiencies, and the laws of what they add to a design."""

import dataclasses

import pytest

import dse
from benchmarks.serving import peers, systems
from dse.errors import InputError
from dse.types import Infeasible


@pytest.mark.parametrize("system", systems.SYSTEMS, ids=lambda system: system.__name__)
def test_systems_of_the_literature(system):
    """Published figures within what each check states, laws in their direction."""
    checks = list(system())
    assert checks and not [f"{c.what}: {c.ours:g}, published {c.published}" for c in checks if not c.holds]


def test_peers_at_equal_efficiencies():
    """GenZ and LLM-Viewer: prefill and decode of Llama-2-7B within 10 %."""
    found = peers.compare()
    assert len(found) == 4 * len(peers.CASES)
    assert max(abs(c.difference) for c in found) < 0.10
    # Decoding differs by norms alone; a prompt of twice the tokens has more of the square that we halve.
    assert max(abs(c.difference) for c in found if c.phase == "decode") < 0.01
    short, long = (
        next(c.difference for c in found if (c.peer, c.phase, c.batch, c.prompt) == ("GenZ", "prefill", 1.0, prompt))
        for prompt in (2048.0, 4096.0)
    )
    assert long < short


def test_what_lies_far_away_leaves_room_and_costs_time():
    """Weights and cache in the host's memory: as much room as is freed, no less time; none there changes nothing."""
    asked = dict(any_option=True, tp=4, load="static", concurrency=8, prompt_tokens=8192)

    def served(**more):
        return dse.serve(dse.design("llama-2-70b", "h100", **asked, **more))

    plain, none, half, all_of_it = served(), *(served(far_cache=share) for share in (0.0, 0.5, 1.0))
    assert float(none.time_per_output_token) == pytest.approx(float(plain.time_per_output_token), rel=1e-6)
    assert float(none.concurrency_limit) == pytest.approx(float(plain.concurrency_limit), rel=1e-6)
    assert float(half.concurrency_limit) == pytest.approx(2.0 * float(plain.concurrency_limit), rel=1e-4)
    assert half.time_per_output_token < all_of_it.time_per_output_token
    full = served(far_cache=1.0, **{"far.capacity": 1e9})
    assert int(full.infeasible_reason) & Infeasible.memory  # the far memory has an end too
    beside = served(far_cache=1.0, **{"far.near_bandwidth": 1e15})
    assert beside.time_per_output_token < plain.time_per_output_token  # the device is spared its cache


def test_what_lies_far_away_costs_energy_and_money():
    """Joules by the byte that comes from there, dollars by the byte beyond what a server has; none of either near."""
    asked = dict(any_option=True, tp=4, load="static", concurrency=8, prompt_tokens=8192, output_tokens=256)
    big = {"far.capacity": 10e12, "far.bandwidth": 100e9}

    def served(**more):
        return dse.serve(dse.design("llama-2-70b", "h100", **asked, **big, **more))

    near, half, whole = (served(far_cache=share) for share in (0.0, 0.5, 1.0))
    cache = 2.0 * 2.0 * 80 * 8 * 128 * (8192 + 128)  # bytes that a token of a sequence reads
    paid = [float(one.energy_per_output_token_decode) for one in (near, half, whole)]
    assert paid[2] - paid[0] == pytest.approx(cache * 8.0 * 19e-12, rel=0.01)
    assert paid[1] - paid[0] == pytest.approx(0.5 * (paid[2] - paid[0]), rel=1e-3)
    other = {"near_bandwidth": 1e12}, {"far.read_energy": 960e-12}
    beside, drives = (served(far_cache=1.0, **leaf) for leaf in other)
    assert float(beside.energy_per_output_token_decode) - paid[0] == pytest.approx(cache * 8.0 * 11e-12, rel=0.01)
    assert drives.energy_per_output_token_decode > whole.energy_per_output_token_decode
    host = float(dse.design("llama-2-70b", "h100").system.host.capacity)
    plain = dse.serve(dse.design("llama-2-70b", "h100", **asked))
    within = dse.serve(dse.design("llama-2-70b", "h100", **asked, **{"far.capacity": host}))
    assert float(within.capital_cost) == float(plain.capital_cost)
    added = 4.0 * 2e-9 * (10e12 - host)
    assert float(whole.capital_cost) - float(plain.capital_cost) == pytest.approx(added, rel=1e-3)
    assert whole.cost_per_token_servers > plain.cost_per_token_servers


def test_a_hybrid_moves_only_what_it_keeps():
    """Far away, a cache of states and few keys costs far less than one of keys alone, as it does on the device."""
    asked = dict(any_option=True, load="static", concurrency=32, prompt_tokens=16384, far_cache=1.0)
    hybrid, plain = (dse.serve(dse.design(name, "h100", **asked)) for name in ("nemotron-nano-9b-v2", "llama-3-8b"))
    # Keys of 4 layers for 32; 27 states of 2.6 MB, read and written.
    ratio = (4 * 4096.0 * 16896.0 + 27 * 2 * 2.7e6) / (32 * 4096.0 * 16896.0)
    assert float(hybrid.time_per_output_token / plain.time_per_output_token) == pytest.approx(ratio, rel=0.1)


def test_leaves_of_models_that_have_them_alone():
    with pytest.raises(InputError, match="layers with a state"):
        dse.design("llama-3-8b", "h100", state_bytes=2.0)
    with pytest.raises(InputError, match="sparse attention"):
        dse.design("llama-3-8b", "h100", attended=2048.0)
    shape = dse.design("glm-5", "h100", attended=1024.0).workload
    assert shape.sparse.attended == 1024.0 and dataclasses.replace(shape, sparse=None).sparse is None
