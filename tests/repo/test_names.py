"""Names say what a thing is: words that only tell its part in a sentence are rare."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: Pronouns, participles and adverbs that name no thing. The list may grow.
WORDS = {
    "found", "one", "own", "at", "known", "whole", "kept", "left", "made", "held", "asked", "told", "given",
    "wanted", "stated", "there", "here", "others", "many", "each", "apart", "beside", "around", "beyond", "drawn",
    "met", "moving", "holds", "goals", "taken", "meant", "shown", "done", "of", "again", "books", "further",
    "alone", "a_prompt", "a_further", "a_sequence", "a_layer", "a_token", "a_step", "a_stage", "within", "without",
    "inside", "outside", "need", "needed", "lacks", "lacking", "way", "ways", "twin", "worth", "come", "comes",
    "both", "between", "before", "after", "longer", "shorter", "behind", "moved", "sent", "ran", "opened", "begun",
    "began", "named", "joined", "placed", "divided", "written", "paired", "listed", "used", "seen", "spent", "less",
    "more", "such", "so", "then", "thus", "rest",
}  # fmt: skip

#: Those that no part of a name should be either.
IN_COMPOUNDS = {
    "found", "own", "known", "whole", "kept", "made", "held", "asked", "told", "given", "wanted", "stated", "taken",
    "drawn", "met", "meant", "beside", "apart",
}  # fmt: skip

#: Largest share of such names. Few are keys of files, options and fields that users have.
_WHOLE, _COMPOUND = 0.01, 0.003


def _bound(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno


def _words(name: str) -> list[str]:
    return [word for word in re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_") if word]


def test_words_of_a_name_by_hand():
    assert _words("_StoredActivations") == ["stored", "activations"] and _words("a_prompt") == ["a", "prompt"]


def test_names_are_things():
    whole, compound, count = Counter(), Counter(), 0
    for path in sorted((ROOT / "dse").rglob("*.py")):
        for name, line in _bound(ast.parse(path.read_text(encoding="utf-8"))):
            words, place = _words(name), f"{path.relative_to(ROOT)}:{line} {name}"
            count += 1
            if "_".join(words) in WORDS:
                whole[place] += 1
            elif len(words) > 1 and IN_COMPOUNDS & {*words}:
                compound[place] += 1
    assert whole.total() <= _WHOLE * count, sorted(whole)
    assert compound.total() <= _COMPOUND * count, sorted(compound)


def test_a_class_has_its_name_alone():
    places = Counter(
        node.name
        for path in sorted((ROOT / "dse").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    )
    assert not {name: count for name, count in places.items() if count > 1}
