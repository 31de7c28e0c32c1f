"""``python -m tests.contract.fuzz.results 2000 [seed [readers]]``: mutants of results of all kinds through all readers.

With a number of readers each goes through so many of them. A line for each fault, and one for each hundred mutants; the
files that have a fault are kept.
"""

from __future__ import annotations

import copy
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dse.errors import InputError
from dse.io.files import MARK, seal
from tests.contract.fuzz import doors, readers, rewrites, samples

#: Times that a mutant is drawn anew because the library cannot write it.
_TRIES = 5

#: Mutants between two lines.
_TELL_EVERY = 100


class Tried(NamedTuple):
    """A mutant and what became of it."""

    name: str  #: of what it was made
    path: Path
    faults: dict[str, str]  #: by reader
    refused: bool  #: by the first reader, which opens it


def tried(
    count: int, seed: int, made: dict[str, Path], folder: Path, few: int = 0, spoilt: float = 0.1
) -> Iterator[Tried]:
    """So many mutants of these files.

    Args:
        count: of mutants.
        seed: of what is made wrong.
        made: name → file.
        folder: where mutants are, one after the other.
        few: readers of each, drawn anew; 0 for all of them.
        spoilt: share of mutants whose bytes are changed: of these netCDF may end the process.
    """
    rng = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    whole = {name: rewrites.read(path) for name, path in made.items()}
    for number in range(count):
        name = rng.choice(list(made))
        path = folder / f"{number}.nc"
        for left in range(_TRIES)[::-1]:
            try:
                mutate(made[name], whole, name, path, rng, spoilt)
                break
            except RuntimeError:  # the library cannot write what was drawn
                path.unlink(missing_ok=True)
                if not left:
                    raise
        faults, refused = _faults(name, path, made, rng, few)
        yield Tried(name, path, faults, refused)
        for left in folder.iterdir():
            if left.stem in (str(number), "resumed") or left.name.startswith(("resumed.nc", f"{number}.")):
                left.unlink()


def mutate(
    original: Path, whole: dict[str, rewrites.Content], name: str, path: Path, rng: random.Random, spoilt: float
) -> None:
    """Write a mutant: rewritten content, or changed bytes; some under a seal that fits them."""
    if rng.random() < spoilt:
        from tests.contract.fuzz.test_results import mutant

        content = original.read_bytes()
        path.write_bytes(mutant(content[: content.rfind(f"\n# {MARK}".encode())], rng))
    elif rng.random() < 0.3:
        rewrites.by_xarray(original, path, rng)
    else:
        content = copy.deepcopy(whole[name])
        rewrites.changed(content, rng, [one for other, one in whole.items() if other != name])
        rewrites.write(content, path)
    if rng.random() < 0.3:
        seal(path)


def _faults(name: str, path: Path, made: dict[str, Path], rng: random.Random, few: int) -> tuple[dict[str, str], bool]:
    """What is wrong with how readers take a file, by reader, and whether it is not even opened."""
    found = readers.every(made[name])
    chosen = ["open", *rng.sample([one for one in found if one != "open"], few)] if few else list(found)
    faults = {}
    for one in chosen:
        if fault := _fault_of(found[one], path):
            faults[one] = fault
    if name in samples.SWEEPS and rng.random() < 0.1:
        specification, keep = made[name].with_suffix(".toml"), samples.SWEEPS[name][1]
        if fault := _fault_of(readers.resumed(specification, keep), path):
            faults["run"] = fault
    return faults, _is_refused(path)


def _is_refused(path: Path) -> bool:
    import dse

    try:
        with dse.open_results(path):
            return False
    except InputError:
        return True
    except Exception:
        return False


def _fault_of(reader: readers.Reader, path: Path) -> str:
    """A fault with the place where it was raised."""
    places: list[str] = []

    def read(path: Path) -> None:
        import warnings

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                reader(path)
        except InputError:
            raise
        except BaseException as error:
            own = [frame for frame in traceback.extract_tb(error.__traceback__) if "/dse/" in frame.filename]
            places.extend(f"{Path(frame.filename).name}:{frame.lineno}" for frame in own[-3:])
            raise

    fault = doors.fault_of(read, path, leaves=True)
    return f"{fault} [{' '.join(places)}]" if fault else ""


def run(count: int, seed: int, few: int = 0) -> int:
    """Try so many mutants and tell of them; gives how many had a fault."""
    kept = Path(tempfile.mkdtemp(prefix="dse-fuzz-results-"))
    made = samples.make(kept / "samples")
    wrong = refused = 0
    began = time.monotonic()
    for done, one in enumerate(tried(count, seed, made, kept / "work", few), 1):
        refused += one.refused
        if one.faults:
            wrong += 1
            document = kept / f"{wrong}-{one.name}.nc"
            document.write_bytes(one.path.read_bytes())
            for reader, fault in one.faults.items():
                print(f"{document}: {reader}: {fault}", flush=True)
        if done % _TELL_EVERY == 0 or done == count:
            seconds = time.monotonic() - began
            told = f"{refused:,} refused when opened, {wrong} with faults, {seconds:.0f} s"
            print(f"{done:,} mutants of results files of seed {seed}, {told}", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(bool(run(*map(int, sys.argv[1:]))))
