"""Measured rows of serving: what a row of each source means, what is skipped and why; a table through the door."""

import csv
import dataclasses
import itertools
import statistics
from pathlib import Path

import numpy as np
import pytest

import dse
from calibration import engines
from dse.doors import SERVING
from dse.measured import comparison, evaluate_many, predict_cases, read_cases, rules, serving, serving_rows
from dse.measured.comparison import Comparison
from dse.measured.names import Lookup
from dse.measured.roofline import REFUSED
from dse.measured.table import Case, Meaning, Measurement, Row, Skip, meanings
from dse.types import Load, Precision
from tests.contract.cli.test_cli import command  # noqa: F401
from tests.programs import served

LOOKUP = Lookup()
INFERENCE = Path(__file__).parents[4] / "shared" / "reference" / "measured" / "inference.csv"
INFERENCEX = dict(
    source="InferenceX_via_aiconfigurator",
    framework="vllm 0.18.0",
    batch_kind="concurrency",
    batch="64",
    isl="1024",
    osl="8192",
    model="Llama-3-70B",
    gpu="H200-SXM-141GB",
    n_gpus="4",
    tp="4",
    pp="1",
    ep="1",
    dp="1",
    precision="fp8",
)


def completed(**cells):
    """The design of one row."""
    row = Row("t.csv", 2, cells.get("source", "t"), {name: str(text) for name, text in cells.items()})
    return serving_rows.complete_row(row, LOOKUP, cells.get("twin"))


def test_lengths_of_inferencex_are_drawn_and_its_prompts_open_in_a_burst():
    found = completed(**INFERENCEX)
    requests = found.design.workload.requests
    assert (requests.prompt_tokens, requests.output_tokens) == pytest.approx((0.9 * 1024, 0.9 * 8192))
    assert requests.burst == pytest.approx(0.1) and requests.load == Load.concurrency and found.stack == "vllm-2026"
    own = completed(**INFERENCEX | dict(source="mine"))  # of another table they are as stated, with no burst
    assert own.design.workload.requests.prompt_tokens == 1024.0 and own.design.workload.requests.burst == 0.0


@pytest.mark.parametrize(
    ("framework", "cells", "sizes"),
    [
        ("sglang 0.5.9", dict(tp=1, dp=8, ep=8), (8, 8, 8)),
        ("sglang 0.5.9", dict(tp=1, dp=8, ep=1), (8, 8, 8)),
        ("sglang 0.5.9", dict(tp=8, dp=1, ep=8), None),
        ("vllm 0.18.0", dict(tp=1, dp=8, ep=8), None),
        ("trtllm 1.2.0rc6.post2", dict(tp=1, dp=8, ep=8), None),
    ],
)
def test_rows_with_attention_apart_have_the_slices_of_their_engine(framework, cells, sizes):
    """SGLang's ranks of attention share dense layers, shared experts and head in slices; others have them whole."""
    found = completed(**INFERENCEX | dict(model="DeepSeek-V3", framework=framework, n_gpus=8) | cells)
    slices = found.mappings[0].slices
    assert (None if slices is None else (slices.dense_tp, slices.shared_tp, slices.head_tp)) == sizes
    assert found.mappings[0].experts.ep * found.mappings[0].experts.etp == 8


@pytest.mark.parametrize(
    ("source", "framework", "stack"),
    [
        ("aiconfigurator_silicon", "vllm 0.12.0", "vllm"),
        ("aiconfigurator_silicon", "vllm 0.17.0", "vllm"),
        ("InferenceX_via_aiconfigurator", "vllm", "vllm"),
        ("InferenceX_via_aiconfigurator", "vllm 0.18.0", "vllm-2026"),
        ("InferenceX_via_aiconfigurator", "sglang", "sglang"),
        ("InferenceX_via_aiconfigurator", "sglang 0.5.9", "sglang-2026"),
        ("ML.ENERGY_v3", "vLLM 0.11", "vllm-2025"),
        ("ML.ENERGY_v2", "vLLM 0.5.4", "vllm-2024"),
    ],
)
def test_an_engine_that_is_measured_alone_is_not_the_one_behind_another_client(source, framework, stack):
    note = "task lm-arena-chat; mean running batch 60"
    assert completed(**INFERENCEX | dict(source=source, framework=framework, note=note)).stack == stack


