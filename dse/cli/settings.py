"""``NAME=VALUE``: values of designs as options state them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from dse.errors import InputError, nearest, unknown_name

if TYPE_CHECKING:
    from dse.doors.study import Study

#: Names with options of their own.
_OPTIONS = {"workload": "-w", "system": "-s"}

#: Similarity from which an unknown name counts as a misspelt one.
_ALIKE = 0.8


def settings_of(
    texts: list[str] | None, study: Study, option: str = "--set", to_serve: str = "add --serving"
) -> dict[str, Any]:
    """Values of ``NAME=VALUE`` by name.

    Args:
        texts: what the option states.
        study: kind of the design.
        option: its name, for errors.
        to_serve: fix for leaves of serving.

    Returns:
        Numbers, truth values or texts.

    Raises:
        InputError: for other texts, names that are no leaves of the study, and a leaf that is set twice.
    """
    from dse.designs.leaves import leaf_path, paths_by_ending
    from dse.spec.axes import check_read
    from dse.spec.space import NAMED

    found: dict[str, Any] = {}
    said: dict[str, str] = {}
    for text in texts or []:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value):
            raise InputError(option, repr(text), "NAME=VALUE", f"write, for example, {option} tp=8")
        if name in _OPTIONS:
            raise InputError(option, repr(text), "values of a design", f"write {_OPTIONS[name]} {value}")
        if name == "any_option":
            fix = "write --any-option" if option == "--set" else "leave it out"
            raise InputError(option, repr(text), "values of a design", fix)
        if name in NAMED and name != "software":  # records within a system, which is named whole here
            raise InputError(
                option, repr(text), "values of a design",
                f"{name} is an axis of sweeps; here name a system or an accelerator that has it: -s",
            )  # fmt: skip
        if nearest(name, (*paths_by_ending(), "software"), 1, _ALIKE) == ["software"] != [name]:
            raise unknown_name(option, name, ("software",), "leaves of a design", "dse list leaves")
        path = name if name == "software" else leaf_path(name, option, study.name == "serving")
        if path in said:
            twice(option, name, said[path], text)
        said[path] = text
        if name != "software":  # no leaf, but the name of a stack
            check_read(path, name, option, study, to_serve, "leave it out")
        found[name] = value if name == "software" else _value(path, value)
    return found


def twice(option: str, name: str, first: str, second: str) -> NoReturn:
    """InputError for a value that is stated twice."""
    raise InputError(option, f"{name} twice: {first}, {second}", "each value once", "remove one of them")


def _value(path: str, text: str) -> Any:
    """A number or a truth value, as printed by tables too, else the text."""
    from dse.designs.leaves import known_leaves

    words = {"true": True, "false": False}
    if "enum" not in known_leaves()[path]:
        words |= {"yes": True, "no": False}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return float(text)
    except ValueError:
        return text
