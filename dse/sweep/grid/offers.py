"""Options of a mapping that the software stacks of a sweep support: others are removed from its axes and reported."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dse.designs.records import PLAIN_MAPPING
from dse.model.capabilities import LIMITED, lacking
from dse.spec.axes import Axis, Label
from dse.types import Capabilities

_EVERYTHING = Capabilities()
_PLAIN = {path.removeprefix("mapping."): value for path, value in PLAIN_MAPPING.items()}


class Offer(NamedTuple):
    """Axes of a mapping limited to supported values, with the removed ones."""

    groups: list[tuple[Axis, ...]]  #: the axes by group, without values that no stack supports
    left_out: tuple[str, ...] = ()  #: axis and removed values
    asked: tuple[str, ...] = ()  #: axis and unsupported values that stay because no others are listed


def offered(
    groups: Sequence[tuple[Axis, ...]], fixed: Mapping[str, Axis], can: Mapping[str, float], experts: bool = False
) -> Offer:
    """The axes without values that no stack supports; an axis without supported values is not changed.

    Args:
        groups: axes that move together; those outside the mapping are not changed.
        fixed: leaves that the sweep fixes, by path.
        can: capability (a field of :class:`dse.types.Capabilities`) → its maximum over the stacks.
        experts: whether the model has experts.
    """
    kept, left_out = [], []
    asked = [_listed(axis, lacks) for axis in fixed.values() if (lacks := _lacks(axis, can, experts)).any()]
    for group in groups:
        lacks = np.any([_lacks(axis, can, experts) for axis in group], axis=0)
        lacking_here = [_listed(axis, own) for axis in group if (own := _lacks(axis, can, experts)).any()]
        if not lacks.all() or not lacks.size:
            left_out += lacking_here
            group = tuple(_without(axis, lacks, can) for axis in group)
        else:
            asked += lacking_here
        kept.append(group)
        left_out += [f"{axis.name} above {axis.most:g}" for axis in group if math.isfinite(axis.most)]
    return Offer(kept, tuple(left_out), tuple(asked))


def _lacks(axis: Axis, can: Mapping[str, float], experts: bool) -> np.ndarray:
    """[position] whether no stack supports the value of a part of the mapping."""
    prefix, _, name = axis.key.rpartition(".")
    values: dict[str, Any] = {**_PLAIN, "experts": experts or None, name: np.array(axis.values)}
    if prefix != "mapping" or not axis.values:
        return np.zeros(len(axis.values), bool)
    return np.any([np.broadcast_to(lacks, len(axis.values)) for lacks in lacking(values, can).values()], axis=0)


def _without(axis: Axis, lacks: np.ndarray, can: Mapping[str, float]) -> Axis:
    """An axis without these positions; a rule gets an upper limit."""
    name = axis.key.rpartition(".")[2]
    if axis.rule:
        limited = name in LIMITED and can[name] < getattr(_EVERYTHING, name)
        return dataclasses.replace(axis, most=can[name]) if limited else axis
    if not lacks.any():
        return axis
    kept = np.flatnonzero(~lacks)
    values, labels = tuple(axis.values[i] for i in kept), tuple(axis.labels[i] for i in kept)
    return dataclasses.replace(axis, values=values, labels=labels)


def _listed(axis: Axis, lacks: np.ndarray) -> str:
    """An axis and the labels of its unsupported values."""
    return " ".join([axis.name, *(_text(axis.labels[position]) for position in np.flatnonzero(lacks))])


def _text(label: Label) -> str:
    if isinstance(label, bool):
        return "yes" if label else "no"
    return f"{label:g}" if isinstance(label, float) else str(label)


def offer_note(offer: Offer, stacks: Sequence[str]) -> str:
    """Note on unsupported options of a sweep and the flag that allows them; empty where all are supported."""
    verb = f"{', '.join(dict.fromkeys(stacks))} {'lacks' if len(set(stacks)) == 1 else 'lack'}"
    parts = []
    if offer.left_out:
        parts.append(f"{verb} {', '.join(offer.left_out)}: left out")
    if offer.asked:
        parts.append(f"{verb} {', '.join(offer.asked)}, which the sweep asks for: such designs cannot run")
    return f"{'; '.join(parts)} (--any-option offers everything)" if parts else ""
