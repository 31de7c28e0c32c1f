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
from dse.measured.mappings import drops_tokens, mappings
from dse.measured.names import NEAREST, Lookup, accelerator_of
from dse.measured.table import DEVICE, Case, Skip
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
    otherwise: dict[str, pods.Tier] = dataclasses.field(default_factory=dict)  #: note → fallback where nothing fits

    @property
    def designs(self) -> list[Design]:
        """Candidate designs, in order."""
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
    def tiers(self) -> dict[str, pods.Tier]:
        """Note → stack and candidate mappings, in order of preference."""
        return {"": pods.Tier(self.software, self.mappings)} | self.otherwise

    @property
    def fits_memory_by_choice(self) -> bool:
        """Whether an open value of the row decides its memory."""
        return any(self.completed.get(name) == "" for name in SEARCHED - {"virtual_stages"})


def complete(case: Case, lookup: Lookup | None = None) -> Candidates:
    """Candidate designs of a configuration.

    Args:
        case: of :func:`dse.measured.read_cases`.
        lookup: names of rows in the catalogue; by default those of its files.

    Returns:
        Workload, system, software, and the mappings among which the model chooses.

    Raises:
        Skip: when there are none.

    >>> from dse.measured import read_cases
    >>> found = complete(read_cases("tests/published/narayanan_2021.csv")[0])
    >>> found.workload.n_heads, len(found.mappings) > 0
    (24.0, True)
    """
    lookup = lookup or Lookup()
    if case.row.cells.keys() >= calculon.COLUMNS:
        return _of_calculon(case, lookup)
    cells = pods.read(case, lookup)
    _refuse_experts(cells, lookup, cells.text("model", "workload"))
    _require(cells)
    devices = cells.count("n_gpus", "n_devices") or 1.0
    try:
        system, stack = _system(cells, lookup)
        software = lookup.software(stack)
        workload = tuned(cells, _whole_batch(cells, mixed(cells, _workload(cells, lookup, software)), devices))
        entry = lookup.entry("software", stack)
        own = {name: float(entry.value(name, 0.0)) for name in ("selective", "spills", "splits_hidden")}
        if workload.experts is not None:
            software = dataclasses.replace(software, experts=_expert_kernels(cells, lookup, stack))
            own |= lookup.expert_options(stack)
        copies = pods.slices(cells, system, devices)
        system = pods.sliced(system, devices, copies)

        def default(option: str, zero_stage: float | None = None) -> float:
            return (lookup.mapping_defaults(stack, zero_stage=zero_stage) | own)[option]

        found = mappings(cells, workload, devices, default, copies)
    except InputError as error:
        raise Skip("not in the catalogue", str(error)) from None
    nearest = "software" in cells.completed and lookup.is_nearest(stack, case.source, _remarks(cells))
    note = NEAREST if nearest else ""
    if EXPERT_KERNELS in cells.completed:
        others = mixtures_note(stack, accelerator_of(cells.row))
        note = "; ".join(filter(None, (note, f"{stack} has no measured kernels of experts: default values{others}")))
    system = dataclasses.replace(system, n_devices=devices)
    squeezes = own["spills"] and system.scale_up.links is not None and "recompute" in cells.completed
    otherwise = pods.squeezed(software, found) if squeezes else {}
    return Candidates(workload, system, software, found, cells.completed, stack, note, otherwise)


def _of_calculon(case: Case, lookup: Lookup) -> Candidates:
    try:
        found = calculon.design_parts(case.row, lookup)
    except InputError as error:
        raise Skip("not in the catalogue", str(error)) from None
    except (KeyError, ValueError) as error:
        raise Skip("not a row of Calculon's output", repr(error)) from None
    return Candidates(*found[:3], (found[3],), {}, "calculon")


def _refuse_experts(cells: Cells, lookup: Lookup, model: str) -> None:
    """Skip mixtures of experts outside the catalogue, and rows of mixtures without an expert-parallel size."""
    slug = lookup.resolve("workload", model)
    if slug and lookup.workload(slug).experts is not None:
        if cells.count("ep") is None:
            raise Skip("no expert-parallel size stated", f"{model}: ep is empty")
        return
    total, active = cells.number("params_B"), cells.number("active_params_B")
    sparse = total is not None and active is not None and active < 0.9 * total
    if sparse or (cells.number("n_experts") or 1) > 1 or (cells.number("ep") or 1) > 1 or _EXPERTS.search(model):
        raise Skip("mixture of experts not in the catalogue", model)


def _expert_kernels(cells: Cells, lookup: Lookup, stack: str) -> ExpertKernels:
    """Expert kernels of a stack, by default values (recorded as completed) where its file states none.

    With dropped tokens every expert has its capacity in rows, so the host waits for no sizes.
    """
    if not lookup.entry("software", stack).states("experts"):
        cells.complete(EXPERT_KERNELS, "default")
    found = lookup.expert_kernels(stack)
    return dataclasses.replace(found, expert_host_time=0.0) if drops_tokens(cells) else found


