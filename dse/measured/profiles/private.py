"""What files of people have that nobody else should read: credentials, addresses, names of hosts and users, paths.

Patterns are rows of ``cells.toml`` (``private``). What rows keep of a file is stripped of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath

from dse.measured.profiles.run import CELL_ROWS

#: Name of what is private → its pattern.
PATTERNS = {name: re.compile(pattern) for name, pattern in CELL_ROWS["private"].items()}

#: A path of a checkpoint in a cache of the hub, and any path: what of it is public.
_CACHED = re.compile(r"\S{0,500}?\bmodels--([\w.-]{1,100}?)--([\w.-]{1,100})(?:/snapshots/\w{1,100})?")
_PATH = re.compile(r"(?<![\w.:/…])(?:[A-Za-z]:)?(?:[/\\][\w.@+~ -]{1,200}){0,60}[/\\]([\w.@+~-]{1,200})")
_SCHEME = re.compile(r"\b[a-z0-9+]{2,12}://[^\s/'\"]{1,300}")


def public_text(text: str) -> str:
    """Return a text without what is private: names of models and files stay, where they lie does not.

    >>> public_text("/home/someone/hub/models--Qwen--Qwen3-8B/snapshots/ab12"), public_text("/data/run 1/power.csv")
    ('Qwen/Qwen3-8B', 'power.csv')
    >>> public_text("HF_TOKEN=hf_0123456789abcdefghijABCDEFGHIJ0123 on 10.1.2.3")
    '… on …'
    """
    text = _SCHEME.sub("…", _CACHED.sub(r"\1/\2", text))
    for pattern in PATTERNS.values():
        if pattern is not PATTERNS["home"]:
            text = pattern.sub("…", text)
    return _PATH.sub(r"\1", text)


def public_row(row: Mapping[str, str]) -> dict[str, str]:
    """Return a row with public texts, and names alone of its files."""
    texts = {column: public_text(text) for column, text in row.items()}
    files = " ".join(PurePath(name).name for name in row.get("url_or_repo_path", "").split())
    return texts | ({"url_or_repo_path": public_text(files)} if files else {})
