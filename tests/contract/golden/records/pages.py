"""Generated pages and the tables beside them, as their makers print them now."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[4]

_ROWS = ("calculon", "fine_tuning", "korthikanti_2022", "megatron_b200", "narayanan_2021", "torchtitan_2024")

#: Page → its maker and arguments. Other tests hold that pages of the repository are what is made: test_docs of
#: reference and cost, test_readme of readme, test_technology of technology, test_showdown of
#: showdown, test_ablation of the numbers of options, test_studies of rows of studies. Without a record are systems,
#: benchmarks and many_machines, which tell rates of a machine; simulate and studies, which take minutes; and
#: those of rows that the repository lacks: kernels, energy, serving, calibration, intervals, measure, forecasts.
MAKERS: dict[str, tuple[str, ...]] = {
    "reference": ("docs.make.reference", "docs/reference.md"),
    "readme": ("docs.make.readme", "README.md"),
    "technology": ("docs.make.technology", "docs/technology.md"),
    "cost": ("docs.make.cost", "docs/cost.md"),
    "search": ("docs.make.search", "docs/search.md"),
    "accuracy": ("docs.make.accuracy", "docs/accuracy.md", *(f"{name}.csv" for name in _ROWS)),
}


def names() -> list[str]:
    """Every page of the table."""
    return [*MAKERS]


def record(name: str) -> Any:
    """Every text that the maker of a page writes, in a folder with copies of the pages and links to all else."""
    with tempfile.TemporaryDirectory() as folder:
        for path in ROOT.iterdir():
            if path.name == "docs":
                shutil.copytree(path, Path(folder, "docs"), ignore=shutil.ignore_patterns("__pycache__", "site"))
            elif path.suffix == ".md":
                shutil.copy(path, folder)
            elif not path.name.startswith("."):
                Path(folder, path.name).symlink_to(path)
        for table in _ROWS:
            (path,) = (ROOT / "tests").rglob(f"{table}.csv")
            shutil.copy(path, folder)
        pages = [path for path in (*Path(folder, "docs").rglob("*"), *Path(folder).glob("*.md")) if path.is_file()]
        for path in pages:
            os.utime(path, (0, 0))
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        command = [sys.executable, "-m", *MAKERS[name]]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: status {done.returncode}\n{done.stderr}")
        texts = [
            path
            for path in (*Path(folder, "docs").rglob("*"), *Path(folder).glob("*.md"))
            if path.suffix in {".md", ".csv"}
        ]
        return {
            path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
            for path in sorted(texts)
            if path.stat().st_mtime
        }