@pytest.mark.parametrize(
    ("source", "framework", "gpu", "stack"),
    [
        ("InferenceX_app_2026-08", "sglang 0.5.9", "MI300X", "sglang-rocm"),
        ("InferenceX_app_2026-08", "sglang 0.5.12", "MI325X", "sglang-rocm-2026"),
        ("InferenceX_app_2026-08", "sglang 0.5.12", "MI355X", "sglang-rocm-cdna4"),
        ("InferenceX_app_2026-08", "sglang 0.5.12", "H200-SXM-141GB", "sglang-2026-05"),
        ("InferenceX_app_2026-08", "atom 7.2.3", "MI355X", "atom"),
        ("mine", "vllm 0.15", "MI300X", "vllm-rocm"),
        ("mine", "vllm", "TPUv6e", "vllm-tpu"),
        ("mine", "vllm", "Gaudi 3", "vllm-gaudi"),
    ],
)
def test_an_engine_is_the_edition_of_its_tool_for_the_vendor_of_the_chip(source, framework, gpu, stack):
    cells = dict(source=source, framework=framework, gpu=gpu, n_gpus="8", tp="8", precision="bf16")
    assert completed(**INFERENCEX | cells).stack == stack


@pytest.mark.parametrize(
    ("cells", "degrees"),
    [
        (dict(), (8, 1, 8, 1)),  # experts over tp
        (dict(ep="8"), (8, 1, 1, 8)),
        (dict(tp="1", dp="8", ep="8"), (1, 8, 1, 8)),  # attention apart
        (dict(tp="1", dp="1", ep="8", source="ML.ENERGY_v3", note="task gpqa; mean running batch 60"), (8, 1, 1, 8)),
        (dict(tp="2", dp="", ep="1"), (2, 4, 8, 1)),
    ],
    ids=lambda value: " ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else "",
)
def test_experts_lie_over_the_ranks_that_a_row_leaves(cells, degrees):
    stated = {"model": "DeepSeek-V3", "n_gpus": "8", "tp": "8", "ep": "1"}
    mapping = completed(**INFERENCEX | stated | cells).design.mapping
    assert (mapping.tp, mapping.dp, mapping.experts.etp, mapping.experts.ep) == degrees


def test_formats():
    """Four bits of a mixture are its experts', of a dense model all; caches are narrow where the engine's are."""
    mixture = completed(**INFERENCEX | dict(model="GPT-OSS-120B", precision="mxfp4")).design.mapping
    assert (mixture.precision, mixture.serving.expert_bytes) == (Precision.bf16, 0.53125)
    dense = completed(**INFERENCEX | dict(precision="fp4", gpu="B200-180GB")).design.mapping
    assert (dense.precision, dense.serving.expert_bytes, dense.serving.cache_bytes) == (Precision.fp4, 0.0, 1.0)
    kept = completed(**INFERENCEX | dict(precision="W4A16")).design.mapping
    assert (kept.precision, kept.serving.weight_bytes, kept.serving.cache_bytes) == (Precision.bf16, 0.53125, 2.0)
    wide, narrow = (completed(**INFERENCEX | dict(framework=name)).design.mapping for name in ("vllm", "trtllm"))
    assert (wide.serving.cache_bytes, narrow.serving.cache_bytes) == (2.0, 1.0)
    sent = [
        completed(**INFERENCEX | dict(model=model, precision="fp4", framework=name)).design.mapping.experts
        for model, name in (("DeepSeek-V3", "vllm 0.19.0"), ("DeepSeek-V3", "sglang"), ("GPT-OSS-120B", "vllm"))
    ]
    assert [m.dispatch_precision for m in sent] == [Precision.fp4, Precision.bf16, Precision.bf16]


@pytest.mark.parametrize("column", ["accelerator", "device", "gpu_type"])
def test_a_device_has_several_names_of_its_column(column):
    own = {name: text for name, text in INFERENCEX.items() if name != "gpu"}
    other = completed(**own, **{column: INFERENCEX["gpu"]}).design.system
    assert other == completed(**INFERENCEX).design.system
    with pytest.raises(Skip, match="gpu, accelerator, device, gpu_type"):
        completed(**own, chip=INFERENCEX["gpu"])


