"""What a proof of a search has shown, in words; and whether a certificate holds."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from dse.cli import show
from dse.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from dse.optimizers import Problem
    from dse.optimizers.proofs import Proof

#: Exit status of a certificate that does not hold.
_INVALID = 1


def check_range(name: str, value: float | None, low: float, most: float, fix: str) -> None:
    """Raise an InputError for a value of option ``name`` outside ``low`` to ``most`` (included); None passes."""
    if value is not None and not low <= value <= most:
        raise InputError(name, f"{value:g}", f"{low:g} to {most:g}", fix)


def print_proof(out: Console, proof: Proof, problem: Problem) -> None:
    """Print what is proven, by how many blocks, and the best design where the proof has one."""
    show.heading(out, "proof")
    lines = [statement(proof, problem), _work_text(proof), "counts and minima by axis are those of dse run alone"]
    if proof.leaves:
        lines.insert(1, f"best: {', '.join(_leaf_text(path, value) for path, value in proof.leaves.items())}")
    for line in lines:
        out.print(Text(line), soft_wrap=True)


def _leaf_text(path: str, value: float) -> str:
    """Format a leaf as its short name and its value with unit, a choice by name."""
    from dse.designs import all_leaves

    parts, metadata = path.split("."), all_leaves()[path]
    name = parts[-1] if parts[0] == "mapping" else ".".join(parts[-2:])
    text = metadata["enum"](int(value)).name if "enum" in metadata else show.setting(value, metadata["units"])
    return f"{name} {text}"


def statement(proof: Proof, problem: Problem) -> str:
    """Return a sentence on what is proven of the space, with the gap in per cent."""
    space = "of the space" if problem.space.paths else f"of the {show.counted(problem.space.n_designs, 'design')}"
    if proof.nothing_runs:
        return f"no design {space} can run"
    stopped = "" if proof.is_closed else f"; stopped after {show.seconds(proof.seconds)}"
    if proof.gap is None:
        return f"nothing is proven yet{stopped}"
    names, percent = " or ".join(proof.objectives).replace("_", " "), f"{100 * proof.gap:.3g} %"
    if proof.best is None:
        front = f"the nearest of the front's {show.counted(proof.front, 'design')}"
        return f"no design {space} is better than {front} by more than {percent} in {names}{stopped}"
    best = show.quantity(proof.best, problem.program.objectives[0].expression.display_units)
    return f"no design {space} is better than {names} {best} by more than {percent}{stopped}"


def _work_text(proof: Proof) -> str:
    """Return a line on the work of a proof: blocks by kind, evaluated designs, time."""
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in proof.blocks.items() if count)
    return f"blocks: {kinds}; {show.counted(proof.designs, 'design')} evaluated; {show.seconds(proof.seconds)}"


def print_check(problem: Problem, file: Path, as_json: bool) -> int:
    """Check the certificate in ``file``, print the result, and return the exit status (1 where it is not valid)."""
    from dse.optimizers.proofs import prover

    verdict = prover().check(problem, file)
    if as_json:
        show.document(verdict._asdict())
        return 0 if verdict.is_valid else _INVALID
    out = show.console()
    if not verdict.is_valid:
        out.print(Text(f"not valid: {verdict.fault}", "red"), soft_wrap=True)
    elif not verdict.front or math.isinf(verdict.gap):
        out.print(Text("valid: nothing is proven yet" if verdict.gap else "valid: no design can run"))
    else:
        best = f"the nearest of {show.counted(verdict.front, 'design')}"
        if verdict.best is not None:
            best = show.quantity(verdict.best, problem.program.objectives[0].expression.display_units)
        out.print(Text(f"valid: no design is better than {best} by more than {100 * verdict.gap:.3g} %"))
    blocks = show.counted(verdict.blocks, "block")
    out.print(Text(f"{blocks}, {verdict.halved:,} of them divided further; {show.seconds(verdict.seconds)}"))
    return 0 if verdict.is_valid else _INVALID