#: Required values of a row: reason to skip it → columns, one of which must be filled.
_REQUIRED = (
    ("no number of devices stated", ("n_gpus", "n_devices")),
    ("no device stated", (*DEVICE, "system")),
    ("no global batch stated", ("global_batch",)),
    ("no sequence length stated", ("seq_len",)),
    ("unknown shape", ("model", "workload", "layers_used", "layers", "n_layers")),
)


def _require(cells: Cells) -> None:
    """Skip a row without required values, all of them in one reason."""
    missing = [(reason, columns) for reason, columns in _REQUIRED if not cells.text(*columns)]
    if len(missing) == 1:
        reason = missing[0][0]
        raise Skip(reason, "no model named" if reason == "unknown shape" else "")
    if missing:
        raise Skip("several needed columns are empty", ", ".join(columns[0] for _, columns in missing))


def _system(cells: Cells, lookup: Lookup) -> tuple[System, str]:
    """System and slug of the stack: as named, else by the source, else the accelerator's default.

    Submissions of all makers share a source, so a stack that does not exist for the accelerator is not used.
    """
    named, source = cells.text("system"), cells.row.source
    accelerator = known_device(cells, lookup) if cells.text(*DEVICE) else ""
    slug = named or cells.complete("system", lookup.by_source("system", source, accelerator) or accelerator)
    stack = cells.text("software")
    if not stack:
        used = lookup.by_source("software", source, note=_remarks(cells))
        if used and lookup.foreign(used, slug):
            used = ""
        stack = cells.complete("software", used or lookup.default_software(slug, cells.text("model", "workload")))
    return lookup.system(slug), stack


def known_device(cells: Cells, lookup: Lookup) -> str:
    """Slug of the accelerator of a row; Skip if the catalogue lacks it."""
    device = cells.text(*DEVICE)
    found = lookup.resolve("accelerator", device)
    if not found:
        raise Skip("device not in the catalogue", lookup.suggestion("accelerator", device))
    return found


def unknown_shape(cells: Cells, lookup: Lookup) -> Skip:
    """Reason to skip a row whose model is not in the catalogue."""
    name = cells.text("model", "workload")
    return Skip("unknown shape", lookup.suggestion("workload", name) if name else "no model named")


def _remarks(cells: Cells) -> str:
    """A row's note and device, which distinguish the stacks of one source."""
    return f"{cells.text('note')} {cells.text(*DEVICE)}"


def _whole_batch(cells: Cells, workload: Workload, devices: float) -> Workload:
    """The workload with whole micro-batches where its batch is stated in rounded tokens (within 1 %)."""
    tp, pp, micro_batch = (cells.count(name) for name in ("tp", "pp", "micro_batch"))
    if tp is None or pp is None or micro_batch is None:
        return workload
    together = devices / (tp * pp * (cells.count("cp") or 1.0)) * micro_batch
    stated = float(workload.global_batch)
    rounded = max(round(stated / together), 1) * together
    if stated == rounded or abs(rounded / stated - 1.0) > 0.01 or rounded % 1.0:
        return workload
    return dataclasses.replace(workload, global_batch=cells.complete("global_batch", rounded))


_SIZES = {
    "n_layers": ("layers_used", "layers", "n_layers"), "hidden": ("hidden",), "n_heads": ("heads", "n_heads"),
    "n_kv_heads": ("kv_heads", "n_kv_heads"), "head_dim": ("head_dim",), "ffn_hidden": ("ffn", "ffn_hidden"),
    "vocab": ("vocab",), "seq_len": ("seq_len",), "global_batch": ("global_batch",),
}  # fmt: skip


def _shape(cells: Cells, known: Workload | None, lookup: Lookup) -> dict[str, Any]:
    """Sizes of the model and its batch from the row's columns, else from the catalogue's model."""
    shape: dict[str, Any] = {name: cells.count(*columns) for name, columns in _SIZES.items()}
    same_heads = known is not None and all(
        shape[name] in (None, getattr(known, name)) for name in ("hidden", "n_heads", "n_kv_heads")
    )
    if known is not None:
        for name in ("n_layers", "hidden", "n_heads", "ffn_hidden", "vocab"):
            shape[name] = shape[name] or getattr(known, name)
    if not (shape["n_layers"] and shape["hidden"] and shape["n_heads"]):
        raise unknown_shape(cells, lookup)
    heads = known if same_heads else None
    shape["ffn_hidden"] = shape["ffn_hidden"] or cells.complete("ffn", 4.0 * shape["hidden"])
    shape["vocab"] = shape["vocab"] or cells.complete("vocab", 51200.0)
    shape["n_kv_heads"] = shape["n_kv_heads"] or (heads.n_kv_heads if heads else shape["n_heads"])
    shape["head_dim"] = shape["head_dim"] or (heads.head_dim if heads else shape["hidden"] / shape["n_heads"])
    return shape


