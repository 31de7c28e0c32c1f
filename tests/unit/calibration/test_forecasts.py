"""The record of forecasts: it only grows, outcomes come after forecasts, and scores are proper."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from calibration import scores
from docs.make import forecasts, record

#: Lines of an edition of the record and the hash of its last one: what was written stays. Editions are added.
PINNED: dict[str, dict[int, str]] = {
    "forecasts": {87: "804bec52a9cada42"}, "outcomes": {}, "editions": {18: "17991327f078bf56"},
}  # fmt: skip

LINES = [{"number": "1", "median": "2.0"}, {"number": "2", "median": "3.0"}]


@pytest.mark.parametrize("name", PINNED)
def test_what_was_forecast_stays(name):
    lines = record.read(forecasts.FOLDER / f"{name}.csv")
    for count, found in PINNED[name].items():
        assert len(lines) >= count and lines[count - 1][record.HASH] == found


def test_a_record_grows_and_keeps_its_hashes(tmp_path):
    path = tmp_path / "record.csv"
    first = record.append(path, LINES[:1])
    both = record.append(path, LINES[1:])
    assert both[:1] == first and record.read(path) == both
    with pytest.raises(record.BrokenRecordError):
        record.append(path, [{"other": "1"}])


@pytest.mark.parametrize("change", ["edit", "swap", "drop first"])
def test_a_record_that_was_changed_is_refused(tmp_path, change):
    path = tmp_path / "record.csv"
    record.append(path, LINES)
    head, one, two = path.read_text().splitlines()
    changed = {"edit": [head, one.replace("2.0", "2.1"), two], "swap": [head, two, one], "drop first": [head, two]}
    path.write_text("\n".join(changed[change]) + "\n")
    with pytest.raises(record.BrokenRecordError):
        record.read(path)


FORECAST = {
    "number": "1",
    "date": "2026-01-02",
    "median": "2.0",
    "low": "1.6",
    "high": "2.5",
    "deviation": "0.174",
    "units": "s",
    "metric": "step_time",
    "system": "x",
    "workload": "y",
}


def test_an_outcome_is_scored_by_its_forecast():
    near, far = (
        forecasts.answered([FORECAST], [{"number": "1", "date": "2026-02-01", "measured": measured, "source": "z"}])[0]
        for measured in ("2.1", "4.0")
    )
    assert near["held"] and not far["held"]
    assert near["crps"] < far["crps"] and near["log_score"] < far["log_score"]


@pytest.mark.parametrize("change", [{"number": "2"}, {"date": "2026-01-02"}])
def test_an_outcome_needs_an_earlier_forecast(change):
    outcome = {"number": "1", "date": "2026-02-01", "measured": "2.0", "source": "z"} | change
    with pytest.raises(ValueError):
        forecasts.answered([FORECAST], [outcome])


def test_every_outcome_has_its_forecast():
    forecasts.answered(record.read(forecasts.FORECASTS), record.read(forecasts.OUTCOMES))


def test_scores_are_proper():
    """Of draws of the forecast's own distribution no other spread scores better, and 80 % are held."""
    draws = scores._unit().rvs(20_000, random_state=np.random.default_rng(0))
    widths = (0.6, 0.8, 1.0, 1.25, 1.7)
    for of in (scores.crps, scores.log_score):
        found = [float(of(draws, np.full(len(draws), width)).mean()) for width in widths]
        assert int(np.argmin(found)) == 2
    assert np.mean(np.abs(draws) <= 1.2816) == pytest.approx(0.8, abs=0.01)


def test_crps_without_spread_is_the_absolute_error():
    errors = np.array([-0.3, 0.2])
    np.testing.assert_allclose(scores.crps(errors, np.full(2, 1e-9)), np.abs(errors), rtol=1e-6)


def test_the_page_says_what_the_tables_hold():
    lines = record.read(forecasts.FORECASTS)
    text = (forecasts.FOLDER.parent / "forecasts.md").read_text(encoding="utf-8")
    assert lines[-1][record.HASH] in text and f"{len(lines)} forecasts" in text
    with forecasts.SCORES.open(encoding="utf-8", newline="") as file:
        for one in csv.DictReader(file):
            assert 0.0 <= float(one["held_50"]) <= float(one["held_80"]) <= float(one["held_95"]) <= 1.0
