"""The document: HTML, style, scripts and data in one self-contained file.

Texts of results are untrusted. They are embedded as JSON in which nothing ends a script, and scripts write them as
text, never as HTML. The policy of the page allows only scripts with listed checksums, and no fetches.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import dse
from dse.designs.leaves import known_leaves, leaf_value
from dse.errors import InputError
from dse.io.distribution import install_extra
from dse.io.files import MARK
from dse.views import document
from dse.views.live import NOTHING, Live
from dse.views.plot.style import part
from dse.views.report.lines import Lines
from dse.views.report.packing import Packer
from dse.views.report.table import Column, DesignTable

_ASSETS = Path(__file__).parent / "assets"

#: Scripts of the page, in order.
_SCRIPTS = (
    "data.js",
    "text.js",
    "front.js",
    "controls.js",
    "points.js",
    "pick.js",
    "plot.js",
    "details.js",
    "main.js",
)

#: Scripts of Bokeh: its models, and the interface to them.
_BOKEH = ("bokeh.min.js", "bokeh-api.min.js")


def build(table: DesignTable, lines: Lines, live: Live = NOTHING) -> str:
    """The page of a table, with a page that computes in it or none."""
    scripts = {"library": _library(), "explorer": document.scoped(_ASSETS, _SCRIPTS)}
    packer = Packer()
    data = document.as_json(_document(table, lines, packer))
    parts = {
        "mark": MARK,
        "title": escape(table.title),
        "policy": escape(document.policy([*scripts.values(), *filter(None, [live.script])]), quote=True),
        "style": (_ASSETS / "page.css").read_text(encoding="utf-8"),
        "document": data,
        "columns": packer.text,
        **scripts,
        **live.parts,
    }
    return document.filled(_ASSETS / "page.html", parts)


def _library() -> str:
    """Bokeh's scripts from its wheel."""
    try:
        from bokeh.util.paths import bokehjs_path
    except ImportError:
        raise InputError(
            "dse report",
            "no package bokeh, which draws the page",
            "an installation with the extra report",
            install_extra("report"),
        ) from None
    folder = Path(bokehjs_path()) / "js"
    return document.inline("\n".join((folder / name).read_text(encoding="utf-8") for name in _BOKEH))


# Data for the scripts


def _document(table: DesignTable, lines: Lines, packer: Packer) -> dict[str, Any]:
    numbers = {column.name: packer.add(column.values, **_about(column)) for column in table.columns}
    return {
        "title": table.title,
        "study": table.study.name,
        "version": dse.__version__,
        "size": table.size,
        "start": {way: numbers[name] for way, name in table.start.items()},
        "facts": table.facts,
        "notes": table.notes,
        "totals": _totals(table, numbers),
        "lines": _lines(lines, numbers, packer),
        "columns": packer.columns,
    }


def _about(column: Column) -> dict[str, Any]:
    """A column without its values."""
    about: dict[str, Any] = {"name": column.name, "label": column.label, "about": column.about, "kind": column.kind}
    if column.kind == "metric":
        return about | {"units": column.shown, "factor": column.factor, "si": column.units, "better": column.better}
    if column.path in known_leaves() and column.known is not None:
        about |= {"leaf": column.path, "settings": [_setting(column.path, value) for value in column.known]}
    if column.known is not None and column.known.dtype.kind in "iuf":
        shown = {"units": column.shown, "factor": column.factor, "si": column.units}
        return about | shown | {"texts": column.texts, "numbers": column.known.tolist()}
    return about | {"texts": column.texts}


def _setting(path: str, value: Any) -> float | None:
    """A value of an axis as that of its leaf; None for what is none, as where a design has no such leaf."""
    try:
        return leaf_value(path, value)
    except InputError:
        return None


def _totals(table: DesignTable, numbers: dict[str, int]) -> list[dict[str, Any]]:
    """Totals with those of their parts that the results have."""
    found = []
    for total in table.study.totals:
        parts = [name for name in table.study.parts(total) if name in numbers]
        if total in numbers and parts:
            looks = [part(name.removeprefix(f"{total}_")) for name in parts]
            found.append(
                {
                    "column": numbers[total],
                    "parts": [
                        {"column": numbers[name], "label": look.label, "colour": look.colour}
                        for name, look in zip(parts, looks, strict=True)
                    ],
                }
            )
    return found


def _lines(lines: Lines, numbers: dict[str, int], packer: Packer) -> dict[str, Any]:
    """Lines as texts, and columns of positions in them."""
    if lines.group is None:
        return {"why": lines.why}
    return {
        "why": "",
        "serving": lines.serving,
        "tools": lines.tools,
        "toml": lines.toml,
        "axes": [
            {"name": name, "column": numbers.get(column, -1), "values": values} for name, column, values in lines.axes
        ],
        "group": packer.add(lines.group, name="group", kind="hidden"),
        "groups": [group._asdict() for group in lines.groups],
        "choices": [
            {"column": packer.add(choice.codes, name="choice", kind="hidden"), "texts": choice.texts}
            for choice in lines.choices
        ],
    }
