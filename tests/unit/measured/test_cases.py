"""Measured tables: reading, completion by rule, one count a configuration, and never an exception for a row."""

import csv
import gzip
import json
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import dse
from docs.make.accuracy.page import write_page
from dse import predict, validate
from dse.errors import InputError
from dse.measured import Row, evaluate_many, mappings, predict_cases, read_cases
from dse.measured.cells import Cells
from dse.measured.columns import STEP_COLUMNS, WIDE_COLUMNS
from dse.measured.comparison import compare
from dse.measured.completion import complete
from dse.measured.names import Lookup
from dse.measured.uncertainty.parts import half_width
from dse.measured.uncertainty.rows import prediction_parts, row_posteriors
from dse.types import AllToAll, Precision, Schedule

#: GPT-22B of Korthikanti et al. 2022, everything stated.
STATED = {
    "config_id": "a", "source": "Korthikanti2022_table5", "model": "GPT-22B", "layers": "48", "hidden": "6144",
    "heads": "64", "kv_heads": "64", "ffn": "24576", "vocab": "51200", "seq_len": "2048", "gpu": "A100-SXM-80GB",
    "n_gpus": "8", "tp": "8", "pp": "1", "vp": "1", "cp": "1", "ep": "1", "dp": "1", "zero_stage": "0",
    "micro_batch": "4", "global_batch": "4", "precision": "fp16", "recompute": "full", "seq_parallel": "0",
    "metric": "iteration_time", "value": "1.42", "unit": "s", "note": "",
}  # fmt: skip

LLAMA = STATED | {
    "source": "NeMo_24.07", "model": "Llama-3-8B", "layers": "", "hidden": "", "heads": "", "kv_heads": "", "ffn": "",
    "vocab": "", "seq_len": "8192", "gpu": "H100-SXM-80GB", "tp": "1", "cp": "2", "micro_batch": "1",
    "global_batch": "128", "precision": "bf16", "recompute": "none", "zero_stage": "1",
    "metric": "tokens_per_s_per_gpu", "value": "9000", "unit": "token/s/gpu",
}  # fmt: skip


@pytest.fixture
def table(tmp_path):
    def write(*rows, name="cases.csv", opener=open):
        path = tmp_path / name
        with opener(path, "wt", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(dict.fromkeys(c for row in rows for c in row)), restval="")
            writer.writeheader()
            writer.writerows(rows)
        return path

    return write


def lines(path):
    """The rows of a written file."""
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def only(path):
    """The prediction of the one configuration of a table."""
    (prediction,) = predict_cases(read_cases(path, measured=False))
    return prediction


# Reading


@pytest.mark.parametrize("content", ["", "a,b\n", "model,gpu\nx,y\n"], ids=["empty", "no rows", "nothing measured"])
def test_a_table_without_rows_or_measurements_is_an_input_error(tmp_path, content):
    path = tmp_path / "bad.csv"
    path.write_text(content)
    with pytest.raises(InputError, match=r"bad\.csv.*: got .*; allowed .*; ."):
        validate(path)


def test_an_unreadable_file_is_an_input_error(tmp_path):
    (tmp_path / "x.csv.gz").write_bytes(b"not gzip")
    (tmp_path / "x.csv").write_bytes(b"\xff\xfe\x00")
    for name in ("none.csv", "x.csv.gz", "x.csv", "."):
        with pytest.raises(InputError):
            read_cases(tmp_path / name)


def test_gzipped_and_plain_tables_read_alike(table):
    plain, packed = table(STATED), table(STATED, name="cases.csv.gz", opener=gzip.open)
    assert [c.row.cells for c in read_cases(plain)] == [c.row.cells for c in read_cases(packed)]


@pytest.mark.parametrize(
    ("unit", "value"), [("s", "1.42"), ("ms", "1420"), ("min", str(1.42 / 60)), ("", "1.42"), ("s/gpu", "1.42")]
)
def test_units_become_si(table, unit, value):
    (measured,) = read_cases(table(STATED | {"unit": unit, "value": value}))[0].measurements
    assert measured.value == pytest.approx(1.42)


def test_wide_tables_measure_several_things_a_row(table):
    wide = {k: v for k, v in STATED.items() if k not in ("metric", "value", "unit", "config_id")}
    path = table(wide | {"iteration_ms_measured": "1420", "peak_alloc_gib_measured": "60"})
    assert [(c.metric, c.measured) for c in compare(path)] == [("step_time", 1.42), ("peak_memory", 60 * 2**30)]


