"""TOML texts of users as plain values, within limits."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
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


def _too_deep(where: str) -> InputError:
    """Return the error for a document that is nested too deep."""
    return InputError(where, "brackets nested too deep", f"at most {DEEPEST} levels", "close brackets where they end")


def _too_large(where: str, got: str) -> InputError:
    """Return the error for a number of more than 64 bits."""
    return InputError(where, got, "whole numbers of at most 64 bits", "write it with a unit, or as 1e30")
