"""Write the designs of the panel, and what the model says of them."""

import json
import sys

from tests.contract import golden
from tests.panel import PANEL, design
from tests.unit.model.test_panel import measured


def write(names: list[str]) -> None:
    """Those of these names anew, the others as they are kept."""
    old = golden.kept() if golden.PATH.exists() else {}
    new = {}
    for name in names:
        leaves = golden.leaves_stated(design(name))
        new[name] = {"leaves": leaves, "metrics": measured(name, leaves)}
    golden.PATH.write_text(json.dumps({name: new.get(name) or old[name] for name in PANEL}, indent=0) + "\n")


write(sys.argv[1:] or list(PANEL))
