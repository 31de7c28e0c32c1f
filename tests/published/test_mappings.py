"""Pairs of measured figures that differ in the mapping alone: slices or whole experts, attention in tp or in dp."""

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from docs.make.serving_pairs import METRICS, Pair, pairs, predicted, section
from dse.measured import predict_cases, read_cases
from dse.measured.comparison import compare, compare_predictions

MEASURED = Path(__file__).parents[3] / "shared" / "reference" / "measured"
TABLES = [MEASURED / name for name in ("inference.csv", "inference_2026.csv")]

#: A model with experts on 8 H200: slices of all experts, whole ones, and attention apart. TPOT in ms.
ROWS = """\
source,model,gpu,n_gpus,tp,pp,ep,dp,precision,framework,batch,batch_kind,isl,osl,metric,value,unit
a,DeepSeek-V3,H200-SXM-141GB,8,8,1,1,1,fp8,vllm 0.17.0,64,concurrency,1024,1024,tpot,{},ms
a,DeepSeek-V3,H200-SXM-141GB,8,8,1,8,1,fp8,vllm 0.17.0,64,concurrency,1024,1024,tpot,{},ms
a,DeepSeek-V3,H200-SXM-141GB,8,1,1,8,8,fp8,vllm 0.17.1,64,concurrency,1024,1024,tpot,{},ms
"""


def test_pairs_are_of_equal_loads_and_other_mappings(tmp_path):
    """Of three mappings, two of one release: three pairs of the code base, and one of the release."""
    table = tmp_path / "rows.csv"
    table.write_text(ROWS.format(20.0, 30.0, 40.0))
    figures = list(predicted(compare(table)))
    assert len(figures) == 3
    metrics = METRICS["time per token, rate"]
    of_release, of_code_base = (list(pairs(figures, metrics, same)) for same in (True, False))
    assert [pair.kind for pair in of_release] == ["whole experts or slices"] and len(of_code_base) == 3
    assert of_release[0].measured == pytest.approx(np.log(20.0 / 30.0))
    table.write_text(ROWS.format(20.0, 20.1, 20.2))  # nothing to tell
    assert not list(pairs(predicted(compare(table)), metrics, False))
    assert not list(pairs(figures, METRICS["first token"], False))


def test_right_is_the_faster_one():
    assert Pair("", 0.1, 0.01).is_right and not Pair("", 0.1, -0.01).is_right


_LOAD = ("source", "model", "gpu", "n_gpus", "precision", "batch", "isl", "osl")


def mapped_otherwise():
    """Cases of the tables whose source has their load with another mapping too, whatever the release."""
    cases = [case for path in TABLES for case in read_cases(path)]
    mappings = defaultdict(set)
    for case in cases:
        mappings[tuple(map(case.row.get, _LOAD))].add(tuple(map(case.row.get, ("tp", "pp", "ep", "dp"))))
    return [case for case in cases if len(mappings[tuple(map(case.row.get, _LOAD))]) > 1 and case.row.get("ep")]


@pytest.mark.skipif(not TABLES[1].is_file(), reason="the reference tables are not beside this checkout")
def test_the_faster_mapping_of_published_rows():
    """Time per token of InferenceX, TensorRT-LLM, vLLM and SGLang, of one release and of all of a code base: 80 %."""
    figures = list(predicted(compare_predictions(predict_cases(mapped_otherwise()))))
    for same_release, least in ((True, 8), (False, 35)):
        found = list(pairs(figures, METRICS["time per token, rate"], same_release))
        kinds = {kind: [pair.is_right for pair in found if pair.kind == kind] for kind in {p.kind for p in found}}
        assert set(kinds) == {"whole experts or slices", "attention apart or split"} and len(found) >= least
        for kind, right in kinds.items():
            assert np.mean(right) >= 0.8, (kind, same_release, len(right))
    assert "first token" in section(figures)[-1]
