"""Changes of mapping or options that buy most: neighbours of what ran, in one call of the model.

Gains are those of the model, relative to its prediction of what ran, with intervals of the shared posterior, in which
errors that both have in common cancel.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dse.designs.leaves import known_leaves, leaf, leaves_of, replace, short_name
from dse.doors.study_training import TRAINING
from dse.errors import InputError
from dse.measured import evaluate_many
from dse.measured.uncertainty.posterior import Choice, posterior
from dse.tools import launch
from dse.tools.runs import stack_tool
from dse.types import Design, Recompute, SequenceParallel, choice_name

#: Changes that are told, and the gain from which on one is.
MOST, LEAST = 3, 0.01

#: Ends of an 80 % interval of draws.
_ENDS = (10.0, 90.0)


class MappingChange(NamedTuple):
    """A neighbour of what ran."""

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
    """Changes that buy most, and what memory forbids."""

    changes: tuple[MappingChange, ...]
    forbidden: Forbidden | None


def advise(ran: Choice) -> Advice:
    """The changes that shorten the step most, and the best one that memory forbids.

    Args:
        ran: the design that ran, with its stack and names.
    """
    moves = [*_moves(ran.design)]
    pairs = [one | other for one, other in itertools.combinations(moves, 2) if not one.keys() & other.keys()]
    tried = [move for move in (*moves, *pairs) if _is_whole(ran.design, move)]
    designs = [ran.design, *(replace(ran.design, move) for move in tried)]
    found = evaluate_many(designs)
    gains = 1.0 - found["step_time"] / found["step_time"][0]
    reasons, need = found["infeasible_reason"].astype(int), found[TRAINING.memory]
    of_memory = int(TRAINING.memory_reasons)
    allowed = int(reasons[0])  # what ran could run
    runs = (reasons & ~(allowed | of_memory)) == 0
    fits = runs & (((reasons & of_memory) == 0) | (need <= need[0] if allowed & of_memory else False))
    alone = [(move, gains[at]) for at, move in enumerate(tried, 1) if move in moves and fits[at]]
    order = [int(at) for at in np.argsort(-np.where(np.isfinite(gains), gains, -1.0)) if at and gains[at] >= LEAST]
    chosen: list[int] = []
    for at in order:
        own = tried[at - 1]
        part = max((gain for move, gain in alone if move.items() < own.items()), default=-1.0)
        if fits[at] and gains[at] - part >= LEAST and not any(_alike(own, tried[i - 1]) for i in chosen):
            chosen.append(at)
        if len(chosen) == MOST:
            break
    best = gains[chosen[0]] if chosen else LEAST
    beyond = next((at for at in order if runs[at] and not fits[at] and gains[at] > best + LEAST), None)
    forbidden = (
        None
        if beyond is None
        else Forbidden(
            _short(tried[beyond - 1]),
            float(gains[beyond]),
            float(need[beyond]),
            float(TRAINING.capacity(designs[beyond])),
        )
    )
    return Advice(_changes(ran, [(tried[i - 1], designs[i], float(gains[i])) for i in chosen]), forbidden)


def _alike(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    """Whether two neighbours change the same, or one all that the other does."""
    return one.keys() == other.keys() or one.items() <= other.items() or one.items() >= other.items()


def _short(move: Mapping[str, float]) -> dict[str, float]:
    return {short_name(path): value for path, value in move.items()}


def _changes(ran: Choice, found: Sequence[tuple[dict[str, float], Design, float]]) -> tuple[MappingChange, ...]:
    """The changes with intervals, and what their tool is told."""
    if not found:
        return ()
    choices = [ran, *(ran._replace(name=str(i), design=design) for i, (_, design, _) in enumerate(found))]
    draws = posterior(choices, "step_time", TRAINING).draws()
    shorter = 1.0 - np.exp(draws[1:] - draws[0])
    known = stack_tool(ran.stack, "training")
    tool = known.name if known else ""
    before = _line(ran, ran.design, tool)
    told = []
    for (move, design, gain), own in zip(found, shorter, strict=True):
        text, options = _line(ran, design, tool)
        low, high = (float(end) for end in np.percentile(own, _ENDS))
        names = {option.split()[0] for option in options}
        told.append(
            MappingChange(
                _short(move),
                design,
                gain,
                low,
                high,
                tool,
                tuple(o for o in options if o not in before[1]),
                tuple(o for o in before[1] if o.split()[0] not in names),
                text,
            )
        )
    return tuple(told)


def _line(ran: Choice, design: Design, tool: str) -> tuple[str, list[str]]:
    """Command line of a tool, and its options one by one."""
    if not tool:
        return "", []
    try:
        line = launch(design, tool, TRAINING, ran.model, ran.stack, system=ran.system)
    except InputError:
        return "", []
    return line.text, [" ".join(filter(None, pair)) for pair in line.options]


def _is_whole(design: Design, move: Mapping[str, float]) -> bool:
    """Whether degrees are whole, divide the devices and give whole micro-batches."""

    def value(name: str) -> float:
        return float(move.get(f"mapping.{name}", getattr(design.mapping, name)))

    degrees = [value(name) for name in ("tp", "cp", "pp", "dp", "micro_batch", "virtual_stages")]
    if any(one < 1.0 or one != round(one) for one in degrees):
        return False
    tp, cp, pp, dp = degrees[:4]
    batches = float(design.workload.global_batch) / (dp * value("micro_batch"))
    return tp * cp * pp * dp == float(design.system.n_devices) and batches == round(batches) and batches >= 1.0


def _moves(design: Design) -> Iterator[dict[str, float]]:
    """Single steps from a mapping: a factor of two between degrees, or another choice of one option."""
    own = {
        path: float(value)
        for path in leaves_of(design)
        if path.startswith("mapping.") and (value := leaf(design, path)) is not None
    }

    def to(name: str, *values: float) -> Iterator[dict[str, float]]:
        path = f"mapping.{name}"
        yield from ({path: value} for value in values if path in own and own[path] != value)

    for one, other in itertools.permutations(("tp", "pp", "dp", "cp"), 2):
        if own[f"mapping.{one}"] >= 2.0:
            move = {f"mapping.{one}": own[f"mapping.{one}"] / 2.0, f"mapping.{other}": 2.0 * own[f"mapping.{other}"]}
            yield move
            if other == "tp" and own["mapping.tp"] == 1.0:  # until now there was nothing to split
                yield from (move | split for split in to("sequence_parallel", float(SequenceParallel.gather_again)))
    for name in ("micro_batch", "virtual_stages", "experts.ep"):
        if (path := f"mapping.{name}") in own:
            yield from to(name, 2.0 * own[path], own[path] / 2.0 if own[path] >= 2.0 else own[path])
    levels = [Recompute.none, Recompute.selective, Recompute.full, Recompute.selective_op]
    yield from to("recompute", *map(float, levels))
    yield from to("zero_stage", 0.0, 1.0, 2.0, 3.0)
    if own["mapping.tp"] > 1.0:
        split = SequenceParallel.none, SequenceParallel.gather_again  # what is kept gathered is the stack's choice
        if own.get("mapping.sequence_parallel") != float(SequenceParallel.keep_gathered):
            yield from to("sequence_parallel", *map(float, split))
        yield from to("overlap_tp", 1.0)
    yield from to("overlap_dp", 1.0)


def settings_of(design: Design) -> list[str]:
    """``NAME=VALUE`` of a design's mapping and batch, as ``--set`` takes them."""
    names = [
        "workload.seq_len",
        "workload.global_batch",
        *(
            f"mapping.{name}"
            for name in (
                "precision",
                "tp",
                "cp",
                "pp",
                "dp",
                "experts.ep",
                "experts.etp",
                "micro_batch",
                "virtual_stages",
                "recompute",
                "zero_stage",
                "sequence_parallel",
                "overlap_dp",
                "overlap_tp",
                "schedule",
                "dp_replicate",
            )
        ),
    ]
    found, present = [], leaves_of(design)
    for path in names:
        value: Any = leaf(design, path) if path in present else None
        plain = path.rpartition(".")[2] in ("cp", "pp", "ep", "etp", "virtual_stages", "dp_replicate") and value == 1.0
        if value is not None and not plain:
            found.append(f"{short_name(path)}={written(path, float(value))}")
    return found


def written(path: str, value: float) -> str:
    """A leaf's value, by name for a choice."""
    enum = known_leaves()[path].get("enum")
    return choice_name(enum(int(value))) if enum else f"{value:.12g}"
