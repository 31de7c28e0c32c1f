"""The rooms on the page of the docs on the architecture, of the packages' own docstrings and imports.

``python -m docs.make.architecture docs/architecture.md`` writes them in place, between ``<!-- table: ... -->`` and
``<!-- end of table -->``: a table with a line a room, and what each room says of itself beyond this line. The text
around them is written by hand.
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
    """Return the page with its rooms as the packages have them today."""
    return fill(page, {"rooms": tight_table(("room", "holds", "imports"), _rows()), "texts": "\n\n".join(_texts())})


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
        summary, _, _ = _docstring(room).partition("\n\n")
        yield [_label(room), " ".join(summary.split()), ", ".join(_imports(room))]


def _texts() -> Iterator[str]:
    """Yield the paragraphs of each package's docstring below its summary, with the room in front."""
    for room in rooms():
        _, _, text = _docstring(room).partition("\n\n")
        if text and not room.suffix:
            yield f"**{_label(room)}.** {text}"


def _label(room: Path) -> str:
    return f"`{room.as_posix()}{'' if room.suffix else '/'}`"


def _docstring(room: Path) -> str:
    """Return the docstring of a room in Markdown: roles and double quotes become code."""
    source = ROOT / room if room.suffix else ROOT / room / "__init__.py"
    text = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    return re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text).replace("``", "`").replace("::\n", ":\n")


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
