"""The specifications that come with the package: by name in every command that takes a file, and listed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dse.cli import app
from dse.errors import InputError
from dse.io import examples
from dse.spec import pools, search, sweep

ROOT = Path(__file__).parents[2]
NAMES = sorted(file.stem for file in (ROOT / "sweeps").glob("*.toml"))
STANDARD = "megatron_1t_4096_a100"


def dse(*words):
    return CliRunner().invoke(app, list(map(str, words)), prog_name="dse")


def test_every_sweep_of_the_checkout_is_one():
    assert examples.names() == NAMES and len(NAMES) > 20


@pytest.mark.parametrize("name", NAMES)
def test_each_says_in_a_line_what_it_asks_and_its_command_takes_it(name):
    one = examples.find_example(name)
    assert 10 < len(one.asks) < 130 and "\n" not in one.asks
    program, command, path, *_ = one.command.split()
    assert (program, path) == ("dse", f"example:{name}")
    reading = {"run": sweep.read, "pools": pools.read, "search": search.read}[command]
    assert reading(path)


def test_an_example_is_its_file():
    by_name, by_file = sweep.read(f"example:{STANDARD}"), sweep.read(ROOT / "sweeps" / f"{STANDARD}.toml")
    assert by_name.text == by_file.text and by_name.hash() == by_file.hash()
    assert by_name.output == by_file.output == Path("results") / f"{STANDARD}.nc"
    assert sweep.read(f"example:{STANDARD}.toml").text == by_file.text


@pytest.mark.parametrize("command", ["run", "search", "pools"])
def test_a_typing_error_gets_the_nearest_name(command):
    ended = dse(command, "example:megatron_1t_4096_a10")
    assert ended.exit_code == 2 and f"did you mean '{STANDARD}'?" in ended.stderr and "Traceback" not in ended.output
    with pytest.raises(InputError, match="dse examples"):
        examples.find_example("quite something else")


def test_the_path_of_a_checkout_elsewhere_is_told_the_example(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ended = dse("run", f"sweeps/{STANDARD}.toml")
    assert ended.exit_code == 2 and f"example:{STANDARD}" in ended.stderr


def test_they_are_listed_with_the_command_that_runs_them():
    ended = dse("examples")
    assert ended.exit_code == 0 and "fastest on up to 4,096 A100s?" in ended.stdout
    assert all(f"example:{name}" in ended.stdout for name in NAMES)
    listed = json.loads(dse("examples", "--json").stdout)
    assert [one["name"] for one in listed] == NAMES and set(listed[0]) == {"name", "asks", "command"}


def test_one_is_shown_or_copied(tmp_path):
    text = (ROOT / "sweeps" / f"{STANDARD}.toml").read_text(encoding="utf-8")
    assert dse("examples", "show", STANDARD).stdout == text
    copy = tmp_path / "mine.toml"
    assert dse("examples", "show", f"example:{STANDARD}", "-o", copy).exit_code == 0 and copy.read_text("utf-8") == text
    copy.write_text("changed since", encoding="utf-8")
    refused = dse("examples", "show", STANDARD, "-o", copy)
    assert refused.exit_code == 2 and copy.read_text("utf-8") == "changed since"
    assert dse("examples", "show", STANDARD, "-o", copy, "--force").exit_code == 0 and copy.read_text("utf-8") == text
    assert dse("examples", "show", "nothing like it").exit_code == 2
