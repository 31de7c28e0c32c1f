"""Words of tables, figures and answers: every row of ``words.toml`` is of a metric, an axis or a part that exists."""

from __future__ import annotations

import pytest

from dse.designs import all_leaves
from dse.doors import STUDIES
from dse.views.studies import PRESENTATIONS, Presentation, presentation_of
from dse.views.words import IN_PER_CENT, SHORT, WORDS
from tests.toy_study import ANSWERING


def test_axes_are_options_of_a_mapping():
    assert {f"mapping.{name}" for name in SHORT} <= set(all_leaves())


def test_metrics_in_per_cent_are_shares_of_a_study():
    bounds = {name: study.upper_bounds[name] for study in STUDIES.values() for name in study.units}
    assert all(bounds[name] <= 2.0 for name in IN_PER_CENT)


@pytest.mark.parametrize("name", STUDIES)
def test_words_of_a_study_are_of_its_metrics(name):
    study, shown = STUDIES[name], presentation_of(STUDIES[name])
    assert shown is PRESENTATIONS[study.metrics] and shown.operators_of
    names = [*WORDS["headline"][name], *shown.summary, *(column.metric for column in shown.columns)]
    assert set(names) <= set(study.units) and shown.secondary_metric.metric in study.units
    assert tuple(column.metric for column in shown.columns) == study.main_metrics
    assert {column.style for column in shown.columns} <= {"time", "percent", "bytes", "number"}
    parts = [part for parts in shown.time_columns.values() for part in parts]
    assert sorted(parts) == sorted(study.parts(study.totals[0])), "each part of the first total is in one column"
    for part, total in shown.divided_from.items():
        assert {part, total} <= set(study.parts(study.totals[0]))


def test_a_study_without_words_is_shown_without_them():
    assert presentation_of(ANSWERING).time_columns == {"read": ("latency_reading",), "write": ("latency_writing",)}
    assert Presentation().headline({}) == () and Presentation().remark("latency", {}, None) == ""
