"""Chakra execution traces: what is read back are the compute and messages of the step, and ranks do not deadlock."""

from __future__ import annotations

import json
import shlex
from collections import defaultdict

import pytest

import dse
from dse.cli import app
from dse.errors import InputError
from dse.lab.exchange import chakra
from dse.views.trace.kernels import COMPUTE, device_step
from dse.views.trace.step import schedule_step

DESIGNS = {
    "stages": ("gpt-3-13b", "selene", {"n_devices": 16, "tp": 2, "pp": 4, "recompute": "full", "zero_stage": 1}),
    "interleaved": ("gpt-3-13b", "selene", {"n_devices": 8, "tp": 2, "pp": 4, "virtual_stages": 2}),
    "zb-h1": ("gpt-3-13b", "selene", {"n_devices": 8, "tp": 2, "pp": 4, "schedule": "zb-h1", "any_option": True}),
    "dualpipe": (
        "gpt-3-13b", "selene", {"n_devices": 8, "tp": 2, "pp": 4, "schedule": "dualpipe", "any_option": True}
    ),
    "sharded": ("llama-3-8b", "h100", {"n_devices": 8, "dp": 8, "zero_stage": 3}),
    "context": ("gpt-3-13b", "h100", {"n_devices": 8, "tp": 2, "cp": 2, "pp": 2, "n_layers": 7}),
    "experts": ("mixtral-8x7b", "h100", {"n_devices": 16, "tp": 2, "pp": 2, "dp": 4, "ep": 4}),
}  # fmt: skip
COMPUTED, SENT, RECEIVED, COLLECTIVE = 4, 5, 6, 7


def design(name):
    workload, system, values = DESIGNS[name]
    return dse.design(workload, system, micro_batch=1, global_batch=16, **{"n_layers": 8, **values})


def integer(data, place):
    """The integer at a place, seven bits a byte, and the place after it."""
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, place


def fields(data):
    """Field → values of a message of Protocol Buffers, of integers and bytes."""
    found, place = defaultdict(list), 0
    while place < len(data):
        key, place = integer(data, place)
        value, place = integer(data, place)
        if key & 7 == 2:
            place += value
            value = data[place - value : place]
        found[key >> 3].append(value)
    return found


def messages(data):
    """The messages of a stream, each after its length."""
    place = 0
    while place < len(data):
        size, place = integer(data, place)
        yield fields(data[place : place + size])
        place += size


def integers(packed):
    """Values of a packed field."""
    found, place = [], 0
    while place < len(packed):
        value, place = integer(packed, place)
        found.append(value)
    return found


def nodes(path):
    """Nodes of a file: number, name, type, dependencies, microseconds and attributes."""
    head, *rest = messages(path.read_bytes())
    assert head[1] == [b"0.0.4"]
    for one in rest:
        attributes = {}
        for content in one[10]:
            about = fields(content)
            (value,) = [values[0] for field, values in about.items() if field != 1]
            attributes[about[1][0].decode()] = value
        yield one[1][0], one[2][0].decode(), one[3][0], integers(b"".join(one[5])), one[7][0], attributes


def written(name, folder):
    """A design, and the nodes of its ranks and its groups as they were written."""
    made = design(name)
    ranks, count = chakra.write(schedule_step(made), made, "a design", folder / "step")
    read = [list(nodes(folder / f"step.{rank}.et")) for rank in range(ranks)]
    assert sum(map(len, read)) == count and ranks == int(made.system.n_devices)
    return made, read, {k: v for k, v in json.loads((folder / "step.json").read_text()).items()}


def replayed(ranks, groups):
    """Microseconds of ranks that run each node when all that it waits for is done; AssertionError for a deadlock."""
    about = {(rank, one[0]): one for rank, own in enumerate(ranks) for one in own}
    left = {place: len(one[3]) for place, one in about.items()}
    then, key, order = defaultdict(list), {}, defaultdict(int)
    for (rank, number), (_, _, kind, after, _, attributes) in about.items():
        for one in after:
            then[rank, one].append((rank, number))
        if kind == COLLECTIVE:
            group = attributes["pg_name"].decode()
            key[rank, number] = group, order[rank, group]
            order[rank, group] += 1
    ready, done = dict.fromkeys(about, 0.0), {}
    met, sent, waits = defaultdict(list), {}, {}
    todo = [place for place, count in left.items() if not count]

    def end(place, time):
        done[place] = time
        for other in then[place]:
            ready[other] = max(ready[other], time)
            left[other] -= 1
            if not left[other]:
                todo.append(other)

    while todo:
        place = todo.pop()
        _, _, kind, _, length, attributes = about[place]
        if kind == COLLECTIVE:
            members = met[key[place]]
            members.append(place)
            if len(members) == len(groups[key[place][0]]):
                start = max(ready[one] for one in members)
                for one in members:
                    end(one, start + about[one][4])
            continue
        route = attributes.get("comm_src"), attributes.get("comm_dst"), attributes.get("comm_tag")
        if kind == SENT:
            assert route[0] == place[0] and route not in sent
            sent[route] = ready[place] + length
            end(place, sent[route])
            if route in waits:
                end(waits[route], max(ready[waits[route]], sent[route]))
        elif kind == RECEIVED:
            assert route[1] == place[0]
            waits[route] = place
            if route in sent:
                end(place, max(ready[place], sent[route]))
        else:
            end(place, ready[place] + length)
    assert len(done) == len(about), "ranks that wait for each other"
    return max(done.values())


