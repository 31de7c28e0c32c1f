"""Arrays by name in one file that is whole or not there, and is believed only as it was written."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dse.io import atomic_file
from dse.io.files import is_sealed, seal


def save(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays to a file (``.npz``) with a checksum of its name and content; readers see all of it or nothing."""
    with atomic_file(path) as partial:
        with partial.open("wb") as file:
            np.savez(file, **arrays)
        seal(partial, path.name)


def load(path: Path) -> dict[str, np.ndarray]:
    """Return name → array of a file; empty unless it is there as it was saved."""
    try:
        if is_sealed(path, path.name):
            with path.open("rb") as file, np.load(file) as arrays:
                return dict(arrays)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        pass
    return {}
