"""Other distributions join by entry points: their commands and catalogues, and nothing of ours is lost by them."""

from __future__ import annotations

import importlib
import re
import warnings
from pathlib import Path

import pytest

import dse
from docs.make import options
from dse.cli import app
from dse.cli.commands import command
from dse.cli.service.worker import answer
from dse.designs import catalog
from dse.designs.catalog.load import paths
from dse.errors import InputError, Notice
from dse.io import plugins
from dse.optimizers.proofs import prover
from dse.reports import registry as capabilities


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install a distribution of another: a function of its modules and its entry points."""

    def clear():
        for cache in (plugins.plugins, plugins.catalog_folders, capabilities._loaded):
            cache.cache_clear()

    def install(entry_points: str, **modules: str):
        metadata = tmp_path / "theirs-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(entry_points)
        for name, text in modules.items():
            (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(str(tmp_path))
        importlib.invalidate_caches()
        clear()
        return tmp_path

    yield install
    monkeypatch.undo()
    clear()


def test_the_lab_joins_by_entry_points():
    names = plugins.plugins(plugins.COMMANDS)
    assert {"calibrate", "diagnose", "measure", "posttrain", "simulate"} <= set(names)
    assert all(entry.value.startswith("dse.lab.commands.") for entry in names.values())
    assert names.keys() <= capabilities.capabilities().keys()


RECIPES = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text(encoding="utf-8")

#: A module of another: that of docs/recipes.md, and one with a name of ours.
(GREET,) = (text for text in re.findall(r"```python\n(.*?)```", RECIPES, re.DOTALL) if "def greet" in text)
OURS = """
@capability("Ask")
def evaluate() -> Report:
    \"\"\"Say nothing.\"\"\"
    return Report({})
"""


def test_a_capability_of_another_is_behind_every_door_and_a_broken_one_told(installed, capsys):
    ours = capabilities.capabilities()["evaluate"]
    installed(
        "[dse.commands]\ngreet = theirs_command:greet\nbroken = theirs_absent:X\nevaluate = theirs_command:evaluate\n",
        theirs_command=GREET + OURS,
    )
    made = capabilities.capabilities()
    assert made["evaluate"] is ours, "no distribution takes a command away"
    faults = "\n".join(capabilities.faults())
    assert "dse.commands: broken" in faults and "ModuleNotFoundError" in faults and "dse.commands: evaluate" in faults
    command(made["greet"])(names=["you", "me"], loud=True)
    assert "hello me!" in capsys.readouterr().out
    report = dse.greet(["you"])
    assert report.to_dict() == {"greetings": [{"name": "you", "text": "hello you"}]}
    assert answer("greet", {"names": ["you"]})["document"] == report.to_dict()
    assert "hello you" in report._repr_html_() and report.to_csv() == "name,text\nyou,hello you\n"
    assert "## dse greet" in options.tables()["options"], "whoever builds the pages has it among the options"
    with pytest.raises(InputError, match="did you mean 'loud'"):
        dse.greet(["you"], lout=True)
    del dse.greet


def test_what_cannot_be_loaded_is_an_error_in_four_parts(installed):
    installed("[dse.exchange]\nodd = theirs_absent:write\n")
    with pytest.raises(InputError, match="update or remove the distribution"):
        plugins.load(plugins.plugins(plugins.EXCHANGE)["odd"])


def test_a_catalogue_of_another_adds_entries_and_hides_none_of_ours(installed):
    folder = installed("[dse.catalogs]\nall = theirs_catalog.entries\n") / "theirs_catalog" / "entries" / "memories"
    folder.mkdir(parents=True)
    (folder.parents[1] / "__init__.py").write_text("raise RuntimeError('a catalogue is read, not executed')")
    ours = paths("memory")["hbm3-6-4"]
    (folder / "hbm3-6-4.toml").write_text('name = "not ours"\n')
    (folder / "hbm9.toml").write_text(ours.read_text(encoding="utf-8"), encoding="utf-8")
    plugins.catalog_folders.cache_clear()
    listed = paths("memory")
    assert listed["hbm3-6-4"] == ours and listed["hbm9"] == folder / "hbm9.toml"
    chips = folder.parent / "accelerators"
    chips.mkdir()
    (chips / "h100.toml").write_text('name = "Theirs"\n')
    assert catalog.find("accelerator", "h100") == "h100-sxm-80gb", "an alias of ours, whatever slug another takes"


def test_what_is_no_catalogue_is_told(installed):
    installed("[dse.catalogs]\nodd = !!! bad\nabsent = theirs_nowhere.entries\n")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", Notice)
        assert plugins.catalog_folders() == ()
    assert [str(one.message).split(":")[1].strip() for one in told] == ["absent", "odd"]


def test_a_name_of_ours_stays_ours_and_a_module_that_exits_is_told(installed, capsys):
    installed(
        "[dse.commands]\npage = theirs_exit:X\nexits = theirs_exit:X\nodd = theirs_odd:greet\n"
        "[dse.provers]\naaa = os:getcwd\n[dse.exchange]\nchrome = theirs_exit:X\nmro = theirs_exit:X\n",
        theirs_exit="print('noise')\nraise SystemExit(7)\n",
        theirs_odd="def greet(): print('no capability')\n",
    )
    made, faults = capabilities.capabilities(), "\n".join(capabilities.faults())
    assert made["page"].function.__module__ == "dse.lab.commands.page" and "odd" not in made
    assert "SystemExit: 7" in faults and "dse.commands: odd" in faults and not capsys.readouterr().out
    assert prover().__name__ == "dse.lab.prove.prover"
    with pytest.raises(SystemExit) as ended:
        app(["trace", "-w", "llama-3-8b", "-s", "h100", "-o", "t.json", "--format", "kinetto"])
    assert ended.value.code == 2 and "kineto" in capsys.readouterr().err
