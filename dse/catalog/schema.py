"""What a catalogue file may hold: one pydantic model a kind, derived from the nouns of ``dse.types``."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator, model_validator

from dse import types
from dse.catalog.fields import File, Sourced, Text, leaves, quantities, steps_type, table, without
from dse.errors import InputError

_HOST = quantities(host_memory="B", host_bandwidth="B/s", host_power="W", host_power_share="1", pue="1")
_NODE = quantities(devices_per_node="1", scale_up_bandwidth="B/s", scale_out_bandwidth="B/s") | _HOST
Node = table("Node", {}, dict(scale_up=Text, scale_out=Text, software=Text) | _NODE)
Device = table("Device", {}, quantities(vector_share="1", cores="1", cache="B", tdp="W", clock="Hz"))
Physical = table(
    "Physical", {},
    dict(process_node=Text, host_link=Text)
    | quantities(
        compute_dies="1", die_area="m^2", transistors="1", tdp="W", idle_power="W", boost_clock="Hz", price="USD",
        vector_rate_fp64="FLOP/s", onchip_memory="B", host_bandwidth="B/s",
    ),
)  # fmt: skip
Structure = table(
    "Structure", {}, quantities(cores="1", vector_rate_16bit="FLOP/s", cache_bandwidth="B/s", onchip_bandwidth="B/s")
)
#: Power at rest, which a family states as shares of the power limit as sold.
AT_REST = ("uncore", "leakage", "control")
_POWER = leaves(types.Power)
Power = table("Power", {}, without(_POWER, {"tdp"}))  # tdp and the boost clock are physical
FamilyPower = table(
    "FamilyPower", {},
    without(_POWER, {*AT_REST, "tdp", "nominal_clock", "clock", "limit", "feed"})
    | quantities(**{f"{name}_share": "1" for name in AT_REST}),
)  # fmt: skip
Link = table("Link", {}, dict(kind=Text, topology=Text) | quantities(bandwidth="B/s", domain="1"))
Memory = table("Memory", leaves(types.MemoryTier), dict(kind=Text))
Steps = table("Steps", {}, dict(matrix=steps_type("FLOP"), vector=steps_type("FLOP"), memory=steps_type("B")))


class KernelChoice(table("KernelChoice", {}, dict(family=Text) | leaves(types.Kernels))):
    """An accelerator's own kernel efficiencies; ``steps`` where they are given in steps of an operator's size."""

    steps: Steps = Field(default_factory=Steps)


class MatrixRate(table("MatrixRate", {}, leaves(types.MatrixRate) | quantities(fp64="FLOP/s"))):
    """Dense matrix rates; at least one."""

    @model_validator(mode="after")
    def _some_rate(self) -> MatrixRate:
        if not any(isinstance(value, Sourced) and value.value for value in self.__dict__.values()):
            raise InputError("", "no rate", "at least one of bf16, fp16, fp8, …", 'add bf16 = "… TFLOP/s"')
        return self


#: What an accelerator is generated from: names, and leaves that differ from those of its architecture.
_BUDGETS = leaves(types.Chip, "die_area", "power_budget", "stacks")
Chip = table(
    "Chip", dict(architecture=Text, node=Text, memory=Text) | _BUDGETS,
    dict(base_node=Text) | without(leaves(types.Chip), set(_BUDGETS)),
)  # fmt: skip

_DESCRIPTION = dict(vendor=Text, architecture=Text, status=Text) | quantities(year="1")


class Accelerator(
    table("AcceleratorFile", {}, _DESCRIPTION | leaves(types.Accelerator, "vector_rate", "cache"), File)
):
    """One device; all but the matrix rate and the memory falls back on its kernel family.

    One with a ``chip`` is generated from it, and states neither.
    """

    kernels: KernelChoice = Field(default_factory=KernelChoice)
    matrix_rate: MatrixRate | None = None
    memory: Memory | None = None
    chip: Chip | None = None
    structure: Structure = Field(default_factory=Structure)
    physical: Physical = Field(default_factory=Physical)
    power: Power = Field(default_factory=Power)
    link: Link = Field(default_factory=Link)
    node: Node = Field(default_factory=Node)

    @field_validator("kernels", mode="before")
    @classmethod
    def _family_alone(cls, raw: Any) -> Any:
        return {"family": raw} if isinstance(raw, str) else raw

    @model_validator(mode="after")
    def _stated_or_generated(self) -> Accelerator:
        for name in ("matrix_rate", "memory"):
            stated = getattr(self, name) is not None
            if self.chip is not None and stated:
                raise InputError(name, "both", f"{name} or a chip that makes it", f"remove [{name}] or [chip]")
            if self.chip is None and not stated:
                fix = f"add {name} (is the file complete?)"
                raise InputError(name, "nothing", "a value: the field is required", fix)
        return self


Fine = table("Fine", {}, leaves(types.FineKernels) | leaves(types.Kernels))
AttentionKernels = table("AttentionKernels", {}, leaves(types.AttentionKernels))
CollectiveKernels = table(
    "CollectiveKernels", {},
    leaves(types.CollectiveKernels) | leaves(types.Network, "latency", "efficiency", "ramp", "in_network_reduction"),
)  # fmt: skip


class KernelFamily(table("KernelFamilyFile", {}, dict(family=Text) | leaves(types.Kernels), File)):
    """Kernel efficiencies of a chip or a family, and what stands in for what its accelerators leave out.

    What it leaves out itself is that of the ``family`` it names. ``fine`` restates those leaves that take
    another value beside the finer terms. ``alone`` is what collectives of every network share. ``power`` holds
    energies, and power at rest in shares of the power limit as sold.
    """

    device: Device = Field(default_factory=lambda: Device())
    node: Node = Field(default_factory=lambda: Node())
    fine: Fine = Field(default_factory=lambda: Fine())
    attention: AttentionKernels = Field(default_factory=lambda: AttentionKernels())
    power: FamilyPower = Field(default_factory=lambda: FamilyPower())
    alone: CollectiveKernels = Field(default_factory=lambda: CollectiveKernels())


Volumes = table("Volumes", {}, leaves(types.Volumes))
Fit = table("Fit", leaves(types.Network, "latency", "efficiency", "ramp", "processor_usage"), {})


class Network(
    table(
        "NetworkFile", leaves(types.Network, "bandwidth", "domain"),
        dict(family=Text, scope=Text, topology=Text, lanes=Text) | leaves(types.Network, "in_network_reduction")
        | quantities(year="1", wire_latency="s", energy="J/B"), File,
    )
):  # fmt: skip
    """One network level: what is built, and how near software comes to it (``fit``)."""

    fit: Fit
    volumes: Volumes = Field(default_factory=Volumes)
    alone: CollectiveKernels = Field(default_factory=lambda: CollectiveKernels())


class System(
    table(
        "SystemFile",
        dict(accelerator=Text, scale_up=Text, scale_out=Text, software=Text) | quantities(devices_per_node="1"),
        dict(topology=Text) | _HOST
        | quantities(scale_up_bandwidth="B/s", scale_out_bandwidth="B/s", nics_per_node="1"),
        File,
    )
):
    """A cluster of nodes; ``sources`` names the measured sources that ran there."""

    sources: list[str] = Field(default_factory=list)


class Software(
    table(
        "SoftwareFile", without(leaves(types.Software), set(types.defaults(types.Software))),
        dict(family=Text) | leaves(types.Software, *types.defaults(types.Software))
        | quantities(zero_stage="1", sequence_parallel="1", overlap_dp="1", overlap_tp="1", residual="1"), File,
    )
):  # fmt: skip
    """A stack, what it does where a mapping leaves it open, and in ``sources`` the measured sources that used it.

    ``family`` names the chips of a stack that nothing was measured of: it gets what their stacks share.
    """

    sources: list[str] = Field(default_factory=list)


_SHAPE = leaves(types.Workload)
_OPTIONAL = set(_SHAPE) - {"n_layers", "hidden", "n_heads", "ffn_hidden", "vocab", "seq_len"}


class Workload(
    table(
        "WorkloadFile", without(_SHAPE, _OPTIONAL),
        without(_SHAPE, set(_SHAPE) - _OPTIONAL) | dict(family=Text)
        | quantities(max_seq_len="1", parameters_published="1"), File,
    )
):  # fmt: skip
    """A dense decoder transformer."""

    n_experts: Any = None

    @field_validator("n_experts")
    @classmethod
    def _dense(cls, raw: Any) -> Any:
        if raw != 1:
            raise InputError("", repr(raw), "1 or absent", "mixture of experts is not modelled yet: use a dense model")
        return raw


#: Kind → schema of its files.
SCHEMAS: dict[str, type[File]] = {
    "accelerator": Accelerator, "network": Network, "system": System, "software": Software,
    "workload": Workload, "kernels": KernelFamily,
}  # fmt: skip

#: Tables whose fields keep their plain names in an entry; the others prefix theirs (``memory.bandwidth``).
GROUPS = ("structure", "physical", "fit")
