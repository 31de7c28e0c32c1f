"""Tables of TPU runs: slices of pods, names with core counts, shapes derived from tokens and rates."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Iterable
from typing import NamedTuple

from dse.designs.catalog import is_mixture
from dse.measured.cells import Cells
from dse.measured.names import Lookup
from dse.measured.table import DEVICE_COLUMNS, Case, Row, Skip
from dse.types import Mapping, Software, System

#: Slice names of Google: ``v5p-128``, ``TPUv5e-256``, ``v5litepod-16``.
_SLICE = re.compile(r"(?:tpu[ -]?)?v(\d+)(litepod|p|e)?-(\d+)$", re.IGNORECASE)

#: Cores per chip of generations whose names count cores.
_CORES = {"2": 2, "3": 2, "4": 2, "5p": 2}

#: Remarks on several slices.
_SLICES = re.compile(r"\b(\d+) (?:slices?|pods?)\b")

#: Remat policies of MaxText for stored kernel outputs, by cost in time; full is its default.
_POLICIES = {"": "full", "minimal": "selective_op", "minimal_flash": "none", "minimal_with_context": "none"}

_TOKENS = re.compile(r"tokens per step (\d+)")


class MappingTier(NamedTuple):
    """A stack with candidate mappings."""

    software: Software
    mappings: tuple[Mapping, ...]


def are_tpu_rows(rows: Iterable[Row]) -> bool:
    """Return True where all rows are steps of TPUs.

    Args:
        rows: of a measured table.
    """
    devices = (row.get(*DEVICE_COLUMNS) for row in rows)
    return all("tpu" in device.lower() or _SLICE.match(device) for device in devices)


def read_cells(case: Case, lookup: Lookup) -> Cells:
    """Return the cells of a configuration with empty columns filled from its name, remarks and rates, and recorded."""
    cells, filled = Cells(case.row), dict[str, str]()
    for reader in (_chips, functools.partial(_batch_sizes, case, lookup), functools.partial(_fsdp_defaults, lookup)):
        filled |= reader(cells)
        cells = Cells(dataclasses.replace(case.row, cells=case.row.cells | filled))
    for name, value in filled.items():
        if name != "gpu":
            cells.complete(name, value)
    return cells


def _chips(cells: Cells) -> dict[str, str]:
    """Return device and number of chips, column → text, of a slice given as device; {} for other devices.

    Names of some generations count cores.
    """
    name = cells.text(*DEVICE_COLUMNS)
    slice_match = _SLICE.match(name)
    if not slice_match:
        return {}
    generation = slice_match[1] + (slice_match[2] or "").replace("litepod", "e").lower()
    chips = (
        {} if cells.text("n_gpus", "n_devices") else {"n_gpus": f"{int(slice_match[3]) / _CORES.get(generation, 1):g}"}
    )
    return {"gpu": f"TPUv{generation}"} | chips


def _batch_sizes(case: Case, lookup: Lookup, cells: Cells) -> dict[str, str]:
    """Return sequence length and batch, column → text, of a row with tokens per step; {} where they do not follow.

    The length is stated, or follows from tokens/s and FLOP/s per chip:

    ``FLOP/s / (tokens/s) = 6 (P - V h) + 12 L h s``, without the embedding, with the full square of attention
    (MaxText's convention); ``P`` are active parameters; lengths are powers of two.
    """
    tokens_match = _TOKENS.search(cells.text("note"))
    if not tokens_match or cells.text("global_batch"):
        return {}
    seq_len = cells.number("seq_len") or _seq_len(case, cells, lookup)
    return {"seq_len": f"{seq_len:g}", "global_batch": f"{float(tokens_match[1]) / seq_len:g}"} if seq_len else {}


def _seq_len(case: Case, cells: Cells, lookup: Lookup) -> float | None:
    """Return the sequence length in tokens that explains the FLOP per token of a row, None where none does."""
    rates = {m.name: m.value for m in case.measurements if m.skip is None}
    slug = lookup.resolve("workload", cells.text("model", "workload"))
    catalog_model = lookup.workload(slug) if slug else None
    params_b = cells.number("active_params_B") or cells.number("params_B")
    layers, hidden, vocab = (
        cells.number(column) or (getattr(catalog_model, leaf) if catalog_model else None)
        for column, leaf in (("layers", "n_layers"), ("hidden", "hidden"), ("vocab", "vocab"))
    )
    if not {"model_tflops_per_gpu", "tokens_per_s_per_gpu"} <= rates.keys() or not (params_b and layers and hidden):
        return None
    flops_per_token = rates["model_tflops_per_gpu"] / rates["tokens_per_s_per_gpu"]
    attention_flops = flops_per_token - 6.0 * (1e9 * params_b - (vocab or 0.0) * hidden)
    n_tokens = attention_flops / (12.0 * layers * hidden)
    power_of_two = 2.0 ** round(math.log2(n_tokens)) if n_tokens > 1.0 else 0.0
    return power_of_two if abs(n_tokens - power_of_two) < 0.1 * power_of_two else None


def _fsdp_defaults(lookup: Lookup, cells: Cells) -> dict[str, str]:
    """Return MaxText's defaults, column → text; {} for chips with switched links and without devices or batch.

    Weights are sharded over all chips, those of experts too, with one micro-batch per step and full remat
    (``ici_fsdp_parallelism: -1``, ``ici_expert_parallelism: 1`` of src/MaxText/configs/base.yml).

    Tensor parallelism only for batches of less than a sequence per chip. Its tables state sequences per chip, which
    the members of a tensor-parallel group share.
    """
    system = lookup.resolve("system", cells.text("system"))
    device_name = cells.text(*DEVICE_COLUMNS) or (
        system and lookup.entry("system", system).value("accelerator", system)
    )
    accelerator = lookup.resolve("accelerator", device_name)
    n_devices, batch = cells.count("n_gpus", "n_devices"), cells.count("global_batch")
    if not accelerator or not n_devices or not batch or not has_unswitched_links(lookup, accelerator):
        return {}
    tp, sequences_per_chip = cells.count("tp") or max(n_devices / batch, 1.0), cells.count("micro_batch")
    workload = lookup.resolve("workload", cells.text("model", "workload"))
    degrees = {"tp": f"{tp:g}", "pp": "1"} | ({"ep": "1"} if workload and is_mixture(workload) else {})
    defaults = {name: value for name, value in degrees.items() if not cells.text(name)}
    if sequences_per_chip is None or sequences_per_chip * n_devices == batch:
        defaults["micro_batch"] = f"{batch * tp / n_devices:g}"
    policy = cells.text("recompute").lower()
    if policy in _POLICIES:
        defaults["recompute"] = _POLICIES[policy]
    return defaults


def has_default_layers(model: str) -> bool:
    """Return True for a model with MaxText's default layers, which have one norm before both blocks."""
    return model.lower().startswith("maxtext-")


def squeezed_tiers(software: Software, mappings: tuple[Mapping, ...]) -> dict[str, MappingTier]:
    """Return note → MaxText's options where state does not fit, in order of preference.

    State sharded over all slices (dcn_fsdp_parallelism), then weights, gradients and moments in 16 bits (weight_dtype,
    as in the recipe name of Llama-3.1-70B for two sequences per chip). From memory.
    """
    fully_sharded = tuple(dataclasses.replace(m, dp_replicate=1.0) for m in mappings)
    software_16_bit = dataclasses.replace(software, parameter_bytes=2.0, moment_bytes=2.0, gradient_bytes=2.0)
    tiers = {"state shared by all slices": MappingTier(software, fully_sharded)} if fully_sharded != mappings else {}
    return tiers | {"weights and optimiser in 16 bits": MappingTier(software_16_bit, fully_sharded)}


def has_unswitched_links(lookup: Lookup, accelerator: str) -> bool:
    """Return True where links without a switch join the devices of an accelerator's own pod."""
    device = lookup.entry("accelerator", accelerator)
    network = lookup.resolve("network", str(device.value("node.scale_up", "")))
    return bool(network) and lookup.entry("network", network).value("links.topology") is not None


def slice_count(cells: Cells, system: System, n_devices: float) -> float:
    """Return the slices of a system: 1 with switches, else as stated, else as few pods as hold the devices.

    Raises Skip where they do not divide the devices or are larger than a pod.
    """
    row_slices, note_match = cells.count("slices"), _SLICES.search(cells.text("note"))
    if system.scale_up.links is None:
        return 1.0
    n_slices = row_slices or (float(note_match[1]) if note_match else math.ceil(n_devices / system.scale_up.domain))
    if n_devices % n_slices or n_devices / n_slices > system.scale_up.domain:
        pod = system.scale_up.domain
        raise Skip("devices are no whole slices", f"{n_devices:g} devices, {n_slices:g} slices of at most {pod:g}")
    return n_slices


def apply_slices(system: System, n_devices: float, n_slices: float) -> System:
    """Return the system with the devices of one slice as its scale-up domain; unchanged with switches."""
    if system.scale_up.links is None:
        return system
    return dataclasses.replace(system, scale_up=dataclasses.replace(system.scale_up, domain=n_devices / n_slices))
