"""Which mappings the tools of stacks launch: engines and their experts, trainers of measured rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from dse.doors import TRAINING
from dse.measured import predict_cases, read_cases
from dse.tools import launch
from dse.tools.runs import engine_fault, stack_tool

MEASURED = Path(__file__).parents[4] / "shared" / "reference" / "measured"


@pytest.mark.parametrize(("engine", "degrees", "allowed"), [
    ("vllm", dict(tp=4, ep=4), None), ("vllm", dict(ep=8, dp=8), None), ("vllm", dict(tp=4, ep=2), "ep 1, 4 of tp 4"),
    ("vllm", dict(tp=2, dp=2), None), ("vllm", dict(tp=2, dp=2, ep=1), "ep 4 of tp 2 x dp 2"),
    ("sglang", dict(tp=4, ep=2), None), ("sglang", dict(tp=2, dp=8, ep=8), "ep 1, 2, 16 of tp 2 x dp 8"),
    ("tensorrt-llm", dict(ep=8, dp=8), None), ("tensorrt-llm", dict(tp=2, dp=4, ep=8), "ep 1, 2 of tp 2 x dp 4"),
    ("tensorrt-llm", dict(tp=4, dp=2), None), ("tensorrt-llm", dict(tp=4, dp=2, ep=4), None),
    ("fastertransformer", dict(tp=4, ep=2), None),
])  # fmt: skip
def test_engines_launch_what_their_options_have(engine, degrees, allowed):
    """Replicas that share nothing are an option of vLLM and SGLang; of TensorRT-LLM each is a line of its own."""
    fault = engine_fault(engine, degrees)
    assert (fault and fault[1]) == allowed


@pytest.mark.skipif(not MEASURED.exists(), reason="no measured rows of reference beside this checkout")
def test_megatron_deepspeed_is_launched_as_megatron_as_its_measured_rows_need():
    """DeepSpeed's own file has neither their pipeline nor their recompute."""
    sources = {"training.csv": ("BLOOM", "GPT-NeoX"), "training_a100_vtrain.csv": ("vTrain_multi",)}
    for file, names in sources.items():
        rows = [case for case in read_cases(MEASURED / file) if case.source.startswith(names)]
        for one in predict_cases(rows):
            tool = stack_tool(one.stack, "training")
            assert one.design is not None and tool is not None
            assert not launch(one.design, tool.name, TRAINING, "", one.stack).unsupported
            assert "mapping.recompute" in launch(one.design, "deepspeed", TRAINING, "", one.stack).unsupported
