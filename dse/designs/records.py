"""Optional records of a design, paths with names, and default mappings."""

from __future__ import annotations

import dataclasses
from collections.abc import Container

from dse.types import (
    MEASURED_ALONE,
    SHARED_KERNEL_LEAVES,
    Adapters,
    AttentionKernels,
    CacheTiers,
    Chip,
    ContextParallel,
    Convergence,
    Design,
    Emissions,
    Engine,
    ExpertKernels,
    ExpertMapping,
    Experts,
    Fab,
    FarMemory,
    FineKernels,
    HostTiers,
    Latent,
    Links,
    Load,
    Manufacture,
    Mapping,
    NanoBatches,
    Package,
    Packing,
    Pods,
    Precision,
    Prices,
    Recurrent,
    Reliability,
    Requests,
    Reuse,
    Serving,
    Sharding,
    Sparse,
    Spill,
    Tiers,
    paths,
)

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

#: Records of a mapping and a stack for workloads with experts.
OF_EXPERTS: dict[str, type] = {"mapping.experts": ExpertMapping, "software.experts": ExpertKernels}

#: Records of a model's shape besides experts: path → class.
OF_SHAPE: dict[str, type] = {
    "workload.latent": Latent,
    "workload.recurrent": Recurrent,
    "workload.sparse": Sparse,
}

#: Records of training options, present where one of their leaves is stated.
OF_TRAINING: dict[str, type] = {
    "workload.adapters": Adapters,
    "workload.packing": Packing,
    "mapping.sharding": Sharding,
    "mapping.context": ContextParallel,
    "mapping.tiers": Tiers,
    "system.host_tiers": HostTiers,
    "system.reliability": Reliability,
    "workload.convergence": Convergence,
}

#: Leaves, or their prefixes, that only training reads.
TRAINING_ALONE = (
    *(
        f"system.reliability.{name}"
        for name in (
            "checkpoint",
            "storage_bandwidth",
            "copy_interference",
            "slow_nodes",
            "straggler_slowdown",
            "congestion",
        )
    ),
    *(
        f"mapping.{name}"
        for name in (
            "cp",
            "micro_batch",
            "virtual_stages",
            "recompute",
            "recompute_share",
            "zero_stage",
            "sequence_parallel",
            "dp_replicate",
            "offload_weights",
            "offload_activations",
            "offload_optimizer",
            "overlap_dp",
            "sharding.",
            "tiers.",
            "context.",
            "experts.overlap_ep",
        )
    ),
    *(
        f"workload.{name}"
        for name in (
            "global_batch",
            "seq_len",
            "dropout",
            "backward",
            "run_tokens",
            "adapters.",
            "packing.",
            "convergence.",
            "experts.n_predict",
        )
    ),
)

#: Load of a serving design, and the rate of an open one.
LOAD, REQUEST_RATE = "workload.requests.load", "workload.requests.request_rate"

#: Leaf → the record that is absent for the value 0 on an axis.
RECORDS_ABSENT_AT_ZERO = {"workload.adapters.rank": "workload.adapters"}

#: Records of a serving design.
OF_SERVING: dict[str, type] = {
    "workload.requests": Requests,
    "mapping.serving": Serving,
    "software.engine": Engine,
    "mapping.nano": NanoBatches,
    "mapping.spill": Spill,
    "mapping.cache_tiers": CacheTiers,
    "system.far": FarMemory,
    "workload.reuse": Reuse,
}

#: Prefixes of leaves that only serving reads, which the section ``[serving]`` may fix, and which imply serving.
LEAVES_OF_SERVING = (*(f"{path}." for path in OF_SERVING), "system.host_slowdown")

#: Dies and price of the accelerator, from the catalogue.
MANUFACTURE = "system.accelerator.made"
#: TDP, under which times were measured, so that they do not depend on it.
LIMIT_AS_SOLD = "system.accelerator.power.tdp"

#: Records of cost and emissions, with defaults where absent.
OF_MONEY: dict[str, type] = {
    MANUFACTURE: Manufacture,
    "system.accelerator.fab": Fab,
    "system.prices": Prices,
    "system.emissions": Emissions,
}

_KERNELS = "system.accelerator.kernels."

#: GEMMs and attention measured alone, which steps of engines take.
OF_KERNELS: dict[str, type] = {
    f"{_KERNELS}fine": FineKernels,
    f"{_KERNELS}attention": AttentionKernels,
}

#: Leaves of these, or their prefixes, which training does not read.
LEAVES_UNREAD_BY_TRAINING = tuple(f"{path}." for path in OF_KERNELS)

#: Kernels that engines do not read: of a training step, and what kernels alone have beyond rooflines in a graph.
LEAVES_UNREAD_BY_ENGINES = tuple(
    f"{_KERNELS}{name}"
    for name in (
        *MEASURED_ALONE,
        "matrix_depth",
        *(
            f"fine.{name}"
            for name in (
                "gemm_floor",
                "split_time",
                "tile_feed",
                "output_overhead",
                "narrow_efficiency",
                "quantize_",
                "block_",
            )
        ),
        *(
            f"attention.{name}"
            for name in (
                "context_floor",
                "decode_efficiency",
                "decode_tile",
                "decode_split",
                "decode_floor",
                "grouped_floor",
            )
        ),
    )
)


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
    **OF_KERNELS,
    PODS: Pods,
    LINKS: Links,
    PACKAGE: Package,
    EXPERTS: Experts,
    **OF_SHAPE,
    **OF_EXPERTS,
    **OF_TRAINING,
    **OF_SERVING,
    **OF_MONEY,
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
