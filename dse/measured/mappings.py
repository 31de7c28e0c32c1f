"""Candidate mappings of a row: stated options, defaults of its stack, and candidates for the rest."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Protocol

from dse.designs import catalog
from dse.designs.catalog import EXPERTS_LEFT_OPEN
from dse.errors import nearest
from dse.io import counted
from dse.measured.cells import Cells
from dse.measured.table import Skip, kind_rows
from dse.model.divisibility import fault, keeps, splits_hidden
from dse.model.schedules import CHUNKS
from dse.types import (
    AllToAll,
    ExpertMapping,
    Graph,
    Infeasible,
    Mapping,
    Precision,
    Recompute,
    Schedule,
    SequenceParallel,
    Tiers,
    Workload,
    choice_name,
    weight_only_format,
)

#: Name in tables → recipe of matrix products.
PRECISIONS = {name: recipe for recipe, names in kind_rows("recipes").items() for name in names}

#: Limits of the search: micro-batches are powers of two, tp stays within a node.
LARGEST_MICRO_BATCH, LARGEST_TP, LARGEST_PP, LARGEST_STAGES = 64, 8, 64, 128

#: Recomputed shares of the layers where a stack calls that selective: every fourth, third, second one …
RECOMPUTE_SHARES = [1 / 4, 1 / 3, 1 / 2, 2 / 3, 3 / 4, 4 / 5, 1.0]

#: Candidate shares of activations on the host.
OFFLOAD_SHARES = [1 / 4, 1 / 2, 3 / 4, 1.0]

#: Recompute in tables without an equivalent policy: empty, and policies of MaxText that store matrix products. The
#: policy is then chosen, and recorded as completed.
_OPEN_POLICIES = ("", "nan", "minimal", "minimal_flash", "minimal_with_context")

#: Update by the host as DeepSpeed has it by default: gradients leave in the backward, copied at once in fp32
#: (``runtime/zero/stage3.py``), to pageable memory (``pin_memory`` of ``runtime/zero/offload_config.py``).
DEEPSPEED_UPDATE = Tiers(
    host_update=1.0, offload_gradients=1.0, gradient_depth=0.0, gradient_copy_bytes=4.0, pinned=0.0
)


class StackDefault(Protocol):
    """Default of a stack for an option that a mapping leaves open."""

    def __call__(self, option: str, zero_stage: float | None = None) -> float:
        """Return the value at a ZeRO stage, by default at the stack's own one."""


def mappings(
    cells: Cells, workload: Workload, n_devices: float, default: StackDefault, slices: float = 1.0
) -> tuple[Mapping, ...]:
    """Return the candidate mappings that agree with a row, or raise Skip when there is none.

    Each of several ``slices`` of devices has a copy of the ZeRO state (MaxText's dcn_data_parallelism). ``dp`` follows
    from the devices, not from the row. Sequence parallelism applies at tp > 1 only.
    """
    cp = cells.count("cp") or 1.0
    fixed_options: dict[str, Any] = dict(cp=cp, placement=0.0, precision=precision_code(cells))
    fixed_options["zero_stage"] = zero_stage(cells, default)
    row_sequence_parallel = sequence_parallel(cells)
    overlap_options: dict[str, Any] = {
        name: _value_or_default(cells.flag(name), default(name, fixed_options["zero_stage"]))
        for name in ("overlap_dp", "overlap_tp")
    }
    if cells.convention("overlap_tp"):
        overlap_options["overlap_tp"] = 1.0
    if workload.experts is not None:
        fixed_options["experts"] = expert_mapping(cells, default)
    fixed_options |= {name: cells.flag(name) or 0.0 for name in ("offload_weights", "offload_optimizer")}
    fixed_options["schedule"] = schedule_code(cells)
    fixed_options["graph"] = graph_code(cells, default)
    if cells.flag("host_update"):
        fixed_options["tiers"] = DEEPSPEED_UPDATE
    policies = offload_policies(cells, recompute_policies(cells, default), default)
    candidates = []
    for tp, pp in tp_pp_candidates(cells, workload, n_devices / cp):
        dp = n_devices / (tp * pp * cp)
        if dp % slices:
            continue
        # Where tp divides neither the sequence nor a splittable hidden size, sequence parallelism must be stated.
        can_split_sequence = float(workload.seq_len) % (tp * cp) == 0.0
        sizes = dict(hidden=float(workload.hidden), seq_len=float(workload.seq_len), tp=tp, cp=cp)
        can_split_sequence |= splits_hidden(sizes | {"splits_hidden": default("splits_hidden")})
        sequence_split = (
            _value_or_default(row_sequence_parallel, default("sequence_parallel") * can_split_sequence)
            if tp > 1
            else 0.0
        )
        candidates += [
            Mapping(
                tp=tp,
                pp=pp,
                dp=dp,
                micro_batch=batch,
                virtual_stages=stages,
                recompute=policy,
                dp_replicate=slices,
                recompute_share=share,
                offload_activations=offloaded_share,
                sequence_parallel=sequence_split,
                **overlap_options,
                **fixed_options,
            )
            for batch, stages in schedule_candidates(cells, workload, pp, dp)
            for policy, share, offloaded_share in policies
        ]
    if not candidates:
        batch = counted(workload.global_batch, "sequence")
        raise Skip("no mapping fits", f"{counted(n_devices, 'device')}, {batch} a step")
    if row_sequence_parallel is None and any(m.tp > 1 for m in candidates):
        cells.complete("sequence_parallel", default("sequence_parallel"))
    return tuple(candidates)


