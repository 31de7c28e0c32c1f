"""What single options do, against publications (docs/ablation.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.make.ablation import ABLATIONS, is_published

PAGE = Path(__file__).parents[1].parent / "docs" / "ablation.md"


@pytest.mark.parametrize("ablation", ABLATIONS, ids=lambda one: one.option.replace(" ", "-"))
def test_the_page_has_our_number_and_whether_it_agrees(ablation):
    ratio = ablation.ratio()
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if f"| {ablation.option} " in line]
    line = next(line for line in lines if f"| {ablation.label} |" in line)
    cells = [cell.strip() for cell in line.split("|")]
    assert float(cells[4]) == pytest.approx(ratio, abs=0.011)
    assert (cells[5] == "yes") is is_published(ablation, ratio)


def test_most_agree():
    """Those that do not are told of on the page."""
    outside = [one.option for one in ABLATIONS if not is_published(one, one.ratio())]
    assert len(outside) <= len(ABLATIONS) // 5
