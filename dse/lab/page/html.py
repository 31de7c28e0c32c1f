"""The HTML file: one head, one style, one script by its checksum, data as JSON in which nothing ends a script.

Texts of results are untrusted. They are escaped, or embedded as JSON, which the script writes as text, never as HTML.
The policy of a page allows its own script alone, and no fetches.
Parts that are known when the page is written come last: what heads it, choices of selects, lines of tables.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from dse.io.files import MARK
from dse.lab.page.program import Kernel, kernels_script
from dse.reports.values import plain_values

_ASSETS = Path(__file__).parent / "assets"

#: Scripts of a page, in order; they share one scope.
_SCRIPTS = ("text", "data", "points", "plot", "tables", "machine", "design", "model", "studies", "explorer")


def page(title: str, results: Mapping[str, Any] | None, columns: str, model: Mapping[str, Any] | None) -> str:
    """Return the HTML text of a page of results with their packed columns, of a model, or of both.

    Args:
        title: of the page.
        results: data of results, None without.
        columns: packed columns of the results.
        model: data of a model, None without.
    """
    script = _script(model["program"]["kernels"] if model else ())
    parts = {
        "mark": MARK,
        "title": escape(title),
        "policy": escape(_policy(script), quote=True),
        "style": _asset("page.css"),
        "document": as_json(results),
        "columns": columns,
        "live": as_json(model),
        "script": script,
        **(results_parts(results) if results else dict.fromkeys(RESULTS_PARTS, "")),
        **(model_parts(model) if model else dict.fromkeys(MODEL_PARTS, "")),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _asset("page.html"))


def as_json(document: Mapping[str, Any] | None) -> str:
    """Return JSON text without characters special to HTML; ``null`` for None and for what is not finite."""
    text = json.dumps(plain_values(document), allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _asset(name: str) -> str:
    """Return the text of a file of ``assets/``."""
    return (_ASSETS / name).read_text(encoding="utf-8")


def _script(kernels: Iterable[Kernel]) -> str:
    """Return the text of all scripts in one function scope; line ends are single characters, as the checksum counts."""
    text = "\n".join([kernels_script(kernels), *(_asset(f"{name}.js") for name in _SCRIPTS)]).replace("\r\n", "\n")
    return f'"use strict";\n(() => {{\n{text}\n}})();\n'


def _policy(script: str) -> str:
    """Return a page's security policy as text: its own script, inline styles and pictures, nothing fetched or sent."""
    checksum = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{checksum}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


#: Most values of an axis of names that is drawn along the plot.
_MAX_NAMES = 40

#: Names of the parts of a page of results, and of a model.
RESULTS_PARTS = ("summary", "notes", "facts", "tools", "ways", "colours", "filters")
MODEL_PARTS = ("live_title", "live_about", "live_operators", "cards", "operators", "metrics", "leaves")


def results_parts(results: Mapping[str, Any]) -> dict[str, str]:
    """Return name in the template → HTML text, for a page of results."""
    summary = f"{results['size']:,} designs ({results['study']}), {results['able']:,} of which can run"
    pairs = ((escape(name), escape(text)) for name, text in results["facts"])
    columns = list(enumerate(results["columns"]))
    axis_columns = [
        (i, column) for i, column in columns if "numbers" in column or len(column.get("texts", ())) <= _MAX_NAMES
    ]
    return {
        "summary": escape(f"{summary} · dse {results['version']}"),
        "notes": "".join(f"<li>{escape(note)}</li>" for note in results["notes"]),
        "facts": "".join(f"<div><dt>{name}</dt><dd>{text}</dd></div>" for name, text in pairs),
        "tools": "".join(f"<option>{escape(tool)}</option>" for tool in results["lines"].get("tools", ())),
        "ways": _columns(axis_columns),
        "colours": _columns(columns),
        "filters": _columns([(i, column) for i, column in columns if column["type"] != "same"]),
    }


def model_parts(model: Mapping[str, Any]) -> dict[str, str]:
    """Return name in the template → HTML text, for a page of a model."""
    leaves, metrics, headline = model["leaves"], model["metrics"], model["headline"]
    read_leaves = [leaf for leaf in leaves if leaf["read"]]
    other_metrics = [name for name in metrics if name in model["figures"]["metrics"] and name not in headline]
    rows = ((line["section"], line["name"].replace("_", " ")) for line in model["figures"]["operators"])
    about = [
        ("first", [leaf for leaf in read_leaves if leaf["first"] >= 0]),
        ("all", [leaf for leaf in read_leaves if leaf["first"] < 0]),
    ]
    groups = [("headline", headline), ("all", [name for name in other_metrics if "feasible" not in name])]
    return {
        "live_title": escape(model["title"]),
        "live_about": escape(f"{model['study']} · {len(read_leaves)} leaves · dse {model['version']}"),
        "live_operators": escape(model["operatorsOf"]),
        "cards": "".join(_card(name, metrics[name]) for name in headline),
        "operators": "".join(
            f'<tr><th scope="row">{escape(f"{section} {name}")}</th>{"<td></td>" * 6}</tr>' for section, name in rows
        ),
        "metrics": "".join(
            _group(label, ((name, metrics[name]["label"], metrics[name]["short"]) for name in names))
            for label, names in groups
        ),
        "leaves": "".join(
            _group(label, ((leaf["name"], leaf["label"], leaf["name"]) for leaf in members)) for label, members in about
        ),
    }


def _card(name: str, metric: Mapping[str, Any]) -> str:
    """Return the HTML text of the button of a headline figure."""
    title = escape(f"{metric['label']}: show in the curve, the map and the elasticities")
    spans = "".join(f'<span class="{part}"></span>' for part in ("value", "change", "between"))
    head = f'<button type="button" class="card" value="{escape(name)}" title="{title}">'
    return f'{head}<span class="name">{escape(metric["short"])}</span>{spans}</button>'


def _columns(columns: Sequence[tuple[int, Mapping[str, Any]]]) -> str:
    """Return the HTML text of columns of results, (index, header), as choices by kind."""

    def heading(column: Mapping[str, Any]) -> str:
        return f"{column['label']} [{column['units']}]" if column.get("units") else column["label"]

    kinds = {
        "Design": [(i, column) for i, column in columns if column["kind"] == "axis"],
        "Metrics": [(i, column) for i, column in columns if column["kind"] == "metric"],
    }
    return "".join(
        _group(label, ((i, column["about"], heading(column)) for i, column in members))
        for label, members in kinds.items()
        if members
    )


def _group(label: str, choices: Iterable[tuple[object, str, str]]) -> str:
    """Return the HTML text of a group of choices (value, description, text)."""
    options = (
        f'<option value="{escape(str(value))}" title="{escape(about)}">{escape(text)}</option>'
        for value, about, text in choices
    )
    return f'<optgroup label="{escape(label)}">{"".join(options)}</optgroup>'
