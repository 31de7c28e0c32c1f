"""Prove how much better than the best design found any design of a space may be, and write that down."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dse.errors import InputError
from dse.io import outputs
from dse.io.files import is_sealed, seal, whole_or_absent
from dse.io.quantities import quantity
from dse.search.problem import Problem
from dse.search.prove.blocks import Blocks
from dse.search.prove.branch import BOUNDED, CANNOT_RUN, EVALUATED, OPEN, Found, Node, Prover, State, gap_of
from dse.sweep.engine.numpy_backend import evaluate_few

#: Name of the layout of certificates.
_LAYOUT = "dse certificate 1"

_SUFFIX = ".certificate.npz"


@dataclasses.dataclass(frozen=True)
class ProofOptions:
    """When a proof ends."""

    gap: float = 0.005  #: how much better than the best a design may be
    minutes: float | None = None  #: at most
    progress: Callable[[Any], None] | None = None  #: called with a :class:`ProofProgress`


@dataclasses.dataclass(frozen=True)
class ProofProgress:
    """How far a proof is."""

    state: State
    goal: float  #: the gap that is asked for
    objective: str
    units: str
    sign: float
    method: str = "proof"

    @property
    def share(self) -> float:
        """Near 1 when the gap is near what is asked for."""
        gap = self.state.gap
        return min(1.0, max(self.goal, 1e-4) / gap) if 0.0 < gap < math.inf else float(gap == 0.0)

    def __str__(self) -> str:
        best, gap = self.state.best, self.state.gap
        value = quantity(self.sign * best.objective, self.units) if best else "none"
        told = f"gap {100 * gap:.3g} %" if gap < 10.0 else "no bound of use yet"
        name = self.objective.replace("_", " ")
        return f"proof: {self.state.n_blocks:,} blocks, {self.state.n_open:,} open, {name} {value}, {told}"


@dataclasses.dataclass(frozen=True)
class Proof:
    """What is proven of a space."""

    objective: str
    best: float | None  #: of the best design, as it is written; None where none can run
    bound: float | None  #: that no design is better than; None where nothing is known, or none can run
    gap: float | None  #: by how much, relative to the best
    asked: float  #: the gap that was asked for
    nothing_runs: bool  #: whether it is proven that no design can run
    leaves: Mapping[str, float]  #: of the best design by full path, those that the space moves
    blocks: Mapping[str, int]  #: blocks by what became of them
    designs: int  #: evaluated one by one
    seconds: float
    certificate: Path | None = None
    interrupted: bool = False

    @property
    def is_closed(self) -> bool:
        """Whether what was asked for is proven."""
        return self.nothing_runs or (self.gap is not None and self.gap <= self.asked)


class Certificate(NamedTuple):
    """What a proof leaves: how the space was divided, the best design, and what no design is below."""

    header: dict[str, Any]
    node: Node


def prove(
    task: Problem, best: Found | None, identity: Mapping[str, str], options: ProofOptions
) -> tuple[Proof, Certificate]:
    """Bound the objective over all designs of a space.

    Args:
        task: the space, with one objective.
        best: the best design that is known, which the proof may improve.
        identity: what results depend on; its digest stands in the certificate.
        options: the gap that is asked for, and the time.

    Returns:
        What is proven, and the certificate of it.

    Raises InputError for several objectives, and for a gap of 0 of a space with continuous axes.
    """
    _check(task, options)
    prover = Prover(members(task), best, options.gap)
    interrupted = False

    def goes_on(state: State) -> bool:
        if options.progress:
            options.progress(_progress(task, options, state))
        return options.minutes is None or state.seconds < 60.0 * options.minutes

    try:
        state = prover.run(goes_on)
    except KeyboardInterrupt:
        state, interrupted = prover.state(), True
    node = prover.tree()
    proof = _proof(task, options, state, node, interrupted)
    found = state.best
    header = {
        "layout": _LAYOUT, "digest": digest(identity), "objective": proof.objective,
        "bound": state.bound, "best": None if found is None else found._asdict(),
    }  # fmt: skip
    return proof, Certificate(header, node)


def members(task: Problem) -> list[Blocks]:
    """Blocks of each structure of a space."""
    found = []
    for number, (grid, program) in enumerate(task.programs):
        intervals = tuple(one for one in task.spec.intervals if one.path in task.moving(number))
        try:
            found.append(Blocks(program, grid, intervals))
        except (KeyError, NotImplementedError) as unknown:
            where, got = f"study {task.study.name}", f"an operation that is not known of ranges: {unknown}"
            raise InputError(where, got, "the operations of dse.search.prove", "leave out --prove") from None
    return found


def incumbent(task: Problem, member: int, values: Mapping[str, float]) -> Found | None:
    """A design by its leaves, evaluated by NumPy; None where it cannot run."""
    grid, program = task.programs[member]
    metrics, objectives = evaluate_few(grid.base, {path: np.array([v]) for path, v in values.items()}, program=program)
    able = not metrics.infeasible_reason[0] and np.isfinite(objectives[0][0])
    return Found(member, dict(values), float(objectives[0][0])) if able else None


def digest(identity: Mapping[str, str]) -> str:
    """Of all that the results depend on."""
    return hashlib.sha256(json.dumps(sorted(identity.items())).encode()).hexdigest()


def _check(task: Problem, options: ProofOptions) -> None:
    where = task.spec.sweep.file
    if task.n_objectives > 1:
        got = " and ".join(one.expression.text for one in task.program.objectives)
        raise InputError(f"{where}: objective", got, "one objective with --prove", "name one, or leave out --prove")
    if task.spec.intervals and options.gap <= 0.0:
        raise InputError("--gap", "0 with continuous axes", "a gap above 0", "write --gap 0.001")


def _progress(task: Problem, options: ProofOptions, state: State) -> ProofProgress:
    objective = task.program.objectives[0]
    return ProofProgress(state, options.gap, objective.expression.text, objective.expression.written, objective.sign)


def _proof(task: Problem, options: ProofOptions, state: State, node: Node, interrupted: bool) -> Proof:
    objective, found = task.program.objectives[0], state.best
    kinds = np.bincount(node.kind, minlength=EVALUATED + 1)
    names = {"cannot run": CANNOT_RUN, "bound": BOUNDED, "evaluated": EVALUATED, "open": OPEN}
    return Proof(
        objective.expression.text,
        None if found is None else objective.sign * found.objective,
        objective.sign * state.bound if math.isfinite(state.bound) else None,
        state.gap if math.isfinite(state.gap) else None,
        options.gap,
        found is None and not state.n_open and state.bound == math.inf,
        {} if found is None else found.values,
        {name: int(kinds[kind]) for name, kind in names.items()},
        state.n_designs,
        state.seconds,
        interrupted=interrupted,
    )  # fmt: skip


def proven_gap(header: Mapping[str, Any]) -> float:
    """The gap that a certificate says; where no design is known 0 if none can run."""
    if header["best"]:
        return gap_of(header["best"]["objective"], header["bound"])
    return 0.0 if header["bound"] == math.inf else math.inf


# --- certificates -------------------------------------------------------------------------------------------


def path_of(output: Path) -> Path:
    """The certificate beside results."""
    return output.with_suffix(_SUFFIX)


def write(file: Path, certificate: Certificate, force: bool) -> None:
    """Write a certificate; InputError where the file is another's."""
    outputs.checked(file, force)
    file.parent.mkdir(parents=True, exist_ok=True)
    with outputs.disk_errors(file), whole_or_absent(file) as partial:
        with partial.open("wb") as opened:
            np.savez_compressed(opened, header=np.array(json.dumps(certificate.header)), **certificate.node._asdict())
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
            return Certificate(header, Node(*(arrays[name] for name in Node._fields)))
    except FileNotFoundError:
        raise InputError(str(file), "no such file", "a certificate of dse", fix) from None
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        raise InputError(str(file), "no certificate", "a certificate of dse", fix) from None
