"""``python -m benchmarks.mutants``: faults put into the formulas one at a time, and whether a test notices.

A mutant is one arithmetic operation of a function that is doubled (a factor), has its sign changed, or loses a term or
factor. Mutants are drawn over the rooms in turn, by a seed. Each one stands in a copy of the checkout, where the tests
of its room run first, then the laws, then all other tests of single rooms, until one fails. Kept numbers of the golden
panel are left out: they notice any change and say nothing about which number is right.

A mutant that no test notices is a formula that no test holds, or one that changes nothing: the diff is printed.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]

#: Rooms with formulas, in the order in which mutants are drawn.
ROOMS = (
    "model/accounts", "model/machine", "model/money", "model/parallel", "model/serving", "model/steps", "model/work",
    "model", "fleet", "lab/simulator", "lab/rl", "measured/uncertainty", "doors", "designs",
)  # fmt: skip

#: What a copy of the checkout needs for its tests.
COPIED = ("dse", "tests", "hw_catalog", "sweeps", "calibration", "docs", "benchmarks", "pyproject.toml", "README.md")

#: The test of the panel's kept numbers.
PANEL = "not test_the_numbers_of_the_panel_are_those_that_are_kept"


class Mutant(NamedTuple):
    """One operation of a file and the text in its place."""

    path: Path  #: from the root of the checkout
    line: int
    kind: str  #: factor, sign or dropped
    before: str
    after: str
    start: int  #: of the operation in the file, in characters
    end: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.kind}: {self.before!r} -> {self.after!r}"


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Yield the mutants of a file: those of additions, subtractions, products and quotients within functions."""
    text = (ROOT / path).read_text(encoding="utf-8")
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    encoded = text.encode()
    for function in ast.walk(ast.parse(text)):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div):
                continue
            if any(isinstance(part, ast.Constant) and isinstance(part.value, str) for part in ast.walk(node)):
                continue
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
            before, left = encoded[start:end].decode(), ast.unparse(node.left)
            for kind, after in _changes(node, left):
                yield Mutant(path, node.lineno, kind, " ".join(before.split()), f"({after})", start, end)


def _changes(node: ast.BinOp, left: str) -> Iterator[tuple[str, str]]:
    """Yield (kind, text) of what may stand in the place of an operation."""
    yield "factor", f"2.0 * ({ast.unparse(node)})"
    yield "dropped", left
    if isinstance(node.op, ast.Add | ast.Sub):
        operation = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
        yield "sign", ast.unparse(ast.BinOp(node.left, operation, node.right))


def drawn(count: int, seed: int) -> list[Mutant]:
    """Return ``count`` mutants, a room after the other, a file and an operation of it by chance."""
    generator, mutants = random.Random(seed), list[Mutant]()
    while len(mutants) < count:
        room = ROOMS[len(mutants) % len(ROOMS)]
        folder = ROOT / "dse" / room
        files = sorted(folder.glob("*.py") if room in {"model", "doors", "designs"} else folder.rglob("*.py"))
        choices = list(mutants_of(generator.choice(files).relative_to(ROOT)))
        if choices and (mutant := generator.choice(choices)) not in mutants:
            mutants.append(mutant)
    return mutants


def stages(mutant: Mutant) -> Iterator[list[str]]:
    """Yield the tests to run, in turn: those of the file's room, the laws, all others of single rooms."""
    room = Path("tests/unit", *mutant.path.parts[1:-1])
    if (ROOT / room).is_dir():
        yield [room.as_posix()]
    yield ["tests/laws"]
    yield ["tests/unit", f"--ignore={room.as_posix()}"]


def failure(tests: list[str], copy: Path, jobs: int, limit: float) -> str:
    """Return the first of some tests that fails in a copy of the checkout, "" where all pass."""
    arguments = ["-q", "-x", "-n", str(jobs), "--dist", "loadfile", "-p", "no:cacheprovider", "-k", PANEL]
    command = [sys.executable, "-m", "pytest", *arguments, "-m", "not slow and not browser and not heavy", *tests]
    environment = os.environ | {"PYTHONPATH": str(copy)}
    try:
        run = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return f"{tests[0]}: no end within {limit:.0f} s"
    if run.returncode in {0, 5}:  # all passed, or none was there
        return ""
    lines = [line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return (lines or [run.stdout[-200:] + run.stderr[-200:]])[0][:160]


def noticed_by(mutant: Mutant, copy: Path, jobs: int, limit: float) -> str:
    """Return the first test that fails on a mutant in a copy of the checkout, "" where all pass."""
    path = copy / mutant.path
    original = path.read_bytes()
    path.write_bytes(original[: mutant.start] + mutant.after.encode() + original[mutant.end :])
    try:
        return next(filter(None, (failure(tests, copy, jobs, limit) for tests in stages(mutant))), "")
    finally:
        path.write_bytes(original)


def main() -> int:
    """Draw mutants, run the tests on each one and print which test notices; 1 where fewer than nine in ten are."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=38, help="how many mutants (38)")
    parser.add_argument("--seed", type=int, default=59, help="of the draw (59)")
    parser.add_argument("--first", type=int, default=0, help="number of the first one that is tried (0)")
    parser.add_argument("--jobs", type=int, default=2, help="processes of the tests (2)")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds of a run of tests (900)")
    parser.add_argument("--list", action="store_true", help="print the mutants and try none")
    options = parser.parse_args()
    mutants = drawn(options.count, options.seed)[options.first :]
    if options.list:
        print(*mutants, sep="\n")
        return 0
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in COPIED:
            source = ROOT / name
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, Path(folder, name))
        if error := failure(["tests/unit", "tests/laws"], Path(folder), options.jobs, 4 * options.limit):
            print(f"fails without a mutant: {error}")
            return 1
        for number, mutant in enumerate(mutants, options.first):
            start = time.monotonic()
            test = noticed_by(mutant, Path(folder), options.jobs, options.limit)
            missed += not test
            print(f"{number} {mutant}\n    {test or 'NO TEST'} ({time.monotonic() - start:.0f} s)", flush=True)
    print(f"{len(mutants) - missed} of {len(mutants)} noticed")
    return int(10 * missed > len(mutants))


if __name__ == "__main__":
    sys.exit(main())
