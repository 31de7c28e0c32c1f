"""Changes of mapping or options that buy most: neighbours of what ran, in one call of the model.

Gains are those of the model, relative to its prediction of what ran, with intervals of the shared posterior, in which
errors that both have in common cancel.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dse.designs import leaf, leaves_of, replace, short_name
from dse.designs.neighbours import has_integer_sizes, leaf_text, neighbour_moves
from dse.doors import TRAINING
from dse.errors import InputError
from dse.measured import evaluate_many
from dse.measured.uncertainty.posterior import Choice, posterior
from dse.tools import launch
from dse.tools.runs import stack_tool
from dse.types import Design

#: Changes that are told, and the gain from which on one is.
MAX_CHANGES, MIN_GAIN = 3, 0.01

#: Ends of an 80 % interval of draws.
_ENDS = (10.0, 90.0)


class MappingChange(NamedTuple):
    """A change of the mapping that ran, with its gain and the options of a tool for it."""

    values: dict[str, float]  #: short name → value, of what changes
    design: Design
    gain: float  #: by which the step is shorter, a share of it
    low: float  #: ends of its 80 % interval
    high: float
    tool: str  #: that runs it, "" where none is known
    options: tuple[str, ...]  #: of the tool, that are not those of what ran
    without: tuple[str, ...]  #: options of what ran that are dropped
    line: str  #: command line of the tool


class Forbidden(NamedTuple):
    """A faster neighbour that does not fit in memory."""

    values: dict[str, float]
    gain: float
    memory: float  #: B that it needs
    capacity: float  #: B


class Advice(NamedTuple):
    """Changes that shorten the step most, and the best one that memory forbids."""

    changes: tuple[MappingChange, ...]
    forbidden: Forbidden | None


def advise(run_choice: Choice) -> Advice:
    """Return up to three changes that shorten the step most, by 1 % or more, and the best one that memory forbids.

    Args:
        run_choice: the design that ran, with its stack and names.
    """
    moves = [*neighbour_moves(run_choice.design)]
    pairs = [first | second for first, second in itertools.combinations(moves, 2) if not first.keys() & second.keys()]
    candidates = [move for move in (*moves, *pairs) if has_integer_sizes(run_choice.design, move)]
    designs = [run_choice.design, *(replace(run_choice.design, move) for move in candidates)]
    metrics = evaluate_many(designs)
    gains = 1.0 - metrics["step_time"] / metrics["step_time"][0]
    reasons, memory_bytes = metrics["infeasible_reason"].astype(int), metrics[TRAINING.memory]
    memory_bits = int(TRAINING.memory_reasons)
    run_reasons = int(reasons[0])  # what ran could run
    can_run = (reasons & ~(run_reasons | memory_bits)) == 0
    fits_memory = can_run & (
        ((reasons & memory_bits) == 0) | (memory_bytes <= memory_bytes[0] if run_reasons & memory_bits else False)
    )
    single_gains = [
        (move, gains[index]) for index, move in enumerate(candidates, 1) if move in moves and fits_memory[index]
    ]
    finite_gains = np.where(np.isfinite(gains), gains, -1.0)
    order = [int(index) for index in np.argsort(-finite_gains) if index and gains[index] >= MIN_GAIN]
    chosen: list[int] = []
    for index in order:
        candidate = candidates[index - 1]
        best_part_gain = max((gain for move, gain in single_gains if move.items() < candidate.items()), default=-1.0)
        is_redundant = any(_is_redundant(candidate, candidates[i - 1]) for i in chosen)
        if fits_memory[index] and gains[index] - best_part_gain >= MIN_GAIN and not is_redundant:
            chosen.append(index)
    chosen = chosen[:MAX_CHANGES]
    best_gain = gains[chosen[0]] if chosen else MIN_GAIN
    forbidden = None
    for i in order:
        if forbidden is None and can_run[i] and not fits_memory[i] and gains[i] > best_gain + MIN_GAIN:
            memory, capacity = float(memory_bytes[i]), TRAINING.capacity_of(designs[i])
            forbidden = Forbidden(_by_short_name(candidates[i - 1]), float(gains[i]), memory, capacity)
    return Advice(_changes(run_choice, [(candidates[i - 1], designs[i], float(gains[i])) for i in chosen]), forbidden)


def _is_redundant(first: Mapping[str, float], second: Mapping[str, float]) -> bool:
    """Return True where one of two neighbours has all changes of the other, or both change the same leaves."""
    return first.keys() == second.keys() or first.items() <= second.items() or first.items() >= second.items()


def _by_short_name(move: Mapping[str, float]) -> dict[str, float]:
    """Return short name → value of a move, which is leaf path → value."""
    return {short_name(path): value for path, value in move.items()}


def _changes(
    run_choice: Choice, candidates: Sequence[tuple[dict[str, float], Design, float]]
) -> tuple[MappingChange, ...]:
    """Return each (move, design, gain) as a change with its 80 % interval and the options of its tool, in order."""
    if not candidates:
        return ()
    choices = [
        run_choice,
        *(run_choice._replace(name=str(i), design=design) for i, (_, design, _) in enumerate(candidates)),
    ]
    draws = posterior(choices, "step_time", TRAINING).draws()
    gain_draws = 1.0 - np.exp(draws[1:] - draws[0])
    launcher = stack_tool(run_choice.stack, "training")
    tool = launcher.name if launcher else ""
    run_line = _launch_line(run_choice, run_choice.design, tool)
    changes = []
    for (move, design, gain), design_draws in zip(candidates, gain_draws, strict=True):
        text, options = _launch_line(run_choice, design, tool)
        low, high = (float(end) for end in np.percentile(design_draws, _ENDS))
        names = {option.split()[0] for option in options}
        changes.append(
            MappingChange(
                _by_short_name(move),
                design,
                gain,
                low,
                high,
                tool,
                tuple(o for o in options if o not in run_line[1]),
                tuple(o for o in run_line[1] if o.split()[0] not in names),
                text,
            )
        )
    return tuple(changes)


def _launch_line(run_choice: Choice, design: Design, tool: str) -> tuple[str, list[str]]:
    """Return the command line of a tool and its options one by one, "" and [] where there is none for the design."""
    if not tool:
        return "", []
    try:
        line = launch(design, tool, TRAINING, run_choice.model, run_choice.stack, system=run_choice.system)
    except InputError:
        return "", []
    return line.text, [" ".join(filter(None, pair)) for pair in line.options]


#: Leaves of a run as ``--set`` takes them, and those that are 1 by default.
_SETTINGS = (
    "workload.seq_len", "workload.global_batch", "mapping.precision", "mapping.tp", "mapping.cp", "mapping.pp",
    "mapping.dp", "mapping.experts.ep", "mapping.experts.etp", "mapping.micro_batch", "mapping.virtual_stages",
    "mapping.recompute", "mapping.zero_stage", "mapping.sequence_parallel", "mapping.overlap_dp", "mapping.overlap_tp",
    "mapping.schedule", "mapping.dp_replicate", "mapping.graph",
)  # fmt: skip
_ONE_BY_DEFAULT = frozenset(
    f"mapping.{name}" for name in ("cp", "pp", "experts.ep", "experts.etp", "virtual_stages", "dp_replicate")
)


def settings_of(design: Design) -> list[str]:
    """Return ``NAME=VALUE`` of a design's sequence length, batch and mapping, as ``--set`` takes them.

    Args:
        design: with plain numbers as leaves.

    Returns:
        One text per leaf that the design has, without degrees that are 1 by default.
    """
    settings, present = [], leaves_of(design)
    for path in filter(present.__contains__, _SETTINGS):
        value: Any = leaf(design, path)
        if value is not None and not (path in _ONE_BY_DEFAULT and value == 1.0):
            settings.append(f"{short_name(path)}={leaf_text(path, float(value))}")
    return settings
