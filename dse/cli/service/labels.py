"""What the predictions of an answer rest on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def labelled(name: str, request: Mapping[str, Any], document: Any) -> Any:
    """A document of one design with ``basis``: the label of its predictions, why, and the sources of the fit.

    ``fitted``: within the rows that the stack was fitted to. ``extrapolated``: beyond them, for each reason given.
    ``uncalibrated``: nobody has fitted the stack. Money and carbon are ``estimated``: prices are not fitted. Values of
    the catalogue carry their confidence themselves.
    """
    if name not in ("evaluate", "serve"):
        return document
    from dse.designs.calibrated import ranges
    from dse.designs.catalog import default_software, entry
    from dse.measured.uncertainty.bills import METRICS

    serving, workload, system = name == "serve", request["workload"], request["system"]
    stack = request.get("software") or default_software(system, serving=serving, workload=workload)
    sources = list(entry("software", stack).value("calibrated.sources") or ())
    label = "uncalibrated" if not ranges(stack) else "extrapolated" if document["outside"] else "fitted"
    labels = {metric: "estimated" if metric in METRICS else label for metric in document["intervals"]}
    return document | {"basis": {"label": label, "why": document["outside"], "sources": sources, "numbers": labels}}
