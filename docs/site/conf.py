"""Configuration of Sphinx: ``sphinx-build -c docs/site . site``.

The source folder is the repository, so that README and docs are pages where they lie, with the links that they have
there; a link to a file that is no page offers that file.
"""

from __future__ import annotations

from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

import dse

ROOT = Path(__file__).parents[2]

project, author, release = "dse", "the dse authors", dse.__version__
project_copyright = "the dse authors, Apache-2.0"

#: Section of the table of contents → its pages, by their own titles where none is given. Other pages follow under the
#: last section.
CONTENTS = {
    "Start": (
        "docs/start",
        "On two screens </README>",
        "docs/concepts",
        "docs/guide",
        "docs/recipes",
        "docs/files",
        "docs/many_machines",
    ),
    "Notebooks": tuple(sorted(f"notebooks/{path.stem}" for path in (ROOT / "notebooks").glob("*.ipynb"))),
    "Look up": (
        "docs/reference",
        "docs/options",
        "docs/glossary",
        "docs/launch",
        "docs/api",
        "docs/programs",
        "hw_catalog/README",
    ),
    "The model": tuple(
        f"docs/model/{room}"
        for room in ("layout", "work", "machine", "parallel", "steps", "accounts", "serving", "money")
    ),
    "How far to trust it": (
        "docs/accuracy",
        "docs/intervals",
        "docs/forecasts",
        "docs/studies",
        "docs/answers",
        "docs/read",
        "docs/calibration",
        "docs/comparison",
        "docs/showdown",
        "docs/kernels",
        "docs/energy",
        "docs/serving",
        "docs/simulate",
        "docs/systems",
        "docs/technology",
        "docs/cost",
        "docs/failures",
    ),
    "How it works": (
        "docs/architecture",
        "docs/search",
        "docs/benchmarks",
        "docs/safety",
        "CONTRIBUTING",
        "docs/release",
        "CHANGELOG",
    ),
}

# --- what is read -----------------------------------------------------------------------------------------

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "docs.site.formulas",
    "docs.site.notebooks",
    "docs.site.records",
]
root_doc = "docs/index"
include_patterns = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs/**.md",
    "hw_catalog/README.md",
    "notebooks/*.ipynb",
]
READ = {"docs", "hw_catalog", "notebooks"}
exclude_patterns = [path.name for path in ROOT.iterdir() if path.is_dir() and path.name not in READ]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
myst_links_external_new_tab = False

# --- what is written --------------------------------------------------------------------------------------

html_theme = "furo"
html_title = f"dse {release}"  # over the contents of every page
html_math_renderer = "mathml"
html_extra_path = ["index.html"]
html_static_path = ["style.css"]
html_css_files = ["style.css"]
html_copy_source = html_show_sourcelink = False
html_theme_options = {"sidebar_hide_name": False}

# --- the API ----------------------------------------------------------------------------------------------

autodoc_member_order = "bysource"
autodoc_preserve_defaults = False  # options of groups stand in no source line of a function
napoleon_numpy_docstring = False


LISTED = {root_doc, *(name.strip(">").rpartition("</")[2] for names in CONTENTS.values() for name in names)}
CONTENTS["How it works"] += tuple(
    name
    for path in sorted((ROOT / "docs").rglob("*.md"))
    if (name := path.relative_to(ROOT).with_suffix("").as_posix()) not in LISTED
)


def with_contents(_: Sphinx, page: str, source: list[str]) -> None:
    """Put the table of contents under the first page, which is read without it in the repository."""
    if page == root_doc:
        trees = (
            f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{listed}\n```"
            for caption, names in CONTENTS.items()
            for listed in ["\n".join(name if "<" in name else f"/{name}" for name in names)]
        )
        source[0] = "\n\n".join((source[0], *trees))


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", with_contents)
    app.add_lexer("csv", TextLexer)
