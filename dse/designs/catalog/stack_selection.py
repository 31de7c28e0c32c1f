"""Which software stack a design gets that names none: one rule, by where measured rows are.

A stack's file states the ``tools`` that its figures are of, the month of its release, the ``vendors`` that it exists
for and, in ``[calibrated]``, the accelerators of its rows. A system, or the node of an accelerator, may state a tool
and a year where it is a known machine's; a command may state a tool. Of the stacks of that tool (of all default tools
where none is stated) the first of this order is taken:

1. released within :data:`ERA` years of the date;
2. rows of this kind of model on this generation of chips, then the ranks of :func:`_evidence`;
3. the tool, in the order of :data:`DEFAULT_TOOLS`;
4. rows of this very chip, then of the chip nearest in matrix rate;
5. the last release up to the date, else the earliest one after it.

A chip of no vendor counts as one of the vendor of its kernel family. Stacks of a user's catalogue are taken where they
are named, or where a tool of theirs is stated. Engines that serve take the kernels of a chip as measured alone, so
only the vendor of their rows counts in rank 2.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

from dse.designs.catalog.entries import Entry, file_entry, reference
from dse.designs.catalog.faults import faults, readable_names
from dse.designs.catalog.filling import device_of
from dse.designs.catalog.load import Folder, cached_value, catalog_root, display_path, find, plain, stamps
from dse.designs.catalog.lookup import entry
from dse.errors import unknown_name

#: Kernel family of chips whose kernels nobody measured, root of all others.
GENERIC = "generic"

#: Tools of designs that state none, the first that has evidence first.
DEFAULT_TOOLS = ("megatron-bridge", "megatron-lm", "maxtext", "torchtitan", "llm-foundry", "vllm", "neutral")

#: Date of designs that state none, year and month: most measured rows are of releases up to it.
DATE = "2026-01"

#: Years between a design and a release beyond which another release stands in, even without rows of the chip.
ERA = 2.5


class ChipTraits(NamedTuple):
    """Traits of an accelerator by which a stack is selected."""

    slug: str
    vendor: str  #: as compared; of a chip of nobody that of its kernel family; "" where that is generic
    family: str  #: of kernels; ``generic`` for chips whose kernels nobody measured
    rate: float  #: of 16-bit matrix products [FLOP/s]; 0 where it is generated


class StackTraits(NamedTuple):
    """Traits of a stack by which it is selected."""

    slug: str
    tools: tuple[str, ...]
    released: float  #: year of the release, with its month as a fraction; NaN (of any date) where its file states none
    vendors: tuple[str, ...]  #: as compared; none: of all
    chips: tuple[str, ...]  #: kernel families and accelerators that it is of, where others are for the rest; none: all
    lineage_vendors: tuple[str, ...]  #: vendors that the stacks of its code base state, or have rows of
    serves: bool
    shipped: bool  #: whether a stack of its name comes with the package
    rows: tuple[ChipTraits, ...]  #: accelerators of its rows
    mixtures: tuple[ChipTraits, ...]  #: accelerators of its rows of mixtures of experts


def default_software(
    system_name: str,
    where: str = "system",
    folder: Folder = None,
    serving: bool = False,
    workload: str = "",
    tool: str = "",
) -> str:
    """Return the slug of the stack of a design that names none, by the rule of this module.

    A system, or an accelerator, whose file names a stack (``software``, ``engine``) has that one, unless it states
    tools and ``tool`` is none of them.

    Args:
        system_name: slug, name or alias of the system, or of an accelerator as one.
        where: place of the name, for errors.
        folder: a catalogue to search first.
        serving: whether to return an engine.
        workload: slug, name or alias of the workload; dense where it is unknown.
        tool: name of the tool that runs the design; by default the one that the system states.

    Returns:
        The slug of an entry of ``software``.

    Raises:
        InputError: for an unknown system or tool.

    >>> default_software("eos"), default_software("eos", serving=True), default_software("eos", workload="deepseek-v3")
    ('nemo', 'vllm', 'megatron-bridge')
    >>> default_software("gb300-nvl72"), default_software("eos", tool="torchtitan")
    ('megatron-bridge', 'torchtitan')
    """
    system = entry("system", system_name, where, folder)
    device = device_of(system, folder)
    fields = {"node.": device} if system is device else {"": system, "node.": device}
    stack = _named_stack(fields, "engine" if serving else "software", tool, folder)
    if stack:
        return stack
    system_tool, year = ("", None) if serving else (_first_value(fields, "tool") or "", _first_value(fields, "year"))
    stacks = _stacks(folder)
    _check_tool(tool or system_tool, f"{where}: tool" if tool else f"{display_path(system.path)}: tool", stacks)
    date = _date_years(f"{year:g}-12" if year else DATE)
    mixture = bool(workload) and is_mixture(workload, folder)
    return _select(_chip_traits(device, folder), mixture, serving, tool or system_tool, date, stacks).slug


def engine_of_vendor(stack: str, system_name: str, folder: Folder = None) -> str:
    """Return the engine of a stack's tool that exists for a system's chip and its vendor alone, else the stack.

    What an engine costs on chips of one vendor says little of those of another one, whose kernels and launches differ.

    Args:
        stack: slug of an engine; one that states vendors stays.
        system_name: slug, name or alias of a system or accelerator.
        folder: a catalogue to search first.

    >>> engine_of_vendor("vllm", "mi300x"), engine_of_vendor("vllm", "h100"), engine_of_vendor("tensorrt-llm", "mi300x")
    ('vllm-rocm', 'vllm', 'tensorrt-llm')
    """
    stacks = _stacks(folder)
    own = next((one for one in stacks if one.slug == stack), None)
    if own is None or own.vendors or not own.serves:
        return stack
    chip = _chip_traits(device_of(entry("system", system_name, folder=folder), folder), folder)
    made = tuple(s for s in stacks if s.serves and s.vendors and {*s.tools} & {*own.tools} and _exists_for(s, chip))
    return _select(chip, False, True, own.tools[0], own.released, made).slug if made else stack


def exists_for(stack: str, system_name: str, folder: Folder = None) -> bool:
    """Return True where a stack exists for a system's chip: by the ``vendors`` and ``chips`` that it states."""
    chip = _chip_traits(device_of(entry("system", system_name, folder=folder), folder), folder)
    return all(_exists_for(one, chip) for one in _stacks(folder) if one.slug == stack)


