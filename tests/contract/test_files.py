"""What is written where: every door writes to new files and to those of its own making, and reads regular files."""

import contextlib
import gzip
import importlib
import os
import resource
import socket
from pathlib import Path

import pytest

from dse.designs.catalog.load import parse
from dse.errors import InputError
from dse.io import inputs, outputs
from dse.io.files import MARK, bears_mark, is_sealed, seal
from dse.lab.fits import jobs, writing
from dse.measured.table import read_table
from dse.spec import sweep as sweep_spec
from dse.sweep import open_results, perform
from tests.contract.cli.test_cli import CASES, assert_four_parts, command  # noqa: F401 - a fixture
from tests.unit.sweep import toy

STRANGE = "\\documentclass{article}\n"


@contextlib.contextmanager
def full_disk(left):
    """No file may grow beyond so many bytes: what a full disk does, with another word."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (left, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def everything_in(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# --- the policy -------------------------------------------------------------------------------------------


def test_a_strangers_file_is_replaced_by_force_alone(tmp_path):
    path = tmp_path / "thesis.tex"
    path.write_text(STRANGE)
    with pytest.raises(InputError, match=r"not written.*--force"):
        outputs.check_output(path)
    with pytest.raises(InputError, match="not written"), outputs.replacing(path):
        raise AssertionError("nothing is begun")
    assert everything_in(tmp_path) == {path: STRANGE.encode()}
    with outputs.replacing(path, force=True) as partial:
        partial.write_text("ours")
    assert path.read_text() == "ours" and outputs.check_output(path) == path, "and now it is ours"
    path.write_text("ours, and edited")
    with pytest.raises(InputError, match="changed since"):
        outputs.check_output(path)


def test_an_empty_file_holds_nothing_that_could_be_lost(tmp_path):
    (tmp_path / "new").touch()
    assert outputs.check_output(tmp_path / "new") == tmp_path / "new"


@pytest.mark.parametrize("kind", ["folder", "pipe", "socket", "device"])
def test_what_is_no_regular_file_is_neither_written_nor_read(tmp_path, monkeypatch, kind):
    path = Path("/dev/null") if kind == "device" else tmp_path / "it"
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("it")
    link = tmp_path / "link"
    link.symlink_to(path)
    for one in (path, link):
        with pytest.raises(InputError, match=f"a {kind}"):
            outputs.check_output(one, force=True)
        for reader in (sweep_spec.text_of, open_results, parse, read_table):
            with pytest.raises(InputError, match=f"a {kind}"):
                reader(one)


def test_links_are_followed(tmp_path):
    target, link = tmp_path / "there" / "r.txt", tmp_path / "link"
    target.parent.mkdir()
    link.symlink_to(target)
    for text in ("first", "second"):
        with outputs.replacing(link) as partial:
            partial.write_text(text)
        assert link.is_symlink() and target.read_text() == text
    link.unlink()
    link.symlink_to(link)
    with pytest.raises(InputError, match="symbolic links"):
        outputs.check_output(link)


def test_what_is_read_is_not_written(tmp_path):
    read, hard = tmp_path / "s.toml", tmp_path / "same"
    read.write_text(STRANGE)
    os.link(read, hard)
    for path in (read, hard):
        with pytest.raises(InputError, match="a file that is read"):
            outputs.check_output(path, force=True, inputs=[tmp_path / "none", read])


def test_a_block_that_fails_leaves_what_was_there(tmp_path):
    path = tmp_path / "r.txt"
    with outputs.replacing(path) as partial:
        partial.write_text("whole")
    before = everything_in(tmp_path)
    with pytest.raises(KeyboardInterrupt), outputs.replacing(path) as partial:
        partial.write_text("half")
        raise KeyboardInterrupt
    assert everything_in(tmp_path) == before


def test_a_laid_link_is_not_followed(tmp_path, monkeypatch):
    """A temporary name that someone has guessed and linked to a file of ours."""
    victim = tmp_path / "victim"
    victim.write_text(STRANGE)
    monkeypatch.setattr("dse.io.files.unique_suffix", lambda: "guessed")
    (tmp_path / ".r.txt.guessed").symlink_to(victim)
    with outputs.replacing(tmp_path / "r.txt") as partial:
        partial.write_text("ours")
    assert victim.read_text() == STRANGE and (tmp_path / "r.txt").read_text() == "ours"


def test_seals(tmp_path):
    path = tmp_path / "it"
    path.write_bytes(b"content")
    assert is_sealed(path) is None and not bears_mark(path)
    seal(path, "name")
    assert is_sealed(path, "name") and bears_mark(path)
    assert is_sealed(path, "another name") is False
    whole = path.read_bytes()
    for length in range(len(whole) - 70, len(whole)):
        path.write_bytes(whole[:length])
        assert is_sealed(path, "name") is False, "cut off within the seal"


# --- inputs -----------------------------------------------------------------------------------------------


def test_inputs_have_a_size(tmp_path, monkeypatch):
    path, packed = tmp_path / "s.toml", tmp_path / "t.csv.gz"
    with path.open("wb") as file:
        file.truncate(inputs.MAX_TEXT_BYTES + 1)
    for reader in (sweep_spec.text_of, parse):
        with pytest.raises(InputError, match="more than 4 MiB"):
            reader(path)
    monkeypatch.setattr(inputs, "MAX_TABLE_BYTES", 1000)
    packed.write_bytes(gzip.compress(b"source,n_gpus\n" + 1000 * b"a,1\n"))
    with pytest.raises(InputError, match="more than"):
        read_table(packed)
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(InputError, match="CSV file"):
        read_table(packed)


# --- the doors --------------------------------------------------------------------------------------------


@pytest.fixture
def cases(tmp_path):
    path = tmp_path / "cases.csv"
    path.write_text(CASES)
    return path


@pytest.fixture
def strange(tmp_path):
    """A folder of a stranger's files under every name that a door might take."""
    folder = tmp_path / "strange"
    folder.mkdir()
    for name in ("r.nc", "f.png", "f.svg", "f.pdf", "f.html", "p.csv", "t.toml", "new.png", "note.nc.dse.json"):
        (folder / name).write_text(STRANGE)
    return folder


