"""Results files with bytes changed, lost or put in: read and compared as they were written, or refused in four parts.

Each is opened and drawn from by a process of its own for all of them, which a library that is given nonsense may end.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

import dse
from dse.errors import InputError
from dse.views import plot
from tests.conftest import full_size, slow
from tests.contract.fuzz import readers, results, samples

ROOT = Path(__file__).parents[3]


def mutant(content: bytes, chance: random.Random) -> bytes:
    """A file with one change."""
    at, length = chance.randrange(len(content)), chance.choice((1, 16, 4096))
    noise = chance.randbytes(length)
    return {
        "other": content[:at] + noise + content[at + length :],
        "cut": content[:at],
        "lost": content[:at] + content[at + length :],
        "put in": content[:at] + noise + content[at:],
        "zeros": content[:at] + bytes(length) + content[at + length :],
        "twice": content + content,
        "head": noise + content[length:],
        "tail": content[:-length] + noise,
        "more": content + noise,
    }[chance.choice(("other", "cut", "lost", "put in", "zeros", "twice", "head", "tail", "more"))]


def open_mutants(results: Path, folder: Path, count: int, seed: int) -> int:
    """Open so many mutants; gives how many were read, each with the numbers that were written."""
    from dse.views import plot

    content, chance, read = results.read_bytes(), random.Random(seed), 0
    with dse.open_results(results) as found:
        whole = found.load()
    for number in range(count):
        path = folder / f"{number}.nc"
        path.write_bytes(mutant(content, chance))
        try:
            with dse.open_results(path) as found:
                assert found.load().equals(whole), number
            dse.overview(path)
            plot.suited(whole)
            assert dse.diff(results, path)["same"], number
            read += 1
        except InputError as error:
            assert all((error.where, error.got, error.allowed, error.fix)), number
        path.unlink()
    return read


def test_mutants_of_results(tmp_path, small_results):
    program = (
        "import sys; from pathlib import Path; from tests.contract.fuzz.test_results import open_mutants; "
        "open_mutants(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), 1)"
    )
    arguments = [sys.executable, "-c", program, small_results[1], tmp_path, str(full_size(60, 2000))]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("count", [8, slow(24)])
def test_mutants_of_every_kind(tmp_path, count):
    """Rewritten by xarray or by malice: all that reads them ends well or in four parts. ``make fuzz`` tries more."""
    made = samples.make(tmp_path / "samples", samples.QUICK)
    few = {"few": full_size(2, 0), "spoilt": 0.0}  # of changed bytes netCDF may end the process
    for mutant in results.tried(full_size(count, 2000), 1, made, tmp_path / "work", **few):
        assert not mutant.faults, (mutant.name, mutant.faults)


@pytest.mark.parametrize("name", ["best", slow("top"), "grid"])
def test_files_that_are_whole_are_read_by_all(tmp_path, name):
    """But for figures that the results are not for."""
    (path,) = samples.make(tmp_path, [name]).values()
    for reader, read in readers.every(path).items():
        try:
            read(path)
        except InputError as error:
            assert reader.startswith("plot"), (reader, error)
            with dse.open_results(path) as found:
                assert reader.removeprefix("plot ") not in plot.suited(found), (reader, error)


def test_damage_without_a_checksum_is_told_when_the_file_is_opened(tmp_path, small_results):
    """The end of a file, with its checksum and the data of the overview, is noise: HDF5 tells only who reads these."""
    content, path = small_results[1].read_bytes(), tmp_path / "r.nc"
    path.write_bytes(content[:-2180] + random.Random(1).randbytes(4096))
    with pytest.raises(InputError, match=r"a damaged file: .* cannot be read"):
        dse.overview(path)
