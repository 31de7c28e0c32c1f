"""What steps can tell of a software stack, and what is believed before: by its lineage, its chips, stacks like it."""

from __future__ import annotations

import functools

import numpy as np

from dse import catalog
from dse.calibrate.fit import Parameter
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

#: Between what a value is what its name says; beyond, it stands in for something that is not modelled.
PHYSICAL = {
    "matrix_slowdown": (1.0, 1.6), "elementwise_slowdown": (0.9, 3.0), "flash_slowdown": (0.8, 2.5),
    "communication_slowdown": (1.0, 3.0), "pp_overlap": (0.3, 1.0),
}  # fmt: skip

#: Stacks of which less is known beforehand: DeepSpeed of 2021 gathered tensor by tensor and copied each.
WIDER = {("deepspeed", "communication_slowdown"): 6.0}

#: Stacks that differ in a choice of the software or in the chips, and share what is fitted of another alone.
ALIKE = {
    "torchtitan-eager": "torchtitan", "fms-fsdp-a100": "fms-fsdp-h100", "jax-toolbox-a100": "jax-toolbox-h100",
    "mlperf-b200": "megatron-bridge", "nemo-24-03": "nemo",
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
    return (LINEAGE if whose in LINEAGES else OWN)[name] * WIDER.get((whose, name), 1.0)


def is_physical(name: str, value: float) -> bool:
    """Whether a value is in the range in which it is what its name says."""
    low, high = PHYSICAL.get(name, (0.0, np.inf))
    return low <= value <= high
