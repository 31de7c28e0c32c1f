"""A prediction that leaves the rows of its fit says so, in every door, and costs the model nothing."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import dse
from calibration.engines import tells_of_engine
from dse import types
from dse.cli import app
from dse.designs import calibrated, catalog
from dse.designs.catalog.schema import table
from dse.designs.catalog.value import number_range
from dse.errors import InputError
from dse.lab.fits import ranges
from dse.lab.fits.jobs import JOBS
from dse.measured import comparison, read_cases
from dse.measured.columns import OUTPUT_COLUMNS
from dse.measured.comparison import values_out_of_range
from dse.measured.completion import complete
from dse.measured.names import Lookup
from dse.measured.prediction import Prediction
from dse.measured.table import Row
from dse.model import parameter_count
from dse.spec import sweep as specs
from dse.sweep import plan
from tests.unit.sweep import toy

STACKS = [name for name in catalog.names("software") if calibrated.ranges(name)]


def test_fitted_stacks_tell_their_rows():
    extents = {name for name, field in table("calibrated").fields.items() if field is number_range}
    assert extents == set(calibrated.QUANTITIES) and len(STACKS) > 30
    for stack in STACKS:
        assert all(0.0 < low <= high for low, high in calibrated.ranges(stack).values()), stack
        assert catalog.entry("software", stack).value("calibrated.accelerators") is not None


def test_beyond_and_within():
    low, high = calibrated.ranges("nemo")["seq_len"]
    assert calibrated.uncalibrated_quantities("nemo", {"workload.seq_len": low}.get, "h100-sxm-80gb") == []
    assert calibrated.uncalibrated_quantities("nemo", {"workload.seq_len": 2 * high}.get) == [
        f"sequence {2 * high:,.0f} (rows up to {high:,.0f})"
    ]
    assert calibrated.uncalibrated_quantities("nemo", {"workload.seq_len": low / 2}.get) == [
        f"sequence {low / 2:,.0f} (rows from {low:,.0f} on)"
    ]
    assert calibrated.uncalibrated_quantities("nemo", {}.get, "b200-sxm-180gb") == [
        "b200-sxm-180gb (rows of h100-sxm-80gb)"
    ]
    assert calibrated.uncalibrated_quantities("nemo", {"parameters": 3e12}.get)[0].startswith(
        "parameters 3,000 billion (rows up to 341"
    )
    assert calibrated.range_note([]) == "" and calibrated.range_note(["a", "b"]) == "outside the calibrated range: a, b"


def test_stacks_without_rows_say_so():
    for stack in {*catalog.names("software")} - {*STACKS}:
        assert calibrated.uncalibrated_quantities(stack, {"workload.seq_len": 1e9}.get, "no-such-chip") == [
            f"no measured rows for {stack}"
        ]


MIXTURES = "mixtures of experts (rows of dense models; stacks with rows of mixtures on h100-sxm-80gb: megatron-bridge, "


def test_a_stack_that_saw_no_mixture_of_experts_says_which_stacks_did():
    mixture = {"workload.experts.n_experts": 128.0}.get
    (told,) = calibrated.uncalibrated_quantities("nemo", mixture, "h100-sxm-80gb")
    assert told.startswith(MIXTURES) and "nemo" not in told
    assert calibrated.uncalibrated_quantities("nemo", mixture) == ["mixtures of experts (rows of dense models)"]
    assert calibrated.uncalibrated_quantities("megatron-bridge", mixture, "h100-sxm-80gb") == []
    (told,) = calibrated.uncalibrated_quantities("megatron-bridge", mixture, "h200-sxm-141gb")
    assert told.startswith("mixtures of experts on h200-sxm-141gb (rows of dense models; no stack has")
    (told,) = calibrated.uncalibrated_quantities(
        "tensorrt-llm-2023", mixture, "h100-sxm-80gb"
    )  # engines are no help in training
    assert "vllm" in told and "megatron" not in told
    for stack in STACKS:
        entry = catalog.entry("software", stack)
        chips = entry.value("calibrated.mixtures")
        assert {*chips} <= {*entry.value("calibrated.accelerators")}, stack
        assert not chips or entry.states("experts"), stack


def test_every_door_tells_of_mixtures_of_experts(tmp_path):
    options = dict(tp=2, pp=8, ep=32, global_batch=2048, micro_batch=1)
    asked = ["evaluate", "-w", "qwen3-235b-a22b", "-s", "eos", "-n", "256", "--software", "nemo", "--json"]
    asked += [text for name, value in options.items() for text in ("--set", f"{name}={value}")]
    (told,) = json.loads(CliRunner().invoke(app, asked).stdout)["outside"]
    assert told.startswith(MIXTURES)
    values = "\n".join(f"{name} = [{options[name]}]" for name in ("tp", "pp", "ep", "micro_batch"))
    text = (
        '[workload]\nname = "qwen3-235b-a22b"\nglobal_batch = 2048\n'
        f'[system]\nname = "eos"\nn_devices = 256\n[software]\nname = "nemo"\n[axes]\n{values}\n'
    )
    assert MIXTURES in dse.sweep.perform(specs.from_text(text), False)[1].outside
    table = tmp_path / "mixture.csv"
    table.write_text(
        "model,system,software,n_gpus,tp,pp,ep,micro_batch,global_batch,seq_len,recompute\n"
        "qwen3-235b-a22b,eos,megatron-core-b200,256,2,8,32,1,2048,4096,selective\n"
        "qwen3-235b-a22b,eos,nemo,256,2,8,32,1,2048,4096,selective\n"
        "qwen3-235b-a22b,eos,,256,2,8,32,1,2048,4096,selective\n"
    )
    dse.predict(table, tmp_path / "out.csv")
    other, own, handed = csv.DictReader((tmp_path / "out.csv").read_text().splitlines())
    assert "h100-sxm-80gb (rows of b200-sxm-180gb)" in other["outside"]
    assert "nemo has no measured kernels of experts" in own["pred_note"] and MIXTURES[-60:-2] in own["pred_note"]
    assert "expert_kernels=default" in own["completed"] and not own["skipped"]
    assert "software=megatron-bridge" in handed["completed"].replace(" ", "") and not handed["skipped"]


def test_a_machine_has_the_same_numbers_of_a_mixture_by_any_name():
    """``eos`` has H100s in their own nodes and network; its own stack never saw a mixture of experts."""

    def said(system):
        asked = ["evaluate", "-w", "qwen3-235b-a22b", "-s", system, "-n", "256", "--set", "ep=8", "--json"]
        return json.loads(CliRunner().invoke(app, asked).stdout)

    eos, h100 = said("eos"), said("h100")
    assert eos["metrics"]["step_time"] == pytest.approx(h100["metrics"]["step_time"], rel=1e-3)
    text = '[workload]\nname = "qwen3-235b-a22b"\n[system]\nname = "eos"\nn_devices = 256\n[axes]\nep = [8]\n'
    grid, _ = plan(specs.from_text(text))
    assert [axis.labels for axis in grid.fixed if axis.key == "software"] == [("megatron-bridge",)]


def test_evaluate_tells_it():
    asked = ["evaluate", "-w", "llama-3-8b", "-s", "eos", "-n", "4096", "--set", "tp=8", "--set", "global_batch=4096"]
    told = json.loads(CliRunner().invoke(app, [*asked, "--json"]).stdout)
    assert told["outside"] == ["devices 4,096 (rows up to 1,024)"]
    asked = ["evaluate", "-w", "llama-3-8b", "-s", "mi300x-cluster", "-n", "512", "--set", "tp=8"]
    assert "calibrated range: no measured rows for megatron-core-rocm\n" in CliRunner().invoke(app, asked).stdout


def test_sweeps_tell_it_of_their_best():
    tables = toy.sweep("tp = [1, 2]\nmicro_batch = [1, 2]", workload="seq_len = 131072")
    found = dse.sweep.perform(tables, False, study=toy.STUDY)[1]
    assert found.outside.startswith("outside the calibrated range: ") and "sequence 131,072 (rows" in found.outside


def test_sequences_beyond_the_context_are_told():
    def requests(prompt, answer):
        return {"workload.requests.prompt_tokens": prompt, "workload.requests.output_tokens": answer}.get

    assert calibrated.context_note("llama-3.1-70b", requests(130048.0, 1024.0)) == ""
    told = calibrated.context_note("llama-3.1-70b", requests(131072.0, 1024.0))
    assert told == "a request of 132,096 tokens is longer than the context of llama-3-1-70b: 131,072"
    assert "8,192" in calibrated.context_note("llama-3-8b", {"workload.seq_len": 16384.0}.get)
    assert calibrated.context_note("mamba-2-2.7b", {"workload.seq_len": 1e6}.get) == ""  # a state has no end
    asked = ["evaluate", "-w", "llama-3-8b", "-s", "h100", "--set", "seq_len=32768", "--json"]
    (caution,) = json.loads(CliRunner().invoke(app, asked).stdout)["cautions"]
    assert caution.startswith("a sequence of 32,768 tokens")
    tables = toy.sweep("tp = [1, 2]\nmicro_batch = [1, 2]", workload="seq_len = 131072")
    found = dse.sweep.perform(tables, False, study=toy.STUDY)[1]
    assert found.context.startswith("a sequence of 131,072 tokens is longer than the context of")


def test_a_stack_of_training_that_serves_is_told():
    assert all(catalog.serving_defaults(name) for name in calibrated.ENGINES)
    own = catalog.default_software("h100")
    asked = ["evaluate", "-w", "llama-3-8b", "-s", "h100", "--serving", "--json"]
    assert json.loads(CliRunner().invoke(app, asked).stdout)["cautions"] == []  # the machine's engine
    (caution,) = json.loads(CliRunner().invoke(app, [*asked, "--software", own]).stdout)["cautions"]
    assert caution.startswith(f"{own} is a stack of training: ") and caution.endswith("vllm, sglang, tensorrt-llm")
    text = '[workload]\nname = "llama-3-8b"\n[system]\nname = "h100"\n[axes]\nconcurrency = [4, 64]\n[serving]\n'
    assert dse.sweep.plan(specs.from_text(text))[0].notes["trains"] == ""
    assert dse.sweep.plan(specs.from_text(f'{text}[software]\nname = "{own}"'))[0].notes["trains"] == caution


def test_sweeps_tell_whose_rows_it_is():
    """Rows of one stack end elsewhere than those of another, and some have none."""
    tables = toy.sweep(
        'software = ["nemo", "megatron-2022", "megatron-core-te"]\ntp = [1]\nmicro_batch = [1]',
        system="n_devices = 4096",
        workload="global_batch = 4096",
        more='[output]\nkeep = "best"',
        study=toy.STUDY,
    )
    found = dse.sweep.perform(tables, False, study=toy.STUDY)[1].outside.partition("calibrated range: ")[2]
    parts = dict(part.split(": ", 1) for part in found.split("; ") if ": " in part)
    assert parts["nemo"].startswith("devices 4,096 (rows up to 1,024)") and "megatron-2022" in parts
    assert "no measured rows for megatron-core-te" in found.split("; ")


def test_columns_tell_it(tmp_path):
    (case,) = read_cases(_row(tmp_path, 16384), measured=False)
    design = dse.design("llama-3-8b", "eos", n_devices=16384, tp=8, global_batch=4096)
    assert values_out_of_range(Prediction(case, design, stack="nemo")) == ["devices 16,384 (rows up to 1,024)"]
    assert values_out_of_range(Prediction(case)) == []
    assert comparison.remark_cells(Prediction(case, design, stack="nemo"), None)["outside"].startswith("devices 16,384")
    assert "outside" in OUTPUT_COLUMNS


def _row(folder: Path, devices: int) -> Path:
    path = folder / f"{devices}.csv"
    path.write_text(
        "model,gpu,software,n_gpus,tp,pp,micro_batch,global_batch,seq_len,recompute,iteration_s_measured\n"
        f"llama-3-8b,H100,nemo,{devices},8,1,1,4096,8192,none,2\n"
    )
    return path


def test_a_calibration_writes_what_its_rows_cover(tmp_path):
    folder = tmp_path / "software"
    folder.mkdir()
    own = catalog.catalog_root() / "software" / "nemo.toml"
    (folder / "nemo.toml").write_text(own.read_text())
    assert ranges.write_catalog([_row(tmp_path, 64), _row(tmp_path, 512)], tmp_path) == [folder / "nemo.toml"]
    found = catalog.entry("software", "nemo", folder=tmp_path)
    assert found.value("calibrated.n_devices") == (64.0, 512.0)
    assert found.value("calibrated.seq_len") == (8192.0, 8192.0)
    assert found.value("calibrated.accelerators") == ("h100-sxm-80gb",)
    assert found.value("calibrated.mixtures") == ()
    assert found.value("calibrated.parameters")[0] == pytest.approx(8.03e9, rel=0.01)
    assert found.value("flash_slowdown") == catalog.entry("software", "nemo").value("flash_slowdown")


def test_a_calibration_writes_where_its_rows_are_mixtures_of_experts(tmp_path):
    folder, table = tmp_path / "software", tmp_path / "mixture.csv"
    folder.mkdir()
    for name in ("megatron-bridge", "mlperf"):  # which share a fit, and have kernels of experts
        (folder / f"{name}.toml").write_text((catalog.catalog_root() / "software" / f"{name}.toml").read_text())
    table.write_text(
        "model,gpu,software,n_gpus,tp,pp,ep,micro_batch,global_batch,seq_len,recompute,iteration_s_measured\n"
        "qwen3-235b-a22b,H100,megatron-bridge,256,2,8,32,1,2048,4096,none,20\n"
        "llama-3-8b,B200,mlperf,64,1,1,,1,512,8192,none,2\n"
    )
    ranges.write_catalog([table], tmp_path)
    found = [catalog.entry("software", name, folder=tmp_path) for name in ("megatron-bridge", "mlperf")]
    assert [one.value("calibrated.mixtures") for one in found] == [("h100-sxm-80gb",)] * 2
    assert len(found[1].value("calibrated.accelerators")) == 2


def test_a_fit_of_tpus_writes_no_range_of_a_stack_that_it_does_not_fit(tmp_path):
    """NVIDIA's MLPerf submissions and Google's share a source, whose rows tell times to train."""
    folder, table = tmp_path / "software", tmp_path / "tpu.csv"
    folder.mkdir()
    for name in ("megatron-bridge", "maxtext-v5e"):
        (folder / f"{name}.toml").write_text((catalog.catalog_root() / "software" / f"{name}.toml").read_text())
    table.write_text(
        "source,model,gpu,software,n_gpus,tp,pp,micro_batch,global_batch,seq_len,metric,value,unit\n"
        "MLPerf_training_v4.1,gpt3-175b,TPUv5e,,4096,,,,2048,2048,time_to_train_median,45,min\n"
        "MLPerf_training_v4.1,llama-3-8b,H100,,64,8,1,1,512,8192,step_time,2,s\n"
        "MaxText_v5e,llama-3-8b,TPUv5e,,128,1,1,1,512,2048,step_time,2,s\n"
    )
    assert ranges.write_catalog([table], tmp_path, JOBS["levels"].fits) == [folder / "maxtext-v5e.toml"]
    assert catalog.entry("software", "maxtext-v5e", folder=tmp_path).value("calibrated.n_devices") == (128.0, 128.0)
    assert ranges.write_catalog([table], tmp_path, JOBS["steps"].fits) == [folder / "megatron-bridge.toml"]
    assert catalog.entry("software", "megatron-bridge", folder=tmp_path).value("calibrated.n_devices") == (64.0, 64.0)


@pytest.mark.parametrize(("device", "stack"), [("TPUv5e", "maxtext-v5e"), ("H100", "mlperf")])
def test_a_source_names_no_stack_that_the_accelerator_lacks(tmp_path, device, stack):
    path = _row(tmp_path, 64)
    row = path.read_text().replace(",software,", ",source,").replace("H100,nemo", f"{device},MLPerf_training_v4.1")
    path.write_text(row)
    (case,) = read_cases(path)
    assert complete(case, Lookup()).stack == stack


def test_no_range_counts_accelerators_that_a_stack_lacks():
    for stack in STACKS:
        chips = catalog.entry("software", stack).value("calibrated.accelerators", ())
        assert not [chip for chip in chips if catalog.vendor_mismatch(stack, chip)], stack


def test_rows_that_no_engine_is_fitted_to_are_in_no_range():
    nemotron, llama = (catalog.record(types.Workload, name) for name in ("nemotron-nano-9b-v2", "llama-3-8b"))
    lookup = Lookup()

    def tells(source, workload=llama, stack="vllm", note=""):
        return tells_of_engine(Row("t.csv", 2, source, {"note": note}), stack, workload, lookup)

    assert tells("ML.ENERGY_v3", stack="vllm-2025") and tells("TensorRT-LLM_v1.0", stack="tensorrt-llm-1-0")
    assert not tells("ML.ENERGY_v3", nemotron)  # layers with a state
    assert not tells("MLPerf Inference v5.0")  # no mapping listed, or one by a rule
    assert not tells("TensorRT-LLM_v1.0", stack="tensorrt-llm-1-0", note="(restated: tp 1, dp = ep)")
    assert tells("ROCm-vllm_0.10.0", stack="vllm-rocm")
    assert calibrated.ranges("vllm-2025")["parameters"][0] > parameter_count(nemotron)


@pytest.mark.parametrize("text", ["[8, 1]", "[1]", "3", "[0, 1]", '["a", "b"]', "[1, nan]"])
def test_wrong_ranges_are_refused(tmp_path, text):
    folder = tmp_path / "software"
    folder.mkdir()
    own = (catalog.catalog_root() / "software" / "nemo.toml").read_text()
    (folder / "mine.toml").write_text(own.partition("[calibrated]")[0] + f"[calibrated]\nn_devices = {text}\n")
    with pytest.raises(InputError, match=r"calibrated\.n_devices"):
        catalog.entry("software", "mine", folder=tmp_path)
