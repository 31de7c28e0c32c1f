"""Values of the design and a stack that a plan applies to every candidate, and its progress."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dse.designs import catalog, leaf_path, leaf_value, leaves_of, replace, short_name
from dse.errors import InputError
from dse.types import Design

#: Values that are stated by leaf: numbers in SI units, names of choices, or texts with units.
Settings = Mapping[str, float | str]


class PlanProgress(NamedTuple):
    """State of a plan, for a bar."""

    done: int  #: accelerators whose candidates are known
    total: int  #: accelerators
    accelerator: str  #: the one that is done last, "" at the beginning

    def __str__(self) -> str:
        """Return the state as text, such as ``2 of 4 accelerators``."""
        return f"{self.done} of {self.total} accelerators"


#: Called with the state of a plan at its beginning and when an accelerator is done.
Progress = Callable[[PlanProgress], None]


def read_settings(settings: Settings, serving: bool, decided: Mapping[str, str]) -> dict[str, float | str]:
    """Return short name → value of settings, whole numbers as integers.

    Args:
        settings: name of a leaf → its value.
        serving: whether the plan is of a service.
        decided: path of a leaf that the plan itself sets → what states it instead.

    Raises:
        InputError: for an unknown leaf, a value that it cannot have, two values of one leaf, and a leaf that the plan
            decides.
    """
    values: dict[str, float | str] = {}
    for name, value in settings.items():
        where = f"--set {name}"
        path = leaf_path(name, where, serving)
        if path in decided:
            raise InputError(where, f"{value}", "leaves that the plan does not decide", decided[path])
        number = leaf_value(path, value, where)
        if short_name(path) in values:
            raise InputError(where, f"{value}", f"one value of {short_name(path)}", "leave one of them out")
        is_whole = math.isfinite(number) and number == int(number)
        values[short_name(path)] = value if isinstance(value, str) else int(number) if is_whole else number
    return values


def with_settings(axes: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """Return the axes of a sweep, each setting as an axis of one value in place of those that list the same leaf."""
    return {**axes, **{name: [value] for name, value in settings.items()}}


def set_leaves(design: Design, settings: Settings) -> Design:
    """Return a design with the settings of leaves that it has."""
    values = {leaf_path(name): leaf_value(leaf_path(name), value) for name, value in settings.items()}
    paths = {*leaves_of(design)}
    return replace(design, {path: value for path, value in values.items() if path in paths})


def foreign_stack(software: str, accelerator: str) -> str:
    """Return why a stack does not exist for an accelerator, as text; "" where it does, and for no stack."""
    mismatch = catalog.vendor_mismatch(software, accelerator) if software else None
    return "" if mismatch is None else f"{software} is of {', '.join(mismatch[1])}, not of {mismatch[0]}"
