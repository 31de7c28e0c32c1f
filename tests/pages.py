"""Pages as tests read them: blocks in their order, commands with what they print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]

#: In the form of a journal, with its citations.
PAPER = ROOT / "paper.md"

#: Every page of the repository but the paper: the pages of the site.
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "hw_catalog" / "README.md"} - {PAPER})

#: First line of a block that is a file.
_FILE = re.compile(r"# ([\w./-]+\.(?:toml|py))\n")


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The file that the first line names."""
        named = _FILE.match(self.text)
        return named[1] if named else None


class Command(NamedTuple):
    """A line behind ``$``, with the lines that it prints."""

    line: str
    printed: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        """Its words, without the remark behind them."""
        return shlex.split(self.line, comments=True)


def blocks(page: Path, language: str | None = None) -> list[Block]:
    """Fenced blocks in their order, those of a language alone where one is named."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [Block(*block) for block in found if language in (None, block[0])]


def commands(block: Block) -> list[Command]:
    """Commands of a console block; a line that ends in a backslash goes on in the next one."""
    parts = re.split(r"^\$ ", block.text.replace("\\\n", " "), flags=re.MULTILINE)
    assert not parts[0].strip(), f"a console block begins with what it prints: {block.text}"
    return [Command(line, tuple(printed)) for line, *printed in (part.splitlines() for part in parts[1:])]


def missing(printed: str, command: Command) -> str | None:
    """The first line that a page shows under a command and that is not printed in its place; None where all are.

    A line ``…`` leaves out any number of lines, ``…`` in front of a line any text. Empty lines do not count.
    """
    lines = [line.rstrip() for line in printed.splitlines() if line.strip()]
    at, skipping = 0, False
    for line in (line.rstrip() for line in command.printed if line.strip()):
        if line == "…":
            skipping = True
            continue
        begins = "" if line[0] == "…" else line
        same = [n for n, other in enumerate(lines[at:]) if other.endswith(line[1:]) and other.startswith(begins)]
        if not same or (same[0] and not skipping):
            return line
        at, skipping = at + same[0] + 1, False
    return None