# Completion


def test_what_is_stated_is_taken_as_it_is(table):
    prediction = only(table(STATED | {"system": "selene", "software": "megatron-2022"}))
    mapping = prediction.design.mapping
    assert prediction.completed == {}
    assert (mapping.tp, mapping.micro_batch, mapping.recompute, mapping.sequence_parallel) == (8, 4, 2, 0)


def test_system_and_stack_follow_from_the_source(table):
    assert only(table(STATED)).completed == {"system": "selene", "software": "megatron-2022"}
    assert only(table(STATED | {"source": "Narayanan2021_table1"})).completed["software"] == "megatron-2021"
    elsewhere = only(table(STATED | {"source": "someone", "gpu": "H100"})).completed
    assert elsewhere["system"] == "h100-sxm-80gb"


def test_a_source_on_another_device_runs_on_the_device_s_own_system(table):
    assert only(table(STATED | {"gpu": "H100-SXM-80GB"})).completed["system"] == "h100-sxm-80gb"


def test_the_shape_comes_from_the_catalogue_and_layers_used_cuts_it(table):
    workload = only(table(LLAMA | {"layers_used": "4"})).design.workload
    assert (workload.n_layers, workload.hidden, workload.n_kv_heads, workload.gated) == (4, 4096, 8, 1)


@pytest.mark.parametrize(("ffn", "gated"), [("24576", 0), ("16384", 1)])
def test_an_unknown_model_is_gpt_s_or_llama_s_kind_by_its_width(table, ffn, gated):
    workload = only(table(STATED | {"model": "", "ffn": ffn})).design.workload
    assert (workload.gated, workload.rotary, workload.learned_positions, workload.tied_embeddings) == (
        gated,
        gated,
        1 - gated,
        1 - gated,
    )


def test_dp_follows_from_the_devices_whatever_is_printed(table):
    assert only(table(STATED | {"n_gpus": "32", "dp": "7", "global_batch": "16"})).design.mapping.dp == 4


@pytest.mark.parametrize(
    ("source", "zero", "split"), [("NeMo_x", 1, 1), ("Narayanan2021", 0, 0), ("llm-foundry", 3, 0)]
)
def test_open_zero_stage_and_sequence_parallelism_are_the_stack_s(table, source, zero, split):
    mapping = only(table(STATED | {"source": source, "zero_stage": "", "seq_parallel": ""})).design.mapping
    assert (mapping.zero_stage, mapping.sequence_parallel) == (zero, split)


def test_overlap_that_depends_on_the_zero_stage_is_that_of_the_row_s_stage(table):
    """A stack whose stage is 3 and overlaps from there on does not at the stage 1 of a row."""

    def defaults(stack, zero_stage=None):
        stage = 3.0 if zero_stage is None else zero_stage
        return {"zero_stage": 3.0, "sequence_parallel": 0.0, "overlap_dp": float(stage >= 3.0), "overlap_tp": 0.0}

    lookup = Lookup()
    lookup.mapping_defaults = defaults
    for stage, overlap in (("1", 0.0), ("3", 1.0), ("", 1.0)):
        case = read_cases(table(STATED | {"zero_stage": stage}))[0]
        assert complete(case, lookup).mappings[0].overlap_dp == overlap


@pytest.mark.parametrize(("text", "variant"), [("0", 0), ("1", 1), ("true", 1), ("False", 0), ("2", 2), ("3", 3)])
def test_variants_of_sequence_parallelism_and_offload_may_be_stated(table, text, variant):
    mapping = only(table(STATED | {"seq_parallel": text, "offload_weights": "1"})).design.mapping
    assert mapping.sequence_parallel == variant
    assert (mapping.offload_weights, mapping.offload_activations, mapping.offload_optimizer) == (1, 0, 0)


def test_open_recompute_is_the_lightest_that_fits(table):
    roomy = only(table(LLAMA | {"recompute": "", "layers_used": "4"}))
    assert roomy.completed["recompute"] == "none"
    tight = only(table(STATED | {"recompute": ""}))
    assert tight.completed["recompute"] == "selective" and tight.metrics["feasible"]


