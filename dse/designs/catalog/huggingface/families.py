"""What the models of a type have in common and no key of their configuration says."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dse.io import toml

_FOLDER = Path(__file__).parent

#: Keys of configurations by what they say.
KEYS: Mapping[str, Any] = toml.table(_FOLDER / "keys.toml")

#: ``model_type`` → key → default of its configuration class.
CLASSES: Mapping[str, Mapping[str, Any]] = toml.table(_FOLDER / "classes.toml")


@dataclasses.dataclass(frozen=True)
class Family:
    """What the models of a type have in common."""

    gated: bool | None = True  #: whether feed-forwards have a gate; None: by the activation
    positions: str = "rotary"  #: ``rotary``, ``learned``, or ``alibi`` and ``none``, which have no parameters
    parallel: bool = False  #: attention and feed-forward in parallel
    four_times: bool = False  #: feed-forwards four times as wide as the model unless a key says another width
    ffn_divisor: int = 1  #: of the key of the width of a feed-forward: 2 where it is that of up and gate together
    local: str = ""  #: which layers have the window: ``all``, ``late``, or how many of how many: ``5 of 6``
    norm_vectors: int = 0  #: vectors of a norm: 1 a scale, 2 with a shift; 0 where keys say it
    biases: str = ""  #: matrices with biases that no key says: ``qkv``, ``mlp`` or ``all``
    expert_width: str = ""  #: key of the width of a routed expert, where it is another
    dense_width: str = ""  #: key of the width of layers without experts, where it is another
    shared_width: str = ""  #: key of the width of one shared expert, where it is not that of a routed one
    shared_switch: str = ""  #: key that must be true for shared experts to count
    one_shared: bool = False  #: whether each layer has one shared expert as wide as a routed one
    biased_experts: bool = False  #: whether the products of experts have biases
    clamped_experts: bool = False  #: whether a kernel of its own clamps the inputs of the experts' activation
    hybrid: str = ""  #: layers with a state: ``delta``, ``blocks`` (Nemotron-H), ``mamba`` or ``lightning``
    output_gate: bool = False  #: whether the output of attention has a gate
    left_out: str = ""  #: what of its layers a workload does not have


#: ``model_type`` → its family.
FAMILIES: Mapping[str, Family] = {kind: Family(**row) for kind, row in toml.table(_FOLDER / "families.toml").items()}

#: Family of a type without a row: what no key says is guessed, and said so.
UNKNOWN = Family(gated=None)
