"""Costs of chiplets: rows of a published model, in double precision with every version of JAX."""

import pytest

from dse.measured import chiplets, predict_cases, read_table

#: Two rows of Chiplet Actuary (Feng and Ma 2022): one die of N7, one of N5.
ROWS = """case_id,model,package,groups,volume,die0_yield,re_total
ex01,chiplet_actuary,SoC_organic,7 nm:100 mm2 x1,0,0.914299,20.585538
ex02,chiplet_actuary,SoC_organic,5 nm:250 mm2 x1,0,0.762398,109.836525
"""


def test_costs_are_those_of_the_model(tmp_path):
    table = tmp_path / "chiplets.csv"
    table.write_text(ROWS, encoding="utf-8")
    for found in predict_cases(chiplets.read(read_table(table)[1])):
        assert found.skip is None
        for one in found.case.measurements:
            assert found.metrics[one.name] == pytest.approx(one.value, rel=1e-5), one.name
