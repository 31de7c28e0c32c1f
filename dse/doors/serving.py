"""The door into serving: ``serve(design)`` gives the metrics of a model that answers requests."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp

from dse.model import divisibility
from dse.model.accounts.bounds import BoundBy
from dse.model.accounts.energy import whole_power
from dse.model.accounts.failures import served_with_failures
from dse.model.accounts.feasibility import bits_of, network_too_small, routes
from dse.model.choice import divides, plus
from dse.model.machine import technology
from dse.model.machine.power import at_clock, clock_ratio
from dse.model.machine.rates import reciprocal, unsupported
from dse.model.money.account import account, integrate
from dse.model.serving.bounds import PhaseBounds, phase_bounds, token_bounds
from dse.model.serving.clock import at_limit
from dse.model.serving.energy import token_energy
from dse.model.serving.goodput import promises_none, share_in_time
from dse.model.serving.intake import idle_rows, tokens_of_a_sequence
from dse.model.serving.loads import served
from dse.model.serving.memory import KvCapacity, kv_capacity
from dse.model.serving.reuse import ROUNDS, at_best, lookups, shared_among, with_lookups
from dse.model.serving.steady import Phases, Served, together
from dse.model.serving.step import engine_step
from dse.model.serving.tails import NORMAL, tails
from dse.model.serving.work import Rank, cache_bytes, ranks_of_experts, stage_of, width_split
from dse.model.steps.operating import HIGHEST_CLOCK
from dse.model.work.batch import Batch
from dse.model.work.parameters import main_model, parameter_count
from dse.types import Design, Engine, Infeasible, Load, Requests, Scalar, Serving, ServingMetrics

#: Rules that a forward pass has too.
_RULES = (Infeasible.heads_not_divisible, Infeasible.width_not_divisible, Infeasible.layers_not_divisible)


def serve(design: Design) -> ServingMetrics:
    """Latency, throughput, memory and feasibility of serving with ``design``.

    A pure function of scalars, as :func:`dse.doors.evaluation.evaluate` is: never raises, and gives no NaN for leaves
    within their bounds.

    Args:
        design: one point of the design space. What it does not say of requests, engine and their mapping is as
            :class:`~dse.types.Requests`, :class:`~dse.types.Engine` and :class:`~dse.types.Serving` have it.

    Returns:
        Metrics of scalars in SI units; parts add up to their total.
    """
    design, rank, held, found, phases, utilisation, hits = _served(design)
    requests, serving, engine, ranks = rank.requests, rank.serving, rank.engine, design.mapping.dp
    devices = ranks * design.mapping.tp * design.mapping.pp
    first = _first_token(rank, found)
    reason = _reason(design, rank, held, found, phases.violates_limit, utilisation)
    rate = ranks * found.rate
    in_time = share_in_time(requests, serving, found, engine.request_time)
    tokens = rate * requests.output_tokens
    cache = plus(found.running * held.a_sequence, held.prefix)
    spent = token_energy(rank, phases, found.rate)
    peak, provisioned = (
        whole_power(board, devices, design.system)
        for board in (jnp.maximum(spent.prefill, spent.decode), spent.provisioned)
    )
    books = account(design, devices, spent.token.total * tokens, tokens)
    a_token = reciprocal(tokens)
    return ServingMetrics(
        time_per_output_token=found.token,
        **{f"time_per_output_token_{part}": seconds for part, seconds in found.decode._asdict().items()},
        time_per_output_token_prefill=found.prefill,
        time_per_output_token_preempted=found.preempted,
        time_to_first_token=first,
        time_to_first_token_request=engine.request_time,
        time_to_first_token_waiting=found.waiting,
        time_to_first_token_prefill=found.prompt,
        inter_token_latency=found.median,
        request_latency=first + (requests.output_tokens - 1.0) * found.token,
        output_tokens_per_second=tokens,
        output_tokens_per_second_per_device=tokens / devices,
        output_tokens_per_second_per_user=1.0 / found.token,
        requests_per_second=rate,
        share_in_time=in_time,
        goodput=rate * in_time,
        context_switch_time=held.a_sequence / design.system.host.bandwidth,
        **_tails(rank, found, utilisation, ranks),
        concurrency_limit=ranks * jnp.minimum(held.sequences, engine.most_sequences),
        prefill_share=found.mixed,
        cache_hit_rate=requests.prefix_share,
        device_cache_hit_rate=hits,
        peak_memory=held.weights + cache + held.engine(found.running),
        peak_memory_weights=held.weights,
        peak_memory_cache=cache,
        peak_memory_runtime=held.engine(found.running),
        energy_per_output_token=spent.token.total,
        **{f"energy_per_output_token_{part}": joules for part, joules in spent.token._asdict().items()},
        average_power=spent.token.total * tokens,
        peak_power=peak,
        provisioned_power=provisioned,
        device_power=spent.average,
        decode_power=spent.decode,
        prefill_power=spent.prefill,
        **books.metrics,
        **{f"cost_per_token{part}": value for part, value in integrate(books.spent, a_token).items()},
        **{f"carbon_per_token{part}": value for part, value in integrate(books.emitted, a_token).items()},
        **served_with_failures(design, held.weights, rank.met),
        parameters=parameter_count(main_model(design.workload)),
        feasible=reason == 0,
        infeasible_reason=reason,
    )


def _first_token(rank: Rank, found: Served) -> Scalar:
    """Seconds to the first token of an answer."""
    return rank.engine.request_time + found.waiting + found.prompt


class _Parts(NamedTuple):
    """Intermediate results of serving."""

    design: Design  # at the clock that is set
    rank: Rank
    held: KvCapacity
    found: Served
    phases: Phases
    utilisation: Scalar  # of an open load; 1 of others
    hits: Scalar  # share of prompt tokens found in device memory


def _served(design: Design) -> _Parts:
    design = at_its_clock(technology.generated(design))
    rank = _rank(design)
    held, reuse = kv_capacity(rank.stage, rank.requests, rank.serving, rank.engine), design.workload.reuse
    if reuse is None:
        return _Parts(design, rank, held, *served(rank, design.mapping.dp, held), rank.requests.prefix_share)
    held, own = shared_among(held, reuse), rank
    rank = with_lookups(own, at_best(own.requests, reuse))
    hits = rank.requests.prefix_share
    for _ in range(ROUNDS):
        found = lookups(own, reuse, held, served(rank, design.mapping.dp, held)[0])
        hits, rank = found.device, with_lookups(own, found)
    return _Parts(design, rank, held, *served(rank, design.mapping.dp, held), hits)


def _tails(rank: Rank, found: Served, utilisation: Scalar, ranks: Scalar) -> dict[str, Scalar]:
    """Percentiles of latencies, and what an open load needs."""
    outside = rank.engine.request_time
    spread = tails(rank.requests, rank.serving, found, outside)
    waits = {p: spread.waits(beyond) for p, (_, beyond) in NORMAL.items()}
    latency = found.waiting + found.prompt + (rank.requests.output_tokens - 1.0) * found.token
    return {
        **{f"{p}_time_to_first_token": spread.first.quantile(z) + waits[p] for p, (z, _) in NORMAL.items()},
        **{f"{p}_time_per_output_token": spread.token.quantile(z) for p, (z, _) in NORMAL.items()},
        **{f"{p}_request_latency": spread.latency.quantile(z) + waits[p] for p, (z, _) in NORMAL.items()},
        "utilisation": utilisation,
        "requests_in_flight": ranks * found.rate * latency,
        "replicas_needed": jnp.ceil(ranks * utilisation * (1.0 - 1e-6)),
    }


def _rank(design: Design) -> Rank:
    """One data-parallel rank of a design at its clock."""
    requests, serving = design.workload.requests or Requests(), design.mapping.serving or Serving()
    engine = design.software.engine or Engine()
    return Rank(stage_of(design), ranks_of_experts(design), requests, serving, engine)


def meeting(design: Design) -> tuple[int, float]:
    """Data-parallel ranks whose prompts delay each other, and the share of their experts in the work of a prompt."""
    ranks, shared = together(_rank(design))
    return 1 if ranks is None else round(float(ranks)), float(shared)


def step_time(design: Design, batch: Batch) -> Scalar:
    """Seconds of one engine step that works on ``batch``, with the design's drafts, at the clock of its power limit."""
    stage, met, _, serving, engine = _rank(at_its_clock(technology.generated(design)))
    decodes = batch.prompt <= 0.0  # in a graph, at any number of sequences
    engine = dataclasses.replace(engine, graph_tokens=jnp.where(decodes, jnp.inf, engine.graph_tokens))
    idle = jnp.where(decodes, idle_rows(serving, engine, batch.sequences), 0.0)
    batch = batch._replace(drafts=serving.drafts, padding=idle)
    return engine_step(at_limit(stage, met, serving, engine, batch).stage, met, serving, engine, batch).total


