"""What a method has done so far, on disk: a search that was stopped, or is given a larger budget, goes on bit for bit.

A file holds the hash of everything that its content depends on but the budget. It is written under another
name and then renamed: what is there is whole.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dse.io import atomic_file
from dse.optimizers.pareto import ParetoFront
from dse.optimizers.space import Point
from dse.sweep.store import arrays as stored
from dse.sweep.store.parts import parts_folder

_HISTORY = ("violation", "value", "objectives", "feasible")


class MethodProgress(NamedTuple):
    """Steps of a method so far: the driver's state, the history, and the front."""

    steps: int
    state: list[np.ndarray]  #: of the driver
    history: dict[str, np.ndarray]  #: [step, seed] rows of history
    reasons: np.ndarray  #: [bit] designs by infeasibility reason
    front: ParetoFront  #: of all that was evaluated, where there are several objectives
    tell_history: tuple[np.ndarray, ...] | None  #: what an external method was told


def path(output: Path, method: str) -> Path:
    """Return the path of a method's checkpoint (``.npz``), in the folder of parts of the output."""
    return parts_folder(output) / f"search-{method}.npz"


def save(file_path: Path, key: str, progress: MethodProgress) -> None:
    """Write progress to a sealed checkpoint (``.npz``) in place of an older one; makes its folder.

    Args:
        file_path: see :func:`path`.
        key: hash of everything that the steps depend on (:meth:`dse.optimizers.problem.Problem.key`).
        progress: steps so far.
    """
    points, objectives = progress.front
    arrays: dict[str, Any] = {"key": np.array(key), "steps": np.array(progress.steps), "reasons": progress.reasons}
    arrays |= {f"history_{name}": array for name, array in progress.history.items()}
    arrays |= points._asdict() | {"objectives": objectives}
    arrays |= {f"state_{i:03d}": array for i, array in enumerate(progress.state)}
    arrays |= {f"told_{i}": array for i, array in enumerate(progress.tell_history or ())}
    file_path.parent.mkdir(parents=True, exist_ok=True)
    stored.save(file_path, arrays)


def best_path(output: Path, method: str) -> Path:
    """Return the path of a method's best design so far, a JSON file next to its checkpoint."""
    return path(output, method).with_suffix(".best.json")


def save_best(output: Path, method: str, best: dict[str, Any]) -> None:
    """Write the best design so far as JSON."""
    with atomic_file(best_path(output, method)) as partial:
        partial.write_text(json.dumps(best, indent=1) + "\n", encoding="utf-8")


def load(file_path: Path, key: str) -> MethodProgress | None:
    """Return the progress of this very search, None where the file is missing, damaged or of another ``key``.

    Args:
        file_path: see :func:`path`.
        key: hash of everything that the steps depend on (:meth:`dse.optimizers.problem.Problem.key`).
    """
    arrays = stored.load(file_path)
    if str(arrays.get("key")) != key:
        return None

    def numbered(prefix: str) -> list[np.ndarray]:
        return [arrays[name] for name in sorted(arrays) if name.startswith(prefix)]

    return MethodProgress(
        steps=int(arrays["steps"]),
        state=numbered("state_"),
        history={name: arrays[f"history_{name}"] for name in _HISTORY},
        reasons=arrays["reasons"],
        front=ParetoFront(Point(arrays["digits"], arrays["reals"]), arrays["objectives"]),
        tell_history=tuple(numbered("told_")) or None,
    )
