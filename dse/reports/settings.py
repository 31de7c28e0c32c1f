"""``NAME=VALUE``: one setting an option, as command lines state it."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dse.errors import InputError

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
