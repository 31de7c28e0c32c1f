"""One rule for the stacks of designs that name none: by chip, kind of model, tool and date, from every door."""

import json
import re

import pytest
from typer.testing import CliRunner

import dse
from docs.make.files import MODEL_KINDS, default_stacks
from dse.cli import app
from dse.designs import accelerator_of, catalog
from dse.errors import InputError, Notice
from dse.measured import read_cases
from dse.measured.completion import complete
from dse.sweep import plan
from dse.tools import TOOLS

#: A user's system without a stack.
SYSTEM = (
    'source = "mine"\nconfidence = "estimate"\naccelerator = "h100"\ndevices_per_node = 8\nscale_up = "nvlink-4"\n'
    'scale_out = "infiniband-ndr"\n'
)

SYSTEMS = sorted({*catalog.names("system"), *catalog.names("accelerator")})

#: Rows of these chips exist for training, by kind of model (``[calibrated]`` of the stacks that state tools).
MEASURED = {
    kind: {
        chip
        for stack in catalog.names("software")
        if catalog.entry("software", stack).value("tools") and not catalog.serving_defaults(stack)
        for chip in catalog.entry("software", stack).value(f"calibrated.{field}", ())
    }
    for kind, field in (("dense", "accelerators"), ("mixture of experts", "mixtures"))
}


def test_the_table_of_default_stacks(capsys):
    """Every system and accelerator, by kind of model: the stack exists for its vendor."""
    with capsys.disabled():
        print(f"\n{'system or accelerator':26}{'dense':34}{'mixture of experts':34}serving")
        for slug, (dense, mixture, engine) in default_stacks().items():
            print(f"{slug:26}{dense:34}{mixture:34}{engine}")
    for slug, stacks in default_stacks().items():
        assert not any(catalog.vendor_mismatch(stack, slug) for stack in stacks), slug


@pytest.mark.parametrize(
    ("slug", "kind"),
    [
        (slug, kind)
        for slug in SYSTEMS
        for kind in MODEL_KINDS
        if accelerator_of(slug) in MEASURED[kind] and not catalog.entry("system", slug).value("tool")
    ],
)
def test_a_chip_with_rows_gets_a_stack_with_rows_of_its_generation(slug, kind):
    """The machines that state a tool keep it; for all others rows of the chip decide."""
    chip = accelerator_of(slug)
    stack = catalog.entry("software", catalog.default_software(slug, workload=MODEL_KINDS[kind]))
    field = "accelerators" if kind == "dense" else "mixtures"
    family = {chip_family(row) for row in stack.value(f"calibrated.{field}", ())}
    assert chip_family(chip) in family, f"{slug}: {stack.slug} has rows of {sorted(family)}"


def chip_family(chip):
    family = str(catalog.entry("accelerator", chip).value("kernels.family", "generic"))
    above = str(catalog.entry("kernels", family).value("family", "generic"))
    return family if above == "generic" else above


def test_no_system_of_the_catalogue_names_a_stack():
    systems = [catalog.entry("system", slug) for slug in catalog.names("system")]
    clusters = [entry for entry in systems if entry.kind == "system"]
    assert len(clusters) > 20 and not [e.slug for e in clusters if {"software", "engine"} & set(e.values)]


@pytest.mark.parametrize(("system", "tool", "workload", "stack"), [
    ("dgx-gb300", "", "llama-3-8b", "megatron-bridge"),
    ("b300-sxm-288gb", "", "deepseek-v3", "megatron-bridge"),
    ("b100", "", "llama-3-8b", "megatron-bridge"),  # no rows of it: the nearest in matrix rate
    ("h800-cluster", "", "qwen3-235b-a22b", "megatron-bridge"),  # of no model is DeepSeek's own stack the default
    ("selene", "", "gpt-3-175b", "megatron-2022"), ("jean-zay", "", "gpt-3-175b", "megatron-deepspeed"),
    ("eos", "", "llama-3-8b", "nemo"), ("eos", "", "deepseek-v3", "megatron-bridge"),  # NeMo of 2024 has no such rows
    ("torchtitan-h100", "", "deepseek-v2-lite", "torchtitan"),  # a machine's tool stays
    ("h100", "torchtitan", "llama-3-8b", "torchtitan"), ("eos", "maxtext", "llama-3-8b", "jax-toolbox-h100"),
    ("dgx-b200", "maxtext", "llama-3-8b", "jax-toolbox-h100"), ("tpu-v5p", "maxtext", "llama-3-8b", "maxtext-v5p"),
    ("mi355x", "megatron-lm", "llama-3-8b", "megatron-core-rocm"),
    ("mi300x", "torchtitan", "llama-3-8b", "torchtitan-rocm"),
    ("a100", "megatron-lm", "llama-3-8b", "megatron-core-te"),  # those of 2021 and 2022 are of another era
    ("mi300x", "nemo", "llama-3-8b", "megatron-core-rocm"),  # NeMo has no stack for AMD
    ("v100", "", "llama-3-8b", "megatron-2021"), ("l40s", "", "llama-3-8b", "megatron-core-te"),
    ("trainium-2", "", "deepseek-v3", "neutral"), ("generated-a100", "", "llama-3-8b", "jax-toolbox-a100"),
])  # fmt: skip
def test_the_rule(system, tool, workload, stack):
    assert catalog.default_software(system, workload=workload, tool=tool) == stack


