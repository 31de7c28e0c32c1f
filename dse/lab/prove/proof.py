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

from dse.errors import InputError
from dse.io import outputs
from dse.io.files import is_sealed, seal, whole_or_absent
from dse.io.interruption import telling
from dse.io.quantities import counted, quantity
from dse.lab.prove.blocks import CELLS, Blocks, mappings
from dse.lab.prove.branch import BOUNDED, CANNOT_RUN, EVALUATED, OPEN, Front, Node, Prover, State
from dse.optimizers import space as spaces
from dse.optimizers.problem import Problem
from dse.optimizers.proofs import Proof, ProofOptions
from dse.optimizers.space import Point

#: Name of the layout of certificates.
_LAYOUT = "dse certificate 2"

_SUFFIX = ".certificate.npz"


@dataclasses.dataclass(frozen=True)
class ProofProgress:
    """How far a proof is."""

    state: State
    goal: float  #: the gap that is asked for
    found: str  #: the best design, or the size of the front
    method: str = "proof"

    @property
    def share(self) -> float:
        """Near 1 when the gap is near what is asked for."""
        gap = self.state.gap
        return min(1.0, max(self.goal, 1e-4) / gap) if 0.0 < gap < math.inf else float(gap == 0.0)

    def __str__(self) -> str:
        gap = f"gap {100 * self.state.gap:.3g} %" if self.state.gap < 10.0 else "no bound of use yet"
        return f"proof: {counted(self.state.n_blocks, 'block')}, {self.state.n_open:,} open, {self.found}, {gap}"


class Certificate(NamedTuple):
    """What a proof leaves: how the space was divided, the best designs, and the gap."""

    header: dict[str, Any]
    node: Node
    front: Front


def prove(
    task: Problem,
    known: Point | None,
    identity: Mapping[str, str],
    options: ProofOptions,
    file: Path | None = None,
    force: bool = False,
) -> tuple[Proof, Certificate]:
    """Bound the objectives over all designs of a space.

    Args:
        task: the space, with one objective or two.
        known: designs that are known, where the proof begins.
        identity: what results depend on; its digest stands in the certificate.
        options: the gap that is asked for, and the time.
        file: of the certificate, by default none; written when the proof ends, or is interrupted.
        force: replace a file that dse has not written.

    Returns:
        What is proven, and the certificate of it.

    Raises InputError for more objectives, and for a gap of 0 of a space with continuous axes.
    """
    _check(task, options)
    every = members(task)
    prover, interrupted = Prover(every, [] if known is None else _positions(task, every, known), options.gap), False

    def goes_on(state: State) -> bool:
        if options.progress:
            options.progress(ProofProgress(state, options.gap, _found(task, state.front)))
        return options.minutes is None or state.seconds < 60.0 * options.minutes

    def certified() -> Certificate:
        certificate = _certificate(task, identity, prover)
        if file:
            write(file, certificate, force)
        return certificate

    def report() -> str:
        gap, where = certified().header["gap"], f": {file}" if file else ""
        return f"; proven to a gap of {100 * gap:.3g} %{where}" if gap < math.inf else "; nothing is proven yet"

    with telling(report):
        try:
            prover.run(goes_on)
        except KeyboardInterrupt:
            interrupted = True
        certificate = certified()
    return _proof(task, options, prover, certificate, interrupted, file), certificate


def members(task: Problem) -> list[Blocks]:
    """Blocks of each structure of a space."""
    found = []
    for number, (grid, program) in enumerate(task.programs):
        intervals = tuple(one for one in task.spec.intervals if one.path in task.moving(number))
        try:
            found.append(Blocks(program, grid, intervals))
        except (KeyError, NotImplementedError) as unknown:
            where, got = f"study {task.study.name}", f"an operation that is not known of ranges: {unknown}"
            raise InputError(where, got, "the operations of dse.lab.prove", "leave out --prove") from None
    return found


def _positions(task: Problem, members: list[Blocks], points: Point) -> list[tuple[int, list[int]]]:
    """Designs of a search as (structure, positions along its axes)."""
    leaves = {path: np.asarray(column).tolist() for path, column in spaces.values(task.space, points).items()}
    structure = leaves.pop(spaces.STRUCTURE, [0.0] * len(points.digits))
    designs = (dict(zip(leaves, values, strict=True)) for values in zip(*leaves.values(), strict=True))
    return [(int(i), members[int(i)].position(design)) for i, design in zip(structure, designs, strict=True)]


