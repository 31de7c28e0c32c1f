"""Layouts of layers over pipeline stages as Megatron-Core writes them (``--pipeline-model-parallel-layout``).

One letter per layer: ``E`` embedding, ``t`` transformer layer, ``m`` multi-token prediction, ``L`` loss; ``|`` ends a
chunk, ``x*3`` repeats a letter and ``(tt|)*3`` a group. Chunks are in the order in which a micro-batch passes them.
"""

from __future__ import annotations

import itertools
import re

_GROUP, _LETTER = re.compile(r"\(([^()]*)\)\*(\d+)"), re.compile(r"([A-Za-z])\*(\d+)")


def chunk_sizes(n_layers: int, n_predict: int, n_chunks: int) -> list[int]:
    """Return the number of transformer layers, by chunk, without those of multi-token prediction.

    Short chunks as in :func:`dse.model.stage_layers.stage_layers`: the last for loss and for heads and layers of
    multi-token prediction, the first for the embedding, then the last again, then others from the end.

    >>> chunk_sizes(61, 1, 8)
    [8, 8, 8, 8, 8, 8, 8, 5]
    """
    largest = -(-(n_layers + n_predict) // n_chunks)
    sizes = [largest] * n_chunks
    missing = largest * n_chunks - n_layers
    inner_chunks = ((chunk, 1) for chunk in range(-2, -n_chunks, -1))
    for chunk, limit in ((-1, 1 + 2 * n_predict), (0, 1), (-1, largest), *inner_chunks):
        reduction = min(missing, limit, sizes[chunk])
        sizes[chunk], missing = sizes[chunk] - reduction, missing - reduction
    return sizes


def layout(n_layers: int, n_predict: int, n_chunks: int) -> str:
    """Return the layout of a pipeline as Megatron-LM's text.

    Args:
        n_layers: transformer layers of the model.
        n_predict: layers of multi-token prediction.
        n_chunks: chunks of all stages.

    >>> layout(61, 1, 16), layout(61, 0, 16)
    ('Etttt|(tttt|)*14tmL', 'Ettt|(tttt|)*14ttL')
    """
    sizes = chunk_sizes(n_layers, n_predict, n_chunks)
    middle = ""
    for size, run in itertools.groupby(sizes[1:-1]):
        count, chunk = len(list(run)), "t" * size + "|"
        middle += chunk if count == 1 else f"({chunk})*{count}"
    return f"E{'t' * sizes[0]}|{middle}{'t' * sizes[-1]}{'m' * n_predict}L"


def chunk_count(text: str) -> int:
    """Return the number of chunks of a layout in Megatron-LM's text.

    >>> chunk_count("Et*3|(tt|)*29mL")
    31
    """
    while (match := _GROUP.search(text)) is not None:
        text = text[: match.start()] + match[1] * int(match[2]) + text[match.end() :]
    return _LETTER.sub(lambda match: match[1] * int(match[2]), text).count("|") + 1
