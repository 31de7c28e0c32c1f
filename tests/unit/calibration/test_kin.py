"""What engines tell of each other."""

import numpy as np
import pytest

from calibration import kin

#: Two releases of a code base 6 months apart, one between them, one of another code base.
NEAR = np.exp(-np.abs(np.subtract.outer([0.0, 0.5, 0.25, 0.0], [0.0, 0.5, 0.25, 0.0])) / 0.25)
RELATED = np.array([[True, True, True, False]] * 3 + [[False, False, False, True]])
NAMES = ("layer_time", "host_step_time", "request_time")


def of(near: np.ndarray = NEAR) -> kin.Kin:
    """Kin of four engines, another code base at a tenth."""
    weights = near * np.where(RELATED, 1.0, 0.1)
    np.fill_diagonal(weights, 0.0)
    return kin.Kin(weights, RELATED)


def centres(values: list[float], sources: list[str]) -> np.ndarray:
    """Prior means by engines at ``values`` in all parameters."""
    return of().centres([np.full(3, value) for value in values], sources, NAMES)


def test_an_engine_without_rows_tells_nothing() -> None:
    """Whatever its values are."""
    some, others = (centres([one, 1.0, 2.0, 3.0], ["", "a", "b", "c"]) for one in (0.0, 99.0))
    assert np.array_equal(some, others)


def test_releases_that_one_source_measured_share_a_weight() -> None:
    """Half of it each, all of it where the other one has no rows."""
    values = [0.0, 1.0, 2.0, 3.0]
    halved = kin.Kin(of().near * [1.0, 0.5, 0.5, 1.0], RELATED)
    found = [np.full(3, value) for value in values]
    assert centres(values, ["a", "b", "b", "c"])[0] == pytest.approx(halved.centres(found, list("abcd"), NAMES)[0])
    assert centres(values, ["a", "b", "", "c"])[0, 1] == pytest.approx(0.9)


def test_host_code_is_of_its_code_base_and_a_client_of_nobody() -> None:
    """An engine alone in its code base has the general prior of hosts."""
    found = centres([1.0, 1.0, 1.0, 5.0], ["a", "b", "c", "d"])
    assert found[3, 1] == 0.0 and np.all(found[:, 2] == 0.0)
    assert 0.0 < found[3, 0] < 1.0
    assert np.all(found[:3, 1] < 1.0), "the rest is that of the general priors"
