"""Rows of Calculon's output as designs, for comparison with that model (Isaev et al., SC 2023).

A row uses the catalogue's ``calculon-…`` systems (step-wise efficiencies, stated link volumes, no overlap of compute
and memory) and its ``calculon`` stack; its models have no embedding and no head. :func:`check_row`
lists the rows that are left out, with reasons.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from dse.measured import rules
from dse.measured.names import Lookup
from dse.measured.table import Row, Skip, kind_rows
from dse.types import Mapping, Precision, Recompute, SequenceParallel, Software, System, Workload

#: Columns that identify a table of Calculon.
COLUMNS = frozenset(kind_rows("calculon")["columns"])

#: Calculon's name → slug of the catalogue.
MODELS = {"megatron-1T": "megatron-1t", "gpt3-175B": "gpt-3-175b"}
RECOMPUTE = {"none": Recompute.none, "attn_only": Recompute.selective, "full": Recompute.full}
PRECISIONS = {"float16": Precision.fp16, "bfloat16": Precision.bf16, "float8": Precision.fp8}


def number(row: Row, column: str) -> float:
    """Return a cell as a number, or raise ValueError where it is none."""
    return float(row.get(column))


def check_row(row: Row) -> None:
    """Raise Skip for rows without figures, not expressible here, or affected by a known defect of Calculon."""
    if not row.get("total_time"):
        raise Skip("Calculon gives no figures", row.get("infeasible_reason"))
    rules.skip_if_excluded(row, "calculon")
    local_batch = number(row, "batch_size") / number(row, "data_par")
    micro_batches = local_batch / number(row, "microbatch_size")
    if number(row, "pipeline_interleaving") > 1 and micro_batches % number(row, "pipeline_par"):
        raise Skip("interleaving with micro-batches that pp does not divide, which Megatron refuses")
    overlaps = row.get("data_par_overlap") == "1"
    if overlaps and number(row, "dp_comm_exposed_time") > number(row, "dp_comm_link_time") * (1.0 + 1e-6):
        raise Skip("data_par_overlap: Calculon's exposed time is longer than the whole message")
    if row.get("optimizer_offload") == "1" and micro_batches > 1 and number(row, "bw_offload_exposed_time"):
        raise Skip("optimizer_offload: Calculon moves the optimiser state with every micro-batch")


def mapping(row: Row) -> Mapping:
    """Return Calculon's execution fields as a mapping; KeyError for an unknown recompute or datatype."""
    degrees: dict[str, Any] = {field: number(row, column) for field, column in kind_rows("calculon")["mapping"].items()}
    return Mapping(
        **degrees,
        cp=1.0,
        recompute=float(RECOMPUTE[row.get("activation_recompute")]),
        sequence_parallel=float(sequence_parallel(row)) if degrees["tp"] > 1.0 else 0.0,
        overlap_tp=float(row.get("tensor_par_overlap") != "none"),
        precision=float(PRECISIONS[row.get("datatype")]),
        placement=0.0,
    )


def sequence_parallel(row: Row) -> SequenceParallel:
    """Return the sequence parallelism of ``tensor_par_comm_type`` and ``seq_par_ag_redo``."""
    if row.get("tensor_par_comm_type") == "rs_ag":
        gathers_twice = row.get("seq_par_ag_redo") == "1"
        return SequenceParallel.gather_again if gathers_twice else SequenceParallel.keep_gathered
    at_stage_boundaries = row.get("tensor_par_comm_type") == "p2p_rs_ag"
    return SequenceParallel.at_stage_boundaries if at_stage_boundaries else SequenceParallel.none


def workload(row: Row, lookup: Lookup) -> Workload:
    """Return the catalogue's model of a row without embedding, positions and head, with the row's batch."""
    return dataclasses.replace(
        lookup.workload(MODELS.get(row.get("model"), row.get("model"))),
        vocab=0.0,
        learned_positions=0.0,
        tied_embeddings=0.0,
        dropout=1.0,
        norm_vectors=2.0,
        global_batch=number(row, "batch_size"),
    )


def system(row: Row, lookup: Lookup) -> System:
    """Return the ``calculon-…`` system of a row with its number of devices.

    Tensor parallelism fills a scale-up domain (network 0) or spans domains of one device (1).
    """
    base_system = lookup.system(f"calculon-{row.get('system').replace('_', '-')}")
    domain = number(row, "tensor_par") if row.get("tensor_par_net") == "0" else 1.0
    return dataclasses.replace(
        base_system,
        scale_up=dataclasses.replace(base_system.scale_up, domain=domain),
        n_devices=number(row, "num_procs"),
    )


def software(row: Row, lookup: Lookup) -> Software:
    """Return the ``calculon`` stack, in which a fused activation stores one tensor instead of two."""
    keeps_output = float(row.get("fused_activation") == "0")
    return dataclasses.replace(lookup.software("calculon"), activation_output_kept=keeps_output)


def design_parts(row: Row, lookup: Lookup) -> tuple[Workload, System, Software, Mapping]:
    """Return workload, system, software and mapping of a row, or raise Skip for one that is left out."""
    check_row(row)
    return workload(row, lookup), system(row, lookup), software(row, lookup), mapping(row)
