"""The part of the accuracy page that sets our step times beside Calculon's, term by term."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from docs.make.markdown import filed, percent
from dse.measured.comparison import Comparison

_CALCULON = """\
[Calculon](https://github.com/calculon-ai/calculon) (Isaev et al., SC 2023; commit caa4b11f8fe1, Apache-2.0) is another
analytic model, expressed here by its inputs: the systems `calculon-a100-80g`, `-80e` and `-h100-80g-nvl8` and the stack
`calculon` of the catalogue (efficiencies in steps of an operator's size, link volumes as stated, no overlap of
compute and memory, unfused attention, no embedding or head). FLOPs and weights of a layer are the same to the last
digit that single precision holds (`tests/published/test_calculon.py` says which FLOPs Calculon counts as messages).
Rows are left out where Calculon gives no figure, where a mapping cannot be built, and where its known defects show;
[counted below](#excluded-rows-by-reason). Rows above a capacity stay: both models still time them."""

_CALCULON_MEMORY = """\
Peak memory: weights, optimiser state and, without recompute, activations are the same. Calculon differs in gradients
under a sharded optimiser, in the inputs of `attn_only`, in full-recompute checkpoints, and in what offloading keeps on
the device."""

#: Term, Calculon's columns, our part of the step time, and why they differ.
_TERMS = (
    ("layer forward", ("fw_time",), "forward",
     "Q, K and V are one product here, three there without overlap: less input traffic, larger steps of efficiency"),
    ("layer backward", ("bw_time",), "backward",
     "here the gradients of scores and context write their results; there each copy of a tensor that several "
     "operators read is summed apart, and norm gradients are two passes"),
    ("recompute", ("recompute_time",), "recompute",
     "selective recompute here repeats the context product too (Korthikanti et al. 2022), there it does not"),
    ("tensor parallel", ("tp_comm_exposed_time", "recomm_exposed_time"), "tensor_parallel",
     "with overlap, all messages of a pass here share the time of all its matrices, there each hides behind the one "
     "product it feeds, tile by tile; without, they agree but for the FLOPs of the sums"),
    ("bubble", ("bubble_time",), "bubble", "the terms above once for each other stage; there the sends of fill and "
     "drain too"),
    ("sends between stages", ("pp_comm_exposed_time",), "pipeline_parallel",
     "the sends of fill and drain are here, there in the bubble"),
    ("data parallel", ("dp_comm_exposed_time",), "data_parallel",
     "with overlap, one window for the whole message here, there one for each model chunk"),
    ("optimiser", ("optim_step_time",), "optimizer",
     "states are read and written, gradients read twice here; there states are read once"),
    ("offload", ("fw_offload_exposed_time", "bw_offload_exposed_time"), "offload",
     "follows the bytes of a layer, which differ in activations; the optimiser's state moves once a step here"),
)  # fmt: skip


def calculon_section(compared: Sequence[Comparison]) -> list[str]:
    """The part of the page that sets our step times beside Calculon's, term by term; nothing without its rows."""
    rows = [c for c in compared if c.metric == "step_time" and c.source.startswith("Calculon")]
    kept = [c for c in rows if c.skip is None]
    if not kept:
        return []
    sizes = np.array([abs(c.error) for c in kept])
    times = (np.array([c.measured for c in kept]), np.array([c.predicted for c in kept]))
    summary = (
        f"{len(kept)} of {len(rows)} rows: Spearman rank correlation of step time {spearman(*times):.4f}, median "
        f"difference {percent(float(np.median(sizes)))}, mean {percent(float(sizes.mean()))}, 90 % within "
        f"{percent(float(np.quantile(sizes, 0.9)))}."
    )
    header = ["term", "mean share", "mean difference", "90 % within", "reason"]
    terms = [_calculon_term(kept, *term) for term in _TERMS]
    note = "Shares and differences are of Calculon's step time; a difference is ours less Calculon's."
    terms_table = filed("accuracy_calculon", header, terms)
    return ["## Calculon side by side", _CALCULON, summary, f"Term by term: {terms_table}. {note}", _CALCULON_MEMORY]


def _calculon_term(
    kept: Sequence[Comparison], name: str, columns: tuple[str, ...], part: str, reason: str
) -> list[str]:
    theirs = np.array([sum(float(c.measurement.row.get(column)) for column in columns) for c in kept])
    ours = np.array([c.prediction.metrics[f"step_time_{part}"] for c in kept])
    whole = np.array([c.measured for c in kept])
    difference = (ours - theirs) / whole
    share, mean = float(np.mean(theirs / whole)), float(difference.mean())
    return [name, percent(share), percent(mean, "+"), percent(float(np.quantile(np.abs(difference), 0.9))), reason]


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Rank correlation of two sets of figures (ties share no rank: they are rare among times)."""
    ranks = [np.argsort(np.argsort(values)) for values in (a, b)]
    return float(np.corrcoef(*ranks)[0, 1])