def test_open_micro_batch_and_stages_are_the_fastest_that_fit(table):
    row = STATED | {"n_gpus": "64", "pp": "8", "global_batch": "64", "micro_batch": "", "vp": ""}
    free = only(table(row))
    assert set(free.completed) >= {"micro_batch", "virtual_stages"} and free.metrics["feasible"]
    for batch in ("1", "2", "4", "8"):
        for stages in ("1", "2", "3", "6"):
            stated = only(table(row | {"micro_batch": batch, "vp": stages}))
            fits = stated.skip is None and stated.metrics["feasible"]
            assert not fits or stated.metrics["step_time"] >= free.metrics["step_time"]


def test_a_stated_mapping_above_capacity_did_run(table):
    prediction = only(table(STATED | {"recompute": "none"}))
    assert prediction.note == "over capacity" and prediction.skip is None


def test_what_a_row_states_its_stack_had(table):
    prediction = only(table(STATED | {"overlap_tp": "1"}))
    assert prediction.design.mapping.overlap_tp == 1 and "said to lack" in prediction.note
    assert "said to lack" not in only(table(STATED)).note


def test_stages_that_differ_by_a_layer_are_noted(table):
    row = STATED | {"n_gpus": "56", "pp": "7", "dp": "1", "vp": "1", "recompute": "full"}
    prediction = only(table(row))
    assert prediction.design.workload.n_layers % 7 and prediction.note == "stages differ by a layer"


def test_nothing_that_fits_is_skipped_with_the_smallest_need(table):
    prediction = only(table(STATED | {"tp": "1", "n_gpus": "1", "recompute": ""}))
    assert prediction.skip.reason == "does not fit in memory" and "GiB" in prediction.skip.detail


# Rows that cannot be predicted


#: What makes a row one of a mixture of experts of the catalogue, with a stack whose file tells of its experts.
EXPERTS = {"model": "mixtral-8x7b", "ep": "1", "software": "megatron-core-b200"}


def test_experts_of_the_catalogue_need_a_mapping_and_have_default_kernels_on_other_stacks(table):
    """Without rows of mixtures a stack has default kernels of experts: a note, and an interval nearly twice as wide."""
    kept = ("gpu", "seq_len", "metric", "value", "unit")
    stated = {k: v for k, v in STATED.items() if k in kept} | EXPERTS
    stated |= {"n_gpus": "64", "global_batch": "64", "tp": "1", "pp": "1", "ep": "8"}
    prediction = only(table(stated))
    assert prediction.skip is None and prediction.chosen.mapping.experts.ep == 8.0
    without_ep = only(table(stated | {"ep": ""}))
    assert without_ep.skip.reason == "no expert-parallel size stated" and "ep" in without_ep.skip.detail
    neutral = stated | {"gpu": "MI300X", "software": "neutral"}
    other_stack = only(table(neutral))
    assert "neutral has no measured kernels of experts" in other_stack.note
    with_rows = only(table(stated | {"software": "megatron-core-b200"}))
    spreads = row_posteriors([other_stack, with_rows])
    far, near = (half_width(prediction_parts(one, "step_time", spreads)) for one in (other_stack, with_rows))
    assert far > 1.7 * near


#: A row of NVIDIA's performance summaries: Mixtral-8x7B on 64 B200 (NeMo 25.02), 15,457 tokens a second and device.
MIXTRAL = {k: v for k, v in STATED.items() if k in ("layers_used", "unit")} | {
    "source": "NeMo_25.02",
    "model": "Mixtral-8x7B",
    "gpu": "B200",
    "n_gpus": "64",
    "tp": "1",
    "pp": "1",
    "cp": "1",
    "ep": "8",
    "micro_batch": "2",
    "global_batch": "256",
    "seq_len": "4096",
    "precision": "FP8",
    "zero_stage": "1",
}


def test_mixtral_on_b200_runs_as_published(table):
    rate = only(table(MIXTRAL)).metrics["tokens_per_second_per_device"]
    assert rate == pytest.approx(15_457, rel=0.10)


def test_a_release_without_a_stack_is_predicted_by_the_nearest_and_says_so(table):
    releases = [f"Megatron-Bridge_{release}" for release in ("25.11", "26.04", "26.06", "27.01")]
    rows = [MIXTRAL | {"source": source, "config_id": source} for source in releases]
    found = predict_cases(read_cases(table(*rows), measured=False))
    told = [prediction.completed["software"].removeprefix("megatron-bridge") for prediction in found]
    assert told == ["", "-26-02", "-26-06", "-26-06"]
    assert ["nearest stack" in prediction.note for prediction in found] == [False, False, False, True]


