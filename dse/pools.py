"""Disaggregated serving: a pool of devices computes prompts, another one decodes (Splitwise, Patel et al. 2024)."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp

from dse.model.serving.work import cache_bytes, stage_of
from dse.serving import serve
from dse.types import Design, Load, Requests, Scalar, Serving


class Pools(NamedTuple):
    """What two pools serve together; scalars in SI units."""

    requests_per_second: Scalar  #: of the slower pool
    prefill_load: Scalar  #: share of what the prefill pool can do
    decode_load: Scalar  #: share of what the decode pool can do
    time_to_first_token: Scalar  #: without queues, the transfer of keys and values in it
    transfer_time: Scalar  #: of the keys and values of a prompt
    time_per_output_token: Scalar
    request_latency: Scalar
    n_devices: Scalar
    output_tokens_per_second_per_device: Scalar
    million_tokens_cost: Scalar  #: USD of both pools, at the power of their full load


def serve_pools(prefill: Design, decode: Design) -> Pools:
    """Two designs, each with its own hardware, mapping and clock, as the pools of one service.

    The prefill pool computes batches of prompts (``concurrency`` at once) and answers nothing; the decode pool finds
    all keys and values there, and has ``concurrency`` requests in flight. Each device sends the keys and values that
    it has computed over its network between nodes once for a request, and each that answers receives its share: the
    transfer takes the longer of both, ``bytes / bandwidth``, and no pool serves more than its links carry. Throughput
    is the slower pool's.

    Args:
        prefill: its requests say what a prompt and an answer are; both pools are taken to serve these.
        decode: a token takes the time at its own ``concurrency``, which it has not where the prefill pool is slower.

    Returns:
        Scalars; a pure function, as :func:`dse.serving.serve`.
    """
    requests = prefill.workload.requests or Requests()
    first = serve(_with(prefill, dataclasses.replace(requests, load=float(Load.static), output_tokens=1.0)))
    own = decode.workload.requests or Requests()
    flowing = dataclasses.replace(requests, concurrency=own.concurrency, load=own.load, prefix_share=1.0)
    rest = serve(_with(decode, flowing))
    sending, receiving = (_transfer_time(design, requests) for design in (prefill, decode))
    of_prefill = jnp.minimum(first.requests_per_second, prefill.mapping.dp / sending)
    of_decode = jnp.minimum(rest.requests_per_second, decode.mapping.dp / receiving)
    rate, transfer = jnp.minimum(of_prefill, of_decode), jnp.maximum(sending, receiving)
    to_first = first.time_to_first_token + transfer
    devices = prefill.system.n_devices + decode.system.n_devices
    pools = ((first, prefill), (rest, decode))
    hourly = sum(served.device_hour_cost * design.system.n_devices for served, design in pools)
    return Pools(
        requests_per_second=rate,
        prefill_load=rate / of_prefill,
        decode_load=rate / of_decode,
        time_to_first_token=to_first,
        transfer_time=transfer,
        time_per_output_token=rest.time_per_output_token,
        request_latency=to_first + (requests.output_tokens - 1.0) * rest.time_per_output_token,
        n_devices=devices,
        output_tokens_per_second_per_device=rate * requests.output_tokens / devices,
        million_tokens_cost=1e6 / 3600.0 * hourly / (rate * requests.output_tokens),
    )


def _with(design: Design, requests: Requests) -> Design:
    return dataclasses.replace(design, workload=dataclasses.replace(design.workload, requests=requests))


def _transfer_time(design: Design, requests: Requests) -> Scalar:
    """Seconds in which a device sends, or receives, its share of the keys and values of a prompt."""
    stage, serving = stage_of(design), design.mapping.serving or Serving()
    held = stage.layout.layers * cache_bytes(stage.design, serving, requests.prompt_tokens)
    return held / jnp.maximum(design.system.scale_out.bandwidth, 1.0)
