"""Lines of a service of several engines: the router between pools, and the benchmark that measures it."""

from __future__ import annotations

from dse.errors import unknown_name
from dse.tools.options import number
from dse.types import Requests

#: Requests of a benchmark, and its least duration in seconds.
_MIN_REQUESTS, _MIN_SECONDS = 1000, 300.0


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
    if tool not in _ROUTERS:
        raise unknown_name("--for", tool, _ROUTERS, "tools")
    return _ROUTERS[tool](host_variables("prefill", prefill), host_variables("decode", decode))


def _vllm(prefill: list[str], decode: list[str]) -> str:
    """Return the line of the proxy of vLLM's own tests, which alternates between engines, by their hosts."""
    parts = ["python3 tests/v1/kv_connector/nixl_integration/toy_proxy_server.py --host 0.0.0.0 --port 8080"]
    for role, hosts in (("prefiller", prefill), ("decoder", decode)):
        parts += [f"--{role}-hosts {' '.join(hosts)}", f"--{role}-ports {' '.join(['8000'] * len(hosts))}"]
    return _join_lines(parts)


def _sglang(prefill: list[str], decode: list[str]) -> str:
    """Return the line of SGLang's router, by the hosts of both roles."""
    parts = ["python3 -m sglang_router.launch_router --pd-disaggregation"]
    parts += [
        f"--{role} http://{host}:8000" for role, hosts in (("prefill", prefill), ("decode", decode)) for host in hosts
    ]
    return _join_lines([*parts, "--host 0.0.0.0 --port 8080"])


def _tensorrt_llm(prefill: list[str], decode: list[str]) -> str:
    """Return the lines of TensorRT-LLM's router with its configuration, by the hosts of both roles."""
    lines = ["cat > disaggregated.yaml <<EOF", "hostname: 0.0.0.0", "port: 8080"]
    for role, hosts in (("context_servers", prefill), ("generation_servers", decode)):
        urls = ", ".join(f'"{host}:8000"' for host in hosts)
        lines.append(f"{role}: {{num_instances: {len(hosts)}, urls: [{urls}]}}")
    return "\n".join([*lines, "EOF", "trtllm-serve disaggregated -c disaggregated.yaml"])


_ROUTERS = {"vllm": _vllm, "sglang": _sglang, "tensorrt-llm": _tensorrt_llm}


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
    count, per_second = max(_MIN_REQUESTS, round(_MIN_SECONDS * rate)), f"{rate:.4g}"
    prompt, answer = number(round(float(requests.prompt_tokens))), number(round(float(requests.output_tokens)))
    spreads = float(requests.length_spread), float(requests.answer_spread or 0.0)
    ratio = min(3.0**0.5 * max(spreads), 0.99)
    vllm = [
        'vllm bench serve --model "$MODEL" --base-url http://$ROUTER:8080 --dataset-name random --ignore-eos',
        f"--random-input-len {prompt} --random-output-len {answer}"
        + (f" --random-range-ratio {ratio:.3g}" if ratio else ""),
        f"--request-rate {per_second} --num-prompts {count}",
        "--percentile-metrics ttft,tpot,itl,e2el --metric-percentiles 50,90,95,99",
    ]
    aiperf = [
        'aiperf profile --model "$MODEL" --url http://$ROUTER:8080 --endpoint-type chat --streaming',
        f"--synthetic-input-tokens-mean {prompt} --synthetic-input-tokens-stddev {spreads[0] * float(prompt):.0f}",
        f"--output-tokens-mean {answer} --output-tokens-stddev {spreads[1] * float(answer):.0f}",
        "--extra-inputs ignore_eos:true",
        f"--request-rate {per_second} --request-count {count}",
    ]
    return {"vllm bench serve": _join_lines(vllm), "aiperf": _join_lines(aiperf)}


def _join_lines(parts: list[str]) -> str:
    """Return parts as one command over several lines."""
    return " \\\n    ".join(parts)