def points(task: Problem, front: Front) -> Point:
    """The designs of a front as points of the space."""
    grid, space, digits, reals = task.grid, task.space, [], []
    order = [mappings(one)[1] for one in grid.each]
    for number, (mapping, *position) in zip(front.member.tolist(), front.position.tolist(), strict=True):
        pair = order[number][mapping]
        along = zip((next(iter(one.columns)) for one in grid.each[number].dimensions), position, strict=False)
        at_path = dict(along)
        reals.append([at_path.get(path, 0) / CELLS for path in space.paths])
        places = [0 if path in space.paths else at for path, at in at_path.items()]
        if grid.members:
            member = grid.members[number]
            pair = member.mappings[pair]
            axes = zip(member.axes, member.positions, strict=True)
            places = [int(at[places[axis]] if axis >= 0 else at[0]) for axis, at in axes]
        row, column = grid.pairs[pair]
        digits.append([*places, row, *np.unravel_index(column, space.sizes[space.row_digit + 1 :])])
    return Point(np.array(digits, np.int32), np.array(reals, np.float32).reshape(len(digits), len(space.paths)))


def digest(identity: Mapping[str, str]) -> str:
    """Of all that the results depend on."""
    return hashlib.sha256(json.dumps(sorted(identity.items())).encode()).hexdigest()


def _check(task: Problem, options: ProofOptions) -> None:
    where = task.spec.sweep.file
    if task.n_objectives > 2:
        got = " and ".join(one.expression.text for one in task.program.objectives)
        raise InputError(f"{where}: objective", got, "one objective or two with --prove", "name two, or leave it out")
    if task.spec.intervals and options.gap <= 0.0:
        raise InputError("--gap", "0 with continuous axes", "a gap above 0", "write --gap 0.001")


def _found(task: Problem, front: Front) -> str:
    """The best design, or the size of a front, in words."""
    if task.n_objectives > 1:
        return f"{counted(len(front.member), 'design')} on the front"
    objective = task.program.objectives[0]
    value = [quantity(objective.sign * one, objective.expression.written) for one in front.objectives[:, 0].tolist()]
    return f"{objective.expression.text.replace('_', ' ')} {value[0] if value else 'none'}"


def _certificate(task: Problem, identity: Mapping[str, str], prover: Prover) -> Certificate:
    state, objectives = prover.state, [one.expression.text for one in task.program.objectives]
    header = {"layout": _LAYOUT, "digest": digest(identity), "objectives": objectives, "gap": state.gap}
    return Certificate(header, prover.tree(state), state.front)


def _proof(
    task: Problem, options: ProofOptions, prover: Prover, certificate: Certificate, interrupted: bool, file: Path | None
) -> Proof:
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


def path_of(output: Path) -> Path:
    """Path of the certificate, next to the results."""
    return output.with_suffix(_SUFFIX)


def write(file: Path, certificate: Certificate, force: bool) -> None:
    """Write a certificate; InputError where the file is another's."""
    outputs.checked(file, force)
    file.parent.mkdir(parents=True, exist_ok=True)
    with outputs.disk_errors(file), whole_or_absent(file) as partial:
        with partial.open("wb") as opened:
            arrays = certificate.node._asdict() | certificate.front._asdict()
            np.savez_compressed(opened, header=np.array(json.dumps(certificate.header)), **arrays)
        seal(partial)


def read(file: Path) -> Certificate:
    """The certificate in a file; InputError where it is none, or not as it was written."""
    fix = "write it again with dse search SPEC --prove"
    try:
        if not is_sealed(file):
            raise InputError(str(file), "not as it was written", "a certificate of dse", fix)
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
            header = json.loads(str(arrays["header"]))
            if header.get("layout") != _LAYOUT:
                raise InputError(str(file), str(header.get("layout")), _LAYOUT, fix)
            node, front = Node(*(arrays[name] for name in Node._fields)), Front(*(arrays[n] for n in Front._fields))
            return Certificate(header, node, front)
    except FileNotFoundError:
        raise InputError(str(file), "no such file", "a certificate of dse", fix) from None
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        raise InputError(str(file), "no certificate", "a certificate of dse", fix) from None
