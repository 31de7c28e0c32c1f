"""Completion of a row to candidate designs: names through the catalogue, open values by rule.

Stated values are taken unchanged. Open ones are completed by the stack's default (ZeRO stage, sequence parallelism,
overlaps), by the source (system, software), or by search (recompute, micro-batch, virtual stages, tp, pp):
:mod:`dse.measured.mappings` lists the candidates, :mod:`dse.measured.prediction` chooses one.

Fine-tuning recipes of NeMo and Megatron-Bridge pack short questions and answers (SQuAD) into sequences, and adapt
queries, keys and values only. Rows of other sources have one document per sequence unless they state another length.
MLPerf's benchmark adapts attention, on reports as long as a sequence, with fp8 weights in NVIDIA's submissions.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from dse.designs.calibrated import mixtures_note
from dse.designs.records import TUNING_TOKENS
from dse.errors import InputError
from dse.measured import calculon, pods
from dse.measured.cells import Cells
from dse.measured.mappings import mappings
from dse.measured.names import NEAREST, Lookup, accelerator_of
from dse.measured.table import DEVICE_COLUMNS, Case, Skip, joined_remarks, kind_rows
from dse.types import Adapters, Attention, Design, ExpertKernels, Mapping, Packing, Scalar, Software, System, Workload

_EXPERTS = re.compile(r"mixtral|deepseek|moe|-a\d+b\b|gpt-oss|kimi|dbrx|grok|llama-4|minimax", re.IGNORECASE)

#: Options chosen among candidates where a row leaves them open; others have defaults.
SEARCHED = frozenset(
    ("recompute", "recompute_share", "offload_activations", "micro_batch", "virtual_stages", "tp", "pp")
)

#: Completed field of a mixture on a stack without measured kernels of experts.
EXPERT_KERNELS = "expert_kernels"


@dataclasses.dataclass(frozen=True)
class Candidates:
    """Candidate designs of one configuration: fixed parts, and mappings to choose from."""

    workload: Workload
    system: System
    software: Software
    mappings: tuple[Mapping, ...]
    completed: dict[str, str]  #: completed field → value, or "" where it is chosen among the mappings
    stack: str = ""  #: slug of the software
    note: str = ""  #: remark on the completion
    fallbacks: dict[str, pods.MappingTier] = dataclasses.field(
        default_factory=dict
    )  #: note → fallback where nothing fits

    @property
    def designs(self) -> list[Design]:
        """Candidate designs, tier by tier in order of preference."""
        return [
            Design(workload=self.workload, system=self.system, software=tier.software, mapping=mapping)
            for tier in self.tiers.values()
            for mapping in tier.mappings
        ]

    @property
    def design(self) -> Design:
        """The first candidate."""
        return self.designs[0]

    @property
    def tiers(self) -> dict[str, pods.MappingTier]:
        """Note → stack and candidate mappings, in order of preference."""
        return {"": pods.MappingTier(self.software, self.mappings)} | self.fallbacks

    @property
    def fits_memory_by_choice(self) -> bool:
        """True where an open value of the row decides its memory."""
        return any(self.completed.get(name) == "" for name in SEARCHED - {"virtual_stages"})


def complete(case: Case, lookup: Lookup | None = None) -> Candidates:
    """Return the candidate designs of a configuration.

    Args:
        case: of :func:`dse.measured.read_cases`.
        lookup: names of rows in the catalogue; by default those of its files.

    Returns:
        Workload, system, software, and the mappings among which the model chooses.

    Raises:
        Skip: when there are none.

    >>> from dse.measured import read_cases
    >>> candidates = complete(read_cases("tests/published/narayanan_2021.csv")[0])
    >>> candidates.workload.n_heads, len(candidates.mappings) > 0
    (24.0, True)
    """
    lookup = lookup or Lookup()
    if case.row.cells.keys() >= calculon.COLUMNS:
        return _calculon_candidates(case, lookup)
    cells = pods.read_cells(case, lookup)
    _skip_unknown_mixture(cells, lookup, cells.text("model", "workload"))
    _skip_incomplete_row(cells)
    n_devices = cells.count("n_gpus", "n_devices") or 1.0
    try:
        system, stack = _system(cells, lookup)
        software = lookup.software(stack)
        workload = apply_fine_tuning(
            cells, _round_batch(cells, adjust_mixture(cells, _workload(cells, lookup, software)), n_devices)
        )
        entry = lookup.entry("software", stack)
        stack_options = {
            name: float(entry.value(name, 0.0)) for name in ("selective", "spills", "splits_hidden", "graph")
        }
        if workload.experts is not None:
            software = dataclasses.replace(software, experts=_expert_kernels(cells, lookup, stack))
            stack_options |= lookup.expert_options(stack)
        n_slices = pods.slice_count(cells, system, n_devices)
        system = pods.apply_slices(system, n_devices, n_slices)

        def default(option: str, zero_stage: float | None = None) -> float:
            """Return the stack's default of an option."""
            return (lookup.mapping_defaults(stack, zero_stage=zero_stage) | stack_options)[option]

        candidate_mappings = mappings(cells, workload, n_devices, default, n_slices)
    except InputError as error:
        raise Skip("not in the catalogue", str(error)) from None
    is_nearest_stack = "software" in cells.completed and lookup.is_nearest(stack, case.source, _remarks(cells))
    mixtures_remark = (
        f"{stack} has no measured kernels of experts: default values{mixtures_note(stack, accelerator_of(cells.row))}"
        if EXPERT_KERNELS in cells.completed
        else ""
    )
    note = joined_remarks(NEAREST if is_nearest_stack else "", mixtures_remark)
    system = dataclasses.replace(system, n_devices=n_devices)
    may_squeeze = stack_options["spills"] and system.scale_up.links is not None and "recompute" in cells.completed
    fallbacks = pods.squeezed_tiers(software, candidate_mappings) if may_squeeze else {}
    return Candidates(workload, system, software, candidate_mappings, cells.completed, stack, note, fallbacks)


