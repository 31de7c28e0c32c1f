"""What engines hold of published models: formats of checkpoints, layouts of caches, windows."""

import pytest

import dse
from dse import types
from dse.designs import catalog
from dse.designs.catalog.stacks import served_format
from dse.doors import SERVING
from dse.model import cache_bytes, stage_of
from dse.tools import launch
from dse.types import Precision

EXPERT = "mapping.serving.expert_bytes"


def test_experts_of_kimi_k2_5_are_int4_and_all_else_is_16_bit():
    """By hand: 60 layers x 384 experts x 3 x 7168 x 2048 = 1.0147e12 weights at 0.5625 bytes are 571e9.

    The other 11.6e9 of 1.026e12 take 23e9 in 16 bits, together 594e9; the files of K2-Thinking are 594 GB.
    """
    assert catalog.resolve("workload", "Kimi-K2-Thinking") == catalog.resolve("workload", "moonshotai/Kimi-K2.5")
    routed = 60 * 384 * 3 * 7168 * 2048
    size = 0.5625 * routed + 2.0 * (1.0263e12 - routed)
    assert size == pytest.approx(594e9, rel=0.005)
    served = dse.serve(dse.design("kimi-k2.5", "h200", tp=8, prompt_tokens=8192, output_tokens=1024, concurrency=32))
    assert 8.0 * float(served.peak_memory_weights) == pytest.approx(size, rel=0.03)  # tp does not split all of it
    assert 85.0 < float(served.concurrency_limit) < 97.0
    assert served_format("kimi-k2", {"system.accelerator.matrix_rate.fp8": 2e15})[EXPERT] == 0.0


def test_int4_checkpoints_of_dense_models_widen_all_their_weights(tmp_path, monkeypatch):
    text = (catalog.entry("workload", "llama-3-8b").path).read_text(encoding="utf-8")
    (tmp_path / "workloads").mkdir()
    stated = text.replace('name = "', 'checkpoint = "int4"\nname = "own ', 1).replace("aliases = ", "#", 1)
    (tmp_path / "workloads" / "own.toml").write_text(stated, encoding="utf-8")
    monkeypatch.setenv("DSE_CATALOG", str(tmp_path))
    found = served_format("own", {})
    assert found == {"mapping.precision": float(Precision.bf16), "mapping.serving.weight_bytes": 0.5625, EXPERT: 0.0}


@pytest.mark.parametrize("tool", ["vllm", "sglang"])
def test_engines_read_the_format_from_the_checkpoint(tool):
    design = dse.design("kimi-k2.5", "h200", tool, tp=8, prompt_tokens=1024, output_tokens=128)
    line = launch(design, tool, SERVING, "kimi-k2.5")
    assert "--quantization" not in line.text
    assert not any("precision" in path or "_bytes" in path for path in line.unsupported)


@pytest.mark.parametrize(
    ("model", "held", "bytes_of_a_token"),
    [("deepseek-v3-2", 1.0, 656 + 132), ("deepseek-v3-2", 2.0, 1152 + 132), ("glm-5", 1.0, 656 + 132),
     ("deepseek-v3", 1.0, 576), ("deepseek-v3", 2.0, 1152)],
)  # fmt: skip
def test_sparse_kernels_keep_rotary_columns_in_16_bits_and_scales(model, held, bytes_of_a_token):
    """512 bytes, 4 scales of 4 and 64 columns of 2 are 656; an indexer's key of 128 bytes with its scale 132."""
    design = dse.design(model, "h200", tp=8, cache_bytes=held, prompt_tokens=1024, output_tokens=128)
    assert float(cache_bytes(stage_of(design).design, design.mapping.serving, 1.0)) == pytest.approx(bytes_of_a_token)


#: Model → interval of its layers that attend to all tokens, 0 for none (sliding_window_pattern, layer_types,
#: no_rope_layer_interval).
WHOLE_EVERY = {
    "gemma-2-2b": 2, "gemma-2-9b": 2, "gemma-2-27b": 2, "gemma-3-1b": 6, "gemma-3-4b": 6, "gemma-3-12b": 6,
    "gemma-3-27b": 6, "gpt-oss-20b": 2, "gpt-oss-120b": 2, "llama-4-scout": 4, "llama-4-maverick": 4,
    "mistral-7b": 0, "phi-3-mini-3-8b": 0, "phi-3-medium-14b": 0, "starcoder2-3b": 0, "starcoder2-7b": 0,
    "starcoder2-15b": 0,
}  # fmt: skip


def test_windowed_layers_are_those_of_the_pattern():
    """Every n-th layer attends to all, so that a last group that is not whole has none: 52 of 62 in Gemma-3-27B."""
    windowed = {slug for slug in catalog.names("workload") if catalog.entry("workload", slug).value("local_layers")}
    assert windowed == set(WHOLE_EVERY)
    for slug, every in WHOLE_EVERY.items():
        w = catalog.record(types.Workload, slug)
        layers = int(w.n_layers)
        assert w.local_layers * layers == pytest.approx(layers - (layers // every if every else 0), abs=1e-3), slug
    gemma = catalog.record(types.Workload, "gemma-3-27b")
    assert gemma.local_layers * gemma.n_layers == pytest.approx(52.0, abs=1e-3)
