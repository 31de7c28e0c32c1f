"""The codes of choices: files of years ago rest on them, so they are never renumbered or renamed, only added to."""

from __future__ import annotations

import pytest

from dse.types import (
    AllToAll,
    Attention,
    Checkpoint,
    Collective,
    ContextExchange,
    Infeasible,
    Packaging,
    Placement,
    Precision,
    Recompute,
    Schedule,
    SequenceParallel,
)

CODES = {
    Precision: "fp32 tf32 bf16 fp16 fp8 fp8_block fp4 int8 int4 fp8_row mxfp8 nvfp4 mxfp4",
    Recompute: "none selective full selective_op norms expert_inner expert_block",
    SequenceParallel: "none gather_again keep_gathered at_stage_boundaries",
    Schedule: "_1f1b gpipe zb_h1 zb_v dualpipe dualpipev",
    Attention: "unfused flash",
    Collective: "auto ring tree hierarchical in_switch doubling",
    ContextExchange: "p2p all_gather a2a a2a_p2p",
    Placement: "tp_cp_dp_pp tp_cp_pp_dp",
    AllToAll: "pairwise by_rank by_node gather",
    Checkpoint: "synchronous asynchronous in_memory",
    Packaging: "organic fan_out silicon bridge hybrid",
}
REASONS = (
    "memory heads_not_divisible width_not_divisible layers_not_divisible batch_not_divisible sequence_not_divisible "
    "device_count_mismatch interleave_not_divisible network_too_small precision_unsupported host_memory "
    "offload_too_few_layers power shards_not_divisible stack_lacks "
    "experts_not_divisible experts_unsupported storage latency layers_unsupported chip_shares step_tokens"
)


@pytest.mark.parametrize("enum", CODES, ids=lambda enum: enum.__name__)
def test_codes_are_only_added_to(enum):
    known = CODES[enum].split()
    assert [enum(code).name for code in range(len(known))] == known


def test_bits_of_reasons_are_only_added_to():
    assert [Infeasible(1 << bit).name for bit in range(len(REASONS.split()))] == REASONS.split()
