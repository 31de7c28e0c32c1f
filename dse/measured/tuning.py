"""Rows of fine-tuning: adapters and packed documents, stated by columns or by the source's recipes.

Fine-tuning recipes of NeMo and Megatron-Bridge pack short questions and answers (SQuAD) into sequences, and adapt
queries, keys and values only. Rows of other sources have one document per sequence unless they state another length.
MLPerf's benchmark adapts attention, on reports as long as a sequence, with fp8 weights in NVIDIA's submissions.
"""

from __future__ import annotations

import dataclasses
import re

from dse.designs.records import TUNING_TOKENS
from dse.measured.cells import Cells
from dse.types import Adapters, Packing, Workload

_FINE_TUNING = re.compile(r"\b(LoRA|SFT|fine-?tun\w*)\b", re.IGNORECASE)
_ADAPTERS = re.compile(r"\bLoRA\b", re.IGNORECASE)
_MLPERF = re.compile(r"^mlperf", re.IGNORECASE)
_PACKS_SHORT = re.compile(r"^(nemo|megatron-bridge)", re.IGNORECASE)

#: Rank in the recipes of both publishers.
RANK = 16.0

#: Tokens per packed document of SQuAD, mean square over mean: about 150 to 200 tokens each, few of 500.
SHORT_DOCUMENT = 250.0


def tuned(cells: Cells, workload: Workload) -> Workload:
    """The workload with the adapters and the packing of a row, its remarks or its source."""
    note, benchmark = cells.text("note"), bool(_MLPERF.match(cells.row.source))
    rank, document = cells.number("lora_rank"), cells.number("document_tokens")
    if rank is None and _ADAPTERS.search(note):
        rank = cells.complete("lora_rank", RANK)
    if document is None and _FINE_TUNING.search(note) and _PACKS_SHORT.match(cells.row.source):
        document = cells.complete("document_tokens", min(SHORT_DOCUMENT, float(workload.seq_len)))
    if rank:
        narrow = cells.number("frozen_bytes")
        if narrow is None:
            narrow = 1.0 if benchmark and "fp8" in cells.text("precision").lower() else 2.0
        adapters = Adapters(rank=rank, projection=float(benchmark), feed_forward=0.0, frozen_bytes=narrow)
        workload = dataclasses.replace(workload, adapters=adapters, run_tokens=TUNING_TOKENS)
    if document:
        workload = dataclasses.replace(workload, packing=Packing(document=document))
    return workload
