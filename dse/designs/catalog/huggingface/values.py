"""Values of a configuration by key, with a record of the keys that were read."""

from __future__ import annotations

import fnmatch
import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dse.designs.catalog.huggingface.families import KEYS
from dse.errors import InputError

#: A parsed configuration.
Config = Mapping[str, Any]

#: Numbers of a shape: what is larger is none.
MOST = 10**9

#: How to go on with a model that no key can tell.
NOT_YET = "write the workload by hand if dse models it: docs/reference.md"


class Values:
    """Values of a configuration, with the defaults of its class where a key is absent.

    A key that is null is stated: it has no value, and no default either.
    """

    def __init__(self, config: Config, defaults: Config, where: str) -> None:
        """Start without any key read.

        Args:
            config: as parsed.
            defaults: key → default of the configuration class.
            where: name of the configuration in errors.
        """
        self.config, self.defaults, self.where = config, defaults, where
        self.read: set[str] = set()
        self.defaults_read: dict[str, Any] = {}

    def stated(self, key: str) -> Any:
        """Return the value that a configuration has at a key, None without one; a dot is a table within it."""
        first, _, inner = key.partition(".")
        value = self.config.get(first)
        if inner:
            return value.get(inner) if isinstance(value, dict) else None
        return value

    def has(self, key: str) -> bool:
        """True where a configuration has a key, be it null."""
        first, _, inner = key.partition(".")
        value = self.config.get(first)
        return (isinstance(value, dict) and inner in value) if inner else first in self.config

    def key(self, keys: Sequence[str]) -> str | None:
        """Return the first key with a value, stated or by default; None without one."""
        present = [key for key in keys if self.has(key)]
        self.read |= {key.partition(".")[0] for key in present}
        for key in present:
            if self.stated(key) is not None:
                return key
        if present:
            return None
        default = next((key for key in keys if self.defaults.get(key) is not None), None)
        if default is not None:
            self.defaults_read[default] = self.defaults[default]
        return default

    def get(self, *keys: str) -> Any:
        """Return the value at the first of some keys that has one, stated or by default; None without one."""
        key = self.key(keys)
        if key is None:
            return None
        return self.stated(key) if self.has(key) else self.defaults[key]

    def name(self, keys: Sequence[str]) -> str:
        """Return the first key with a value, else the first that is there, else the first of all, for messages."""
        return self.key(keys) or next((key for key in keys if self.has(key)), keys[0])

    def place(self, keys: Sequence[str] | str) -> str:
        """Return the place of a key in an error."""
        return f"{self.where}: {keys if isinstance(keys, str) else self.name(keys)}"

    def integer(self, keys: Sequence[str], minimum: int = 1) -> int | None:
        """Return the whole number at the first key that has a value, None without one.

        A list with the same number for every layer is that number; false is none.

        Args:
            keys: names of the field; the first one with a value counts.
            minimum: smallest allowed number.

        Raises:
            InputError: for any other value.
        """
        value = self.get(*keys)
        if isinstance(value, list) and value and all(type(item) is int and item == value[0] for item in value):
            value = value[0]
        if value is None or value is False:  # some makers write false for none
            return None
        if type(value) is not int or not minimum <= value <= MOST:
            allowed = f"one whole number for all layers, {minimum} to {MOST:,}"
            fix = "models whose layers differ are not modelled yet"
            raise InputError(self.place(keys), short(value), allowed, fix)
        return value

    def required_integer(self, keys: Sequence[str], minimum: int = 1) -> int:
        """Return the whole number at the first key that has a value.

        Raises:
            InputError: where no key of the field has one, and for any other value.
        """
        value = self.integer(keys, minimum)
        if value is None:
            raise InputError(self.place(keys), "nothing", "a whole number", f"add {' or '.join(keys)}")
        return value

    def part(self, part: str) -> dict[str, int]:
        """Return field of a part of the model → whole number of its key.

        Raises:
            InputError: for the first key that the part has, where another one is missing.
        """
        rows: Mapping[str, str] = KEYS["parts"][part]
        numbers = {field: self.integer((key,)) for field, key in rows.items()}
        missing = [key for field, key in rows.items() if numbers[field] is None]
        if missing:
            present = next(
                (key for field, key in rows.items() if numbers[field] is not None), next(iter(rows.values()))
            )
            got = f"{short(self.get(present))}, without {', '.join(missing)}"
            raise InputError(self.place(present), got, "all keys of that part of the model", f"add {missing[0]}")
        return {field: number for field, number in numbers.items() if number is not None}

    def layer_list(self, key: str, layers: int) -> list[Any] | None:
        """Return a list with a value for every layer, None where the configuration has none.

        Raises:
            InputError: for another value, and for a list of another length.
        """
        values = self.get(key)
        if values is None or values == []:
            return None
        if not isinstance(values, list) or len(values) != layers:
            got = f"{len(values)} values" if isinstance(values, list) else short(values)
            raise InputError(self.place(key), got, f"a list of {layers} values, one for each layer", "correct it")
        return values

    def unread(self) -> list[str]:
        """Return the keys that were not read and may say something of the shape, in order."""
        return [key for key in self.config if key not in self.read and not self._is_silent(key)]

    def silent(self) -> list[str]:
        """Return the keys that were not read since they say nothing of the shape, in order."""
        return [key for key in self.config if key not in self.read and self._is_silent(key)]

    def _is_silent(self, key: str) -> bool:
        """True for a key that says nothing of the shape by its name, or since it is null, false or empty."""
        value = self.config[key]
        return value is None or value is False or value in ("", [], {}) or is_silent(key)


def short(value: object) -> str:
    """Return a value as JSON has it, at most 60 characters of it."""
    try:
        text = json.dumps(value) if not isinstance(value, int) or abs(value) < 10**60 else "a number of many digits"
    except (ValueError, TypeError, RecursionError):
        text = type(value).__name__
    return text if len(text) <= 60 else f"{text[:57]}…"


def is_set(value: object) -> bool:
    """True for a value that switches something on: not null, false, 0, 1 or empty."""
    return value is True or not (value is None or value in (False, 0, 1, "", [], {}))


@functools.cache
def _pattern(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """Return one regular expression for some patterns of names."""
    return re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns))


def matches(key: str, patterns: Iterable[str]) -> bool:
    """True for a key that any of some patterns (``mamba_*``) has."""
    return _pattern(tuple(patterns)).match(key) is not None


def is_silent(key: str) -> bool:
    """True for a key that says nothing of the shape."""
    return key in KEYS["silent"]["names"] or matches(key, KEYS["silent"]["patterns"])
