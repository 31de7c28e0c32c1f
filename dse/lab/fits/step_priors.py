"""Parameters of software stacks fitted to steps, and their priors by lineage, chips, and similar stacks."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np

from dse.designs import catalog
from dse.lab.fits.fit import Parameter
from dse.types import Attention, Software

#: Parameters with priors and bounds.
PARAMETERS = (
    Parameter("software.matrix_slowdown", 1.15, 0.15, 0.7),
    Parameter("software.elementwise_slowdown", 1.2, 0.3, 0.5),
    Parameter("software.flash_slowdown", 1.0, 0.3, 0.3),
    Parameter("software.communication_slowdown", 1.2, 0.4, 0.8),  # links are known within a fifth
    Parameter("software.host_time", 1e-3, 0.5),
    Parameter("software.small_kernel_time", 1e-4, 1.0),
    Parameter("software.pp_overlap", 0.5, 0.5, 0.0, 1.0),
    Parameter("software.step_overhead", 5e-3, 1.0),
)

#: Standard deviation of a lineage from the shared value, in prior spreads; absent: none.
LINEAGE_SPREADS = {
    "matrix_slowdown": 1.5,
    "elementwise_slowdown": 1.5,
    "flash_slowdown": 1.5,
    "communication_slowdown": 0.4,
    "host_time": 1.0,
    "small_kernel_time": 1.0,
}

#: Standard deviation of a stack from its lineage.
STACK_SPREADS = {name: 0.8 * stray for name, stray in LINEAGE_SPREADS.items()}

#: Physical range of a value; outside of it, it absorbs what is not modelled. Attention in Triton may take 2 x 1.5 times
#: as long as the best kernel on Hopper, and boards run below the clock of isolated kernels.
PHYSICAL = {
    "matrix_slowdown": (1.0, 1.6), "elementwise_slowdown": (0.9, 3.0), "flash_slowdown": (0.8, 3.5),
    "communication_slowdown": (1.0, 3.0), "pp_overlap": (0.3, 1.0),
}  # fmt: skip

#: Stacks that differ in an option of the software or in the chips, and share the fit of another one.
SHARED_FITS = {
    "torchtitan-eager": "torchtitan", "fms-fsdp-a100": "fms-fsdp-h100", "mlperf-b200": "megatron-bridge",
    "nemo-24-03": "nemo",
    "jax-toolbox-a100": "jax-toolbox-h100", "pax-a100": "jax-toolbox-h100", "pax-h100": "jax-toolbox-h100",
    # Releases of one code base, whose dense steps differ by a few per cent, those of experts by a factor of two.
    "megatron-bridge-26-02": "megatron-bridge", "megatron-bridge-26-06": "megatron-bridge",
    "megatron-bridge-blackwell-26-02": "megatron-bridge-blackwell",
    "megatron-bridge-blackwell-26-06": "megatron-bridge-blackwell",
    "megatron-bridge-blackwell-ultra-26-02": "megatron-bridge-blackwell-ultra",
    "megatron-bridge-blackwell-ultra-26-06": "megatron-bridge-blackwell-ultra",
}  # fmt: skip

#: Common standard deviation of the stacks on one family of chips, whose clocks fall with the power of matrices.
FAMILY_SPREADS = {"matrix_slowdown": 1.0, "flash_slowdown": 1.0}

#: Stacks not fitted to steps; the fit of power assumes one of them.
NOT_FITTED = (
    "calculon", "deepseek-dualpipe", "megatron-deepspeed-rocm", "neutral", "pytorch-eager", "superconducting-compiled",
)  # fmt: skip

#: Lineages with one level per stack and nothing shared: see :mod:`dse.lab.fits.levels`.
LEVELLED = ("maxtext",)

#: Families of chips, by the files of their kernel efficiencies.
FAMILIES = frozenset(catalog.names("kernels"))


@functools.cache
def lineage_of(stack: str) -> str:
    """Return the lineage of a stack, "" for none, for one outside the catalogue and for the shared values."""
    if stack not in catalog.names("software"):
        return ""
    return str(catalog.entry("software", stack).value("lineage", ""))


def is_levelled(stack: str) -> bool:
    """Return whether a stack takes part in the calibration of TPU levels only."""
    return lineage_of(stack) in LEVELLED


@functools.cache
def published(stack: str) -> np.ndarray:
    """Return the shift [parameter] of a stack's parameters by publications before any step, in prior spreads.

    From ``flash_published`` of its file: kernels of one generation relative to the next.
    """
    shifts = np.zeros(len(NAMES))
    if stack in catalog.names("software"):
        flash = NAMES.index("flash_slowdown")
        shifts[flash] = PARAMETERS[flash].times(catalog.entry("software", stack).value("flash_published", 1.0))
    return shifts


#: Lineages of the stacks.
LINEAGES = frozenset(map(lineage_of, catalog.readable_names("software"))) - {""}


def name_of(parameter: Parameter) -> str:
    """Return the name of a parameter's field of :class:`dse.types.Software`: the end of its path."""
    return parameter.path.rpartition(".")[2]


NAMES = tuple(name_of(p) for p in PARAMETERS)


def stack_parameters(software: Software) -> list[str]:
    """Return the names of the parameters fitted per stack, five: without ``host_time`` or ``flash_slowdown``."""
    excluded = "host_time" if software.attention == Attention.flash else "flash_slowdown"
    return [name for name in STACK_SPREADS if name != excluded]


def fitted_as(stack: str) -> str:
    """Return the stack whose fitted values this one shares, itself for most."""
    return SHARED_FITS.get(stack, stack)


def prior_of(group: str, name: str) -> float:
    """Return the prior standard deviation of a column's ``z``, in prior spreads.

    Args:
        group: stack, lineage, family of chips, or "" for shared values.
        name: of the parameter.
    """
    if not group:
        return 1.0
    if group in FAMILIES:
        return FAMILY_SPREADS[name]
    return (LINEAGE_SPREADS if group in LINEAGES else STACK_SPREADS)[name]


def is_physical(name: str, values: Mapping[str, float]) -> bool:
    """Return whether the value of a parameter, by name in ``values``, is in its physical range; always without a range.

    The attention of a step includes the slow-down of matrices, so both together compare with the isolated kernel.
    """
    low, high = PHYSICAL.get(name, (0.0, np.inf))
    value = values[name] * (values["matrix_slowdown"] if name == "flash_slowdown" else 1.0)
    return low <= value <= high