@pytest.mark.parametrize(
    ("cells", "mapping"),
    [
        (dict(model="MiniMax-M2.5", tp="1", dp="4", ep="4"), (4, 1, 4, 0)),  # dp-attn, which its script does not read
        (dict(model="MiniMax-M2.5", tp="1", dp="4", ep="4", precision="fp4"), (1, 4, 4, 0)),
        (dict(framework="trtllm", gpu="B200-180GB", precision="fp4", batch="256"), (1, 4, 4, 0)),
        (dict(framework="trtllm", gpu="B200-180GB", precision="fp4", batch="128"), (4, 1, 4, 0)),
        (dict(framework="trtllm 1.1.0rc2.post2", gpu="B200-180GB", precision="fp4", batch="32"), (4, 1, 1, 0)),
        (dict(framework="trtllm 1.1.0rc2.post2", precision="fp4", tp="1", dp="4", ep="4", batch="128"), (1, 4, 4, 1)),
        (dict(framework="trtllm 1.1.0rc2.post2", precision="fp4", ep="4"), (4, 1, 4, 3)),
    ],
    ids=lambda value: " ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else "",
)
def test_mappings_and_drafts_are_those_of_the_scripts_of_a_source(cells, mapping):
    row = Row("t.csv", 2, INFERENCEX["source"], INFERENCEX | dict(model="DeepSeek-V3") | cells)
    design = serving_rows.complete_row(
        rules.corrected_row(row), LOOKUP, False if "trtllm " in row.get("framework") else None
    )
    found = design.design.mapping
    assert (found.tp, found.dp, found.experts.ep, found.serving.drafts) == mapping


def test_models_with_a_state_are_predicted_and_not_fitted(tmp_path):
    table, columns = tmp_path / "rows.csv", ("model", "metric", "value", "unit")
    own = INFERENCEX | dict(source="ML.ENERGY_v3", n_gpus="1", tp="1", precision="bf16", note="mean running batch 60")
    rows = [
        own | dict(zip(columns, (f"NVIDIA-Nemotron-Nano-{size}-v2", "itl_median", "20", "ms"), strict=True))
        for size in ("9B", "12B")
    ]
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    found = comparison.compare([table])
    assert [c.prediction.chosen.workload.recurrent.recurrent_layers for c in found if c.skip is None] == [27, 28]
    assert not any(map(engines.is_fitted, found))


