"""Fronts as people read them: ends, some between, and nothing that prints alike."""

import numpy as np

from dse.io.quantities import displayed_value
from dse.sweep.reduce.fronts import select_front

ROUNDED = (lambda value: displayed_value(value, "s"),) * 2


def test_what_prints_alike_is_one_and_the_ends_are_there():
    time = np.linspace(2.0, 4.0, 2_001)
    scores = np.stack([time, 8.0 / time])
    found = select_front(scores, ROUNDED, 7)
    assert len(found.positions) == 7 and found.best == (0, 6)
    assert (
        displayed_value(scores[0, found.positions[0]], "s")
        == 2.0
        == displayed_value(scores[1, found.positions[-1]], "s")
    )
    assert np.all(np.diff(scores[0, found.positions]) > 0.0)
    assert 150 < found.distinct < 250


def test_what_is_equal_where_it_is_read_and_worse_elsewhere_is_left_out():
    scores = np.array([[2.0001, 2.0002, 3.0], [9.0, 8.0, 1.0]])
    found = select_front(scores, ROUNDED, 12)
    assert found.positions.tolist() == [1, 2] and found.distinct == 2 and found.best == (0, 1)


def test_one_design_is_best_in_all():
    found = select_front(np.array([[2.0], [3.0]]), ROUNDED, 12)
    assert found.positions.tolist() == [0] and found.best == (0, 0)


def test_all_ends_of_many_objectives_are_there():
    rng = np.random.default_rng(0)
    drawn = -rng.dirichlet(np.ones(4), 300).T
    found = select_front(drawn, tuple(lambda value: -displayed_value(-value, "s") for _ in range(4)), 5)
    assert len(found.positions) == 5
    for objective, at in enumerate(found.best):
        assert drawn[objective, found.positions[at]] <= drawn[objective].min() * 0.995
