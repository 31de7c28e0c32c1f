"""Rules of Megatron-LM for stages of a pipeline and their chunks."""

from __future__ import annotations

from collections.abc import Mapping

from dse.tools.layouts import chunk_count, layer_layout
from dse.tools.megatron_shape import layer_count
from dse.tools.options import Lookup, Pairs, degrees, is_on, number, option_number

_STAGES = "--pipeline-model-parallel-size"
_LAYOUT, _CHUNKS = "--pipeline-model-parallel-layout", "--num-virtual-stages-per-pipeline-rank"
_LAYER_COUNT_SWITCHES = ("--account-for-loss-in-pipeline-split", "--account-for-embedding-in-pipeline-split")
_Options = Mapping[str, str]


def virtual_stage_pairs(leaf: Lookup) -> Pairs:
    """Return chunks per stage as options, or the layout of a pipeline of unequal ones.

    Where the layers alone are not divisible, loss and embedding count as layers, or a layout is written.
    """
    stages, chunks = degrees(leaf, "pp", "virtual_stages")
    layers, predict_layers = int(leaf("workload.n_layers") or 0.0), int(leaf("workload.experts.n_predict") or 0.0)
    missing_layers = -layers % int(stages * chunks)
    if stages > 1.0 and missing_layers and (predict_layers or missing_layers > len(_LAYER_COUNT_SWITCHES)):
        return [(_LAYOUT, layer_layout(layers, predict_layers, int(stages * chunks)))]
    pairs = [(_CHUNKS, number(chunks))] if chunks > 1.0 else []
    return pairs + [(name, "") for name in _LAYER_COUNT_SWITCHES[:missing_layers]]


def read_virtual_stages(options: _Options) -> dict[str, float]:
    """Return path → chunks per stage by a layout, the layers of one, or their number.

    The forms are those of ``validate_args``, which lets loss and embedding count as layers.
    """
    chunks, chunk_layers = (
        option_number(options, _CHUNKS),
        option_number(options, "--num-layers-per-virtual-pipeline-stage"),
    )
    stages, n_layers = option_number(options, _STAGES), layer_count(options)
    if _LAYOUT in options:
        return {"mapping.virtual_stages": chunk_count(options[_LAYOUT]) / stages} if stages else {}
    if chunk_layers is None:
        return {} if chunks is None else {"mapping.virtual_stages": chunks}
    if n_layers is None or not stages:
        return {}
    n_layers += sum(is_on(options, name) for name in _LAYER_COUNT_SWITCHES)
    return {"mapping.virtual_stages": n_layers / stages / chunk_layers}


_END_LAYERS = tuple(f"--decoder-{end}-pipeline-num-layers" for end in ("first", "last"))


def read_uneven_stages(options: _Options) -> dict[str, float]:
    """Return path → 1 where options state stages of an odd number of layers, which the stack then has."""
    is_uneven = [option_number(options, name) is not None for name in _END_LAYERS]
    return {"software.uneven_layers": 1.0} if any(is_uneven) or _LAYOUT in options else {}


def stage_remark(options: _Options) -> str:
    """Return the remark on stages of an odd number of layers, "" for none."""
    layers = [f"{name} {options[name]}" for name in _END_LAYERS if option_number(options, name)]
    return f"{', '.join(layers)}: the layout of layers is that of the model of dse" if layers else ""
