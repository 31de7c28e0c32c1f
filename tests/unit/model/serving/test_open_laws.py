"""Laws of any load, over a fixed draw of designs from one token a step to all, at up to the rate that they serve."""

import functools

import numpy as np
import pytest

import dse
from dse.designs import replace
from dse.designs.records import with_serving_defaults
from dse.doors import SERVING, serve
from dse.doors.serving import serve as of_one
from dse.equations import ScalarFunction
from dse.errors import InputError
from dse.lab.simulator.run import simulate
from dse.types import Infeasible, Load

COUNT = 600
CASES = {
    "dense": dict(workload="llama-3-8b", system="h100", n_devices=1, **{"power.limit": "400 W"}),
    "experts": dict(workload="deepseek-v3", system="h200", dp=8, ep=8, n_devices=8, precision="fp8"),
    "stages": dict(workload="llama-3-70b", system="a100", tp=2, pp=4, n_devices=8),
    "sessions": dict(workload="llama-3-8b", system="h100", n_devices=1, turns=4, think_time=5.0, prefix_groups=30,
                     prompt_tokens=4096, output_tokens=64),
}  # fmt: skip
#: Requests, limits of a step and host: from one token to 65,536, powers of two by chance.
DRAWN = {
    "workload.requests.prompt_tokens": (0.0, 16.0),
    "workload.requests.output_tokens": (0.0, 13.0),
    "mapping.serving.chunk": (0.0, 15.0),
    "mapping.serving.drafts": [0.0, 0.0, 1.0, 3.0, 7.0, 17.0],
    "mapping.serving.acceptance": [0.0, 0.3, 0.7, 0.95, 0.99],
    "mapping.serving.mixed": [0.0, 1.0, 1.0],
    "mapping.serving.admission_steps": [1.0, 1.0, 1.0, 3.0],
    "workload.requests.prefix_share": [0.0, 0.0, 0.5, 0.99, 1.0],
    "workload.requests.arrival_variation": [0.0, 1.0, 1.0, 4.0, 30.0],
    "workload.requests.length_spread": [0.0, 0.5, 1.0],
    "software.engine.most_sequences": [1.0, 4.0, 64.0, 256.0, 2048.0],
    "software.engine.host_overlap": [0.0, 0.5, 1.0],
    "software.engine.host_step_time": [0.0, 1e-3, 1e-2],
    "software.engine.sequence_time": [0.0, 1e-5, 1e-3],
    "software.engine.launch_ratio": [0.0, 1.0, 5.0],
    "software.engine.request_time": [0.0, 0.1],
}
RATE = "workload.requests.request_rate"

found = ScalarFunction(lambda design: (of_one(design), None), None).batch_values


@functools.cache
def drawn(name):
    """Designs of a case as arrays, each at a share of the rate that it serves, and that rate."""
    random = np.random.default_rng([5, list(CASES).index(name)])
    values = {
        path: np.round(2.0 ** random.uniform(*of, COUNT)) if isinstance(of, tuple) else random.choice(of, COUNT)
        for path, of in DRAWN.items()
    }
    design = dse.design(software="vllm", any_option=True, host_slowdown=1.0, request_rate=1.0, **CASES[name])
    design = replace(with_serving_defaults(design), values)
    slow = found(COUNT, replace(design, {RATE: np.full(COUNT, 1e-4)}))
    most = 1e-4 / slow.utilisation
    share = random.choice([1e-4, 0.01, 0.1, 0.5, 0.9, 0.99], COUNT)
    return replace(design, {RATE: share * most}), most


@pytest.mark.parametrize("load", [Load.rate, Load.concurrency, Load.offline])
@pytest.mark.parametrize("name", CASES)
def test_no_part_of_time_or_energy_is_negative_and_parts_add_up(name, load):
    design, most = drawn(name)
    users = 2.0 ** np.random.default_rng(6).uniform(0.0, 13.0, COUNT)
    design = replace(design, {"workload.requests.load": float(load), "workload.requests.concurrency": users})
    metrics = found(COUNT, design)
    for total in SERVING.totals:
        parts = [getattr(metrics, part) for part in SERVING.parts(total)]
        assert min(np.min(part) for part in parts) >= 0.0, total
        np.testing.assert_allclose(sum(parts), getattr(metrics, total), rtol=1e-5, err_msg=total)
    if load == Load.rate:
        assert np.all(metrics.requests_per_second <= most * (1.0 + 1e-4))
        assert np.all(metrics.time_per_output_token > 0.0)


@pytest.mark.parametrize("name", ["dense", "experts", "stages"])
@pytest.mark.parametrize("what", ["a slower host", "more requests", "as many as are served"])
def test_a_token_takes_no_less_time(name, what):
    """But for one in two hundred: step times are linear between half of the sequences and all, and are not smooth."""
    design, most = drawn(name)
    before = found(COUNT, design)
    changes = {
        "a slower host": {"system.host_slowdown": 3.0},
        "more requests": {RATE: 1.1 * design.workload.requests.request_rate},
        "as many as are served": {RATE: 0.999 * most},
    }
    after = found(COUNT, replace(design, changes[what]))
    both = (before.infeasible_reason == 0) & (after.infeasible_reason == 0)
    falls = 1.0 - (after.time_per_output_token / before.time_per_output_token)[both]
    assert np.sum(both) > 0.6 * COUNT
    assert np.mean(falls > 0.01) < 0.005 and np.max(falls) < 0.25


def test_a_step_holds_a_sequence_with_its_drafts():
    """Where it does not no engine starts (vLLM: no token is left to be scheduled); steps apart hold any sequences."""
    settings = dict(workload="llama-3-8b", system="h100", software="vllm", any_option=True, drafts=17, n_devices=1)

    def one(**more):
        return with_serving_defaults(dse.design(**settings, **more))

    steps = dict(chunk=17), dict(chunk=18), dict(chunk=4, mixed=0)
    reasons = [int(serve(one(**step)).infeasible_reason) for step in steps]
    assert reasons == [Infeasible.step_tokens, 0, 0]
    with pytest.raises(InputError, match="chunk: got 17; allowed 18"):
        simulate(one(chunk=17), count=10)