@pytest.mark.parametrize(("system", "tool", "stack"), [
    ("h100", "", "vllm"), ("mi300x", "", "vllm-rocm"), ("mi300x", "vllm", "vllm-rocm"), ("eos", "sglang", "sglang"),
    ("b200", "tensorrt-llm", "tensorrt-llm"), ("trainium-2", "", "vllm"), ("selene", "", "vllm"),
])  # fmt: skip
def test_the_rule_for_engines(system, tool, stack):
    assert catalog.default_software(system, serving=True, tool=tool) == stack


@pytest.mark.parametrize("tool", sorted(name for name, tool in TOOLS.items() if tool.study == "training"))
def test_a_tool_gets_a_stack_of_its_own(tool):
    """On chips of a vendor that it runs on: what its line states, and what the prediction assumes, are of one tool."""
    stack_tool = TOOLS[tool].stack_tool or tool  # of a tool built on another one
    assert stack_tool in catalog.entry("software", catalog.default_software("h100", tool=stack_tool)).value("tools")


def test_a_stack_that_a_file_names_stays(tmp_path):
    """Users' ``software =`` and ``engine =``, in a system's file and in an accelerator's ``[node]``."""
    (tmp_path / "systems").mkdir()
    (tmp_path / "accelerators").mkdir()
    head = 'source = "mine"\nconfidence = "estimate"\n'
    (tmp_path / "systems" / "mine.toml").write_text(SYSTEM + 'software = "torchtitan"\nengine = "sglang"\n')
    (tmp_path / "accelerators" / "chip.toml").write_text(
        f'{head}kernels = "hopper"\n[matrix_rate]\nbf16 = "1 PFLOP/s"\n[memory]\ncapacity = "80 GiB"\n'
        'bandwidth = "3 TB/s"\n[node]\nsource = "mine"\nsoftware = "nemo"\n'
    )
    assert catalog.default_software("mine", folder=tmp_path) == "torchtitan"
    assert catalog.default_software("mine", folder=tmp_path, serving=True) == "sglang"
    assert catalog.default_software("chip", folder=tmp_path) == "nemo"
    assert catalog.default_software("mine", folder=tmp_path, tool="torchtitan") == "torchtitan"
    assert catalog.default_software("mine", folder=tmp_path, tool="maxtext") == "jax-toolbox-h100"  # said later


def test_a_stack_of_a_user_is_kept_for_its_tool(tmp_path):
    """That a tool is asked for does not move a release that the system's file names to another one of that tool."""
    (tmp_path / "systems").mkdir()
    (tmp_path / "systems" / "mine.toml").write_text(SYSTEM + 'software = "nemo-24-03"\n')
    assert catalog.default_software("mine", folder=tmp_path, tool="nemo") == "nemo-24-03"
    assert catalog.default_software("mine", folder=tmp_path, tool="torchtitan") == "torchtitan"


@pytest.mark.parametrize("name", ["aaa", "zzz"])
def test_a_stack_without_a_date_comes_after_the_dated_ones(tmp_path, name):
    """Whatever their names, and so the order of their files."""
    text = catalog.entry("software", "megatron-bridge").path.read_text()
    (tmp_path / "software").mkdir()
    undated = "\n".join(line for line in text.split("\n") if not line.startswith("released"))
    (tmp_path / "software" / f"{name}.toml").write_text(undated)
    assert catalog.default_software("h100", folder=tmp_path) == "megatron-bridge"


def write_chip(path, *lines):
    path.parent.mkdir(exist_ok=True)
    head = 'source = "mine"\nconfidence = "estimate"\n'
    path.write_text(head + "\n".join([*lines, RATES]))


RATES = '[matrix_rate]\nbf16 = "1 PFLOP/s"\n[memory]\ncapacity = "80 GiB"\nbandwidth = "3 TB/s"\n'


@pytest.mark.parametrize(("lines", "tool", "stack"), [
    ((), "", "neutral"), (('kernels = "generic"',), "", "neutral"), (('kernels = "tpu"',), "", "maxtext"),
    (('kernels = "ampere"',), "", "jax-toolbox-a100"),
    (('kernels = "ampere"',), "megatron-lm", "megatron-core-te"),
    (('kernels = "cdna"',), "", "megatron-core-rocm"), (('vendor = "Acme"', 'kernels = "ampere"'), "", "neutral"),
    (('vendor = "Acme"', 'kernels = "ampere"'), "nemo", "neutral"),
])  # fmt: skip
def test_a_chip_of_nobody_is_one_of_its_kernel_family_and_a_vendor_without_rows_gets_no_other_vendor_s(
    tmp_path, lines, tool, stack
):
    write_chip(tmp_path / "accelerators" / "chip.toml", *lines)
    for workload in ["llama-3-8b"] if 'kernels = "ampere"' in lines[:1] else MODEL_KINDS.values():
        assert catalog.default_software("chip", folder=tmp_path, tool=tool, workload=workload) == stack


