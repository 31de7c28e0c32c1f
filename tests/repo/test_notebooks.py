"""Every notebook runs without a warning, is the pair of its .py file, and is kept with its outputs."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from docs.make.notebooks import ADDRESS, FIGURE, NOTEBOOK, PATH, execute, plain

jupytext = pytest.importorskip("jupytext")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

#: A short one runs with every test, the others, which sweep millions of designs, by `make notebooks`.
SHORT = "06"
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


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_kept(path):
    """Figures and text of every notebook, none an error, small, and the same of a second run on another machine."""
    code = [cell for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]
    outputs = [output for cell in code for output in cell.outputs]
    assert outputs, f"run: make notebooks NOTEBOOKS={path.with_suffix('.py').relative_to(ROOT)}"
    assert {output.output_type for output in outputs} <= {"stream", "display_data", "execute_result"}
    pictures = [output.data["image/png"] for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) >= 2 and all(len(base64.b64decode(one)) <= FIGURE for one in pictures)
    assert path.stat().st_size <= NOTEBOOK
    data = [(kind, text) for output in outputs for kind, text in output.get("data", {"": output.get("text")}).items()]
    assert not [text for kind, text in data if kind != "image/png" and (PATH.search(text) or ADDRESS.search(text))]
    assert not any(cell.execution_count or "execution" in cell.metadata for cell in code)


def test_what_changes_between_runs_is_left_out():
    assert plain("wrote '/tmp/tmpx1/r.nc', <A at 0x7f00aa11>") == "wrote '…/r.nc', <A at 0x…>"
    for kept in ("3 tokens/s/GPU", "<td>1/2</td></tr>", "https://a.b/c/d", "sweeps/a.toml"):
        assert plain(kept) == kept


@pytest.mark.parametrize("path", RUN, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the notebook client, not of ours
def test_runs(path, monkeypatch):
    if not path.stem.startswith(SHORT):  # millions of designs take less time by programs that took longer to compile
        monkeypatch.delenv("XLA_FLAGS", raising=False)
    notebook = nbformat.read(path, 4)
    execute(notebook, path.parent)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert not [output.text for output in outputs if output.output_type == "stream" and output.name == "stderr"]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 2
