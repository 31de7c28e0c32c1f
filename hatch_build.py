"""Metadata that depend on where the repository is: addresses of the project, and links and pictures of the README.

The package index shows the README outside of the repository, so its links become those of the files in the repository
at this version. Without an address (``repository`` of ``[tool.hatch.metadata.hooks.custom]``) a link is its text, and a
picture its description.
"""

from __future__ import annotations

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

#: A link or picture: mark of a picture, text, target (none of which has an address of its own).
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)]+)\)")


def absolute(readme: str, repository: str, version: str) -> str:
    """The README as the package index shows it."""

    def link(found: re.Match[str]) -> str:
        picture, text, target = found.groups()
        return f"{picture}[{text}]({repository}/{'raw' if picture else 'blob'}/v{version}/{target})"

    if repository:
        return LINK.sub(link, readme)
    return LINK.sub(lambda found: f"*{found[2]}*" if found[1] else found[2], readme)


def addresses(repository: str) -> dict[str, str]:
    """Addresses of the project by name."""
    pages = {
        "Documentation": "/blob/main/docs/index.md",
        "Changelog": "/blob/main/CHANGELOG.md",
        "Issues": "/issues",
        "Citation": "/blob/main/CITATION.cff",
    }
    return {"Repository": repository} | {name: repository + path for name, path in pages.items()} if repository else {}


class Metadata(MetadataHookInterface):
    """The hook that hatchling calls."""

    def update(self, metadata: dict) -> None:
        """Set README and addresses."""
        repository = self.config["repository"].rstrip("/")
        version = re.search(r'__version__ = "(.+)"', Path(self.root, "dse/__init__.py").read_text(encoding="utf-8"))[1]
        text = absolute(Path(self.root, "README.md").read_text(encoding="utf-8"), repository, version)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = addresses(repository)
