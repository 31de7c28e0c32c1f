"""The model: layout, work, machine, parallel, steps and accounts of a design; serving over the same ledger.

Answers what one step of training or of an engine takes: time, memory, energy, money, and whether it can run. It is a
pure function of a design's scalars: no input or output, no branch on a traced value, SI units.

Knows the records of `dse.types` and nothing above itself. A design without a record (experts, tiers, a schedule …) is
another structure: what it lacks is the literal 0, which adds no equation (`choice.py`). Records always present, with
neutral values, were tried: a first evaluation and each further one would take a multiple of the time.

Start with `layout.py` (sizes per device), then `work/ledger.py` (operators and messages as data, of which all accounts
are folds), `steps/training.py` and `serving/step.py`.
"""

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
