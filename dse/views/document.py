"""HTML documents that ask for nothing: scripts inline and by checksum, data as JSON in which nothing ends a script."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def filled(template: Path, parts: Mapping[str, str]) -> str:
    """A template with its ``{{names}}`` replaced."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template.read_text(encoding="utf-8"))


def scoped(folder: Path, names: Sequence[str]) -> str:
    """Scripts of a folder in one function scope."""
    texts = [(folder / name).read_text(encoding="utf-8") for name in names]
    return inline('"use strict";\n(() => {\n' + "\n".join(texts) + "\n})();\n")


def inline(script: str) -> str:
    """A script for embedding in HTML, with single-character line ends."""
    return script.replace("\r\n", "\n").replace("</script", "<\\/script").replace("<!--", "<\\!--")


def policy(scripts: Sequence[str]) -> str:
    """Policy: only these scripts, inline styles, nothing fetched, framed or sent."""
    hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts)
    allowed = " ".join(f"'sha256-{checksum}'" for checksum in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


def as_json(document: Mapping[str, Any]) -> str:
    """JSON without characters special to HTML; ValueError for values that are not finite."""
    text = json.dumps(document, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
