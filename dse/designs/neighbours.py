"""Neighbours of a mapping: a factor of two between degrees, experts over all ranks, or another choice of one option."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

from dse.designs.leaves import all_leaves, leaf, leaves_of
from dse.types import Design, Recompute, SequenceParallel, choice_name

#: Degrees of experts: whole ones on ranks, and the width of one.
EXPERT_PATHS = ("mapping.experts.ep", "mapping.experts.etp")


def leaf_text(path: str, value: float) -> str:
    """Return a leaf's value as text, of a choice its name.

    Args:
        path: of the leaf.
        value: in SI units.

    Returns:
        Text that ``--set`` takes.
    """
    enum = all_leaves()[path].get("enum")
    return choice_name(enum(int(value))) if enum else f"{value:.12g}"


def has_integer_sizes(design: Design, move: Mapping[str, float]) -> bool:
    """Return True where, after a move, degrees are integers that fill the devices and micro-batches are integers.

    Args:
        design: with plain numbers as leaves.
        move: full path → value of leaves of the mapping.
    """

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
    if design.mapping.serving is not None and design.mapping.experts is not None and leaf_values["mapping.dp"] > 1.0:
        # Experts that all ranks of an engine hold once, whole or in slices, where each rank has attention of its own.
        ranks = leaf_values["mapping.tp"] * leaf_values["mapping.dp"]
        has_copies = math.prod(leaf_values[path] for path in EXPERT_PATHS) < ranks
        for degrees in ((ranks, 1.0), (1.0, ranks)) if has_copies else ():
            yield {path: size for path, size in zip(EXPERT_PATHS, degrees, strict=True) if size != leaf_values[path]}
    levels = [Recompute.none, Recompute.selective, Recompute.full, Recompute.selective_op]
    yield from moves_to("recompute", *map(float, levels))
    yield from moves_to("zero_stage", 0.0, 1.0, 2.0, 3.0)
    if leaf_values["mapping.tp"] > 1.0:
        split = SequenceParallel.none, SequenceParallel.gather_again  # what is kept gathered is the stack's choice
        if leaf_values.get("mapping.sequence_parallel") != float(SequenceParallel.keep_gathered):
            yield from moves_to("sequence_parallel", *map(float, split))
        yield from moves_to("overlap_tp", 1.0)
    yield from moves_to("overlap_dp", 1.0)
