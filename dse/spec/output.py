"""The section ``[output]`` of a sweep: designs to keep, their number, and the format of the results."""

from __future__ import annotations

import dataclasses
from typing import Any

from dse.designs import is_integer
from dse.designs.leaves import MAX_COUNT
from dse.doors import Study
from dse.errors import InputError
from dse.types.metrics import ENERGY

COMPRESSIONS = ("auto", "zstd", "zlib", "none")
KEEP_MODES = ("all", "feasible", "best", "pareto", "top")

#: Maximum number of bins of a histogram.
FEWEST_BINS, MOST_BINS = 4, 256

#: Default maximum number of designs that are kept.
DEFAULT_LIMIT = 5_000_000


@dataclasses.dataclass(frozen=True)
class Keep:
    """Designs that results contain: a mode, and for ``top`` their number."""

    mode: str = "all"
    count: int = 0

    def __str__(self) -> str:
        """Return the text that :func:`parse_keep` reads."""
        return f"top:{self.count}" if self.mode == "top" else self.mode


def parse_keep(text: Any, where: str) -> Keep:
    """Return the designs to keep from a text: ``all``, ``feasible``, ``best``, ``pareto`` or ``top:K``.

    Args:
        text: from the document or the command line.
        where: its place, for errors.

    Raises:
        InputError: for any other text.
    """
    mode, _, count = str(text).partition(":")
    if mode == "top" and _is_count(count):
        return Keep("top", int(count))
    if mode in KEEP_MODES and mode != "top" and not count:
        return Keep(mode)
    raise InputError(where, repr(text), "all, feasible, best, pareto or top:K", "write top:100 for the best hundred")


def _is_count(text: str) -> bool:
    """True for a text of digits whose integer is from 1 to the maximum number of kept designs."""
    return text.isdecimal() and len(text) <= len(str(MAX_COUNT)) and 1 <= int(text) <= MAX_COUNT


def read_limit(value: Any, where: str) -> int:
    """Return the maximum count of designs that are kept, InputError for anything but a possible count."""
    if is_integer(value):
        return int(value)
    raise InputError(
        where, repr(value), f"a number of designs, up to {MAX_COUNT:,}", f"leave it out for {DEFAULT_LIMIT:,}"
    )


def read_compression(value: Any, where: str) -> str:
    """Return the name of the compression of the results, InputError for an unknown name."""
    if value in COMPRESSIONS:
        return value
    raise InputError(where, repr(value), ", ".join(COMPRESSIONS), "leave it out: auto takes the fastest one available")


def read_histogram(value: Any, where: str) -> int:
    """Return the count of bins of each objective's histogram, 0 for none; InputError for other than 0 or 4 to 256."""
    if isinstance(value, int) and not isinstance(value, bool) and (value == 0 or FEWEST_BINS <= value <= MOST_BINS):
        return value
    raise InputError(where, repr(value), f"{FEWEST_BINS} to {MOST_BINS} bins", "leave it out for no histogram")


def is_group_computed(value: Any, names: set[str], where: str, study: Study, group: str) -> bool:
    """True for a group of metrics that is switched on; energy by default, others where ``names`` has one of them.

    Args:
        value: the setting, None where there is none.
        names: of the leaves and metrics that the specification reads.
        where: place of the setting, for errors.
        study: what is evaluated.
        group: name of the group.

    Raises:
        InputError: for a setting other than true or false, and for false with a metric of the group among ``names``.
    """
    metrics, leaves = study.group(group), study.optional.get(group, ())
    if value is None:
        return (group == ENERGY and bool(metrics)) or any(name in metrics or name.startswith(leaves) for name in names)
    is_on, metrics_read = read_truth(value, where, group), sorted(names & set(metrics))
    if metrics_read and not is_on:
        got = f"false, with {', '.join(metrics_read)} in an objective or a constraint"
        raise InputError(where, got, "true", f"leave out {group} = false")
    return is_on


def read_truth(value: Any, where: str, key: str) -> bool:
    """Return a truth value of ``[output]`` or another section, InputError for any other value."""
    if isinstance(value, bool):
        return value
    raise InputError(where, repr(value), "true or false", f"write {key} = true")