def test_running_batch_and_prompts_of_ml_energy():
    found = completed(
        source="ML.ENERGY_v2",
        framework="vLLM",
        model="Mixtral-8x7B-Instruct-v0.1",
        gpu="A100-SXM-80GB",
        n_gpus=2,
        tp=2,
        precision="bf16",
        batch=192,
        batch_kind="max_num_seqs",
        osl=380,
        isl="",
        note="task chat; mean running batch 188.2",
    )
    requests = found.design.workload.requests
    assert found.stack == "vllm-2024" and (requests.concurrency, requests.prompt_tokens) == (188.2, 376.0)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (dict(model="Frobnicator-7B"), "unknown shape"),
        (dict(gpu="Frobnicator"), "device not in the catalogue"),
        (dict(gpu=""), "no device stated"),
        (dict(isl=""), "no length of prompts stated"),
        (dict(batch=""), "no concurrency stated"),
        (dict(framework="frobserve"), "framework not in the catalogue"),
        (dict(software="megatron-core"), "stack that does not serve"),
        (dict(batch_kind="MLPerf Server"), "unusable row"),
        (dict(model="GPT-OSS-120B", gpu="H100-SXM-80GB", batch="512"), "unusable row"),
        (dict(twin=True), "counted once"),
        (dict(model="GPT-OSS-120B", framework="trtllm 1.2.0rc2", tp="1", ep="2", dp="2", n_gpus="2"), "unusable row"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_rows_that_are_skipped(cells, reason):
    stated = INFERENCEX | cells
    if cells.get("framework") == "frobserve":
        stated["source"] = "mine"
    if cells.get("isl") == "":
        stated["source"] = "mine"
    with pytest.raises(Skip) as caught:
        completed(**stated)
    assert caught.value.reason == reason


def test_deepseek_r1_drafts_tokens_where_its_figures_are_not_those_of_v3(tmp_path):
    """And a row that beats a perfect roofline is told, not compared."""
    base = INFERENCEX | dict(model="DeepSeek-V3", n_gpus="8", tp="8", metric="tpot", unit="ms")
    rows = [
        base | dict(config_id="a", value="40", note="listed as deepseek-ai/DeepSeek-V3"),
        base | dict(config_id="b", value="40", note="listed as deepseek-ai/DeepSeek-R1"),
        base | dict(config_id="c", value="20", note="listed as deepseek-ai/DeepSeek-R1"),
        base | dict(config_id="d", value="0.9", note="listed as deepseek-ai/DeepSeek-V3"),
    ]
    table = _table(tmp_path / "served.csv", rows)
    compared = comparison.compare(table)
    drafts = [c.prediction.design.mapping.serving.drafts if c.prediction.design else None for c in compared]
    assert drafts == [0.0, None, 3.0, 0.0]
    assert [c.skip and c.skip.reason for c in compared] == [None, "counted once", None, REFUSED]
    assert abs(compared[0].error) < 0.5 and all(c.metric == "time_per_output_token" for c in compared)
    assert compared[0].baseline > 0.0
    assert dse.predict(table, tmp_path / "out.csv")["all"]["predicted"] == 3
    with (tmp_path / "out.csv").open() as file:
        written = next(csv.DictReader(file))
    assert float(written["pred_time_per_output_token"]) == pytest.approx(compared[0].predicted, rel=1e-5)


def test_a_token_of_requests_that_queue_is_no_faster_than_a_roofline():
    """However many wait: what the engine predicts of them is compared, and what nothing could do is not."""
    row = dict(
        model="llama-3-70b",
        gpu="h100",
        n_gpus="8",
        tp="8",
        isl="2048",
        osl="1024",
        precision="bf16",
        framework="vllm 0.11",
        metric="tpot",
        unit="ms",
    )
    meaning = meanings("serving")["tpot"]

    def asked(concurrency, milliseconds):
        one = Row("t.csv", 2, "t", row | dict(concurrency=concurrency, value=str(milliseconds)))
        return Case((one,), (Measurement(one, "tpot", meaning, 1e-3 * milliseconds),), "serving")

    queued = ("512", "1024", "5000")
    found = predict_cases([asked(c, 95.0) for c in queued] + [asked(c, 5.0) for c in queued], LOOKUP)
    skips = [one.case.measurements[0].skip for one in found]
    assert skips[:3] == [None] * 3 and [skip.reason for skip in skips[3:]] == [REFUSED] * 3
    tokens = [one.metrics["time_per_output_token"] for one in found[:3]]
    own = predict_cases([asked(c, 1e3 * token) for c, token in zip(queued, tokens, strict=True)], LOOKUP)
    assert [one.case.measurements[0].skip for one in own] == [None] * 3


#: Figures that were measured, and that a bound with more in it rules out: links that a host shares, all of a wave's
#: prompts before any of its first tokens, a batch in no more parts than there are stages.
TRUE = [
    dict(
        source="TensorRT-LLM_v0.17", framework="TensorRT-LLM 0.17", model="Mixtral-8x7B", gpu="L40S", n_gpus="8",
        tp="8", precision="FP8", batch_kind="max in-flight (offline, infinite request rate)", isl="2048", osl="2048",
        metric="output_throughput_total", value="5137", unit="token/s",
    ),
    dict(
        source="lmdeploy_v0.1_A100", framework="LMDeploy 0.1.0a1 (TurboMind)", model="Llama-2-70B", gpu="A100-SXM-80GB",
        n_gpus="4", tp="4", precision="FP16", batch="64", batch_kind="concurrency", isl="2048", osl="128",
        metric="ttft_mean", value="17402.0", unit="ms",
    ),
    dict(
        source="FasterTransformer_gpt", framework="FasterTransformer", model="MT-NLG-530B", gpu="A100-SXM-80GB",
        n_gpus="24", tp="8", pp="3", precision="FP16", batch="256", batch_kind="static batch", isl="128", osl="8",
        metric="latency_total", value="9614.0", unit="ms",
    ),
]  # fmt: skip


def _table(path, rows):
    names = dict.fromkeys(name for row in rows for name in row)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(names), restval="")
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.mark.parametrize("row", TRUE, ids=lambda row: row["source"])
def test_true_figures_are_not_refused(row, tmp_path):
    (found,) = comparison.compare(_table(tmp_path / "served.csv", [row]))
    assert found.skip is None and np.isfinite(found.error)


