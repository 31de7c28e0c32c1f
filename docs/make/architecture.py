"""The table of rooms on the page of the docs on the architecture, of the packages' own docstrings and imports.

``python -m docs.make.architecture docs/architecture.md`` writes it in place, between ``<!-- table: rooms -->`` and
``<!-- end of table -->``; the text around it is written by hand.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from docs.make.command import page_parser
from docs.make.markdown import fill, tight_table

ROOT = Path(__file__).parents[2]

#: Rooms that all others may import, which the table does not repeat.
_GROUND = {"errors", "io", "surface", "types"}

#: Packages whose parts are rooms of their own.
_STOREYS = ("dse/model", "dse/sweep", "dse/lab")


def filled(page: str) -> str:
    """Return the page with its table as the packages have it today."""
    return fill(page, {"rooms": tight_table(("room", "holds", "imports"), _rows())})


def rooms() -> list[Path]:
    """List the packages and modules of the table, from the root of the repository."""
    parts = [path for path in sorted((ROOT / "dse").iterdir()) if _is_room(path)]
    inner = [child for storey in _STOREYS for child in sorted((ROOT / storey).iterdir()) if _is_package(child)]
    return sorted(path.relative_to(ROOT) for path in (*parts, *inner))


def _is_room(path: Path) -> bool:
    return _is_package(path) or (path.suffix == ".py" and not path.name.startswith("__"))


def _is_package(path: Path) -> bool:
    return (path / "__init__.py").exists()


def _rows() -> Iterator[list[str]]:
    for room in rooms():
        path = ROOT / room
        source = path if path.suffix else path / "__init__.py"
        text = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
        summary = " ".join(text.partition("\n\n")[0].split())
        summary = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", summary).replace("``", "`")
        yield [f"`{room.as_posix()}{'' if path.suffix else '/'}`", summary, ", ".join(_imports(room))]


def _imports(room: Path) -> list[str]:
    """List the rooms right below ``dse`` that a room imports, but for itself and those that all may import."""
    own = room.parts[1].removesuffix(".py")
    path = ROOT / room
    found = set[str]()
    for file in [path] if path.suffix else path.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name.split(".")[1] for name in names if name.startswith("dse.")}
    known = {part.parts[1].removesuffix(".py") for part in rooms()}
    return sorted(found & known - {own} - _GROUND)


if __name__ == "__main__":
    target: Path = page_parser(__doc__).parse_args().page
    target.write_text(filled(target.read_text(encoding="utf-8")), encoding="utf-8")
