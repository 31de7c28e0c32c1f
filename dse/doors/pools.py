"""Disaggregated serving: a pool of devices computes prompts, another one decodes (Splitwise, Patel et al. 2024)."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dse.designs import leaf, leaves_of
from dse.designs.records import is_of_model
from dse.doors.serving import serve
from dse.errors import InputError
from dse.model import cache_bytes, stage_of
from dse.model.accounts.feasibility import bits_of
from dse.types import Design, Infeasible, Load, Requests, Scalar, Serving, ServingMetrics


class Pools(NamedTuple):
    """Metrics of two pools that serve together; scalars in SI units."""

    requests_per_second: Scalar  #: of the slower pool
    prefill_load: Scalar  #: share of what the prefill pool can do
    decode_load: Scalar  #: share of what the decode pool can do
    time_to_first_token: Scalar  #: without queues, the transfer of keys and values in it
    transfer_time: Scalar  #: of the keys and values of a prompt
    time_per_output_token: Scalar
    request_latency: Scalar  #: the wait for a place in the decode pool in it
    n_devices: Scalar
    output_tokens_per_second_per_device: Scalar
    cost_per_token: Scalar  #: USD of both pools, at the power of their full load
    waiting_time: Scalar  #: for a place in the memory of the decode pool
    feasible: Scalar  #: whether both pools can serve, within the limits of latency
    infeasible_reason: Scalar  #: bits of :class:`~dse.types.Infeasible`: those of both pools
    prefill_infeasible_reason: Scalar
    decode_infeasible_reason: Scalar


def serve_pools(prefill: Design, decode: Design) -> Pools:
    """Evaluate two designs, each with its own hardware, mapping and clock, as prefill and decode pool of one service.

    The prefill pool computes batches of prompts (``concurrency`` at once) and answers nothing; the decode pool finds
    all keys and values there, and has ``concurrency`` requests in flight. Each device sends the keys and values that
    it has computed over its network between nodes once for a request, and each that answers receives its share: the
    transfer takes the longer of both, ``bytes / bandwidth``, and no pool serves more than its links carry. Throughput
    is the slower pool's. Requests of the decode pool that its memory does not hold wait, after their first token.

    Args:
        prefill: its requests say what a prompt and an answer are; both pools are taken to serve these. Its
            ``first_token_limit`` is held against the first token with its transfer.
        decode: a token takes the time at its own ``concurrency``, which it has not where the prefill pool is slower,
            and is held against its own ``token_limit``.

    Returns:
        Scalars [] in SI units; a pure function, as :func:`dse.doors.serving.serve`.

    Raises:
        InputError: for designs of two models, where both are plain numbers.

    References:
        Pools of prompts and of answers: Patel et al. (Splitwise), ISCA 2024. Requests/s of the service:
        ``min(X_prefill, X_decode)``; transfer: ``max(b_sent / B_prefill, b_received / B_decode)`` for the bytes ``b``
        of a device and its bandwidth ``B`` between nodes.

    >>> import dse
    >>> one, other = (dse.design("llama-3-8b", "h100", "vllm", concurrency=count) for count in (1, 64))
    >>> found = dse.serve_pools(one, other)
    >>> bool(found.feasible), bool(found.transfer_time > 0.0)
    (True, True)
    """
    _check_same_model(prefill, decode)
    requests, decode_requests = prefill.workload.requests or Requests(), decode.workload.requests or Requests()
    unlimited_requests = dataclasses.replace(requests, first_token_limit=0.0, token_limit=0.0)  # of both pools together
    prefill_metrics = serve(
        _with_requests(prefill, dataclasses.replace(unlimited_requests, load=float(Load.static), output_tokens=1.0))
    )
    decode_metrics = serve(
        _with_requests(
            decode,
            dataclasses.replace(
                unlimited_requests, concurrency=decode_requests.concurrency, load=decode_requests.load, prefix_share=1.0
            ),
        )
    )
    send_time, receive_time = (_transfer_time(design, requests) for design in (prefill, decode))
    prefill_rate = jnp.minimum(prefill_metrics.requests_per_second, prefill.mapping.dp / send_time)
    decode_rate = jnp.minimum(decode_metrics.requests_per_second, decode.mapping.dp / receive_time)
    rate, transfer_time = jnp.minimum(prefill_rate, decode_rate), jnp.maximum(send_time, receive_time)
    time_to_first_token, waiting_time = (
        prefill_metrics.time_to_first_token + transfer_time,
        _waiting_time(decode_requests, decode_metrics),
    )
    reason_bits = (
        _reason_bits(prefill_metrics, time_to_first_token, requests.first_token_limit),
        _reason_bits(decode_metrics, decode_metrics.time_per_output_token, decode_requests.token_limit),
    )
    n_devices = prefill.system.n_devices + decode.system.n_devices
    pools = ((prefill_metrics, prefill), (decode_metrics, decode))
    cost_per_hour = sum(metrics.cost_per_device_hour * design.system.n_devices for metrics, design in pools)
    return Pools(
        requests_per_second=rate,
        prefill_load=rate / prefill_rate,
        decode_load=rate / decode_rate,
        time_to_first_token=time_to_first_token,
        transfer_time=transfer_time,
        time_per_output_token=decode_metrics.time_per_output_token,
        request_latency=time_to_first_token
        + waiting_time
        + (requests.output_tokens - 1.0) * decode_metrics.time_per_output_token,
        n_devices=n_devices,
        output_tokens_per_second_per_device=rate * requests.output_tokens / n_devices,
        cost_per_token=cost_per_hour / 3600.0 / (rate * requests.output_tokens),
        waiting_time=waiting_time,
        feasible=reason_bits[0] | reason_bits[1] == 0,
        infeasible_reason=reason_bits[0] | reason_bits[1],
        prefill_infeasible_reason=reason_bits[0],
        decode_infeasible_reason=reason_bits[1],
    )


def _check_same_model(prefill: Design, decode: Design) -> None:
    """Raise InputError where a model leaf differs between the pools; traced leaves are not compared."""
    prefill_leaves, decode_leaves = (_model_leaves(design) for design in (prefill, decode))
    for path in sorted(prefill_leaves.keys() | decode_leaves.keys()):
        values = prefill_leaves.get(path), decode_leaves.get(path)
        if not any(isinstance(value, jax.core.Tracer) for value in values) and np.any(values[0] != values[1]):
            raise InputError(
                "serve_pools: decode",
                f"a model with {path} = {values[1]}",
                f"that of prefill, with {values[0]}",
                "give both pools one workload",
            )


def _model_leaves(design: Design) -> dict[str, Scalar]:
    """Return leaf path → value of the model leaves of a design, those that are None left out."""
    paths = filter(is_of_model, leaves_of(design))
    return {path: value for path in paths if (value := leaf(design, path)) is not None}


def _waiting_time(requests: Requests, metrics: ServingMetrics) -> Scalar:
    """Return the mean wait for a place in memory, s: in a closed loop by Little's law, half for waves, else 0."""
    full_wait = jnp.maximum(requests.concurrency - metrics.concurrency_limit, 0.0) / metrics.requests_per_second
    closed_loop_wait = jnp.where(requests.load == float(Load.concurrency), full_wait, 0.0)
    return jnp.where(requests.load == float(Load.waves), 0.5 * full_wait, closed_loop_wait)


def _reason_bits(metrics: ServingMetrics, seconds: Scalar, limit: Scalar) -> Any:
    """Return the infeasibility bits of a pool, plus the bit ``latency`` where ``seconds`` exceed a limit above 0."""
    reason_bits: Any = metrics.infeasible_reason
    return reason_bits | bits_of({Infeasible.latency: (limit > 0.0) & (seconds > limit)})


def _with_requests(design: Design, requests: Requests) -> Design:
    """Return the design with its requests replaced."""
    return dataclasses.replace(design, workload=dataclasses.replace(design.workload, requests=requests))


def _transfer_time(design: Design, requests: Requests) -> Scalar:
    """Return the time for a device's share of a prompt's keys and values over its inter-node network, s."""
    stage, serving = stage_of(design), design.mapping.serving or Serving()
    cache_per_prompt = stage.layout.layers * cache_bytes(stage.design, serving, requests.prompt_tokens)
    return cache_per_prompt / jnp.maximum(design.system.scale_out.bandwidth, 1.0)