def test_activations_that_do_not_fit_go_to_the_host_where_the_stack_does_so(table):
    """FSDP of Llama-3-70B on GB200: layers run again on stacks that never spill, and where a row says so."""
    row = LLAMA | {
        "source": "Megatron-Bridge_25.09",
        "model": "Llama-3-70B",
        "gpu": "GB200",
        "n_gpus": "64",
        "cp": "1",
        "micro_batch": "2",
        "precision": "FP8",
        "zero_stage": "fsdp",
        "recompute": "",
    }
    changes = ({}, {"software": "megatron-core-te"}, {"recompute": "full"})
    rows = [row | change | {"config_id": str(i)} for i, change in enumerate(changes)]
    found = predict_cases(read_cases(table(*rows), measured=False))
    chosen = [prediction.chosen.mapping for prediction in found]
    assert [m.recompute for m in chosen] == [0.0, 2.0, 2.0]
    assert [m.offload_activations > 0.0 for m in chosen] == [True, False, False]
    assert float(found[0].completed["offload_activations"]) == chosen[0].offload_activations


def test_what_fits_stays_on_the_device_though_its_host_hides_the_transfers(table):
    """Of mappings that a host-bound step runs in the same time, the one that moves least (B200, one sequence)."""
    row = MIXTRAL | {
        "source": "Megatron-Bridge_25.11",
        "model": "Qwen3-30B-A3B",
        "gpu": "B200",
        "n_gpus": "8",
        "ep": "8",
        "tp": "1",
        "micro_batch": "1",
        "global_batch": "512",
        "precision": "FP8-MX",
        "recompute": "",
    }
    (found,) = predict_cases(read_cases(table(row), measured=False))
    assert found.metrics["step_time_host"] > 0.0
    assert found.chosen.mapping.offload_activations == 0.0


def test_experts_that_drop_tokens_are_sent_a_copy_an_expert_and_keep_no_host_waiting(table):
    row = MIXTRAL | {"source": "Megatron-Bridge_26.02", "gpu": "B200"}
    rows = [row | {"config_id": note, "note": note} for note in ("token-dropless", "as listed: Mixtral (tokendrop)")]
    found = [p.chosen for p in predict_cases(read_cases(table(*rows), measured=False))]
    assert [d.mapping.experts.all_to_all for d in found] == [AllToAll.by_node, AllToAll.pairwise]
    assert [d.software.experts.expert_host_time > 0.0 for d in found] == [True, False]


@pytest.mark.parametrize(("name", "precision"), [("FP8-CS", "fp8"), ("FP8-subchannel/MX", "mxfp8"), ("MXFP8", "mxfp8"),
                                                 ("NVFP4", "nvfp4"), ("TE-bf16", "bf16"), ("bf16?", "bf16"),
                                                 ("int8", "int8")])  # fmt: skip
def test_precisions_are_known_by_the_names_that_tables_use(table, name, precision):
    cells = Cells(read_cases(table(STATED | {"precision": name}))[0].row)
    assert Precision(int(mappings.precision_code(cells))).name == precision


def test_fine_tuning_is_told_by_columns_or_by_remarks(table):
    """LoRA has adapters and short documents as the recipes do, unless a row says its own; MLPerf adapts more."""

    def workload(**cells):
        return complete(read_cases(table(STATED | cells))[0]).workload

    plain, lora, sft = (workload(source="NeMo_24.07", note=note) for note in ("", "LoRA; DGX H100", "SFT"))
    assert plain.adapters is None and plain.packing is None
    assert lora.adapters.rank == 16.0 and lora.adapters.projection == 0.0 and lora.packing.document == 250.0
    assert sft.adapters is None and sft.packing == lora.packing
    other = workload(source="A laboratory", note="LoRA", frozen_bytes="0.5")
    assert other.packing is None and other.adapters.frozen_bytes == 0.5
    benchmark = workload(source="MLPerf_training_v5.0", note="LoRA fine-tune", precision="fp8")
    assert (benchmark.adapters.projection, benchmark.adapters.frozen_bytes, benchmark.packing) == (1.0, 1.0, None)
    stated = workload(note="LoRA", lora_rank="64", document_tokens="1000")
    assert (stated.adapters.rank, stated.packing.document) == (64.0, 1000.0)


