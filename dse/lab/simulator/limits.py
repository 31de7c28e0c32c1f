"""What an engine's scheduler may do: tokens, sequences and cache blocks, from the leaves of a design."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import numpy as np

from dse.doors import cache_capacity
from dse.equations import ScalarFunction
from dse.errors import InputError
from dse.lab.simulator.load import RequestList
from dse.model.serving.intake import limit_tokens_per_sequence, output_tokens_per_step
from dse.types import Design, HostTiers
from dse.types.choices import PromptOrder

#: Tokens of a cache block (vLLM's ``block_size``).
BLOCK = 16


class SchedulerLimits(NamedTuple):
    """Limits of the scheduler of one data-parallel rank."""

    chunk: int  # tokens of a step
    sequences: int  # admitted at the same time
    blocks: int  # of the cache
    per_token: float  # 1.0 where a token takes room; 0.0 where a sequence takes one block whatever its tokens
    fixed: float  # tokens that a sequence takes in addition to its own: a state
    reserved: float  # share of an answer whose blocks admission takes
    mixed: bool  # whether a step may both decode and compute prompts
    admission_steps: int
    speed: float  # tokens of a sequence per step
    rows: float  # tokens of the budget per decoding sequence
    request_time: float  # s, outside the engine
    prompt_timeout: int = 0  # decode steps for which prompts wait for those of all ranks; 0: not at all
    prompt_batching: int = 0  # further ones, where all ranks have prompts
    unsplit_prompts: bool = False  # whether a prompt waits for a step that holds all of it
    tiers: tuple[tuple[int, float], ...] = ()  # blocks of prefix caches beyond device memory, seconds to load a block

    def blocks_of(self, tokens: float) -> int:
        """Return the count of blocks of a sequence of ``tokens``."""
        return math.ceil((self.fixed + self.per_token * tokens) / BLOCK)


def scheduler_limits(design: Design, request_list: RequestList) -> SchedulerLimits:
    """Return the limits of one rank of a design.

    Bytes of a sequence are linear in its tokens here, from the mean prompt to the mean prompt with its answer: a state
    counts as further tokens, and where tokens beyond the prompt take no room (a window) a block is a sequence.

    Args:
        design: with requests, serving options and engine.
        request_list: what the rank serves.

    Raises:
        InputError: where the longest request does not fit into the cache, or one sequence not into a step.
    """
    requests, serving, engine = design.workload.requests, design.mapping.serving, design.software.engine
    assert requests is not None and serving is not None and engine is not None, "complete the design before"
    short_tokens = float(np.mean(request_list.prompt))
    long_tokens = short_tokens + max(float(np.mean(request_list.answer)), 1.0)
    with jax.enable_x64(True):
        (room_bytes, short_bytes), (_, long_bytes) = (
            (map(float, _capacity(design, tokens)[0])) for tokens in (short_tokens, long_tokens)
        )
    min_chunk, speed = map(float, _step_tokens(serving)[0])
    if (chunk := max(int(serving.chunk), 1)) < min_chunk:
        raise InputError(
            "mapping.serving.chunk",
            f"{chunk}",
            f"{min_chunk:g} or more: a token of a sequence and its drafts",
            "a larger chunk, or fewer drafts",
        )
    bytes_per_token = (long_bytes - short_bytes) / (long_tokens - short_tokens)
    grows_with_tokens = bytes_per_token > 1e-6 * short_bytes / short_tokens
    fixed = max(short_bytes / bytes_per_token - short_tokens, 0.0) if grows_with_tokens else float(BLOCK)
    block_bytes = bytes_per_token * BLOCK if grows_with_tokens else short_bytes
    is_held = bool(serving.prompt_balance == PromptOrder.together) and bool(serving.prompt_timeout)
    limits = SchedulerLimits(
        chunk=chunk,
        sequences=max(int(engine.most_sequences), 1),
        blocks=int(room_bytes / block_bytes),
        per_token=float(grows_with_tokens),
        fixed=fixed,
        reserved=float(serving.reserved_answer) if serving.paged else 1.0,
        mixed=bool(serving.mixed),
        admission_steps=max(int(serving.admission_steps), 1),
        speed=speed,
        rows=1.0 + float(serving.drafts),
        request_time=float(engine.request_time),
        prompt_timeout=int(serving.prompt_timeout or 0) if is_held else 0,
        prompt_batching=int(serving.prompt_batching or 0),
        # TensorRT-LLM, whose ranks take prompts together, has no chunks unless asked.
        unsplit_prompts=bool(serving.whole_prompts) or is_held,
    )
    tiers, storage = design.mapping.cache_tiers, design.system.host_tiers or HostTiers()
    if tiers is not None:
        links = (tiers.host_cache, design.system.host.bandwidth), (tiers.disk_cache, storage.storage_read)
        limits = limits._replace(
            tiers=tuple((int(size / block_bytes), block_bytes / float(rate)) for size, rate in links if size)
        )
    longest = int(np.max(request_list.prompt + request_list.answer))
    if limits.blocks_of(longest + limits.speed) > limits.blocks:
        max_tokens = max(int((limits.blocks * BLOCK - limits.fixed) / limits.per_token), 0) if grows_with_tokens else 0
        raise InputError(
            "cache of a rank",
            f"a request of {longest:,} tokens",
            f"at most {max_tokens:,} tokens in its memory",
            "more devices (tp), narrower weights or cache (precision, cache_bytes), or shorter requests",
        )
    return limits


#: A rank's cache and that of a sequence of some tokens, B; tokens of a step that a sequence takes at least, and makes.
_capacity = ScalarFunction(lambda design, tokens: (cache_capacity(design, tokens), None), "cache capacity")
_step_tokens = ScalarFunction(
    lambda serving: ((limit_tokens_per_sequence(serving), output_tokens_per_step(serving)), None), "tokens of a step"
)