def _calculon_candidates(case: Case, lookup: Lookup) -> Candidates:
    """Return the one design of a row of Calculon's output, or raise Skip."""
    try:
        workload, system, software, mapping = calculon.design_parts(case.row, lookup)
    except InputError as error:
        raise Skip("not in the catalogue", str(error)) from None
    except (KeyError, ValueError) as error:
        raise Skip("not a row of Calculon's output", repr(error)) from None
    return Candidates(workload, system, software, (mapping,), {}, "calculon")


def _skip_unknown_mixture(cells: Cells, lookup: Lookup, model: str) -> None:
    """Raise Skip for mixtures of experts outside the catalogue, and for rows without an expert-parallel size."""
    slug = lookup.resolve("workload", model)
    if slug and lookup.workload(slug).experts is not None:
        if cells.count("ep") is None:
            raise Skip("no expert-parallel size stated", f"{model}: ep is empty")
        return
    total, active = cells.number("params_B"), cells.number("active_params_B")
    is_sparse = total is not None and active is not None and active < 0.9 * total
    if is_sparse or (cells.number("n_experts") or 1) > 1 or (cells.number("ep") or 1) > 1 or _EXPERTS.search(model):
        raise Skip("mixture of experts not in the catalogue", model)


def _expert_kernels(cells: Cells, lookup: Lookup, stack: str) -> ExpertKernels:
    """Return the expert kernels of a stack, by default values (recorded as completed) where its file states none.

    With dropped tokens every expert has its capacity in rows, so the host waits for no sizes. XLA multiplies experts
    of a stated capacity as one batched product, at the rate of any other one (MaxText src/MaxText/layers/moe.py).
    """
    if not lookup.entry("software", stack).states("experts"):
        cells.complete(EXPERT_KERNELS, "default")
    kernels = lookup.expert_kernels(stack)
    if cells.number("capacity", least=0.0):
        kernels = dataclasses.replace(kernels, grouped_efficiency=1.0)
    return dataclasses.replace(kernels, expert_host_time=0.0) if cells.convention("drops_tokens") else kernels


def _skip_incomplete_row(cells: Cells) -> None:
    """Raise Skip for a row without required values, all of which one reason names."""
    missing = [row for row in kind_rows("steps")["needed"] if not cells.text(*row["columns"])]
    if len(missing) == 1:
        reason = missing[0]["reason"]
        raise Skip(reason, "no model named" if reason == "unknown shape" else "")
    if missing:
        raise Skip("several needed columns are empty", ", ".join(row["columns"][0] for row in missing))


