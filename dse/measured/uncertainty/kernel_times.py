"""Times of single kernels and collectives on a system, and how far they move with what is uncertain of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from dse.measured.prediction import group_by_structure
from dse.measured.uncertainty import parts as uncertainty
from dse.measured.uncertainty.parts import Uncertainty
from dse.measured.uncertainty.spreads import Spreads, total_deviation
from dse.model import Route, generated
from dse.model.links import reach_in
from dse.model.machine import collectives
from dse.model.machine.rates import rates_of
from dse.model.machine.roofline import isolated_time
from dse.model.serving.kernels import isolated_rates
from dse.types import Collective, Design, Group, MessageKind, OperatorKind, Scalar, System, Work

#: Standard deviation of the model's own log error of an isolated kernel, which one shape cannot average out: median
#: errors of held-out shapes (6.5, 9.3 and 6.8 %: hw_catalog/kernels/generic.toml) over 0.6745.
MODEL_ERROR = {"gemm": 0.096, "attention": 0.138, "collective": 0.10}


def kernel_time(kind: OperatorKind, work: Work, precision: float, serves: bool = False) -> Callable[[System], Scalar]:
    """Return the function of a system that gives the seconds of an isolated kernel.

    Args:
        kind: of the operator.
        work: its FLOP and bytes.
        precision: code of its number format.
        serves: by the kernels of an engine instead of a training step.

    Returns:
        System → s.
    """

    def seconds(system: System) -> Scalar:
        """Return the seconds of the kernel on a system."""
        device = system.accelerator
        rates = (isolated_rates if serves else rates_of)(device, jnp.float32(precision))
        return isolated_time(kind, work, rates) + rates.kernels.kernel_floor

    return seconds


def collective_time(kind: MessageKind, n_bytes: float, members: float) -> Callable[[System], Scalar]:
    """Return the function of a system that gives the seconds of a collective among neighbours.

    Args:
        kind: of the message.
        n_bytes: bytes of a rank.
        members: number of ranks.

    Returns:
        System → s.
    """

    def seconds(system: System) -> Scalar:
        """Return the seconds of the collective on a system."""
        group = Group(members, members, reach=reach_in(system, members)((1.0, members)))
        return collectives.time(kind, n_bytes, Route(group, system), jnp.float32(float(Collective.auto)))

    return seconds


def perturbed_times(
    base: Design, spreads: Spreads, time_functions: Sequence[Callable[[System], Scalar]]
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return logs of times on a design's system [kernels], and factor → their change by a standard deviation [kernels].

    Args:
        base: the design.
        spreads: of leaves of its system.
        time_functions: seconds of kernels on a system.
    """
    ((_, batch),) = group_by_structure([base])
    widths = Uncertainty({path: total_deviation(factors) for path, factors in spreads.items()}, 0.0)
    perturbed = uncertainty.perturbed_copies(batch, [widths], list(spreads))
    seconds = jax.vmap(
        lambda design: jnp.stack([jnp.asarray(time_of(generated(design).system)) for time_of in time_functions])
    )
    logs = np.log(np.asarray(seconds(perturbed), float))  # [copies, kernels]
    change_by_factor: dict[str, np.ndarray] = {}
    for path, slope in zip(spreads, (logs[1::2] - logs[2::2]) / 2.0, strict=True):
        for factor in spreads[path]:
            change_by_factor[factor.key] = (
                change_by_factor.get(factor.key, 0.0) + slope * factor.deviation / widths.spreads[path]
            )
    return logs[0], change_by_factor
