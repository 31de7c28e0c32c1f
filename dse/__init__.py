"""Design-space exploration of LLM training and serving.

``dse.design(...)`` makes a design from names, ``dse.evaluate(design)`` gives its time and memory,
``dse.run(sweep)`` does so for millions at once. Everything is imported when it is first used,
so that ``import dse`` costs nothing.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

__version__ = "0.2.0"

#: Public name → the module that defines it.
_PUBLIC = {
    "design": "dse.designs.composing",
    "explain": "dse.views.explanation",
    "open_results": "dse.sweep.results.files",
    "overview": "dse.sweep.results.files",
    "serve_pools": "dse.doors.pools",
    "value_and_grad": "dse.sweep.engine.gradients",
    "InputError": "dse.errors",
    **dict.fromkeys(
        ("Accelerator", "Design", "Infeasible", "Kernels", "Mapping", "MatrixRate", "MemoryTier", "Metrics", "Network",
         "Precision", "Recompute", "ServingMetrics", "Software", "System", "Workload"),
        "dse.types",
    ),
}  # fmt: skip

#: Public name of a module → the module.
_MODULES = {
    "catalog": "dse.designs.catalog",
    "plot": "dse.views.plot",
    **{name: f"dse.{name}" for name in ("cli", "errors", "measured", "model", "optimizers", "spec", "sweep", "types")},
}

__all__ = ["__version__", *_PUBLIC, *_MODULES]


def __getattr__(name: str) -> Any:
    """Return a public name, whose module is imported at the first use."""
    if name in _PUBLIC:
        value = getattr(importlib.import_module(_PUBLIC[name]), name)
        setattr(sys.modules[__name__], name, value)
        return value
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    folder = Path(__file__).parent
    if name.startswith("_") or (folder / name).exists() or (folder / f"{name}.py").exists():  # a module to be imported
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = importlib.import_module("dse.reports.registry").function(name)
    setattr(sys.modules[__name__], name, value)
    return value


def __dir__() -> list[str]:
    from dse.reports.registry import MODULES

    return sorted({*__all__, *MODULES})
