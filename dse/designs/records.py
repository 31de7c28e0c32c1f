"""Records of a design that only some have, paths that others name, and the mapping of one that says nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Container

from dse.types import (
    Adapters,
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
    HostTiers,
    Latent,
    Links,
    Made,
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
    Serving,
    Sharding,
    Sparse,
    Spill,
    Tiers,
    paths,
)

#: Mapping of a design that says nothing else, by full path: one device, nothing split. A leaf that may be absent is.
PLAIN_MAPPING = {
    **{
        path: about.get("default", 0.0)
        for path, about in paths.leaves(Mapping, "mapping.").items() if about.get("default", 0.0) is not None
    },
    **{f"mapping.{name}": 1.0 for name in ("tp", "pp", "dp", "cp", "micro_batch", "virtual_stages")},
    "mapping.precision": float(Precision.bf16),
}

#: What it says of experts, where the workload has any.
PLAIN_EXPERTS = {path: about["default"] for path, about in paths.leaves(ExpertMapping, "mapping.experts.").items()}

N_DEVICES = "system.n_devices"

#: The tokens of a whole run; those that a model's file states are of its pre-training.
RUN_TOKENS = "workload.run_tokens"

#: Tokens of a run that trains adapters where nobody says how many: a set of 100,000 examples of 1,000 tokens, once.
TUNING_TOKENS = 1e8

#: The record that an over-subscribed scale-out network has and others lack.
PODS = "system.scale_out.pods"

#: The records of links that no switch joins, and of packages within a domain.
LINKS, PACKAGE = "system.scale_up.links", "system.scale_up.package"

#: How the leaves begin that say what a stack can do.
CAN = "software.can."

#: The record that a generated accelerator has and an ordinary one lacks.
CHIP = "system.accelerator.chip"

#: The record that a mixture of experts has and a dense model lacks.
EXPERTS = "workload.experts"

#: Records of a mapping and a stack that are there where the workload has experts.
OF_EXPERTS: dict[str, type] = {"mapping.experts": ExpertMapping, "software.experts": ExpertKernels}

#: Records of a model's shape beside its experts: path → class.
OF_SHAPE: dict[str, type] = {
    "workload.latent": Latent, "workload.recurrent": Recurrent, "workload.sparse": Sparse,
}  # fmt: skip

#: Records of how a model is trained, which a design has that states a leaf of theirs.
OF_TRAINING: dict[str, type] = {
    "workload.adapters": Adapters, "workload.packing": Packing, "mapping.sharding": Sharding,
    "mapping.context": ContextParallel, "mapping.tiers": Tiers, "system.host_tiers": HostTiers,
    "system.reliability": Reliability, "workload.convergence": Convergence,
}  # fmt: skip

#: Leaves, or how they begin, that only training reads.
TRAINING_ALONE = (
    *(f"system.reliability.{name}" for name in (
        "checkpoint", "storage_bandwidth", "copy_interference", "straggler_slowdown", "congestion",
    )),
    *(f"mapping.{name}" for name in (
        "cp", "micro_batch", "virtual_stages", "recompute", "recompute_share", "zero_stage", "sequence_parallel",
        "dp_replicate", "offload_weights", "offload_activations", "offload_optimizer", "overlap_dp", "sharding.",
        "tiers.", "context.", "experts.overlap_ep",
    )),
    *(f"workload.{name}" for name in ("global_batch", "seq_len", "dropout", "backward", "run_tokens", "adapters.",
                                      "packing.", "convergence.", "experts.n_predict")),
)  # fmt: skip

#: Leaf → the record that a design is without where an axis has 0 among its values.
WITHOUT = {"workload.adapters.rank": "workload.adapters"}

#: Records of a design that serves.
OF_SERVING: dict[str, type] = {
    "workload.requests": Requests, "mapping.serving": Serving, "software.engine": Engine, "mapping.nano": NanoBatches,
    "mapping.spill": Spill, "system.far": FarMemory,
}  # fmt: skip

#: How the leaves of these begin: the section ``[serving]`` may fix them, and itself asks for serving.
LEAVES_OF_SERVING = tuple(f"{path}." for path in OF_SERVING)

#: What the accelerator is made of and sold at, as the catalogue knows it.
MADE = "system.accelerator.made"
#: The power limit as sold, under which times were measured: they do not follow it.
LIMIT_AS_SOLD = "system.accelerator.power.tdp"

#: Records of what a design costs and emits; the defaults of each hold where it is absent.
OF_MONEY: dict[str, type] = {
    MADE: Made, "system.accelerator.fab": Fab, "system.prices": Prices, "system.emissions": Emissions,
}  # fmt: skip

#: Records that only some designs have: path → class.
OPTIONAL: dict[str, type] = {
    CHIP: Chip, PODS: Pods, LINKS: Links, PACKAGE: Package, EXPERTS: Experts, **OF_SHAPE, **OF_EXPERTS,
    **OF_TRAINING, **OF_SERVING, **OF_MONEY,
}  # fmt: skip


def assumed_tokens(stated: Container[str]) -> dict[str, float]:
    """Full path → tokens that a run of adapters is taken to have where it does not say so, else nothing.

    Args:
        stated: full paths of the leaves that a design says, beside the names of its records.

    >>> assumed_tokens({"workload.adapters.rank": 16.0})
    {'workload.run_tokens': 100000000.0}
    """
    adapts = any(path in stated for path in paths.leaves(Adapters, "workload.adapters."))
    return {RUN_TOKENS: TUNING_TOKENS} if adapts and RUN_TOKENS not in stated else {}


def tokens_note(stated: Container[str]) -> str:
    """That the tokens of a run of adapters are assumed, in one line; empty where they are said, or all is trained."""
    if not assumed_tokens(stated):
        return ""
    return (
        f"run_tokens of adapters: {TUNING_TOKENS:,.0f} assumed, not those of pre-training; time, energy and money of a "
        "whole run are proportional to it: set run_tokens to the tokens of your set times its epochs"
    )


def with_serving_defaults(design: Design) -> Design:
    """The design with requests, serving and an engine, as they are where nothing is said of them."""
    given = design.workload.requests, design.mapping.serving, design.software.engine
    requests, serving, engine = given[0] or Requests(), given[1] or Serving(), given[2] or Engine()
    return dataclasses.replace(
        design,
        workload=dataclasses.replace(design.workload, requests=requests),
        mapping=dataclasses.replace(design.mapping, serving=serving),
        software=dataclasses.replace(design.software, engine=engine),
    )


def is_of_model(path: str) -> bool:
    """Whether a leaf tells what a model is: not what is asked of it, nor what only training reads."""
    return path.startswith("workload.") and not path.startswith(("workload.requests.", *TRAINING_ALONE))
