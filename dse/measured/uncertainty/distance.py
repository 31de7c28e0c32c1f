r"""Distance of a design from measured rows, by level, and the width that each level adds to an interval.

A level is a respect in which a design differs from the measured rows of its stack: hardware (another chip, another
generation, another vendor), software (a cluster, a stack or a framework without rows) and model (a family without
rows; attention or experts of a kind without rows). Of each respect the outermost level counts. Variances of log errors
add up,

.. math:: \sigma^2 = \sigma_\mathrm{home}^2 + \sum_l s_l^2

with ``s_l`` from rows that were left out by level (``intervals.toml`` of the catalogue, ``docs/intervals.md``).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dse.designs import catalog
from dse.designs.catalog.load import cached_value, parse, stamp, stamps
from dse.types import Design, Workload

#: Levels of each respect, outermost last.
HARDWARE = ("chip", "generation", "vendor")
SOFTWARE = ("source", "stack", "framework")
MODEL = ("family", "kind")

#: Level → in words.
PART_DESCRIPTIONS = {
    "home": "what rows of the stack leave open", "level": "level of the stack",
    "parameters": "spread of the fitted parameters",
    "experts": "spread of the parameters of experts", "engine": "spread of the engine's parameters",
    "kernels": "rates and kernels of the chip", "power": "energies of the chip", "links": "links and networks",
    "technology": "process and memory of a generated chip", "board": "power of a device under load",
    "chip": "no rows of this chip with the stack", "generation": "no rows of this generation of chips with the stack",
    "vendor": "no rows of this vendor's chips with the stack", "source": "a source or cluster without rows",
    "stack": "no rows of the stack", "framework": "no rows of the framework",
    "announced": "an accelerator that is announced",
    "family": "no rows of this family of models", "kind": "no rows of this kind of attention or experts with the stack",
    "device price": "price of an accelerator", "prices": "further prices",
    "emissions": "emission factors", "failures": "times between failures",
}  # fmt: skip


Levels = tuple[str, ...]


class Place(NamedTuple):
    """Stack, chip and model of a design or row, by which it is near to or far from others."""

    stack: str
    framework: str
    chip: str
    generation: str
    vendor: str
    kind: str  #: of attention and feed-forward
    family: str  #: of models

    @property
    def has_experts(self) -> bool:
        """True for a mixture of experts."""
        return "mixture" in self.kind


class MeasuredPlaces(NamedTuple):
    """Places of measured rows, with their families and kinds of models."""

    rows: tuple[Place, ...]
    families: frozenset[str]
    kinds: frozenset[str]

    @classmethod
    def from_places(cls, places: Iterable[Place]) -> MeasuredPlaces:
        """Return the measured places, each once, with their families and kinds."""
        rows = tuple(dict.fromkeys(places))
        return cls(rows, frozenset(row.family for row in rows), frozenset(row.kind for row in rows))


def framework_of(stack: str) -> str:
    """Return the code base of a stack: its lineage, else its name without the release.

    >>> framework_of("tensorrt-llm-1-0"), framework_of("nemo")
    ('tensorrt-llm', 'megatron-transformer-engine')
    """
    lineage = catalog.entry("software", stack).value("lineage", "") if stack in catalog.names("software") else ""
    return str(lineage) or re.sub(r"(-\d+)+$", "", stack)


def architecture_kind(workload: Workload) -> str:
    """Return the kind of a model: ``recurrent``, ``sparse``, ``dense``, ``mixture`` or ``latent mixture``."""
    if workload.recurrent is not None:
        return "recurrent"
    if workload.sparse is not None:
        return "sparse"
    return "dense" if workload.experts is None else "mixture" if workload.latent is None else "latent mixture"


def model_family(model: str) -> str:
    """Return the first word of a model's name in lower case, without its owner; "" for none.

    Args:
        model: its name.

    >>> model_family("Llama-3-70B"), model_family("Qwen/Qwen3-8B")
    ('llama', 'qwen')
    """
    first_word = re.match(r"[a-z]+", model.rpartition("/")[2].lower().removeprefix("meta-"))
    return first_word[0] if first_word else ""


def generation_and_vendor(accelerator: str) -> tuple[str, str]:
    """Return (generation, vendor) of an accelerator by its slug, ("", "") for "".

    A generation is the first word of its architecture.
    """
    if not accelerator:
        return "", ""
    entry = catalog.entry("accelerator", accelerator)
    return str(entry.value("architecture", accelerator)).partition(" ")[0], str(entry.value("vendor", ""))


def place_of(stack: str, accelerator: str, workload: Workload, model: str) -> Place:
    """Return the place of a model with a stack on an accelerator, both by their names in the catalogue."""
    return Place(
        stack,
        framework_of(stack),
        accelerator,
        *generation_and_vendor(accelerator),
        architecture_kind(workload),
        model_family(model),
    )


def distance_levels(place: Place, places: MeasuredPlaces, is_new_source: bool = False) -> Levels:
    """Return the levels at which a place differs from measured ones: of hardware, software and model up to one each.

    Hardware and experts differ by rows of its stack, if it has any.

    What runs on chips of a vendor without rows is another port: a stack without rows.
    """
    stack_rows = [row for row in places.rows if row.stack == place.stack]
    framework_rows = stack_rows or [row for row in places.rows if row.framework == place.framework]
    hardware_levels = _hardware_levels(place, framework_rows or places.rows)
    stack_rows = [] if "vendor" in hardware_levels else stack_rows
    software_levels = ("source",) * is_new_source if stack_rows else ("stack",) if framework_rows else ("framework",)
    return (*hardware_levels, *software_levels, *_model_levels(place, framework_rows or places.rows, places))


def _hardware_levels(place: Place, rows: Collection[Place]) -> Levels:
    """Return the outermost level of hardware at which a place differs from rows, () where its chip is in them."""
    if not place.chip or any(row.chip == place.chip for row in rows):
        return ()
    if any(row.generation == place.generation for row in rows):
        return ("chip",)
    return ("generation",) if any(row.vendor == place.vendor for row in rows) else ("vendor",)


def _model_levels(place: Place, rows: Collection[Place], places: MeasuredPlaces) -> Levels:
    """Return the outermost level of the model at which a place differs from measured ones, () for none."""
    if place.kind not in places.kinds or place.has_experts not in {row.has_experts for row in rows}:
        return ("kind",)
    families = places.families | {row.family for row in rows}
    return ("family",) if place.family and place.family not in families else ()


# Of the catalogue


def measured_places(serves: bool) -> MeasuredPlaces:
    """Return the places of the measured rows of training stacks, or of serving ones, as their files state them."""
    files = tuple(stamps(kind) for kind in ("software", "accelerator", "kernels"))
    return _cached_measured_places(serves, (files, stamp(_file())))


@functools.lru_cache(maxsize=8)
def _cached_measured_places(serves: bool, state: object) -> MeasuredPlaces:
    """Return the places of measured rows of stacks, kept for a state of the files, by later processes too."""
    return cached_value(f"measured places, {serves}", state, lambda: _read_measured_places(serves))


def _read_measured_places(serves: bool) -> MeasuredPlaces:
    """Return the places of measured rows of stacks from the files."""
    stacks = [slug for slug in catalog.readable_names("software") if bool(catalog.serving_defaults(slug)) == serves]
    rows = [row for stack in stacks for row in _rows_of(stack)]
    model_names = _table()["serving" if serves else "training"]
    return MeasuredPlaces(tuple(rows), frozenset(model_names["families"]), frozenset(model_names["kinds"]))


def _rows_of(stack: str) -> Iterable[Place]:
    """Yield the places of a stack's rows: accelerators, with and without mixtures."""
    value = catalog.entry("software", stack).value
    for chip in value("calibrated.accelerators", ()):
        for kind in ("dense", *(["mixture"] if chip in value("calibrated.mixtures", ()) else [])):
            for family in ("", *value("calibrated.families", ())):
                yield Place(stack, framework_of(stack), chip, *generation_and_vendor(chip), kind, family)


