"""Fronts and hypervolumes are pymoo's, exactly."""

import numpy as np
import pytest

from dse.optimizers.pareto import front, hypervolume


def points(n_objectives, n=200, levels=0):
    drawn = np.random.default_rng(n_objectives).random((n, n_objectives))
    return np.floor(drawn * levels) / levels if levels else drawn


@pytest.mark.parametrize("n_objectives", [2, 3])
@pytest.mark.parametrize("levels", [0, 6])
def test_the_front_is_pymoos(n_objectives, levels):
    sorting = pytest.importorskip("pymoo.util.nds.non_dominated_sorting")
    drawn = points(n_objectives, levels=levels)
    expected = sorting.NonDominatedSorting().do(drawn, only_non_dominated_front=True)
    assert {tuple(p) for p in drawn[front(drawn)]} == {tuple(p) for p in drawn[expected]}


@pytest.mark.parametrize("n_objectives", [2, 3])
@pytest.mark.parametrize("levels", [0, 6])
def test_the_hypervolume_is_pymoos(n_objectives, levels):
    indicators = pytest.importorskip("pymoo.indicators.hv")
    drawn, reference = points(n_objectives, levels=levels), np.full(n_objectives, 0.8)
    inside = drawn[np.all(drawn < reference, axis=1)]
    assert np.isclose(hypervolume(drawn, reference), indicators.HV(ref_point=reference)(inside), rtol=1e-12)


def test_what_is_beyond_the_reference_adds_nothing():
    assert hypervolume(np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([1.0, 1.0])) == 0.25
    assert hypervolume(np.zeros((0, 2)), np.ones(2)) == 0.0