def own_stack(folder, name, **values):
    """A stack of a user: torchtitan's with other values in its head."""
    (folder / "software").mkdir(exist_ok=True)
    text = catalog.entry("software", "torchtitan").path.read_text()
    for key, value in values.items():
        text = re.sub(rf"(?m)^{key} = .*$", f"{key} = {value}", text)
    (folder / "software" / f"{name}.toml").write_text(text)


def test_a_copy_of_a_stack_is_no_default(tmp_path):
    """One of a user's own is taken where it is named, or its tool is."""
    own_stack(tmp_path, "aaa", tools='["megatron-bridge"]', released='"2026-01"')
    own_stack(tmp_path, "bbb", tools='["ours"]')
    assert catalog.default_software("h100", folder=tmp_path) == "megatron-bridge"
    assert catalog.default_software("h100", folder=tmp_path, tool="ours") == "bbb"


def test_what_changes_in_the_files_of_chips_is_read(tmp_path):
    """Within one process, as a notebook edits its catalogue: which of two stacks has rows of this vendor's chips."""
    for name in ("far", "near"):
        own_stack(tmp_path, f"of-{name}", tools='["ours"]', accelerators=f'["{name}"]')
        write_chip(tmp_path / "accelerators" / f"{name}.toml", 'vendor = "Somebody"')
    assert catalog.default_software("gaudi-3", folder=tmp_path, tool="ours") == "of-far"
    write_chip(tmp_path / "accelerators" / "near.toml", 'vendor = "Intel"')
    assert catalog.default_software("gaudi-3", folder=tmp_path, tool="ours") == "of-near"


def test_the_check_of_the_catalogue_finds_tools_and_months(tmp_path):
    own_stack(tmp_path, "mine", released='"2025-13"')
    (tmp_path / "systems").mkdir()
    (tmp_path / "systems" / "typo.toml").write_text(SYSTEM + 'tool = "torchtitna"\n')
    problems = catalog.check(tmp_path)
    assert len(problems) == 2 and any("2025-13" in problem for problem in problems)
    assert any("torchtitna" in problem and "torchtitan" in problem for problem in problems)


def test_a_tool_that_no_stack_states_is_an_error(tmp_path):
    (tmp_path / "systems").mkdir()
    (tmp_path / "systems" / "mine.toml").write_text(SYSTEM + 'tool = "megatrn-lm"\n')
    with pytest.raises(InputError, match=r"tool.*megatrn-lm.*megatron-lm"):
        catalog.default_software("mine", folder=tmp_path)


def test_a_broken_stack_of_a_user_stops_no_design_that_does_not_name_it(tmp_path):
    (tmp_path / "software").mkdir()
    (tmp_path / "software" / "broken.toml").write_text("attention = [")
    with pytest.warns(Notice, match="software/broken.toml"):
        assert catalog.default_software("h100", folder=tmp_path) == catalog.default_software("h100")


@pytest.mark.parametrize("workload", MODEL_KINDS.values())
@pytest.mark.parametrize("system", ["h800-cluster", "gb300-nvl72", "eos", "a100", "mi300x", "selene"])
def test_one_design_has_one_stack_from_every_door(system, workload, tmp_path):
    """Python, the command, a sweep's file, and a row of a table."""
    stack = catalog.default_software(system, workload=workload)
    options = ["-w", workload, "-s", system, "--set", "zero_stage=1", "-n", "64", "--json"]
    told = json.loads(CliRunner().invoke(app, ["evaluate", *options, "--no-uncertainty"]).stdout)
    named = dse.design(workload, system, stack, n_devices=64, zero_stage=1)
    assert dse.design(workload, system, n_devices=64, zero_stage=1) == named
    slowdown = float(named.software.matrix_slowdown)
    assert told["design"]["software.matrix_slowdown"] == pytest.approx(slowdown)
    file = tmp_path / "sweep.toml"
    file.write_text(f'[workload]\nname = "{workload}"\n[system]\nname = "{system}"\nn_devices = 64\n[axes]\ntp = [1]\n')
    assert float(plan(str(file))[0].base.software.matrix_slowdown) == pytest.approx(slowdown)
    rows = tmp_path / "rows.csv"
    rows.write_text(
        f"model,system,n_gpus,tp,ep,micro_batch,global_batch,seq_len\n{workload},{system},64,1,1,1,64,4096\n"
    )
    (case,) = read_cases(rows, measured=False)
    assert complete(case).stack == stack