def design_levels(
    stack: str, accelerator: str, design: Design, model: str = "", is_new_source: bool = False, excluded_stack: str = ""
) -> Levels:
    """Return the levels at which a design differs from the measured rows of stacks of its kind.

    Args:
        stack: its stack, by its name in the catalogue.
        accelerator: its accelerator, by its name in the catalogue; "" where unknown.
        design: the design.
        model: name of its model; "" where unknown.
        is_new_source: whether it is of a row whose source is not one of the stack's.
        excluded_stack: a stack whose rows do not count.
    """
    places = measured_places(design.workload.requests is not None)
    if excluded_stack:
        places = places._replace(rows=tuple(row for row in places.rows if row.stack != excluded_stack))
    level_names = distance_levels(place_of(stack, accelerator, design.workload, model), places, is_new_source)
    is_announced = accelerator and catalog.entry("accelerator", accelerator).value("status") == "announced"
    return (*level_names, "announced") if is_announced else level_names


def parts(figure: str, stack: str, level_names: Levels) -> dict[str, float]:
    """Return part → standard deviation in a figure's log error: ``home``, levels that have a width, ``level``.

    Args:
        figure: ``step``, ``power`` or a kind of residuals of serving.
        stack: the stack; its own residual is ``home``, that of the median stack where it has no rows.
        level_names: levels of the design.
    """
    field = "residual" if figure == "step" else f"residuals.{figure}"
    stack_entry = catalog.entry("software", stack)
    stack_residual = None if {"stack", "framework"} & {*level_names} else stack_entry.value(field)
    widths = _table()["assumed"] | _table()["widths"].get(FIGURE_GROUPS.get(figure, figure), {})
    level_value = stack_entry.values.get("level")
    return (
        {"home": float(_table()["home"][figure] if stack_residual is None else stack_residual)}
        | {level: float(widths[level]) for level in level_names if level in widths}
        | ({} if level_value is None or not level_value.spread else {"level": level_value.spread})
    )


