"""Prove how much better than the best designs found any design of a space may be, and write that down.

Of one objective that is the best design, of two the front: no design of the space is better than the nearest of the
front by more than the gap in either objective.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dse.equations.primitives import RefusedPrimitiveError
from dse.errors import InputError
from dse.io import atomic_file, counted, outputs, quantity, reporting
from dse.io.files import is_sealed, seal
from dse.lab.prove.blocks import CELLS, BlockEvaluator, sorted_mappings
from dse.lab.prove.branch import (
    BOUNDED,
    CANNOT_RUN,
    EVALUATED,
    OPEN,
    BlockTree,
    BranchAndBound,
    IncumbentFront,
    ProofState,
)
from dse.optimizers import space as spaces
from dse.optimizers.problem import Problem
from dse.optimizers.proofs import Proof, ProofOptions
from dse.optimizers.space import Point

#: Name of the layout of certificates.
_LAYOUT = "dse certificate 2"

_SUFFIX = ".certificate.npz"


@dataclasses.dataclass(frozen=True)
class ProofProgress:
    """Progress of a proof for display."""

    state: ProofState
    goal: float  #: the gap that is asked for
    best_text: str  #: the best design, or the size of the front
    method: str = "proof"

    @property
    def share(self) -> float:
        """Ratio of the goal to the gap, 0 to 1."""
        gap = self.state.gap
        return min(1.0, max(self.goal, 1e-4) / gap) if 0.0 < gap < math.inf else float(gap == 0.0)

    def __str__(self) -> str:
        gap = f"gap {100 * self.state.gap:.3g} %" if self.state.gap < 10.0 else "no bound of use yet"
        return f"proof: {counted(self.state.n_blocks, 'block')}, {self.state.n_open:,} open, {self.best_text}, {gap}"


class Certificate(NamedTuple):
    """A proof as written to a file: how the space was divided, the best designs, and the gap."""

    header: dict[str, Any]
    node: BlockTree
    front: IncumbentFront


def prove(
    task: Problem,
    incumbents: Point | None,
    identity: Mapping[str, str],
    options: ProofOptions,
    file: Path | None = None,
    force: bool = False,
) -> tuple[Proof, Certificate]:
    """Bound the objectives over all designs of a space; return the proof and its certificate, and write that.

    Args:
        task: the space, with one objective or two.
        incumbents: designs that are known, where the proof begins.
        identity: what results depend on; its digest stands in the certificate.
        options: the gap that is asked for, and the time.
        file: of the certificate, by default none; written when the proof ends, or is interrupted.
        force: replace a file that dse has not written.

    Returns:
        What is proven, and the certificate of it.

    Raises:
        InputError: for more than two objectives, and for a gap of 0 of a space with continuous axes.
    """
    _check(task, options)
    block_evaluators = evaluators(task)
    positions = [] if incumbents is None else _positions(task, block_evaluators, incumbents)
    prover, interrupted = BranchAndBound(block_evaluators, positions, options.gap), False

    def may_continue(state: ProofState) -> bool:
        if options.progress:
            options.progress(ProofProgress(state, options.gap, _best_text(task, state.front)))
        return options.minutes is None or state.seconds < 60.0 * options.minutes

    def write_certificate() -> Certificate:
        certificate = _certificate(task, identity, prover)
        if file:
            write(file, certificate, force)
        return certificate

    def report() -> str:
        gap, where = write_certificate().header["gap"], f": {file}" if file else ""
        return f"; proven to a gap of {100 * gap:.3g} %{where}" if gap < math.inf else "; nothing is proven yet"

    with reporting(report):
        try:
            prover.run(may_continue)
        except KeyboardInterrupt:
            interrupted = True
        certificate = write_certificate()
    return _proof(task, options, prover, certificate, interrupted, file), certificate


def evaluators(task: Problem) -> list[BlockEvaluator]:
    """Return an evaluator of blocks for each structure of a space.

    Raises:
        InputError: for a study with an operation that has no rule for ranges.
    """
    evaluators = []
    for grid, program in task.programs:
        intervals = tuple(interval for interval in task.spec.intervals if interval.path in task.searched_leaves(grid))
        try:
            evaluators.append(BlockEvaluator(program, grid, intervals))
        except RefusedPrimitiveError as refused:
            where, got = f"study {task.study.name}", f"an operation that is not known of ranges: {refused.primitive!r}"
            raise InputError(where, got, "the operations of dse.lab.prove", "leave out --prove") from None
    return evaluators


def _positions(task: Problem, members: list[BlockEvaluator], points: Point) -> list[tuple[int, list[int]]]:
    """Return designs of a search as (index of the structure, positions along its axes)."""
    leaves = {path: np.asarray(column).tolist() for path, column in spaces.values(task.space, points).items()}
    structure = leaves.pop(spaces.STRUCTURE, [0.0] * len(points.digits))
    designs = (dict(zip(leaves, values, strict=True)) for values in zip(*leaves.values(), strict=True))
    return [(int(i), members[int(i)].position(design)) for i, design in zip(structure, designs, strict=True)]


def front_points(task: Problem, front: IncumbentFront) -> Point:
    """Return the designs of a front as points of the space."""
    grid, space, digits, reals = task.grid, task.space, [], []
    table_rows = [sorted_mappings(structure_grid)[1] for structure_grid in grid.structure_grids]
    for structure, (mapping, *position) in zip(front.member.tolist(), front.position.tolist(), strict=True):
        pair = table_rows[structure][mapping]
        paths = (next(iter(dimension.columns)) for dimension in grid.structure_grids[structure].dimensions)
        position_by_path = dict(zip(paths, position, strict=False))
        reals.append([position_by_path.get(path, 0) / CELLS for path in space.paths])
        axis_digits = [0 if path in space.paths else digit for path, digit in position_by_path.items()]
        if grid.members:
            member = grid.members[structure]
            pair = member.mappings[pair]
            axes = zip(member.axes, member.positions, strict=True)
            axis_digits = [int(column[axis_digits[axis]] if axis >= 0 else column[0]) for axis, column in axes]
        row, column = grid.pairs[pair]
        digits.append([*axis_digits, row, *np.unravel_index(column, space.sizes[space.row_digit + 1 :])])
    return Point(np.array(digits, np.int32), np.array(reals, np.float32).reshape(len(digits), len(space.paths)))


def digest(identity: Mapping[str, str]) -> str:
    """Return the checksum (SHA-256, hexadecimal) of what the results depend on."""
    return hashlib.sha256(json.dumps(sorted(identity.items())).encode()).hexdigest()


def _check(task: Problem, options: ProofOptions) -> None:
    """Check that there are at most two objectives, and a gap above 0 with continuous axes, else raise InputError."""
    where = task.spec.sweep.file
    if task.n_objectives > 2:
        got = " and ".join(objective.expression.text for objective in task.program.objectives)
        raise InputError(f"{where}: objective", got, "one objective or two with --prove", "name two, or leave it out")
    if task.spec.intervals and options.gap <= 0.0:
        raise InputError("--gap", "0 with continuous axes", "a gap above 0", "write --gap 0.001")


def _best_text(task: Problem, front: IncumbentFront) -> str:
    """Return the objective of the best design, or the size of a front, in words."""
    if task.n_objectives > 1:
        return f"{counted(len(front.member), 'design')} on the front"
    objective = task.program.objectives[0]
    value = [
        quantity(objective.sign * best, objective.expression.display_units) for best in front.objectives[:, 0].tolist()
    ]
    return f"{objective.expression.text.replace('_', ' ')} {value[0] if value else 'none'}"


def _certificate(task: Problem, identity: Mapping[str, str], prover: BranchAndBound) -> Certificate:
    """Return the certificate of the prover's state."""
    state, objectives = prover.state, [objective.expression.text for objective in task.program.objectives]
    header = {"layout": _LAYOUT, "digest": digest(identity), "objectives": objectives, "gap": state.gap}
    return Certificate(header, prover.tree(state), state.front)


