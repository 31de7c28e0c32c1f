"""What others wrote reaches no terminal raw: every command, over a hostile catalogue, table and results."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
import threading
from pathlib import Path

import netCDF4
import pytest
import typer
from hypothesis import given, settings, strategies as st
from rich.text import Text

from dse.cli import app
from dse.errors import visible
from dse.io import terminal
from dse.io.terminal import TerminalConsole, VisibleStream
from dse.reports import Column, Table
from dse.reports.terminal import print_table
from tests.conftest import slow
from tests.unit.measured import profiles

ROOT = Path(__file__).parents[3]

#: A title of the window, a colour, the same of 8 bits, a deletion, an overwritten line, a reversal, markup of rich.
HOSTILE = "\x1b]0;owned\x07\x1b[35mX\x9b5m\x7f\rY\u202e[bold]b[/bold][/none][link=https://host.example]l[/link]"

#: What standard output may hold besides what prints.
SPACES = "\n\t\u00a0\u202f"


def quoted(text: str = HOSTILE) -> str:
    """A text as a string of TOML and of JSON."""
    return json.dumps(text)


@pytest.fixture(scope="module")
def strangers(tmp_path_factory, request) -> Path:
    """A folder with what somebody else made: a catalogue, sweeps, tables, traces, logs, options of a tool."""
    folder = tmp_path_factory.mktemp("strangers")
    catalog = folder / "catalog"
    about = f'name = {quoted()}\nsource = {quoted()}\nnote = {quoted()}\nconfidence = "datasheet"\n'

    def write(name: str, text: str) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")

    rates = '[matrix_rate]\nbf16 = "1500 TFLOP/s"\n[memory]\ncapacity = "192 GiB"\nbandwidth = "6 TB/s"\n'
    write("catalog/accelerators/bad-chip.toml", f'{about}kernels = "hopper"\n{rates}')
    shape = "n_layers = 4\nhidden = 1024\nn_heads = 8\nffn_hidden = 4096\nvocab = 1000\nseq_len = 512\n"
    write("catalog/workloads/bad-model.toml", f"{about}family = {quoted()}\n{shape}global_batch = 16\n")
    cluster = (ROOT / "hw_catalog" / "systems" / "selene.toml").read_text(encoding="utf-8").split("\n", 4)[4]
    write("catalog/systems/bad-cluster.toml", about + cluster)
    write("broken/workloads/bad\x1b[35mslug.toml", f"{about}{quoted()} = 3\nn_layers = {quoted()}\n")
    sweep = (
        f'title = {quoted()}\n[workload]\nname = "bad-model"\n[system]\nname = "bad-chip"\nn_devices = 4\n[axes]\n'
        'accelerator = ["bad-chip", "h100"]\ntp = [1, 2]\n[objective]\nminimize = "step_time"\n'
    )
    write("sweep.toml", sweep)
    write("wrong.toml", sweep.replace("accelerator =", f"{quoted()} ="))
    write("search.toml", f'{sweep}[search]\nmethod = "random"\nevaluations = 4\nseeds = 1\n')
    pools = sweep.partition("[axes]")[0] + (
        '[serving]\nprompt_tokens = 64\noutput_tokens = 16\n[axes]\naccelerator = ["bad-chip", "h100"]\ntp = [1]\n'
        "[prefill.axes]\nconcurrency = [1]\n[decode.axes]\nconcurrency = [4]\n[together.axes]\nconcurrency = [2]\n"
        "[pools]\ntransfer = '25 GB/s'\nn_devices = 8\n"
    )
    write("pools.toml", pools)
    cell = '"' + HOSTILE.replace("\r", "").replace('"', '""') + '"'
    header = f"source,note,model,gpu,n_gpus,tp,pp,micro_batch,global_batch,seq_len,iteration_s_measured,{cell}\n"
    rest = "4,2,1,1,16,512,0.01,x\n"
    write("rows.csv", f"{header}{cell},{cell},bad-model,bad-chip,{rest}{cell},{cell},{cell},{cell},{rest}")
    log = profiles.torchtitan([500, 4000, 5700, 5800, 5750])
    write("run.log", log.replace("llama3 8B", f"llama3{HOSTILE}".replace("\r", "")))
    trace = json.loads(profiles.kineto())
    trace["traceEvents"] = [
        event | {"name": event["name"] + HOSTILE} if event.get("cat") == "kernel" else event
        for event in trace["traceEvents"]
    ]
    write("trace.json", json.dumps(trace))
    write("arguments.txt", f"--tensor-model-parallel-size 2 --unheard-of '{HOSTILE}' '--{HOSTILE}' 3")
    recipe = f"model: {{name: bad-model, {quoted()}: 3}}\ntensor_parallel_size: 2\n{quoted()}: {quoted()}\n"
    write("recipe.yaml", recipe)
    write("recipe.sh", f"# {HOSTILE}\nvllm serve bad-model -tp 2 '--{HOSTILE}' 3\n\x1b[35m 'open")
    write("config.json", json.dumps({"model_type": HOSTILE, "architectures": [HOSTILE]}))
    saved = os.environ.get("DSE_CATALOG")
    os.environ["DSE_CATALOG"] = str(catalog)
    request.addfinalizer(
        lambda: os.environ.pop("DSE_CATALOG") if saved is None else os.environ.update(DSE_CATALOG=saved)
    )
    for name, title in (("a", HOSTILE), ("b", f"another {HOSTILE}")):
        write(f"{name}.toml", sweep.replace(quoted(), quoted(title)))
        with pytest.raises(SystemExit) as ended:
            app(["run", str(folder / f"{name}.toml"), "-o", str(folder / f"{name}.nc"), "--no-figure", "--keep", "all"])
        assert not ended.value.code
    (folder / "damaged.nc").write_bytes((folder / "a.nc").read_bytes())
    with netCDF4.Dataset(folder / "damaged.nc", "a") as dataset:
        for name in dataset.ncattrs():
            if isinstance(dataset.getncattr(name), str):
                dataset.setncattr(name, HOSTILE)
    return folder


DESIGN = "-w bad-model -s bad-cluster --set tp=2"

#: Command → lines of it, with what strangers made.
LINES = {
    "evaluate": [DESIGN, f"{DESIGN} --json", "-w bad-model -s bad-chip --set tp=64",
                 "-w bad-model -s bad-chip --serving"],
    "serve": ["-w bad-model -s bad-chip"],
    "break-even": ["-w llama-3-8b --on bad-chip --on h100 --tpot 30ms --from 1 --to 2"],
    "read": ["arguments.txt --for megatron-lm -w bad-model -s bad-cluster -n 4",
             "arguments.txt --for megatron-lm --json",
             "recipe.yaml --for vllm -s bad-chip", "recipe.yaml", "recipe.sh", "config.json",
             "arguments.txt --for megatron-lm -w bad-model -s bad-cluster -n 4 -o again.txt --force"],
    "run": ["sweep.toml --no-figure -o run.nc --force", "wrong.toml"],
    "search": ["search.toml --no-figure -o search.nc --force"],
    "decide": ["bad-chip h100 -w bad-model --set n_devices=2", "a.nc"],
    "predict": ["rows.csv -o predicted.csv --force"],
    "posttrain": ["-w bad-model -s bad-chip -n 4 --prompts 4 --samples 2 --isl 64 --osl 32"],
    "plan": ["-w bad-model --on bad-chip --in 30d --tokens 1M --max-devices 2",
             "-w bad-model --on bad-chip --serving --rate 1 --ttft 1s --tpot 50ms --max-devices 2"],
    "pools": ["pools.toml", "pools.toml --json", "pools.toml --for vllm"],
    "simulate": ["-w bad-model -s bad-chip --set concurrency=2 --set prompt_tokens=64 --set output_tokens=8"],
    "validate": ["rows.csv", "rows.csv --json", "run.log --profile -s bad-chip -w bad-model"],
    "calibrate": ["rows.csv -o fit.toml --force", "--add rows.csv -o added.toml --force"],
    "diagnose": ["trace.json -w bad-model -s bad-chip --set global_batch=16 --set seq_len=512", "run.log"],
    "measure": ["bad-chip h100 -w bad-model --on bad-chip --set n_devices=2"],
    "plot": ["a.nc -o figure.png --force", "damaged.nc"],
    "report": ["a.nc -o report.html --force", "damaged.nc -o damaged.html"],
    "page": [f"{DESIGN} -o page.html --force"],
    "diff": ["a.nc b.nc", "a.nc b.nc --json", "a.nc damaged.nc"],
    "trace": [f"{DESIGN} -o timeline.json --force"],
    "launch": [f"{DESIGN} --for megatron-lm", f"{DESIGN} --for megatron-lm --arguments arguments.txt",
               f"{DESIGN} --for megatron-lm --arguments arguments.txt --json"],
    "list": [f"leaves {HOSTILE!r}", "leaves memory"],
    "catalog list": ["", "--folder broken"],
    "catalog show": ["bad-chip", "bad-model", "bad-cluster --kind system", "bad-chip --json", f"{HOSTILE!r}"],
    "catalog check": ["", "--folder broken"],
    "catalog from-config": ["config.json -o made.toml"],
    "examples": [""],
    "examples show": ["megatron_1t_4096_a100"],
    "merge": ["a.nc", "damaged.nc"],
}  # fmt: skip

#: Servers answer programs, and bench knows no file of others.
ELSEWHERE = {"serve-api", "mcp", "bench"}

#: Commands that take seconds.
LONG = {"posttrain", "plan", "measure", "decide", "simulate", "search", "page", "plot"}


def names(group=None, path: str = "") -> set[str]:
    """Every command by its words."""
    group = group or typer.main.get_command(app)
    found = set()
    for name, command in group.commands.items():
        words = f"{path} {name}".strip()
        found |= names(command, words) if hasattr(command, "commands") else {words}
        found |= {words} if getattr(command, "invoke_without_command", False) else set()
    return found


def words_of(line: str) -> list[str]:
    """Words of a line; the hostile text is one."""
    return [HOSTILE if word == repr(HOSTILE) else word for word in line.split()]


def raw(text: str) -> str:
    """Characters that a terminal would obey or hide."""
    return "".join(sorted({c for c in text if not c.isprintable() and c not in SPACES}))


def test_every_command_is_walked():
    assert names() - ELSEWHERE == set(LINES)


@pytest.mark.parametrize(
    "line",
    [
        case(f"{name} {line}".strip())
        for name, lines in LINES.items()
        for case in [slow if name in LONG else str]
        for line in lines
    ],
)
def test_no_command_prints_what_a_terminal_obeys(line, strangers, monkeypatch, capsys):
    monkeypatch.chdir(strangers)
    with pytest.raises(SystemExit) as ended:
        app(words_of(line), prog_name="dse")
    printed = capsys.readouterr()
    assert ended.value.code in (0, 1, 2, None), printed.err
    assert raw(printed.out) == raw(printed.err) == "", line
    assert "Traceback" not in printed.err
    if "--json" in line:
        json.loads(printed.out)


@pytest.mark.parametrize(
    "line",
    [
        "catalog show bad-chip",
        "catalog show bad-model",
        "catalog check --folder broken",
        "run a.toml -o a.nc --no-figure",
        "validate rows.csv",
        "launch -w bad-model -s bad-cluster --for megatron-lm --arguments arguments.txt",
        "read arguments.txt --for megatron-lm -w bad-model -s bad-cluster -n 4",
        slow("pools pools.toml"),
    ],
)
def test_what_strangers_wrote_is_shown_escaped(line, strangers, monkeypatch, capsys):
    """The walk above would hold of commands that print nothing of it."""
    monkeypatch.chdir(strangers)
    with pytest.raises(SystemExit):
        app(words_of(line), prog_name="dse")
    printed = capsys.readouterr()
    assert "\\x1b[35mX\\x9b5m\\x7f" in (printed.out + printed.err).replace("\n", "")


@pytest.mark.parametrize("words", [slow("catalog show bad-chip"), "run sweep.toml -o terminal.nc --no-figure"])
def test_a_terminal_gets_colours_of_dse_alone(words, strangers):
    """With a progress bar, whose console would decode codes of what is printed beside it."""
    main, other = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "200", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "dse", *words.split()]
    with subprocess.Popen(command, cwd=strangers, env=environment, stdout=other, stderr=other, stdin=other) as process:
        os.close(other)
        printed = b""
        while chunk := _read(main):
            printed += chunk
    os.close(main)
    text = printed.decode()
    assert process.returncode == 0, text
    assert "\x1b[1m" in text, "headings are bold"
    assert "\\x1b[35mX" in text and not raw(text.replace("\x1b", "").replace("\r", ""))
    assert not {code for code in ("\x1b[35m", "\x1b]", "\u202e", "\rY") if code in text}


def _read(number: int) -> bytes:
    """What a terminal gets next; nothing at its end."""
    try:
        return os.read(number, 1 << 16)
    except OSError:  # the other side is closed
        return b""


@settings(max_examples=20)
@given(st.text())
def test_all_that_is_printed_prints(text):
    """Texts of any characters, by every way to print: a stream, a console, a table of it, an error."""
    for print_it in (_by_stream, _by_console, _by_table):
        printed = print_it(text)
        assert all(c.isprintable() or c in terminal.LAYOUT for c in printed)
        printed.encode()  # lone surrogates are escaped too
    assert visible(text).isprintable()
    assert visible(text) == text or not text.isprintable()


def _by_stream(text: str) -> str:
    out = io.StringIO()
    print(text, file=VisibleStream(out))
    return out.getvalue()


def _by_console(text: str) -> str:
    out = io.StringIO()
    console = TerminalConsole(file=out, width=80)
    console.print(text)
    console.print(Text(text), soft_wrap=True)
    return out.getvalue()


def _by_table(text: str) -> str:
    out = io.StringIO()
    table = Table("table", [Column("name", "name", left=True), Column(text, "value")], [{"name": text, "value": 1}])
    print_table(TerminalConsole(file=out, width=80), table)
    return out.getvalue()


def test_text_of_people_is_left_as_it_is():
    """Letters of any script, units, spaces that do not break, boxes; an escaped text stays."""
    text = "Größe 10 µs, 1 024 GB/s\u00a0– 東京 ✓ █\n\tnext \\x1b"
    assert _by_stream(text) == f"{text}\n"
    assert visible("a\u00a0b") == "a\\xa0b", "an error shows what was got"


def test_what_a_bar_redirects_is_filtered_first(monkeypatch):
    """Rich replaces standard output while a bar is drawn, and reads colours in what is printed."""
    from dse.sweep.progress import bar_on_standard_error

    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    out, err = Screen(), Screen()
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    with terminal.filtered_output():
        with bar_on_standard_error() as bar:
            bar.add_task(f"[red]{HOSTILE}")
            print(HOSTILE)
            sys.stderr.write(f"{HOSTILE}\n")
        assert sys.stdout.unfiltered is out
    assert sys.stdout is out and sys.stderr is err
    both = out.getvalue() + err.getvalue()
    assert "\\x1b[35mX" in both and "[red]" in both
    assert not {code for code in ("\x1b[35m", "\x1b]", "\u202e", "\x9b", "\x07") if code in both}


def test_what_an_interrupted_command_says_is_filtered(monkeypatch):
    """Names of files, which need not be text: what could not be encoded left the process running."""
    from dse.io import interruption

    written = []

    def ended(status):
        raise SystemExit(status)

    monkeypatch.setattr(interruption, "_results_text", lambda: "; \udcff\x1b]0;owned\x07.nc is complete")
    monkeypatch.setattr(interruption, "_changing", threading.RLock())  # what ends a process keeps it
    monkeypatch.setattr(interruption, "_stop_children", lambda: None)
    monkeypatch.setattr(interruption.os, "write", lambda number, text: written.append(text))
    monkeypatch.setattr(interruption.os, "dup2", lambda *numbers: None)
    monkeypatch.setattr(interruption.os, "isatty", lambda number: False)
    monkeypatch.setattr(interruption.os, "_exit", ended)
    with pytest.raises(SystemExit):
        interruption._stop(interruption.signal.SIGINT)
    assert written == [b"interrupted; \\udcff\\x1b]0;owned\\x07.nc is complete\n"]
