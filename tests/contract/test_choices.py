"""True and false are values of what is off or on; of a choice of several they do not say which, and are refused."""

import pytest

import dse
from dse.cli import app
from dse.designs import all_leaves, catalog, leaf_value
from dse.errors import InputError
from dse.measured import predict_cases, read_cases
from dse.spec import search, sweep
from dse.sweep import plan

CHOICES = [path for path, about in all_leaves().items() if "enum" in about]

#: Whole numbers of more than two states, of which none is the plain one of being on.
LEVELS = ("mapping.zero_stage", "software.can.zero_stage", "software.can.selective_recompute", "software.can.schedule")

#: What is off or on, if need be with variants of on.
SWITCHES = ("mapping.overlap_tp", "mapping.sequence_parallel", "workload.gated", "mapping.offload_weights")

SWEEP = """
[workload]
name = "llama-3-8b"
[system]
name = "eos"
n_devices = 64
{fixed}
[axes]
tp = [1, 2]
{axes}
"""


@pytest.mark.parametrize("path", [*CHOICES, *LEVELS])
@pytest.mark.parametrize("value", [True, False])
def test_a_truth_value_is_no_choice(path, value):
    with pytest.raises(InputError) as error:
        leaf_value(path, value)
    assert error.value.got == str(value).lower()


@pytest.mark.parametrize("path", SWITCHES)
def test_a_truth_value_is_one_of_a_switch(path):
    assert (leaf_value(path, False), leaf_value(path, True)) == (0.0, 1.0)


def test_the_message_asks_which():
    with pytest.raises(InputError) as error:
        dse.design("llama-3-8b", "eos", recompute=True)
    assert error.value.where == "design.recompute"
    assert error.value.allowed.startswith("none, selective, full")
    assert error.value.fix == "full or selective? write its name"
    with pytest.raises(InputError, match="write none"):
        dse.design("llama-3-8b", "eos", recompute=False)


@pytest.mark.parametrize(
    ("fixed", "axes"), [("", "recompute = [false, true]"), ("[mapping]\nrecompute = true", "pp = [1]")]
)
def test_sweeps_and_searches_ask_which(fixed, axes):
    text = SWEEP.format(fixed=fixed, axes=axes)
    for read in (lambda: plan(sweep.from_text(text)), lambda: search.from_text(text)):
        with pytest.raises(InputError, match=r"recompute(.|\n)*(full or selective\?|write none)"):
            read()


def test_constraints_ask_which():
    with pytest.raises(InputError, match="full or selective"):
        plan(sweep.from_text(SWEEP.format(fixed="", axes='[constraints]\nall = ["recompute == True"]')))
    plan(sweep.from_text(SWEEP.format(fixed="", axes='[constraints]\nall = ["overlap_dp == True"]')))


@pytest.mark.parametrize("value", ["true", "True", "false"])
def test_the_command_asks_which(value, capsys):
    with pytest.raises(SystemExit) as ended:
        app(["evaluate", "-w", "llama-3-8b", "-s", "eos", "--set", f"recompute={value}"], prog_name="dse")
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "--set.recompute" in said and ("write none" if value == "false" else "full or selective?") in said


def test_tables_ask_which(tmp_path):
    """A row of a table that says true is skipped, and says why."""
    table = tmp_path / "rows.csv"
    table.write_text(
        "model,gpu,n_gpus,tp,pp,micro_batch,global_batch,seq_len,recompute\nllama-3-8b,H100,64,1,1,1,512,8192,true\n"
    )
    (found,) = predict_cases(read_cases(table, measured=False))
    assert "full or selective?" in str(found.skip)


def test_files_of_the_catalogue_ask_which():
    with pytest.raises(InputError, match="full or selective"):
        catalog.choice(True, all_leaves()["mapping.recompute"]["enum"], "stack.toml")


def test_results_of_switches_are_still_yes_and_no():
    axes = sweep.from_text(SWEEP.format(fixed="", axes="overlap_dp = [false, true]")).axes
    assert next(axis.labels for axis in axes if axis.name == "overlap_dp") == (False, True)
