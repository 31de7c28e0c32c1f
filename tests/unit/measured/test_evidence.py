"""Measured rows in a decision: what is believed of designs after them."""

import dataclasses

import numpy as np
import pytest

import dse
from dse.capabilities.decide import choices_of
from dse.designs import replace
from dse.doors import STUDIES
from dse.errors import InputError
from dse.measured.decisions.choice import decide
from dse.measured.decisions.evidence import RUN_DEVIATION, Evidence, condition, read_evidence
from dse.measured.uncertainty.posterior import Choice, posterior
from dse.types import Prices

STUDY = STUDIES["serving"]
METRIC = "time_per_output_token"
HEADER = "source,model,gpu,system,software,n_gpus,tp,pp,dp,precision,isl,osl,batch,batch_kind,metric,value,unit"


def choice(chip="mi300x", stack="vllm-rocm", **settings):
    made = dse.design("llama-3-70b", chip, stack, kind="serving", tp=8, n_devices=8, concurrency=32, **settings)
    return Choice(chip, STUDY.complete(made), stack, {"h100": "h100-sxm-80gb"}.get(chip, chip), "llama-3-70b", chip)


TWO = [choice(), choice("h100", "vllm")]


def measured(one, times, count=1, metric=METRIC):
    """Rows of a design, each ``times`` the predicted value."""
    log = posterior([one], metric, STUDY).logs[0] + np.log(times)
    return Evidence([one] * count, [metric] * count, np.full(count, log))


def test_a_row_of_a_design_tells_all_but_its_noise_of_it():
    known = posterior(TWO, METRIC, STUDY)
    after = condition(known, measured(TWO[0], 1.3))
    assert after.n_design_rows == 1
    assert np.exp(after.shift[0]) == pytest.approx(1.3, rel=0.03)
    assert after.deviations[0] < 1.05 * RUN_DEVIATION
    assert abs(after.shift[1]) < 0.2 * after.shift[0]  # what both have in common


def test_rows_narrow_and_never_widen():
    known = posterior(TWO, METRIC, STUDY)
    once, often = (condition(known, measured(TWO[0], 1.0, count)) for count in (1, 9))
    np.testing.assert_allclose(once.shift, 0.0, atol=1e-9)
    assert np.all(once.deviations <= known.deviations + 1e-12) and np.all(often.deviations <= once.deviations + 1e-12)
    assert often.deviations[0] == pytest.approx(RUN_DEVIATION / 3.0, rel=0.05)


def test_draws_have_the_mean_and_the_spread_of_what_is_believed():
    known = posterior(TWO, METRIC, STUDY)
    after = condition(known, measured(TWO[0], 1.3))
    draws = known.draws() - known.logs[:, None] + after.correction
    np.testing.assert_allclose(draws.mean(axis=1), after.shift, atol=0.03)
    assert draws[0].std() < 3.0 * RUN_DEVIATION < known.deviations[0]


def test_a_measured_design_that_is_slower_is_chosen_less():
    before = decide(TWO, "cost_per_token", STUDY)
    after = decide(TWO, "cost_per_token", STUDY, evidence=measured(TWO[0], 1.5))
    assert after.verdicts[0].probability_best < before.verdicts[0].probability_best
    assert after.verdicts[0].value > before.verdicts[0].value
    width = [found.verdicts[0].high / found.verdicts[0].low for found in (before, after)]
    assert width[1] < width[0]


def test_a_design_is_its_row_whatever_it_costs():
    """A row states no prices; one with another clock is another design."""
    priced = TWO[0]._replace(
        design=dataclasses.replace(
            TWO[0].design, system=dataclasses.replace(TWO[0].design.system, prices=Prices(electricity=0.2))
        )
    )
    faster = TWO[0]._replace(design=replace(TWO[0].design, {"system.accelerator.memory.bandwidth": 6e12}))
    known = posterior(TWO, METRIC, STUDY)
    assert condition(known, measured(priced, 1.3)).n_design_rows == 1
    assert condition(known, measured(faster, 1.3)).n_design_rows == 0


def test_a_table_is_read(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text(
        f"{HEADER}\nown,llama-3-70b,mi300x,mi300x,vllm-rocm,8,8,1,1,bf16,1024,1024,32,concurrency,tpot,25,ms\n"
    )
    study, choices, *_ = choices_of(["mi300x", "h100"], "llama-3-70b", None, ["tp=8"], False, True)
    found = condition(posterior(choices, METRIC, study), read_evidence([path], study))
    assert found.n_design_rows == 1 and found.shift[0] > 0.1
    with pytest.raises(InputError, match="rows of another kind"):
        read_evidence([path], STUDIES["training"])
