"""What rows of mixtures of experts say of their layers beside the catalogue: dense ones, and further tokens."""

from __future__ import annotations

import dataclasses
import re

from dse.measured.cells import Cells
from dse.measured.table import Skip
from dse.types import Scalar, Workload

#: How remarks tell that a run predicts no further token, or does (NVIDIA's tables of Megatron-Bridge).
_FURTHER = r"\W+(MTP|multi-token prediction)\b"
_WITHOUT = re.compile(r"\b(w/o|without|no)" + _FURTHER, re.IGNORECASE)
_WITH = re.compile(r"\b(w/|with)" + _FURTHER, re.IGNORECASE)


def mixed(cells: Cells, workload: Workload) -> Workload:
    """The workload with the dense layers in front and the further tokens that a row states or its remarks tell of.

    Of a model that was cut to fewer layers ``first_dense`` says how many of these are dense.
    """
    experts = workload.experts
    if experts is None:
        return workload
    stated = cells.count("first_dense", least=0.0)
    if stated is not None and stated > workload.n_layers:
        raise Skip("not a usable number", f"first_dense = {stated:g} of {workload.n_layers:g} layers")
    first_dense = experts.first_dense if stated is None else stated
    found = dataclasses.replace(experts, first_dense=first_dense, n_predict=_further(cells, experts.n_predict))
    return dataclasses.replace(workload, experts=found)


def _further(cells: Cells, own: Scalar) -> Scalar:
    """Tokens predicted beyond the next; ``own``: those of the model in the catalogue, noted where they are taken."""
    stated = cells.count("n_predict", "mtp_num_layers", least=0.0)
    if stated is not None:
        return stated
    if _WITHOUT.search(note := cells.text("note")):
        return 0.0
    if _WITH.search(note):
        return max(float(own), 1.0)
    return cells.complete("n_predict", float(own)) if own else own
