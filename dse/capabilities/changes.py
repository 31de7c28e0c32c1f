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
    one option. Hardware is ten per cent more of a value of the system, by its elasticity.

    Args:
        explanation: of a design that has a step.
    """
    import numpy as np

    from dse.designs import replace
    from dse.measured import evaluate_many

    design, study, metric = explanation.design, explanation.study, explanation.elasticity_of
    higher_is_better = _is_rate(metric)
    moves = [move for move in neighbour_moves(design) if has_integer_sizes(design, move)]
    changes = []
    if moves:
        metrics = evaluate_many([design, *(replace(design, move) for move in moves)], study)
        values, reasons = metrics[metric], metrics["infeasible_reason"].astype(int)
        with np.errstate(all="ignore"):
            gains = values / values[0] - 1.0 if higher_is_better else 1.0 - values / values[0]
        can_run = (reasons & ~int(reasons[0])) == 0
        memory = metrics[study.memory]
        changes = [
            Change(_move_text(move), float(gains[i]), float(memory[i]))
            for i, move in enumerate(moves, 1)
            if can_run[i] and np.isfinite(gains[i]) and gains[i] >= MIN_GAIN
        ]
    changes = sorted(changes, key=lambda change: -change.gain)[:MOST]
    return [*changes, *_hardware_changes(explanation, higher_is_better)][:MOST]


def _is_rate(metric: str) -> bool:
    """Return True for a metric of which more is better."""
    from dse.views.headings import MORE_IS_BETTER

    return any(word in metric for word in MORE_IS_BETTER)


def _hardware_changes(explanation: Explanation, higher_is_better: bool) -> Iterator[Change]:
    """Yield ten per cent more of each value of the system that improves the metric by a per cent or more."""
    from dse.spec.axes import is_leaf

    for row in explanation.elasticities:
        gain = (1.0 + STEP) ** (row.elasticity if higher_is_better else -row.elasticity)
        gain = gain - 1.0 if higher_is_better else 1.0 - 1.0 / gain
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
