"""A report is one record, of which a terminal, JSON, CSV and HTML show the same."""

from __future__ import annotations

import csv
import dataclasses
import enum
import html
import io
import json
import math
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, strategies as st

from dse.errors import InputError
from dse.reports import Column, Line, Report, Table, bar, caution, heading, verbatim
from dse.reports.report import plain_values
from dse.reports.terminal import plain_text


class Pair(NamedTuple):
    name: str
    seconds: float


class Colour(enum.Enum):
    red = 1


@dataclasses.dataclass
class Box:
    pair: Pair
    sizes: np.ndarray


COLUMNS = [
    Column("what", "name", left=True), Column("time", "seconds", "{:.1f} s".format),
    Column("note", "note", row_text=lambda row: f"{row['name']}!"), Column("unit", "unit", hidden=True), bar("share"),
]  # fmt: skip
ROWS = [
    {"name": "a <b>", "seconds": 1.25, "note": 1, "unit": "s", "share": 0.5},
    {"name": "c", "seconds": None, "note": 2, "unit": "s", "share": 0.0},
]


def report(**fields) -> Report:
    sections = [
        Line("first"), Table("times", COLUMNS, ROWS, "all times"), caution("take care"), verbatim("run --me"),
        heading("second", show="more"), Table("further", COLUMNS[:1], ROWS, show="more"),
    ]  # fmt: skip
    return Report({"rows": ROWS, "limit": math.inf}, sections, **fields)


def test_a_report_is_a_mapping_of_its_document():
    made = report()
    assert made["rows"] is ROWS and list(made) == ["rows", "limit"] and len(made) == 2
    assert made.to_dict() == {"rows": ROWS, "limit": None}
    json.dumps(made.to_dict(), allow_nan=False)


def test_tables_are_named_and_keep_values():
    made = report()
    assert list(made.tables) == ["times", "further"] and made.table() is made.table("times")
    assert made.table().cells() == [["a <b>", "1.2 s", "a <b>!", "█" * 20], ["c", "", "c!", ""]]
    frame = made.to_dataframe()
    assert list(frame) == ["name", "seconds", "note", "unit"] and frame["seconds"][0] == 1.25
    with pytest.raises(InputError, match="did you mean 'times'"):
        made.table("time")


def test_csv_has_values_in_si_units():
    rows = list(csv.DictReader(io.StringIO(report().to_csv())))
    assert rows[0] == {"name": "a <b>", "seconds": "1.25", "note": "1", "unit": "s"} and rows[1]["seconds"] == ""


def test_html_escapes_and_folds_details():
    text = report(notes=["a & b"]).to_html()
    assert "a &lt;b&gt;" in text and "<b>" not in text and "a &amp; b" in text
    assert "<details><summary>more</summary>" in text and text.count("<table>") == 2


def test_details_are_shown_on_request():
    made = report(files=[Path("x.nc")], notes=["remark"])
    short, full = plain_text(made), plain_text(made, ["all"])
    assert "second" not in short and "more: --show all, or some of more" in short and short.endswith("remark")
    assert "second" in full and "more: --show" not in full and "x.nc" in full
    assert plain_text(made, ["more"]) == full
    with pytest.raises(InputError, match="allowed all, more; did you mean 'more'"):
        plain_text(made, ["mroe"])


def test_a_report_without_results_has_no_dataset():
    with pytest.raises(AttributeError, match="no dataset"):
        _ = report().dataset
    assert report(load=lambda: 3).dataset == 3


def test_values_of_any_kind_become_plain():
    box = Box(Pair("a", float("nan")), np.array([[1, 2], [3, 4]]))
    plain = plain_values(
        {
            "box": box,
            3: {
                Colour.red,
            },
            "path": Path("a.nc"),
            "scalar": np.float32(0.5),
            "yes": True,
        }
    )
    assert plain == {
        "box": {"pair": {"name": "a", "seconds": None}, "sizes": [[1, 2], [3, 4]]}, "3": ["red"], "path": "a.nc",
        "scalar": 0.5, "yes": True,
    }  # fmt: skip


texts = st.text(st.characters(codec="ascii", categories=("L", "N", "P", "S")), max_size=12)


@given(st.lists(st.tuples(texts, st.floats(allow_nan=False, allow_infinity=False)), max_size=6))
def test_renderers_agree(rows):
    columns = [Column("text", "text", left=True), Column("number", "number", "{:.3g}".format)]
    made = Report({}, [Table("t", columns, [dict(zip(("text", "number"), row, strict=True)) for row in rows])])
    cells = made.table().cells()
    body = made.to_html().partition("<tbody>")[2].partition("</tbody>")[0]
    lines = [re.findall(r"<td[^>]*>(.*?)</td>", line) for line in re.findall("<tr>(.*?)</tr>", body)]
    assert [[html.unescape(cell) for cell in line] for line in lines] == cells
    printed = plain_text(made)
    assert all(cell in printed for row in cells for cell in row)
    read = list(csv.DictReader(io.StringIO(made.to_csv())))
    assert [(row["text"], float(row["number"])) for row in read] == rows
