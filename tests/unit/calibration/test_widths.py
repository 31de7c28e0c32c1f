"""Widths by level: what they learn of errors that are known, and that groups are scored without their own rows."""

from __future__ import annotations

import numpy as np
import pytest

from calibration import widths
from calibration.left_out import LeftOut
from dse.measured.uncertainty.distance import Place

HOME, CHIP = 0.066, 0.2


def rows(count=40, each=50):
    """Chips left out, each with an error of its own beside that of rows at home."""
    rng = np.random.default_rng(0)
    for group in range(count):
        common = CHIP * rng.standard_normal()
        for i in range(each):
            place = Place("stack", "framework", f"chip {group}", "g", "v", "dense", "llama")
            error = common + HOME * rng.standard_normal()
            at = "chip", f"chip {group}", "s", place, ("chip", "stack")
            yield LeftOut("step", *at, error, 0.0, 0.1 * i, "step_time")


@pytest.fixture(scope="module")
def known(request):
    patch = pytest.MonkeyPatch()
    patch.setattr(widths, "typical", lambda figure: HOME)
    request.addfinalizer(patch.undo)
    return widths.figures_of([*rows()], ("step",))


def test_a_level_has_the_deviation_that_holds_80_percent_of_its_rows(known):
    found = widths.fit(known, np.ones(len(known.rows), bool))
    assert np.hypot(found["chip"], found["stack"]) == pytest.approx(CHIP, rel=0.3)
    held = widths.held(known, widths.deviations(known, found))["chip"]
    assert held.groups == 40 and 0.75 < held.by_group < 0.88


def test_groups_are_scored_without_their_own_rows(known):
    held = widths.held(known, widths.crossed(known))["chip"]
    assert 0.72 < held.by_group < 0.88
    large = known._replace(errors=np.where([one.group == "chip 0" for one in known.rows], 9.0, known.errors))
    without = widths.crossed(large)[[one.group == "chip 0" for one in known.rows]]
    np.testing.assert_allclose(without, widths.crossed(known)[[one.group == "chip 0" for one in known.rows]])


def test_what_rows_of_a_group_share_is_found(known):
    assert widths.shared(known, at_home=False) == pytest.approx(CHIP**2 / (CHIP**2 + HOME**2), abs=0.1)


def test_widths_of_a_respect_do_not_fall_outwards(known):
    half = len(known.rows) // 2
    levels = [one._replace(levels=("vendor",)) if i < half else one for i, one in enumerate(known.rows)]
    calm = known._replace(rows=levels, errors=np.where(np.arange(len(levels)) < half, 0.0, known.errors))
    found = widths.fit(calm, np.ones(len(levels), bool))
    assert found["vendor"] == found["chip"] < widths.fit(known, np.ones(len(levels), bool))["chip"]  # of both


def test_pairs_of_what_shares_an_error_are_told_apart(known):
    deviation = widths.deviations(known, widths.fit(known, np.ones(len(known.rows), bool)))
    blind = widths.pairs(known, deviation, "chip", widths.Shared(0.0, 0.0, 0.0, 0.0))
    sure = widths.pairs(known, deviation, "chip", widths.Shared.of([known]))
    assert sure.pairs == blind.pairs > 1000 and sure.brier < blind.brier < 0.25
