"""The model: layout, work, machine, parallel, steps and accounts of a design; serving over the same ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dse.surface import attribute

if TYPE_CHECKING:
    from dse.model.accounts.feasibility import fits_probability
    from dse.model.capabilities import missing_capabilities
    from dse.model.divisibility import Shape as Shape
    from dse.model.formats import operand_bytes as operand_bytes
    from dse.model.layout import Layout as Layout, lay_out
    from dse.model.machine.routes import Route
    from dse.model.machine.technology import generated, memory_units as memory_units
    from dse.model.serving.memory import kv_capacity, weight_bytes
    from dse.model.serving.work import cache_bytes, stage_of
    from dse.model.steps.operating import operate
    from dse.model.work.batch import Batch as Batch
    from dse.model.work.operators import matmul_work as matmul_work
    from dse.model.work.parameters import main_model, parameter_count
    from dse.model.work.training import training_work
else:

    def __getattr__(name: str) -> Any:
        return attribute(__name__, name)


__all__ = [
    "Route",
    "cache_bytes",
    "fits_probability",
    "generated",
    "kv_capacity",
    "lay_out",
    "main_model",
    "missing_capabilities",
    "operate",
    "parameter_count",
    "stage_of",
    "training_work",
    "weight_bytes",
]
