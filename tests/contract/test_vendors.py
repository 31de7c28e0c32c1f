"""Stacks that exist for one vendor's accelerators are refused on those of another, unless any option is allowed."""

from __future__ import annotations

import csv
import json
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import dse
from dse import optimizers as search
from dse.cli import app
from dse.designs import catalog
from dse.errors import InputError
from dse.sweep import from_text, plan
from dse.sweep.grid import compose

SWEEPS = [
    path
    for path in sorted((Path(__file__).parents[2] / "sweeps").glob("*.toml"))
    if not {"search", "codesign", "prefill"} & tomllib.loads(path.read_text(encoding="utf-8")).keys()
]
SWEEP = """
[workload]
name = "llama-3-8b"
[system]
name = "eos"
n_devices = 16
{system}
{software}
[axes]
{axes}
tp = [8]
micro_batch = [1]
"""


def spec(axes: str = "pp = [1]", system: str = "", software: str = ""):
    stack = f'[software]\nname = "{software}"' if software else ""
    return from_text(SWEEP.format(axes=axes, system=system, software=stack))


@pytest.mark.parametrize(("stack", "system", "vendor"), [
    ("tensorrt-llm", "mi300x", "AMD"), ("tensorrt-llm", "tpu-v6e-pod", "Google"), ("nemo", "mi300x-cluster", "AMD"),
    ("maxtext-v5p", "h100", "NVIDIA"), ("fastertransformer", "gaudi-3", "Intel"),
])  # fmt: skip
def test_a_stack_of_another_vendor_is_refused(stack, system, vendor):
    with pytest.raises(InputError, match=f"{stack} on {system} of {vendor}") as error:
        dse.design("llama-3-8b", system, stack, tp=1)
    assert error.value.where == "software" and "--any-option" in error.value.fix
    dse.design("llama-3-8b", system, stack, tp=1, any_option=True)


@pytest.mark.parametrize(("stack", "system"), [
    ("vllm", "mi300x"), ("megatron-core-te", "mi300x"), ("megatron-deepspeed", "frontier"), ("maxtext", "h100"),
    ("tensorrt-llm", "gpu"), ("nemo", "generated-mi300x"), ("nemo", "dgx-b200"), ("maxtext-v4", "tpu-v5e"),
])  # fmt: skip
def test_a_stack_of_all_and_an_accelerator_of_nobody_are_not(stack, system):
    dse.design("llama-3-8b", system, stack, tp=1)


@pytest.mark.parametrize("kind", ["system", "accelerator"])
def test_the_stack_that_a_system_has_exists_for_it(kind):
    for name in catalog.names(kind):
        assert catalog.vendor_mismatch(catalog.default_software(name), name) is None, name


def test_every_vendor_that_a_stack_names_makes_accelerators():
    makers = {catalog.entry("accelerator", slug).value("vendor") for slug in catalog.names("accelerator")}
    for stack in catalog.names("software"):
        assert {*catalog.entry("software", stack).value("vendors", ())} <= makers, stack


def test_the_command_says_so_and_how_to_go_on():
    asked = ["evaluate", "-w", "llama-3-8b", "-s", "mi300x", "--serving", "--software", "tensorrt-llm"]
    with_settings = [*asked, "--set", "tp=1"]
    refused = CliRunner().invoke(app, with_settings)
    assert refused.exit_code == 2 and "stack that exists for AMD (tensorrt-llm: NVIDIA)" in refused.stderr
    assert CliRunner().invoke(app, [*with_settings, "--any-option"]).exit_code == 0


@pytest.mark.parametrize("given", [
    {"axes": 'accelerator = ["h100", "mi300x"]', "software": "nemo"},
    {"axes": 'software = ["megatron-core-te", "nemo"]', "system": 'accelerator = "mi300x"'},
    {"system": 'accelerator = "mi300x"'},  # in the nodes of eos, on its stack
])  # fmt: skip
def test_a_sweep_with_such_a_pair_is_refused(given):
    asked = spec(**given)
    with pytest.raises(InputError, match="nemo on mi300x of AMD"):
        plan(asked)
    plan(asked, any_option=True)
    compose.build(asked)  # results that were made so can be read


