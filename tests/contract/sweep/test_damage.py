"""Single flipped bits in what lies on disk between two runs: noticed and made good, never believed, never a crash.

``--hypothesis-profile=fuzz`` flips two hundred of each kind.
"""

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import netCDF4
import numpy as np
import pytest
from hypothesis import settings

from dse.errors import InputError
from dse.optimizers import checkpoint
from dse.optimizers.pareto import ParetoFront
from dse.optimizers.space import Point
from dse.sweep import Interrupted, Shard, merge, open_results, perform, perform_shard
from dse.sweep.results import writing
from dse.sweep.store import parts
from tests.contract.sweep.test_run import interrupt_after, raise_interrupt
from tests.contract.sweep.test_shards import short_blocks  # noqa: F401 - a fixture
from tests.unit.sweep import toy

FLIPS = max(3, settings.default.max_examples // 10)
CHUNK = 720
TOY = dict(study=toy.STUDY, chunk=CHUNK)


def flipped(path, chance):
    """Flip one bit of a file, anywhere."""
    content = bytearray(path.read_bytes())
    bit = chance.randrange(8 * len(content))
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def interrupted(output):
    with pytest.raises(Interrupted):
        perform(toy.sweep(), output, progress=interrupt_after(4, raise_interrupt), **TOY)


def whole(folder):
    perform(toy.sweep(), folder / "whole.nc", **TOY)
    return (folder / "whole.nc").read_bytes()


def copies(original, folder):
    """One fresh copy of a folder after the other."""
    for _ in range(FLIPS):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(original, folder)
        yield folder


def flip_parts(folder):
    """Parts of an interrupted run: those that are damaged are computed again and counted."""
    expected, chance = whole(folder), random.Random(1)
    interrupted(folder / "first" / "r.nc")
    for copy in copies(folder / "first", folder / "copy"):
        path = chance.choice(sorted((copy / "r.nc.parts").glob("*-*")))
        flipped(path, chance)
        summary = perform(toy.sweep(), copy / "r.nc", **TOY)[1]
        assert (copy / "r.nc").read_bytes() == expected
        assert bool(summary.redone) == (path.suffix == ".npz"), path


def flip_shards(folder):
    """Parts and manifests of shards: a merge is the undisturbed run, or says which shard to run again."""
    expected, chance = whole(folder), random.Random(2)
    for i in (1, 2):
        perform_shard(toy.sweep(), Shard(i, 2), folder / "first" / "r.nc", **TOY)
    for copy in copies(folder / "first", folder / "copy"):
        path = chance.choice(sorted((copy / "r.nc.parts").glob("*-*")))
        flipped(path, chance)
        try:
            merge(copy / "r.nc", study=toy.STUDY)
        except InputError as error:
            assert "damaged part" in error.got or "manifest" in error.got, error
            perform(toy.sweep(), copy / "r.nc", **TOY)
        assert (copy / "r.nc").read_bytes() == expected


def flip_results(folder):
    """Results: readers are told, the same run makes them again and says so."""
    expected, chance, output = whole(folder), random.Random(3), folder / "whole.nc"
    for _ in range(FLIPS):
        flipped(output, chance)
        with pytest.raises(InputError, match="damaged"):
            open_results(output)
        summary = perform(toy.sweep(), output, **TOY)[1]
        assert summary.damaged and not summary.finished
        assert output.read_bytes() == expected


@pytest.mark.parametrize("flips", [flip_parts, flip_shards, flip_results], ids=lambda one: one.__name__)
def test_single_flipped_bits(tmp_path, flips):
    """In a process of its own, which a library that is given nonsense may end."""
    program = (
        "import sys; from pathlib import Path; import dse.sweep.reduce.keep as keep; keep._CHUNKS_PER_BLOCK = 1; "
        "from tests.contract.sweep import test_damage; test_damage.FLIPS = int(sys.argv[3]); "
        "getattr(test_damage, sys.argv[2])(Path(sys.argv[1]))"
    )
    arguments = [sys.executable, "-c", program, tmp_path, flips.__name__, str(FLIPS)]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=Path(__file__).parents[3])
    assert done.returncode == 0, done.stderr[-3000:]


