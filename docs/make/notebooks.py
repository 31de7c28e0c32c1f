"""``python -m docs.make.notebooks notebooks/*.py``: each notebook anew from its .py, executed, with its outputs.

What is kept of outputs is text, tables and figures, so that a second run gives the same file: no execution counts and
times, no paths of this machine, figures of few colours and without metadata.
"""

from __future__ import annotations

import argparse
import base64
import io
import os
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

#: Maximum bytes of a figure and of a notebook.
FIGURE, NOTEBOOK = 60_000, 400_000

#: Kinds of output that are kept; HTML is that of tables.
_KEPT = ("text/plain", "text/html", "image/png")

#: Colours of a figure, most first: the first that fits into :data:`FIGURE`.
_COLOURS = (256, 64, 16)

#: What changes between runs and machines: an absolute path of two names or more, and an address in memory.
PATH, ADDRESS = re.compile(r"(?<![\w.…<:/)\]])(?:/[\w.\-]+){2,}"), re.compile(r"\b0x[0-9a-f]{6,}")

#: Seconds of a cell; the first program that XLA compiles on a busy machine takes long.
_TIMEOUT = 600


def main() -> None:
    """Write the notebooks that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scripts", type=Path, nargs="+", metavar="NOTEBOOK.py")
    for script in parser.parse_args().scripts:
        print(write(script), flush=True)


def write(script: Path) -> Path:
    """Execute the notebook of a script; returns the file that has it with outputs.

    Raises:
        ValueError: for output on stderr, and for a figure or notebook above :data:`FIGURE` or :data:`NOTEBOOK`.
    """
    import jupytext
    import nbformat

    notebook = jupytext.read(script)
    place = script.with_suffix(".ipynb")
    named = {name: dict(notebook.metadata[name]) for name in ("jupytext", "kernelspec")}
    named["jupytext"].pop("text_representation", None)
    execute(notebook, script.parent)
    notebook.metadata = nbformat.from_dict(named)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        if cell.cell_type == "code":
            cell.execution_count = None
            cell.outputs = [kept(output, f"{place}, cell {number}") for output in cell.outputs]
    text = nbformat.writes(notebook, 4) + "\n"
    if len(text.encode()) > NOTEBOOK:
        raise ValueError(f"{place}: {len(text.encode()):,} bytes, of {NOTEBOOK:,}")
    place.write_text(text, encoding="utf-8")
    return place


def execute(notebook: Any, folder: Path) -> None:
    """Execute a notebook in place, in a folder, with the modules of this checkout."""
    import nbclient

    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    client = nbclient.NotebookClient(
        notebook,
        timeout=_TIMEOUT,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute(env=os.environ | {"PYTHONPATH": paths})


def kept(output: Any, where: str) -> Any:
    """What is kept of one output."""
    if output.output_type == "stream":
        if output.name == "stderr":
            raise ValueError(f"{where}: {output.text}")
        output.text = plain(output.text)
        return output
    output.metadata = {}
    if "execution_count" in output:
        output.execution_count = None
    for kind in list(output.data):
        if kind not in _KEPT:
            del output.data[kind]
        elif kind == "image/png":
            output.data[kind] = small(output.data[kind], where)
        else:
            output.data[kind] = plain(output.data[kind])
    return output


def plain(text: str) -> str:
    """A text without what changes between runs and machines: addresses, and all of a path but its last name."""
    return ADDRESS.sub("0x…", PATH.sub(lambda found: f"…/{Path(found[0]).name}", text))


def small(picture: str, where: str) -> str:
    """A PNG in base64, again with few colours and without metadata."""
    from PIL import Image

    pixels = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB")
    for colours in _COLOURS:
        made = io.BytesIO()
        pixels.quantize(colours, dither=Image.Dither.NONE).save(made, "PNG", optimize=True)
        if made.tell() <= FIGURE:
            return base64.b64encode(made.getvalue()).decode() + "\n"
    raise ValueError(f"{where}: a figure of {made.tell():,} bytes, of {FIGURE:,}")


if __name__ == "__main__":
    main()
