"""Rows of TPUs: slices by their names and remarks, shapes by tokens and rates, and levels that carry over to others."""

from __future__ import annotations

import collections
import csv
from pathlib import Path

import pytest

from dse.lab.fits import jobs, levels
from dse.measured import predict_cases, read_cases
from dse.measured.completion import complete
from dse.measured.names import Lookup

TRAINING = Path(__file__).parents[4] / "shared" / "reference" / "measured" / "training.csv"

#: A row of MaxText, its metric apart.
ROW = {
    "config_id": "a",
    "source": "MaxText_v5e",
    "model": "llama-2-7b",
    "gpu": "TPUv5e",
    "n_gpus": "512",
    "global_batch": "1024",
    "seq_len": "2048",
    "precision": "bf16",
    "metric": "tokens_per_s_per_gpu",
    "value": "4000",
    "unit": "token/s/chip",
}


@pytest.fixture
def candidates(tmp_path):
    """What a configuration may mean, by changes of the row and further metrics."""

    def read(metrics=(), **changes):
        rows = [
            ROW | changes,
            *(ROW | changes | dict(zip(("metric", "value", "unit"), m, strict=True)) for m in metrics),
        ]
        with (tmp_path / "rows.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list({name: None for row in rows for name in row}))
            writer.writeheader()
            writer.writerows(rows)
        return complete(read_cases(tmp_path / "rows.csv")[0], Lookup())

    return read


@pytest.mark.parametrize(
    ("changes", "slices", "chips"),
    [({}, 2, 512), ({"note": "4 slices of 128"}, 4, 512),
     ({"gpu": "v5p-128", "n_gpus": "", "global_batch": "64"}, 1, 64),
     ({"gpu": "v5litepod-16", "n_gpus": "", "global_batch": "16"}, 1, 16), ({"gpu": "TPUv5p", "slices": "8"}, 8, 512)],
)  # fmt: skip
def test_slices_hold_copies_of_what_their_chips_split(candidates, changes, slices, chips):
    """Names of v4 and v5p count cores, two a chip; remarks tell of slices, else pods of 256 are filled one by one."""
    found = candidates(**changes)
    assert (found.system.n_devices, found.system.scale_up.domain) == (chips, chips / slices)
    assert {m.dp_replicate for m in found.mappings} == {slices} and {m.zero_stage for m in found.mappings} == {3.0}
    assert found.stack == f"maxtext-{'v5p' if 'v5p' in changes.get('gpu', '') else 'v5e'}"


def test_what_a_row_leaves_open_is_what_maxtext_does(candidates):
    """All chips share the weights, all of their sequences are one micro-batch, layers run again."""
    (only,) = candidates().mappings
    assert (only.tp, only.dp, only.micro_batch, only.recompute) == (1, 512, 2, 2)
    (by_system,) = candidates(gpu="", system="tpu-v5e-pod").mappings
    assert by_system == only
    (few,) = candidates(global_batch="256").mappings
    assert (few.tp, few.dp, few.micro_batch) == (2, 256, 1)
    (a_chip,) = candidates(tp="4", micro_batch="2", recompute="minimal").mappings
    assert (a_chip.dp, a_chip.micro_batch, a_chip.recompute) == (128, 8, 3)
    (whole,) = candidates(tp="4", micro_batch="8", precision="AQT").mappings
    assert (whole.micro_batch, whole.precision) == (8, 7)


@pytest.mark.parametrize("length", [2048, 8192])
def test_a_length_that_is_not_stated_follows_from_flops_and_tokens(candidates, length):
    """``FLOP/s / (tokens/s) = 6 (P - V h) + 12 L h s`` of Llama 2 7B."""
    a_token = 6 * (6.74e9 - 32000 * 4096) + 12 * 32 * 4096 * length
    rate = ("model_tflops_per_gpu", f"{a_token * 4000 / 1e12:.4f}", "TFLOP/s/chip")
    note = f"example log line; tokens per step {512 * length * 2}"
    found = candidates([rate], seq_len="", global_batch="", note=note, params_B="6.74")
    assert (found.workload.seq_len, found.workload.global_batch) == (length, 1024)
    assert found.completed["seq_len"] == str(length)


@pytest.mark.slow
def test_a_level_a_generation_predicts_unseen_configurations_within_six_percent(tmp_path):
    """Issue: dense TPU steps within 6 % in the median, a generation, cross-validated by configuration."""
    if not TRAINING.exists():
        pytest.skip("the reference rows are not here")
    lines = TRAINING.read_text(encoding="utf-8").splitlines(keepends=True)
    table = tmp_path / "tpu.csv"
    table.write_text("".join([lines[0], *(line for line in lines[1:] if ",TPUv" in line)]), encoding="utf-8")
    assert jobs.job_for([table]) is jobs.JOBS["levels"]
    found = levels.calibrate([table], progress=lambda _: None)
    assert found.stacks == ["maxtext-v4", "maxtext-v5e", "maxtext-v5p", "maxtext-v6e"] and len(found.fit.errors) == 31
    for stack in found.stacks:
        assert found.median(stack, found.unseen) < 0.06, stack
    # Of published levels of the matrix rate, and what a doubling of the slices costs.
    for stack, level in (("maxtext-v4", 0.82), ("maxtext-v5e", 0.92), ("maxtext-v5p", 0.86), ("maxtext-v6e", 0.64)):
        assert 0.95 / found.values[stack] == pytest.approx(level, rel=0.07), stack
    assert found.loss == pytest.approx(0.027, abs=0.006)
    assert "maxtext-v5e" in levels.document(found)


def test_state_that_does_not_fit_is_shared_by_slices_and_then_narrow(candidates):
    """Of recipes for Trillium, whose settings rows leave out: inputs of layers spill first, state is what it was."""
    found = candidates(gpu="TPUv6e")
    assert found.stack == "maxtext-v6e" and [m.offload_activations for m in found.mappings] == [0, 0.25, 0.5, 0.75, 1]
    usual, shared, narrow = found.tiers.values()
    assert {m.dp_replicate for m in usual.mappings} == {2} and {m.dp_replicate for m in shared.mappings} == {1}
    assert shared.software == usual.software and narrow.software.parameter_bytes == narrow.software.moment_bytes == 2
    assert list(candidates(gpu="TPUv6e", recompute="full").tiers) == list(candidates().tiers) == [""]


def test_experts_of_a_row_without_their_degree_are_sharded_as_all_weights(candidates):
    """ici_expert_parallelism is 1 by default, and a capacity is that of a row's padded experts."""
    found = candidates(model="Mixtral-8x7B", params_B="46.7", active_params_B="12.9", capacity="1.25", ep="")
    assert {(m.experts.ep, m.zero_stage) for m in found.mappings} == {(1, 3)} and found.completed["ep"] == "1"
    assert found.workload.experts.capacity == 1.25 and found.software.experts.grouped_efficiency == 1
    assert {m.experts.ep for m in candidates(model="Mixtral-8x7B", ep="4").mappings} == {4}


@pytest.mark.parametrize(
    ("changes", "side"),
    [
        ({}, None),
        (
            {"model": "MaxText-64B", "layers": "64", "hidden": "8192", "heads": "64", "ffn": "28672", "vocab": "32000"},
            1.0,
        ),
    ],
)
def test_models_of_maxtext_have_its_default_layers(candidates, changes, side):
    """One norm before attention and feed-forward (decoder_block default, from memory)."""
    assert candidates(**changes).workload.parallel_block == side


#: (source, model) of runs that the model calls infeasible → how many, and what it has not.
BEYOND = {
    ("Megatron-Bridge_25.11", "GPT-OSS-120B"): (1, "15 GiB on H100: what its selective recompute frees"),
    ("Megatron-Bridge_25.09", "DeepSeek-V3"): (1, "more ranks of experts (64) than a stage has (32)"),
    ("Megatron-Bridge_26.04", "Nemotron-3-Nano"): (4, "layers with a state, which are modelled in serving alone"),
    ("Megatron-Bridge_26.04.01", "Nemotron-3-Nano"): (5, "layers with a state, which are modelled in serving alone"),
    ("tpu-recipes_trillium", "Mixtral-8x7B"): (
        1,
        "2.3 of 31.2 GiB: logits and the layer that is recomputed count both",
    ),
}


@pytest.mark.skipif(not TRAINING.is_file(), reason="the reference tables are not beside this checkout")
def test_no_step_that_was_measured_is_said_not_to_fit():
    """No run that is known to have run is called infeasible, but for those named; rows of memory alone need not run."""
    found = [one for one in predict_cases(read_cases(TRAINING)) if any(map(_is_of_a_step, one.case.measurements))]
    assert len([one for one in found if one.design is not None]) > 350
    refused = [one for one in found if one.skip is not None and one.skip.reason in _REFUSED]
    over = [one for one in found if "over capacity" in one.note]
    counted = collections.Counter((one.case.row.source, one.case.row.get("model")) for one in (*over, *refused))
    assert counted == {run: count for run, (count, _) in BEYOND.items()}


_REFUSED = {"does not fit in memory", "infeasible as stated"}


def _is_of_a_step(measurement):
    return measurement.skip is None and not measurement.meaning.metric.startswith("peak_memory")


@pytest.mark.skipif(not TRAINING.is_file(), reason="the reference tables are not beside this checkout")
def test_runs_that_say_what_they_keep_had_room_for_it():
    """Layers of up to 5 GB, whose matrices are gathered one by one, on chips of 16 and 32 GB."""
    cases = [case for case in read_cases(TRAINING) if case.row.source in ("MaxText_v4", "MaxText_v5e")]
    stated = [one for one in predict_cases(cases) if one.case.row.get("recompute") == "full"]
    assert len(stated) >= 18 and not [one.design for one in stated if "over capacity" in one.note]
