"""Layouts of layers over pipeline stages: what is written runs, and is what the model counts."""

from hypothesis import given, strategies as st

from dse.model.stage_layers import stage_layers
from dse.tools.layouts import chunk_count, chunk_sizes, layer_layout as layout

CHUNKS = st.tuples(st.integers(2, 16), st.integers(1, 6))


@given(st.integers(8, 130), st.integers(0, 1), CHUNKS)
def test_a_layout_has_all_layers_and_the_chunks_of_the_model(layers, further, chunks):
    stages, virtual = chunks
    n = stages * virtual
    if n > layers + 2:
        return
    sizes, text = chunk_sizes(layers, further, n), layout(layers, further, n)
    assert sum(sizes) == layers and min(sizes) >= 0 and chunk_count(text) == n
    assert text.startswith("E") and text.endswith("L")
    found = stage_layers(float(layers + further), float(stages), float(virtual), float(further))
    largest = -(-(layers + further) // n)
    assert max(sizes) == largest
    if virtual > 1 and largest > 1 + further:
        assert sizes[0] == largest - float(found.short_first)
        assert sizes[-1] == max(0, largest - further - float(found.short_last))


def test_models_whose_layers_no_pipeline_divides():
    """DeepSeek-V3, 61 layers and one of multi-token prediction, in 4, 8, 16 and 32 chunks, and without that layer.

    With it: Megatron-Bridge's recipe of the model (``set_deepseek_v3_pipeline_model_parallel_layout``).
    """
    assert chunk_sizes(61, 1, 4) == [16, 16, 16, 13] and chunk_sizes(61, 1, 8) == [*[8] * 7, 5]
    assert chunk_sizes(61, 1, 16) == [*[4] * 15, 1] and chunk_sizes(61, 1, 32) == [1, *[2] * 30, 0]
    assert chunk_sizes(61, 0, 16) == [3, *[4] * 14, 2]
