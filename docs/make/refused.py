"""Measured figures that are not believed, with the errors that they would have: in no headline of any page."""

from __future__ import annotations

from collections.abc import Sequence

from docs.make.markdown import filed, percent
from dse.doors import SERVING
from dse.io import quantity
from dse.measured.comparison import Comparison

_ABOUT = (
    "Measured figures that bytes and FLOPs of the model on its devices rule out (`dse/model/serving/least.py`). None is "
    "fitted or in any other table."
)

_ASKED = {"batch": "batch", "isl": "prompt", "osl": "answer", "precision": "format"}
_HEADER = ("source", "model", "device", *_ASKED.values(), "metric", "measured", "at best", "predicted", "error")


def section(compared: Sequence[Comparison]) -> list[str]:
    """The heading, how many there are, and a line each; nothing where there is none."""
    refused = [c for c in compared if c.is_refused]
    if not refused:
        return []
    count = f"{len(refused)} of {sum(c.skip is None for c in compared) + len(refused):,} figures."
    lines = filed("serving_refused", _HEADER, map(_line, refused))
    return ["## Beyond a perfect roofline", f"{_ABOUT} {count} {lines}"]


def _line(c: Comparison) -> list[str]:
    row, units = c.measurement.row, SERVING.units[c.metric]
    devices = f"{row.get('n_gpus', 'n_devices')} x {row.get('gpu', 'accelerator', 'device')}"
    assert c.skip is not None
    best = c.skip.detail.rpartition("than ")[2]
    figures = (quantity(c.measured, units), best, quantity(c.predicted, units), percent(c.error, "+"))
    return [c.source, row.get("model"), devices, *map(row.get, _ASKED), c.metric, *figures]
