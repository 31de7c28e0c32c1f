"""Disaggregated serving: a pool of devices computes prompts, another one decodes (Splitwise, Patel et al. 2024)."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dse.designs.leaves import leaf, leaves_of
from dse.designs.records import is_of_model
from dse.doors.serving import serve
from dse.errors import InputError
from dse.model.accounts.feasibility import bits_of
from dse.model.serving.work import cache_bytes, stage_of
from dse.types import Design, Infeasible, Load, Requests, Scalar, Serving, ServingMetrics


class Pools(NamedTuple):
    """What two pools serve together; scalars in SI units."""

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
    """Evaluate two designs, each with its own hardware, mapping and clock, as the pools of one service.

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
    _check_one_model(prefill, decode)
    requests, own = prefill.workload.requests or Requests(), decode.workload.requests or Requests()
    asked = dataclasses.replace(requests, first_token_limit=0.0, token_limit=0.0)  # of both pools together
    first = serve(_with(prefill, dataclasses.replace(asked, load=float(Load.static), output_tokens=1.0)))
    rest = serve(
        _with(decode, dataclasses.replace(asked, concurrency=own.concurrency, load=own.load, prefix_share=1.0))
    )
    sending, receiving = (_transfer_time(design, requests) for design in (prefill, decode))
    of_prefill = jnp.minimum(first.requests_per_second, prefill.mapping.dp / sending)
    of_decode = jnp.minimum(rest.requests_per_second, decode.mapping.dp / receiving)
    rate, transfer = jnp.minimum(of_prefill, of_decode), jnp.maximum(sending, receiving)
    to_first, waiting = first.time_to_first_token + transfer, _waiting_time(own, rest)
    reasons = (
        _reason(first, to_first, requests.first_token_limit),
        _reason(rest, rest.time_per_output_token, own.token_limit),
    )
    devices = prefill.system.n_devices + decode.system.n_devices
    pools = ((first, prefill), (rest, decode))
    hourly = sum(served.cost_per_device_hour * design.system.n_devices for served, design in pools)
    return Pools(
        requests_per_second=rate,
        prefill_load=rate / of_prefill,
        decode_load=rate / of_decode,
        time_to_first_token=to_first,
        transfer_time=transfer,
        time_per_output_token=rest.time_per_output_token,
        request_latency=to_first + waiting + (requests.output_tokens - 1.0) * rest.time_per_output_token,
        n_devices=devices,
        output_tokens_per_second_per_device=rate * requests.output_tokens / devices,
        cost_per_token=hourly / 3600.0 / (rate * requests.output_tokens),
        waiting_time=waiting,
        feasible=reasons[0] | reasons[1] == 0,
        infeasible_reason=reasons[0] | reasons[1],
        prefill_infeasible_reason=reasons[0],
        decode_infeasible_reason=reasons[1],
    )


def _check_one_model(prefill: Design, decode: Design) -> None:
    """That both pools have one model, as far as its numbers are known."""
    first, second = (_model(design) for design in (prefill, decode))
    for path in sorted(first.keys() | second.keys()):
        values = first.get(path), second.get(path)
        if not any(isinstance(value, jax.core.Tracer) for value in values) and np.any(values[0] != values[1]):
            raise InputError(
                "serve_pools: decode",
                f"a model with {path} = {values[1]}",
                f"that of prefill, with {values[0]}",
                "give both pools one workload",
            )


def _model(design: Design) -> dict[str, Scalar]:
    """Path → value of what a model is."""
    paths = filter(is_of_model, leaves_of(design))
    return {path: value for path in paths if (value := leaf(design, path)) is not None}


def _waiting_time(requests: Requests, served: ServingMetrics) -> Scalar:
    """Seconds that a request waits for a place, by Little's law: those that wait over the rate; of waves half of it."""
    waiting = jnp.maximum(requests.concurrency - served.concurrency_limit, 0.0) / served.requests_per_second
    queued = jnp.where(requests.load == float(Load.concurrency), waiting, 0.0)
    return jnp.where(requests.load == float(Load.waves), 0.5 * waiting, queued)


def _reason(served: ServingMetrics, seconds: Scalar, limit: Scalar) -> Any:
    """Why a pool cannot serve, with a latency of both above its limit, where there is one."""
    own: Any = served.infeasible_reason
    return own | bits_of({Infeasible.latency: (limit > 0.0) & (seconds > limit)})


def _with(design: Design, requests: Requests) -> Design:
    return dataclasses.replace(design, workload=dataclasses.replace(design.workload, requests=requests))


def _transfer_time(design: Design, requests: Requests) -> Scalar:
    """Seconds in which a device sends, or receives, its share of the keys and values of a prompt."""
    stage, serving = stage_of(design), design.mapping.serving or Serving()
    held = stage.layout.layers * cache_bytes(stage.design, serving, requests.prompt_tokens)
    return held / jnp.maximum(design.system.scale_out.bandwidth, 1.0)
