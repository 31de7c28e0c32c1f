"""``python -m benchmarks.showdown [CASES.csv …]``: the rows of measured tables through every tool.

Each tool gets an environment of its own below build/showdown, by pip; its adapter runs there. What they predict is
kept in predictions.csv and tools.json beside this file, from which ``python -m docs.make.showdown`` makes the page.

Without tables the rows of tests/published go through the tools, and what was kept of them is checked.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

from benchmarks.showdown import kept, rows
from calibration.left_out import tables_of

_HERE, _BUILD = Path(__file__).parent, Path("build/showdown")

#: Requirement → the adapter that needs it.
TOOLS = {"aiconfigurator==0.12.0": "aic", "genz-llm==0.0.16": "genz", "llm-analysis==0.2.2": "analysis"}


def _environment(requirement: str) -> Path:
    """The Python of a tool's environment, made where it is absent."""
    folder = _BUILD / requirement
    python = folder / "bin" / "python"
    if not (folder / ".installed").exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", requirement], check=True)
        (folder / ".installed").touch()
    return python.absolute()


def _found(command: list[str | Path], name: str, asked: Path) -> dict[str, Any]:
    """What an adapter predicts; what its tool refuses is logged next to it."""
    to = _BUILD / f"{name}.json"
    with (_BUILD / f"{name}.log").open("w", encoding="utf-8") as log:
        subprocess.run([*command, asked, to], check=True, stderr=log)
    return json.loads(to.read_text(encoding="utf-8"))


def _run(listed: list[rows.Row]) -> dict[str, Any]:
    """What every tool predicts of rows."""
    asked = _BUILD / "rows.json"
    asked.write_text(json.dumps(listed), encoding="utf-8")
    found = _found([sys.executable, "-m", "benchmarks.showdown.formulas"], "formulas", asked)
    for requirement, adapter in TOOLS.items():
        found |= _found([_environment(requirement), _HERE / f"{adapter}.py"], adapter, asked)
    return found


def main() -> int:
    """Run every tool, keep or check what it predicts; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.showdown", description=__doc__)
    parser.add_argument("tables", type=Path, nargs="*", metavar="CASES.csv", help="measured rows")
    asked = parser.parse_args()
    _BUILD.mkdir(parents=True, exist_ok=True)
    if asked.tables:
        read = rows.read(*tables_of(asked.tables))
        kept.write(read, _run(read.rows))
        return 0
    listed = rows.published()
    others = kept.others(listed, _run(listed))
    print("\n".join(others) or f"{len(listed)} rows: every tool predicts what was kept")
    return bool(others)


if __name__ == "__main__":
    sys.exit(main())
