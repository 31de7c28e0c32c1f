"""Billions of designs take no more memory than a million: it stays flat over time."""

import pytest

from benchmarks import workers


def test_growth_is_of_the_later_two_thirds():
    found = workers.growth([(float(t), 1e8 * min(t, 10) + 1e3 * t) for t in range(30)])
    assert abs(found["memory_growth_bytes_per_second"] - 1e3) < 1.0 and found["memory_samples"] == 30


def test_growth_is_what_goes_on_not_one_step():
    found = workers.growth([(float(t), 1e8 + 1e3 * t + (2e7 if t > 20 else 0.0)) for t in range(30)])
    assert abs(found["memory_growth_bytes_per_second"] - 1e3) < 1.0


@pytest.mark.slow
def test_memory_is_flat_over_billions_of_designs(tmp_path, monkeypatch):
    """At the speed that users have: the flags of tests compile quickly what then runs ten times as long."""
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    growths = []
    while not growths or (growths[-1] >= 10e6 / 60.0 and len(growths) < 3):
        (folder := tmp_path / str(len(growths))).mkdir()
        found = workers.memory_over_time(folder)
        growths.append(found["memory_growth_bytes_per_second"])
        assert found["memory_samples"] > 10 and found["memory_peak_bytes"] < 1e9
    # The allocator takes a few megabytes at some times of a run; what leaks does so at all times of every run.
    assert min(growths) < 10e6 / 60.0, growths
