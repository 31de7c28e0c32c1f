"""What a proof of a search has shown, in words; and whether a certificate holds."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from dse.io import counted, quantity, seconds, setting
from dse.reports import Line, Report, heading
from dse.reports.tables import Style

if TYPE_CHECKING:
    from dse.optimizers import Problem
    from dse.optimizers.proofs import Proof

#: Exit status of a certificate that does not hold.
_INVALID = 1


def proof_lines(proof: Proof, problem: Problem) -> list[Line]:
    """Return lines on what is proven, on the best design where the proof has one, and on the number of blocks."""
    texts = [statement(proof, problem), _work_text(proof), "counts and minima by axis are those of dse run alone"]
    if proof.leaves:
        texts.insert(1, f"best: {', '.join(_leaf_text(path, value) for path, value in proof.leaves.items())}")
    return [heading("proof"), *map(Line, texts)]


def _leaf_text(path: str, value: float) -> str:
    """Format a leaf as its short name and its value with unit, a choice by name."""
    from dse.designs import all_leaves

    parts, metadata = path.split("."), all_leaves()[path]
    name = parts[-1] if parts[0] == "mapping" else ".".join(parts[-2:])
    text = metadata["enum"](int(value)).name if "enum" in metadata else setting(value, metadata["units"])
    return f"{name} {text}"


def statement(proof: Proof, problem: Problem) -> str:
    """Return a sentence on what is proven of the space, with the gap in per cent."""
    space = "of the space" if problem.space.paths else f"of the {counted(problem.space.n_designs, 'design')}"
    if proof.nothing_runs:
        return f"no design {space} can run"
    stopped = "" if proof.is_closed else f"; stopped after {seconds(proof.seconds)}"
    if proof.gap is None:
        return f"nothing is proven yet{stopped}"
    names, gap = " or ".join(proof.objectives).replace("_", " "), f"{100 * proof.gap:.3g} %"
    if proof.best is None:
        front = f"the nearest of the front's {counted(proof.front, 'design')}"
        return f"no design {space} is better than {front} by more than {gap} in {names}{stopped}"
    best = quantity(proof.best, problem.program.objectives[0].expression.display_units)
    return f"no design {space} is better than {names} {best} by more than {gap}{stopped}"


def _work_text(proof: Proof) -> str:
    """Return a line on the work of a proof: blocks by kind, evaluated designs, time."""
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in proof.blocks.items() if count)
    return f"blocks: {kinds}; {counted(proof.designs, 'design')} evaluated; {seconds(proof.seconds)}"


def check_report(problem: Problem, certificate: Path) -> Report:
    """Return the report of the check of a certificate, with status 1 where it is not valid.

    Args:
        problem: the search whose proof it is.
        certificate: file.
    """
    from dse.optimizers.proofs import prover

    verdict = prover().check(problem, certificate)
    if not verdict.is_valid:
        line = Line(f"not valid: {verdict.fault}", Style.fault)
    elif not verdict.front or math.isinf(verdict.gap):
        line = Line("valid: nothing is proven yet" if verdict.gap else "valid: no design can run")
    else:
        best = f"the nearest of {counted(verdict.front, 'design')}"
        if verdict.best is not None:
            best = quantity(verdict.best, problem.program.objectives[0].expression.display_units)
        line = Line(f"valid: no design is better than {best} by more than {100 * verdict.gap:.3g} %")
    blocks = counted(verdict.blocks, "block")
    work = Line(f"{blocks}, {verdict.halved:,} of them divided further; {seconds(verdict.seconds)}")
    return Report(verdict._asdict(), [line, work], status=0 if verdict.is_valid else _INVALID)
