"""Reports as HTML, for notebooks and pages."""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterable

from dse.reports.tables import Column, Line, Readable, Section, Style, Table, verbatim

_STYLE = (
    ".dse table{font-size:inherit;border-collapse:collapse;margin:.3em 0}"
    ".dse td,.dse th{padding:.1em .6em;text-align:right;vertical-align:top}.dse .left{text-align:left}"
    ".dse thead th{border-bottom:1px solid currentColor}"
    ".dse .bar{background:#4477aa;height:.7em;min-width:1px}.dse .caution{color:#a65e00}"
    ".dse .fault{color:#b00020}.dse p{margin:.3em 0}.dse .strong{font-weight:bold;margin-top:.8em}"
    ".dse pre{margin:.3em 0}"
)

#: Width of a full bar, em.
_BAR = 12.0


def html_text(report: Readable) -> str:
    """Return a report as a piece of HTML: what is always shown, then each detail folded."""
    parts = [f"<style>{_STYLE}</style>", _sections(section for section in report.sections if not section.show)]
    for detail in report.details:
        inner = _sections(section for section in report.sections if section.show == detail)
        parts.append(f"<details><summary>{html.escape(detail)}</summary>{inner}</details>")
    parts += [_paragraph(Line(text, Style.caution)) for text in report.notes]
    parts += [_paragraph(Line(str(path))) for path in itertools.chain(report.files, report.figures)]
    parts += [_paragraph(verbatim(report.usage))] if report.usage else []
    return f'<div class="dse">{"".join(parts)}</div>'


def _sections(sections: Iterable[Section]) -> str:
    """Return sections as HTML."""
    return "".join(_table(section) if isinstance(section, Table) else _paragraph(section) for section in sections)


def _paragraph(line: Line) -> str:
    """Return a line of text as HTML."""
    if line.style == Style.verbatim:
        return f"<pre>{html.escape(line.text)}</pre>"
    text = html.escape(line.text.strip()).replace("\n", "<br>")
    return f'<p class="{line.style}">{text}</p>' if text else ""


def _table(table: Table) -> str:
    """Return a table as HTML, with its title."""
    title = _paragraph(Line(table.title, Style.strong)) if table.title else ""
    head = "".join(f"<th{_align(column)}>{html.escape(column.heading)}</th>" for column in table.visible)
    rows = "".join(f"<tr>{''.join(_cell(column, row) for column in table.visible)}</tr>" for row in table.rows)
    return f"{title}<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _cell(column: Column, row: object) -> str:
    """Return a cell as HTML; a share as a bar."""
    if column.bar:
        width = _BAR * float(column.value(row) or 0.0)
        return f'<td class="left"><div class="bar" style="width:{width:.2f}em"></div></td>'
    return f"<td{_align(column)}>{html.escape(column.text(row))}</td>"


def _align(column: Column) -> str:
    """Return the attribute of a cell that is left-aligned, "" for others."""
    return ' class="left"' if column.left else ""
