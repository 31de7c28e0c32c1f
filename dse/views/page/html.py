"""The HTML file: one head, one style, one script by its checksum, data as JSON in which nothing ends a script.

Texts of results are untrusted. They are escaped, or embedded as JSON, which the script writes as text, never as HTML.
The policy of a page allows its own script alone, and no fetches.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from dse.io.files import MARK

_ASSETS = Path(__file__).parent / "assets"

#: Scripts of a page, in order; they share one scope.
_SCRIPTS = ("text", "data", "points", "plot", "tables", "machine", "design", "model", "studies", "explorer")


def page(title: str, results: Mapping[str, Any] | None, columns: str, model: Mapping[str, Any] | None) -> str:
    """A page of results with their packed columns, of a model, or of both."""
    script = _script()
    parts = {
        "mark": MARK,
        "title": escape(title),
        "policy": escape(_policy(script), quote=True),
        "style": _asset("page.css"),
        "document": as_json(results),
        "columns": columns,
        "live": as_json(model),
        "script": script,
        **(_words_of_results(results) if results else dict.fromkeys(("summary", "notes", "facts", "tools"), "")),
        **(_words_of_model(model) if model else dict.fromkeys(("live_title", "live_about", "live_operators"), "")),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _asset("page.html"))


def _words_of_results(results: Mapping[str, Any]) -> dict[str, str]:
    """What heads results, as HTML."""
    summary = f"{results['size']:,} designs ({results['study']}), {results['able']:,} of which can run"
    pairs = ((escape(name), escape(text)) for name, text in results["facts"])
    tools = map(escape, results["lines"].get("tools", ()))
    return {
        "summary": escape(f"{summary} · dse {results['version']}"),
        "notes": "".join(f"<li>{escape(note)}</li>" for note in results["notes"]),
        "facts": "".join(f"<div><dt>{name}</dt><dd>{text}</dd></div>" for name, text in pairs),
        "tools": "".join(f"<option>{tool}</option>" for tool in tools),
    }


def _words_of_model(model: Mapping[str, Any]) -> dict[str, str]:
    """What heads a model, as HTML."""
    count = sum(leaf["read"] for leaf in model["leaves"])
    return {
        "live_title": escape(model["title"]),
        "live_about": escape(f"{model['study']} · {count} leaves · dse {model['version']}"),
        "live_operators": escape(model["operatorsOf"]),
    }


def as_json(document: Mapping[str, Any] | None) -> str:
    """JSON without characters special to HTML; ValueError for values that are not finite."""
    text = json.dumps(document, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _script() -> str:
    """All scripts in one function scope, with single-character line ends, which their checksum counts."""
    text = "\n".join(_asset(f"{name}.js") for name in _SCRIPTS).replace("\r\n", "\n")
    return f'"use strict";\n(() => {{\n{text}\n}})();\n'


def _policy(script: str) -> str:
    """Only this script, inline styles, pictures of the page's own, nothing fetched, framed or sent."""
    checksum = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{checksum}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
