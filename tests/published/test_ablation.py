"""What single options do, against publications (docs/tables/studies_options.csv)."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from docs.make.ablation import ABLATIONS, is_published

TABLE = Path(__file__).parents[1].parent / "docs" / "tables" / "studies_options.csv"


@pytest.mark.parametrize("ablation", ABLATIONS, ids=lambda one: one.option.replace(" ", "-"))
def test_the_table_has_our_number_and_whether_it_agrees(ablation):
    ratio = ablation.ratio()
    with TABLE.open(encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row["option"] == ablation.option]
    row = next(row for row in rows if row["design"] == ablation.label)
    assert float(row["ours"]) == pytest.approx(ratio, abs=0.011)
    assert (row["agrees"] == "yes") is is_published(ablation, ratio)


def test_most_agree():
    """Those that do not are told of in the table."""
    outside = [one.option for one in ABLATIONS if not is_published(one, one.ratio())]
    assert len(outside) <= len(ABLATIONS) // 5