def test_a_refused_figure_has_its_error_beside_and_in_no_headline(tmp_path, command):  # noqa: F811
    """Half of what the weights alone take: as far off as it is, told, and in no mean."""
    base = INFERENCEX | dict(metric="tpot", unit="ms", source="mine", batch="1", isl="64")
    rows = [base | dict(config_id="a", value="9"), base | dict(config_id="b", value="1.8", osl="512")]
    table, out = _table(tmp_path / "served.csv", rows), tmp_path / "compared.csv"
    report = dse.validate(table, out)
    kept, refused = comparison.compare(table)
    assert refused.is_refused and not kept.is_refused and refused.error > 1.0
    (one,) = report["rows"]
    assert (one["n"], one["predicted"], one["skipped"]) == (2, 1, {REFUSED: 1})
    assert one["mape"] == report["all"][one["metric"]]["mape"] == pytest.approx(abs(kept.error))
    assert one["refused"] == {"n": 1, **{name: pytest.approx(refused.error) for name in ("mape", "median_ape", "bias")}}
    with out.open() as file:
        written = list(csv.DictReader(file))
    assert written[1]["skipped"].startswith(REFUSED) and float(written[1]["error"]) == pytest.approx(refused.error)
    shown = command("validate", table).out
    assert "refused" in shown and f"{100 * refused.error:.1f} %" in shown


def test_an_engine_is_found_again():
    """Figures that a known engine gives are fitted to within a per cent, whatever of its numbers they tell."""
    stated = INFERENCEX | dict(software="vllm-2026", model="DeepSeek-V3", n_gpus="8", tp="8")
    cases = [
        Case((Row("t.csv", line, "mine", stated | dict(batch=str(batch), isl=str(isl), osl="1024")),), (), "serving")
        for line, (batch, isl) in enumerate(itertools.product((1, 8, 64, 256), (128, 1024, 8192)))
    ]
    predictions = predict_cases(cases, LOOKUP)
    metrics = ("time_per_output_token", "time_to_first_token")
    known = [
        Comparison(Measurement(p.case.row, m, Meaning(m, m), p.metrics[m]), p, measured=p.metrics[m])
        for p in predictions
        for m in metrics
    ]
    rows = engines.rows_of("vllm-2026", known)
    start = np.zeros(len(engines.PARAMETERS))
    assert np.abs(rows.residuals(start[None])).max() > 0.05
    # Priors of an engine's kin hold its numbers; of rows without noise a tenth of it leaves them little say.
    exact = dataclasses.replace(rows.problem, noise=0.1 * rows.problem.noise)
    found = exact.solve(start=start)
    assert np.median(np.abs(rows.residuals(found.z[None]))) < 0.01
    unseen = 3 * [np.zeros(len(known))]
    lines = engines.errors_by_metric([engines.FittedEngine(rows, found.fit(engines.PARAMETERS), *unseen, {})])
    assert [line[:3] for line in lines if line[0] == "all"] == [["all", m, 12] for m in sorted(metrics)]


def test_a_client_on_the_host_of_an_engine_takes_longer():
    own, shared = (
        completed(**INFERENCEX | {"source": source, "framework": "vllm"}).design.software.engine.request_time
        for source in ("InferenceX_via_aiconfigurator", "aiconfigurator_silicon")
    )
    assert shared == pytest.approx(2.35 * own)


def test_runs_of_tensorrt_llm_have_the_requests_that_their_source_states():
    row = dict(INFERENCEX, source="TensorRT-LLM_v1.0", framework="TensorRT-LLM 1.0", batch="", batch_kind="offline")
    for isl, osl, queue in ((128, 128, 30000), (128, 2048, 3000), (128, 4096, 1500), (20000, 2000, 1000)):
        assert completed(**row | {"isl": isl, "osl": osl}).design.workload.requests.queue == queue


@pytest.mark.parametrize(
    ("source", "isl", "osl", "most", "tokens"),
    [
        ("TensorRT-LLM_v0.17", 128, 128, 4096, 8192),  # as its documentation prints them
        ("TensorRT-LLM_v0.17", 2048, 128, 640, 9216),
        ("TensorRT-LLM_v0.17", 5000, 500, 224, 2304),
        ("TensorRT-LLM_v1.0", 5000, 500, 224, 5224),  # a prompt beside all requests
    ],
)
def test_runs_of_tensorrt_llm_have_the_limits_of_its_benchmark(source, isl, osl, most, tokens):
    row = INFERENCEX | dict(framework=source, batch="", batch_kind="offline", model="Llama-3-8B", params_B=8)
    row |= dict(source=source, gpu="H100-SXM-80GB", n_gpus=1, tp=1, precision="FP8", isl=isl, osl=osl)
    found = completed(**row).design
    assert (found.software.engine.most_sequences, found.mapping.serving.chunk) == (most, tokens)
    assert found.mapping.serving.whole_prompts == (1.0 if source.endswith("1.0") else None)
    assert found.mapping.serving.graph_step == (128.0 if source.endswith("1.0") else None)


