"""Layers of mixtures of experts stated by rows: dense layers, and multi-token prediction."""

from __future__ import annotations

import dataclasses
import re

from dse.measured.cells import Cells
from dse.measured.table import Skip
from dse.types import Scalar, Workload

#: Remarks on runs with and without multi-token prediction (NVIDIA's tables of Megatron-Bridge).
_FURTHER = r"\W+(MTP|multi-token prediction)\b"
_WITHOUT = re.compile(r"\b(w/o|without|no)" + _FURTHER, re.IGNORECASE)
_WITH = re.compile(r"\b(w/|with)" + _FURTHER, re.IGNORECASE)


def mixed(cells: Cells, workload: Workload) -> Workload:
    """The workload with the first dense layers and multi-token prediction of a row or its remarks.

    ``first_dense``: dense layers of a model cut to fewer layers.
    """
    experts = workload.experts
    if experts is None:
        return workload
    stated = cells.count("first_dense", least=0.0)
    if stated is not None and stated > workload.n_layers:
        raise Skip("not a usable number", f"first_dense = {stated:g} of {workload.n_layers:g} layers")
    first_dense = experts.first_dense if stated is None else stated
    imbalance = cells.number("imbalance", least=1.0)
    found = dataclasses.replace(
        experts,
        first_dense=first_dense,
        n_predict=_further(cells, experts.n_predict),
        imbalance=experts.imbalance if imbalance is None else imbalance,
    )
    return dataclasses.replace(workload, experts=found)


def truncate_model(whole: Workload, n_layers: float, workload: Workload) -> Workload:
    """The ``workload`` of a row with ``n_layers``, without multi-token prediction where ``whole`` has more layers.

    Models are cut to time a few layers of them. A layer that predicts a further token, with a head of its own, would be
    a fifth of four layers that nobody asked for; one that the row states is added (:func:`mixed`).
    """
    if workload.experts is None or n_layers >= whole.n_layers:
        return workload
    return dataclasses.replace(workload, experts=dataclasses.replace(workload.experts, n_predict=0.0))


def _further(cells: Cells, own: Scalar) -> Scalar:
    """Tokens of multi-token prediction; ``own``: those of the catalogue's model if whole, recorded as completed."""
    stated = cells.count("n_predict", "mtp_num_layers", least=0.0)
    if stated is not None:
        return stated
    if _WITHOUT.search(note := cells.text("note")):
        return 0.0
    if _WITH.search(note):
        return max(float(own), 1.0)
    return cells.complete("n_predict", float(own)) if own else own
