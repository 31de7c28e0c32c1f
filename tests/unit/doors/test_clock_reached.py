"""The clock reached under a power limit: in remarks where it is below the nominal one, and in results of sweeps."""

import dse
from dse.doors import STUDIES
from dse.views.studies import presentation_of

LIMIT = {"power.limit": "400 W"}


def remark(study, **settings):
    design = dse.design("llama-3-8b", "h100", any_option=True, **settings)
    return presentation_of(STUDIES[study]).remark(STUDIES[study].energy, STUDIES[study].evaluated(design), design)


def test_remarks_say_a_clock_below_the_nominal_one_alone():
    for study in ("training", "serving"):
        assert "Clock of the cores" not in remark(study)
    assert "Clock of the cores: 1." in remark("training", **LIMIT)
    assert "GHz of 1.98 GHz nominal." in remark("training", **LIMIT)
    served = remark("serving", prompt_tokens=8192, concurrency=64, **LIMIT)
    assert "in steps with prefill of 1.98 GHz nominal." in served


def test_results_have_the_clock_of_every_limit(tmp_path):
    text = """
workload.name = "llama-3-8b"
system.name = "h100"
system.n_devices = 8
mapping.tp = 8
axes."power.limit" = ["300 W", "500 W", "700 W"]
objective.minimize = "step_time"
"""
    spec = tmp_path / "limits.toml"
    spec.write_text(text)
    clocks = dse.run(spec, output=False).clock_reached
    assert clocks.attrs["units"] == "Hz"
    low, middle, high = clocks.values.ravel()
    assert low < middle < high <= 1.98e9
