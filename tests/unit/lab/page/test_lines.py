"""Lines to paste mean the design that they were copied from."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import dse
from dse.capabilities.designs import DesignOptions
from dse.designs import all_leaves, leaf, leaves_of, replace
from dse.errors import InputError
from dse.lab import page as pages_of
from dse.lab.page import lines, table
from dse.sweep import from_text, plan
from dse.tools import launch
from tests.unit.lab.page.results import many, planned

ROOT = Path(__file__).parents[4]

#: One of each sort: mappings, machines that are served, generated chips, machines by network and part, two structures.
SWEEPS = (
    "megatron_1t_4096_a100",
    "llama3_70b_serving",
    "technology_nodes_training",
    "a100_to_b200",
    "chiplet_split",
    "dense_and_mixture",
)


def line_of(made: lines.Lines, row: int) -> str:
    """The options of a design, as the page joins them."""
    group = made.groups[made.group[row]]
    told = [c.texts[c.codes[row]] for c, plain in zip(made.choices, group.plain, strict=True) if c.codes[row] != plain]
    assert not group.why
    return " ".join((group.names, *told))


def toml_of(made: lines.Lines, shown: table.DesignTable, row: int) -> str:
    """The specification of a design, as the page joins it."""
    columns = {column.name: column for column in shown.columns}
    absent = made.groups[made.group[row]].absent
    axes = [
        f"{name} = [{v[columns[c].values[row] if c in columns else 0]}]"
        for name, c, v in made.axes
        if name not in absent
    ]
    return "\n".join((made.toml, "[axes]", *axes))


def parsed(line: str, study):
    """The design that a command line means."""
    words, given, settings = shlex.split(line), {}, []
    while words:
        option = words.pop(0)
        value = True if option == "--any-option" else words.pop(0)
        settings.append(value) if option == "--set" else given.update({option: value})
    return (
        DesignOptions(
            workload=given["-w"],
            system=given["-s"],
            settings=settings,
            n_devices=int(given["-n"]),
            software=given.get("--software"),
            any_option="--any-option" in given,
        )
        .request(study)
        .design
    )


#: What says of an accelerator what it is made of and sold at: sweeps that ask for no money leave it out.
MONEY = ("system.accelerator.made.", "system.accelerator.fab.", "system.prices.")


def differences(made, wanted, study) -> list[str]:
    """Leaves that the model reads and that differ; a record that is absent has its defaults."""

    def value(design, own, path) -> float:
        found = leaf(design, path) if path in own else all_leaves()[path].get("default")
        return np.nan if found is None else np.float32(found)

    each = [(design, leaves_of(design)) for design in (made, wanted)]
    read = [path for path in each[0][1] | each[1][1] if not path.startswith((*study.ignored_leaves, *MONEY))]
    return [path for path in read if not np.array_equal(*(value(*one, path) for one in each), equal_nan=True)]


class Case(NamedTuple):
    """Some designs of a sweep."""

    shown: table.DesignTable
    made: lines.Lines
    wanted: list  #: what the sweep evaluates


@pytest.fixture(scope="module", params=SWEEPS)
def case(request) -> Case:
    results, grid, index = planned(ROOT / "sweeps" / f"{request.param}.toml", 12)
    shown = table.build(results, 1000)
    wanted = [None] * shown.size
    for places, own, local in grid.by_structure(index):
        values = own.values(local)
        for i, row in enumerate(places):
            wanted[row] = replace(own.base, {path: column[i] for path, column in values.items()})
    return Case(shown, lines.build(shown), list(map(shown.study.complete, wanted)))


def test_lines_mean_their_designs(case):
    shown, made, _ = case
    assert not made.why and made.tools
    for row, wanted in enumerate(case.wanted):
        design = parsed(line_of(made, row), shown.study)
        assert not differences(design, wanted, shown.study), line_of(made, row)
    for tool in made.tools:
        assert launch(design, tool, shown.study).text


def test_specifications_mean_their_designs(case):
    shown, made, _ = case
    told = 0
    for row in range(0, shown.size, 3):
        try:
            alone, _ = plan(from_text(toml_of(made, shown, row)))
        except InputError as error:
            # What cannot run for its sizes, or by a stack that splits layers evenly, is in no grid of its own.
            assert "no valid mapping" in error.got or "does not divide" in error.got
            continue
        assert alone.n_designs == 1
        own = {path: column[0] for path, column in alone.values(np.arange(1)).items()}
        found = shown.study.complete(replace(alone.base, own))
        assert not differences(found, case.wanted[row], shown.study)
        told += 1
    assert told


def test_lines_give_the_same_step_time(small_results):
    shown = table.build(small_results[0], 1000)
    made = lines.build(shown)
    for row in range(0, shown.size, 4):
        metrics = dse.evaluate(parsed(line_of(made, row), shown.study))
        assert float(metrics.step_time) == pytest.approx(float(shown.column("step_time").values[row]), rel=1e-5)


@pytest.mark.slow
def test_a_line_in_a_shell_gives_the_same_step_time(small_results):
    """``dse evaluate`` as the page gives it, in a process of its own; the specification through ``dse.run``."""
    shown = table.build(small_results[0], 1000)
    made = lines.build(shown)
    time = shown.column("step_time").values
    row = int(np.argmax(time))
    words = [sys.executable, "-m", "dse", "evaluate", *shlex.split(line_of(made, row)), "--json"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    metrics = json.loads(done.stdout)["metrics"]
    assert metrics["step_time"] == pytest.approx(float(time[row]), rel=1e-5)
    alone = dse.run(from_text(toml_of(made, shown, row)), output=False)
    assert float(alone.step_time.squeeze()) == pytest.approx(float(time[row]), rel=1e-6)


def test_options_that_a_stack_lacks_are_allowed_again():
    """Results of ``dse run --any-option`` do not say so in their specification."""
    text = (ROOT / "sweeps" / "megatron_1t_4096_a100.toml").read_text(encoding="utf-8")
    any_option = text.replace('name = "megatron-2022"', 'name = "megatron-2022"\nany_option = true')
    results, _, _ = planned(from_text(any_option), 40)
    shown = table.build(results.assign_attrs(specification=text), 1000)
    made = lines.build(shown)
    assert not made.why and "--any-option" in line_of(made, 0) and "any_option = true" in made.toml


def test_without_a_specification_there_are_no_lines():
    shown = table.build(many(50), 1000)
    assert lines.build(shown).why and any("no specification" in note for note in shown.notes)
    broken = many(50).assign_attrs(specification="[workload]\nname = 'nobody'")
    assert "nobody" in table.build(broken, 1000).notes[0]


def test_values_are_those_that_people_write():
    assert lines.value_text("system.accelerator.memory.bandwidth", 3.35e12) == "3.35 TB/s"
    assert lines.value_text("system.accelerator.memory.bandwidth", 3.3512345e12) == "3.3512345e+12 B/s"
    assert lines.value_text("mapping.recompute", 2.0) == "full"
    assert lines.option_words("system.n_devices", 4096.0) == "-n 4096"
    assert pages_of.MAX_POINTS == 200_000