def test_energy_of_ml_energy_is_that_of_the_devices():
    """Counters of devices: no host, no facility; of a whole run in v2, whose limit of sequences is the engine's own."""
    note = "task chat; mean running batch 1516.9; GPU energy only"
    row = dict(
        source="ML.ENERGY_v2",
        model="gemma-2-2b-it",
        gpu="H100-SXM-80GB",
        n_gpus=1,
        tp=1,
        precision="bf16",
        batch=1536,
        batch_kind="max_num_seqs",
        osl=484,
        isl="",
        note=note,
    )
    found = completed(**row).design
    assert (found.system.host_power, found.system.pue) == (0.0, 1.0)
    assert found.software.engine.most_sequences == pytest.approx(1516.9)
    figure = Row("t.csv", 2, row["source"], {k: str(v) for k, v in row.items()})
    measured = Measurement(figure, "energy_per_output_token", meanings("serving")["energy_per_output_token"], 0.1)
    assert serving.steady_figure(measured, found).value == pytest.approx(0.05)  # at most twice as long as a mean answer


@pytest.mark.skipif(not INFERENCE.is_file(), reason="the reference tables are not beside this checkout")
def test_memory_of_whole_prompts_in_buffers_of_every_operator():
    """FasterTransformer's guide, table of memory: 1 to 64 sequences of 128 and 512 tokens, 350M and 1.3B parameters.

    One constant, the engine's own memory, is fitted to them; what grows with sequences is counted.
    """
    cases = [case for case in read_cases(INFERENCE) if case.row.source == "FasterTransformer_gpt"]
    errors = [
        one.metrics["peak_memory"] / measured.value - 1.0
        for one in predict_cases(cases)
        for measured in one.case.measurements
        if measured.meaning.metric == "peak_memory"
    ]
    assert len(errors) == 21 and statistics.fmean(map(abs, errors)) < 0.02 and max(map(abs, errors)) < 0.04


#: Rows of InferenceX of DeepSeek with attention apart on 8 devices, and how far off their times a token are predicted.
_APART = {"I02333": 0.22, "I04941": 0.23, "I04961": 0.08, "I06897": 0.13, "I05005": 0.19, "I05035": 0.16}


@pytest.mark.skipif(not INFERENCE.is_file(), reason="the reference tables are not beside this checkout")
def test_rows_with_attention_apart_on_eight_devices():
    def rows(case):
        return {one.row.get("row_id"): one.value for one in case.measurements if one.row.get("row_id") in _APART}

    errors = {
        row: one.metrics["time_per_output_token"] / value - 1.0
        for one in predict_cases([case for case in read_cases(INFERENCE) if rows(case)])
        for row, value in rows(one.case).items()
    }
    assert errors.keys() == _APART.keys() and all(abs(errors[row]) < off for row, off in _APART.items()), errors


@pytest.mark.parametrize(
    ("stack", "off"), [("tensorrt-llm-1-1", 0.15), ("tensorrt-llm", 0.3), ("vllm-2026", 0.25), ("sglang-2026", 0.7)]
)
def test_a_token_with_attention_apart_on_eight_devices(stack, off):
    """InferenceX: DeepSeek-R1 in fp4 on 8 B200, 8,192 + 1,024 tokens, 128 requests in flight, 27 ms.

    With prompts of one rank that delay all it is 63 to 124 ms, and more than with attention split over all.
    """
    row = INFERENCEX | dict(framework="trtllm 1.2", model="DeepSeek-V3", gpu="B200-180GB", precision="fp4", batch=128)
    requests = completed(**row | dict(n_gpus=8, tp=1, dp=8, ep=8, isl=8192, osl=1024)).design.workload.requests
    shared = {f"workload.requests.{name}": getattr(requests, name) for name in ("prompt_tokens", "output_tokens")}
    apart, split = (
        float(
            served(
                dse.design(
                    "deepseek-r1",
                    "dgx-b200",
                    stack,
                    any_option=True,
                    precision="nvfp4",
                    n_devices=8,
                    concurrency=128,
                    **shared,
                    **degrees,
                )
            ).time_per_output_token
        )
        for degrees in (dict(tp=1, dp=8, ep=8), dict(tp=8, ep=8))
    )
    assert 1e3 * apart == pytest.approx(27.0, rel=off) and apart < 0.7 * split


