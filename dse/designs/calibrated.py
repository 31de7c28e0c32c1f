"""Range of calibration of a design: whether it lies within the measured rows of its stack's fit.

A stack's file may state the ranges of its rows in ``[calibrated]``: minimum and maximum of each quantity below, the
accelerators, and those with rows of mixtures of experts. A prediction beyond them is an extrapolation; intervals widen
by accelerators and mixtures (``dse.measured.uncertainty``), not by sizes. A stack without this table has no rows.
Nothing here is traced.

Likewise sequences beyond a model's context, and training stacks without a measured engine.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from dse.designs import catalog
from dse.designs.leaves import leaf
from dse.io import digits
from dse.types import Design


class Quantity(NamedTuple):
    """A quantity of a design with a range in measured rows."""

    name: str  #: in warnings
    path: str  #: of the leaf; "parameters" is the metric of that name


#: Field of ``[calibrated]`` → quantity.
QUANTITIES = {
    "n_devices": Quantity("devices", "system.n_devices"),
    "parameters": Quantity("parameters", "parameters"),
    "seq_len": Quantity("sequence", "workload.seq_len"),
    "micro_batch": Quantity("micro-batch", "mapping.micro_batch"),
    "prompt_tokens": Quantity("prompt", "workload.requests.prompt_tokens"),
    "output_tokens": Quantity("answer", "workload.requests.output_tokens"),
    "concurrency": Quantity("concurrency", "workload.requests.concurrency"),
}

#: Quantities without a meaning in serving designs.
TRAINING_QUANTITIES = ("seq_len", "micro_batch")

#: Current serving stacks.
ENGINES = ("vllm", "sglang", "tensorrt-llm")

#: Look-up of the number at a path of a design, None where it is absent.
Lookup = Callable[[str], float | None]

#: Relative tolerance of a range, which is written with three digits.
_ROUNDING = 0.005


@functools.lru_cache(maxsize=256)
def ranges(stack: str) -> Mapping[str, tuple[float, float]]:
    """Return field → (least, largest value) in the rows that a stack was fitted to.

    Args:
        stack: slug of the software in the catalogue.

    Returns:
        Field of ``QUANTITIES`` → (minimum, maximum) in its unit; without the fields that the file does not state.
    """
    stack_entry = catalog.entry("software", stack)
    values = {field: stack_entry.value(f"calibrated.{field}") for field in QUANTITIES}
    return {field: value for field, value in values.items() if value is not None}


@functools.lru_cache(maxsize=256)
def with_mixtures(accelerator: str, is_serving: bool = False) -> tuple[str, ...]:
    """Return the slugs of the stacks with measured rows of mixtures of experts on an accelerator.

    Args:
        accelerator: its slug.
        is_serving: True for serving stacks, False for training stacks.

    Returns:
        Slugs of the stacks.

    >>> with_mixtures("h100-sxm-80gb")[0]
    'megatron-bridge'
    """
    stacks = (name for name in catalog.readable_names("software") if accelerator in _mixtures(name))
    return tuple(name for name in stacks if bool(catalog.serving_defaults(name)) == is_serving)


def _mixtures(stack: str) -> tuple[str, ...]:
    """Return the slugs of accelerators on which a stack has rows of mixtures of experts."""
    return catalog.entry("software", stack).value("calibrated.mixtures", ())


def lookup_of(design: Design, metrics: Mapping[str, float]) -> Lookup:
    """Return the function from a full path or metric of a design to its number, None where there is none.

    Args:
        design: the design.
        metrics: name → value in SI units.

    Returns:
        Function from a full path, or the name of a metric, to its number, or to None where there is none.
    """

    def find(path: str) -> float | None:
        if path in metrics:
            return metrics[path]
        if path == QUANTITIES["concurrency"].path and metrics.get("utilisation", 1.0) != 1.0:
            return min(metrics["requests_in_flight"], metrics["concurrency_limit"])  # of an open load
        try:
            return float(leaf(design, path))
        except (AttributeError, TypeError):  # absent record or metric
            return None

    return find


def accelerator_of(system: str) -> str:
    """Return the slug of the accelerator of a system or of an accelerator (any name), "" where it has none."""
    return next((slug for kind, slug in catalog.reachable_entries([("system", system)]) if kind == "accelerator"), "")


#: Training stack of vendors without one of their own.
NEUTRAL = "neutral"


def lacks_vendor_rows(stack: str, accelerator: str) -> bool:
    """True where a stack has measured rows, but none on accelerators of the vendor of ``accelerator``.

    >>> lacks_vendor_rows("vllm", "trainium-2"), lacks_vendor_rows("vllm", "a100-sxm-80gb")
    (True, False)
    """
    row_accelerators = catalog.entry("software", stack).value("calibrated.accelerators", ())
    vendors = {catalog.entry("accelerator", slug).value("vendor") for slug in row_accelerators}
    return bool(accelerator and vendors) and catalog.entry("accelerator", accelerator).value("vendor") not in vendors


def vendor_note(stack: str, accelerator: str) -> str:
    """Return the note that a stack has no rows of the accelerator's vendor, "" where it has some, or none at all.

    The neutral stack always gets one.

    >>> vendor_note("nemo", "h100-sxm-80gb")
    ''
    """
    if stack != NEUTRAL and not lacks_vendor_rows(stack, accelerator):
        return ""
    vendor = catalog.entry("accelerator", accelerator).value("vendor") if accelerator else None
    stand_in = "typical slow-downs stand in" if stack == NEUTRAL else "its overheads on other chips stand in"
    return f"{stack} has no measured rows of {vendor or 'such'} accelerators: {stand_in}, with a wide interval"


def uncalibrated_quantities(stack: str, lookup: Lookup, accelerator: str = "") -> list[str]:
    """Return texts on the quantities of a design outside the rows of its stack; empty for none.

    For a mixture of experts on an accelerator without rows of one, the stacks with such rows are named.

    Args:
        stack: slug of the software in the catalogue.
        lookup: of the design's leaves by full path, and of its ``parameters``.
        accelerator: its slug, if known.

    Returns:
        One text per quantity, with its value and the range of the rows.

    >>> uncalibrated_quantities("nemo", {"workload.seq_len": 4096.0, "system.n_devices": 8192.0}.get)
    ['devices 8,192 (rows up to 1,024)']
    >>> uncalibrated_quantities("megatron-core-te", {}.get)
    ['no measured rows for megatron-core-te']
    """
    chips = catalog.entry("software", stack).value("calibrated.accelerators", ())
    if not (ranges(stack) or chips):
        return [f"no measured rows for {stack}"]
    excesses = []
    for field, (low, high) in ranges(stack).items():
        value = lookup(QUANTITIES[field].path)
        if value is not None and not low * (1.0 - _ROUNDING) <= value <= high * (1.0 + _ROUNDING):
            side = f"up to {_number(high)}" if value > high else f"from {_number(low)} on"
            excesses.append(f"{QUANTITIES[field].name} {_number(value)} (rows {side})")
    if chips and accelerator and accelerator not in chips:
        excesses.append(f"{accelerator} (rows of {', '.join(chips)})")
    if lookup("workload.experts.n_experts") is not None:
        excesses += _mixture_excess(stack, accelerator, chips)
    return excesses


def _mixture_excess(stack: str, accelerator: str, chips: tuple[str, ...]) -> list[str]:
    """Return one text where the rows of a stack are of dense models, all or those on an accelerator; else none."""
    mixture_accelerators = _mixtures(stack)
    if mixture_accelerators and (accelerator in mixture_accelerators or accelerator not in chips):
        return []
    where = f" on {accelerator}" if mixture_accelerators else ""
    return [f"mixtures of experts{where} (rows of dense models{mixtures_note(stack, accelerator)})"]


def mixtures_note(stack: str, accelerator: str) -> str:
    """Return the note on the stacks of the same kind with rows of mixtures of experts on an accelerator.

    Args:
        stack: slug of the stack that has none.
        accelerator: its slug; "" for none gives "".

    >>> mixtures_note("nemo", "a100-sxm-80gb")
    '; no stack has rows of mixtures on a100-sxm-80gb'
    """
    if not accelerator:
        return ""
    stacks = with_mixtures(accelerator, bool(catalog.serving_defaults(stack)))
    if not stacks:
        return f"; no stack has rows of mixtures on {accelerator}"
    return f"; stacks with rows of mixtures on {accelerator}: {', '.join(stacks)}"


def context_of(workload: str) -> float | None:
    """Return the longest context of a model in tokens, None where it is unknown.

    It is ``max_seq_len`` of the workload's file, else its training length; with state-space layers only the former.

    >>> context_of("llama-3-70b")
    8192.0
    """
    entry = catalog.entry("workload", workload)
    return entry.value("max_seq_len") or (None if entry.states("recurrent") else entry.value("seq_len"))


def context_note(workload: str, lookup: Lookup) -> str:
    """Return the note that sequences are longer than a model's context, "" where they fit or it is unknown.

    Args:
        workload: name of the model in the catalogue.
        lookup: of the leaves of the design by full path.

    >>> context_note("llama-3-70b", {"workload.seq_len": 16384.0}.get)
    'a sequence of 16,384 tokens is longer than the context of llama-3-70b: 8,192'
    """
    entry, context = catalog.entry("workload", workload), context_of(workload)
    prompt, answer = (lookup(f"workload.requests.{name}_tokens") for name in ("prompt", "output"))
    length, subject, verb = lookup("workload.seq_len"), "a sequence", "is"
    if prompt is not None and answer is not None:
        length, subject, verb = prompt + answer, "a request", "is"
    if context is None or length is None or length <= context * (1.0 + _ROUNDING):
        return ""
    return f"{subject} of {length:,.0f} tokens {verb} longer than the context of {entry.slug}: {context:,.0f}"


def training_stack_note(stacks: Iterable[str]) -> str:
    """Return the note that a design serves with training stacks, "" where none of its stacks is one.

    >>> training_stack_note(["vllm"])
    ''
    """
    training_stacks = [name for name in dict.fromkeys(stacks) if name != "none" and not catalog.serving_defaults(name)]
    if not training_stacks:
        return ""
    verb = "is a stack" if len(training_stacks) == 1 else "are stacks"
    return (
        f"{', '.join(training_stacks)} {verb} of training: what an engine takes is at its plain defaults; "
        f"stacks that serve: --software {', '.join(ENGINES)}"
    )


def range_note(parts: list[str]) -> str:
    """Return the note on quantities outside the calibrated range, "" for no ``parts``.

    Args:
        parts: texts of :func:`uncalibrated_quantities`.
    """
    return f"outside the calibrated range: {', '.join(parts)}" if parts else ""


def range_notes(by_stack: Mapping[str, list[str]]) -> str:
    """Return the note on quantities outside the calibrated range for designs of several stacks, "" for none.

    Args:
        by_stack: stack → texts of :func:`uncalibrated_quantities`.

    >>> range_notes({"nemo": ["devices 4,096 (rows up to 1,024)"], "vllm": []})
    'outside the calibrated range: nemo: devices 4,096 (rows up to 1,024)'
    """
    if len(by_stack) == 1:
        return range_note(*by_stack.values())
    without_rows = {f"no measured rows for {stack}" for stack in by_stack}
    text_groups = (
        [*parts] if set(parts) <= without_rows else [f"{stack}: {', '.join(parts)}"]
        for stack, parts in by_stack.items()
    )
    texts = [text for texts in text_groups for text in texts]
    return f"outside the calibrated range: {'; '.join(texts)}" if texts else ""


def _number(value: float) -> str:
    """Return a number as text, from 1e7 on in billions."""
    return f"{value:,.0f}" if value < 1e7 else f"{digits(value / 1e9)} billion"
