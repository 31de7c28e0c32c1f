"""``dse trace``: a file that viewers read, whose lanes hold one thing at a time, written as any other output."""

import itertools
import json
import shlex
from collections import defaultdict

import pytest

import dse
from dse.cli import app
from dse.doors import evaluate
from dse.errors import InputError
from dse.views.trace import memory, perfetto
from dse.views.trace.step import schedule_step

ARGUMENTS = shlex.split(
    "trace -w gpt-3-13b -s selene -n 32 --set tp=2 --set pp=4 --set global_batch=64 --set recompute=full "
    "--set zero_stage=1 --set schedule=zb-h1 --any-option"
)


@pytest.fixture
def command(capsys):
    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            app([*ARGUMENTS, *map(str, arguments)], prog_name="dse")
        return ended.value.code or 0, *capsys.readouterr()

    return run


def test_a_trace_is_written_and_told_of(command, tmp_path):
    path = tmp_path / "step.json"
    status, out, _ = command("-o", path)
    assert status == 0 and "event by event" in out and str(path) in out
    trace = json.loads(path.read_text())
    assert trace["otherData"]["leaves"]["mapping.pp"] == 4.0 and "gpt-3-13b on selene" in trace["otherData"]["design"]
    names = {e["args"]["name"] for e in trace["traceEvents"] if e["name"] in ("process_name", "thread_name")}
    assert {"stage 0", "stage 3", "compute", "tensor parallel", "stage output", "data parallel"} <= names
    lanes = defaultdict(list)
    for event in (e for e in trace["traceEvents"] if e["ph"] == "X"):
        lanes[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in map(sorted, lanes.values()):
        assert all(end <= start + 2e-3 for (_, end), (start, _) in itertools.pairwise(spans))
    assert max(end for spans in lanes.values() for _, end in spans) == pytest.approx(
        1e6 * trace["otherData"]["step_time"], rel=1e-6
    )
    written = path.read_bytes()
    assert command("-o", path)[0] == 0 and path.read_bytes() == written, "dse's own file is replaced, by the same"


def test_a_step_that_cannot_run_is_told(capsys, tmp_path):
    words = ["trace", "-w", "llama-3-70b", "-s", "h100", "-n", "8", "--set", "tp=8", "--set", "global_batch=8"]
    with pytest.raises(SystemExit) as ended:
        app([*words, "-o", str(tmp_path / "step.json")], prog_name="dse")
    assert not ended.value.code and "cannot run: needs" in capsys.readouterr().err


def test_files_of_others_stay(command, tmp_path):
    path = tmp_path / "notes.json"
    path.write_text("[1, 2]")
    status, out, err = command("-o", path)
    assert (status, out) == (2, "") and "--force" in err and path.read_text() == "[1, 2]"
    assert command("-o", path, "--force")[0] == 0 and json.loads(path.read_text())["traceEvents"]


@pytest.mark.parametrize("setting", ["schedule=zb-v", "pp=16"])
def test_a_design_without_a_schedule_is_refused(command, tmp_path, setting):
    status, out, err = command("--set", setting, "-o", tmp_path / "step.json")
    assert (status, out) == (2, "") and "allowed" in err and not list(tmp_path.iterdir())


def test_a_step_of_too_many_passes_is_refused():
    many = dse.design("gpt-3-13b", "selene", pp=8, global_batch=100_000)
    with pytest.raises(InputError, match=r"2,400,000 passes"):
        schedule_step(many)


def test_pairs_of_dualpipe_hide_their_messages():
    made = dse.design(
        "deepseek-v3", "eos", pp=4, dp=8, ep=8, n_layers=63, global_batch=128, schedule="dualpipe", any_option=True
    )
    step = schedule_step(made)
    shown = [event for event in perfetto.events(step) if event["ph"] == "X"]
    assert any("behind the other pass" in event["name"] for event in shown)
    assert any(len(event["args"].get("passes", [])) == 2 for event in shown if "args" in event)


#: Schedule → virtual stages; recompute none.
SCHEDULES = {"1f1b": 1, "interleaved": 2, "gpipe": 1, "zb-h1": 1, "zb-v": 2, "dualpipe": 1, "dualpipev": 2}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_memory_over_a_step_peaks_where_the_model_says(schedule):
    named = {} if schedule in ("1f1b", "interleaved") else {"schedule": schedule}
    made = dse.design(
        "gpt-3-13b",
        "selene",
        n_devices=32,
        tp=2,
        pp=4,
        virtual_stages=SCHEDULES[schedule],
        global_batch=64,
        any_option=True,
        **named,
    )
    uses = list(memory.memory_uses(schedule_step(made), made))
    most = max(uses, key=lambda use: use.total)
    metrics = evaluate(made)
    assert most.total == pytest.approx(float(metrics.peak_memory), rel=1e-6)
    for part, size in most.parts.items():
        assert size == pytest.approx(float(getattr(metrics, f"peak_memory_{part}")), rel=1e-6), part
    for device, own in itertools.groupby(uses, key=lambda use: use.device):
        own = list(own)
        assert all(one.time <= other.time for one, other in itertools.pairwise(own)), device
        assert own[-1].parts["activations"] == pytest.approx(0.0, abs=1.0), "all is freed"


def test_counters_of_memory_are_in_the_file(command, tmp_path):
    path = tmp_path / "step.json"
    assert command("-o", path)[0] == 0
    counted = [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "C"]
    assert {e["name"] for e in counted} == {"state and buffers, GB", "activations, GB", "memory, GB"}
    state = next(e["args"] for e in counted if e["name"] == "state and buffers, GB" and e["pid"] == 0)
    first = next(e["args"]["total"] for e in counted if e["name"] == "memory, GB" and e["pid"] == 0)
    assert first == pytest.approx(sum(state.values())), "nothing is in flight before the first forward"
