"""llm-analysis' ``train`` and ``infer``: its own chips, every efficiency 1 as by default.

Its feed-forward has two matrices; a gated one is given as two of the same parameters, as its own configurations of
Llama are. Its FLOPs do not count experts, so that mixtures are left out.
"""

from __future__ import annotations

import json
import re
import tempfile
from importlib import metadata
from pathlib import Path

from harness import CHIP, MAPPING, PRECISION, Row, batch_of, main, need, plain, static_figure
from llm_analysis.analysis import infer, train
from llm_analysis.config import gpu_configs

_FORMATS = {"bf16": "w16a16e16", "fp16": "w16a16e16", "fp8": "w8a8e16", "int8": "w8a8e16"}
_RECOMPUTE = {"none": 0, "selective": 1, "selective-op": 1, "full": 2}

_folder = tempfile.TemporaryDirectory()


def _model(row: Row) -> str:
    width = row["ffn_hidden"] * (1.5 if row["gated"] else 1.0)
    shape = {
        "num_layers": int(row["n_layers"]), "n_head": int(row["n_heads"]), "hidden_dim": int(row["hidden"]),
        "vocab_size": int(row["vocab"]), "num_key_value_heads": int(row["n_kv_heads"]), "ffn_embed_dim": int(width),
        "expansion_ratio": width / row["hidden"], "max_seq_len": 1 << 20,
    }  # fmt: skip
    name = re.sub(r"\W", "_", "_".join(map(str, shape.values())))
    path = Path(_folder.name) / f"{name}.json"
    path.write_text(json.dumps({"name": name, **shape}), encoding="utf-8")
    return str(path)


def _options(row: Row) -> dict:
    """What training and serving share; raises Missing where the tool has no such row."""
    need(row["chip"] in gpu_configs, CHIP)
    plain(row)
    precision = row.get("stated_precision") if row["kind"] == "serving" else row["precision"]
    need(precision in _FORMATS, PRECISION)
    need(row["cp"] == 1.0 and row["tp"] <= 8.0, MAPPING)
    return {
        "model_name": _model(row),
        "gpu_name": row["chip"],
        "dtype_name": _FORMATS[precision],
        "log_level": "ERROR",
        "tp_size": int(row["tp"]),
        "pp_size": int(row["pp"]),
        "dp_size": int(row["dp"]),
    }


def training(row: Row) -> float:
    """Step time, s."""
    return train(
        **_options(row),
        batch_size_per_gpu=int(row["micro_batch"]),
        global_batch_size=int(row["global_batch"]),
        seq_len=int(row["seq_len"]),
        activation_recomputation=_RECOMPUTE[row["recompute"]],
        ds_zero=int(row["zero_stage"]),
    )["latency_per_iter"]


def serving(row: Row) -> float:
    """A figure of a row, in SI; its latencies are those of one stage, so that pipelines are left out."""
    need(row["pp"] == 1.0, MAPPING)
    found = infer(
        **{**_options(row), "dp_size": 1},
        batch_size_per_gpu=batch_of(row),
        seq_len=round(row["isl"]),
        num_tokens_to_generate=round(row["osl"]),
        kv_cache_dtype_bytes=row["cache_bytes"],
    )
    return static_figure(row, found["prefill_latency"], found["decode_latency"])


if __name__ == "__main__":
    main(
        metadata.version("llm-analysis"),
        {"llm-analysis, training": ("training", training), "llm-analysis, serving": ("serving", serving)},
    )
