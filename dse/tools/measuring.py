"""Lines around a design: routers between pools, benchmarks of a service, and what measures a part of a machine."""

from __future__ import annotations

from typing import Any

from dse.errors import unknown_name
from dse.tools.options import number
from dse.tools.rows import table
from dse.types import Requests

#: Requests of a benchmark, and its least duration in seconds.
_MIN_REQUESTS, _MIN_SECONDS = 1000, 300.0

#: Break of a line between two parts of it.
_BREAK = " \\\n    "


def host_variables(role: str, count: int) -> list[str]:
    """Return the shell variables with the hosts of a role's engines: ``$PREFILL_1``, and so on."""
    return [f"${role.upper()}_{index}" for index in range(1, count + 1)]


def router(tool: str, prefill: int, decode: int) -> str:
    r"""Return the line that starts the router between engines of two roles, each on port 8000 of its host.

    Args:
        tool: the engine, by its name in :data:`dse.tools.TOOLS`.
        prefill: engines that compute prompts.
        decode: engines that decode.

    Returns:
        The line, or several.

    Raises:
        InputError: for a tool without a router.

    >>> print(router("sglang", 1, 1))
    python3 -m sglang_router.launch_router --pd-disaggregation \
        --prefill http://$PREFILL_1:8000 \
        --decode http://$DECODE_1:8000 \
        --host 0.0.0.0 --port 8080
    """
    routers = table("lines")["routers"]
    if tool not in routers:
        raise unknown_name("--for", tool, routers, "tools")
    values: dict[str, Any] = {"prefill": prefill, "decode": decode}
    for role, count in (("prefill", prefill), ("decode", decode)):
        hosts = host_variables(role, count)
        values[f"{role}_hosts"], values[f"{role}_ports"] = " ".join(hosts), " ".join(["8000"] * count)
        values[f"{role}_options"] = _BREAK.join(f"--{role} http://{host}:8000" for host in hosts)
        values[f"{role}_urls"] = ", ".join(f'"{host}:8000"' for host in hosts)
    return _BREAK.join(part.format(**values) for part in routers[tool]["parts"])


def benchmark_lines(requests: Requests, rate: float) -> dict[str, str]:
    """Return benchmark → line that measures a service at a rate, with the lengths of its requests.

    Lengths vary uniformly in ``vllm bench serve``, with the same standard deviation; normally in aiperf.

    Args:
        requests: lengths of prompts and answers, and their spreads.
        rate: requests/s.

    Returns:
        Benchmark → its line.

    >>> sorted(benchmark_lines(Requests(), 2.0))
    ['aiperf', 'vllm bench serve']
    """
    prompt, answer = number(round(float(requests.prompt_tokens))), number(round(float(requests.output_tokens)))
    spreads = float(requests.length_spread), float(requests.answer_spread or 0.0)
    ratio = min(3.0**0.5 * max(spreads), 0.99)
    values = {
        "prompt": prompt,
        "answer": answer,
        "ratio": f" --random-range-ratio {ratio:.3g}" if ratio else "",
        "prompt_deviation": spreads[0] * float(prompt),
        "answer_deviation": spreads[1] * float(answer),
        "rate": f"{rate:.4g}",
        "count": max(_MIN_REQUESTS, round(_MIN_SECONDS * rate)),
    }
    benchmarks = table("lines")["service_benchmarks"].items()
    return {name: _BREAK.join(part.format(**values) for part in parts) for name, parts in benchmarks}


def _line(name: str, **values: object) -> str:
    """Return a line that measures something, with its values."""
    return str(table("lines")["measuring"][name].format(**values))


def gemm(rows: float, columns: float, depth: float, dtype: str) -> str:
    """Return a shell line that times one matrix product in PyTorch.

    Args:
        rows: of the output.
        columns: of the output.
        depth: length of the sum of each element.
        dtype: ``bfloat16``, ``float16`` or ``fp8``.
    """
    m, n, k = (number(round(size)) for size in (rows, columns, depth))
    operand_dtype, more, call = table("lines")["measuring"]["products"][dtype]
    return _line("python", setup=_line("product_operands", dtype=operand_dtype, m=m, n=n, k=k) + more, call=call)


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
    operands = _line("attention_operands", b=b, s=s, h=h, g=g, d=d)
    return _line("python", setup=operands, call=_line("attention"))


def collective(name: str, size: float, members: float) -> str:
    """Return the shell line of nccl-tests that times a collective in one node.

    Args:
        name: ``all_reduce``, ``all_gather``, ``reduce_scatter`` or ``alltoall``.
        size: bytes.
        members: devices.

    >>> collective("all_reduce", 2**24, 8)
    'all_reduce_perf -b 16777216 -e 16777216 -g 8 -d bfloat16 -w 20 -n 100'
    """
    program = table("lines")["measuring"]["collectives"][name]
    return _line("collective", program=program, size=number(round(size)), members=number(round(members)))


def client(requests: Requests) -> str:
    """Return the shell line of the client that keeps the requests of a design in flight.

    It is vLLM's, which other engines answer too.
    """
    concurrency = round(float(requests.concurrency))
    prompt, answer = (number(round(float(tokens))) for tokens in (requests.prompt_tokens, requests.output_tokens))
    return _line("client", prompt=prompt, answer=answer, concurrency=concurrency, count=max(5 * concurrency, 50))


#: Option of a training tool → ten steps alone.
TEN_STEPS = {"megatron-lm": " \\\n    --train-iters 10 --mock-data --tokenizer-type NullTokenizer --log-throughput"}
