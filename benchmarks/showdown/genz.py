"""GenZ's prefill and decode models: its own chips and closed forms of collectives, efficiencies of 1 as by default."""

from __future__ import annotations

import functools
import warnings
from importlib import metadata

from GenZ import ModelConfig, decode_moddeling, prefill_moddeling
from harness import CHIP, MAPPING, MODEL, PRECISION, Row, batch_of, main, need, static_figure

_CHIPS = {
    "a100-sxm-40gb": "A100_40GB_GPU",
    "a100-sxm-80gb": "A100_80GB_GPU",
    "h100-sxm-80gb": "H100_GPU",
    "mi300x": "MI300X",
    "mi325x": "MI325X",
    "gb200-nvl72": "GB200",
}
_BITS = {"bf16": "bf16", "fp16": "bf16", "fp8": "fp8", "fp4": "fp4", "int8": "int8", "int4": "int4"}

warnings.simplefilter("ignore")


@functools.cache
def _times(model: tuple, batch: int, isl: int, osl: int, options: tuple) -> tuple[float, float]:
    """Seconds of a prompt pass and of a mean decode step of a batch; a token sees half of the answer."""
    config = ModelConfig("row", **dict(model))
    # A pipeline's throughput counts its micro-batches, its latency one of them.
    first, token = (
        batch / one["Throughput"]
        for one in (
            prefill_moddeling(model=config, batch_size=batch, input_tokens=isl, **dict(options)),
            decode_moddeling(
                model=config, batch_size=batch, Bb=1, input_tokens=isl, output_tokens=max(1, osl // 2), **dict(options)
            ),
        )
    )
    return first, token


def predict(row: Row) -> float:
    """A figure of a row, in SI."""
    need(row["chip"] in _CHIPS, CHIP)
    need(not row["kinds"] and not row["shared_ffn"] and not row["first_dense"], MODEL)
    need(row["ep"] == 1.0 and not (row["n_experts"] and row["dp"] > 1.0), MAPPING)
    need(row["stated_precision"] in _BITS, PRECISION)
    experts = {"num_experts": int(row["n_experts"]), "expert_top_k": int(row["top_k"])} if row["n_experts"] else {}
    model = {
        "vocab_size": int(row["vocab"]),
        "hidden_size": int(row["hidden"]),
        "head_dim": int(row["head_dim"]),
        "intermediate_size": int(row["expert_ffn"] or row["ffn_hidden"]),
        "num_ffi": 2 if row["gated"] else 1,
        "num_decoder_layers": int(row["n_layers"]),
        "num_attention_heads": int(row["n_heads"]),
        "num_key_value_heads": int(row["n_kv_heads"]),
        **experts,
    }
    options = {
        "system_name": _CHIPS[row["chip"]],
        "bits": _BITS[row["stated_precision"]],
        "tensor_parallel": int(row["tp"]),
        "pipeline_parallel": int(row["pp"]),
    }
    sizes = batch_of(row), round(row["isl"]), round(row["osl"])
    return static_figure(row, *_times(tuple(model.items()), *sizes, tuple(options.items())))


if __name__ == "__main__":
    main(metadata.version("genz-llm"), {"GenZ": ("serving", predict)})
