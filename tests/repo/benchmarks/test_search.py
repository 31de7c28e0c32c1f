"""The benchmark suite of search: what is stored is what enumeration gives, figures are what they are called."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.search import exact, fronts, measure, suite, trajectory
from benchmarks.search.reading import Reading
from docs.make.search import figure, large, page
from dse import sweep

SMALL = ("gpt3_selene", "memory_tight")
ROOT = Path(__file__).parents[3]
RETRACE = "if the model was meant to change: python -m benchmarks.search.trajectory docs/codesign_cost.json"
REFRESH = "if the model was meant to change: python -m benchmarks.search --exact"


@pytest.mark.parametrize("name", suite.names())
def test_every_space_is_stored_as_it_is_specified(name):
    grid, _ = sweep.plan(sweep.read(suite.path(name)), "top:1")
    optimum = exact.stored()[name]
    assert optimum.specification_hash == grid.spec.hash(), REFRESH
    assert optimum.designs == grid.n_designs, REFRESH
    assert 1e5 <= optimum.designs <= 1.1e9
    assert grid.labels(optimum.index) == optimum.at
    assert bool(optimum.front) == (len(grid.spec.objectives) > 1)


def codesign_record():
    return json.loads((ROOT / "docs" / "codesign_cost.json").read_text())


def test_the_way_of_a_codesign_is_that_of_its_specification():
    assert codesign_record()["digest"] == trajectory.digest(ROOT / trajectory.SPECIFICATION), RETRACE


@pytest.mark.slow
def test_the_way_of_a_codesign_is_what_the_search_finds():
    stored, found = codesign_record(), trajectory.measure(ROOT / trajectory.SPECIFICATION)
    assert found["report"]["value"] == pytest.approx(stored["report"]["value"], rel=2e-3), RETRACE
    assert np.max(found["reached"]) == pytest.approx(np.max(stored["reached"]), rel=2e-3), RETRACE
    assert found["evaluations"] == stored["evaluations"] and found["random"]["chips"] == stored["random"]["chips"]


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_small_optima_are_those_of_enumeration(name):
    found, _ = exact.enumerated(name)
    stored = exact.stored()[name]
    assert found.value == pytest.approx(stored.value, rel=1e-5), REFRESH
    assert (found.index, found.feasible) == (stored.index, stored.feasible), REFRESH


@pytest.mark.slow
def test_small_front_is_that_of_enumeration_and_of_pymoo():
    pytest.importorskip("pymoo")
    name = "front_time_memory"
    stored = exact.stored()[name]
    found = fronts.beside_pymoo(name, stored)
    assert found["same"], REFRESH
    assert found["our_volume"] == pytest.approx(found["their_volume"], rel=1e-12)


@pytest.fixture(scope="module")
def record():
    """A tiny measurement of a space of each kind."""
    effort, optima = measure.TINY, exact.stored()
    spaces = {
        name: {"methods": measure.measured(name, optima[name], effort, methods), "seconds": {"run": 0.1}}
        for name, methods in {"gpt3_selene": ("random", "evolution"), "front_time_memory": ("random",)}.items()
    }
    about = {"date": "2026-01-01", "cores": 2, "processor": "x86_64", "jax": "0"}
    return about | {"effort": dataclasses.asdict(effort), "spaces": spaces}


@pytest.mark.slow
def test_gaps_never_grow_and_shares_never_fall(record):
    for found in record["spaces"]["gpt3_selene"]["methods"].values():
        medians = [np.inf if gap[1] is None else gap[1] for gap in found["gap"]]
        assert all(later <= earlier for earlier, later in itertools.pairwise(medians))
        assert sorted(found["within_5"]) == found["within_5"]
        assert found["polished"]["within_5"] >= 0.5


@pytest.mark.slow
def test_evolution_finds_the_optimum_and_random_does_not(record):
    methods = record["spaces"]["gpt3_selene"]["methods"]
    assert methods["evolution"]["gap"][-1][1] < 0.01
    assert methods["random"]["gap"][-1][1] > methods["evolution"]["gap"][-1][1]
    assert Reading(record).meets("gpt3_selene", "evolution")


@pytest.mark.slow
def test_fronts_of_seeds_are_within_the_exact_one(record):
    found = record["spaces"]["front_time_memory"]["methods"]["random"]
    assert all(
        0.5 < single[1] <= whole <= 1.0 + 1e-6 for single, whole in zip(found["single"], found["together"], strict=True)
    )


@pytest.mark.slow
def test_page_and_figure_are_written_from_the_record(record, tmp_path):
    text = page.page(record)
    assert "## When not to search" in text
    assert "`gpt3_selene`" in text
    assert text.count("Not measured here.") == 2
    assert figure.draw(record, tmp_path / "search.png").stat().st_size > 10_000


def test_behind_random_is_told_apart_from_chance():
    """A gap of every seed that is twice that of random search is no chance; the same gaps in another order are."""
    gaps = [0.01 * (i + 1) for i in range(32)]
    alike = [gap + 0.002 for gap in gaps]
    found = {
        "random": {"seeds": {"1000": gaps}}, "worse": {"seeds": {"1000": [0.5] * 32}},
        "alike": {"seeds": {"1000": alike}}, "better": {"seeds": {"1000": [0.0] * 32, "5000": [0.0] * 32}},
    }  # fmt: skip
    reading = Reading({"spaces": {"gpt3_selene": {"methods": found}}, "effort": {"seeds": 32}})
    assert list(reading.behind_random("gpt3_selene")) == [("worse", 1000, True), ("alike", 1000, False)]


def test_what_was_found_on_large_spaces_is_held_against_the_best_of_all():
    """Made figures: the least of all is 2; seeds that met nothing feasible are infinitely far."""
    methods = {
        "random": {
            "best": {"1000": [4.0, None, 6.0], "20000": [3.0, 3.0, 6.0]},
            "seconds": {"1000": 0.5, "20000": 9.0},
            "polished": [2.0, 2.0, 3.0],
            "rate": 1e5,
        },
        "evolution": {
            "best": {"1000": [2.2, 2.2, 2.4], "20000": [2.0, 2.01, 2.3], "100000": [2.0, 2.0, 2.1]},
            "seconds": {"1000": 0.1, "20000": 2.0, "100000": 10.0},
            "polished": [2.0, 2.0, 2.0],
            "rate": 1e4,
        },
    }
    space = {"specification": "f/a.toml", "title": "a title", "designs": 1.2e15, "continuous": 2, "methods": methods}
    text = large.section([space])
    assert "|`a`|random|200 %|–|50 %|200 %|–|" in text
    assert "|`a`|evolution|10 %|–|0.5 %|15 %|2 s|" in text
    assert 'a,random,200 %,50 %,–,0 %,"100,000"' in text and 'a,evolution,10 %,0.5 %,0 %,0 %,"10,000"' in text
    assert "1.2e+15 designs times 2 continuous axes" in text
