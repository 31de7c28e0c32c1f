"""No file of the repository has a credential, an address, the name of a host or of a person's folder."""

from __future__ import annotations

import gzip
import subprocess
from pathlib import Path

import pytest

from dse.measured.profiles.private import PATTERNS

ROOT = Path(__file__).parents[2]

#: Addresses of those who answer for the project, and versions of four numbers.
_PUBLIC = {
    "address": ("constraints.txt",),
    "mail": ("CITATION.cff", "paper.md", "pyproject.toml", "CODE_OF_CONDUCT.md"),
}

#: What shows that a pattern works, and lists of the patterns themselves.
_EXAMPLES = (
    "tests/unit/measured/test_private.py",
    "dse/measured/profiles/private.py",
    "dse/measured/profiles/cells.toml",
)

_PICTURES = {".png", ".svg", ".nc", ".sqlite", ".pdf"}


def _texts():
    """Yield (name, text) of the files of the repository, packed ones unpacked."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("no checkout")
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if name not in _EXAMPLES and path.suffix not in _PICTURES and path.is_file():
            content = path.read_bytes()
            content = gzip.decompress(content) if path.suffix == ".gz" else content
            yield name, content.decode("utf-8", "replace")


def test_no_file_has_what_is_private():
    found = [
        f"{name}: {kind} {match[0][:60]}"
        for name, text in _texts()
        for kind, pattern in PATTERNS.items()
        if name not in _PUBLIC.get(kind, ())
        for match in pattern.finditer(text)
    ]
    assert not found, "\n".join(found[:20])
