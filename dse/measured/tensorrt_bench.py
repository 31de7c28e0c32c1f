"""Limits that ``trtllm-bench`` gives an engine for a data set, where its user states none."""

from __future__ import annotations

import math
from typing import NamedTuple

from dse.types import Design

#: Share of the free memory for the cache; most requests of an engine, most and fewest tokens of a step.
_OF_FREE, _MOST_REQUESTS, _MOST_TOKENS, _FEWEST_TOKENS = 0.95, 4096.0, 32768.0, 2048.0


class Limits(NamedTuple):
    """Most requests of an engine and most tokens of a step, over all stages of a pipeline."""

    sequences: float
    tokens: float


def limits(design: Design, weights: float, whole: bool) -> Limits:
    """Limits by the cache that memory is estimated to hold: ``n = 0.95 (M - W) / (c (ISL + OSL))`` requests.

    A step has as many tokens as ``n`` requests have in steady state, ``n (1 + ISL / OSL)``; both are rounded up
    (``calc_engine_setting`` and ``finetune_setting`` of ``tensorrt_llm/bench/build/tuning.py``). Where prompts are not
    cut, a step holds one beside all requests (``get_settings`` of ``tensorrt_llm/bench/benchmark/utils/general.py``).

    Args:
        design: with requests, mapping and devices.
        weights: bytes of the weights.
        whole: whether prompts are not cut: the PyTorch backend by default.
    """
    w, m, requests, serving = design.workload, design.mapping, design.workload.requests, design.mapping.serving
    assert requests is not None and serving is not None, "a row of serving has both"
    prompt, answer = float(requests.prompt_tokens), float(requests.output_tokens)
    tp, pp = float(m.tp * m.dp), float(m.pp)
    a_token = 2.0 * float(w.n_layers * w.head_dim * serving.cache_bytes) * max(tp, float(w.n_kv_heads))
    free = float(design.system.accelerator.memory.capacity) * tp * pp - weights
    each = min(_OF_FREE * free / (a_token * (prompt + answer)), _MOST_REQUESTS) / pp
    tokens = min(each * (1.0 + prompt / answer), _MOST_TOKENS)
    sequences = max(_up(each, 32.0 if each < 256.0 else 128.0 if each < 1024.0 else 256.0), 64.0)
    tokens = max(_up(tokens, 256.0 if tokens < 4096.0 else 512.0 if tokens < 8192.0 else 1024.0), _FEWEST_TOKENS)
    return Limits(pp * sequences, pp * (max(tokens, prompt + sequences) if whole else tokens))


def _up(value: float, step: float) -> float:
    return step * math.ceil(value / step)
