"""Files that people have, with their right values: written by somebody who had not seen the readers.

Each folder has files and ``cases.toml``. A case has the ``files`` in the order in which they are given, its ``kind``
(training, serving, model, refused), what is recognised (``tool``, ``model``, ``chip``, ``n_devices``), and what is
read (``reads``: short name of a leaf → value; ``either``: several right ones). ``must_say`` are words of the message of
a refusal, ``not_modelled`` options that have to be named. :func:`score` compares an answer with a case.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parents[2] / "tests" / "corpus"

#: Relative difference up to which numbers are equal, and up to which counts of parameters are.
SAME, SAME_COUNT = 1e-3, 5e-3


class Answer(NamedTuple):
    """What a reader says of a case."""

    error: str = ""  #: message of a refusal
    identity: Mapping[str, Any] = {}  #: ``tool``, ``model``, ``chip``, ``n_devices``, as far as recognised
    values: Mapping[str, float] = {}  #: short name of a leaf → value that is read, or the default of the tool
    complete: Callable[[str], float | None] = lambda name: None  #: value of a leaf that the reader leaves open
    named: str = ""  #: all that it names as not read
    read: str = ""  #: options that it reads into leaves


class Score(NamedTuple):
    """Comparison of an answer with a case."""

    outcome: str  #: ``right``, ``told``, ``refused`` or ``misread``
    wrong: dict[str, tuple[Any, Any]]  #: name → (right, answer)
    unnamed: list[str]  #: options that are not read and not named


def cases(folder: str = "*") -> list[dict[str, Any]]:
    """Return the cases of a folder, or of all, each with its ``folder`` and the paths of its ``files``."""
    result = []
    for path in sorted(FOLDER.glob(f"{folder}/cases.toml")):
        for case in tomllib.loads(path.read_text(encoding="utf-8"))["cases"]:
            paths = [path.parent / name for name in case["files"]]
            result.append(
                case | {"folder": path.parent.name, "files": paths, "name": f"{path.parent.name}/{paths[0].stem}"}
            )
    return result


def score(
    case: Mapping[str, Any], answer: Answer, value_of: Callable[[str, Any], float], partly: bool = False
) -> Score:
    """Return the comparison of an answer with a case.

    Args:
        case: of :func:`cases`.
        answer: of a reader.
        value_of: gives the number of a leaf from its name and a number or word.
        partly: whether to compare what is read alone, and not what it leaves to the rest of the design.
    """
    words = case.get("must_say", [])
    says = all(word.lower() in (answer.error + answer.named).lower() for word in words)
    if answer.error:
        may_refuse = case["kind"] == "refused" or case.get("or_refused")
        return Score("right" if may_refuse and says else "refused", {"error": ("", answer.error)}, [])
    if case["kind"] == "refused":
        if partly:
            return Score("told", {}, [])
        return Score("told" if words and says else "misread", {"refused": (" ".join(words), "read")}, [])
    wrong: dict[str, tuple[Any, Any]] = {}
    missing: dict[str, tuple[Any, Any]] = {}
    for name, right in case.get("reads", {}).items():
        allowed = [value_of(name, right)]
        _compare(name, allowed, answer, wrong, missing)
    for name, values in case.get("either", {}).items():
        _compare(name, [value_of(name, value) for value in values], answer, wrong, missing)
    if "parameters" in case and "parameters" in answer.values:
        _compare("parameters", [float(case["parameters"])], answer, wrong, missing)
    for key in ("model", "chip", "n_devices"):
        right = case.get(key)
        if not right:
            continue
        found = answer.identity.get(key)
        if key == "n_devices" and found is None:
            continue
        if found != right and key in answer.identity:
            (wrong if found else missing)[key] = (right, found)
    shown = f"{answer.named} {answer.read}".replace("_", "-")
    words = [name.lstrip("-").rpartition(".")[2].replace("_", "-") for name in case.get("not_modelled", [])]
    unnamed = [name for name, word in zip(case.get("not_modelled", []), words, strict=True) if word not in shown]
    if partly:
        missing = {}
    if not wrong and not missing:
        return Score("right", {}, unnamed)
    if wrong:
        return Score("misread", wrong | missing, unnamed)
    return Score("told" if all(_is_told(name, answer) for name in missing) else "misread", missing, unnamed)


def _is_told(name: str, answer: Answer) -> bool:
    """True where an answer says that it does not know something."""
    return name in ("model", "chip") or name in answer.named


def _compare(
    name: str,
    allowed: list[float],
    answer: Answer,
    wrong: dict[str, tuple[Any, Any]],
    missing: dict[str, tuple[Any, Any]],
) -> None:
    """Note a leaf whose value is none of those allowed: as wrong where it is read, else as missing."""
    is_read = name in answer.values
    value = answer.values[name] if is_read else answer.complete(name)
    tolerance = SAME_COUNT if name in ("parameters", "bytes") else SAME
    if value is None or not any(math.isclose(value, right, rel_tol=tolerance, abs_tol=1e-9) for right in allowed):
        (wrong if is_read else missing)[name] = (allowed[0] if len(allowed) == 1 else allowed, value)