def _first_value(fields: dict[str, Entry], key: str) -> Any:
    """Return the first value that is not 0 or "" of a key, of a system, else of its accelerator's node; else None.

    ``fields`` are prefix of the key → entry.
    """
    return next(filter(None, (owner.value(f"{prefix}{key}") for prefix, owner in fields.items())), None)


def _named_stack(fields: dict[str, Entry], field: str, tool: str, folder: Folder) -> str:
    """Return the slug of the stack that a system or its accelerator's node names, "" for none or another tool's."""
    for prefix, owner in fields.items():
        if owner.value(f"{prefix}{field}") is not None:
            slug = reference(owner, f"{prefix}{field}", folder)[1]
            tools = entry("software", slug, folder=folder).value("tools", ()) if tool else ()
            return slug if not tools or tool in tools else ""
    return ""


def is_mixture(workload: str, folder: Folder = None) -> bool:
    """True for a workload of the catalogue with experts, False for an unknown name.

    Args:
        workload: slug, alias or name of a checkpoint.
        folder: catalogue to search first.
    """
    slug = find("workload", workload, folder)
    return slug is not None and entry("workload", slug, "workload", folder).states("experts")


def _check_tool(tool: str, where: str, stacks: tuple[StackTraits, ...]) -> None:
    """Raise InputError, with the nearest names, for a tool that no stack states; "" passes."""
    tools = {name for stack in stacks for name in stack.tools}
    if tool and tool not in tools:
        raise unknown_name(where, tool, sorted(tools), "tools of stacks")


def _select(
    chip: ChipTraits, mixture: bool, serving: bool, tool: str, date: float, stacks: tuple[StackTraits, ...]
) -> StackTraits:
    """Return the stack of a chip, a kind of model, a tool and a date (years), by the order of this module."""
    usable = [stack for stack in stacks if stack.serves == serving and _exists_for(stack, chip)]
    of_tool = [stack for stack in usable if tool in stack.tools]
    tools = (tool,) if of_tool else DEFAULT_TOOLS
    candidates = of_tool or [stack for stack in usable if stack.shipped and set(tools) & set(stack.tools)]

    def order(stack: StackTraits) -> tuple[float | str, ...]:
        rows = () if serving else stack.mixtures if mixture and stack.mixtures else stack.rows
        late = stack.released > date
        return (
            abs(stack.released - date) > ERA,  # never for a stack of any date
            _engine_evidence(stack, chip) if serving else _evidence(stack, chip, mixture),
            min(tools.index(name) for name in stack.tools if name in tools),
            chip.slug not in {row.slug for row in rows},
            late,
            stack.released if late else math.inf if math.isnan(stack.released) else -stack.released,
            min((_distance(row, chip) for row in rows), default=math.inf),
            not stack.shipped,
            stack.slug,
        )

    return min(candidates, key=order)


def _evidence(stack: StackTraits, chip: ChipTraits, mixture: bool) -> int:
    """Return the rank of a training stack by where its measured rows are, 0 (nearest) to 7.

    Rows of mixtures on another generation come before dense rows of this one: what experts cost is a stack's.
    """
    if mixture and any(_is_generation(row, chip) for row in stack.mixtures):
        return 0
    if mixture and any(row.vendor == chip.vendor for row in stack.mixtures):
        return 1
    if any(_is_generation(row, chip) for row in stack.rows):
        return 2
    if not stack.rows and (stack.chips or stack.vendors):
        return 3
    if not stack.rows and chip.vendor in stack.lineage_vendors:
        return 4
    if any(row.vendor == chip.vendor for row in stack.rows):
        return 5
    return 6 if not (stack.rows or stack.lineage_vendors) else 7  # a stack of no vendor before one of others


