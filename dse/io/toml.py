"""TOML texts of users as plain values, within limits."""

from __future__ import annotations

import functools
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dse.errors import InputError

#: Maximum nesting of tables and lists; documents of dse have five levels.
DEEPEST = 50

#: Limit of whole numbers in TOML 1.0: 64 bits.
_LARGEST = 2**63 - 1


def parse(text: str, where: str) -> dict[str, Any]:
    """Return key → value of a TOML text.

    Args:
        text: the document.
        where: its name in errors.

    Raises:
        InputError: for invalid TOML, with its line; for too deep nesting, and for whole numbers of more than 64 bits,
            which TOML 1.0 does not have.

    >>> parse("tp = [1, 2]", "sweep.toml")
    {'tp': [1, 2]}
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        match = re.search(r"line (\d+)", str(error))
        line = match[1] if match else str(text.count("\n") + 1)
        raise InputError(
            f"{where}: line {line}", f"invalid TOML ({error})", "TOML 1.0", "complete or correct that line"
        ) from None
    except RecursionError:
        raise _too_deep(where) from None
    except ValueError:  # a number with too many digits for Python
        raise _too_large(where, f"a number of more than {sys.get_int_max_str_digits():,} digits") from None
    check(document, where)
    return document


@functools.cache
def table(file: Path) -> dict[str, Any]:
    """Return key → value of a table of the package, which is read once.

    Args:
        file: path of the table, which is valid.
    """
    return tomllib.loads(file.read_text(encoding="utf-8"))


def check(document: Any, where: str) -> None:
    """Raise InputError for a document (TOML or JSON) nested too deep, or with a whole number of more than 64 bits."""
    try:
        for path, number in _integers(document, where):
            if not -_LARGEST - 1 <= number <= _LARGEST:
                raise _too_large(path, f"{number:.3e}" if abs(number) < 1e300 else "a number of more than 300 digits")
    except RecursionError:
        raise _too_deep(where) from None


def _integers(value: Any, where: str, depth: int = 0) -> Iterator[tuple[str, int]]:
    """Yield (place, number) of the whole numbers of a document; RecursionError below ``DEEPEST`` levels."""
    if depth > DEEPEST:
        raise RecursionError
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _integers(inner, f"{where}.{key}" if depth else f"{where}: {key}", depth + 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _integers(inner, where, depth + 1)
    elif isinstance(value, int):
        yield where, value


def document_text(document: Mapping[str, Any], where: str) -> str:
    """Return the TOML text of a document: top-level values, then a table for each section.

    Tables within a section stand on one line, so that all names keep their order. Tuples, ranges and arrays become
    lists, scalars of NumPy plain numbers.

    Args:
        document: key → value: texts, numbers, truth values, lists and dictionaries.
        where: its name in errors.

    Raises:
        InputError: for what TOML cannot say: None, other objects, keys that are no texts, too deep nesting.

    >>> print(document_text({"axes": {"tp": (1, 2)}, "title": "small"}, "sweep"), end="")
    title = "small"
    <BLANKLINE>
    [axes]
    tp = [1, 2]
    """
    import tomlkit

    plain = _plain(document, where, 0)
    text = tomlkit.document()
    for key in sorted(plain, key=lambda key: isinstance(plain[key], dict)):  # values of tables would be theirs
        is_table = isinstance(plain[key], dict)
        text.add(key, _table(plain[key], tomlkit.table()) if is_table else plain[key])
    return tomlkit.dumps(text)


def _table(values: dict[str, Any], table: Any) -> Any:
    """Return a table of tomlkit with values, those that are tables on their line."""
    import tomlkit

    for key, value in values.items():
        table.append(key, _table(value, tomlkit.inline_table()) if isinstance(value, dict) else _inline(value))
    return table


def _inline(value: Any) -> Any:
    """Return a value for tomlkit, with tables on their line in a list, too."""
    import tomlkit

    if not isinstance(value, list):
        return value
    items = tomlkit.array()
    for item in value:
        items.append(_table(item, tomlkit.inline_table()) if isinstance(item, dict) else _inline(item))
    return items


def _plain(value: Any, where: str, depth: int) -> Any:
    """Return a value as TOML has it, InputError where it has none."""
    if depth > DEEPEST:
        raise _too_deep(where.partition(":")[0])
    if hasattr(value, "tolist"):  # of NumPy and JAX
        value = value.tolist()
    if isinstance(value, Mapping):
        items = {}
        for key, inner in value.items():
            if not isinstance(key, str):
                raise InputError(where, f"the key {key!r}", "keys that are texts", "write it as a text")
            place = f"{where}.{key}" if depth else f"{where}: {key}"
            items[_plain(key, where, depth)] = _plain(inner, place, depth + 1)
        return items
    if isinstance(value, list | tuple | range):
        return [_plain(item, f"{where}[{index}]", depth + 1) for index, item in enumerate(value)]
    if isinstance(value, str):
        if any(0xD800 <= ord(letter) < 0xE000 for letter in value):
            raise InputError(where, repr(value)[:200], "a text of Unicode", "leave surrogates out")
        return str(value)
    if type(value) in (bool, int, float):
        return value
    got = repr(value) if value is None else f"an object of type {type(value).__name__}"
    fix = "leave the key out" if value is None else "write its name or number"
    raise InputError(where, got, "texts, numbers, truth values, lists and dictionaries, as in TOML", fix)


def _too_deep(where: str) -> InputError:
    """Return the error for a document that is nested too deep."""
    return InputError(where, "brackets nested too deep", f"at most {DEEPEST} levels", "close brackets where they end")


def _too_large(where: str, got: str) -> InputError:
    """Return the error for a number of more than 64 bits."""
    return InputError(where, got, "whole numbers of at most 64 bits", "write it with a unit, or as 1e30")
