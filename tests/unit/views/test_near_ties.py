"""Near-ties of a table: folded along one axis alone, within the tolerance, the best design always shown."""

import itertools

import pytest
from hypothesis import given, settings, strategies as st

from dse.views.near_ties import TOLERANCE, fold_near_ties

NUMBERS = st.lists(
    st.tuples(st.sampled_from([1, 2, 4]), st.integers(1, 6), st.sampled_from(["none", "full"]), st.booleans()),
    unique=True,
    max_size=24,
)


def labels(tp, v, recompute="none"):
    return {"tp": tp, "v": v, "recompute": recompute}


@settings(deadline=None)
@given(NUMBERS, st.data())
def test_laws_of_a_fold(designs, data):
    objectives = sorted(data.draw(st.lists(st.floats(1.0, 1.01), min_size=len(designs), max_size=len(designs))))
    rows = [labels(*design[:3]) for design in designs]
    feasible = [design[3] for design in designs]
    folds = fold_near_ties(rows, objectives, feasible)
    assert sorted(i for fold in folds for i in fold.members) == [*range(len(designs))]  # each design once
    assert [fold.first for fold in folds] == sorted(fold.first for fold in folds)
    assert not folds or folds[0].first == 0  # the best is shown
    for fold in folds:
        assert fold.first == fold.members[0] == min(fold.members)
        assert bool(fold.axis) == (len(fold.members) > 1) == bool(fold.note())
        assert {rows[i][fold.axis] for i in fold.members if fold.axis} == set(fold.values)
        for a, b in itertools.combinations(fold.members, 2):
            assert feasible[a] == feasible[b]
            assert [name for name in rows[a] if rows[a][name] != rows[b][name]] == [fold.axis]
            assert abs(objectives[a] - objectives[b]) <= fold.tolerance * min(objectives[a], objectives[b])
        if fold.axis:
            assert fold.note().startswith(f"{fold.axis} ") and fold.note().endswith(": within 0.2 %")
            assert all(str(end) in fold.note() for end in (fold.values[0], fold.values[-1]))


@settings(deadline=None)
@given(st.lists(st.floats(1.0, 1.01), min_size=1, max_size=8), st.floats(0.0, 0.02), st.floats(0.0, 0.02))
def test_a_wider_tolerance_never_gives_more_rows_along_one_axis(objectives, a, b):
    rows = [labels(8, v) for v in range(len(objectives))]
    narrow, wide = (fold_near_ties(rows, sorted(objectives), tolerance=share) for share in sorted((a, b)))
    assert len(wide) <= len(narrow)


def test_notes_by_hand():
    rows = [labels(8, v) for v in (4, 3, 14, 6)]
    (fold,) = fold_near_ties(rows, [10.0, 10.005, 10.01, 10.02])
    assert fold.values == (3, 4, 6, 14) and fold.note() == "v 3 to 14: within 0.2 %"
    assert fold.note("virtual stages", lambda value: f"<{value}>") == "virtual stages <3> to <14>: within 0.2 %"
    assert fold_near_ties(rows[:2], [10.0, 10.005])[0].note() == "v 3, 4: within 0.2 %"


def test_a_range_does_not_cover_a_design_that_is_worse():
    rows = [labels(8, v) for v in (3, 4, 14, 6)]
    tie, worse = fold_near_ties(rows, [10.0, 10.005, 10.01, 10.5])
    assert tie.note() == "v 3, 4, 14: within 0.2 %" and worse.members == (3,)
    tie, infeasible = fold_near_ties(rows, [10.0] * 4, [True, True, True, False])
    assert tie.note() == "v 3, 4, 14: within 0.2 %" and infeasible.members == (3,)


def test_words_are_listed_in_their_order_and_the_axis_with_most_designs_is_folded():
    rows = [labels(8, 2), labels(8, 2, "full"), labels(8, 3), labels(8, 4)]
    assert [fold.note() for fold in fold_near_ties(rows, [1.0] * 4)] == ["v 2 to 4: within 0.2 %", ""]
    assert fold_near_ties(rows[:2], [1.0] * 2)[0].note() == "recompute none, full: within 0.2 %"


@pytest.mark.parametrize("second", [1.0 + 1.01 * TOLERANCE, float("nan"), float("inf"), -1.0])
def test_what_is_not_as_good_is_a_row_of_its_own(second):
    assert len(fold_near_ties([labels(8, 2), labels(8, 3)], [1.0, second])) == 2


def test_equal_designs_and_designs_apart_in_two_axes_stay_apart():
    assert len(fold_near_ties([labels(8, 2), labels(8, 2)], [1.0, 1.0])) == 2
    assert len(fold_near_ties([labels(8, 2), labels(16, 3)], [1.0, 1.0])) == 2
    assert fold_near_ties([], []) == [] and len(fold_near_ties([{}], [1.0])) == 1
