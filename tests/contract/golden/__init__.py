"""Every metric of the panel's designs, as it was when somebody last looked: no number of the model changes unnoticed.

The designs are kept leaf by leaf, so that a fit, a price or a data sheet moves none of them: only the model does.
``python -m tests.contract.golden`` writes them anew, ``python -m tests.contract.golden NAME …`` those of these names;
whoever does it reads the difference, and says in the commit which numbers moved and why.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from dse.designs import leaf, leaves_of
from dse.types import Design, paths

PATH = Path(__file__).parent / "panel.json"


@functools.cache
def kept() -> dict[str, Any]:
    """Name of the panel → its leaves, its metrics, and its time by what bounds it."""
    return json.loads(PATH.read_text())


def leaves_stated(one: Design) -> dict[str, float]:
    """Path → value of every leaf that a design states."""
    found = {path: leaf(one, path) for path in leaves_of(one)}
    return {path: float(value) for path, value in found.items() if value is not None}


def designed(name: str) -> Design:
    """The design of these leaves that is kept."""
    return paths.build(Design, kept()[name]["leaves"])
