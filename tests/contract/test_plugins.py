"""Other distributions join by entry points: their commands and catalogues, and nothing of ours is lost by them."""

from __future__ import annotations

import importlib
import warnings

import pytest

from dse.cli import PANELS, app, evaluate
from dse.cli.panels import with_plugins
from dse.designs import catalog
from dse.designs.catalog.load import paths
from dse.errors import InputError, Notice
from dse.io import plugins
from dse.optimizers.proofs import prover


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
        "[dse.commands]\npage = theirs_exit:X\nexits = theirs_exit:X\nodd = theirs_odd:REGISTRATION\n"
        "[dse.provers]\naaa = os:getcwd\n[dse.exchange]\nchrome = theirs_exit:X\nmro = theirs_exit:X\n",
        theirs_exit="print('noise')\nraise SystemExit(7)\n",
        theirs_odd="from dse.cli.panels import Registration\nREGISTRATION = Registration('Manage', 3)\n",
    )
    panels = with_plugins({"Ask": {"evaluate": evaluate.evaluate}})
    assert panels["Show"]["page"].__module__ == "dse.lab.commands.page" and "odd" not in panels.get("Manage", {})
    said = capsys.readouterr()
    assert not said.out and "SystemExit: 7" in said.err and "dse.commands: odd" in said.err
    assert prover().__name__ == "dse.lab.prove.prover"
    with pytest.raises(SystemExit) as ended:
        app(["trace", "-w", "llama-3-8b", "-s", "h100", "-o", "t.json", "--format", "kinetto"])
    assert ended.value.code == 2 and "kineto" in capsys.readouterr().err
