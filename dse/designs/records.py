"""Optional records of a design, paths with names, and default mappings."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Mapping as MappingABC, Sequence
from pathlib import Path

from dse import types
from dse.io import toml
from dse.types import (
    MEASURED_ALONE,
    SHARED_KERNEL_LEAVES,
    Adapters,
    Chip,
    Design,
    Engine,
    ExpertMapping,
    Experts,
    Links,
    Load,
    Mapping,
    Package,
    Pods,
    Precision,
    Requests,
    Serving,
    paths,
)

#: Rows of optional records, and of what is checked of them.
TABLE = toml.table(Path(__file__).with_suffix(".toml"))


def _records(*groups: str) -> dict[str, type]:
    """Return path → class of the optional records of groups of the table."""
    return {path: getattr(types, name) for group in groups for path, name in TABLE[group].items()}


def _prefixes(names: MappingABC[str, Sequence[str]]) -> tuple[str, ...]:
    """Return full paths of leaves, or their prefixes, by path and names below it."""
    return tuple(f"{path}.{name}" for path, path_names in names.items() for name in path_names)


#: Default mapping by full path: one device, nothing split. Optional leaves have their equivalent values.
PLAIN_MAPPING = {
    **{
        path: about.get("default", 0.0)
        for path, about in paths.leaves(Mapping, "mapping.").items()
        if about.get("default", 0.0) is not None
    },
    **{f"mapping.{name}": 1.0 for name in ("tp", "pp", "dp", "cp", "micro_batch", "virtual_stages")},
    "mapping.precision": float(Precision.bf16),
}

#: Default mapping of experts.
PLAIN_EXPERTS = {path: about["default"] for path, about in paths.leaves(ExpertMapping, "mapping.experts.").items()}

N_DEVICES = "system.n_devices"

#: Tokens of a training run; files of models state those of pre-training.
RUN_TOKENS = "workload.run_tokens"

#: Default tokens of a run that trains adapters: 100,000 examples of 1,000 tokens, once.
TUNING_TOKENS = 1e8

#: Record of an over-subscribed scale-out network.
PODS = "system.scale_out.pods"

#: Records of links without a switch, and of packages within a domain.
LINKS, PACKAGE = "system.scale_up.links", "system.scale_up.package"

#: Prefix of the leaves of a stack's capabilities.
CAN = "software.can."

#: Record of a generated accelerator.
CHIP = "system.accelerator.chip"

#: Record of a mixture of experts.
EXPERTS = "workload.experts"

#: Records of a mapping and a stack for workloads with experts, and of a model's shape besides experts: path → class.
OF_EXPERTS, OF_SHAPE = _records("experts"), _records("shape")

#: Leaves, or their prefixes, that only training reads.
TRAINING_ALONE = _prefixes(TABLE["training_alone"])

#: Load of a serving design, and the rate of an open one.
LOAD, REQUEST_RATE = "workload.requests.load", "workload.requests.request_rate"

#: Leaf → the record that is absent for the value 0 on an axis.
RECORDS_ABSENT_AT_ZERO = {"workload.adapters.rank": "workload.adapters"}

#: Records of a serving design, and of cost and emissions, with defaults where absent.
OF_SERVING, OF_MONEY = _records("serving"), _records("money")

#: Prefixes of leaves that only serving reads, which the section ``[serving]`` may fix, and which imply serving.
LEAVES_OF_SERVING = (*(f"{path}." for path in OF_SERVING), "system.host_slowdown")

#: Dies and price of the accelerator, from the catalogue.
MANUFACTURE = "system.accelerator.made"
#: TDP, under which times were measured, so that they do not depend on it.
LIMIT_AS_SOLD = "system.accelerator.power.tdp"

_KERNELS = "system.accelerator.kernels."

#: GEMMs and attention measured alone, which steps of engines take, and training does not read.
OF_KERNELS = _records("kernels")
LEAVES_UNREAD_BY_TRAINING = tuple(f"{path}." for path in OF_KERNELS)

#: Kernels that engines do not read: of a training step, and what kernels alone have beyond rooflines in a graph.
LEAVES_UNREAD_BY_ENGINES = (*(_KERNELS + name for name in MEASURED_ALONE), *_prefixes(TABLE["unread_by_engines"]))


def read_instead(path: str, unread: tuple[str, ...]) -> str:
    """Return the name of the kernel leaf that is read in place of an unread one, "" where there is none.

    Args:
        path: full path of the unread leaf.
        unread: prefixes of the leaves that a study does not read.

    >>> read_instead("system.accelerator.kernels.matrix_efficiency", LEAVES_UNREAD_BY_ENGINES)
    'gemm_efficiency'
    """
    name = path.removeprefix(_KERNELS)
    other = f"fine.{MEASURED_ALONE[name]}" if name in MEASURED_ALONE else SHARED_KERNEL_LEAVES.get(name, "")
    return "" if f"{_KERNELS}{other}".startswith(unread) else other.rpartition(".")[2]


#: Optional records: path → class.
OPTIONAL: dict[str, type] = {
    CHIP: Chip,
    **_records("kernels"),
    PODS: Pods,
    LINKS: Links,
    PACKAGE: Package,
    EXPERTS: Experts,
    **_records("shape", "experts", "training", "serving", "money"),
}


def assumed_tokens(explicit_paths: Container[str]) -> dict[str, float]:
    """Return full path → assumed tokens of a run of adapters.

    Empty where tokens are stated or nothing is adapted.

    Args:
        explicit_paths: full paths of the stated leaves, and names of records.

    >>> assumed_tokens({"workload.adapters.rank": 16.0})
    {'workload.run_tokens': 100000000.0}
    """
    adapts = any(path in explicit_paths for path in paths.leaves(Adapters, "workload.adapters."))
    return {RUN_TOKENS: TUNING_TOKENS} if adapts and RUN_TOKENS not in explicit_paths else {}


def implied_values(explicit_paths: Container[str]) -> dict[str, float]:
    """Return full path → value of leaves that follow from stated ones: tokens of adapters, the load of a stated rate.

    Args:
        explicit_paths: full paths of the stated leaves, and names of records.

    >>> implied_values({"workload.requests.request_rate": 5.0})
    {'workload.requests.load': 4.0}
    """
    arrives = REQUEST_RATE in explicit_paths and LOAD not in explicit_paths
    return assumed_tokens(explicit_paths) | ({LOAD: float(Load.rate)} if arrives else {})


def tokens_note(explicit_paths: Container[str]) -> str:
    """Return the note that the tokens of a run of adapters are assumed, "" where they are not."""
    if not assumed_tokens(explicit_paths):
        return ""
    return (
        f"run_tokens of adapters: {TUNING_TOKENS:,.0f} assumed, not those of pre-training; time, energy and money of a "
        "whole run are proportional to it: set run_tokens to the tokens of your set times its epochs"
    )


def with_serving_defaults(design: Design) -> Design:
    """Return the design with default requests, serving options and engine where it has none."""
    records = design.workload.requests, design.mapping.serving, design.software.engine
    requests, serving, engine = records[0] or Requests(), records[1] or Serving(), records[2] or Engine()
    return dataclasses.replace(
        design,
        workload=dataclasses.replace(design.workload, requests=requests),
        mapping=dataclasses.replace(design.mapping, serving=serving),
        software=dataclasses.replace(design.software, engine=engine),
    )


def is_of_model(path: str) -> bool:
    """True for a leaf that describes the model itself, not its requests or its training."""
    other_prefixes = ("workload.requests.", "workload.reuse.", *TRAINING_ALONE)
    return path.startswith("workload.") and not path.startswith(other_prefixes)
