"""Errors a user can act on, in four parts: where, got, allowed, usual fix."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable

#: Our names → what other tools call them (Megatron-LM, DeepSpeed, Hugging Face, torchtitan, papers). Only letters and
#: digits are compared. Of several of our names those that are allowed in a place are offered.
THEIRS = {
    "n_devices": "gpus n_gpus num_gpus number_of_gpus devices num_devices world_size n_procs accelerators",
    "n_devices scale_up.domain": "nodes n_nodes num_nodes nnodes",
    "scale_up.domain": "gpus_per_node devices_per_node nproc_per_node nvlink_domain",
    "micro_batch": "mbs micro_batch_size per_device_train_batch_size train_micro_batch_size_per_gpu",
    "global_batch": "gbs global_batch_size train_batch_size",
    "global_batch concurrency": "batch_size batch bs",
    "tp": "tensor_parallel tensor_parallelism tensor_parallel_size tensor_parallel_degree tensor_model_parallel_size "
    "model_parallel model_parallel_size tp_size tp_degree",
    "pp": "pipeline_parallel pipeline_parallelism pipeline_parallel_size pipeline_parallel_degree "
    "pipeline_model_parallel_size pipeline_stages stages num_stages pp_size pp_degree",
    "dp": "data_parallel data_parallelism data_parallel_size data_parallel_degree data_parallel_shard_degree dp_size",
    "cp": "context_parallel context_parallelism context_parallel_size context_parallel_degree cp_size cp_degree",
    "virtual_stages": "vpp vp vpp_size interleave virtual_pipeline_model_parallel_size virtual_pipeline_parallel_size",
    "schedule": "pipeline_schedule pipeline_parallel_schedule",
    "graph": "cuda_graph cuda_graphs cuda_graph_impl enable_cuda_graph cudagraph",
    "dp_replicate": "hsdp data_parallel_replicate_degree num_distributed_optimizer_instances",
    "zero_stage": "zero zero_optimization fsdp distributed_optimizer use_distributed_optimizer",
    "sequence_parallel": "sp",
    "recompute": "activation_checkpointing activation_checkpoint gradient_checkpointing checkpointing recomputation "
    "recompute_granularity activation_recompute activation_recomputation remat",
    "overlap_dp": "overlap_grad_reduce overlap_param_gather",
    "overlap_tp": "tp_comm_overlap async_tp",
    "precision": "dtype data_type mixed_precision torch_dtype",
    "seq_len": "seq seq_length sequence_length context_length max_position_embeddings block_size",
    "prompt_tokens": "isl input_len input_length input_tokens input_sequence_length prompt_len prompt_length "
    "random_input_len",
    "output_tokens": "osl output_len output_length output_sequence_length answer_tokens generation_length max_tokens "
    "max_new_tokens random_output_len",
    "concurrency": "max_concurrency in_flight users num_concurrent requests",
    "request_rate requests_per_second": "qps rps request_throughput arrival_rate",
    "most_sequences": "max_num_seqs max_running_requests max_batch_size",
    "chunk": "max_num_batched_tokens chunked_prefill_size max_num_tokens",
    "memory_share": "gpu_memory_utilization mem_fraction_static kv_cache_free_gpu_memory_fraction",
    "cache_bytes": "kv_cache_dtype",
    "drafts": "num_speculative_tokens speculative_num_steps",
    "n_layers": "num_layers num_hidden_layers layers n_layer depth",
    "hidden": "hidden_size d_model n_embd embed_dim model_dim width",
    "n_heads": "num_attention_heads num_heads heads n_head",
    "n_kv_heads": "num_key_value_heads num_query_groups kv_heads num_kv_heads",
    "head_dim": "kv_channels head_size",
    "ffn_hidden": "ffn_hidden_size intermediate_size d_ff n_inner mlp_dim",
    "vocab": "vocab_size n_vocab padded_vocab_size",
    "window": "sliding_window window_size",
    "run_tokens": "train_tokens tokens",
    "memory memory.bandwidth memory.capacity": "hbm dram vram device_memory gpu_memory",
    "memory.capacity": "memory_size hbm_capacity hbm_size",
    "memory.bandwidth": "hbm_bandwidth mem_bw hbm_bw",
    "matrix_rate.bf16": "flops peak_flops tflops",
    "scale_up scale_up.bandwidth": "nvlink nvswitch xgmi infinity_fabric",
    "scale_up.bandwidth": "nvlink_bandwidth intra_node_bandwidth",
    "scale_out scale_out.bandwidth": "infiniband ib nic ethernet roce",
    "scale_out.bandwidth": "infiniband_bandwidth inter_node_bandwidth nic_bandwidth",
    "power.limit": "power_cap",
    "device_power": "power_per_device board_power gpu_power power_per_gpu",
    "average_power": "power",
    "accelerator system": "gpu device chip gpu_type hardware",
    "system": "cluster machine",
    "workload name": "model model_name network",
    "software": "framework stack",
    "mapping": "parallelism parallel strategy",
    "serving": "inference serve",
    "step_time": "iteration_time time_per_step",
    "step_time request_latency": "e2e_latency end_to_end_latency",
    "tokens_per_second output_tokens_per_second": "throughput tokens_per_sec tps tok_s output_throughput",
    "tokens_per_second_per_device output_tokens_per_second_per_device": "throughput_per_gpu tokens_per_sec_per_gpu "
    "tok_s_gpu",
    "output_tokens_per_second_per_user": "throughput_per_user interactivity tok_s_user",
    "time_to_first_token": "ttft first_token_latency",
    "time_per_output_token": "tpot time_per_token",
    "inter_token_latency": "itl",
    "first_token_limit": "ttft_slo ttft_limit",
    "token_limit": "tpot_slo tpot_limit itl_slo",
    "evolution": "differential_evolution cma_es cmaes cross_entropy genetic",
    "relaxed": "gumbel gumbel_softmax gradient langevin",
    "random": "sobol quasi_random latin_hypercube",
    "bf16": "bfloat16 bfloat",
    "fp16": "float16 half",
    "fp32": "float32 single float",
    "fp8": "float8 fp8_e4m3 fp8_hybrid",
}


@functools.lru_cache(maxsize=8192)
def plain(text: str) -> str:
    """Return the letters and digits of a name in lower case as text, by which names are compared.

    Args:
        text: the name as written.

    Returns:
        The name without spaces, dashes, dots and underscores.

    >>> plain("Tensor-Model_Parallel size")
    'tensormodelparallelsize'
    """
    return "".join(c for c in text.lower() if c.isalnum())


#: Name that another tool has for a thing, as :func:`plain` compares it → our names of that thing.
ELSEWHERE = {plain(word): tuple(ours.split()) for ours, theirs in THEIRS.items() for word in theirs.split()}


class InputError(ValueError):
    """Bad input in four parts, which the command line prints before it exits with status 2.

    The parts may hold texts of users: the middle of a long one is left out, and characters that do not print are
    escaped.

    Args:
        where: place of the input: a file, option or field.
        got: the input as written.
        allowed: values that the place takes.
        fix: the usual correction.

    >>> str(InputError("design: tp", "3", "divisors of n_heads = 32", "set tp=4"))
    'design: tp: got 3; allowed divisors of n_heads = 32; set tp=4'
    """

    def __init__(self, where: str, got: str, allowed: str, fix: str):
        self.where, self.got, self.allowed, self.fix = map(_printable, (where, got, allowed, fix))
        super().__init__(f"{self.where}: got {self.got}; allowed {self.allowed}; {self.fix}")

    def __reduce__(self) -> tuple[type[InputError], tuple[str, str, str, str]]:
        """Return the class and its four arguments, from which another process makes the error again."""
        return type(self), (self.where, self.got, self.allowed, self.fix)


class IncompleteError(InputError, RuntimeError):
    """Work of which a part could not be done and the rest is finished, with an exit status of its own.

    >>> issubclass(IncompleteError, InputError)
    True
    """


class Stopped(Exception):  # noqa: N818 - what happened, not an error
    """Work that was stopped; what it has finished is kept, and the same call resumes it.

    >>> issubclass(Stopped, InputError)
    False
    """


class Notice(UserWarning):
    """Warning of a valid input with an unexpected effect, which the command line prints on standard error.

    >>> issubclass(Notice, UserWarning)
    True
    """


#: Characters of one part of an error.
_LONGEST = 600


def _printable(text: str) -> str:
    """Return a text with unprintable characters escaped, and a count in place of the middle of a long text."""
    if len(text) > _LONGEST:
        left_out = len(text) - _LONGEST
        text = f"{text[: _LONGEST // 2]} … ({left_out:,} characters) … {text[-_LONGEST // 2 :]}"
    return visible(text)


#: Characters that do not print and that show as they are meant: ends of lines, and spaces of any width.
LAYOUT = "\n\t\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"


def visible(text: str, kept: str = "") -> str:
    r"""Return a text with characters that do not print escaped, so that a terminal obeys and hides none.

    Control codes, marks of direction, lone surrogates and other characters that do not print are escaped as Python
    does.

    Args:
        text: the text, which may be of somebody else.
        kept: characters that stay as they are, for example :data:`LAYOUT`.

    Returns:
        The text with escapes.

    >>> visible("H100\x1b[31m\n", kept="\n")
    'H100\\x1b[31m\n'
    """
    if all(map(str.isprintable, text.split("\n") if "\n" in kept else [text])):
        return text
    return "".join(c if c.isprintable() or c in kept else ascii(c)[1:-1] for c in text)


def nearest(name: str, known: Iterable[str], count: int = 3, cutoff: float = 0.5) -> list[str]:
    """Return the existing names most like ``name``, the most similar first, empty where none is similar.

    Only letters and digits are compared (:func:`plain`).

    Args:
        name: the name as written.
        known: names that exist.
        count: maximum number of names to return.
        cutoff: least similarity, from 0 to 1, by :func:`difflib.get_close_matches`.

    Returns:
        At most ``count`` of ``known``.

    >>> nearest("n_layer", ["n_layers", "n_heads", "hidden"])
    ['n_layers']
    """
    by_plain: dict[str, list[str]] = {}
    for candidate in known:
        by_plain.setdefault(plain(candidate), []).append(candidate)
    matches = difflib.get_close_matches(plain(name), by_plain, n=count, cutoff=cutoff)
    return [candidate for match in matches for candidate in by_plain[match]][:count]


def unknown_name(where: str, name: str, known: Iterable[str], what: str, command: str = "") -> InputError:
    """Return, without raising it, the error for a name that does not exist, with the names that may be meant.

    These are our names for a name of another tool, else the most similar ones (:func:`nearest`).

    Args:
        where: place of the name.
        name: the name as written.
        known: names that exist in that place.
        what: what they are names of, in the plural.
        command: command that lists them, where they are too many to be printed.

    Returns:
        The error, to be raised.

    >>> unknown_name("design", "tensor_parallel", ["tp", "pp"], "leaves").fix
    "did you mean 'tp'?"
    >>> unknown_name("design", "xyz", ["tp", "pp"], "leaves", "dse list leaves").allowed
    'leaves: see dse list leaves'
    """
    known = sorted(known)
    close = [ours for ours in ELSEWHERE.get(plain(name), ()) if ours in known] or nearest(name, known)
    allowed = ", ".join(known[:12]) + (f" … ({len(known)} in all)" if len(known) > 12 else "")
    allowed = f"{what}: see {command}" if command else allowed
    fix = (
        f"did you mean {' or '.join(repr(c) for c in close)}?"
        if close
        else f"pick one of the {what} {'that it lists' if command else 'listed'}"
    )
    return InputError(where, repr(name), allowed, fix)