@pytest.mark.skipif(not INFERENCE.is_file(), reason="the reference tables are not beside this checkout")
def test_no_row_of_serving_is_said_not_to_run():
    """Batches of up to 84.4 of 85.9 GB (TensorRT-LLM 0.6.1): what is allocated as needed keeps no share free."""
    found = [one for one in predict_cases(read_cases(INFERENCE)) if one.metrics]
    assert len(found) > 1700 and not [one.case.row.get("model") for one in found if one.metrics["infeasible_reason"]]


MLPERF = dict(
    source="MLPerf_inference_v6.0", framework="TensorRT 10.14, CUDA 13.1", batch_kind="MLPerf Offline", precision="FP4"
)


def serving_metrics(designs):
    """Metrics of some designs."""
    return evaluate_many(designs, SERVING)


def test_mlperf_runs_as_its_submitters_configure_it():
    """Engines of eight devices with attention apart, of a step's tokens and sequences; several of them on a rack."""
    node, rack = (
        completed(**MLPERF, model="DeepSeek-V3", gpu=gpu, n_gpus=n, osl="3760").design
        for gpu, n in (("B200-180GB", "8"), ("GB200", "64"))
    )
    assert [(m.tp, m.dp, m.experts.ep, m.experts.etp) for m in (node.mapping, rack.mapping)] == [
        (1, 8, 8, 1),
        (1, 64, 8, 1),
    ]
    serving, requests = node.mapping.serving, node.workload.requests
    assert (serving.chunk, serving.whole_prompts, serving.reserved_answer) == (4608, 1, 0)
    assert node.software.engine.most_sequences == 512 and requests.load == Load.offline
    assert (requests.queue, rack.workload.requests.queue) == (70208, 0), "the rack's queue has no end"
    (rate,) = serving_metrics([rack])["output_tokens_per_second"]
    (one,) = serving_metrics([node])["output_tokens_per_second"]
    assert 7.0 < rate / one < 9.5, "eight engines"


def test_mlperf_lengths_are_those_of_its_data_sets():
    """Where a row states none: PubMed, and news that are summarised in 128 tokens."""
    gpt, llama = (
        completed(**MLPERF, model=model, gpu="B200-180GB", n_gpus="8").design.workload.requests
        for model in ("GPT-OSS-120B", "Llama-3-8B")
    )
    assert (gpt.prompt_tokens, gpt.output_tokens) == (4200, 1278)
    assert (llama.prompt_tokens, llama.output_tokens) == (778, 128)


def test_a_mixture_that_one_device_holds_runs_on_each():
    """Where nothing states a mapping: Mixtral on MI325X; DeepSeek-V3 has its experts over all."""
    cells = MLPERF | dict(framework="vLLM", precision="FP8", gpu="MI325X", n_gpus="8", osl="144")
    small = completed(**cells, model="Mixtral-8x7B", params_B="47").design.mapping
    large = completed(**cells, model="DeepSeek-V3", params_B="671").design.mapping
    assert (small.tp, small.dp, small.experts.ep, small.experts.etp) == (1, 8, 1, 1)
    assert (large.tp, large.dp, large.experts.ep, large.experts.etp) == (1, 8, 8, 1)


def test_pytorch_on_rocm_is_vllm():
    cells = MLPERF | dict(framework="PyTorch 2.9.1+git8907517, ROCm 7.0.0", gpu="MI355X", n_gpus="8", osl="284")
    assert completed(**cells, model="Llama-2-70B").stack.startswith("vllm")


def test_medians_are_compared_with_medians():
    """Of a snapshot whose times to the first token are medians, in which an opening burst has no weight."""
    stated = INFERENCEX | dict(source="InferenceX_app_2026-08", metric="ttft", value="100", unit="ms")
    (case,) = serving.read([Row("t.csv", 2, stated["source"], stated)])
    assert [m.meaning.metric for m in case.measurements] == ["p50_time_to_first_token"]
    assert completed(**stated).design.workload.requests.burst == 0.0
