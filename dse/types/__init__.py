"""The nouns: what a design is made of and what the model says of it.

Every class is a frozen dataclass registered as a JAX pytree. Every leaf is one real
number in SI units (bytes, seconds, FLOP/s, bytes/s), or the integer code of a
categorical choice, so any leaf may be traced, vmapped, differentiated or swept.
Nothing here is static: another workload, system or mapping never recompiles the model.
"""

from dse.types.choices import (
    INFEASIBLE_MEANING,
    Attention,
    Collective,
    ContextExchange,
    Infeasible,
    Load,
    MessageKind,
    OperatorKind,
    Placement,
    Precision,
    Recompute,
    SequenceParallel,
    choice_name,
)
from dse.types.design import Design
from dse.types.fields import (
    COUNT,
    NOT_NEGATIVE,
    POSITIVE,
    POSITIVE_SHARE,
    SHARE,
    SIGNED,
    YES_OR_NO,
    Bounds,
    Scalar,
    field_metadata,
    metadata,
    record,
)
from dse.types.kernels import AttentionKernels, EfficiencySteps, FineKernels, Kernels, Steps
from dse.types.machine import HOST, Accelerator, HostTiers, MatrixRate, MemoryTier, System
from dse.types.metrics import Metrics
from dse.types.network import CollectiveKernels, Network, Pods, Volumes
from dse.types.operations import Dimension, Element, Group, Message, Operator, Scope, Window, Work
from dse.types.power import Power
from dse.types.serving import Engine, Requests, Serving, ServingMetrics
from dse.types.software import (
    Capabilities,
    ContextParallel,
    ExpertKernels,
    ExpertMapping,
    Mapping,
    Sharding,
    Software,
    Tiers,
)
from dse.types.technology import GENERATED, Board, Chip, LogicNode, MemoryTechnology
from dse.types.workload import Adapters, Experts, Latent, Packing, Workload

__all__ = [
    "COUNT",
    "GENERATED",
    "HOST",
    "INFEASIBLE_MEANING",
    "NOT_NEGATIVE",
    "POSITIVE",
    "POSITIVE_SHARE",
    "SHARE",
    "SIGNED",
    "YES_OR_NO",
    "Accelerator",
    "Adapters",
    "Attention",
    "AttentionKernels",
    "Board",
    "Bounds",
    "Capabilities",
    "Chip",
    "Collective",
    "CollectiveKernels",
    "ContextExchange",
    "ContextParallel",
    "Design",
    "Dimension",
    "EfficiencySteps",
    "Element",
    "Engine",
    "ExpertKernels",
    "ExpertMapping",
    "Experts",
    "FineKernels",
    "Group",
    "HostTiers",
    "Infeasible",
    "Kernels",
    "Latent",
    "Load",
    "LogicNode",
    "Mapping",
    "MatrixRate",
    "MemoryTechnology",
    "MemoryTier",
    "Message",
    "MessageKind",
    "Metrics",
    "Network",
    "Operator",
    "OperatorKind",
    "Packing",
    "Placement",
    "Pods",
    "Power",
    "Precision",
    "Recompute",
    "Requests",
    "Scalar",
    "Scope",
    "SequenceParallel",
    "Serving",
    "ServingMetrics",
    "Sharding",
    "Software",
    "Steps",
    "System",
    "Tiers",
    "Volumes",
    "Window",
    "Work",
    "Workload",
    "choice_name",
    "field_metadata",
    "metadata",
    "record",
]
