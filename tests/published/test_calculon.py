"""Calculon's own rows: step time alike, FLOPs and weights the same, and why rows are left out."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import jax
import numpy as np
import pytest

from docs.make.accuracy.calculon import calculon_section, spearman
from docs.make.accuracy.page import page
from dse.measured import Prediction, predict_cases, read_cases
from dse.measured.comparison import compare
from dse.model import lay_out
from dse.model.work import parameters
from tests.designs import work_of

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT.parent / "shared" / "reference" / "calculon_sample.csv.gz"
SOME = ROOT / "tests" / "published" / "calculon.csv"


@pytest.fixture(scope="module", params=[SAMPLE, SOME], ids=["sample", "published"])
def predictions(request) -> list[Prediction]:
    """The rows of all 2,500 where they are at hand, and of 24 of them that come with the package."""
    if not request.param.exists():
        pytest.skip(f"the full sample is not beside this checkout ({request.param.name}); 24 of its rows are tested")
    return predict_cases(read_cases(request.param))


@pytest.fixture(scope="module")
def kept(predictions) -> list[Prediction]:
    return [p for p in predictions if p.skip is None]


def number(prediction: Prediction, column: str) -> float:
    return float(prediction.case.row.get(column))


def test_step_time_ranks_and_sizes_designs_alike(kept):
    theirs = np.array([number(p, "total_time") for p in kept])
    ours = np.array([p.metrics["step_time"] for p in kept])
    assert spearman(theirs, ours) >= 0.99
    assert np.median(np.abs(ours / theirs - 1.0)) <= 0.05


def test_weights_are_the_same(kept):
    for p in kept:
        w, m = p.design.workload, p.design.mapping
        ours = 2.0 * float(parameters.layer_parameters(w, m.tp))
        assert ours == pytest.approx(number(p, "block_weight_space"), rel=1e-6)


def test_flops_are_the_same(kept):
    """A layer's FLOPs of matrices and element-wise operators, less what is a message's in Calculon or summed in place.

    Apart in this model: the sums of reductions, ``A (t - 1) / t`` each (two forward, two backward), and of the
    gradients of a tensor that several operators read (two of a residual stream, one of the attention's input).
    Calculon drops the first and the last where it overlaps tensor parallelism.
    """

    @jax.jit
    def layer_flops(design):
        operators, layout = work_of(design).layer, lay_out(design)
        forward = sum(o.present * o.forward.flops for o in operators)
        backward = sum(o.present * work.flops for o in operators for work in o.gradients)
        return forward, backward, layout.norm_tokens, layout.tokens

    for p in kept:
        w, m = p.design.workload, p.design.mapping
        forward, backward, norm_tokens, tokens = map(float, layer_flops(p.design))
        stream = norm_tokens * w.hidden
        gathered = tokens * w.hidden
        plain = float(m.overlap_tp == 0.0)
        sums = plain * 2.0 * gathered * (m.tp - 1.0) / m.tp
        assert forward + sums == pytest.approx(number(p, "block_fw_flops"), rel=1e-6)
        forks = 2.0 * 2.0 * stream + plain * 3.0 * gathered
        theirs = number(p, "block_agrad_flops") + number(p, "block_wgrad_flops")
        assert backward + sums + forks == pytest.approx(theirs, rel=1e-6)


def test_what_is_left_out_is_counted(predictions):
    reasons = Counter(p.skip.reason for p in predictions if p.skip is not None)
    assert sum(reasons.values()) + sum(p.skip is None for p in predictions) == len(predictions)
    if len(predictions) == 2500:
        assert sum(p.skip is None for p in predictions) >= 800
        assert "infeasible as stated" not in reasons and "not in the catalogue" not in reasons


def test_the_accuracy_page_sets_the_terms_side_by_side():
    compared = compare(SOME)
    section = "\n".join(calculon_section(compared))
    assert "24 of 24 rows" in section and "\ntensor parallel," in section
    assert section in page(compared, "dse validate").replace("\n\n", "\n")
    assert calculon_section([c for c in compared if not c.source.startswith("Calculon")]) == []
