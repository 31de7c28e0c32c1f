"""Recipes that change the source: applied to a copy of the package, in which their laws hold."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.pages import ROOT, blocks

PAGE = ROOT / "docs" / "recipes.md"
LAWS = {block.file: block.text for block in blocks(PAGE, "python") if block.file}


def change(package, text: str) -> None:
    """Apply a block: each of its hunks stands where its lines that are there already stand, once."""
    file = package / re.search(r"^\+\+\+ b/(\S+)$", text, re.MULTILINE)[1]
    code = file.read_text(encoding="utf-8")
    for hunk in text.split("@@\n")[1:]:
        lines = hunk.splitlines(keepends=True)
        before = "".join(line[1:] for line in lines if line[0] in " -")
        after = "".join(line[1:] for line in lines if line[0] in " +")
        assert code.count(before) == 1, f"{file}: not there, or not once:\n{before}"
        code = code.replace(before, after)
    file.write_text(code, encoding="utf-8")


@pytest.fixture(scope="module")
def changed(tmp_path_factory):
    """A folder with a copy of the package that has all changes of the page."""
    folder = tmp_path_factory.mktemp("changed")
    shutil.copytree(ROOT / "dse", folder / "dse", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "hw_catalog").symlink_to(ROOT / "hw_catalog")
    for block in blocks(PAGE, "diff"):
        change(folder, block.text)
    return folder


def test_laws_of_the_recipes_hold(changed):
    """All in one process, which compiles once."""
    assert len(LAWS) == 4
    environment = {**os.environ, "PYTHONPATH": str(changed), "DSE_CACHE": "0"}
    for name, text in LAWS.items():
        (changed / name).write_text(text, encoding="utf-8")
    code = "import runpy, dse; print(dse.__file__)\n" + "\n".join(f"runpy.run_path({name!r})" for name in LAWS)
    done = subprocess.run([sys.executable, "-c", code], cwd=changed, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert str(changed) in done.stdout
