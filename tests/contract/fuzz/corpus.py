"""The documents that mutants are made of, each with its door; and the faults that doors have with them."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.contract.fuzz import doors, mutants

ROOT = Path(__file__).parents[3]


class Kind(NamedTuple):
    """Documents of one kind, how they are made wrong and what reads them."""

    documents: tuple[Path, ...]
    mutant: Callable[[str, random.Random], str]
    door: Callable[[Path], None]
    share: float  #: of all mutants


@functools.cache
def kinds() -> tuple[Kind, ...]:
    """Sweeps, searches, accelerators, tables, settings and argument lists of other tools."""
    sweeps = sorted((ROOT / "sweeps").glob("*.toml"))
    searches = tuple(path for path in sweeps if "[search]" in path.read_text() or "[codesign]" in path.read_text())
    others = ("billion_designs", "splitwise_pools")
    plain = tuple(path for path in sweeps if path not in searches and path.stem not in others)
    chips = tuple(sorted((ROOT / "hw_catalog" / "accelerators").glob("*.toml")))
    tables = tuple(path for path in (ROOT / "tests" / "published").glob("*.csv") if path.stem != "calculon")
    lines = tuple(sorted((Path(__file__).parent / "arguments").glob("*.sh")))
    return (
        Kind(plain, mutants.of_toml, doors.sweep, 0.35),
        Kind(searches, mutants.of_toml, doors.search, 0.2),
        Kind(chips, mutants.of_toml, doors.accelerator, 0.15),
        Kind(tables, mutants.of_table, doors.table, 0.15),
        Kind((ROOT / "README.md",), mutants.of_settings, doors.settings, 0.1),
        Kind(lines, mutants.of_arguments, doors.arguments, 0.05),
    )


def faults(count: int, seed: int, folder: Path) -> Iterator[tuple[str, str, str]]:
    """(name, text, fault) of every mutant that a door did not take as it should."""
    return (one for one in tried(count, seed, folder) if one[2])


def tried(count: int, seed: int, folder: Path) -> Iterator[tuple[str, str, str]]:
    """(name, text, fault) of every mutant, the fault "" where its door took it as it should."""
    rng = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    weights = [kind.share for kind in kinds()]
    for _ in range(count):
        kind = rng.choices(kinds(), weights)[0]
        document = rng.choice(kind.documents)
        text = kind.mutant(document.read_text(), rng)
        path = folder / document.name
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        fault = doors.fault_of(kind.door, path)
        path.unlink()
        yield document.name, text, fault
