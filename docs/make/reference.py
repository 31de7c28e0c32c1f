"""The page of the docs on names: leaves, metrics, axes, columns, as ``dse list`` shows them.

``python -m docs.make.reference docs/reference.md`` writes it.
"""

from __future__ import annotations

from docs.make.command import page_parser
from docs.make.markdown import document, table
from dse.doors.studies import STUDIES
from dse.views.listing import KINDS, Listing, listing

_INTRODUCTION = """\
# Reference: all names

Generated from the engine's own records by `python -m docs.make.reference docs/reference.md`; `dse list KIND [PATTERN]`
prints the same, or a part of it. A leaf may be named by its path or by any ending of the path that is unique; the
shortest one is listed. Numbers are SI; strings carry units, such as `"3.35 TB/s"`. How the files are written in which
these names stand: [files.md](files.md)."""

#: Kinds on the page with their headings; names of expressions are leaves and metrics again.
_SECTIONS = {"leaves": "Leaves", "metrics": "Metrics", "axes": "Axes", "columns": "Columns of tables"}


def page() -> str:
    """The page."""
    assert {*_SECTIONS, "constraints"} == set(KINDS)
    sections = [_section(title, listing(kind)) for kind, title in _SECTIONS.items()]
    of_serving = _section("Metrics of serving", listing("metrics", studies=[STUDIES["serving"]]))
    sections.insert(list(_SECTIONS).index("metrics") + 1, of_serving)
    return document([_INTRODUCTION, *sections])


def _section(title: str, names: Listing) -> str:
    plain = ("a list, a range", "a list of names")  # axes of leaves like any other
    rows = [[f"`{row[0]}`", *row[1:]] for row in names.rows if title != "Axes" or row[-1] not in plain]
    what = names.what[0].upper() + names.what[1:]
    what += "; every other leaf too, as a list or a range" if title == "Axes" else ""
    return f"## {title}\n\n{what}.\n\n{table(names.columns, rows, words=names.columns)}"


if __name__ == "__main__":
    page_parser(__doc__).parse_args().page.write_text(page(), encoding="utf-8")
