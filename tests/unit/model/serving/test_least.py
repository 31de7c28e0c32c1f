"""The least that requests take: bytes and FLOPs of model and device, whatever the links, the engine and its limits."""

import pytest

import dse
from dse.measured.roofline import batch_latency_bounds, metric_bound
from dse.model.serving.least import latency_bounds
from tests.programs import served
from tests.unit.model.serving.test_bounds import PANEL

METRICS = (
    "time_per_output_token",
    "time_to_first_token",
    "request_latency",
    "output_tokens_per_second",
    "output_tokens_per_second_per_device",
)


def design(workload="llama-3-70b", **settings):
    return dse.design(workload, "h200", "vllm", any_option=True, **({"tp": 8, "precision": "fp8"} | settings))


def test_a_dense_model_by_hand():
    """Llama 3 70B in bf16 on eight H200: 69.5 billion weights that are multiplied, 4.8 TB/s, 989 TFLOP/s."""
    found = latency_bounds(design(precision="bf16", concurrency=64, prompt_tokens=2048, output_tokens=512))
    layer = 8192 * (2 * 8192 + 2 * 1024) + 3 * 8192 * 28672
    weights, context = 80 * layer + 8192 * 128256, 2048 + 256
    cache = 80 * 2 * 1024 * 2 * context / 8 / 4.8e12  # seconds of a device, for one sequence
    read = 2 * weights / 8 / 4.8e12
    assert float(found.token) == pytest.approx(read + cache, rel=2e-3)
    flops = 2 * 80 * layer * 2048 + 80 * 4 * 8192 * 2048 * 1024 + 2 * 8192 * 128256
    assert float(found.prompt) == pytest.approx(flops / 8 / 989.4e12, rel=2e-3)
    many = latency_bounds(design(precision="bf16", concurrency=64, prompt_tokens=16, output_tokens=512))
    cache *= (16 + 256) / context
    assert float(many.request) == pytest.approx(511 * (read / 64 + cache), rel=2e-3)


def test_one_token_reads_the_experts_that_it_chooses():
    """DeepSeek-V3 on eight devices: of 256 experts a layer 8 and the shared one; each device has the whole of what
    compresses queries and cache, and of the router.
    """
    found = latency_bounds(design("deepseek-v3", ep=8, concurrency=1, prompt_tokens=16, output_tokens=16))
    hidden, down = 7168, 7168 * (1536 + 512 + 64)
    up = 1536 * 128 * 192 + 512 * 128 * 256 + 128 * 128 * hidden
    experts, dense = 9 * 3 * hidden * 2048, 3 * hidden * 18432
    whole = 61 * down + 58 * 256 * hidden
    read = 8 * whole + 61 * up + 58 * experts + 3 * dense + 2 * hidden * 129280  # the head in 16 bits
    assert float(found.token) * 8 * 4.8e12 == pytest.approx(read, rel=0.03)


@pytest.mark.parametrize(
    "settings",
    [
        {"scale_up.bandwidth": "1 GB/s"},
        {"scale_up.crowding": 3.0},
        {"scale_up.latency": "1 ms"},
        {"imbalance": 3.0},
        {"most_sequences": 4},
        {"chunk": 64},
        {"small_message_time": "1 ms"},
        {"request_time": "1 s"},
        {"mixed": 0},
        {"power.limit": "300 W"},
        {"kernel_slowdown": 1.5},
        {"narrow_expert": 1000.0},
        {"all_to_all": "by-node"},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_nothing_but_bytes_and_flops_is_in_it(settings):
    own = design("deepseek-v3", ep=8, concurrency=64)
    other = design("deepseek-v3", ep=8, concurrency=64, **settings)
    assert tuple(map(float, latency_bounds(other))) == pytest.approx(tuple(map(float, latency_bounds(own))), rel=1e-6)


@pytest.mark.parametrize(("workload", "settings"), PANEL.values(), ids=PANEL)
def test_no_engine_beats_it(workload, settings):
    one = dse.design(workload, "h200", "vllm", any_option=True, **settings)
    (bound,), found = batch_latency_bounds([one]), served(one)
    first = float(found.time_to_first_token)
    for metric in METRICS:
        value, limit = float(getattr(found, metric)), metric_bound(metric, one, bound, first)
        assert value < limit if metric.startswith("output") else value > limit, metric
