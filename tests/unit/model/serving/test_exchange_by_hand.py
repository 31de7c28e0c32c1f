"""Tokens that ranks of experts exchange in serving: bytes of a token of a rank, worked out by hand in comments."""

from __future__ import annotations

import pytest

import dse
from dse.model import stage_of


def exchange(**mapping):
    """Of Mixtral, with two of eight experts a token and 4096 columns, in domains of eight devices."""
    design = dse.design("mixtral-8x7b", "h100", "vllm", kind="serving", any_option=True, **{"tp": 1, **mapping})
    found = stage_of(design).exchange
    return float(found.group.size), float(found.intra_domain), float(found.inter_domain)


#: Four ranks of whole experts, and eight of halves.
WHOLE, HALVES = dict(dp=4, ep=4, etp=1), dict(dp=8, ep=4, etp=2)

#: Bytes of a copy of 4096 columns, 2 B on either way.
COPY = 8192.0


@pytest.mark.parametrize(
    ("mapping", "ranks", "copies"),
    [
        # A copy for each of two experts, of which 3/4 leave the rank.
        (WHOLE, 4.0, 1.5),
        # Of a half of an expert the two ranks gather each other's tokens: a further share of both copies.
        (HALVES, 8.0, 1.5 + 2.0),
        (dict(dp=8, ep=2, etp=4), 8.0, 1.0 + 3 * 2.0),
        (dict(dp=8, ep=1, etp=8), 8.0, 0.0 + 7 * 1.0),
        # A copy for each rank with one of the experts: 4 (1 - (3/4)^2) = 1.75.
        (WHOLE | {"all_to_all": "by_rank"}, 4.0, 0.75 * 1.75),
        (HALVES | {"all_to_all": "by_rank"}, 8.0, 0.75 * 1.75 + 1.75),
        # A copy for each rank.
        (WHOLE | {"all_to_all": "gather"}, 4.0, 3.0),
        (HALVES | {"all_to_all": "gather"}, 8.0, 3.0 + 4.0),
        # Eight bits on the way to the experts: 1 + 2 B for 2 + 2 B.
        (HALVES | {"dispatch_precision": "fp8"}, 8.0, 0.75 * 3.5),
        # Each rank of two devices sends half of a copy; the other one of an expert has a further copy of both devices.
        (dict(tp=2, dp=4, ep=2, etp=4), 4.0, 0.5 * (1.0 + 1 * 2 * 2.0)),
    ],
)
def test_bytes_in_a_domain(mapping, ranks, copies):
    assert exchange(**mapping) == pytest.approx((ranks, COPY * copies, 0.0))


def test_bytes_between_domains():
    """Of eight ranks with 2 copies each 3 others are in the domain and 4 in the other one.

    The two further shares of sixteen ranks go to 15 others, of which 7 are in the domain.
    """
    size, intra, inter = exchange(dp=16, ep=8, etp=2)
    assert size == 16.0
    assert intra == pytest.approx(COPY * (2.0 * 3 / 8 + 2.0 * 7 / 15))
    assert inter == pytest.approx(COPY * (2.0 * 4 / 8 + 2.0 * 8 / 15))


@pytest.mark.parametrize(
    ("mapping", "devices"),
    [
        (dict(dp=16, ep=8, etp=2, all_to_all="gather"), 8),
        (dict(dp=16, ep=1, etp=16), 8),
        (dict(tp=2, dp=8, ep=1, etp=16), 8),
        (dict(dp=4, ep=4, etp=1, all_to_all="gather"), 8),
    ],
)
def test_tokens_that_go_to_all_ranks_cross_between_domains_in_a_ring_for_each_device(mapping, devices):
    """Of sixteen devices 15 copies a device, an eighth of them out of its domain; with tp 2 7 copies of two devices."""
    _, intra, inter = exchange(**mapping)
    tp, dp = mapping.get("tp", 1), mapping["dp"]
    copies = dp - 1.0
    assert intra + inter == pytest.approx(COPY * copies)
    assert inter == pytest.approx(COPY * copies / devices if tp * dp > devices else 0.0)


def test_ranks_with_all_experts_exchange_nothing():
    assert exchange(tp=8, dp=1, ep=1)[1:] == (0.0, 0.0)