def test_a_schedule_is_read_by_its_name(table):
    stated = STATED | {"n_gpus": "16", "tp": "1", "pp": "4", "vp": "", "micro_batch": "1", "global_batch": "64"}
    named = only(table(stated | {"schedule": "zb_v", "software": "torchtitan"}))
    assert (named.chosen.mapping.schedule, named.chosen.mapping.virtual_stages) == (float(Schedule.zb_v), 2.0)
    assert only(table(stated | {"schedule": "1F1B"})).chosen.mapping.schedule is None
    assert only(table(stated | {"schedule": "fifo"})).skip.reason == "schedule unknown"


@pytest.mark.parametrize(("text", "code"), [("layer", 1.0), ("Iteration", 2.0), ("none", None), ("", None)])
def test_graphs_are_read_by_their_name(table, text, code):
    assert only(table(STATED | {"cuda_graph": text})).design.mapping.graph == code


def test_unknown_graphs_are_skipped(table):
    assert only(table(STATED | {"cuda_graph": "layers"})).skip.reason == "CUDA graphs unknown"


#: A step of DeepSeek-V3 as NVIDIA's performance summaries list it.
DEEPSEEK = {
    "model": "DeepSeek-V3",
    "layers_used": "",
    "layers": "61",
    "software": "megatron-bridge",
    "n_gpus": "1024",
    "tp": "2",
    "pp": "8",
    "vp": "4",
    "ep": "64",
    "micro_batch": "1",
    "global_batch": "8192",
}


def test_dense_layers_and_further_tokens_are_those_that_a_row_states(table):
    """A column, else its remarks, else the catalogue's model, of which the row then says what was taken."""
    kept = {k: v for k, v in STATED.items() if k in ("gpu", "seq_len", "metric", "value", "unit")} | DEEPSEEK

    def found(**cells):
        candidates = complete(read_cases(table(kept | cells))[0])
        experts = candidates.workload.experts
        return experts.first_dense, experts.n_predict, candidates.completed.get("n_predict")

    assert found() == (3.0, 1.0, "1")
    assert found(note="as listed: DeepSeekV3 (w/o MTP)") == (3.0, 0.0, None)
    assert found(note="as listed: DeepSeekV3 (w/ MTP)") == (3.0, 1.0, None)
    assert found(n_predict="0", note="w/ MTP") == (3.0, 0.0, None)
    assert found(layers="4", pp="1", vp="1", first_dense="1", mtp_num_layers="0") == (1.0, 0.0, None)
    assert found(first_dense="0")[0] == 0.0
    assert only(table(kept | {"gpu": "H100", "precision": "fp8"})).skip is None  # 61 layers alone fit no such pipeline
    assert only(table(kept | {"first_dense": "62"})).skip.reason == "not a usable number"
    assert only(table(kept | {"first_dense": "half"})).skip.reason == "not a number"
    dense = complete(read_cases(table(STATED | {"first_dense": "1", "n_predict": "1"}))[0]).workload
    assert dense.experts is None


def test_a_model_cut_to_fewer_layers_predicts_no_further_token_unless_it_says_so(table):
    """Four layers of DeepSeek-V3 are four, not four and one of multi-token prediction; whole models keep theirs."""
    kept = {k: v for k, v in STATED.items() if k in ("gpu", "seq_len", "metric", "value", "unit")} | DEEPSEEK
    short = kept | {"pp": "1", "vp": "1", "first_dense": "1"}

    def blocks(row):
        candidates = complete(read_cases(table(row))[0])
        return candidates.workload.blocks, candidates.completed.get("n_predict")

    assert blocks(short | {"layers": "61"}) == (62.0, "1")
    for column in ("layers_used", "layers", "n_layers"):
        assert blocks(short | {"layers": "", column: "4"}) == (4.0, None)
    assert blocks(short | {"layers": "4", "note": "w/ MTP"}) == (5.0, None)
    assert blocks(short | {"layers": "4", "mtp_num_layers": "1"}) == (5.0, None)


