"""Everything that ``dse bench`` tells, in one record."""

from __future__ import annotations

import os
import platform
from datetime import date
from typing import Any

from benchmarks.rates.programs import gradients, rates, rates_by_kind, writing
from benchmarks.rates.runs import billion, doors, experts, machines, scaling, searches, start_up
from benchmarks.rates.sweeps import LARGE_SWEEP, SERVING_SWEEP, STANDARD_SWEEP


def bench(starts: bool = True) -> dict[str, Any]:
    """Measure everything.

    Args:
        starts: also run sweeps in fresh processes, cold and warm, and a billion designs.

    Returns:
        Rates in designs/s, times in seconds, memory in bytes, and what they were measured on.
    """
    # Fresh processes first: Linux counts the size of the process that starts another one as that one's peak.
    measured: dict[str, Any] = {}
    if starts:
        serving = start_up(SERVING_SWEEP)
        measured |= {f"serving_{name}": serving[name] for name in ("cold_seconds", "warm_seconds")}
        measured |= start_up(STANDARD_SWEEP) | doors() | searches() | billion() | machines() | experts()
    measured |= rates(LARGE_SWEEP) | rates_by_kind() | gradients() | writing(STANDARD_SWEEP)
    if starts:
        measured |= scaling(measured)

    import jax

    return measured | {
        "device": jax.devices()[0].device_kind,
        "dtype": "float32",
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "processor": platform.processor() or platform.machine(),
        "jax": jax.__version__,
        "date": date.today().isoformat(),
    }


def against_loop(measured: dict[str, Any]) -> dict[str, float]:
    """Rates as multiples of the plain loop's, which machines and their load change much less."""
    return {name: measured[name] / measured["loop"] for name in ("flat_full", "flat_best", "grid_full", "grid_best")}


def slower(measured: dict[str, float], published: dict[str, float], allowed: float = 0.2) -> list[str]:
    """What fell behind the published multiples by more than ``allowed``, one line each."""
    return [
        f"{name}: {measured[name]:,.0f} x the plain loop, published {rate:,.0f} x"
        for name, rate in published.items()
        if measured[name] < (1.0 - allowed) * rate
    ]
