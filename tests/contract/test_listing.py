"""What may be named: everything is listed, once, by a name that works, and the page of the docs is up to date."""

from __future__ import annotations

import json
import re
import shlex

import pytest
from typer.testing import CliRunner

from dse.capabilities.listing import KINDS, listing
from dse.cli import app
from dse.designs import all_leaves, leaf_path
from dse.doors import SERVING, STUDIES, TRAINING
from dse.errors import InputError
from dse.measured.kernels.kernel import METRICS


def test_every_leaf_is_listed_by_a_name_that_means_it():
    rows = listing("leaves").rows
    assert {leaf_path(row[0]): row[-1] for row in rows} == {path: path for path in all_leaves()}


def test_every_metric_is_listed_with_its_unit():
    assert [row[0] for row in listing("metrics").rows] == list(TRAINING.units)
    of = {(row[0], row[-1]) for row in listing("metrics", studies=list(STUDIES.values())).rows}
    assert {name for name, _ in of} == {*TRAINING.units, *SERVING.units}
    assert {("step_time", "training"), ("time_to_first_token", "serving"), ("tco_per_year", "training, serving")} <= of


@pytest.mark.parametrize("kind", KINDS)
def test_every_name_is_told(kind):
    made = listing(kind)
    assert made.rows and all(len(row) == len(made.columns) for row in made.rows)
    assert all(row[made.columns.index("meaning")] for row in made.rows)


def test_patterns():
    assert [row[0] for row in listing("leaves", "memory.*width").rows] == ["memory.bandwidth"]
    assert listing("metrics", "MFU").rows[0][0] == "mfu"
    assert not listing("metrics", "furlong").rows
    with pytest.raises(InputError, match="leaves"):
        listing("leafs")


def test_the_command():
    done = CliRunner().invoke(app, ["list", "leaves", "zero_stage", "--json"])
    assert json.loads(done.stdout)[0] | {"meaning": ""} == {
        "name": "zero_stage",
        "unit": "",
        "meaning": "",
        "allowed": "a whole number, 0 or more, at most 3",
        "default": "the stack's",
        "path": "mapping.zero_stage",
    }
    assert CliRunner().invoke(app, ["list", "metrics", "furlong"]).exit_code == 1


def test_without_a_kind_it_tells_what_there_is():
    """As pages promise: every kind with how many names it has, and how to see them."""
    ended = CliRunner().invoke(app, ["list"])
    assert ended.exit_code == 0
    for kind in KINDS:
        row = re.search(rf"^{kind} +([\d,]+)  ", ended.stdout, re.MULTILINE)
        assert int(row[1].replace(",", "")) == len(listing(kind, studies=list(STUDIES.values())).rows)
    for line in re.findall(r"^dse (.*?)  +\w", ended.stdout, re.MULTILINE):
        assert CliRunner().invoke(app, shlex.split(line)).exit_code == 0, line
    told = json.loads(CliRunner().invoke(app, ["list", "--json"]).stdout)
    assert [one["kind"] for one in told] == list(KINDS) and all(one["names"] > 50 for one in told)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("metrics mfuu", "did you mean mfu or"), ("leaves isl", "did you mean prompt_tokens?"),
        ("leaves ttft", "time_to_first_token is one of the metrics: dse list metrics time_to_first_token"),
        ("metrics global_batch", "global_batch is one of the leaves: dse list leaves global_batch"),
        ("metrics furlong", "dse list metrics shows them all"),
    ],
)  # fmt: skip
def test_a_pattern_that_matches_nothing_is_told_what_it_may_mean(arguments, told):
    done = CliRunner().invoke(app, ["list", *arguments.split()])
    assert done.exit_code == 1 and done.stdout == "" and told in done.stderr


#: Names that scripts rely on: they may be added to.
OF_TRAINING = (
    "step_time tokens_per_second tokens_per_second_per_device peak_memory mfu mfu_causal hfu energy_per_step "
    "average_power cost_per_run cost_per_token cost_per_device_hour tco_per_year tokens_per_cost carbon_per_run "
    "carbon_per_token run_flops goodput_fraction run_time_with_failures"
)
OF_SERVING = (
    "time_to_first_token time_per_output_token inter_token_latency request_latency output_tokens_per_second "
    "output_tokens_per_second_per_device output_tokens_per_second_per_user concurrency_limit goodput "
    "energy_per_output_token cost_per_token cost_per_device_hour tco_per_year tokens_per_cost carbon_per_token"
)


@pytest.mark.parametrize(("study", "names"), [(TRAINING, OF_TRAINING), (SERVING, OF_SERVING)])
def test_names_that_scripts_rely_on(study, names):
    assert [name for name in names.split() if name not in study.units] == []


def test_metrics_of_kernels_are_called_as_scripts_expect():
    assert METRICS == ("kernel_time", "kernel_power")