def _system(cells: Cells, lookup: Lookup) -> tuple[System, str]:
    """Return the system and the slug of the stack: as named, else by the source, else the accelerator's default.

    Submissions of all makers share a source, so a stack that does not exist for the accelerator is not used.
    """
    system_name, source = cells.text("system"), cells.row.source
    accelerator = accelerator_slug(cells, lookup) if cells.text(*DEVICE_COLUMNS) else ""
    slug = system_name or cells.complete("system", lookup.slug_of_source("system", source, accelerator) or accelerator)
    stack = cells.text("software")
    if not stack:
        stack_of_source = lookup.slug_of_source("software", source, note=_remarks(cells))
        if stack_of_source and lookup.foreign(stack_of_source, slug):
            stack_of_source = ""
        stack = cells.complete(
            "software", stack_of_source or lookup.default_software(slug, cells.text("model", "workload"))
        )
    return lookup.system(slug), stack


def accelerator_slug(cells: Cells, lookup: Lookup) -> str:
    """Return the slug of the accelerator of a row, or raise Skip if the catalogue lacks it."""
    device = cells.text(*DEVICE_COLUMNS)
    slug = lookup.resolve("accelerator", device)
    if not slug:
        raise Skip("device not in the catalogue", lookup.suggestion("accelerator", device))
    return slug


def unknown_model_skip(cells: Cells, lookup: Lookup) -> Skip:
    """Return the Skip of a row whose model is not in the catalogue, for the caller to raise."""
    name = cells.text("model", "workload")
    return Skip("unknown shape", lookup.suggestion("workload", name) if name else "no model named")


def _remarks(cells: Cells) -> str:
    """Return as text a row's note and device, which distinguish the stacks of one source."""
    return f"{cells.text('note')} {cells.text(*DEVICE_COLUMNS)}"


def _round_batch(cells: Cells, workload: Workload, n_devices: float) -> Workload:
    """Return the workload with integer micro-batches where its batch is stated in rounded tokens (within 1 %)."""
    tp, pp, micro_batch = (cells.count(name) for name in ("tp", "pp", "micro_batch"))
    if tp is None or pp is None or micro_batch is None:
        return workload
    sequences_per_micro_batch = n_devices / (tp * pp * (cells.count("cp") or 1.0)) * micro_batch
    batch = float(workload.global_batch)
    rounded_batch = max(round(batch / sequences_per_micro_batch), 1) * sequences_per_micro_batch
    if batch == rounded_batch or abs(rounded_batch / batch - 1.0) > 0.01 or rounded_batch % 1.0:
        return workload
    return dataclasses.replace(workload, global_batch=cells.complete("global_batch", rounded_batch))


def _model_sizes(cells: Cells, catalog_model: Workload | None, lookup: Lookup) -> dict[str, Any]:
    """Return field of the workload → size, from the row's columns, else from the catalogue's model; Skip if unknown."""
    sizes: dict[str, Any] = {name: cells.count(*columns) for name, columns in kind_rows("steps")["sizes"].items()}
    has_same_heads = catalog_model is not None and all(
        sizes[name] in (None, getattr(catalog_model, name)) for name in ("hidden", "n_heads", "n_kv_heads")
    )
    if catalog_model is not None:
        for name in ("n_layers", "hidden", "n_heads", "ffn_hidden", "vocab"):
            sizes[name] = sizes[name] or getattr(catalog_model, name)
    if not (sizes["n_layers"] and sizes["hidden"] and sizes["n_heads"]):
        raise unknown_model_skip(cells, lookup)
    head_source = catalog_model if has_same_heads else None
    sizes["ffn_hidden"] = sizes["ffn_hidden"] or cells.complete("ffn", 4.0 * sizes["hidden"])
    sizes["vocab"] = sizes["vocab"] or cells.complete("vocab", 51200.0)
    sizes["n_kv_heads"] = sizes["n_kv_heads"] or (head_source.n_kv_heads if head_source else sizes["n_heads"])
    sizes["head_dim"] = sizes["head_dim"] or (
        head_source.head_dim if head_source else sizes["hidden"] / sizes["n_heads"]
    )
    return sizes


