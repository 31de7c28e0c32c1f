"""Classes of tensors by the names of modules, and the share of each that names exclude from a format.

No pattern of a file is evaluated: names of modules are told by the words in them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dse.io import toml

#: Formats of weights in checkpoints, and words in names of modules.
TABLE: Mapping[str, Any] = toml.table(Path(__file__).with_name("checkpoints.toml"))

#: Classes of tensors whose format counts, those of a layer.
CLASSES = ("attention", "feed_forward", "shared_expert", "experts")

#: Classes of tensors with the words that tell them, in the order in which they are looked for.
_MODULES = tuple((tensors, tuple(TABLE["modules"][tensors])) for tensors in TABLE["modules"]["order"])

#: Number of a layer in the name of a module, a name that is a layer, and signs of patterns.
_LAYER, _LAYER_NAME = re.compile(r"(?:layers|blocks|h)\\?\.(\d{1,6})(?!\d)"), re.compile(r"\.\d+\$$")
_NUMBER = re.compile(r"\d+")
_SIGNS = {ord(sign): None for sign in "\\^$*+?()|[]"}


def module_class(name: str) -> str | None:
    """Return the class of tensors of a module's name or pattern, "" for parts that are not read, None for all layers.

    >>> (
    ...     module_class("re:.*mlp.(gate|up)_proj.*"),
    ...     module_class("model.layers.3.self_attn.q_proj"),
    ...     module_class("Linear"),
    ... )
    ('feed_forward', 'attention', None)
    """
    return _described(_NUMBER.sub("0", name[:400]))[0]


def _class_of(plain: str) -> str | None:
    """Return the class of tensors of a name without the signs of patterns, as :func:`module_class`."""
    for tensors, words in _MODULES:
        if any(word in plain for word in words):
            return tensors
    return None


def _plain(name: str) -> str:
    """Return a name in lower case without the signs of patterns, with a ``$`` at its end."""
    text = name[:400].lower().removeprefix("re:")
    text = (
        text.replace("\\.", ".").replace("(gate|up|gate_up|down)_proj", "gate_up").replace("(gate|up)_proj", "gate_up")
    )
    return text.translate(_SIGNS).rstrip(".") + "$"


def excluded_shares(names: Iterable[str], layers: int) -> dict[str, float]:
    """Return class of tensors → share of its matrices that names of modules exclude.

    A name with the number of a layer excludes that layer, one with the name of a matrix that matrix of a class.

    Args:
        names: names and patterns of modules.
        layers: of the model.

    >>> excluded_shares(["lm_head", "re:.*self_attn.*", "model.layers.0.mlp.down_proj"], 4)["attention"]
    1.0
    """
    excluded: dict[str, set[tuple[int, str]]] = {tensors: set() for tensors in CLASSES}
    for name in names:
        tensors, matrices, is_layer = _described(_NUMBER.sub("0", name[:400]))
        index = _LAYER.search(name[:400])
        layer = -1 if index is None else int(index[1])
        if tensors is None and index is not None and is_layer:
            for each in CLASSES:  # a whole layer
                excluded[each].add((layer, ""))
        elif tensors in CLASSES:
            excluded[tensors] |= {(layer, matrix) for matrix in matrices}
    return {tensors: _share(tensors, places, layers) for tensors, places in excluded.items() if places}


@functools.lru_cache(maxsize=4096)
def _described(name: str) -> tuple[str | None, tuple[str, ...], bool]:
    """Return the class of tensors of a name, the matrices in it ("" for all), and whether it ends as a layer."""
    plain = _plain(name)
    tensors = _class_of(plain)
    matrices = [matrix for matrix in TABLE["projections"].get(tensors, ()) if matrix in plain]
    return tensors, tuple(matrices) or ("",), _LAYER_NAME.search(plain) is not None


def _share(tensors: str, places: set[tuple[int, str]], layers: int) -> float:
    """Return the share of the matrices of a class at some places, of all layers (-1) and matrices ("")."""
    matrices: Sequence[str] = TABLE["projections"].get(tensors, ("all",))

    def share_of_layer(layer: int) -> float:
        if (layer, "") in places or (-1, "") in places:
            return 1.0
        return sum((layer, matrix) in places or (-1, matrix) in places for matrix in matrices) / len(matrices)

    listed = {layer for layer, _ in places if 0 <= layer < layers}
    common = share_of_layer(-1)
    return (sum(share_of_layer(layer) for layer in listed) + (layers - len(listed)) * common) / layers
