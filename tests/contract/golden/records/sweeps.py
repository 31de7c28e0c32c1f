"""Results of the sweeps that come with dse; searches and pools are documents (``commands.txt``)."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import dse
from tests.contract.golden.records.results import summary

FOLDER = Path(__file__).parents[4] / "sweeps"

#: Sections of files that other commands than ``dse run`` read.
_OTHERS = re.compile(r"^\[(search|codesign|pools|prefill)\b", re.MULTILINE)


def names() -> list[str]:
    """Every sweep of the folder."""
    return [path.stem for path in sorted(FOLDER.glob("*.toml")) if not _OTHERS.search(path.read_text(encoding="utf-8"))]


def record(name: str) -> Any:
    """The results of a sweep; of the billion designs those with three values an axis of the machine, two million."""
    text = (FOLDER / f"{name}.toml").read_text(encoding="utf-8")
    if name == "billion_designs":
        text = re.sub(r"count = \d+", "count = 3", text)
    with tempfile.TemporaryDirectory() as folder:
        file, output = Path(folder, f"{name}.toml"), Path(folder, f"{name}.nc")
        file.write_text(text, encoding="utf-8")
        dse.run(file, output=output)
        return summary(output)