def _proof(
    task: Problem,
    options: ProofOptions,
    prover: BranchAndBound,
    certificate: Certificate,
    interrupted: bool,
    file: Path | None,
) -> Proof:
    """Return what a certificate proves, with bound and best design where there is one objective."""
    state, (front, gap) = prover.state, (certificate.front, certificate.header["gap"])
    kinds = np.bincount(certificate.node.kind, minlength=EVALUATED + 1)
    names = {"cannot run": CANNOT_RUN, "bound": BOUNDED, "evaluated": EVALUATED, "open": OPEN}
    best = bound = None
    leaves: dict[str, float] = {}
    if task.n_objectives == 1 and len(front.member):
        sign, least = task.program.objectives[0].sign, float(front.objectives[0, 0])
        best, bound = sign * least, sign * (least - gap * abs(least)) if math.isfinite(gap) else None
        leaves = {path: float(v[0]) for path, v in prover.members[front.member[0]].leaves(front.position[:1]).items()}
    return Proof(
        tuple(certificate.header["objectives"]),
        best,
        bound,
        len(front.member),
        gap if math.isfinite(gap) else None,
        options.gap,
        not len(front.member) and gap == 0.0,
        leaves,
        {name: int(kinds[kind]) for name, kind in names.items()},
        state.n_designs,
        state.seconds,
        file,
        interrupted,
    )


# --- certificates -------------------------------------------------------------------------------------------


def certificate_path(output: Path) -> Path:
    """Return the path of the certificate beside a results file: its suffix replaced by ``.certificate.npz``."""
    return output.with_suffix(_SUFFIX)


def write(file: Path, certificate: Certificate, force: bool) -> None:
    """Write a certificate to a compressed, sealed file of NumPy.

    Raises:
        InputError: for a file that dse has not written, unless ``force``.
    """
    outputs.check_output(file, force)
    file.parent.mkdir(parents=True, exist_ok=True)
    with outputs.disk_errors(file), atomic_file(file) as partial:
        with partial.open("wb") as stream:
            arrays = certificate.node._asdict() | certificate.front._asdict()
            np.savez_compressed(stream, header=np.array(json.dumps(certificate.header)), **arrays)
        seal(partial)


def read(file: Path) -> Certificate:
    """Return the certificate in a file that :func:`write` wrote.

    Raises:
        InputError: for a file that is no certificate, or was changed.
    """
    fix = "write it again with dse search SPEC --prove"
    try:
        if not is_sealed(file):
            raise InputError(str(file), "not as it was written", "a certificate of dse", fix)
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            header = json.loads(str(arrays["header"]))
            if header.get("layout") != _LAYOUT:
                raise InputError(str(file), str(header.get("layout")), _LAYOUT, fix)
            node = BlockTree(*(arrays[name] for name in BlockTree._fields))
            return Certificate(header, node, IncumbentFront(*(arrays[name] for name in IncumbentFront._fields)))
    except FileNotFoundError:
        raise InputError(str(file), "no such file", "a certificate of dse", fix) from None
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        raise InputError(str(file), "no certificate", "a certificate of dse", fix) from None