def test_no_door_replaces_a_strangers_file(command, small_sweep, small_results, cases, strange, monkeypatch):  # noqa: F811
    """Nor does any begin to work."""
    before = everything_in(strange.parent)

    def worked(*_, **__):
        raise AssertionError("refused after the work was done")

    monkeypatch.setattr("dse.sweep.engine.engine.SweepEngine.__init__", worked)
    monkeypatch.setattr(importlib.import_module("dse.optimizers.run"), "_run_methods", worked)
    monkeypatch.setattr("dse.measured.comparison.predict_cases", worked)
    monkeypatch.setattr("dse.views.plot.style.style", worked)
    monkeypatch.setattr("dse.lab.page.table.build", worked)
    monkeypatch.setattr("dse.lab.fits.jobs.job_for", worked)
    search = strange.parent / "search.toml"
    search.write_text(small_sweep.read_text() + '[search]\nmethod = "random"\nevaluations = 1\n')
    before[search] = search.read_bytes()
    for arguments in (
        ["run", small_sweep, "-o", strange / "r.nc", "--no-figure"],
        ["run", small_sweep, "-o", strange / "new.nc"],
        ["run", small_sweep, "-o", strange / "note.nc", "--no-figure"],
        ["run", small_sweep, "-o", strange / "r.nc", "--shard", "1/2"],
        ["merge", strange / "r.nc"],
        ["search", search, "-o", strange / "r.nc"],
        ["plot", small_results[1], "-o", strange / "f.png"],
        ["report", small_results[1], "-o", strange / "f.html"],
        ["predict", cases, "-o", strange / "p.csv"],
        ["validate", cases, "-o", strange / "p.csv"],
        ["calibrate", cases, "-o", strange / "t.toml"],
    ):
        ended = command(*arguments)
        assert ended.status == 2 and "not written" in ended.err, (arguments, ended)
    for arguments in (
        ["run", small_sweep, "-o", small_sweep, "--force", "--no-figure"],
        ["predict", cases, "-o", cases, "--force"],
        ["calibrate", cases, "-o", cases, "--force"],
    ):
        ended = command(*arguments)
        assert ended.status == 2 and "a file that is read" in ended.err, (arguments, ended)
    assert everything_in(strange.parent) == before


