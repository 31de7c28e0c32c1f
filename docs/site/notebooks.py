"""Executed notebooks as pages: their texts as Markdown, code in boxes, under it the outputs that they are kept with."""

from __future__ import annotations

import base64
import html
import json
from pathlib import Path
from typing import Any

from docutils import nodes
from myst_parser.parsers.sphinx_ import MystParser
from sphinx.application import Sphinx

#: Where figures go, seen from the pages of notebooks, which lie one folder deep.
FIGURES = "_images/notebooks"


def fenced(text: str, language: str) -> str:
    """A block of Markdown, whatever the text has."""
    return f"~~~~~~{language}\n{text.rstrip()}\n~~~~~~"


class NotebookParser(MystParser):
    """Reads ``.ipynb``; nothing is executed."""

    supported = ("notebook",)
    site: Path  #: the folder of the site

    def parse(self, inputstring: str, document: nodes.document) -> None:
        """Parse a notebook as the Markdown that it amounts to."""
        name = Path(document.settings.env.docname).name
        parts: list[str] = []
        about = name
        for number, cell in enumerate(json.loads(inputstring)["cells"]):
            source = "".join(cell["source"])
            if cell["cell_type"] == "markdown":
                about = " ".join(source.strip().partition("\n\n")[0].split()).strip("# ")
            parts.append(source if cell["cell_type"] == "markdown" else fenced(source, "python"))
            for place, output in enumerate(cell.get("outputs", ())):
                parts.append(self._output(output, f"{name}-{number}-{place}.png", about))
        super().parse("\n\n".join(parts), document)

    def _output(self, output: dict[str, Any], figure: str, about: str) -> str:
        data = {kind: "".join(text) for kind, text in output.get("data", {}).items()}
        if "image/png" in data:
            file = self.site / FIGURES / figure
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(base64.b64decode(data["image/png"]))
            shown = f'<p><img class="figure" src="../{FIGURES}/{figure}" alt="Figure: {html.escape(about)}"></p>'
            return fenced(shown, "{raw} html")
        if "text/html" in data:
            table = data["text/html"].replace('border="1" class="dataframe"', 'class="docutils"')
            return fenced(f'<div class="table-wrapper">{table}</div>', "{raw} html")
        text = data.get("text/plain") or "".join(output.get("text", ()))
        return fenced(f":class: output\n\n{text}", "{code-block} text")


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    NotebookParser.site = Path(app.outdir)
    app.add_source_suffix(".ipynb", "notebook")
    app.add_source_parser(NotebookParser)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