def cache_room(design: Design, tokens: Scalar) -> tuple[Scalar, Scalar]:
    """Cache of a rank's most loaded device and that of a sequence of ``tokens`` there, B."""
    stage, _, requests, serving, engine = _rank(at_its_clock(technology.generated(design)))
    held = kv_capacity(stage, requests, serving, engine)
    room = plus(held.sequences * held.each, held.prefix)
    return room, stage.layout.layers * cache_bytes(stage.design, serving, tokens)


def decoding(design: Design) -> Scalar:
    """Sequences that a rank decodes at once, mean."""
    return _served(design).found.decoding


def steps(design: Design) -> PhaseBounds:
    """Seconds of a step that decodes and of one that carries prompts, by what bounds them; as pure as :func:`serve`."""
    one = _served(design)
    return phase_bounds(one.rank.met, one.rank.serving, one.rank.engine, one.phases)


def bounds(design: Design) -> BoundBy:
    """Seconds of an output token by what bounds them: compute, memory, network, the rest; as pure as :func:`serve`."""
    one = _served(design)
    by_phase = phase_bounds(one.rank.met, one.rank.serving, one.rank.engine, one.phases)
    return token_bounds(one.rank.serving, one.found, by_phase)


def at_its_clock(design: Design) -> Design:
    """The design with the rates of the clock that is set, at its nominal ones where a limit decides."""
    accelerator = design.system.accelerator
    if accelerator.solves_clock:  # each kind of step has a clock of its own
        return design
    slowed = at_clock(accelerator, clock_ratio(accelerator.power))
    return dataclasses.replace(design, system=dataclasses.replace(design.system, accelerator=slowed))


