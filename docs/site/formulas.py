"""Formulas as MathML, which browsers draw themselves: no script, no font and nothing from the network."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.errors import SphinxError
from sphinx.writers.html5 import HTML5Translator


def _written(writer: HTML5Translator, node: nodes.math | nodes.math_block, block: bool) -> None:
    text = node.astext()
    try:
        mathml = tex2mathml(text, as_block=block)
    except MathError as error:
        raise SphinxError(f"{node.source}: the formula {text!r}: {error}") from error
    writer.body.append(mathml)
    raise nodes.SkipNode


def inline(writer: HTML5Translator, node: nodes.math) -> None:
    """Write a formula of a line."""
    _written(writer, node, block=False)


def block(writer: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula that stands alone."""
    _written(writer, node, block=True)


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
