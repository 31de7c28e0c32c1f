"""Specifications of searches: what is said once is read once, and what is wrong is told in four parts."""

import pytest

from dse.errors import InputError
from dse.spec import search as spec
from dse.sweep import from_text
from tests.unit.optimizers.toy import search, text


def test_the_rest_is_a_sweep():
    found = search()
    assert found.sweep.axes == from_text(text().split("[search]")[0], "search.toml").axes
    assert found.methods == ("evolution",) and found.evaluations == spec.DEFAULT_EVALUATIONS
    assert found.seeds == (0, 1, 2, 3) and found.seconds is None and found.polish


def test_a_continuous_axis_has_ends_and_a_spacing():
    wide = '"memory.bandwidth" = { from = "1 TB/s", to = "3 TB/s", continuous = true }'
    found = search(f"{wide}\nhost_power = {{ from = '0 W', to = '200 W', continuous = true }}")
    bandwidth, pue = found.intervals
    assert bandwidth.path == "system.accelerator.memory.bandwidth" and bandwidth.log
    assert (bandwidth.low, bandwidth.high) == (1e12, 3e12)
    assert not pue.log


def test_ends_without_their_unit_are_told_how_they_were_read():
    found = search('"memory.bandwidth" = { from = "1 TB/s", to = 3e12, continuous = true }\nhost_power = [200]')
    assert found.notes == (
        "host_power = 200 has no unit: read as 200 W",
        "memory.bandwidth = 3e+12 has no unit: read as 3e+12 B/s",
    )
    assert search('"memory.bandwidth" = { from = 1e12, to = 3e12, continuous = true }').notes == (
        "memory.bandwidth = 1e+12 has no unit: read as 1e+12 B/s",
    )


def test_the_hash_is_of_what_is_searched():
    one = search(search="evaluations = 100")
    assert one.hash() == search(search='method = "random"').hash()
    assert one.hash() != search("tp = [1, 2]").hash()
    axis = '"memory.bandwidth" = { from = 1e12, to = HIGH, continuous = true }'
    low, high = (search(axis.replace("HIGH", to)) for to in ("2e12", "3e12"))
    assert low.hash() != high.hash()


def test_options_have_defaults():
    found = search(search='method = ["evolution", "random"]\n[search.evolution]\npopulation = 8')
    assert found.options["evolution"] == {"population": 8, "best_share": 0.2}
    assert found.options["random"] == {"population": 64}


@pytest.mark.parametrize(
    ("axes", "keys", "where"),
    [
        ("tp = [1, 2]", 'method = "evolutoin"', "search.method"),
        ("tp = [1, 2]", "method = []", "search.method"),
        ("tp = [1, 2]", 'method = ["random", "random"]', "search.method"),
        ("tp = [1, 2]", "evaluation = 100", "search"),
        ("tp = [1, 2]", "evaluations = 0", "search.evaluations"),
        ("tp = [1, 2]", "evaluations = 1.5", "search.evaluations"),
        ("tp = [1, 2]", "seconds = true", "search.seconds"),
        ("tp = [1, 2]", "seeds = 0", "search.seeds"),
        ("tp = [1, 2]", "seeds = [1, 1]", "search.seeds"),
        ("tp = [1, 2]", "polish = 1", "search.polish"),
        ("tp = [1, 2]", "evolution = 3", "search.evolution"),
        ("tp = [1, 2]", "[search.random]\npopulation = 3", "search.random"),
        ("tp = [1, 2]", "[search.evolution]\npopulatoin = 3", "search.evolution"),
        ("tp = [1, 2]", "[search.evolution]\npopulation = 3.5", "search.evolution.population"),
        ("tp = { from = 1, to = 8, continuous = true }", "", "axes.tp"),
        ("n_devices = { from = 1, to = 8, continuous = true }", "", "axes.n_devices"),
        ("system = { from = 1, to = 8, continuous = true }", "", "axes.system"),
        ("pue = { from = 2, to = 1, continuous = true }", "", "axes.pue"),
        ("pue = { from = 1, continuous = true }", "", "axes.pue"),
        ("pue = { from = 1, to = 2, continuous = 1 }", "", "axes.pue"),
        ("pue = { from = 1, to = 2, count = 3, continuous = true }", "", "axes.pue"),
        ("host_power = { from = '0 W', to = '2 W', continuous = true, log = true }", "", "axes.host_power.from"),
        ('"memory.bandwith" = { from = 1, to = 2, continuous = true }', "", "axes.memory.bandwith"),
    ],
)
def test_what_is_wrong_is_told(axes, keys, where):
    with pytest.raises(InputError) as error:
        search(axes, search=keys)
    assert where in error.value.where


def test_a_continuous_axis_moves_alone():
    axes = 'pue = { from = 1, to = 2, continuous = true }\n"memory.bandwidth" = [1e12]'
    with pytest.raises(InputError, match="not zipped"):
        search(axes, more='[zip]\ngroups = [["pue", "memory.bandwidth"]]')


def test_a_misspelt_method_is_told_the_one_that_is_meant():
    with pytest.raises(InputError) as raised:
        search(search='method = "randm"')
    assert raised.value.fix.startswith("did you mean 'random'")


@pytest.mark.parametrize(
    ("method", "kept"),
    [
        ("gumbel", "relaxed"),
        ("langevin", "relaxed"),
        ("cmaes", "evolution"),
        ("cross_entropy", "evolution"),
        ("sobol", "random"),
    ],
)
def test_a_method_of_other_tools_is_answered_with_the_closest_one(method, kept):
    with pytest.raises(InputError) as raised:
        search(search=f'method = "{method}"')
    assert raised.value.fix == f"did you mean '{kept}'?"