def _workload(cells: Cells, lookup: Lookup, software: Software) -> Workload:
    """Return the workload of a row with the flags of the catalogue's model or of its family, else guessed ones.

    A feed-forward of four hidden sizes is GPT's (two matrices, learned positions, tied embeddings, dropout in stacks
    before flash attention), any other one Llama's.
    """
    name = cells.text("model", "workload")
    slug = lookup.resolve("workload", name)
    catalog_model = lookup.workload(slug) if slug else None
    sizes = _model_sizes(cells, catalog_model, lookup)
    template = catalog_model or lookup.family_member(name)
    if template is not None:
        window = min(template.window, sizes["seq_len"]) if template.local_layers else sizes["seq_len"]
        if cells.convention("rotary") == "not scaled":
            template = dataclasses.replace(template, scaled_rotary=None)
        return truncate_model(template, sizes["n_layers"], dataclasses.replace(template, **sizes, window=window))
    parallel_block = 1.0 if pods.has_default_layers(name) else None
    is_gpt = float(sizes["ffn_hidden"] == 4.0 * sizes["hidden"])
    return Workload(
        **sizes,
        gated=1.0 - is_gpt,
        tied_embeddings=is_gpt,
        learned_positions=is_gpt,
        rotary=1.0 - is_gpt,
        relative_positions=0.0,
        dropout=is_gpt * float(software.attention == Attention.unfused),
        window=sizes["seq_len"],
        local_layers=0.0,
        parallel_block=parallel_block,
    )


def apply_fine_tuning(cells: Cells, workload: Workload) -> Workload:
    """Return the workload with the adapters and the packing of a row, its remarks or its source; unchanged without."""
    rank, document_tokens = cells.number("lora_rank"), cells.number("document_tokens")
    if document_tokens is None and (packed_tokens := cells.convention("document_tokens")):
        document_tokens = cells.complete("document_tokens", min(float(packed_tokens), float(workload.seq_len)))
    if rank:
        frozen_bytes = cells.number("frozen_bytes")
        adapters = Adapters(
            rank=rank,
            projection=float(cells.convention("adapters") == "projection"),
            feed_forward=0.0,
            frozen_bytes=2.0 if frozen_bytes is None else frozen_bytes,
        )
        workload = dataclasses.replace(workload, adapters=adapters, run_tokens=TUNING_TOKENS)
    if document_tokens:
        workload = dataclasses.replace(workload, packing=Packing(document=document_tokens))
    return workload


def adjust_mixture(cells: Cells, workload: Workload) -> Workload:
    """Return a mixture with what a row states of its experts; dense models unchanged.

    These are imbalance, capacity, tokens predicted, and ``first_dense``, dense layers of a model cut to fewer layers.
    """
    experts = workload.experts
    if experts is None:
        return workload
    row_value = cells.count("first_dense", least=0.0)
    if row_value is not None and row_value > workload.n_layers:
        raise Skip("not a usable number", f"first_dense = {row_value:g} of {workload.n_layers:g} layers")
    first_dense = experts.first_dense if row_value is None else row_value
    imbalance, capacity = cells.number("imbalance", least=1.0), cells.number("capacity", least=0.0)
    adjusted_experts = dataclasses.replace(
        experts,
        first_dense=first_dense,
        n_predict=_multi_token_count(cells, experts.n_predict),
        imbalance=experts.imbalance if imbalance is None else imbalance,
        capacity=experts.capacity if capacity is None else capacity,
    )
    return dataclasses.replace(workload, experts=adjusted_experts)


def truncate_model(full_model: Workload, n_layers: float, workload: Workload) -> Workload:
    """Return a row's workload without multi-token prediction where ``full_model`` has more layers than the row.

    Models are cut to time a few layers of them. A layer that predicts a further token, with a head of its own, would be
    a fifth of four layers that nobody asked for; one that the row states is added (:func:`adjust_mixture`).
    """
    if workload.experts is None or n_layers >= full_model.n_layers:
        return workload
    return dataclasses.replace(workload, experts=dataclasses.replace(workload.experts, n_predict=0.0))


def _multi_token_count(cells: Cells, catalog_value: Scalar) -> Scalar:
    """Return the number of tokens predicted beyond the next: of the row, its remarks, else ``catalog_value``.

    ``catalog_value`` is that of the catalogue's model with all its layers, recorded as completed.
    """
    row_value = cells.count("n_predict", "mtp_num_layers", least=0.0)
    if row_value is not None:
        return row_value
    if cells.convention("multi_token"):
        return max(float(catalog_value), 1.0)
    return cells.complete("n_predict", float(catalog_value)) if catalog_value else catalog_value
