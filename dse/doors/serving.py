"""The door into serving: ``serve(design)`` gives the metrics of a model that answers requests."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp

from dse.model import Batch, cache_bytes, divisibility, kv_capacity, main_model, parameter_count, stage_of
from dse.model.accounts.bounds import BoundBy
from dse.model.accounts.energy import system_power
from dse.model.accounts.failures import replica_reliability
from dse.model.accounts.feasibility import bits_of, network_too_small, routing_exists
from dse.model.choice import divides, plus
from dse.model.machine import technology
from dse.model.machine.power import at_clock, clock_ratio, clock_reached
from dse.model.machine.rates import reciprocal, unsupported
from dse.model.money.account import account, integrate
from dse.model.serving.bounds import PhaseBounds, phase_bounds, token_bounds
from dse.model.serving.clock import stage_at_power_limit
from dse.model.serving.energy import token_energy
from dse.model.serving.goodput import has_unbounded_ttft, share_in_time
from dse.model.serving.intake import idle_rows, limit_tokens_per_sequence
from dse.model.serving.loads import rank_steady_state
from dse.model.serving.memory import KvCapacity
from dse.model.serving.reuse import ROUNDS, lookups, perfect_lookups, with_lookups, with_shared_prefixes
from dse.model.serving.steady import Phases, SteadyState, prompt_coupling
from dse.model.serving.step import engine_step
from dse.model.serving.tails import NORMAL, tails
from dse.model.serving.work import NO_EXCHANGE, Rank, ranks_of_experts, width_split
from dse.model.steps.operating import HIGHEST_CLOCK
from dse.types import (
    Design,
    Engine,
    Infeasible,
    Load,
    Requests,
    Scalar,
    Serving,
    ServingMetrics,
    Slices,
    WideOption,
)

#: Rules that a forward pass has too.
_RULES = (Infeasible.heads_not_divisible, Infeasible.width_not_divisible, Infeasible.layers_not_divisible)


def serve(design: Design) -> ServingMetrics:
    """Evaluate serving with ``design``: metrics of latency, throughput, memory, energy, money and feasibility.

    A pure function of scalars, as :func:`dse.doors.evaluation.evaluate` is: never raises, and gives no NaN for leaves
    within their bounds.

    Args:
        design: one point of the design space. What it does not say of requests, engine and their mapping is as
            :class:`~dse.types.Requests`, :class:`~dse.types.Engine` and :class:`~dse.types.Serving` have it.

    Returns:
        Metrics of scalars in SI units; parts add up to their total.
    """
    design, rank, kv, steady_state, phases, utilisation, hit_rate = _serving_state(design)
    requests, serving, engine, n_ranks = rank.requests, rank.serving, rank.engine, design.mapping.dp
    n_devices = n_ranks * design.mapping.tp * design.mapping.pp
    time_to_first_token = _time_to_first_token(rank, steady_state)
    reason_bits = _reason_bits(design, rank, kv, steady_state, phases.violates_limit, utilisation)
    requests_per_second = n_ranks * steady_state.rate
    share_within_slo = share_in_time(requests, serving, steady_state, engine.request_time)
    tokens_per_second = requests_per_second * requests.output_tokens
    cache_bytes = plus(steady_state.running * kv.cache_per_sequence, kv.prefix)
    energy = token_energy(rank, phases, steady_state.rate)
    peak_power, provisioned_power = (
        system_power(board, n_devices, design.system)
        for board in (jnp.maximum(energy.prefill, energy.decode), energy.provisioned)
    )
    costs = account(design, n_devices, energy.token.total * tokens_per_second, tokens_per_second)
    seconds_per_token = reciprocal(tokens_per_second)
    token_time = {**steady_state.decode._asdict(), "prefill": steady_state.prefill, "preempted": steady_state.preempted}
    first_token_time = {"request": engine.request_time, "waiting": steady_state.waiting, "prefill": steady_state.prompt}
    runtime_bytes = kv.engine(steady_state.running)
    memory = {"weights": kv.weights, "cache": cache_bytes, "runtime": runtime_bytes}
    return ServingMetrics.of_totals(
        time_per_output_token=(steady_state.token, token_time),
        time_to_first_token=(time_to_first_token, first_token_time),
        inter_token_latency=steady_state.median,
        request_latency=time_to_first_token + (requests.output_tokens - 1.0) * steady_state.token,
        output_tokens_per_second=tokens_per_second,
        output_tokens_per_second_per_device=tokens_per_second / n_devices,
        output_tokens_per_second_per_user=1.0 / steady_state.token,
        requests_per_second=requests_per_second,
        share_in_time=share_within_slo,
        goodput=requests_per_second * share_within_slo,
        context_switch_time=kv.cache_per_sequence / design.system.host.bandwidth,
        **_tail_metrics(rank, steady_state, utilisation, n_ranks),
        concurrency_limit=n_ranks * jnp.minimum(kv.sequences, engine.most_sequences),
        prefill_share=steady_state.mixed,
        cache_hit_rate=requests.prefix_share,
        device_cache_hit_rate=hit_rate,
        peak_memory=(kv.weights + cache_bytes + runtime_bytes, memory),
        energy_per_output_token=(energy.token.total, energy.token),
        average_power=energy.token.total * tokens_per_second,
        peak_power=peak_power,
        provisioned_power=provisioned_power,
        device_power=energy.average,
        decode_power=energy.decode,
        prefill_power=energy.prefill,
        decode_clock_reached=clock_reached(phases.decode.clock.ratio, design.system.accelerator.power),
        prefill_clock_reached=clock_reached(phases.mixed.clock.ratio, design.system.accelerator.power),
        **costs.metrics,
        cost_per_token=integrate(costs.running_costs, seconds_per_token),
        carbon_per_token=integrate(costs.emitted, seconds_per_token),
        **replica_reliability(design, kv.weights, rank.experts_dp),
        parameters=parameter_count(main_model(design.workload)),
        feasible=reason_bits == 0,
        infeasible_reason=reason_bits,
    )


def _time_to_first_token(rank: Rank, steady_state: SteadyState) -> Scalar:
    """Return the mean time from a request to the first token of its answer, s."""
    return rank.engine.request_time + steady_state.waiting + steady_state.prompt


class _ServingState(NamedTuple):
    """The steady state of a design that serves, with what it is computed from."""

    design: Design  # at the clock that is set
    rank: Rank
    kv: KvCapacity
    steady_state: SteadyState
    phases: Phases
    utilisation: Scalar  # of an open load; 1 of others
    hit_rate: Scalar  # share of prompt tokens found in device memory


def _serving_state(design: Design) -> _ServingState:
    """Return the steady state of a design and what it follows from, with prefix caches iterated where it has reuse."""
    design = at_its_clock(technology.generated(design))
    rank = _rank(design)
    kv, reuse = kv_capacity(rank.stage, rank.requests, rank.serving, rank.engine), design.workload.reuse
    if reuse is None:
        return _ServingState(
            design, rank, kv, *rank_steady_state(rank, design.mapping.dp, kv), rank.requests.prefix_share
        )
    kv, rank_without_reuse = with_shared_prefixes(kv, reuse), rank
    rank = with_lookups(rank_without_reuse, perfect_lookups(rank_without_reuse.requests, reuse))
    hit_rate = rank.requests.prefix_share
    for _ in range(ROUNDS):
        hits = lookups(rank_without_reuse, reuse, kv, rank_steady_state(rank, design.mapping.dp, kv)[0])
        hit_rate, rank = hits.device_hits, with_lookups(rank_without_reuse, hits)
    return _ServingState(design, rank, kv, *rank_steady_state(rank, design.mapping.dp, kv), hit_rate)


def _tail_metrics(rank: Rank, steady_state: SteadyState, utilisation: Scalar, n_ranks: Scalar) -> dict[str, Scalar]:
    """Return metric name → percentiles of latencies, s, and utilisation, requests in flight and replicas needed."""
    distributions = tails(rank.requests, rank.serving, steady_state, rank.engine.request_time)
    request_latency = (
        steady_state.waiting + steady_state.prompt + (rank.requests.output_tokens - 1.0) * steady_state.token
    )
    metrics = {
        "utilisation": utilisation,
        "requests_in_flight": n_ranks * steady_state.rate * request_latency,
        "replicas_needed": jnp.ceil(n_ranks * utilisation * (1.0 - 1e-6)),
    }
    for percentile, (z, tail_share) in NORMAL.items():
        wait = distributions.slot_wait_quantile(tail_share)
        metrics |= {
            f"{percentile}_time_to_first_token": distributions.first.quantile(z) + wait,
            f"{percentile}_time_per_output_token": distributions.token.quantile(z),
            f"{percentile}_request_latency": distributions.latency.quantile(z) + wait,
        }
    return metrics


def _rank(design: Design) -> Rank:
    """Return one data-parallel rank of a design, defaults in place of absent requests, mapping and engine."""
    requests, serving = design.workload.requests or Requests(), design.mapping.serving or Serving()
    engine = design.software.engine or Engine()
    return Rank(stage_of(design), ranks_of_experts(design), requests, serving, engine)


def coupled_ranks(design: Design) -> tuple[Scalar, Scalar]:
    """Return (count of ranks whose prompts delay each other, share of experts in a prompt's FLOPs), 1 without coupling.

    Args:
        design: one point of the design space.
    """
    ranks, shared = prompt_coupling(_rank(design))
    return 1.0 if ranks is None else ranks, shared


def step_time(design: Design, batch: Batch) -> Scalar:
    """Return the time of one engine step of a rank on a batch, s, at the clock of the design's power limit.

    Args:
        design: one point of the design space.
        batch: sequences and prompt tokens of the step; drafts and padding are those of the design.
    """
    stage, ranks, _, serving, engine = _rank(at_its_clock(technology.generated(design)))
    is_decode = batch.prompt <= 0.0  # in a graph, at any number of sequences
    engine = dataclasses.replace(engine, graph_tokens=jnp.where(is_decode, jnp.inf, engine.graph_tokens))
    padding_rows = jnp.where(is_decode, idle_rows(serving, engine, batch.sequences), 0.0)
    batch = batch._replace(drafts=serving.drafts, padding=padding_rows)
    return engine_step(
        stage_at_power_limit(stage, ranks, serving, engine, batch).stage, ranks, serving, engine, batch
    ).total


def cache_capacity(design: Design, tokens: Scalar) -> tuple[Scalar, Scalar]:
    """Return (cache capacity of a rank's most loaded device, cache of one sequence on a device), both in B.

    Args:
        design: one point of the design space.
        tokens: length of the sequence.
    """
    stage, _, requests, serving, engine = _rank(at_its_clock(technology.generated(design)))
    kv = kv_capacity(stage, requests, serving, engine)
    capacity = plus(kv.sequences * kv.bytes_per_sequence, kv.prefix)
    return capacity, stage.layout.layers * cache_bytes(stage.design, serving, tokens)


def decoding_sequences(design: Design) -> Scalar:
    """Return the mean count of sequences that a data-parallel rank decodes at once."""
    return _serving_state(design).steady_state.decoding


def step_bounds(design: Design) -> PhaseBounds:
    """Return the time of a decode step and of a step with prompts by what bounds each, s; pure as :func:`serve`."""
    return _bounds_of_phases(_serving_state(design))


def bounds(design: Design) -> BoundBy:
    """Return the time per output token by what bounds it, s: compute, memory, network, rest; pure as :func:`serve`."""
    state = _serving_state(design)
    return token_bounds(state.rank.serving, state.steady_state, _bounds_of_phases(state))


def _bounds_of_phases(state: _ServingState) -> PhaseBounds:
    """Return the time of each kind of step by what bounds it, s."""
    return phase_bounds(state.rank.experts_dp, state.rank.serving, state.rank.engine, state.phases)


def at_its_clock(design: Design) -> Design:
    """Return the design with rates at the clock that is set, unchanged where a power limit sets the clock."""
    accelerator = design.system.accelerator
    if accelerator.solves_clock:  # each kind of step has a clock of its own
        return design
    slowed = at_clock(accelerator, clock_ratio(accelerator.power))
    return dataclasses.replace(design, system=dataclasses.replace(design.system, accelerator=slowed))


def _slices_fit(design: Design) -> Any:
    """Return true where slices divide the columns that they split, and their ranks those of a stage."""
    w, m = design.workload, design.mapping
    slices = m.slices or Slices()
    shared_ffn = 0.0 if w.experts is None else w.experts.shared_ffn
    sizes = [jnp.maximum(size, m.tp) for size in (slices.dense_tp, slices.shared_tp, slices.head_tp)]
    fits = divides(sizes[0], w.ffn_hidden) & divides(sizes[1], shared_ffn)
    for size in sizes:
        fits &= divides(m.tp, size) & divides(size, m.tp * m.dp)
    return fits


def _reason_bits(
    design: Design, rank: Rank, kv: KvCapacity, steady_state: SteadyState, exceeds_power: Any, utilisation: Scalar
) -> Scalar:
    """Return the bits of the :class:`Infeasible` reasons of a design, 0 for one that can serve."""
    w, m, system = design.workload, design.mapping, design.system
    requests, serving = rank.requests, rank.serving
    time_to_first_token = _time_to_first_token(rank, steady_state)
    values = {**vars(w), **vars(m), "virtual_stages": 1.0, "n_micro_batches": 1.0}
    limit = requests.first_token_limit
    misses_first_token = (limit > 0.0) & ((time_to_first_token > limit) | has_unbounded_ttft(requests))
    misses_token = (requests.token_limit > 0.0) & (steady_state.token > requests.token_limit)
    broken = {
        **{reason: ~divisibility.keeps(reason, values, divides) for reason in _RULES},
        Infeasible.memory: (kv.sequences < 1.0)
        | ((requests.load == float(Load.static)) & (steady_state.running > kv.sequences)),
        Infeasible.step_tokens: serving.chunk < limit_tokens_per_sequence(serving),
        Infeasible.device_count_mismatch: m.tp * m.pp * m.dp != system.n_devices,
        Infeasible.network_too_small: network_too_small(system, m.tp),
        Infeasible.precision_unsupported: unsupported(system.accelerator, m.precision),
        Infeasible.power: (clock_ratio(system.accelerator.power) > HIGHEST_CLOCK) | exceeds_power,
        Infeasible.latency: misses_first_token
        | misses_token
        | (utilisation > 1.0 if requests.request_rate is not None else False),
    }
    # Halves need an exchange of experts that the other half hides; nano-batches are parts of their own.
    no_halves = rank.stage.exchange is NO_EXCHANGE or m.nano is not None
    meeting = 0.0 if no_halves else rank.experts_dp
    broken[Infeasible.stack_lacks] = (serving.step_overlap == float(WideOption.on)) & (meeting <= 1.0)
    if system.accelerator.chip is not None:
        broken[Infeasible.chip_shares] = technology.exceeds_shares(system.accelerator.chip)
    if m.slices is not None:
        broken[Infeasible.width_not_divisible] |= ~_slices_fit(design)
    if w.recurrent is not None:
        broken[Infeasible.heads_not_divisible] |= ~divides(m.tp, w.recurrent.state_heads)
    if w.experts is not None and m.experts is not None:
        sizes = {"tp": m.tp, "dp_replicate": 1.0, "stage_devices": m.tp * m.dp}
        split = {**vars(w.experts), **vars(m.experts), "etp": width_split(m.tp, m.experts.ep, m.experts.etp)}
        split["n_experts"] = w.experts.n_experts + jnp.maximum(serving.redundant_experts, 0.0)
        split["chosen_copies"] = jnp.where(serving.redundant_experts < 0.0, 1.0, 0.0)
        fits = divisibility.experts_fit({**split, **sizes}, divides) & routing_exists(w.experts)
        broken[Infeasible.experts_not_divisible] = ~fits
    return bits_of(broken)
