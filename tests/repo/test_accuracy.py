"""The pages of errors: what they say of rows, sources and reasons, and their figure."""

from __future__ import annotations

import pytest

from docs.make.accuracy import breakdown, figure
from docs.make.accuracy.page import page
from dse.measured.comparison import compare

TABLES = [f"tests/published/{name}.csv" for name in ("korthikanti_2022", "narayanan_2021", "megatron_b200")]


@pytest.fixture(scope="module")
def compared():
    return compare(TABLES)


def test_the_page_counts_rows_and_sources(compared):
    text = page(compared, "a command", "figure.png")
    steps = breakdown.timed(compared)
    assert f"{len(steps)} rows of {len({c.source for c in steps})} sources" in text
    assert "(figure.png)" in text and "## What is claimed" in text
    assert text.count(",A100") + text.count("\nA100") >= 1 and "\nB200-SXM" in text


def test_groups_add_up(compared):
    steps = breakdown.timed(compared)
    lines = breakdown.lines_by(steps, lambda c: c.measurement.row.get("model"), 3)
    assert sum(int(line[1]) for line in lines) == len(steps)
    assert lines[-1][0] == "others"


def test_reasons_are_of_the_rows_themselves(compared):
    steps = breakdown.timed(compared)
    alike = breakdown.neighbours(steps)
    reasons = {breakdown.reason_of(c, alike) for c in steps}
    assert reasons and all(reasons)


def test_the_figure_is_drawn_once_there_is_something(compared, tmp_path):
    assert figure.draw(compared, tmp_path / "a.png") and (tmp_path / "a.png").stat().st_size > 10_000
    assert not figure.draw([], tmp_path / "b.png")


def test_rates_are_turned_into_times(compared):
    for c in breakdown.timed(compared):
        expected = 1.0 + c.error if c.metric == "step_time" else 1.0 / (1.0 + c.error)
        assert figure.ratio(c, c.predicted) == pytest.approx(expected)
