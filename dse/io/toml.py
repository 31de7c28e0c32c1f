"""Texts that users write as TOML: to plain values, within bounds; nothing else of a document is known here."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from typing import Any

from dse.errors import InputError

#: Tables and lists that may stand in one another; documents of ours have five levels.
DEEPEST = 50

#: Whole numbers of TOML 1.0 have 64 bits.
_LARGEST = 2**63 - 1


def parsed(text: str, where: str) -> dict[str, Any]:
    """What a TOML text says.

    Args:
        text: the document.
        where: what errors call it.

    Raises InputError for a text that is no TOML, with its line; for what is nested too deep, and for whole numbers of
    more than 64 bits, which TOML 1.0 does not have.

    >>> parsed("tp = [1, 2]", "sweep.toml")
    {'tp': [1, 2]}
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"line (\d+)", str(error))
        line = at[1] if at else str(text.count("\n") + 1)
        raise InputError(
            f"{where}: line {line}", f"invalid TOML ({error})", "TOML 1.0", "complete or correct that line"
        ) from None
    except RecursionError:
        raise _too_deep(where) from None
    except ValueError:  # of a number with more digits than Python reads
        raise _too_large(where, f"a number of more than {sys.get_int_max_str_digits():,} digits") from None
    for path, number in _whole_numbers(document, where):
        if not -_LARGEST - 1 <= number <= _LARGEST:
            raise _too_large(path, f"{number:.3e}" if abs(number) < 1e300 else f"{str(number)[:20]}…")
    return document


def _whole_numbers(value: Any, where: str, depth: int = 0) -> Iterator[tuple[str, int]]:
    """Every whole number of a document with its place."""
    if depth > DEEPEST:
        raise _too_deep(where.partition(": ")[0])
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _whole_numbers(inner, f"{where}.{key}" if depth else f"{where}: {key}", depth + 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _whole_numbers(inner, where, depth + 1)
    elif isinstance(value, int):
        yield where, value


def _too_deep(where: str) -> InputError:
    return InputError(where, "brackets nested too deep", f"at most {DEEPEST} levels", "close brackets where they end")


def _too_large(where: str, got: str) -> InputError:
    return InputError(where, got, "whole numbers of at most 64 bits", "write it with a unit, or as 1e30")
