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
from dse.lab.page import fragments

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
        **(fragments.of_results(results) if results else dict.fromkeys(fragments.OF_RESULTS, "")),
        **(fragments.of_model(model) if model else dict.fromkeys(fragments.OF_MODEL, "")),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _asset("page.html"))


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
