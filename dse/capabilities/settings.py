"""``NAME=VALUE``: values of designs as options state them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from dse.errors import InputError, nearest, unknown_name
from dse.reports.settings import setting_texts, split_setting

if TYPE_CHECKING:
    from dse.doors import Study

#: Names with options of their own.
_OPTIONS = {"workload": "-w", "system": "-s"}

#: Similarity from which an unknown name counts as a misspelt one.
_ALIKE = 0.8


def settings_of(
    settings: Mapping[str, Any] | Sequence[str] | None,
    study: Study,
    option: str = "--set",
    to_serve: str = "add --serving",
) -> dict[str, Any]:
    """Parse settings to name as written → value.

    Args:
        settings: name → value, or texts ``NAME=VALUE``.
        study: kind of the design.
        option: its name, for errors.
        to_serve: fix for leaves of serving.

    Returns:
        Numbers, truth values or texts.

    Raises:
        InputError: for other texts, names that are no leaves of the study, and a leaf that is set twice.
    """
    from dse.designs import leaf_path
    from dse.designs.leaves import paths_by_ending
    from dse.spec.axes import check_read
    from dse.spec.space import CATALOGUE_KEYS

    values: dict[str, Any] = {}
    text_by_path: dict[str, str] = {}
    for text in setting_texts(settings):
        name, value = split_setting(text, option)
        if name in _OPTIONS:
            raise InputError(option, repr(text), "values of a design", f"write {_OPTIONS[name]} {value}")
        if name == "any_option":
            fix = "write --any-option" if option == "--set" else "leave it out"
            raise InputError(option, repr(text), "values of a design", fix)
        if name in CATALOGUE_KEYS and name != "software":  # records within a system, which is named whole here
            raise InputError(
                option,
                repr(text),
                "values of a design",
                f"{name} is an axis of sweeps; here name a system or an accelerator that has it: -s",
            )
        paths = paths_by_ending()
        if name not in paths and nearest(name, (*paths, "software"), 1, _ALIKE) == ["software"] != [name]:
            raise unknown_name(option, name, ("software",), "leaves of a design", "dse list leaves")
        path = name if name == "software" else leaf_path(name, option, study.name == "serving")
        if path in text_by_path:
            raise_duplicate(option, name, text_by_path[path], text)
        text_by_path[path] = text
        if name != "software":  # no leaf, but the name of a stack
            check_read(path, name, option, study, to_serve, "leave it out")
        values[name] = value if name == "software" else _value(path, value)
    return values


def raise_duplicate(option: str, name: str, first: str, second: str) -> NoReturn:
    """Raise the InputError of a value that is stated twice."""
    raise InputError(option, f"{name} twice: {first}, {second}", "each value once", "remove one of them")


def _value(path: str, text: str) -> Any:
    """Parse the value of a leaf: a truth value (``yes`` too where it is no choice), a float, else the text as it is."""
    from dse.designs import all_leaves

    words = {"true": True, "false": False}
    if "enum" not in all_leaves()[path]:
        words |= {"yes": True, "no": False}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return float(text)
    except ValueError:
        return text


def leaf_setting(path: str, value: float) -> str:
    """Format the value of a leaf as ``--set`` reads it, with its unit."""
    from dse.designs import all_leaves
    from dse.designs.neighbours import leaf_text

    units = all_leaves()[path]["units"]
    return leaf_text(path, value) + ("" if units in ("1", "s-1") else units)


def number_or_text(text: str) -> float | str:
    """Return the number that a text is, else the text."""
    with contextlib.suppress(ValueError):
        return float(text)
    return text