def schedule_code(cells: Cells) -> float | None:
    """Return the code of a row's pipeline schedule, None for 1F1B; raise Skip for an unknown one."""
    text = cells.text("schedule").lower()
    code_by_name = {choice_name(schedule): float(schedule) for schedule in Schedule}
    if text and text.replace("_", "-") not in code_by_name:
        raise Skip("schedule unknown", f"{text}; {', '.join(code_by_name)}")
    return code_by_name.get(text.replace("_", "-")) or None


def graph_code(cells: Cells, default: StackDefault) -> float | None:
    """Return the code of a row's CUDA graphs, that of its stack where open, None for none; Skip for an unknown one."""
    text = cells.text("cuda_graph").lower()
    if not text:
        return default("graph") or None
    if text not in Graph.__members__:
        raise Skip("CUDA graphs unknown", f"{text}; {', '.join(Graph.__members__)}")
    return float(Graph[text]) or None


def expert_mapping(cells: Cells, default: StackDefault) -> ExpertMapping:
    """Return the mapping of experts, completed by the defaults of the stack.

    Dispatchers that send a token once per device do not pad experts to a capacity (Megatron-Core's flex dispatcher):
    rows with dropped tokens exchange pairwise, if they state no dispatcher.
    """
    options = {name: default(name) for name in EXPERTS_LEFT_OPEN}
    if cells.convention("drops_tokens"):
        options["all_to_all"] = float(AllToAll.pairwise)
    if dispatcher := cells.text("dispatcher").lower().replace("-", "_"):
        if dispatcher not in AllToAll.__members__:
            raise Skip("dispatcher unknown", dispatcher)
        options["all_to_all"] = float(AllToAll[dispatcher])
    options["overlap_ep"] = _value_or_default(cells.flag("overlap_ep"), options["overlap_ep"])
    return ExpertMapping(ep=cells.count("ep") or 1.0, etp=cells.count("etp") or 1.0, **options)


def _value_or_default(value: float | None, default: float) -> float:
    """Return ``value``, or ``default`` where it is None."""
    return default if value is None else value


def precision_code(cells: Cells) -> float:
    """Return the code of the matrices' precision, by default bf16; raise Skip for an unknown one."""
    text = cells.text("precision").lower().rstrip("?")
    if not text:
        cells.complete("precision", "bf16")
        return float(Precision.bf16)
    if text not in PRECISIONS:
        weight_only_hint, similar_names = weight_only_format(text), nearest(text, PRECISIONS)
        hint = weight_only_hint or (f"did you mean {' or '.join(similar_names)}?" if similar_names else "")
        raise Skip("precision unknown", f"{text}; {hint}" if hint else text)
    return float(Precision[PRECISIONS[text]])


def zero_stage(cells: Cells, default: StackDefault) -> float:
    """Return the ZeRO stage 0.0 to 3.0, 3.0 for FSDP, or the stack's default if open; raise Skip for another."""
    if cells.text("zero_stage").lower() in ("fsdp", "hsdp"):
        return 3.0
    stage = cells.number("zero_stage", least=0.0)
    if stage not in (None, 0.0, 1.0, 2.0, 3.0):
        raise Skip("ZeRO stage unknown", f"{stage:g}; 0, 1, 2, 3 or fsdp")
    return stage if stage is not None else cells.complete("zero_stage", default("zero_stage"))


def sequence_parallel(cells: Cells) -> float | None:
    """Return the stated kind of sequence parallelism, None where open.

    It is yes or no, or a number of :class:`SequenceParallel`.
    """
    columns = ("seq_parallel", "sequence_parallel")
    text = cells.text(*columns)
    variants = {str(int(v)) for v in SequenceParallel}
    return float(text) if text in variants else cells.flag(*columns)


