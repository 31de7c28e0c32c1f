"""Changes of a design that buy most: neighbours of its mapping, and hardware, each by its predicted gain."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from dse.views import Explanation

#: Changes that are shown, the gain from which on one is, and the step of a hardware value.
MOST, MIN_GAIN, STEP = 3, 0.01, 0.1


class Change(NamedTuple):
    """A change of a design."""

    change: str  #: as ``--set`` takes it, or a share of a hardware value
    gain: float  #: by which the metric improves, a share of it
    memory: float | None  #: peak memory after it, B; None for hardware


def best_changes(explanation: Explanation) -> list[Change]:
    """Return the changes that improve the metric of an explanation most: of the mapping, then of the hardware.

    Mappings are neighbours on the same devices that can run, each a change by a factor of two between degrees, or of
    one option; of a design that cannot run, also two of these, as no gain is asked for. Of several values of the same
    options the best one counts. Hardware is ten per cent more
    of a value of the system, by its elasticity.

    Args:
        explanation: of the design.
    """
    import numpy as np

    from dse.designs import replace
    from dse.designs.neighbours import has_integer_sizes, neighbour_moves
    from dse.doors.study import more_is_better
    from dse.measured import evaluate_many

    design, study, metric = explanation.design, explanation.study, explanation.elasticity_of
    moves = [
        move for move in neighbour_moves(design) if not any(path.startswith(study.ignored_leaves) for path in move)
    ]
    if not explanation.feasible:
        pairs = itertools.combinations(moves, 2)
        moves += [first | second for first, second in pairs if not first.keys() & second.keys()]
    moves = [move for move in moves if has_integer_sizes(design, move)]
    changes, chosen = [], list[int]()
    if moves:
        metrics = evaluate_many([design, *(replace(design, move) for move in moves)], study)
        values, memory = metrics[metric], metrics[study.memory]
        with np.errstate(all="ignore"):
            gains = values / values[0] - 1.0 if more_is_better(metric) else 1.0 - values / values[0]
        least = MIN_GAIN if explanation.feasible else -np.inf
        can_run = (metrics["infeasible_reason"] == 0) & np.isfinite(gains) & (gains >= least)
        order = [int(i) for i in np.argsort(-gains) if i and can_run[i]]
        for i in order:
            move = moves[i - 1]
            if not any(move.keys() == moves[j - 1].keys() or moves[j - 1].items() <= move.items() for j in chosen):
                chosen.append(i)
        changes = [Change(_move_text(moves[i - 1]), float(gains[i]), float(memory[i])) for i in chosen[:MOST]]
    hardware = _hardware_changes(explanation) if explanation.feasible else ()
    return [*changes, *hardware][:MOST]


def _hardware_changes(explanation: Explanation) -> Iterator[Change]:
    """Yield ten per cent more of each value of the system that improves the metric by a per cent or more."""
    from dse.doors.study import more_is_better
    from dse.spec.axes import is_leaf

    is_rate = more_is_better(explanation.elasticity_of)
    for row in explanation.elasticities:
        factor = (1.0 + STEP) ** row.elasticity
        gain = factor - 1.0 if is_rate else 1.0 - factor
        if gain >= MIN_GAIN and is_leaf(row.parameter) and _is_hardware(row.parameter):
            yield Change(f"{100.0 * STEP:.0f} % more {row.parameter}", gain, None)


def _is_hardware(parameter: str) -> bool:
    """Return True for a value of the machine, False for one of software and kernels, which nobody buys."""
    from dse.designs import leaf_path

    path = leaf_path(parameter)
    return path.startswith("system.") and ".kernels." not in path and not path.endswith(("efficiency", "overhead"))


def _move_text(move: Mapping[str, float]) -> str:
    """Return a move as ``--set`` takes it."""
    from dse.designs import short_name
    from dse.designs.neighbours import leaf_text

    return ", ".join(f"{short_name(path)}={leaf_text(path, value)}" for path, value in move.items())