BAD_ROWS = {
    "mixture of experts not in the catalogue": {"n_experts": "8"},
    "devices are no whole slices": {"gpu": "TPUv5e", "n_gpus": "301"},
    "device not in the catalogue": {"gpu": "K80"},
    "no device stated": {"gpu": ""},
    "no number of devices stated": {"n_gpus": ""},
    "no global batch stated": {"global_batch": ""},
    "no sequence length stated": {"seq_len": ""},
    "unknown shape": {"model": "who knows", "layers": ""},
    "precision unknown": {"precision": "posit"},
    "not a number": {"tp": "eight"},
    "not a usable number": {"hidden": "-1"},
    "infeasible as stated": {"gpu": "V100", "precision": "fp8"},
    "tp x pp x cp does not divide the devices": {"tp": "3"},
    "not in the catalogue": {"system": "atlantis"},
    "several needed columns are empty": {"n_gpus": "", "global_batch": "", "seq_len": "", "gpu": ""},
    "recompute unknown": {"recompute": "sometimes"},
    "ZeRO stage unknown": {"zero_stage": "5"},
    "neither yes nor no": {"seq_parallel": "perhaps"},
}


@pytest.mark.parametrize("reason", BAD_ROWS)
def test_a_bad_row_is_skipped_with_its_reason_and_stops_nothing(table, tmp_path, reason):
    path = table(STATED | BAD_ROWS[reason], STATED | {"config_id": "good"})
    row = {r["metric"]: r for r in validate(path)["rows"]}["step_time"]
    assert (row["n"], row["predicted"], row["skipped"]) == (2, 1, {reason: 1})
    counts = predict(path, tmp_path / "out.csv")["all"]
    bad, good = lines(tmp_path / "out.csv")
    assert counts == {"n": 2, "predicted": 1, "skipped": {bad["skipped"]: 1}, "misspelt": {}}
    assert bad["skipped"].startswith(reason) and not bad["pred_step_time"]
    assert not good["skipped"] and float(good["pred_step_time"]) > 0


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"gpu": "H1000-SXM-80GB"}, "h100-sxm-80gb"),
        ({"gpu": "H1000-SXM-80GB", "system": "selene"}, "h100-sxm-80gb"),
        ({"model": "GPT-3-175C", "layers": "", "hidden": ""}, "gpt-3-175b"),
        ({"software": "megatron-2202"}, "megatron-2022"),
        ({"system": "selena"}, "selene"),
        ({"precision": "bf61"}, "bf16"),
        ({"recompute": "fulll"}, "full"),
        ({"overlap_dp": "ja"}, "overlap_dp"),
    ],
)
def test_an_unknown_word_is_never_replaced(table, tmp_path, change, wanted):
    """The row is skipped, with the word and what it may have meant."""
    counts = predict(table(STATED | change), tmp_path / "out.csv")["all"]
    (row,) = lines(tmp_path / "out.csv")
    assert counts["predicted"] == 0 and not row["pred_step_time"]
    assert wanted in row["skipped"] and next(iter(change.values())) in row["skipped"]


def test_all_missing_columns_are_named_at_once(table, tmp_path):
    bare = {name: text for name, text in STATED.items() if name not in ("n_gpus", "global_batch", "seq_len", "gpu")}
    predict(table(bare), tmp_path / "out.csv")
    (row,) = lines(tmp_path / "out.csv")
    assert row["skipped"] == "several needed columns are empty: n_gpus, gpu, global_batch, seq_len"


def test_misspelt_columns_are_told(table, tmp_path):
    wrong = {{"global_batch": "gobal_batch", "tp": "tq"}.get(name, name): text for name, text in STATED.items()}
    assert predict(table(wrong))["all"]["misspelt"] == {"gobal_batch": "global_batch"}
    assert predict(table(STATED | {"my_remark": "x", "hidden_size": "1"}))["all"]["misspelt"] == {}
    theirs = {{"micro_batch": "mbs"}.get(name, name): text for name, text in (STATED | {"micro_batch": "1"}).items()}
    assert predict(table(theirs))["all"]["misspelt"] == {"mbs": "micro_batch"}


def test_every_column_that_is_read_is_documented(table, monkeypatch):
    """And nothing else is."""
    asked: set[str] = set()
    get = Row.get
    monkeypatch.setattr(Row, "get", lambda row, *columns: (asked.update(columns), get(row, *columns))[1])
    named = {"system": "selene", "software": "megatron-2022"}
    for change in ({}, named, {"recompute": "", "model": ""}, EXPERTS, {"lora_rank": "16"}):
        only(table(STATED | change))
    compare(table({k: v for k, v in STATED.items() if k != "metric"} | {"iteration_ms_measured": "1420"}))
    compare(table(STATED | {"metric": "model_tflops_per_gpu", "value": "140", "unit": "TFLOP/s"}))
    documented = {name for column in STEP_COLUMNS for name in column.names}
    assert asked - documented <= {*WIDE_COLUMNS, "tensor_par_comm_type"}, "names of Calculon's output"
    unread = documented - asked - {"source", "config_id"}  # these two are read from the cells
    assert not unread


