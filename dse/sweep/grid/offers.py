"""What the stacks of a sweep offer of the options of a mapping: the rest is left out of its axes, and told."""

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
    """Axes of a mapping as stacks offer them, and what that takes from them."""

    groups: list[tuple[Axis, ...]]  #: the axes by group, without values that no stack has
    left_out: tuple[str, ...] = ()  #: in words: axis and values that were taken out
    asked: tuple[str, ...] = ()  #: in words: axis and values that nothing else stands beside, so that they stay


def offered(
    groups: Sequence[tuple[Axis, ...]], fixed: Mapping[str, Axis], can: Mapping[str, float], experts: bool = False
) -> Offer:
    """The axes without what no stack has; where nothing else would be left an axis stays as it is.

    Args:
        groups: axes that move together; those that are no part of the mapping stay.
        fixed: leaves that the sweep fixes, by path.
        can: capability (a field of :class:`dse.types.Capabilities`) → the most that any of the stacks has.
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
    """[position] whether no stack has what a part of the mapping asks for there."""
    prefix, _, name = axis.key.rpartition(".")
    values: dict[str, Any] = {**_PLAIN, "experts": experts or None, name: np.array(axis.values)}
    if prefix != "mapping" or not axis.values:
        return np.zeros(len(axis.values), bool)
    return np.any([np.broadcast_to(lacks, len(axis.values)) for lacks in lacking(values, can).values()], axis=0)


def _without(axis: Axis, lacks: np.ndarray, can: Mapping[str, float]) -> Axis:
    """An axis without these positions; one that a rule makes is told where it ends."""
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
    """An axis and the labels of what it lacks."""
    return " ".join([axis.name, *(_text(axis.labels[position]) for position in np.flatnonzero(lacks))])


def _text(label: Label) -> str:
    if isinstance(label, bool):
        return "yes" if label else "no"
    return f"{label:g}" if isinstance(label, float) else str(label)


def offer_note(offer: Offer, stacks: Sequence[str]) -> str:
    """What stacks lack of a sweep's options, and how to have it all the same, in one line; empty where nothing."""
    verb = f"{', '.join(dict.fromkeys(stacks))} {'lacks' if len(set(stacks)) == 1 else 'lack'}"
    parts = []
    if offer.left_out:
        parts.append(f"{verb} {', '.join(offer.left_out)}: left out")
    if offer.asked:
        parts.append(f"{verb} {', '.join(offer.asked)}, which the sweep asks for: such designs cannot run")
    return f"{'; '.join(parts)} (--any-option offers everything)" if parts else ""
