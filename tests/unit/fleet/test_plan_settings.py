"""What a plan applies to every candidate: settings by leaf, a stack, one limit alone; and its progress."""

from __future__ import annotations

import math

import pytest

import dse
from dse.errors import InputError
from dse.fleet import RunDemand, ServiceDemand, plan_run, provision, worker_settings
from dse.fleet.planning import PlanProgress
from dse.fleet.runs import batch_tokens

DAY = 86400.0
SERVICE = ServiceDemand("llama-3-8b", ("h100", "mi300x"), 20.0, 1000.0, 200.0, 1.0, 0.03, 4)
RUN = RunDemand("llama-3-8b", ("h100",), 30 * DAY, math.inf, 64, 2e11)


def planned_replicas(**changes):
    """The replicas of each accelerator."""
    fleets = provision(SERVICE._replace(**changes)).fleets
    return {fleet.accelerator: fleet for fleet in fleets if fleet.kind == "replicas"}


def test_settings_are_of_every_worker():
    """A format of 8 bits is served by both kinds of fleets, and the door agrees with the time of the plan."""
    plan = provision(SERVICE._replace(settings={"precision": "fp8", "memory_share": 0.5}))
    assert plan.demand.settings == {"precision": "fp8", "memory_share": 0.5}
    assert plan.fleets and {fleet.precision for fleet in plan.fleets} == {"fp8"}
    for fleet in plan.fleets:
        if fleet.kind == "replicas":
            (workers,) = fleet.workers
            settings = worker_settings(workers, plan.demand)
            assert settings["precision"] == "fp8" and settings["memory_share"] == 0.5
            names = (SERVICE.workload, fleet.accelerator, fleet.software)
            metrics = dse.serve(dse.design(*names, n_devices=workers.devices, kind="serving", **settings))
            assert float(metrics.time_per_output_token) == pytest.approx(fleet.token, rel=0.02)


def test_settings_take_the_place_of_what_is_listed():
    assert {fleet.workers[0].degrees["tp"] for fleet in provision(SERVICE._replace(settings={"tp": 2})).fleets} == {2}
    plan = plan_run(RUN._replace(settings={"recompute": "full", "micro_batch": 2, "pp": 2}))
    (cluster,) = plan.fleets
    fixed = {"recompute": "full", "micro_batch": 2, "pp": 2}
    assert {name: cluster.mapping[name] for name in fixed} == fixed
    assert batch_tokens(plan.demand) == 2 * batch_tokens(plan_run(RUN._replace(settings={"seq_len": 4096})).demand)


def test_a_setting_of_the_chip_holds_for_every_candidate():
    """With half the memory bandwidth a device serves less of the rate, so that two are needed; a text has its unit."""
    slow = planned_replicas(settings={"memory.bandwidth": "1.675 TB/s", "tp": 1}, token_limit=math.inf)
    usual = planned_replicas(settings={"tp": 1}, token_limit=math.inf)
    assert (usual["h100-sxm-80gb"].devices, slow["h100-sxm-80gb"].devices) == (1, 2)


def test_a_stack_is_of_every_candidate_that_it_exists_for():
    plan = provision(SERVICE._replace(software="TensorRT-LLM"))
    assert {fleet.software for fleet in plan.fleets} == {"tensorrt-llm"} == {plan.demand.software}
    assert plan.without == {"mi300x": "tensorrt-llm is of NVIDIA, not of AMD"}
    (cluster,) = plan_run(RUN._replace(software="torchtitan")).fleets
    assert cluster.software == "torchtitan"
    alone = provision(SERVICE._replace(software="tensorrt-llm", accelerators=("mi300x",)))
    assert not alone.fleets and set(alone.without) == {"mi300x"}


@pytest.mark.parametrize("limit", ["first_token_limit", "token_limit"])
def test_one_limit_of_latency_is_enough(limit):
    both, alone = planned_replicas(), planned_replicas(**{limit: math.inf})
    for name, fleet in both.items():
        assert alone[name].hourly <= fleet.hourly * (1.0 + 1e-9)
    kept = [margin for fleet in alone.values() for margin in fleet.margins(SERVICE._replace(**{limit: math.inf}))]
    assert set(kept) == {"rate", "token" if limit == "first_token_limit" else "first_token"}


@pytest.mark.parametrize("limits", [(30 * DAY, math.inf), (math.inf, 1e6)])
def test_one_limit_of_a_run_is_enough(limits):
    (cluster,) = plan_run(RUN._replace(seconds=limits[0], budget=limits[1])).fleets
    assert cluster.seconds <= limits[0] and cluster.cost <= limits[1]


@pytest.mark.parametrize(
    ("settings", "told"),
    [({"frob": 1.0}, "frob"), ({"isl": 10.0}, "--isl"), ({"request_rate": 1.0}, "--rate"),
     ({"n_devices": 8}, "tp and dp"), ({"tp": 2, "mapping.tp": 4}, "one value of tp"), ({"precision": "fp7"}, "fp7"),
     ({"memory_share": 2.0}, "memory_share")],
)  # fmt: skip
def test_bad_settings_of_a_service(settings, told):
    with pytest.raises(InputError, match=told):
        provision(SERVICE._replace(settings=settings))


@pytest.mark.parametrize(
    ("settings", "told"), [({"global_batch": 8}, "--global-batch"), ({"run_tokens": 1.0}, "--tokens")]
)
def test_bad_settings_of_a_run(settings, told):
    with pytest.raises(InputError, match=told):
        plan_run(RUN._replace(settings=settings))


def test_progress_counts_accelerators():
    states: list[PlanProgress] = []
    provision(SERVICE, states.append)
    assert [(state.done, state.total) for state in states] == [(0, 2), (1, 2), (2, 2)]
    assert [state.accelerator for state in states] == ["", "h100-sxm-80gb", "mi300x"]
    assert str(states[1]) == "1 of 2 accelerators"
    states.clear()
    plan_run(RUN, states.append)
    assert [(state.done, state.accelerator) for state in states] == [(0, ""), (1, "h100-sxm-80gb")]