@pytest.mark.parametrize(
    ("change", "metric", "reason"),
    [
        ({"metric": "time_to_train_median", "unit": "min"}, "time_to_train", "time to train is not modelled"),
        ({"metric": "layer_forward_time", "unit": "ms"}, "layer_forward_time", "layer times are not a metric"),
        ({"metric": "smell"}, "smell", "unknown metric"),
        ({"value": "n/a"}, "step_time", "no usable measured value"),
        ({"unit": "parsec"}, "step_time", "a unit that is not known: parsec; of a time are s, ms, us, min, h"),
        ({"unit": "W"}, "step_time", "a unit that is not of a time: W"),
        ({"metric": "mfu", "value": "45", "unit": "s"}, "mfu", "a unit that is not of a share: s"),
        ({"metric": "mfu", "value": "45", "unit": ""}, "mfu", "a share above 1: write % for per cents"),
        (
            {"metric": "tokens_per_s", "value": "45", "unit": "seq/s"},
            "tokens_per_second",
            "a unit that is not of a token rate: seq/s",
        ),
        (
            {"metric": "tokens_per_s", "value": "45", "unit": "1/s"},
            "tokens_per_second",
            "a unit that is not known: 1/s; of a token rate are token/s, tokens/s, tok/s",
        ),
        ({"metric": ""}, "none", "nothing measured"),
    ],
)
def test_a_figure_that_is_not_compared_says_why(table, change, metric, reason):
    (row,) = validate(table(STATED | change))["rows"]
    assert (row["metric"], row["n"], row["predicted"], row["skipped"]) == (metric, 1, 0, {reason: 1})


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"gpu": "A100", "isl": "1", "metric": "ttft", "value": "1"}, "unknown shape"),
        (
            {"gpu": "A100", "power_limit_W": "", "metric": "avg_power_total", "value": "1"},
            "no study of energy that is known",
        ),
        ({"case_id": "ex01", "die0_area": "100"}, "unknown cost model"),
    ],
)
def test_tables_of_another_kind_are_skipped_by_name(table, row, reason):
    (found,) = validate(table(row))["rows"]
    assert found["skipped"] == {reason: 1}


cells = st.one_of(
    st.sampled_from(["", "0", "1", "3", "1e30", "-2", "nan", "inf", "x", "full", "fsdp", "FP8", "A100"]),
    st.text(max_size=4),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.dictionaries(st.sampled_from(sorted(STATED)), cells, max_size=4))
def test_no_row_raises_and_every_row_is_accounted_for(table, changes):
    path = table(STATED | {k: v.replace("\0", "") for k, v in changes.items()}, STATED | {"config_id": "good"})
    rows = validate(path)["rows"]
    assert sum(r["n"] + r["duplicates"] for r in rows) == 2
    assert all(r["n"] == r["predicted"] + sum(r["skipped"].values()) for r in rows)
    assert all(r["mape"] is None or math.isfinite(r["mape"]) for r in rows)


# Comparison


def test_a_configuration_counts_once_a_kind_and_a_time_before_a_rate(table):
    path = table(
        STATED | {"metric": "mfu", "value": "0.4", "unit": "fraction"},
        STATED,
        STATED | {"metric": "peak_memory", "value": "60", "unit": "GiB/gpu"},
        STATED | {"config_id": "b", "metric": "hfu", "value": "0.5", "unit": "fraction"},  # described alike
    )
    found = {r["metric"]: (r["n"], r["predicted"], r["duplicates"]) for r in validate(path)["rows"]}
    assert found == {"mfu": (0, 0, 1), "step_time": (1, 1, 0), "peak_memory": (1, 1, 0), "hfu": (0, 0, 1)}


def test_runs_described_alike_but_measured_twice_stay_apart(table):
    assert len(read_cases(table(STATED, STATED | {"config_id": "b", "value": "1.5"}))) == 2


