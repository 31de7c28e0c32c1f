"""Lines that measure a kernel, a collective, a training step or an engine on a machine at hand."""

from __future__ import annotations

from dse.tools.options import number
from dse.types import Requests

#: Number format of products → operands in PyTorch.
_FORMATS = {"bfloat16": "bfloat16", "float16": "float16", "fp8": "float8_e4m3fn"}

_TIMED = "print(b.Timer('{call}', globals=globals()).blocked_autorange(min_run_time=2).median * 1e3, 'ms')"


def gemm(rows: float, columns: float, depth: float, dtype: str) -> str:
    """Return a shell line that times one matrix product in PyTorch.

    Args:
        rows: of the output.
        columns: of the output.
        depth: length of the sum of each element.
        dtype: a format of ``_FORMATS``.
    """
    m, n, k = (number(round(size)) for size in (rows, columns, depth))
    setup = f"x, w = (torch.randn(*s, device='cuda').to(torch.{_FORMATS[dtype]}) for s in (({m}, {k}), ({n}, {k})))"
    scaled = dtype == "fp8"
    call = "torch._scaled_mm(x, w.t(), one, one, out_dtype=torch.bfloat16)" if scaled else "x @ w.t()"
    ones = "; one = torch.ones((), device='cuda')" if scaled else ""
    return _python(f"{setup}{ones}", call)


def attention(batch: float, tokens: float, heads: float, kv_heads: float, head_dim: float) -> str:
    """Return a shell line that times causal attention of whole sequences in PyTorch.

    Args:
        batch: sequences.
        tokens: of a sequence.
        heads: query heads.
        kv_heads: key/value heads.
        head_dim: columns of a head.
    """
    b, s, h, g, d = (number(round(size)) for size in (batch, tokens, heads, kv_heads, head_dim))
    setup = (
        "q, k, v = (torch.randn(*s, device='cuda', dtype=torch.bfloat16) "
        f"for s in (({b}, {h}, {s}, {d}), *[({b}, {g}, {s}, {d})] * 2))"
    )
    return _python(setup, "torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)")


def _python(setup: str, call: str) -> str:
    """Return the shell line that times a Python ``call`` after ``setup``."""
    return f'python3 -c "import torch, torch.utils.benchmark as b; {setup}; {_TIMED.format(call=call)}"'


#: Collective → its program of nccl-tests.
_TESTS = {
    "all_reduce": "all_reduce_perf",
    "all_gather": "all_gather_perf",
    "reduce_scatter": "reduce_scatter_perf",
    "alltoall": "alltoall_perf",
}


def collective(name: str, size: float, members: float) -> str:
    """Return the shell line of nccl-tests that times a collective in one node.

    Args:
        name: ``all_reduce``, ``all_gather``, ``reduce_scatter`` or ``alltoall``.
        size: bytes.
        members: devices.

    >>> collective("all_reduce", 2**24, 8)
    'all_reduce_perf -b 16777216 -e 16777216 -g 8 -d bfloat16 -w 20 -n 100'
    """
    count = number(round(size))
    return f"{_TESTS[name]} -b {count} -e {count} -g {number(round(members))} -d bfloat16 -w 20 -n 100"


def client(requests: Requests) -> str:
    """Return the shell line of the client that keeps the requests of a design in flight.

    It is vLLM's, which other engines answer too.
    """
    concurrency = round(float(requests.concurrency))
    prompt, answer = (number(round(float(tokens))) for tokens in (requests.prompt_tokens, requests.output_tokens))
    return (
        'vllm bench serve --model "$MODEL" --base-url http://localhost:8000 --dataset-name random --ignore-eos '
        f"--random-input-len {prompt} --random-output-len {answer} --max-concurrency {concurrency} "
        f"--num-prompts {max(5 * concurrency, 50)} --percentile-metrics ttft,tpot,e2el"
    )


#: Option of a training tool → ten steps alone.
TEN_STEPS = {"megatron-lm": " \\\n    --train-iters 10 --mock-data --tokenizer-type NullTokenizer --log-throughput"}
