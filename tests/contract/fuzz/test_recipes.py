"""Recipes made wrong are read, or refused in four parts, within two seconds and 300 MB each."""

from __future__ import annotations

import random
import time
import tracemalloc
from pathlib import Path

import pytest

from benchmarks.recipes import cases
from dse.capabilities.recipes import read_recipe
from tests.conftest import full_size
from tests.contract.fuzz.mutants import error_of

#: Seconds and bytes that no file may take.
LONGEST, LARGEST = 2.0, 300e6

#: Text that no place of a file is glad of.
PIECES = (
    "", " ", "\\", "\"", "'", "`", "$(", "${", "$((", "))", "}", "{", "[", "]", "<<EOF\n", "\nEOF\n", "$X",
    "${X:-${X}}", "$((1/0))", "$((9**9))", "-1", "0", "nan", "inf", "1e999", "9" * 400, "auto", "null", "true",
    "٣", "\x00", "\x1b[31m", "é" * 200, ": ", "- ", "&a [*a]", "<<: *a",
    "!!python/object/apply:os.system ['true']", "---\n", "\t", "\r\n", "#", "--", "=", "--=", "-" * 300,
    "(" * 300, "for i in 1; do ", "; done", "if [ 1 = 1 ]; then ", "fi", "case x in x) ", "esac",
    "A=$A$A\n" * 40, "${a.b}", "${multiply:4,${.x}}", "{{ x }}", "\n" * 300, "--tensor-model-parallel-size 0 ",
    "-tp -8 ",
)  # fmt: skip


def _format(case: dict) -> str:
    """Return the format of a case's files, by their endings."""
    return "".join(sorted({path.suffix for path in case["files"]}))


CASES = cases()
FORMATS = sorted({_format(case) for case in CASES})


def mutant(rng: random.Random, texts: dict[str, str], pieces: tuple[str, ...] = PIECES) -> dict[str, str]:
    """Return texts with one to four changes, some of them one of the ``pieces``."""
    changed = dict(texts)
    for _ in range(rng.randint(1, 4)):
        name = rng.choice(list(changed))
        text = changed[name]
        lines = text.split("\n")
        kind, at = rng.randrange(7), rng.randrange(len(text) + 1)
        if kind == 0:
            del lines[rng.randrange(len(lines))]
            changed[name] = "\n".join(lines)
        elif kind == 1:
            lines.insert(rng.randrange(len(lines) + 1), rng.choice(lines))
            changed[name] = "\n".join(lines)
        elif kind == 2:
            changed[name] = text[:at]
        elif kind == 3:
            end = min(len(text), at + rng.randrange(30))
            changed[name] = text[:at] + text[end:]
        elif kind == 4:
            words = text.split(" ")
            words[rng.randrange(len(words))] = rng.choice(pieces)
            changed[name] = " ".join(words)
        elif kind == 5:
            changed[name] = text.replace(rng.choice("0123456789\"'{}[]$=:-"), rng.choice(pieces))[:200_000]
        else:
            changed[name] = text[:at] + rng.choice(pieces) + text[at:]
    return changed


def fault(texts: dict[str, str], role: str = "") -> str:
    """Return what is wrong with how files are taken, "" for nothing."""

    def take() -> None:
        recipe = read_recipe(texts, role=role)
        assert all(isinstance(text, str) for text in recipe.missing)

    start = time.process_time()
    if words := error_of(take):
        return words
    seconds = time.process_time() - start
    return f"{seconds:.1f} s" if seconds > LONGEST else ""


@pytest.mark.parametrize("form", FORMATS)
def test_mutants_of_recipes(form):
    rng = random.Random(f"recipes {form}")
    chosen = [case for case in CASES if _format(case) == form]
    texts = [({p.name: p.read_text(encoding="utf-8") for p in case["files"]}, case.get("role", "")) for case in chosen]
    wrong = []
    for _ in range(full_size(12, 2000)):
        given, role = rng.choice(texts)
        made = mutant(rng, given)
        if words := fault(made, role):
            wrong.append((words, made))
    assert not wrong, [(words, str(made)[:600]) for words, made in wrong[:2]]


def test_large_recipes_take_little_memory():
    options = "".join(f" --option-{i} {i}" for i in range(1500))
    tables = "".join(f"table{i}:\n  key: [{', '.join(['1'] * 50)}]\n" for i in range(300))
    anchors = "a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(
        f"b{i}: &b{i} [{','.join([f'*b{i - 1}' if i else '*a'] * 9)}]\n" for i in range(9)
    )
    for text, name in (
        (f"vllm serve m -tp 8 {options}", "a.sh"),
        (tables, "a.yaml"),
        (anchors, "b.yaml"),
        ("x" * 4_000_000, "c.sh"),
    ):
        fault({"warm.sh": "vllm serve m -tp 8"})
        assert fault({name: text}) == ""
        tracemalloc.start()  # takes several times as long
        fault({name: text})
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < LARGEST, (name, peak)


def test_nothing_of_a_file_is_executed(tmp_path: Path):
    mark = tmp_path / "mark"
    for text in (f"touch {mark}", f"$(touch {mark})", f"`touch {mark}`", f"A=$(touch {mark}); vllm serve m -tp $A"):
        fault({"a.sh": text})
    fault({"a.yaml": f"!!python/object/apply:os.system ['touch {mark}']"})
    fault({"a.py": f"import os\nos.system('touch {mark}')\nmodel.tensor_model_parallel_size = 8"})
    assert not mark.exists()