def memory_parts(stack: str, spread: float) -> dict[str, float]:
    """Return part → standard deviation in peak memory's log error.

    It is ``spread``, at ``home`` where the framework of the stack has measured peaks, else at ``framework``.
    """
    return {"home" if framework_of(stack) in _table()["memory"]["frameworks"] else "framework": spread}


#: Kinds of figures whose widths are learnt together.
FIGURE_GROUPS = dict.fromkeys(("token", "latency", "rate", "energy"), "serving")


def common_shares(part: str, figure: str = "step") -> tuple[float, float]:
    """Return the shares of a part's variance that designs alike in it share, and that those of one model share.

    Args:
        part: of a log error.
        figure: kind of figure.

    Returns:
        Two fractions, the second at least the first.
    """
    if part == "level":
        return 1.0, 1.0
    tables = _table()["shared"]
    shares = tables.get(FIGURE_GROUPS.get(figure, figure), tables["step"])
    prefix = "home" if part in ("home", "board") else "levels"
    return float(shares[prefix]), max(float(shares[prefix]), float(shares[f"{prefix}_model"]))


def estimate_spread(kind: str) -> float:
    """Return the standard deviation of the logarithm of a value that no text or row was held against.

    Args:
        kind: ``share``, ``time`` or ``rate`` (and any other quantity).
    """
    return float(_table()["estimates"][kind])


def degrees_of_freedom() -> float:
    """Return the degrees of freedom of Student's t whose tails log errors have."""
    return float(_table()["tail"]["freedom"])


def _table() -> Mapping[str, Any]:
    """Return the content of ``intervals.toml`` of the catalogue."""
    return parse(_file())


def _file() -> Path:
    """Return the path of ``intervals.toml`` of the catalogue."""
    return catalog.catalog_root() / "intervals.toml"
