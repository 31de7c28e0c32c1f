"""The page of the first five minutes, word for word: its files written, its commands run, what they print compared.

In an empty folder with an environment of its own. The packages below dse are those of the environment that runs the
test; ``DSE_ONLINE=1`` downloads them instead, as a new machine does.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import pytest

from dse.io import install_extra
from dse.io.distribution import NAME
from tests.pages import ROOT, Command, blocks, commands, missing

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "start.md"
ONLINE = os.environ.get("DSE_ONLINE") == "1"

#: Modules that the commands need besides what dse depends on.
NEEDED = ("hatchling", "ipykernel", "jupytext", "nbclient")


def source(folder: Path) -> None:
    """Put the source distribution into the folder, under the name that the page gives it."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (packed,) = folder.glob("*.tar.gz")
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    packed.unlink()
    (unpacked,) = folder.iterdir()
    unpacked.rename(folder / "dse-source")


def offline(folder: Path) -> dict[str, str]:
    """Settings with which pip takes the packages that are here for those that it would download."""
    here = {dist.metadata["Name"]: dist.version for dist in importlib.metadata.distributions()}
    pinned = "".join(f"{name}=={version}\n" for name, version in sorted(here.items()) if name != NAME)
    (folder / "dse-source" / "constraints.txt").write_text(pinned)
    within = Path(sysconfig.get_path("purelib", vars={"base": str(folder / "env")}))
    return {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PYTHONPATH": str(within)}


def script(folder: Path) -> tuple[str, list[Command]]:
    """A shell script that does what the page says, and the commands in it; outputs go to files by number."""
    lines, found = [], []
    for number, block in enumerate(blocks(PAGE)):
        if block.language in ("toml", "python"):
            assert block.file, f"a block of the page names no file: {block.text}"
            kept = folder / f".block{number}"
            kept.write_text(block.text, encoding="utf-8")
            lines.append(f"mkdir -p $(dirname {block.file}); cp {kept.name} {block.file}")
            continue
        for command in commands(block):
            at = len(found)
            lines += [f"{command.line} > .out{at} 2> .told{at} < /dev/null", f"echo $? > .status{at}"]
            if "-m venv" in command.line and not ONLINE:
                here = sysconfig.get_path("purelib")
                lines.append(f"for folder in env/lib/python*/site-packages; do echo {here} > $folder/here.pth; done")
            found.append(command)
    return "\n".join(lines), found


@pytest.fixture(scope="module")
def followed(tmp_path_factory) -> tuple[Path, list[Command]]:
    """The folder in which the page was followed, and its commands."""
    for name in NEEDED if not ONLINE else ("hatchling",):
        pytest.importorskip(name, reason=install_extra("test"))
    folder = tmp_path_factory.mktemp("start")
    source(folder)
    kept = {name: value for name, value in os.environ.items() if name.startswith(("JAX_", "XLA_"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {"HOME": str(folder), "PATH": path, "COLUMNS": "120", "LANG": "C.UTF-8", **kept}
    if not ONLINE:
        environment |= offline(folder)
    text, found = script(folder)
    subprocess.run(["bash", "-c", text], cwd=folder, env=environment, check=True, timeout=1800)
    yield folder, found
    shutil.rmtree(folder)


def test_the_page_works_word_for_word(followed):
    folder, found = followed
    for number, command in enumerate(found):
        printed = "".join((folder / f".{kind}{number}").read_text(encoding="utf-8") for kind in ("out", "told"))
        status = int((folder / f".status{number}").read_text())
        assert status == (2 if command.printed[:1] == ("error",) else 0), (command.line, printed)
        wrong = missing(printed, command)
        assert wrong is None, f"{command.line}: {wrong!r} is not printed\n{printed}"


def test_what_the_page_promises_is_there(followed):
    folder, _ = followed
    for name in ("first.nc", "first.png", "first.svg", "mine.nc", "look.ipynb"):
        assert (folder / name).stat().st_size > 0, name
    assert "step time" in (folder / "look.ipynb").read_text(encoding="utf-8")
    assert (folder / "env").is_dir() and not (folder / "dse").exists()
