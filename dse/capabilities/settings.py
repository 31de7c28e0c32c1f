"""``NAME=VALUE``: values of designs as options state them."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from dse.errors import InputError, nearest, unknown_name

if TYPE_CHECKING:
    from dse.doors import Study

#: Names with options of their own.
_OPTIONS = {"workload": "-w", "system": "-s"}

#: Similarity from which an unknown name counts as a misspelt one.
_ALIKE = 0.8


#: A setting among the words of a command line, and what stands before a further one within a value: ``8,pp=2``.
_SETTING = re.compile(r"[A-Za-z_][\w.]*=")
_NEXT_SETTING = re.compile(r"\s*[,;\s]\s*(?=([A-Za-z_][\w.]*)\s*=)")


def split_setting(
    text: str, option: str, form: str = "NAME=VALUE", is_name: Callable[[str], bool] = lambda name: True
) -> tuple[str, str]:
    """Split ``NAME=VALUE`` to (name, value), both without blanks around.

    Args:
        text: what the option states.
        option: its name, for errors.
        form: what it takes, for errors.
        is_name: whether a word of the value that ``=`` follows is the name of a further setting.

    Raises:
        InputError: for another text, and for several settings in one.
    """
    name, equals, value = (part.strip() for part in text.partition("="))
    if not (name and equals and value):
        raise InputError(option, repr(text), form, f"write, for example, {option} tp=8")
    starts = [match for match in _NEXT_SETTING.finditer(value) if is_name(match[1])]
    if starts:
        ends = [*(match.start() for match in starts), len(value)]
        extra_settings = [value[match.end() : end] for match, end in zip(starts, ends[1:], strict=True)]
        raise _several_settings_error(option, repr(text), option, [f"{name}={value[: ends[0]]}", *extra_settings])
    return name, value


def check_one_per_option(command: str, words: Sequence[str], options: Sequence[str]) -> None:
    """Raise an InputError where a second NAME=VALUE follows an option (``--set tp=8 pp=2``) and is no file.

    Args:
        command: name of the command, for errors.
        words: its command line.
        options: its options that take one NAME=VALUE each.
    """
    words = words[: words.index("--")] if "--" in words else words
    for index, word in enumerate(words):
        option, equals, _ = word.partition("=")
        if option not in options:
            continue
        value = index if equals else index + 1
        extra_settings = list(itertools.takewhile(_SETTING.match, words[value + 1 :]))
        if extra_settings and not any(Path(text).exists() for text in extra_settings):
            got = " ".join([*words[index : value + 1], *extra_settings])
            raise _several_settings_error(
                command, got, option, [words[value].removeprefix(f"{option}="), *extra_settings]
            )


def _several_settings_error(where: str, got: str, option: str, settings: Sequence[str]) -> InputError:
    """Return the InputError for several settings of one option, whose fix repeats the option."""
    pairs = [[part.strip(",; ") for part in setting.split("=", 1)] for setting in settings]
    repeated = " ".join(f"{option} {shlex.quote('='.join(pair))}" for pair in pairs)
    return InputError(where, got, f"{option} with one NAME=VALUE", f"repeat {option}: {repeated}")


def setting_texts(settings: Mapping[str, Any] | Sequence[str] | None) -> list[str]:
    """Return settings, name → value or texts, as texts ``NAME=VALUE``."""
    if isinstance(settings, Mapping):
        return [f"{name}={value}" for name, value in settings.items()]
    return [*(settings or ())]


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
