"""Mutants of requests of programs: values of other kinds, odd texts, fields that are missing, twice or unknown."""

import copy
import random

#: A request of each operation.
DESIGN = {"workload": "llama-2-7b", "system": "h100", "n_devices": 8, "set": ["tp=8", "global_batch=16"]}
SWEEP = {
    "workload": {"name": "llama-2-7b", "global_batch": 16}, "system": {"name": "h100", "n_devices": 8},
    "axes": {"tp": "divisors", "micro_batch": "divisors"},
}  # fmt: skip
POOLS = {
    "workload": {"name": "llama-3-8b"}, "system": {"name": "h100-sxm-80gb", "n_devices": 1},
    "serving": {"prompt_tokens": 2048, "output_tokens": 256}, "prefill": {"axes": {"concurrency": [1, 4]}},
    "decode": {"axes": {"concurrency": [4, 16]}}, "pools": {"n_devices": 8},
}  # fmt: skip
ROW = {"model": "llama-2-7b", "gpu": "h100", "n_gpus": 8, "global_batch": 16, "seq_len": 4096}
REQUESTS = {
    "evaluate": DESIGN, "serve": {**DESIGN, "set": ["tp=8", "concurrency=8"]}, "run": {"sweep": SWEEP, "keep": "top:3"},
    "search": {"specification": {**SWEEP, "search": {"method": "random", "evaluations": 64, "seeds": 1}}, "gap": 0.1},
    "decide": {"designs": ["h100,tp=8,n_devices=8", "a100,tp=8,n_devices=8"], "workload": "llama-2-7b"},
    "measure": {"designs": ["h100,tp=4", "h100,tp=2"], "on": "h100", "workload": "llama-2-7b", "set": ["pp=2"]},
    "plan": {"workload": "llama-2-7b", "on": "h100", "serving": True, "rate": 4, "tpot": "30ms", "max_devices": 2},
    "pools": {"specification": POOLS},
    "posttrain": {"workload": "llama-2-7b", "system": "h100", "n_devices": 4, "prompts": 8, "isl": 64, "osl": 64},
    "simulate": {"workload": "llama-2-7b", "system": "h100", "requests": 50, "set": {"request_rate": 4}},
    "predict": {"cases": [ROW]},
    "validate": {"cases": [{**ROW, "iteration_s_measured": 4}], "set": {"tp": 8}},
    "diagnose": {"files": [{**ROW, "iteration_s_measured": 4}], "advice": False},
    "names": {"kind": "metrics", "serving": True}, "catalog": {"kind": "accelerator"}, "show": {"name": "h200"},
}  # fmt: skip

_ODD = (
    "", "0", "-1", "nan", "1e999", "tp=", "=8", "h100,", "\x00", "é" * 50, "{}", "'; --", "%s%n", "/etc/passwd", "..",
    "a" * 3000, None, True, -1, 0, 3.5, 1e300, [], {}, ["tp=8"] * 3, [[]], {"name": "h100"}, [None], 10**30,
)  # fmt: skip

#: Values that a field may well have: what runs is tried too.
_RIGHT = {
    "workload": ("gpt-3-13b", "llama-3-70b", "deepseek-v3", "mixtral-8x7b"),
    "system": ("a100", "mi300x", "selene", "tpu-v5p"), "n_devices": (1, 7, 64, 100_000), "gpu": ("a100", "tpu-v5e"),
    "keep": ("best", "pareto", "all", "feasible"), "kind": ("leaves", "system", "columns"), "n_gpus": (0.5, 12),
    "global_batch": (1, 10**9), "serving": (False, True), "name": ("gpt-3-175b", "b200", "vllm", "eos"),
    "tp": ([1, 2], "powers_of_two", [3]), "micro_batch": ([1], {"from": 1, "to": 4, "count": 3}),
}  # fmt: skip
_SETTINGS = (
    "tp",
    "pp",
    "n_devices",
    "global_batch",
    "concurrency",
    "request_rate",
    "zero_stage",
    "memory.bandwidth",
    "ep",
)


def mutants(requests, number, draw: random.Random):
    """So many of (name of an operation, request), one to three changes each."""
    names = sorted(requests)
    for _ in range(number):
        name = draw.choice(names)
        made = copy.deepcopy(requests[name])
        for _ in range(draw.randint(1, 3)):
            _change(made, draw)
        yield name, made


def _odd(draw):
    return copy.deepcopy(draw.choice(_ODD))


def _other(key, value, draw):
    """Another value of a field, or of a setting ``name=value``; one in two is one that it may well have."""
    if draw.random() < 0.5:
        return _odd(draw)
    if isinstance(value, str) and "=" in value:
        setting = f"{draw.choice(_SETTINGS)}={draw.choice([0, 1, 2, 3.5, 8, 64, 1e13])}"
        return f"{value.rpartition(',')[0]},{setting}".lstrip(",")
    return copy.deepcopy(draw.choice(_RIGHT[key])) if key in _RIGHT else _odd(draw)


def _change(made, draw):
    """Change, remove or add a value at some depth."""
    if isinstance(made, dict):
        keys = sorted(made)
        what = draw.random()
        if what < 0.1 or not keys:
            made[draw.choice(["nonsense", "as_json", "folder", "output", "set", "keep"])] = _odd(draw)
        elif what < 0.2:
            del made[draw.choice(keys)]
        else:
            key = draw.choice(keys)
            if isinstance(made[key], dict | list) and made[key] and draw.random() < 0.7:
                _change(made[key], draw)
            else:
                made[key] = _other(key, made[key], draw)
    elif isinstance(made, list) and made:
        place = draw.randrange(len(made))
        if isinstance(made[place], dict | list) and made[place] and draw.random() < 0.7:
            _change(made[place], draw)
        else:
            made[place] = _other(None, made[place], draw)
