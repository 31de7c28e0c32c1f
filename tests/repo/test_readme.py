"""README and guide do what they say: their Python and files work, commands and links exist, numbers are current."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import typer

import dse
from dse.cli import app

ROOT = Path(__file__).parents[2]
PAGES = {path: path.read_text(encoding="utf-8") for path in (ROOT / "README.md", ROOT / "docs" / "guide.md")}
README = PAGES[ROOT / "README.md"]
BOTH = "\n".join(PAGES.values())


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", BOTH, re.DOTALL)


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 180


def test_python_runs(tmp_path, monkeypatch, capsys):
    shutil.copytree(ROOT / "sweeps", tmp_path / "sweeps")
    monkeypatch.chdir(tmp_path)
    for code in blocks("python"):
        exec(compile(code, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "MFU" in printed and "1 % more" in printed
    assert (tmp_path / "results" / "megatron_1t_4096_a100.nc").exists()


def test_new_accelerator_works(tmp_path, monkeypatch, capsys):
    (text,) = blocks("toml")
    file = tmp_path / "accelerators" / "my-chip.toml"
    file.parent.mkdir()
    file.write_text(text)
    monkeypatch.setenv("DSE_CATALOG", str(tmp_path))
    assert dse.catalog.check() == []
    (line,) = re.findall(r"\$ dse (evaluate .* -s my-chip .*)", README)
    with pytest.raises(SystemExit) as ended:
        app([*line.split(), "--json"])
    assert not ended.value.code
    assert json.loads(capsys.readouterr().out)["feasible"]


def test_commands_exist(capsys):
    commands = set(re.findall(r"^\$ dse (\w[\w-]*)", BOTH, re.MULTILINE)) | set(re.findall(r"`dse (\w[\w-]*)", BOTH))
    assert len(commands) >= 6
    for name in commands:
        with pytest.raises(SystemExit) as ended:
            app([name, "--help"])
        assert not ended.value.code, name
    targets = set(re.findall(r"make (run|test|docs|bench|help|\w+)`", BOTH)) | {"run", "test"}
    makefile = (ROOT / "Makefile").read_text()
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_exist(page):
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", PAGES[page])
    named = re.findall(r"`((?:dse|hw_catalog|sweeps|tests|notebooks|results|docs)/[\w./]*)`", PAGES[page])
    assert links
    for path in links:
        assert (page.parent / path).exists(), path
    for path in set(named) - {"results/"}:
        assert (ROOT / path).exists(), path


def test_sections_that_links_name_exist():
    for page, section in re.findall(r"\]\((docs/\w+\.md)#([^)]+)\)", README):
        headings = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
        assert section in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}, section


def test_unseen_errors_are_those_of_the_last_fit():
    """B200 by hand: 21, 1 and 14 rows of three names; (21 x 8.13 + 30.12 + 14 x 4.23) / 36 = 7.22 %."""
    from docs.make.readme import by_chip, filled

    assert filled(README) == README, "run: python -m docs.make.readme README.md"
    assert "|NVIDIA B200-SXM|36|7.2 %|" in README
    one = {"foreign": 0.1, "unseen": 0.2, "seen": 0.0}
    both = by_chip({"H100-SXM-80GB": {"rows": 1, **one}, "H100": {"rows": 3, **one, "unseen": 0.04}})
    assert both.splitlines()[2:] == ["|NVIDIA H100-SXM5-80|4|10.0 %|8.0 %|0.0 %|"]


def test_intervals_of_chips_left_out_are_those_of_their_page():
    page = (ROOT / "docs" / "intervals.md").read_text(encoding="utf-8")
    found = re.search(r"\|training\|chip\|(\d+)\|(\d+)\|(\d+) %\|", page)
    said = re.search(r"each of (\d+) in turn,\s+(\d+) % of (\d+) rows lie in the 80 % interval", README)
    assert said.groups() == (found[2], found[3], found[1])


def test_reasons_to_believe_stand_before_the_commands():
    """And the first commands are those of a clone."""
    assert README.index("## Why to believe it") < README.index("## Command line")
    first = re.search(r"```console\n(.*?)```", README, re.DOTALL)[1]
    assert re.findall(r"^\$ (make \w+)", first, re.MULTILINE) == ["make run", "make test"]
    listed = re.search(r"## Command line\n+```console\n(.*?)```", README, re.DOTALL)[1]
    assert len(listed.splitlines()) == 6


def test_panels_of_commands_are_those_of_the_help():
    panels: dict[str, list[str]] = {}
    for name, command in typer.main.get_command(app).commands.items():
        panels.setdefault(command.rich_help_panel, []).append(name)
    rows = dict(re.findall(r"^\| ([A-Z][\w ]*) \| (`.*?`) \| \[", README, re.MULTILINE))
    assert {panel: re.findall(r"`([\w-]+)`", names) for panel, names in rows.items()} == panels


def test_table_of_configurations_is_predicted(tmp_path, capsys):
    (text,) = blocks("csv")
    (tmp_path / "cases.csv").write_text(text)
    with pytest.raises(SystemExit) as ended:
        app(["predict", str(tmp_path / "cases.csv"), "-o", str(tmp_path / "out.csv")])
    assert not ended.value.code and capsys.readouterr().out.startswith("1 of 1 row predicted")
