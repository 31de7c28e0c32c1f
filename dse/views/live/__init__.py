"""The page that computes: one design in a browser, with the model in it, without Python and without a network.

``program`` writes the model as a list of operations, ``document`` what the page says of it; ``assets/`` has what the
browser runs: ``machine.js`` the operations, the other scripts controls and figures. Nothing is fetched and no text is
run as code, as the policy of the page says.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import NamedTuple

from dse.doors.study import Study
from dse.io import outputs
from dse.io.files import MARK
from dse.types import Design
from dse.views import document as html
from dse.views.live.document import Named, document

_ASSETS = Path(__file__).parent / "assets"

#: Scripts of the page, in order.
_SCRIPTS = ("machine.js", "text.js", "design.js", "figures.js", "studies.js", "live.js")

__all__ = ["Live", "Named", "sections", "write"]


class Live(NamedTuple):
    """Parts of a page that computes."""

    script: str  #: its text, whose checksum the policy of the page must allow
    parts: dict[str, str]  #: of a template: ``live``, ``live_style`` and ``live_scripts``


#: Parts of a page without one.
NOTHING = Live("", dict.fromkeys(("live", "live_style", "live_scripts"), ""))


def sections(study: Study, design: Design, names: Named) -> Live:
    """The parts for a design, where the page begins; its catalogue names and records stay."""
    script = html.scoped(_ASSETS, _SCRIPTS)
    data = html.as_json(document(study, design, names))
    return Live(
        script,
        {
            "live": (_ASSETS / "live.html").read_text(encoding="utf-8"),
            "live_style": (_ASSETS / "live.css").read_text(encoding="utf-8"),
            "live_scripts": (
                f'<script type="application/json" id="live-document">{data}</script>\n<script>{script}</script>'
            ),
        },
    )


def write(study: Study, design: Design, names: Named, path: Path, force: bool = False) -> None:
    """Write the page of a design.

    Args:
        study: of the design.
        design: where the page begins; its catalogue names and records stay.
        names: its catalogue names.
        path: of the page.
        force: replace a file that dse has not written.
    """
    made = sections(study, design, names)
    parts = {
        "mark": MARK,
        "title": escape(names.title),
        "policy": escape(html.policy([made.script]), quote=True),
        **made.parts,
    }
    with outputs.replacing(path, force) as partial:
        partial.write_text(html.filled(_ASSETS / "page.html", parts), encoding="utf-8")