def test_flop_rates_become_times_by_the_narayanan_formula(table):
    row = {"metric": "hw_tflops_per_gpu_incl_recompute", "value": "100", "unit": "TFLOP/s/gpu"}
    (compared,) = compare(table(STATED | row))
    layers, hidden, batch, sequence, vocab = 48, 6144, 4, 2048, 51200
    per_layer = 1 + sequence / (6 * hidden) + vocab / (16 * layers * hidden)
    flops = 96 * batch * sequence * layers * hidden**2 * per_layer
    assert compared.measured == pytest.approx(flops / (8 * 100e12), rel=1e-5)


def test_rates_and_times_of_one_measurement_agree(table):
    tokens = 4 * 2048
    rows = [
        STATED | {"metric": "iteration_time", "value": "2", "unit": "s"},
        STATED | {"metric": "tokens_per_s", "value": str(tokens / 2), "unit": "token/s"},
        STATED | {"metric": "tokens_per_s_per_gpu", "value": str(tokens / 16), "unit": "token/s/gpu"},
        STATED | {"metric": "sequences_per_s", "value": "2", "unit": "seq/s"},
    ]
    time, *rates = [compare(table(row))[0] for row in rows]
    for rate in rates:
        assert (1 + rate.error) * (1 + time.error) == pytest.approx(1, rel=1e-5)


def test_the_constant_utilisation_is_exact_for_rows_that_share_one(table):
    path = table(STATED, STATED | {"config_id": "b", "n_gpus": "16", "global_batch": "8"})
    assert [r["baseline_mape"] for r in validate(path)["rows"]] == [pytest.approx(0, abs=1e-6)]


def test_the_report_is_json_of_the_agreed_shape(table):
    report = json.loads(json.dumps(validate([table(STATED), table(LLAMA, name="other.csv")]).to_dict()))
    fields = {"n", "predicted", "skipped", "mape", "median_ape", "bias", "p90"}
    assert all(fields | {"source", "metric"} <= set(row) for row in report["rows"])
    assert all(fields <= set(row) for row in report["all"].values())
    assert {row["source"] for row in report["rows"]} == {"Korthikanti2022_table5", "NeMo_24.07"}


def test_predictions_and_comparisons_are_written_beside_the_row(table, tmp_path):
    path, out = table(STATED, LLAMA | {"recompute": ""}), tmp_path / "out.csv"
    validate(path, out)
    first, second = lines(out)
    assert float(first["error"]) == pytest.approx(float(first["predicted"]) / 1.42 - 1, abs=1e-6)
    assert first["table"] == "cases.csv" and "recompute=" in second["completed"]
    predict(path, out)
    first, _ = lines(out)
    tokens = float(first["pred_step_time"]) * float(first["pred_tokens_per_second"])
    assert tokens == pytest.approx(4 * 2048, rel=1e-5)


def test_rows_without_measurements_can_be_predicted(table, tmp_path):
    unmeasured = {k: v for k, v in STATED.items() if k not in ("metric", "value", "unit", "config_id")}
    assert predict(table(unmeasured, unmeasured))["all"]["predicted"] == 2


def test_any_number_of_designs_gives_each_its_own_metrics(table):
    design = only(table(STATED)).design
    one, many = evaluate_many([design]), evaluate_many([design] * 1027)
    assert set(many) == set(one)
    assert all(np.array_equal(values, np.repeat(one[name], 1027)) for name, values in many.items())


def test_the_accuracy_page_tells_errors_skips_and_how_to_read_them(table, tmp_path):
    path = table(STATED, STATED | {"config_id": "b", "gpu": "K80"})
    write_page(tmp_path / "accuracy.md", [path], "the command")
    page = (tmp_path / "accuracy.md").read_text()
    skipped = "device not in the catalogue"
    expected = ("# Accuracy", "dse validate", "table 5: step time", "## How to read this")
    assert not [text for text in expected if text not in page]
    assert skipped in (tmp_path / "tables" / "accuracy_excluded.csv").read_text()


def test_a_format_of_weights_alone_is_told_how_a_design_has_it(table):
    """It is no recipe of products: neither of a training step nor of a design."""
    (found,) = predict_cases(read_cases(table(STATED | {"precision": "W4A16"})))
    assert found.skip.reason == "precision unknown" and "weight_bytes=0.53 B" in found.skip.detail
    with pytest.raises(InputError, match=r"precision=bf16 with weight_bytes=0\.53 B"):
        dse.design("llama-3-70b", "h100", "vllm", tp=4, concurrency=8, precision="w4a16")
