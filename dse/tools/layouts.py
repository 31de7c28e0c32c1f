"""Layouts of layers as Megatron-LM writes them: over pipeline stages, and lists of kinds of layers.

A layout of a pipeline (``--pipeline-model-parallel-layout``) has one letter per layer: ``E`` embedding, ``t``
transformer layer, ``m`` multi-token prediction, ``L`` loss; ``|`` ends a chunk, ``x*3`` repeats a letter and
``(tt|)*3`` a group. Chunks are in the order in which a micro-batch passes them. A list of kinds
(``--moe-layer-freq``) is an expression such as ``([0]*3+[1]*58)``.
"""

from __future__ import annotations

import itertools
import re

_GROUP, _LETTER = re.compile(r"\(([^()]*)\)\*(\d+)"), re.compile(r"([A-Za-z])\*(\d+)")

#: Maximum number of letters of a layout and of layers of a list.
_MAX_LAYERS = 10_000


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


def layer_layout(n_layers: int, n_predict: int, n_chunks: int) -> str:
    """Return the layout of a pipeline as Megatron-LM's text.

    Args:
        n_layers: transformer layers of the model.
        n_predict: layers of multi-token prediction.
        n_chunks: chunks of all stages.

    >>> layer_layout(61, 1, 16), layer_layout(61, 0, 16)
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

    Args:
        text: of the layout.

    Raises:
        ValueError: for a layout of more letters than any model has layers.

    >>> chunk_count("Et*3|(tt|)*29mL")
    31
    """
    text = re.sub(r"[\\\\'\"\s,]", "", text)  # of shells, and for the eye
    while (match := _GROUP.search(text)) is not None:
        if len(match[1]) * int(match[2]) > _MAX_LAYERS:
            raise ValueError(f"a layout of more than {_MAX_LAYERS:,} letters")
        text = text[: match.start()] + match[1] * int(match[2]) + text[match.end() :]
        if len(text) > _MAX_LAYERS:
            raise ValueError(f"a layout of more than {_MAX_LAYERS:,} letters")
    return _LETTER.sub(lambda match: match[1], text).count("|") + 1


_TOKEN = re.compile(r"\d+|[\[\](),*+]")


def layer_kinds(text: str) -> list[int]:
    """Return the kind of each layer from a list as Python writes it: sums and multiples of lists of numbers.

    Args:
        text: the expression.

    Raises:
        ValueError: for a text that is no such expression, and for more layers than any model has.

    >>> layer_kinds("([0]*3+[1]*2)"), layer_kinds("[0,1]*2")
    ([0, 0, 0, 1, 1], [0, 1, 0, 1])
    """
    compact = "".join(text.split())
    tokens = _TOKEN.findall(compact)
    if "".join(tokens) != compact or compact.count("(") > 20:
        raise ValueError(f"{text[:80]} is no list of layers")
    position = 0

    def take(*expected: str) -> str:
        nonlocal position
        token = tokens[position] if position < len(tokens) else ""
        if expected and token not in expected:
            raise ValueError(f"{text[:80]} is no list of layers")
        position += 1
        return token

    def next_token() -> str:
        return tokens[position] if position < len(tokens) else ""

    def atom() -> list[int]:
        if take("(", "[") == "(":
            inner = total()
            take(")")
            return inner
        numbers = list[int]()
        while next_token() not in ("]", ""):
            numbers.append(int(take()))
            if next_token() == ",":
                take()
        take("]")
        return numbers

    def product() -> list[int]:
        layers = atom()
        while next_token() == "*":
            take()
            count = int(take())
            if len(layers) * count > _MAX_LAYERS:
                raise ValueError(f"{text[:80]}: more than {_MAX_LAYERS:,} layers")
            layers = layers * count
        return layers

    def total() -> list[int]:
        layers = product()
        while next_token() == "+":
            take()
            layers = layers + product()
        return layers

    kinds = total()
    if position != len(tokens):
        raise ValueError(f"{text[:80]} is no list of layers")
    return kinds
