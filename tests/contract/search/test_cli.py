"""``dse search``: exit status, what it prints, JSON alone on standard output."""

import itertools
import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest

import dse
from dse.cli import app
from dse.io import quantity
from dse.lab.page import table

SMALL = """
title = "a small search"
[workload]
name = "gpt-3-13b"
global_batch = 64
[system]
name = "selene"
n_devices = 16
[axes]
tp = [1, 2, 8]
pp = [1, 2]
micro_batch = [1, 2]
recompute = ["none", "full"]
[search]
method = "evolution"
evaluations = 256
seeds = 2
"""


class Ended(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture
def command(tmp_path, capsys):
    """Runs the command on a specification with some text replaced."""

    def run(*arguments, old="", new=""):
        file = tmp_path / "small.toml"
        file.write_text(SMALL.replace(old, new) if old else SMALL)
        with pytest.raises(SystemExit) as ended:
            app(["search", str(file), "-o", str(tmp_path / "out.nc"), *arguments], prog_name="dse")
        return Ended(ended.value.code or 0, *capsys.readouterr())

    return run


def test_it_says_where_enumeration_is_better_and_what_is_best(command, tmp_path):
    ended = command()
    assert ended.status == 0, ended.err
    assert "dse run enumerates it exactly" in ended.out
    assert "a small search" in ended.out and "evolution" in ended.out and "gap %" in ended.out
    assert (tmp_path / "out.nc").exists()


def test_json_is_alone_on_standard_output(command):
    ended = command("--json", "--evaluations", "128")
    document = json.loads(ended.out)
    assert ended.status == 0 and document["any_feasible"] is True
    assert document["evaluations"]["evolution"] >= 256
    assert document["designs"][0]["labels"]["tp"] in (1, 2, 8)
    assert document["designs"][0]["gap"] == 0.0


def test_an_infinite_space_is_not_to_be_enumerated(command):
    axis = '[axes]\n"memory.bandwidth" = { from = "1 TB/s", to = "3 TB/s", continuous = true }'
    ended = command("--evaluations", "64", old="[axes]", new=axis)
    assert ended.status == 0, ended.err
    assert "the space is infinite" in ended.out and "dse run enumerates" not in ended.out


def test_nothing_feasible_ends_with_1_and_the_nearest_miss(command):
    ended = command(old="[search]", new="[constraints]\nall = [\"peak_memory <= '1 GiB'\"]\n[search]")
    assert ended.status == 1
    assert "nearest misses" in ended.out and "a constraint of the sweep is not met" in ended.out


@pytest.mark.parametrize(
    ("arguments", "old", "new", "wanted"),
    [
        ((), '"evolution"', '"evolutoin"', "evolution"),
        ((), "gpt-3-13b", "gpt-3-13", "gpt-3-13b"),
        ((), "tp = [1, 2, 8]", "tp = [7]", "does not divide"),
        (("--evaluations", "0"), "", "", "--evaluations"),
        (("--seconds", "-1"), "", "", "--seconds"),
    ],
)
def test_bad_input_ends_with_2_and_one_message(command, arguments, old, new, wanted):
    ended = command(*arguments, old=old, new=new)
    assert ended.status == 2
    assert ended.out == "" and wanted in ended.err
    assert [line.split(maxsplit=1)[0] for line in ended.err.strip().splitlines()] == [
        "error",
        "where",
        "got",
        "allowed",
        "fix",
    ]


def test_machines_that_bring_their_stacks_are_an_axis(command, tmp_path):
    """The stack is told by design: a second one beside all of them was no results file."""
    ended = command("--evaluations", "64", old="tp = [1, 2, 8]", new='accelerator = ["a100", "h100"]\ntp = [1, 2, 8]')
    assert ended.status == 0, ended.err
    found = dse.open_results(tmp_path / "out.nc")
    assert set(found.software.values.ravel().tolist()) <= {"megatron-core-te", "megatron-bridge"}


def test_prices_that_nobody_states_are_told(command):
    """A search by money says below its designs whose prices stand in for unknown ones."""
    made_up = "price of b300-sxm-288gb, not stated: 35 USD/W of the power limit"
    by_money = '[objective]\nminimize = "cost_per_run"\n[search]'
    dear = command("--evaluations", "256", old="[search]", new=by_money)
    assert dear.status == 0 and "not stated" not in dear.out
    found = command("--evaluations", "256", "--fresh", old='name = "selene"', new='name = "dgx-b300"')
    assert "not stated" not in found.out, "not ranked by money"
    both = command(
        "--evaluations",
        "256",
        "--fresh",
        old='name = "selene"\nn_devices = 16\n[axes]',
        new='name = "dgx-b300"\nn_devices = 16\n[objective]\nminimize = "cost_per_run"\n[axes]',
    )
    assert made_up in both.out


TWO = """
title = "two objectives"
[workload]
name = "llama-3-8b"
[system]
name = "eos"
accelerator = "gpu"
n_devices = 64
[axes]
tp = "divisors"
micro_batch = [1, 2, 4]
recompute = ["none", "full"]
"chip.clock_ratio" = { from = 0.5, to = 1.0, continuous = true }
[objective]
minimize = ["step_time", "energy_per_token"]
[search]
evaluations = 2000
"""


def table_of(text, heading):
    """Rows of the table below a heading, their cells parted by two blanks or more."""
    lines = text[text.index(heading) :].splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("─"))
    rows = itertools.takewhile(lambda line: re.match(r" *\d+  ", line), lines[begin + 1 :])
    return [re.split(r"  +", line.strip()) for line in rows]


