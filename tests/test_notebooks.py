"""Every notebook runs without a warning, and is the pair of its .py file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

jupytext = pytest.importorskip("jupytext")
nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

#: A short one runs with every test, the others, which sweep millions of designs, by `make notebooks`.
SHORT = "11"
RUN = [pytest.param(path, marks=() if path.stem.startswith(SHORT) else pytest.mark.slow) for path in NOTEBOOKS]


def sources(notebook) -> list[tuple[str, str]]:
    return [(cell.cell_type, cell.source) for cell in notebook.cells]


def test_there_are_notebooks():
    assert NOTEBOOKS
    assert {path.stem for path in NOTEBOOKS} == {path.stem for path in (ROOT / "notebooks").glob("*.py")}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_pair_is_in_line(path):
    notebook = nbformat.read(path, 4)
    assert sources(notebook) == sources(jupytext.read(path.with_suffix(".py"))), "run: make notebooks"
    assert not any(cell.get("outputs") for cell in notebook.cells), "notebooks are kept without output"


@pytest.mark.parametrize("path", RUN, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the notebook client, not of ours
def test_runs(path, monkeypatch):
    if not path.stem.startswith(SHORT):  # millions of designs take less time by programs that took longer to compile
        monkeypatch.delenv("XLA_FLAGS", raising=False)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    notebook = nbformat.read(path, 4)
    client = nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}
    )
    client.execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert not [output.text for output in outputs if output.output_type == "stream" and output.name == "stderr"]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 2