def test_parts_that_others_made_are_not_believed(tmp_path):
    """Valid archives of arrays: one in the place of another, one with other numbers in it."""
    expected, output = whole(tmp_path), tmp_path / "r.nc"
    interrupted(output)
    first, second, third, *_ = sorted((tmp_path / "r.nc.parts").glob("*.npz"))
    shutil.copy(first, second)
    with np.load(third) as arrays:
        forged = {name: arrays[name] for name in arrays}
    np.savez(third, **forged | {"values": forged["values"] * np.float32(0.5)})
    summary = perform(toy.sweep(), output, **TOY)[1]
    assert summary.redone > 0 and output.read_bytes() == expected


def test_a_pipe_is_no_part(tmp_path):
    """Nor is it a manifest: neither is waited for."""
    expected, output = whole(tmp_path), tmp_path / "r.nc"
    interrupted(output)
    folder = tmp_path / "r.nc.parts"
    for path in (next(folder.glob("*.npz")), next(folder.glob("*.jsonl"))):
        path.unlink()
        os.mkfifo(path)
    summary = perform(toy.sweep(), output, **TOY)[1]
    assert summary.resumed > 0 and output.read_bytes() == expected


def test_every_chunk_of_a_file_has_a_checksum(tmp_path):
    whole(tmp_path)
    with netCDF4.Dataset(tmp_path / "whole.nc") as file:
        sizes = {
            name: file[name].filters()["fletcher32"]
            for name in file.variables
            if file[name].size > 1 and file[name].dtype is not str  # texts have that of the whole file alone
        }
    assert sizes and all(sizes.values())


@pytest.mark.parametrize("change", ['compression = "zlib"', 'compression = "none"', "histogram = 8", 'keep = "best"'])
def test_other_options_of_the_output_are_not_finished(tmp_path, change):
    """What is written under other options of the output is what a first run under them writes."""
    output, spec = tmp_path / "r.nc", toy.sweep(more=f"[output]\n{change}")
    perform(toy.sweep(), output, **TOY)
    assert not perform(spec, output, **TOY)[1].finished
    assert perform(spec, output, **TOY)[1].finished
    perform(spec, tmp_path / "first.nc", **TOY)
    assert output.read_bytes() == (tmp_path / "first.nc").read_bytes()


def test_the_same_run_gives_the_same_bytes(tmp_path, monkeypatch):
    """At any time and on any host: those are told by the note beside the file."""
    expected = whole(tmp_path)
    first = json.loads((tmp_path / "whole.nc.dse.json").read_bytes())
    monkeypatch.setattr(writing.socket, "gethostname", lambda: "elsewhere")
    perform(toy.sweep(), tmp_path / "whole.nc", fresh=True, **TOY)
    second = json.loads((tmp_path / "whole.nc.dse.json").read_bytes())
    assert (tmp_path / "whole.nc").read_bytes() == expected
    assert second["host"] == "elsewhere" and first["created"] and first["seconds"].keys() == second["seconds"].keys()


def test_a_checkpoint_of_a_search_is_believed_only_as_it_was_saved(tmp_path):
    numbers = np.arange(6.0).reshape(2, 3)
    front = ParetoFront(Point(numbers, numbers), numbers)
    found = checkpoint.MethodProgress(
        2, [numbers], {name: numbers for name in checkpoint._HISTORY}, numbers, front, None
    )
    chance, path = random.Random(4), tmp_path / "search-random.npz"
    for _ in range(10 * FLIPS):
        checkpoint.save(path, "key", found)
        assert checkpoint.load(path, "key").steps == 2 and checkpoint.load(path, "other") is None
        flipped(path, chance)
        assert checkpoint.load(path, "key") is None


def test_of_parts_that_overlap_those_are_taken_that_hold_most():
    found = [range(4), range(3, 20), range(4, 6), range(6, 9), range(19, 30)]
    assert sorted(one.start for one in parts._most_indices(found)) == [0, 4, 6, 19]
    assert [(one.start, one.stop) for one in parts._most_indices([range(3, 20), range(4)])] == [(3, 20)]
    assert parts._most_indices([]) == []