def test_two_objectives_print_the_ends_of_their_front(command, tmp_path):
    """The best by each, from the front of the same file; nothing above it is said to have no gap; figures and page."""
    ended = command("--evaluations", "300", "--show", "methods", old=SMALL, new=TWO)
    assert ended.status == 0, ended.err
    assert "gap" not in ended.out and "hypervolume %" in ended.out
    with dse.open_results(tmp_path / "out.nc") as found:
        least = found.front_step_time.min(), found.front_energy_per_token.min()
        best = [quantity(float(value), units) for value, units in zip(least, ("s", "J"), strict=True)]
        opened = table.build(found.load(), 1000)
    first, *_, last = rows = table_of(ended.out, "the ends of the front")
    assert first[1:3] == ["step_time", best[0]] and last[1] == "energy_per_token" and last[3] == best[1]
    shown = [tuple(row[-4:-2]) for row in rows]
    assert len(set(shown)) == len(shown) > 2
    (said,) = re.findall(r"best step time ([\d.]+) s, best energy per token", " ".join(ended.err.split())[-200:])
    assert float(said) == pytest.approx(float(least[0]), rel=5e-3)  # a score, rounded by itself
    assert (opened.start["x"], opened.start["y"]) == ("step_time", "energy_per_token")
    names = {f"out{kind}{ending}" for kind in ("", "_pareto") for ending in (".png", ".svg")}
    assert {path.name for path in tmp_path.glob("out*g")} == names
    assert all(str(tmp_path / name) in ended.out.replace("\n", "") for name in names)


def test_two_objectives_in_json(command):
    document = json.loads(command("--json", "--evaluations", "300", "--no-figure", old=SMALL, new=TWO).out)
    assert {design["gap"] for design in document["designs"]} == {None}
    best = document["best"]
    assert document["front"][0]["best_in"] == ["step_time"]
    assert document["front"][0]["objectives"][0] == pytest.approx(best["step_time"], rel=5e-3)
    assert document["front"][-1]["objectives"][1] == pytest.approx(best["energy_per_token"], rel=5e-3)
    assert document["fronts"]["evolution"]["best"] == list(best.values())


def test_without_figures_there_are_none(command, tmp_path):
    assert command("--evaluations", "64", "--no-figure").status == 0
    assert not list(tmp_path.glob("*.png")) and not list(tmp_path.glob("*.svg"))
    assert json.loads(command("--evaluations", "64", "--json").out)["figures"] == [
        str(tmp_path / f"out{ending}") for ending in (".png", ".svg")
    ]


def test_bad_places_of_figures_are_told_before_anything_is_computed(command, tmp_path):
    (tmp_path / "out_pareto.png").write_text("a thesis")
    ended = command(old=SMALL, new=TWO)
    assert ended.status == 2 and "out_pareto.png" in ended.err and not (tmp_path / "out.nc").exists()


def test_bad_budgets_of_a_codesign_are_told(command):
    document = Path("sweeps/codesign_gpu.toml").read_text()
    ended = command("--evaluations", "2000", "--no-figure", old=SMALL, new=document)
    assert ended.status == 2 and "--evaluations" in ended.err and "or more: one step" in ended.err


def test_what_is_outside_of_the_calibrated_range_is_printed_as_of_a_run(command):
    ended = command("--no-figure", old='[system]\nname = "selene"', new='seq_len = 512\n[system]\nname = "dgx-b200"')
    assert ended.status == 0 and "outside the calibrated range: " in ended.out
    assert "sequence 512 (rows from 2,048 on)" in ended.out


def test_results_are_not_written_under_the_name_of_another_format(command, tmp_path):
    ended = command("--no-figure", "-o", str(tmp_path / "best.csv"))
    assert ended.status == 2 and "the name of a CSV file" in ended.err and "best.nc" in ended.err
    assert not (tmp_path / "best.csv").exists()
