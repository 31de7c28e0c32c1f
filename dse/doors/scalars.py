"""``dse.evaluate`` and ``dse.serve``: the model at one design, in some milliseconds.

Plain numbers go through the operations that the door records once (:class:`dse.equations.ScalarFunction`), what JAX
traces through the door itself (:mod:`dse.doors.evaluation`, :mod:`dse.doors.serving`).
"""

from __future__ import annotations

import numpy as np

from dse.equations import ScalarFunction
from dse.errors import InputError
from dse.types import Design, Metrics, ServingMetrics
from dse.types.trees import tree_leaves


def _check_design(design: object, where: str) -> None:
    """Raise an InputError for anything but a design."""
    if not isinstance(design, Design):
        fix = f"write {where}(dse.design(…)), or name both: workload, system"
        raise InputError(where, repr(design)[:200], "a design, or names", fix)


def evaluate(design: Design) -> Metrics:
    """Evaluate one training step of ``design``: time, memory, energy, money, carbon and feasibility.

    A pure function of scalars, which works under ``jit``, ``vmap`` and ``grad``. It raises nothing, and returns no NaN
    for leaves within their bounds; a design that cannot run has ``feasible = False`` and the bits of its reasons. Its
    operations are those of :func:`dse.doors.evaluation.evaluate`, recorded once where all leaves are plain numbers.

    Args:
        design: one point of the design space; leaves are plain numbers or traced scalars in SI units.

    Returns:
        Metrics as scalars [] in SI units (see :class:`dse.types.Metrics`); parts add up to their total.

    References:
        Step time, of ``n`` micro-batches: ``t_step = n t_interval + t_bubble + t_sends + t_data + t_optimizer +
        t_update`` with ``t_bubble = (p - 1) (t_f + t_b) / v`` for ``p`` stages of ``v`` chunks in 1F1B (Narayanan et
        al., SC 2021). Utilisation: ``MFU = F / (t_step N R)`` for model FLOPs ``F``, ``N`` devices and peak rate ``R``.
        docs/model has each equation with its source, ``dse.sweep.results.provenance.bibliography([])`` lists the works.

    >>> import dse
    >>> found = dse.evaluate(dse.design("gpt-3-175b", "selene", tp=8, pp=8, dp=16, recompute="full"))
    >>> bool(found.feasible), bool(0.2 < found.mfu < 0.6)
    (True, True)
    """
    _check_design(design, "dse.evaluate")
    if all(isinstance(leaf, int | float | np.number) for leaf in tree_leaves(design)):
        return _evaluate(design)[0]
    return _model(design)[0]


def serve(design: Design) -> ServingMetrics:
    """Evaluate serving with ``design``: latency, throughput, memory, energy, money and feasibility.

    A pure function of scalars, which works under ``jit``, ``vmap`` and ``grad``. Plain numbers give NumPy scalars
    within milliseconds, traced leaves give those of JAX, as of :func:`dse.doors.serving.serve`.

    Args:
        design: one point of the design space, for example ``dse.design("llama-3-70b", "h100", tp=8,
            concurrency=64)``.

    Returns:
        Metrics as scalars [] in SI units (see :class:`dse.types.ServingMetrics`); parts add up to their total.

    References:
        Mean step of continuous batching (Yu et al., OSDI 2022): ``T = (1 - f) T_decode + f T_mixed`` with the share
        ``f = n I / (O q)`` of steps that carry ``q`` prompt tokens, for ``n`` sequences in flight, prompts of ``I`` and
        answers of ``O`` tokens. Sequences that fit: ``(u C - M_weights - M_runtime) / M_sequence`` for the share ``u``
        of the capacity ``C``. docs/model/serving.md has each equation with its source.

    >>> import dse
    >>> found = dse.serve(dse.design("llama-3-70b", "h100", "vllm", tp=8, concurrency=64))
    >>> bool(found.feasible), bool(found.time_to_first_token > found.time_per_output_token)
    (True, True)
    """
    _check_design(design, "dse.serve")
    if all(isinstance(leaf, int | float | np.number) for leaf in tree_leaves(design)):
        return _serve(design)[0]
    return _serving_model(design)[0]


def _serving_model(design: Design) -> tuple[ServingMetrics, None]:
    """Return (serving metrics, None), as a :class:`ScalarFunction` needs."""
    from dse.doors.serving import serve

    return serve(design), None


_serve = ScalarFunction(_serving_model, "serve")


def _model(design: Design) -> tuple[Metrics, None]:
    """Return (training metrics, None), as a :class:`ScalarFunction` needs."""
    from dse.doors.evaluation import evaluate

    return evaluate(design), None


_evaluate = ScalarFunction(_model, "evaluate")
