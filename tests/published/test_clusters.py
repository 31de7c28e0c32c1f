"""Claims of studies on whole clusters: Frontier, MegaScale, and slow links between clusters (Holmes)."""

from __future__ import annotations

import pytest

from calibration import cdna2
from docs.make.studies import training

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("model", training.FRONTIER)
def test_the_best_mapping_on_frontier_reaches_what_was_published(model):
    """Dash et al. 2023 (arXiv 2312.12705): shares of a die's 191.5 TFLOP/s, with checkpoints of activations."""
    published = cdna2.steps()[model].utilisation
    assert published <= training.frontier(model) <= 1.2 * published


@pytest.fixture(scope="module")
def megascale():
    return training.megascale()


def test_megascale_reaches_its_utilisation(megascale):
    """55.2 % of peak on 12,288 GPUs."""
    assert megascale["all"] == pytest.approx(0.552, abs=0.02)


def test_each_part_of_megascale_gains(megascale):
    """Without chunks that hide by themselves it would be 51.5 %, where its replicas wait for a tenth of the step."""
    lost = {name: megascale["all"] - megascale[name] for name in training.CO_DESIGNED}
    assert all(points > 0.004 for points in lost.values())
    assert lost["dp_by_chunk"] == pytest.approx(0.033, abs=0.01)


def test_megascale_is_faster_than_megatron(megascale):
    """1.34 times Megatron-LM's 41.2 %."""
    assert megascale["all"] / megascale["baseline"] == pytest.approx(1.34, abs=0.07)
    assert megascale["all"] / megascale["without waits"] == pytest.approx(1.18, abs=0.01)  # what it changes itself


def test_a_pipeline_across_slow_links_loses_less_than_replicas():
    """Holmes (Yang et al. 2023): two clusters of 256, whose NICs are 8 or 32 times as fast inside as between them."""
    lost = training.holmes()  # by mapping and ratio, of stages across and of replicas across
    assert (lost >= -1e-4).all() and (lost[:, :, 1] > 0.0).all()
    assert (lost[:, :, 0] < lost[:, :, 1]).all()