@pytest.mark.parametrize("name", DESIGNS)
def test_parts_are_read_back_and_ranks_replay(name, tmp_path):
    made, ranks, groups = written(name, tmp_path)
    step, of_stage = schedule_step(made), int(made.mapping.tp * made.mapping.cp * made.mapping.dp)
    for stage in range(int(made.mapping.pp)):
        kernels, own = device_step(made, stage, step).kernels, ranks[stage * of_stage]
        compute = sum(k.seconds for k in kernels if k.stream == COMPUTE)
        total = sum(length for _, name, kind, _, length, _ in own if kind == COMPUTED and name != "host")
        assert 1e-6 * total == pytest.approx(compute, rel=1e-3)
        sent = defaultdict(float)
        for kernel in kernels:
            if kernel.family == "message" and not kernel.peer and kernel.message.ranks > 1.0:
                sent[kernel.label] += kernel.seconds
        read = defaultdict(float)
        for _, label, kind, _, length, _ in own:
            if kind == COLLECTIVE or (kind == SENT and label in sent):
                read[label] += 1e-6 * length
        sent.pop("tied_embedding_exchange", None)  # of the first and the last stage alone
        for label, seconds in sent.items():
            assert read[label] == pytest.approx(seconds, rel=0.02, abs=1e-5), label
    for rank, own in enumerate(ranks):
        for number, _, kind, after, _, about in own:
            assert all(one < number for one in after), "nodes come after what they wait for"
            assert kind != COLLECTIVE or rank in groups[about["pg_name"].decode()]
    assert 1e-6 * replayed(ranks, groups) == pytest.approx(step.total, rel=0.01)


def test_compute_and_messages_are_those_of_the_prediction(tmp_path):
    made, ranks, _ = written("sharded", tmp_path)
    metrics = dse.evaluate(made)
    own = [one for one in ranks[3] if one[1] != "host"]
    ours = ("forward", "backward", "recompute", "embedding_and_head", "optimizer")
    compute = sum(float(getattr(metrics, f"step_time_{one}")) for one in ours)
    assert 1e-6 * sum(one[4] for one in own if one[2] == COMPUTED) == pytest.approx(compute, rel=2e-3)
    # ZeRO 3: gathers for the forward and the backward, and scatters, of all weights in 16 bits, each micro-batch
    sent = sum(one[5]["comm_size"] for one in own if one[2] == COLLECTIVE)
    assert sent == pytest.approx(3 * 2 * 2.0 * float(metrics.parameters), rel=1e-3)


def test_bytes_of_messages_are_those_of_the_model(tmp_path):
    _, ranks, groups = written("stages", tmp_path)
    layers, micro, size = 8 / 4, 16 / 2, 2.0 * 2048 * 5120  # per stage; micro-batches; B of an activation
    own = [one for one in ranks[0] if one[2] == COLLECTIVE]
    of_tensors = sum(
        about["comm_size"]
        for *_, about in own
        if len(groups[about["pg_name"].decode()]) == 2 and about["comm_type"] == 0
    )
    # two all-reduces in the forward, the repeated forward and the backward of a layer; one of the embedding
    assert of_tensors >= (6 * layers - 6) * micro * size
    between = [about for *_, kind, _, _, about in ranks[0] if kind == SENT]
    assert {about["comm_dst"] for about in between if about["comm_tag"] < 1 << 29} == {4}


def test_the_command_writes_a_file_a_rank(tmp_path, capsys):
    words = shlex.split("trace -w gpt-3-13b -s selene -n 8 --set tp=2 --set pp=4 --set global_batch=8 --any-option")
    for _ in range(2):  # again: its own files are replaced
        with pytest.raises(SystemExit) as ended:
            app([*words, "--format", "chakra", "-o", str(tmp_path / "step.et")], prog_name="dse")
        assert not ended.value.code and "nodes of 8 ranks" in capsys.readouterr()[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [*(f"step.{rank}.et" for rank in range(8)), "step.json", "step.json.dse.json"]
    )


def test_too_many_nodes_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(chakra, "MAX_NODES", 100)
    made = design("stages")
    with pytest.raises(InputError, match="nodes of 16 ranks"):
        chakra.write(schedule_step(made), made, "", tmp_path / "step")
    assert not list(tmp_path.iterdir())
