"""Times of single kernels and collectives on a system, and how far they move with what is uncertain of it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from dse.equations import ScalarFunction
from dse.measured.prediction import group_by_structure
from dse.measured.uncertainty import parts as uncertainty
from dse.measured.uncertainty.spreads import Spreads, total_deviations
from dse.model import Route, generated
from dse.model.links import reach_in
from dse.model.machine import collectives
from dse.model.machine.rates import rates_of
from dse.model.machine.roofline import isolated_time
from dse.model.serving.kernels import isolated_rates
from dse.types import Collective, Design, Group, MessageKind, OperatorKind, Scalar, Work

#: Standard deviation of the model's own log error of an isolated kernel, which one shape cannot average out: median
#: errors of held-out shapes (6.5, 9.3 and 6.8 %: hw_catalog/kernels/generic.toml) over 0.6745.
MODEL_ERROR = {"gemm": 0.096, "attention": 0.138, "collective": 0.10}


class TimedKernel(NamedTuple):
    """An isolated kernel, or a collective among neighbours, whose time is predicted."""

    program: ScalarFunction  #: function of a design and ``numbers``: seconds
    numbers: tuple[Any, ...]  #: what kernels of one program differ by


def timed_kernel(kind: OperatorKind, work: Work, precision: float, serves: bool = False) -> TimedKernel:
    """Return a kernel of some FLOP and bytes.

    Args:
        kind: of the operator.
        work: FLOP and bytes.
        precision: code of its number format.
        serves: by the kernels of an engine instead of a training step.
    """
    return TimedKernel(_kernel_seconds(kind, serves), (work, precision))


def timed_collective(kind: MessageKind, n_bytes: float, members: float) -> TimedKernel:
    """Return a collective of ``members`` ranks with ``n_bytes`` of each."""
    return TimedKernel(_collective_seconds(kind), (n_bytes, members))


@functools.cache
def _kernel_seconds(kind: OperatorKind, serves: bool) -> ScalarFunction:
    """Return the function of a design, work and number format that gives the seconds of an isolated kernel."""

    def seconds(design: Design, work: Work, precision: Scalar) -> tuple[Scalar, None]:
        device = generated(design).system.accelerator
        rates = (isolated_rates if serves else rates_of)(device, precision)
        return isolated_time(kind, work, rates) + rates.kernels.kernel_floor, None

    return ScalarFunction(seconds, f"kernel seconds {kind} {serves}")


@functools.cache
def _collective_seconds(kind: MessageKind) -> ScalarFunction:
    """Return the function of a design, bytes of a rank and members that gives the seconds of a collective."""

    def seconds(design: Design, n_bytes: Scalar, members: Scalar) -> tuple[Scalar, None]:
        system = generated(design).system
        group = Group(members, members, reach=reach_in(system, members)((1.0, members)))
        return collectives.time(kind, n_bytes, Route(group, system), float(Collective.auto)), None

    return ScalarFunction(seconds, f"collective seconds {kind}")


def perturbed_times(
    base: Design, spreads: Spreads, kernels: Sequence[TimedKernel]
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return logs of times on a design's system [kernels], and factor → their change by a standard deviation [kernels].

    Args:
        base: the design.
        spreads: of leaves of its system.
        kernels: what is timed, in s.
    """
    ((_, batch),) = group_by_structure([base])
    widths = total_deviations(spreads)
    copies = jax.tree.map(lambda leaf: leaf[:, None], uncertainty.perturbed_copies(batch, [widths], list(spreads)))
    seconds = np.zeros((1 + 2 * len(spreads), len(kernels)))  # [copies, kernels]
    columns_by_program: dict[ScalarFunction, list[int]] = {}
    for column, kernel in enumerate(kernels):
        columns_by_program.setdefault(kernel.program, []).append(column)
    for program, columns in columns_by_program.items():
        numbers = jax.tree.map(
            lambda *leaves: np.array(leaves, np.float32)[None], *(kernels[column].numbers for column in columns)
        )
        seconds[:, columns] = program.batch_values(len(seconds), copies, *numbers)
    logs = np.log(seconds)
    change_by_factor: dict[str, np.ndarray] = {}
    for path, slope in zip(spreads, (logs[1::2] - logs[2::2]) / 2.0, strict=True):
        for factor in spreads[path]:
            change_by_factor[factor.key] = (
                change_by_factor.get(factor.key, 0.0) + slope * factor.deviation / widths[path]
            )
    return logs[0], change_by_factor
