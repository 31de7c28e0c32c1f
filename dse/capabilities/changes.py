"""Changes of a design that buy most: neighbours of its mapping, and hardware, each by its predicted gain."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from dse.types import Recompute, SequenceParallel

if TYPE_CHECKING:
    from dse.types import Design
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
    one option; of a design that cannot run, also two of these, as no gain is asked for. Hardware is ten per cent more
    of a value of the system, by its elasticity.

    Args:
        explanation: of the design.
    """
    import numpy as np

    from dse.designs import replace
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
            if not any(moves[j - 1].items() <= moves[i - 1].items() for j in chosen):
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

    return ", ".join(f"{short_name(path)}={leaf_text(path, value)}" for path, value in move.items())


def leaf_text(path: str, value: float) -> str:
    """Return a leaf's value as text, of a choice its name.

    Args:
        path: of the leaf.
        value: in SI units.

    Returns:
        Text that ``--set`` takes.
    """
    from dse.designs import all_leaves
    from dse.types import choice_name

    enum = all_leaves()[path].get("enum")
    return choice_name(enum(int(value))) if enum else f"{value:.12g}"


def has_integer_sizes(design: Design, move: Mapping[str, float]) -> bool:
    """Return True where, after a move, degrees are integers that fill the devices and micro-batches are integers."""

    def value(name: str) -> float:
        """Return a value of the mapping after the move."""
        return float(move.get(f"mapping.{name}", getattr(design.mapping, name)))

    degrees = [value(name) for name in ("tp", "cp", "pp", "dp", "micro_batch", "virtual_stages")]
    if any(degree < 1.0 or degree != round(degree) for degree in degrees):
        return False
    tp, cp, pp, dp = degrees[:4]
    batches = float(design.workload.global_batch) / (dp * value("micro_batch"))
    return tp * cp * pp * dp == float(design.system.n_devices) and batches == round(batches) and batches >= 1.0


def neighbour_moves(design: Design) -> Iterator[dict[str, float]]:
    """Yield single moves (leaf path → value): a factor of two between degrees, or another choice of one option."""
    from dse.designs import leaf, leaves_of

    leaf_values = {
        path: float(value)
        for path in leaves_of(design)
        if path.startswith("mapping.") and (value := leaf(design, path)) is not None
    }

    def moves_to(name: str, *values: float) -> Iterator[dict[str, float]]:
        """Yield the moves to other values of an option."""
        path = f"mapping.{name}"
        yield from ({path: value} for value in values if path in leaf_values and leaf_values[path] != value)

    for source, target in itertools.permutations(("tp", "pp", "dp", "cp"), 2):
        if leaf_values[f"mapping.{source}"] >= 2.0:
            move = {
                f"mapping.{source}": leaf_values[f"mapping.{source}"] / 2.0,
                f"mapping.{target}": 2.0 * leaf_values[f"mapping.{target}"],
            }
            yield move
            if target == "tp" and leaf_values["mapping.tp"] == 1.0:  # until now there was nothing to split
                yield from (
                    move | split for split in moves_to("sequence_parallel", float(SequenceParallel.gather_again))
                )
    for name in ("micro_batch", "virtual_stages", "experts.ep"):
        if (path := f"mapping.{name}") in leaf_values:
            yield from moves_to(
                name,
                2.0 * leaf_values[path],
                leaf_values[path] / 2.0 if leaf_values[path] >= 2.0 else leaf_values[path],
            )
    levels = [Recompute.none, Recompute.selective, Recompute.full, Recompute.selective_op]
    yield from moves_to("recompute", *map(float, levels))
    yield from moves_to("zero_stage", 0.0, 1.0, 2.0, 3.0)
    if leaf_values["mapping.tp"] > 1.0:
        split = SequenceParallel.none, SequenceParallel.gather_again  # what is kept gathered is the stack's choice
        if leaf_values.get("mapping.sequence_parallel") != float(SequenceParallel.keep_gathered):
            yield from moves_to("sequence_parallel", *map(float, split))
        yield from moves_to("overlap_tp", 1.0)
    yield from moves_to("overlap_dp", 1.0)
