"""Other distributions join by entry points: their commands and catalogues, and nothing of ours is lost by them."""

from __future__ import annotations

import importlib

import pytest

from dse.cli import PANELS, evaluate
from dse.cli.panels import with_plugins
from dse.designs import catalog
from dse.designs.catalog.load import paths
from dse.errors import InputError
from dse.io import plugins


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install a distribution of another: a function of its modules and its entry points."""

    def install(entry_points: str, **modules: str):
        metadata = tmp_path / "theirs-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(entry_points)
        for name, text in modules.items():
            (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(str(tmp_path))
        importlib.invalidate_caches()
        plugins.plugins.cache_clear()
        plugins.catalog_folders.cache_clear()
        return tmp_path

    yield install
    monkeypatch.undo()
    plugins.plugins.cache_clear()
    plugins.catalog_folders.cache_clear()


def test_the_lab_joins_by_entry_points():
    names = plugins.plugins(plugins.COMMANDS)
    assert {"calibrate", "diagnose", "measure", "posttrain", "simulate"} <= set(names)
    assert all(entry.value.startswith("dse.lab.commands.") for entry in names.values())
    assert names.keys() <= {name for commands in PANELS.values() for name in commands}


def test_a_command_of_another_is_listed_and_a_broken_one_told(installed, capsys):
    installed(
        "[dse.commands]\ngreet = theirs_command:REGISTRATION\n"
        "broken = theirs_absent:X\nevaluate = theirs_command:OURS\n",
        theirs_command=(
            "from dse.cli.panels import Registration\n"
            "def greet() -> None:\n    print('hello')\n"
            "REGISTRATION = Registration('Of others', greet)\nOURS = Registration('Ask', greet)\n"
        ),
    )
    panels = with_plugins({"Ask": {"evaluate": evaluate.evaluate}})
    assert [*panels["Of others"]] == ["greet"]
    assert panels["Ask"]["evaluate"] is evaluate.evaluate, "no distribution takes a command away"
    told = capsys.readouterr().err
    assert "dse.commands: broken" in told and "ModuleNotFoundError" in told and "dse.commands: evaluate" in told


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
    assert catalog.find("memory", "hbm9") == "hbm9"
