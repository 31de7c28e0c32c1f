"""Policy of an engine for experts on many ranks: balance, copies of experts, and steps in two halves.

Options that an engine's makers run where experts are on many ranks follow their number (``wide``): with 16 ranks or
more, the fewest of published deployments with load balancing and two-batch overlap (llm-d's guide of wide expert
parallelism, of vLLM on two nodes of eight).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp

from dse.model.choice import nothing
from dse.types import Design, Mapping, Scalar, Serving, WideOption, Workload

#: Fewest ranks of experts that count as many.
WIDE_RANKS = 16.0

#: Fewest tokens of a step of a rank that an engine halves on many ranks (vLLM, ``--dbo-decode-token-threshold``).
OVERLAP_TOKENS = 32.0

#: Share of the experts of which engines hold a second copy on many ranks: 32 of 256 in the decode pools of DeepSeek
#: (DeepSeek-V3/R1 inference system overview, 2025), of SGLang on H100 and GB200, and of llm-d.
COPIED_SHARE = 0.125


def is_on(option: Scalar, ep: Scalar) -> Any:
    """Return true where an option (:class:`~dse.types.WideOption`) is on for experts on ``ep`` ranks."""
    return (option == float(WideOption.on)) | ((option == float(WideOption.wide)) & (ep >= WIDE_RANKS))


def is_balanced(balance: Scalar, redundant: Scalar, ep: Scalar) -> Any:
    """Return true where experts are placed by their load; with ``wide`` also where copies of experts are stated.

    Args:
        balance: ``expert_balance`` of a mapping.
        redundant: its ``redundant_experts``.
        ep: ranks of experts.
    """
    return is_on(balance, ep) | ((balance == float(WideOption.wide)) & (redundant > 0.0))


def expert_copies(balance: Scalar, redundant: Scalar, ep: Scalar, n_experts: Scalar) -> Scalar:
    """Return the redundant experts of a layer: the stated ones, or the fewest with which ranks hold equal numbers.

    ``ceil((E + c) / e) e - E`` for ``E`` experts on ``e`` ranks, with at least ``c`` = :data:`COPIED_SHARE` of them
    where many ranks balance their load: 32 for DeepSeek-V3 on 32, 48, 72 and 144 ranks.

    Args:
        balance: ``expert_balance`` of a mapping.
        redundant: its ``redundant_experts``.
        ep: ranks of experts.
        n_experts: of a layer.
    """
    has_spare = is_balanced(balance, redundant, ep) & (ep >= WIDE_RANKS)
    least = jnp.where(has_spare, COPIED_SHARE * n_experts, 0.0)
    held = jnp.ceil((n_experts + least) / ep - 1e-4) * ep
    return jnp.where(redundant < 0.0, held - n_experts, redundant)


def copies_in(workload: Workload, mapping: Mapping) -> Scalar:
    """Return the redundant experts of a layer (:func:`expert_copies`) of a model under a mapping, 0 without experts."""
    serving, experts, mixture = mapping.serving or Serving(), mapping.experts, workload.experts
    if experts is None or mixture is None:
        return 0.0
    return expert_copies(serving.expert_balance, serving.redundant_experts, experts.ep, mixture.n_experts)


def busiest_over_mean(design: Design, copies: Scalar, unbalanced: Scalar) -> Scalar:
    """Return the tokens of the busiest rank of experts over their mean.

    Experts lie as they are numbered, or by their load (EPLB). Then a rank has more than the mean only as far as its
    most popular expert alone has: of ``E`` popularities of standard deviation ``s`` the largest is about
    ``h = 1 + s (ln E + g - 1)`` with Euler's ``g`` (exponential ones for ``s`` = 1), so ``h e / E`` on ``e`` ranks. Of
    that excess, and of a stated ``imbalance``, ``R`` copies of the busiest experts leave ``1 / (1 + R e / E)``
    (DeepSeek-AI 2024, section 3.4).

    Args:
        design: of a mixture of experts, with ranks of experts.
        copies: redundant experts of a layer.
        unbalanced: the ratio where experts lie as they are numbered.
    """
    requests, mixture, experts = design.workload.requests, design.workload.experts, design.mapping.experts
    assert mixture is not None and experts is not None, "a dense model has no ranks of experts"
    unequal = 0.0 if requests is None or nothing(requests.expert_skew) else requests.expert_skew
    largest = 1.0 + unequal * jnp.maximum(jnp.log(mixture.n_experts) - 0.4228, 0.0)
    placed = jnp.minimum(unbalanced, jnp.maximum(largest * experts.ep / mixture.n_experts, 1.0))
    excess = jnp.maximum(mixture.imbalance, placed) - 1.0
    balanced = 1.0 + excess / (1.0 + copies * experts.ep / mixture.n_experts)
    serving = design.mapping.serving or Serving()
    is_placed = is_balanced(serving.expert_balance, serving.redundant_experts, experts.ep)
    return jnp.where(is_placed, balanced, jnp.maximum(mixture.imbalance, unbalanced))


def with_halves(design: Design, tokens: Scalar) -> Design:
    """Return the design with ``step_overlap`` on or off for steps of a number of tokens of a rank.

    Stated as ``on`` it halves every step of two tokens or more; on many ranks (``wide``) those of
    :data:`OVERLAP_TOKENS`.
    """
    serving, experts = design.mapping.serving, design.mapping.experts
    if serving is None or experts is None or nothing(serving.step_overlap):
        return design
    least = jnp.where(serving.step_overlap == float(WideOption.on), 2.0, OVERLAP_TOKENS)
    halves = jnp.where(is_on(serving.step_overlap, experts.ep) & (tokens >= least), 1.0, 0.0)
    mapping = dataclasses.replace(design.mapping, serving=dataclasses.replace(serving, step_overlap=halves))
    return dataclasses.replace(design, mapping=mapping)
