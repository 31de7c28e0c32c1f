"""Placement and requirements of pipeline schedules (:class:`dse.types.Schedule`), without times.

For mappings with a named schedule; the default is 1F1B, for which none of this is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dse.types import Scalar, Schedule

#: Schedules whose first and last stage are on one device.
FOLDED = (Schedule.zb_v, Schedule.dualpipe, Schedule.dualpipev)
#: Schedules that run a forward and a backward of different micro-batches in parallel.
PAIRING = (Schedule.dualpipe, Schedule.dualpipev)
#: Schedules that defer weight gradients.
DEFERRING = (Schedule.zb_h1, *FOLDED)
#: Model chunks per device, where a schedule fixes them.
CHUNKS = {
    Schedule.gpipe: 1.0,
    Schedule.zb_h1: 1.0,
    Schedule.zb_v: 2.0,
    Schedule.dualpipe: 1.0,
    Schedule.dualpipev: 2.0,
}


def is_any_of(code: Any, schedules: tuple[Schedule, ...]) -> Any:
    """Return true where ``code`` is one of ``schedules``."""
    is_member = code == float(schedules[0])
    for schedule in schedules[1:]:
        is_member = is_member | (code == float(schedule))
    return is_member


def folded(code: Scalar, pp: Scalar) -> Scalar:
    """Return 1 where the first and the last stage are on one device of a pipeline, else 0."""
    import jax.numpy as jnp  # here, because a list of mappings needs none

    return jnp.where(is_any_of(code, FOLDED) & (pp > 1.0), 1.0, 0.0)


def stage_copies(code: Scalar, pp: Scalar) -> Scalar:
    """Return the count of stages whose weights a device holds: 2 for DualPipe, with both directions, else 1."""
    import jax.numpy as jnp

    return jnp.where((code == float(Schedule.dualpipe)) & (pp > 1.0), 2.0, 1.0)


def fits(values: Mapping[str, Any], divides: Callable[[Any, Any, int], Any], interleaves: Any) -> Any:
    """Return true where chunks, stages and micro-batches of a mapping suit its schedule.

    GPipe and ZB-H1 have one chunk per device, ZB-V two and, for a whole pattern, ``n >= 2 p`` micro-batches. DualPipe
    needs an even number of micro-batches and of stages (deepseek-ai/DualPipe asserts both, and ``n >= 2 p`` of either
    kind).

    Args:
        values: ``schedule``, ``pp``, ``virtual_stages`` and ``n_micro_batches``: numbers, arrays or traced.
        divides: as of :func:`dse.model.divisibility.fits`.
        interleaves: whether 1F1B can run, interleaved where there are several chunks.
    """
    code, pp, n = values["schedule"], values["pp"], values["n_micro_batches"]
    is_satisfied = (code == float(Schedule._1f1b)) & interleaves
    for schedule, chunks in CHUNKS.items():
        is_allowed = (code == float(schedule)) & (values["virtual_stages"] == chunks)
        if schedule in FOLDED:
            is_allowed = is_allowed & (n >= 2.0 * pp)
        if schedule is Schedule.dualpipe:
            is_allowed = is_allowed & divides(2.0, pp, 0) & divides(2.0, n, 0)
        is_satisfied = is_satisfied | is_allowed
    return is_satisfied | ((pp <= 1.0) & (values["virtual_stages"] <= 1.0))