def _reason(design: Design, rank: Rank, held: KvCapacity, found: Served, over: Any, utilisation: Scalar) -> Scalar:
    """Bits of :class:`Infeasible`; 0 when the design can serve."""
    w, m, system = design.workload, design.mapping, design.system
    requests, serving = rank.requests, rank.serving
    first = _first_token(rank, found)
    values = {**vars(w), **vars(m), "virtual_stages": 1.0, "n_micro_batches": 1.0}
    limit = requests.first_token_limit
    late = (limit > 0.0) & ((first > limit) | promises_none(requests))
    slow = (requests.token_limit > 0.0) & (found.token > requests.token_limit)
    broken = {
        **{reason: ~divisibility.keeps(reason, values, divides) for reason in _RULES},
        Infeasible.memory: (held.sequences < 1.0)
        | ((requests.load == float(Load.static)) & (found.running > held.sequences)),
        Infeasible.step_tokens: serving.chunk < tokens_of_a_sequence(serving),
        Infeasible.device_count_mismatch: m.tp * m.pp * m.dp != system.n_devices,
        Infeasible.network_too_small: network_too_small(system, m.tp),
        Infeasible.precision_unsupported: unsupported(system.accelerator, m.precision),
        Infeasible.power: (clock_ratio(system.accelerator.power) > HIGHEST_CLOCK) | over,
        Infeasible.latency: late | slow | (utilisation > 1.0 if requests.request_rate is not None else False),
    }
    if system.accelerator.chip is not None:
        broken[Infeasible.chip_shares] = technology.overspent(system.accelerator.chip)
    if w.recurrent is not None:
        broken[Infeasible.heads_not_divisible] |= ~divides(m.tp, w.recurrent.state_heads)
    if w.experts is not None and m.experts is not None:
        whole = {"tp": m.tp, "dp_replicate": 1.0, "stage_devices": m.tp * m.dp}
        split = {**vars(w.experts), **vars(m.experts), "etp": width_split(m.tp, m.experts.ep, m.experts.etp)}
        split["n_experts"] = w.experts.n_experts + serving.redundant_experts
        fits = divisibility.experts_fit({**split, **whole}, divides) & routes(w.experts)
        broken[Infeasible.experts_not_divisible] = ~fits
    return bits_of(broken)
