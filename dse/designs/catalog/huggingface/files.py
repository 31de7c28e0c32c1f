"""A ``config.json`` as a file, with limits of its size."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dse.errors import InputError
from dse.io import inputs, toml

_CONFIG_FILE = "a config.json of Hugging Face"

#: Name of the file that ModelOpt lays with a configuration.
QUANTIZATION_FILE = "hf_quant_config.json"

#: Most keys of a configuration.
_MOST_KEYS = 20_000


def read(path: str | Path) -> dict[str, Any]:
    """Return the values of a ``config.json``.

    Returns:
        The parsed JSON object.

    Raises:
        InputError: for a file that cannot be read, is no JSON object, has a key twice, numbers without end, or brackets
            nested too deep.
    """
    return parse(inputs.text(path, _CONFIG_FILE), str(path))


def parse(text: str, where: str) -> dict[str, Any]:
    """Return the values of a configuration from its text, with the checks of :func:`read`.

    Args:
        text: JSON.
        where: name of the file in errors.

    Raises:
        InputError: as of :func:`read`.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        if len(values) != len(pairs):
            keys = [key for key, _ in pairs]
            twice = (
                next(key for number, key in enumerate(keys) if key in keys[:number]) if len(keys) < 2000 else "a key"
            )
            raise InputError(where, f"{json.dumps(twice)[:60]} twice in a table", "a key once", "remove one of the two")
        return values

    def endless(name: str) -> Any:
        raise InputError(where, name, "numbers", "remove it, or download the file again")

    try:
        config = json.loads(text, object_pairs_hook=unique, parse_constant=endless)
    except RecursionError:
        raise InputError(where, "brackets nested too deep", _CONFIG_FILE, "check the file") from None
    except InputError:
        raise
    except ValueError as error:  # of a text that is no JSON, and of numbers with too many digits
        raise InputError(where, f"not JSON ({error})", _CONFIG_FILE, "download the file again") from None
    if not isinstance(config, dict):
        raise InputError(where, f"a JSON {type(config).__name__}", "a JSON object", "give the model's config.json")
    check_document(config, where)
    return config


def check_document(config: Mapping[str, Any], where: str) -> None:
    """Raise InputError for a configuration nested too deep, with endless numbers, or too many keys."""
    stack: list[tuple[Any, int]] = [(config, 0)]
    n_keys = 0
    while stack:
        value, depth = stack.pop()
        if depth > toml.DEEPEST:
            raise InputError(where, "brackets nested too deep", _CONFIG_FILE, "check the file")
        if isinstance(value, Mapping):
            n_keys += len(value)
            if n_keys > _MOST_KEYS:
                raise InputError(
                    where, f"more than {_MOST_KEYS:,} keys", _CONFIG_FILE, "check that it is the right file"
                )
            stack += [(inner, depth + 1) for inner in value.values()]
        elif isinstance(value, list):
            stack += [(inner, depth + 1) for inner in value if isinstance(inner, list | Mapping | float)]
        elif isinstance(value, float) and not abs(value) < float("inf"):
            raise InputError(where, f"{value}", "numbers", "remove it, or download the file again")


def read_quantization(path: str | Path) -> dict[str, Any] | None:
    """Return the values of ``hf_quant_config.json`` in the folder of a configuration, None where there is none."""
    file = Path(path).with_name(QUANTIZATION_FILE)
    return read(file) if file.is_file() and file != Path(path) else None
