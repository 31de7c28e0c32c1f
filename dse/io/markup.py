"""Tables as HTML."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

#: Style of tables, whose cells are right-aligned but for those of class ``left``.
STYLE = (
    ".dse table{font-size:inherit;border-collapse:collapse;margin:.3em 0}"
    ".dse td,.dse th{padding:.1em .6em;text-align:right;"
    "vertical-align:top}.dse .left{text-align:left}.dse thead th{border-bottom:1px solid currentColor}"
)


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[bool]) -> str:
    """Return a table as HTML.

    Args:
        headings: texts of the first row.
        rows: cells as HTML, one per heading.
        left: whether a column is left-aligned.

    >>> table(["name"], [["tp"]], [True])
    '<table><thead><tr><th class="left">name</th></tr></thead><tbody><tr><td class="left">tp</td></tr></tbody></table>'
    """
    classes = [' class="left"' if is_left else "" for is_left in left]
    head = "".join(f"<th{align}>{html.escape(text)}</th>" for text, align in zip(headings, classes, strict=True))
    lines = ("".join(f"<td{align}>{cell}</td>" for cell, align in zip(row, classes, strict=True)) for row in rows)
    return (
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(f'<tr>{line}</tr>' for line in lines)}</tbody></table>"
    )
