"""A step in Kineto's form: what is read back are the parts that were written."""

from __future__ import annotations

import json

import pytest

import dse
from dse.lab.exchange import kineto
from dse.measured.profiles import kineto as reader
from dse.measured.profiles.run import design_cells
from dse.types import Schedule
from dse.views.trace.kernels import device_step
from dse.views.trace.step import schedule_step

DESIGNS = {
    "overlapped, of stages": ("llama-3-8b", "h100", {"n_devices": 16, "tp": 4, "pp": 2, "dp": 2, "zero_stage": 1}),
    "host-bound experts": ("mixtral-8x7b", "h100", {"n_devices": 16, "tp": 2, "pp": 2, "dp": 4, "ep": 4}),
    "sharded": ("llama-3-8b", "h100", {"n_devices": 8, "dp": 8, "zero_stage": 3, "recompute": "selective_op"}),
    "repeated, interleaved": (
        "gpt-3-13b", "selene", {"n_devices": 16, "tp": 4, "pp": 4, "virtual_stages": 2, "recompute": "full"}
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=DESIGNS.values(), ids=DESIGNS)
def design(request):
    workload, system, values = request.param
    return dse.design(workload, system, micro_batch=1, global_batch=8, **values)


def test_the_parts_of_a_step_are_read_back(design, tmp_path):
    step, metrics = schedule_step(design), dse.evaluate(design)
    stage = int(design.mapping.pp) - 1
    found, path = device_step(design, stage, step), tmp_path / "trace.json"
    kineto.write(found, design, stage * kineto.rank_place(design).ranks_per_stage, path, "NVIDIA H100 80GB HBM3")
    (run,) = reader.read(path)
    parts = {name: 1e-3 * float(run.shares[f"{name}_ms"]) for name in ("compute", "exposed_nccl", "gap")}
    assert sum(parts.values()) == pytest.approx(step.total, rel=1e-5)
    ours = ("forward", "backward", "recompute", "embedding_and_head", "optimizer", "offload")
    compute = sum(float(getattr(metrics, f"step_time_{one}")) for one in ours)
    assert parts["compute"] == pytest.approx(compute, rel=0.03)
    assert parts["gap"] == pytest.approx(float(metrics.step_time_host), abs=0.02 * step.total)
    assert run.cells["n_gpus"] == f"{design.system.n_devices:g}"


@pytest.mark.parametrize(
    ("values", "rank", "groups"),
    [
        ({"schedule": "dualpipe", "any_option": True, "tp": 2, "pp": 4, "dp": 2, "zero_stage": 0}, 5,
         {"allreduce": [5, 7, 9, 11]}),
        (
            {"tp": 2, "dp": 8, "dp_replicate": 2, "zero_stage": 3}, 5,
            {"_allgather_base": [1, 3, 5, 7], "_reduce_scatter_base": [1, 3, 5, 7], "allreduce": [5, 13]},
        ),
    ],
    ids=["weights of two stages", "replicas of shards"],
)  # fmt: skip
def test_gradients_go_to_those_who_hold_the_same_weights(values, rank, groups):
    design = dse.design("llama-3-8b", "h100", n_devices=16, n_layers=8, micro_batch=1, global_batch=16, **values)
    place = kineto.rank_place(design, rank)
    found = kineto.events(device_step(design, place.stage, schedule_step(design)), design, place)
    sent = [one["args"] for one in found if one["args"].get("Process Group Name") == "data weights"]
    assert {one["Collective name"]: json.loads(one["Process Group Ranks"]) for one in sent} == groups


def test_what_a_design_leaves_to_its_stack_is_no_cell():
    assert design_cells({"mapping.experts.overlap_ep": -1.0, "mapping.experts.ep": 4.0}) == {"ep": "4"}
    assert design_cells({"mapping.schedule": float(Schedule.dualpipe)}) == {"schedule": "dualpipe"}
    assert design_cells({"mapping.graph": 1.0}) == {"cuda_graph": "layer"}


def test_events_have_the_fields_of_profiles(tmp_path):
    workload, system, values = DESIGNS["overlapped, of stages"]
    design, path = dse.design(workload, system, micro_batch=1, global_batch=8, **values), tmp_path / "trace.json"
    kineto.write(device_step(design, 1), design, 9, path)
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["distributedInfo"] == {"backend": "nccl", "rank": 9, "world_size": 16}
    events = document["traceEvents"]
    kernels = [one for one in events if one.get("cat") == "kernel"]
    launched = {one["args"]["External id"]: one for one in events if one.get("cat") == "cpu_op"}
    products = [one for one in kernels if one["name"].startswith("nvjet")]
    assert products and all(len(launched[one["args"]["External id"]]["args"]["Input Dims"]) == 2 for one in products)
    assert all({"stream", "correlation", "grid"} <= one["args"].keys() for one in kernels)
    sent = [one["args"] for one in kernels if "Collective name" in one["args"]]
    assert {one["Collective name"] for one in sent} >= {"_allgather_base", "_reduce_scatter_base", "send", "recv"}
    of_tensors = next(one for one in sent if one["Process Group Name"] == "tensor layer")
    assert of_tensors["Process Group Ranks"] == "[8, 9, 10, 11]" and of_tensors["Group size"] == 4
    between = next(one for one in sent if one["Collective name"] == "recv")
    assert (between["Src Rank"], between["Dst Rank"]) == (1, 9)
    assert [one["name"] for one in events if one.get("cat") == "user_annotation"] == ["ProfilerStep#2"]