def _workload(cells: Cells, lookup: Lookup, software: Software) -> Workload:
    """The workload of a row; flags of the catalogue's model or of its family, else guessed.

    A feed-forward of four hidden sizes is GPT's (two matrices, learned positions, tied embeddings, dropout in stacks
    before flash attention), any other one Llama's.
    """
    name = cells.text("model", "workload")
    slug = lookup.resolve("workload", name)
    known = lookup.workload(slug) if slug else None
    shape = _shape(cells, known, lookup)
    like = known or lookup.relative(name)
    if like is not None:
        window = min(like.window, shape["seq_len"]) if like.local_layers else shape["seq_len"]
        return truncate_model(like, shape["n_layers"], dataclasses.replace(like, **shape, window=window))
    side_by_side = 1.0 if pods.is_of_default_layers(name) else None
    gpt = float(shape["ffn_hidden"] == 4.0 * shape["hidden"])
    return Workload(
        **shape,
        gated=1.0 - gpt,
        tied_embeddings=gpt,
        learned_positions=gpt,
        rotary=1.0 - gpt,
        relative_positions=0.0,
        dropout=gpt * float(software.attention == Attention.unfused),
        window=shape["seq_len"],
        local_layers=0.0,
        parallel_block=side_by_side,
    )


_FINE_TUNING = re.compile(r"\b(LoRA|SFT|fine-?tun\w*)\b", re.IGNORECASE)
_ADAPTERS = re.compile(r"\bLoRA\b", re.IGNORECASE)
_MLPERF = re.compile(r"^mlperf", re.IGNORECASE)
_PACKS_SHORT = re.compile(r"^(nemo|megatron-bridge)", re.IGNORECASE)

#: Rank in the recipes of both publishers.
RANK = 16.0

#: Tokens per packed document of SQuAD, mean square over mean: about 150 to 200 tokens each, few of 500.
SHORT_DOCUMENT = 250.0


def tuned(cells: Cells, workload: Workload) -> Workload:
    """The workload with the adapters and the packing of a row, its remarks or its source."""
    note, benchmark = cells.text("note"), bool(_MLPERF.match(cells.row.source))
    rank, document = cells.number("lora_rank"), cells.number("document_tokens")
    if rank is None and _ADAPTERS.search(note):
        rank = cells.complete("lora_rank", RANK)
    if document is None and _FINE_TUNING.search(note) and _PACKS_SHORT.match(cells.row.source):
        document = cells.complete("document_tokens", min(SHORT_DOCUMENT, float(workload.seq_len)))
    if rank:
        narrow = cells.number("frozen_bytes")
        if narrow is None:
            narrow = 1.0 if benchmark and "fp8" in cells.text("precision").lower() else 2.0
        adapters = Adapters(rank=rank, projection=float(benchmark), feed_forward=0.0, frozen_bytes=narrow)
        workload = dataclasses.replace(workload, adapters=adapters, run_tokens=TUNING_TOKENS)
    if document:
        workload = dataclasses.replace(workload, packing=Packing(document=document))
    return workload


#: Remarks on runs with and without multi-token prediction (NVIDIA's tables of Megatron-Bridge).
_FURTHER = r"\W+(MTP|multi-token prediction)\b"
_WITHOUT = re.compile(r"\b(w/o|without|no)" + _FURTHER, re.IGNORECASE)
_WITH = re.compile(r"\b(w/|with)" + _FURTHER, re.IGNORECASE)


def mixed(cells: Cells, workload: Workload) -> Workload:
    """The workload with the first dense layers and multi-token prediction of a row or its remarks.

    ``first_dense``: dense layers of a model cut to fewer layers.
    """
    experts = workload.experts
    if experts is None:
        return workload
    stated = cells.count("first_dense", least=0.0)
    if stated is not None and stated > workload.n_layers:
        raise Skip("not a usable number", f"first_dense = {stated:g} of {workload.n_layers:g} layers")
    first_dense = experts.first_dense if stated is None else stated
    imbalance = cells.number("imbalance", least=1.0)
    found = dataclasses.replace(
        experts,
        first_dense=first_dense,
        n_predict=_further(cells, experts.n_predict),
        imbalance=experts.imbalance if imbalance is None else imbalance,
    )
    return dataclasses.replace(workload, experts=found)


def truncate_model(whole: Workload, n_layers: float, workload: Workload) -> Workload:
    """The ``workload`` of a row with ``n_layers``, without multi-token prediction where ``whole`` has more layers.

    Models are cut to time a few layers of them. A layer that predicts a further token, with a head of its own, would be
    a fifth of four layers that nobody asked for; one that the row states is added (:func:`mixed`).
    """
    if workload.experts is None or n_layers >= whole.n_layers:
        return workload
    return dataclasses.replace(workload, experts=dataclasses.replace(workload.experts, n_predict=0.0))


def _further(cells: Cells, own: Scalar) -> Scalar:
    """Tokens of multi-token prediction; ``own``: those of the catalogue's model if whole, recorded as completed."""
    stated = cells.count("n_predict", "mtp_num_layers", least=0.0)
    if stated is not None:
        return stated
    if _WITHOUT.search(note := cells.text("note")):
        return 0.0
    if _WITH.search(note):
        return max(float(own), 1.0)
    return cells.complete("n_predict", float(own)) if own else own
