"""Whole numbers of a ``config.json`` of Hugging Face by their keys, refused where they are none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dse.errors import InputError

#: A parsed configuration.
Config = Mapping[str, Any]

#: Numbers of a shape: what is larger is none.
MOST = 10**9

#: How to go on with a model that no key can tell.
NOT_YET = "write the workload by hand if dse models it: docs/reference.md"


def integer(config: Config, keys: Sequence[str], where: str, minimum: int = 1) -> int | None:
    """Return the whole number at the first key that a configuration has, None where it has none of them.

    Args:
        config: as parsed.
        keys: names of the field; the first one that is present counts.
        where: name of the configuration in errors.
        minimum: smallest allowed number.

    Raises:
        InputError: for any other value.
    """
    key = next((key for key in keys if config.get(key) is not None), None)
    if key is None:
        return None
    value = config[key]
    if type(value) is not int or not minimum <= value <= MOST:
        allowed = f"one whole number for all layers, {minimum} to {MOST:,}"
        raise InputError(f"{where}: {key}", repr(value), allowed, "models whose layers differ are not modelled yet")
    return value


def required_integer(config: Config, keys: Sequence[str], where: str) -> int:
    """Return the whole number at the first key that a configuration has, at least 1.

    Raises:
        InputError: where no key of the field is present, and for any other value.
    """
    value = integer(config, keys, where)
    if value is None:
        raise InputError(f"{where}: {keys[0]}", "nothing", "a whole number", f"add {' or '.join(keys)}")
    return value


def present_key(config: Config, keys: Sequence[str]) -> str:
    """Return the first of some keys that a configuration has, else the first of all, for messages."""
    return next((key for key in keys if config.get(key) is not None), keys[0])