@pytest.mark.parametrize("given", [
    {"axes": 'accelerator = ["h100", "mi300x"]'},  # each on its own stack
    {"axes": 'accelerator = ["h100", "mi300x"]\nsoftware = ["megatron-core-te", "nemo"]'},
    {"axes": 'accelerator = ["h100", "mi300x"]', "software": "megatron-core-te"},
    {"axes": 'accelerator = ["h100", "gpu"]', "software": "nemo"},
])  # fmt: skip
def test_other_sweeps_are_not(given):
    plan(spec(**given))


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_the_sweeps_of_the_repository_are_not(path):
    plan(path)


def test_rows_are_predicted_whatever_their_stack(tmp_path):
    """What somebody has measured exists."""
    rows = tmp_path / "rows.csv"
    rows.write_text(
        "model,system,software,n_gpus,tp,global_batch,micro_batch,seq_len\nllama-3-8b,mi300x,nemo,8,8,8,1,2048\n",
        encoding="utf-8",
    )
    done = CliRunner().invoke(app, ["predict", str(rows), "-o", str(tmp_path / "out.csv")])
    assert done.exit_code == 0, done.output
    (row,) = csv.DictReader((tmp_path / "out.csv").read_text(encoding="utf-8").splitlines())
    assert float(row["pred_step_time"]) > 0.0, row


def test_a_search_is_refused_too():
    text = SWEEP.format(axes="pp = [1]", system='accelerator = "mi300x"', software='[software]\nname = "nemo"')
    asked = search.from_text(text + '[search]\nmethod = "random"\nevaluations = 16\n')
    with pytest.raises(InputError, match="nemo on mi300x of AMD"):
        search.plan(asked)
    search.plan(asked, any_option=True)


def evaluated(*asked: str) -> dict:
    command = ["evaluate", "-w", "llama-3-8b", *asked, "--uncertainty", "--json"]
    return json.loads(CliRunner().invoke(app, command).stdout)


@pytest.mark.parametrize(
    ("system", "devices", "engine"), [("gaudi-3", "8", "vllm-gaudi"), ("trainium-2", "16", "vllm")]
)
def test_a_vendor_without_rows_has_a_neutral_stack_with_wide_intervals_and_a_note(system, devices, engine):
    assert catalog.default_software(system) == "neutral"
    assert catalog.default_software(system, serving=True) == engine
    trained = evaluated("-s", system, "-n", devices, "--set", "tp=4", "--set", "recompute=full")
    low, high = trained["intervals"]["step_time"]
    assert high / low > 2.0 and any("no measured rows of" in text for text in trained["cautions"])
    served = evaluated("-s", system, "-n", "4", "--set", "tp=4", "--serving")
    low, high = served["intervals"]["time_per_output_token"]
    if engine == "vllm":  # an edition for the vendor has rows, of few models
        assert high / low > 2.5 and any("vllm has no measured rows of" in text for text in served["cautions"])
    own = evaluated("-s", "h100", "-n", "4", "--set", "tp=4", "--serving")
    assert not any("no measured rows of" in text for text in own["cautions"])


def test_trainium_2_is_a_torus_of_16():
    made = dse.design("llama-3-8b", "trainium-2", n_devices=16, tp=4, recompute="full")
    assert made.system.scale_up.links is not None and made.system.scale_up.domain == 16.0
    assert bool(dse.evaluate(made).feasible)


def test_a_full_mesh_of_another_size_than_built_has_a_note():
    asked = ("-s", "mi300x", "-n", "16", "--set", "tp=8")
    (note,) = [text for text in evaluated(*asked, "--set", "scale_up.domain=16")["cautions"] if "full mesh" in text]
    assert "built for 8: each device has 29.87 GB/s" in note
    for same in (asked, (*asked, "--set", "scale_up.domain=8"), ("-s", "h100", "--set", "scale_up.domain=16")):
        assert not any("full mesh" in text for text in evaluated(*same)["cautions"])
    swept = SWEEP.replace("eos", "mi300x").format(axes="scale_up.domain = [8, 16]", system="", software="")
    assert any("full mesh" in text for text in plan(from_text(swept))[0].remarks)