def _engine_evidence(stack: StackTraits, chip: ChipTraits) -> int:
    """Return 0 for an engine with rows of chips of this vendor, else 1."""
    return int(all(row.vendor != chip.vendor for row in stack.rows))


def _exists_for(stack: StackTraits, chip: ChipTraits) -> bool:
    """True for a stack that exists for a chip's vendor and for such chips."""
    of_vendor = not stack.vendors or chip.vendor in stack.vendors
    return of_vendor and (not stack.chips or chip.family in stack.chips or chip.slug in stack.chips)


def _is_generation(row: ChipTraits, chip: ChipTraits) -> bool:
    """True where two chips are of one generation: the same vendor and kernel family, but no generic one."""
    return row.family == chip.family != GENERIC and row.vendor == chip.vendor


def _distance(row: ChipTraits, chip: ChipTraits) -> float:
    """Return the absolute log ratio of two chips' matrix rates, infinite where one has rate 0."""
    return abs(math.log(row.rate / chip.rate)) if row.rate and chip.rate else math.inf


def _date_years(month: str) -> float:
    """Return a month ``YYYY-MM``, or a year, in years; NaN for "".

    >>> _date_years("2026-01")
    2026.0
    """
    year, _, month_number = month.partition("-")
    return float(year) + (float(month_number or 1) - 1.0) / 12.0 if year else math.nan


def _chip_traits(device: Entry, folder: Folder = None) -> ChipTraits:
    """Return the traits of an accelerator from its entry."""
    family = _family(str(device.value("kernels.family", GENERIC)), folder)
    vendor, rate = str(device.value("vendor", "")), device.value("matrix_rate.bf16")
    vendor = vendor or str(file_entry("kernels", family, folder).value("vendor", ""))
    return ChipTraits(device.slug, plain(vendor), family, float(rate or 0.0))


def _family(kernels: str, folder: Folder) -> str:
    """Return the kernel family below the generic one that an entry of ``kernels`` belongs to (``h100``: ``hopper``)."""
    parent = str(file_entry("kernels", kernels, folder).value("family", GENERIC))
    return kernels if parent == GENERIC else _family(parent, folder)


def _stacks(folder: Folder) -> tuple[StackTraits, ...]:
    """Return the traits of all stacks that state their tools."""
    state = tuple(stamps(kind, folder) for kind in ("software", "accelerator", "kernels"))
    return _stacks_of(state, folder)


@functools.lru_cache(maxsize=16)
def _stacks_of(state: object, folder: Folder) -> tuple[StackTraits, ...]:
    """Return :func:`_stacks`, kept for a state of the files that they are read from, by later processes too."""
    return cached_value("traits of stacks", state, lambda: _read_stacks(folder))


def _read_stacks(folder: Folder) -> tuple[StackTraits, ...]:
    """Return :func:`_stacks` from the files."""
    entries = [entry("software", slug, folder=folder) for slug in readable_names("software", folder)]
    rows = {stack_entry.slug: _row_chips(stack_entry, "calibrated.accelerators", folder) for stack_entry in entries}
    lineages: dict[str, set[str]] = {}
    for stack_entry in entries:
        vendors = {*map(plain, stack_entry.value("vendors", ())), *(chip.vendor for chip in rows[stack_entry.slug])}
        lineages.setdefault(str(stack_entry.value("lineage", stack_entry.slug)), set()).update(vendors)
    return tuple(
        StackTraits(
            stack_entry.slug,
            tuple(stack_entry.value("tools")),
            _date_years(str(stack_entry.value("released", ""))),
            tuple(map(plain, stack_entry.value("vendors", ()))),
            tuple(stack_entry.value("chips", ())),
            tuple(lineages[str(stack_entry.value("lineage", stack_entry.slug))]),
            stack_entry.states("engine"),
            (catalog_root() / "software" / f"{stack_entry.slug}.toml").exists(),
            rows[stack_entry.slug],
            _row_chips(stack_entry, "calibrated.mixtures", folder),
        )
        for stack_entry in entries
        if stack_entry.value("tools")
    )


def _row_chips(stack_entry: Entry, field: str, folder: Folder) -> tuple[ChipTraits, ...]:
    """Return the traits of the accelerators of a stack's rows; one that the catalogue lacks, or faulty, is left out."""
    slugs, faulty = (find("accelerator", name, folder) for name in stack_entry.value(field, ())), faults(folder)
    readable = (slug for slug in slugs if slug and ("accelerator", slug) not in faulty)
    return tuple(_chip_traits(file_entry("accelerator", slug, folder), folder) for slug in readable)