def recompute_policies(cells: Cells, default: StackDefault) -> list[tuple[float, float]]:
    """Return candidates of (code of a recompute policy, share of the layers), lightest first.

    Selective recompute of a stack may be full recompute of some layers, as few as memory allows.
    """
    selective = Recompute(int(default("selective"))) or Recompute.selective
    shares = RECOMPUTE_SHARES if selective == Recompute.full else [1.0]
    policies_by_name = {"none": [(0.0, 1.0)], "selective": [(float(selective), share) for share in shares]}
    policy_text, row_share = (
        cells.text("recompute").lower().replace("-", "_"),
        cells.number("recompute_share", least=0.0),
    )
    if policy_text in Recompute.__members__:
        policy = float(Recompute[policy_text])
        policies = policies_by_name.get(policy_text, [(policy, 1.0)])
        if row_share is not None:
            policies = [(policies[0][0], row_share)]
        if len(policies) > 1:
            cells.search("recompute_share")
        return policies
    if policy_text not in _OPEN_POLICIES:
        choices_hint = f"; {catalog.choice_fix(Recompute, policy_text)}" if policy_text in catalog.TRUTHS else ""
        raise Skip("recompute unknown", f"{policy_text}; {', '.join(Recompute.__members__)}{choices_hint}")
    cells.search("recompute")
    return [*policies_by_name["none"], *policies_by_name["selective"], (float(Recompute.full), 1.0)]


def offload_policies(
    cells: Cells, policies: list[tuple[float, float]], default: StackDefault
) -> list[tuple[float, float, float]]:
    """Return candidates of (recompute code, share of the layers, share of the activations on the host).

    Where both are open, a stack with activation offload moves as little as memory allows before it recomputes layers,
    and then layer inputs.
    """
    row_flag = cells.flag("offload_activations")
    candidates = [(policy, share, row_flag or 0.0) for policy, share in policies]
    if row_flag is None and default("spills") and "recompute" in cells.completed:
        cells.search("offload_activations")
        candidates[1:1] = [(*policies[0], offloaded_share) for offloaded_share in OFFLOAD_SHARES]
    return candidates


def tp_pp_candidates(cells: Cells, workload: Workload, n_devices: float) -> list[tuple[float, float]]:
    """Return the candidates of (tp, pp) whose product divides the devices; Skip where the stated one does not."""
    tp, pp = cells.count("tp"), cells.count("pp")
    if tp is None:
        cells.search("tp")
    if pp is None:
        cells.search("pp")
    sizes = vars(workload)
    tp_values = [tp] if tp else fitting_degrees("tp", sizes, LARGEST_TP)
    pp_values = [pp] if pp else fitting_degrees("pp", sizes, LARGEST_PP)
    candidates = [(t, p) for t, p in itertools.product(tp_values, pp_values) if n_devices % (t * p) == 0]
    if not candidates and tp and pp:
        raise Skip("tp x pp x cp does not divide the devices", f"{tp:g} x {pp:g} of {counted(n_devices, 'device')}")
    return candidates


def schedule_candidates(cells: Cells, workload: Workload, pp: float, dp: float) -> Iterator[tuple[float, float]]:
    """Yield the candidates of (micro-batch, virtual stages) at one tp, pp and dp."""
    batch, stages = cells.count("micro_batch"), cells.count("vp", "virtual_stages")
    if batch is None:
        cells.search("micro_batch")
    if stages is None and (schedule := schedule_code(cells)):
        stages = CHUNKS[Schedule(int(schedule))]
    if stages is None and pp > 1:
        cells.search("virtual_stages")
    powers = [2.0**k for k in range(LARGEST_MICRO_BATCH.bit_length())]
    for b in [batch] if batch else powers:
        sizes = {**vars(workload), "pp": pp, "dp": dp, "micro_batch": b}
        sizes["n_micro_batches"] = workload.global_batch / (dp * b)
        if not batch and not keeps(Infeasible.batch_not_divisible, sizes):
            continue
        for v in [stages] if stages else _chunk_candidates(sizes):
            yield b, (v if pp > 1 else 1.0)


def _chunk_candidates(sizes: dict[str, float]) -> list[float]:
    """Return the chunks per stage that layers and schedule allow, [1.0] where stages differ by a layer."""
    rules = Infeasible.layers_not_divisible, Infeasible.interleave_not_divisible
    max_chunks = min(int(sizes["n_layers"] / sizes["pp"]) + 1, LARGEST_STAGES)
    candidates = (sizes | {"virtual_stages": float(v)} for v in range(1, max_chunks + 1))
    return [
        candidate["virtual_stages"] for candidate in candidates if all(keeps(rule, candidate) for rule in rules)
    ] or [1.0]


def fitting_degrees(degree: str, sizes: dict[str, float], largest: int) -> list[float]:
    """Return the values of a degree up to ``largest`` that may fit a workload of these sizes, ascending."""
    return [float(d) for d in range(1, largest + 1) if not fault(degree, d, sizes)]
