"""What steps can tell of a software stack, and what is believed before: by its lineage, its chips, stacks like it."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np

from dse.calibrate.fit import Parameter
from dse.designs import catalog
from dse.types import Attention, Software

#: What steps can tell, with what is believed before any step is seen, and the bounds.
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

#: How far a lineage of stacks strays from what all share, in prior spreads; what is absent is the same for all.
LINEAGE = {
    "matrix_slowdown": 1.5, "elementwise_slowdown": 1.5, "flash_slowdown": 1.5, "communication_slowdown": 0.4,
    "host_time": 1.0, "small_kernel_time": 1.0,
}  # fmt: skip

#: How far a stack strays from its lineage.
OWN = {name: 0.8 * stray for name, stray in LINEAGE.items()}

#: Between what a value is what its name says; beyond, it stands in for something that is not modelled. Attention in
#: Triton may take 2 x 1.5 times as long as the best kernel on Hopper, and boards run below the clock of kernels alone.
PHYSICAL = {
    "matrix_slowdown": (1.0, 1.6), "elementwise_slowdown": (0.9, 3.0), "flash_slowdown": (0.8, 3.5),
    "communication_slowdown": (1.0, 3.0), "pp_overlap": (0.3, 1.0),
}  # fmt: skip

#: Stacks that differ in a choice of the software or in the chips, and share what is fitted of another alone.
ALIKE = {
    "torchtitan-eager": "torchtitan", "fms-fsdp-a100": "fms-fsdp-h100", "mlperf-b200": "megatron-bridge",
    "nemo-24-03": "nemo",
    "jax-toolbox-a100": "jax-toolbox-h100", "pax-a100": "jax-toolbox-h100", "pax-h100": "jax-toolbox-h100",
    # Releases of one code base, whose dense steps differ by a few per cent; those of their experts do by twice.
    "megatron-bridge-26-02": "megatron-bridge", "megatron-bridge-26-06": "megatron-bridge",
    "megatron-bridge-blackwell-26-02": "megatron-bridge-blackwell",
    "megatron-bridge-blackwell-26-06": "megatron-bridge-blackwell",
    "megatron-bridge-blackwell-ultra-26-02": "megatron-bridge-blackwell-ultra",
    "megatron-bridge-blackwell-ultra-26-06": "megatron-bridge-blackwell-ultra",
}  # fmt: skip

#: How far the stacks on one family of chips stray together: their clocks fall with the power that matrices draw.
FAMILY = {"matrix_slowdown": 1.0, "flash_slowdown": 1.0}

#: Stacks that stand for something else than measured steps: what is fitted to power assumes one of them.
NOT_FITTED = ("calculon", "deepseek-dualpipe", "pytorch-eager", "superconducting-compiled")

#: Lineages whose stacks have one level each and share nothing with the others: see :mod:`dse.calibrate.levels`.
LEVELLED = ("maxtext",)

#: Families of chips, by their files of kernel efficiencies.
FAMILIES = frozenset(catalog.names("kernels"))


@functools.cache
def lineage_of(stack: str) -> str:
    """The lineage that a stack states; "" for none, for one that is not in the catalogue and for what all share."""
    if stack not in catalog.names("software"):
        return ""
    return str(catalog.entry("software", stack).value("lineage", ""))


def is_levelled(stack: str) -> bool:
    """Whether a stack takes part in the job on levels of TPUs, and in no other one."""
    return lineage_of(stack) in LEVELLED


@functools.cache
def published(stack: str) -> np.ndarray:
    """Prior spreads by which what is published of a stack moves its parameters before any step is seen.

    That is its file's ``flash_published``: how kernels of one generation compare with those of the next.
    """
    known = np.zeros(len(NAMES))
    if stack in catalog.names("software"):
        flash = NAMES.index("flash_slowdown")
        known[flash] = PARAMETERS[flash].times(catalog.entry("software", stack).value("flash_published", 1.0))
    return known


#: Lineages that stacks state.
LINEAGES = frozenset(map(lineage_of, catalog.names("software"))) - {""}


def name_of(parameter: Parameter) -> str:
    """Field of :class:`dse.types.Software`."""
    return parameter.path.rpartition(".")[2]


NAMES = tuple(name_of(p) for p in PARAMETERS)


def own_names(software: Software) -> list[str]:
    """What is fitted of a stack alone, at most five: its attention kernel, or its host where it has no flash."""
    other = "host_time" if software.attention == Attention.flash else "flash_slowdown"
    return [name for name in OWN if name != other]


def fitted_as(stack: str) -> str:
    """The stack whose numbers this one has."""
    return ALIKE.get(stack, stack)


def prior_of(whose: str, name: str) -> float:
    """Prior spreads that a column's ``z`` is believed to stray."""
    if not whose:
        return 1.0
    if whose in FAMILIES:
        return FAMILY[name]
    return (LINEAGE if whose in LINEAGES else OWN)[name]


def is_physical(name: str, values: Mapping[str, float]) -> bool:
    """Whether one of a stack's values is in the range in which it is what its name says.

    A step's attention takes the slow-down of its matrices too: both together compare it with the best kernel alone.
    """
    low, high = PHYSICAL.get(name, (0.0, np.inf))
    value = values[name] * (values["matrix_slowdown"] if name == "flash_slowdown" else 1.0)
    return low <= value <= high
