"""What is kept between processes: only what this user has written is read, and whatever is wrong only costs time."""

import multiprocessing
import os
import pickle
import random
import shutil
import stat

import pytest

from dse.io import cache
from tests.conftest import SMALL_SWEEP, full_size
from tests.processes import data_of, start


@pytest.fixture(autouse=True)
def fresh_process():
    """Forget what this process knows of folders and keys, as a new one would."""
    forget()
    yield
    forget()


def forget():
    cache._folder.cache_clear()
    cache.key_in.cache_clear()
    cache._logged.clear()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DSE_CACHE", str(tmp_path / "cache"))
    return cache.folder()


def kept(folder):
    return [file for file in folder.iterdir() if file.name != "key"]


def trap(marker):
    """A pickle that makes a file when it is read."""

    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(marker),)

    return pickle.dumps(Trap())


# --- where ------------------------------------------------------------------------------------------------


def test_a_value_outlives_the_process(folder):
    assert cache.load("seven") is None
    cache.save("seven", 7)
    forget()
    assert cache.load("seven") == 7 and cache.load("eight") is None
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}


def test_where_it_is(tmp_path, monkeypatch):
    monkeypatch.delenv("DSE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.folder().parent == tmp_path / "dse"
    monkeypatch.setenv("DSE_CACHE", "0")
    assert cache.folder() is None
    cache.save("seven", 7)
    assert cache.load("seven") is None


def test_only_so_many_are_kept(folder, monkeypatch):
    monkeypatch.setattr(cache, "_MAX_FILES", 3)
    for i in range(5):
        cache.save(f"value {i}", i)
    assert len(kept(folder)) == 3 and (folder / "key").exists()
    assert cache.load("value 4") == 4


# --- who has written it -----------------------------------------------------------------------------------


def test_nothing_unsigned_is_parsed(folder, tmp_path, caplog):
    cache.save("seven", 7)
    (file,) = kept(folder)
    for forged in (trap(tmp_path / "sprung"), b"", bytes(32) + trap(tmp_path / "sprung")):
        file.write_bytes(forged)
        assert cache.load("seven") is None and not file.exists()
    assert not (tmp_path / "sprung").exists()
    assert len(caplog.records) == 1 and str(file) in caplog.text  # told once
    assert cache.get_or_compute("seven", lambda: 7) == 7 and file.exists()


def test_a_valid_file_in_the_place_of_another_is_refused(folder):
    cache.save("seven", 7)
    (seven,) = kept(folder)
    cache.save("eight", 8)
    eight = next(file for file in kept(folder) if file != seven)
    shutil.copy(seven, eight)
    assert cache.load("eight") is None and cache.load("seven") == 7


def test_another_users_key_is_not_taken(folder, monkeypatch):
    cache.save("seven", 7)
    forget()
    monkeypatch.setattr(os, "getuid", lambda: os.geteuid() + 1)
    shutil.copytree(folder, folder.parent / f"kept-{os.geteuid() + 1}")  # as if that user's folder were another's
    assert cache.folder() is None and cache.load("seven") is None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda key: key.chmod(0o644),
        lambda key: key.unlink(),
        lambda key: key.write_bytes(b"short"),
        lambda key: (key.rename(key.with_name("other")), key.symlink_to("other")),
        lambda key: (key.unlink(), key.mkdir()),
    ],
)
def test_a_key_that_others_may_know_makes_all_foreign(folder, spoil):
    cache.save("seven", 7)
    old = (folder / "key").read_bytes()
    spoil(folder / "key")
    forget()
    assert cache.load("seven") is None
    assert (folder / "key").read_bytes() != old and stat.S_IMODE((folder / "key").lstat().st_mode) == 0o600
    assert cache.get_or_compute("seven", lambda: 7) == cache.load("seven") == 7


def test_a_folder_that_others_may_write_to_is_closed(folder):
    folder.chmod(0o777)
    forget()
    assert cache.folder() == folder and stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("stands", ["a file", "a link", "a pipe"])