def test_figures_and_tables_are_known_again(command, small_results, cases, strange):  # noqa: F811
    """What a door has written it writes again; with --force it takes a stranger's name."""
    for ending in ("png", "svg", "pdf"):
        path = strange.parent / f"f.{ending}"
        for _ in range(2):
            assert command("plot", small_results[1], "-o", path).status == 0
        assert bears_mark(path) or ending == "jpg"
    for _ in range(2):
        assert command("predict", cases, "-o", strange.parent / "p.csv").status == 0
    assert MARK not in (strange.parent / "p.csv").read_text(), "readers of CSV know no comments"
    assert command("plot", small_results[1], "-o", strange / "f.svg", "--force").status == 0
    assert command("predict", cases, "-o", strange / "p.csv", "--force").status == 0


def test_fitted_values_say_who_has_written_them(tmp_path):
    for text in ("x = 1\n", "x = 2\n"):
        writing.write(tmp_path / "t.toml", text)
    assert (tmp_path / "t.toml").read_text() == f"# {MARK}\nx = 2\n"


def test_a_folder_of_parts_keeps_what_is_not_ours(tmp_path):
    folder = tmp_path / "r.nc.parts"
    folder.mkdir()
    for name in ("data.npz", "notes.jsonl", "thesis.tmp"):
        (folder / name).write_text(STRANGE)
    before = everything_in(folder)
    perform(toy.sweep(), tmp_path / "r.nc", study=toy.STUDY, fresh=True)
    assert everything_in(folder) == before and (tmp_path / "r.nc").is_file()


# --- a full disk ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [0, 100, 3_000, 30_000])
def test_a_full_disk_under_a_sweep(tmp_path, left):
    """Parts, manifest, results or note: four parts, and the next run goes on."""
    with full_disk(left), pytest.raises(InputError) as raised:
        perform(toy.sweep(), tmp_path / "r.nc", study=toy.STUDY, chunk=720)
    assert "File too large" in raised.value.got and not (tmp_path / "r.nc").exists()
    perform(toy.sweep(), tmp_path / "r.nc", study=toy.STUDY, chunk=720)
    perform(toy.sweep(), tmp_path / "undisturbed.nc", study=toy.STUDY, chunk=720)
    assert (tmp_path / "r.nc").read_bytes() == (tmp_path / "undisturbed.nc").read_bytes()
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_full_disk_under_tables_and_figures(command, small_results, cases, tmp_path):  # noqa: F811
    for arguments in (
        ["predict", cases, "-o", tmp_path / "p.csv"],
        ["validate", cases, "-o", tmp_path / "p.csv"],
        ["plot", small_results[1], "-o", tmp_path / "f.png"],
        ["plot", small_results[1], "-o", tmp_path / "f.svg"],
    ):
        command(*arguments)  # what it compiles is kept
        for path in tmp_path.glob("[pf].*"):
            path.unlink()
        with full_disk(20):
            ended = command(*arguments)
        assert_four_parts(ended, "File too large")
    assert everything_in(tmp_path) == {cases: cases.read_bytes()}


def test_a_fit_survives_a_full_disk(tmp_path, monkeypatch):
    """It took minutes: what cannot be written where it was asked for goes to the folder of temporary files."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "cases.csv").write_text(CASES)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))

    def write(path, text, force=False):
        if Path(path).name == "full.toml":
            raise InputError("output", "No space left on device", "space", "free some")
        as_usual(path, text, force)

    as_usual = writing.write
    job = jobs.FitJob(lambda *_: "x = 1\n", str, lambda *_: [], lambda _: jobs.Errors([], []))
    monkeypatch.setattr(writing, "write", write)
    with pytest.raises(InputError, match="No space") as refused:
        jobs.run([tmp_path / "cases.csv"], 0, tmp_path / "full.toml", jobs={"steps": job})
    (kept,) = (tmp_path / "tmp").rglob("fitted.toml")
    assert kept.read_text().endswith("x = 1\n") and str(kept) in refused.value.fix


def test_the_table_is_printed_before_figures_are_drawn(command, small_sweep, small_results, tmp_path):  # noqa: F811
    output = tmp_path / "r.nc"
    output.write_bytes(small_results[1].read_bytes())
    for arguments in (["run", small_sweep, "-o", output], ["run", small_sweep, "-o", output, "--json"]):
        with full_disk(2_000):
            ended = command(*arguments)
        assert ended.status == 2 and "r.png" in ended.err and "allowed" in ended.err
        assert "16 of 44 designs" in ended.out or '"n_feasible": 16' in ended.out