def test_what_stands_in_the_way_is_left_alone(tmp_path, monkeypatch, caplog, stands):
    monkeypatch.setenv("DSE_CACHE", str(tmp_path))
    name, elsewhere = tmp_path / f"kept-{os.getuid()}", tmp_path / "elsewhere"
    elsewhere.mkdir()
    {"a file": name.touch, "a link": lambda: name.symlink_to(elsewhere), "a pipe": lambda: os.mkfifo(name)}[stands]()
    assert cache.folder() is None and cache.get_or_compute("seven", lambda: 7) == 7
    assert not list(elsewhere.iterdir()) and len(caplog.records) == 1


@pytest.mark.parametrize("stands", ["a link", "a pipe", "a folder"])
def test_a_kept_file_is_a_regular_one(folder, stands):
    cache.save("seven", 7)
    (file,) = kept(folder)
    whole = file.rename(file.with_name("whole"))
    {"a link": lambda: file.symlink_to(whole), "a pipe": lambda: os.mkfifo(file), "a folder": file.mkdir}[stands]()
    assert cache.get_or_compute("seven", lambda: 8) == 8 == cache.load("seven")  # healed


def test_a_full_disk_only_costs_time(folder, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    cache.save("seven", 7)
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", full)
        assert cache.get_or_compute("eight", lambda: 8) == 8 and cache.load("seven") is None
    assert cache.load("seven") == 7 and len(kept(folder)) == 1


# --- many processes ---------------------------------------------------------------------------------------


def _come_and_go(folder):
    os.environ["DSE_CACHE"] = str(folder)
    forget()
    wrong = 0
    for i in range(40):
        cache.save(f"value {i % 5}", i % 5)
        wrong += cache.load(f"value {i % 5}") not in (i % 5, None)
    return wrong, cache.key_in(cache.folder()), list(cache._logged)


def test_processes_that_begin_at_once_agree(tmp_path):
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        ended = pool.map(_come_and_go, [tmp_path / "cache"] * 4, chunksize=1)
    assert all(wrong == 0 and not told for wrong, _, told in ended)
    assert len({key for _, key, _ in ended}) == 1
    assert not list(tmp_path.rglob("*.tmp"))


# --- damage -----------------------------------------------------------------------------------------------


def run_small(folder, kept):
    """(exit status, digest of the data, standard error) of a small sweep in a fresh process."""
    sweep, output = folder / "small.toml", folder / "small.nc"
    sweep.write_text(SMALL_SWEEP)
    running = start("run", sweep, "-o", output, "--fresh", "--no-figure", kept=kept)
    _, err = running.communicate()
    return running.returncode, data_of(output), err


def test_flipped_bits_only_cost_time(tmp_path):
    """Single bits at random places, of programs and of the key: no wrong number, no crash, and the file is healed."""
    chosen, whole = random.Random(14), tmp_path / "whole"
    first = run_small(tmp_path, whole)
    assert first[0] == 0 and run_small(tmp_path, whole)[:2] == first[:2]
    files = sorted(file.relative_to(whole) for file in whole.rglob("*") if file.is_file())
    assert len(files) >= 3
    for _ in range(full_size(1, 200)):
        spoilt = tmp_path / "spoilt"
        shutil.rmtree(spoilt, ignore_errors=True)
        shutil.copytree(whole, spoilt)
        file = spoilt / chosen.choice(files)
        content = bytearray(file.read_bytes())
        content[chosen.randrange(len(content))] ^= 1 << chosen.randrange(8)
        file.write_bytes(content)
        again = run_small(tmp_path, spoilt)
        assert again[:2] == first[:2], (file, again)
        assert "Traceback" not in again[2]
        healed = file.read_bytes() != bytes(content) or file.name == "key"
        assert healed and run_small(tmp_path, spoilt)[:2] == first[:2], file
