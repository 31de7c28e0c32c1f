"""The command line: exit status, errors in four parts, JSON alone on standard output, interruption."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import pytest
import typer

import dse
from dse.cli import app
from dse.cli.status import report_errors
from dse.errors import Notice
from dse.io import quantity
from tests.conftest import slow

EVALUATE = ["evaluate", "-w", "gpt-3-13b", "-s", "selene"]
CASES = """
source,model,gpu,n_gpus,tp,pp,dp,micro_batch,global_batch,seq_len,precision,recompute,iteration_ms_measured
Narayanan2021,gpt-3-13b,A100-SXM-80GB,16,8,1,2,1,64,2048,fp16,full,6000
Narayanan2021,unheard-of,A100-SXM-80GB,16,8,1,2,1,64,2048,fp16,full,6000
""".lstrip()


class Ended(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str


@pytest.fixture
def command(capsys):
    """Runs a command in this process."""

    def run(*arguments: object) -> Ended:
        with pytest.raises(SystemExit) as ended:
            app(list(map(str, arguments)), prog_name="dse")
        return Ended(ended.value.code or 0, *capsys.readouterr())

    return run


def assert_four_parts(ended: Ended, *wanted: str) -> None:
    """Bad input: status 2, nothing on standard output, where, got, allowed and fix on the other; no traceback."""
    assert ended.status == 2, ended.err
    assert ended.out == ""
    lines = [line.split(maxsplit=1) for line in ended.err.strip().splitlines()]
    assert [line[0] for line in lines] == ["error", "where", "got", "allowed", "fix"], ended.err
    assert all(len(line) == 2 for line in lines[1:])
    for text in wanted:
        assert text in ended.err


# --- start -------------------------------------------------------------------------------------------------


def test_starts_without_the_slow_imports():
    slow = ("jax", "numpy", "xarray", "matplotlib", "pydantic")
    code = f"import sys, dse.cli; print([name for name in {slow} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_and_version(command):
    assert all(name in command("--help").out for name in ("run", "evaluate", "predict", "validate", "catalog", "plot"))
    assert command("--version").out == f"dse {dse.__version__}\n"


def test_what_dse_notes_is_one_line_on_standard_error(capsys):
    def noting():
        warnings.warn("note: slower than usual", Notice, stacklevel=1)

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        report_errors(noting)()
    assert capsys.readouterr() == ("", "note: slower than usual\n")


def commands(group=None, path=()):
    """(words, command) of every command."""
    group = group or typer.main.get_command(app)
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


@pytest.mark.parametrize("width", [40, slow(60), slow(80), 200])
def test_help_shows_defaults_and_loses_no_name(command, monkeypatch, width):
    """Every option of every command: its name whole, and its default where it is no switch that is off."""
    monkeypatch.setenv("COLUMNS", str(width))
    for words, known in commands():
        text = command(*words, "--help").out
        told = " ".join(text.split())
        for option in known.params:
            if option.param_type_name != "option":
                continue
            assert all(name in text for name in option.opts), (words, option.opts)
            section = told.split(f" {option.opts[0]}", 1)[1].split(" --", 1)[0]
            if not option.is_flag and not option.required and not option.multiple:
                assert "[default: " in section, (words, option.opts)
    summaries = command("--help").out.partition("Ask:")[2]
    assert summaries and ("..." not in summaries or width < 80), "a summary that is cut off"


def test_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "dse", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"dse {dse.__version__}\n"


def test_help_has_five_panels_with_every_command(command):
    """In the order of their panels, each once."""
    text = command("--help").out.partition("\nAsk:")[2]
    panels = dict(re.findall(r"^(\w[\w ]*):\n((?:  .*\n)+)", f"Ask:{text}", re.MULTILINE))
    assert [*panels] == ["Ask", "Serve", "Compare with reality", "Show", "Manage"]
    listed = [line.split()[0] for rows in panels.values() for line in rows.splitlines() if line[2] != " "]
    assert sorted(listed) == sorted(typer.main.get_command(app).commands) and len(listed) == 29


SEVERAL = ["tp=8,pp=2", "tp=8, pp=2", "tp=8;pp=2", "tp=8 pp=2", "tp=8 , pp = 2"]


@pytest.mark.parametrize("text", SEVERAL)
@pytest.mark.parametrize(
    "line",
    [
        "evaluate -w llama-3-8b -s h100 --set", "trace -w llama-3-8b -s h100 -o t.json --set",
        "simulate -w llama-3-8b -s h100 --set", "launch -w llama-3-8b -s h100 --for megatron-lm --set",
        "page -w llama-3-8b -s h100 -o p.html --set", "decide h100 b200 -w llama-3-8b --set",
        "measure h100 b200 -w llama-3-8b --on h100 --set", "validate run.log --profile --set",
        "calibrate run.log --profile -o f.toml --set", "diagnose trace.json -w llama-3-8b --set",
        "posttrain -w llama-3-8b -s h100 -n 16 --train", "posttrain -w llama-3-8b -s h100 -n 16 --rollout",
    ],
)  # fmt: skip
def test_several_settings_in_one_are_told_to_repeat_the_option(command, line, text, tmp_path, monkeypatch):
    """Joined by whatever, and as further words of the command line."""
    monkeypatch.chdir(tmp_path)
    *words, option = line.split()
    repeated = f"repeat {option}: {option} tp=8 {option} pp=2"
    assert_four_parts(command(*words, option, text), repeated)
    if words[0] not in ("decide", "measure"):  # whose designs are NAME=VALUE themselves
        assert_four_parts(command(*words, option, "tp=8", "pp=2"), repeated)
        assert_four_parts(command(*words, f"{option}=tp=8", "pp=2"), repeated)
    else:
        assert_four_parts(command(*words, option, "tp=8", "pp=2"), "repeat --set: --set pp=2")
    assert not [*tmp_path.iterdir()]


def test_commas_within_a_value_are_its_own(tmp_path):
    """Remarks with equality signs, and files whose names have one."""
    from dse.capabilities.tables import RunCells
    from dse.reports.settings import check_one_per_option, split_setting

    assert split_setting("precision=fp8, delayed", "--set") == ("precision", "fp8, delayed")
    assert split_setting("memory.bandwidth = 6,5 TB/s", "--set") == ("memory.bandwidth", "6,5 TB/s")
    cells = ["note=run 3, tp=2 of two", "framework=vLLM 0.6, commit=abc"]
    assert RunCells(settings=cells).cells() == dict(one.split("=", 1) for one in cells)
    file = tmp_path / "run=3.log"
    file.touch()
    check_one_per_option("dse validate", ["--profile", "--set", "tp=8", str(file)], ["--set"])
    check_one_per_option("dse evaluate", ["--set", "tp=8", "--set", "pp=2", "--", "a=b"], ["--set"])


@pytest.mark.parametrize("arguments", [["run"], ["evaluate"], ["nonsense"], ["run", "a.toml", "--chunk", "many"]])
def test_wrong_usage(command, arguments):
    ended = command(*arguments)
    assert ended.status == 2 and ended.out == "" and "  allowed " in ended.err


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("list leaf", ["dse list kind", "'leaf'", "did you mean 'leaves'?"]),
        ("list accelerators", ["dse catalog list accelerator"]),
        ("plot x.nc --kind paretto", ["dse plot --kind", "'paretto'", "did you mean 'pareto'?"]),
        ("evaluate -w gpt-3-13b -s selene -n 1k", ["dse evaluate --n-devices", "'1k'", "a whole number"]),
        ("search x.toml --seconds 1m", ["dse search --seconds", "'1m'", "allowed a number"]),
        ("calibrate x.csv -o y.toml --folds 30", ["--folds", "'30'", "at most 20", "check the number"]),
        ("evaluate -w gpt-3-13b -s selene --tp 8", ["no such option: --tp", "did you mean --set tp=…?"]),
        ("evaluate -w gpt-3-13b -s selene --tensor-parallel-size 8", ["did you mean --set tp=…?"]),
        ("evaluate -w gpt-3-13b -s selene --gpus 8", ["did you mean --n-devices?"]),
        ("evaluate -w gpt-3-13b -s selene --sevring", ["did you mean --serving?"]),
        ("evaluate -s selene", ["--workload", "dse catalog list workload lists the names"]),
        ("trace -w gpt-3-13b -s selene --set concurrency=4 -o t.json", ["concurrency", "a trace is one of a training"]),
        ("launch -w gpt-3-13b -s selene --set concurrency=4 --for megatron-lm", ["--for sglang, tensorrt-llm, vllm"]),
    ],
)
def test_what_a_command_does_not_take_is_told_with_what_it_does(command, line, wanted):
    ended = command(*line.split())
    assert_four_parts(ended, *(text for text in wanted if "allowed" not in text))
    assert all(" ".join(text.split()) in " ".join(ended.err.split()) for text in wanted)


# --- evaluate ----------------------------------------------------------------------------------------------


def test_evaluate(command):
    ended = command(*EVALUATE, "--set", "tp=8", "--set", "dp=2", "--set", "recompute=full", "--show", "all")
    assert ended.status == 0 and ended.err == ""
    for text in (
        "step time",
        "peak memory",
        "ffn up",
        "compute",
        "elasticity",
        "1 % more",
        "GiB of 78.0 GiB",
        "fwd+bwd work",
        "fwd+bwd traffic",
    ):
        assert text in ended.out
    assert "gpt-3-13b on selene, megatron-2022 (default of selene), bf16\n" in ended.out


def test_without_a_matrix_rate_no_times_are_told(command):
    ended = command(*EVALUATE, "--set", "tp=8", "--set", "precision=fp4")
    assert ended.status == 1 and "no matrix units for this precision" in ended.out
    assert "set precision to one of fp32, tf32, bf16, fp16, int8" in ended.out and "step time" not in ended.out


def test_evaluate_prints_json_alone(command):
    ended = command(
        *EVALUATE,
        "--set",
        "tp=8",
        "--set",
        "n_devices=16",
        "--set",
        "software=megatron-core-te",
        "--set",
        "memory.bandwidth=3 TB/s",
        "--set",
        "sequence_parallel=true",
        "--json",
    )
    document = json.loads(ended.out)
    assert ended.status == 0 and ended.err == ""
    assert document["design"]["mapping.dp"] == 2.0
    assert document["design"]["mapping.sequence_parallel"] == 1.0
    assert document["design"]["system.accelerator.memory.bandwidth"] == 3e12
    assert document["design"]["software.attention"] == 1.0
    assert document["metrics"]["step_time"] > 0 and document["elasticities"]


@pytest.mark.parametrize(("text", "value"), [("yes", 1.0), ("No", 0.0), ("true", 1.0), ("false", 0.0), ("1", 1.0)])
def test_switches_are_set_as_tables_print_them(command, text, value):
    ended = command(*EVALUATE, "--set", "tp=8", "--set", f"overlap_tp={text}", "--any-option", "--json")
    assert json.loads(ended.out)["design"]["mapping.overlap_tp"] == value


def test_evaluate_tells_why_not(command):
    ended = command(*EVALUATE, "-n", 1)
    assert ended.status == 1
    assert "peak memory exceeds the device's capacity: needs" in ended.out and "of 78.0 GiB" in ended.out


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["-w", "gpt-3-175c", "-s", "selene"], ["'gpt-3-175c'", "gpt-3-175b"]),
        (["-w", "gpt-3-13b", "-s", "selena"], ["'selena'", "selene"]),
        (["-w", "gpt-3-13b", "-s", "selene", "--software", "megatron-2202"], ["where   software", "megatron-2022"]),
        (["-w", "gpt-3-13b", "-s", "selene", "--set", "micro_bach=2"], ["'micro_bach'", "micro_batch"]),
        (["-w", "gpt-3-13b", "-s", "selene", "--set", "recompute=ful"], ["recompute", "full"]),
        (["-w", "gpt-3-13b", "-s", "selene", "--set", "memory.bandwidth=3 TB"], ["memory.bandwidth", "'3 TB'", "B/s"]),
        (["-w", "gpt-3-13b", "-s", "selene", "--set", "bandwidth=3 TB/s"], ["memory.bandwidth"]),
        (["-w", "gpt-3-13b", "-s", "selene", "--set", "tp"], ["'tp'", "NAME=VALUE"]),
        (["-w", "gpt-3-13b", "-s", "selene", "--set", "n_devices=8.5"], ["n_devices", "8.5"]),
        (["-w", "gpt-3-13b", "-s", "selene", "--set", "tp=8", "-n", "12"], ["n_devices", "12"]),
        (["-w", "gpt-3-13b", "-s", "selene", "--metric", "step_tim"], ["step_time"]),
        (["-w", "gpt-3-13b", "-s", "selene", "--set", "tp=8", "--set", "mapping.tp=4"], ["mapping.tp twice", "tp=8"]),
        (["-w", "gpt-3-13b", "-s", "selene", "-n", "8", "--set", "n_devices=16"], ["n_devices twice"]),
        (["-w", "gpt-3-13b", "-s", "selene", "--set", "run_tokens=15T"], ["'15T'", "a plain number", "write 15e12"]),
        (["-w", "gpt-3-13b", "-s", "selene", "--set", "tp=x"], ["a plain number", "write a number without a unit"]),
        (["-w", "gpt-3-13b", "-s", "selene", "--set", "recompute=yes"], ["recompute", "full"]),
    ],
)
def test_evaluate_with_bad_input(command, arguments, wanted):
    assert_four_parts(command("evaluate", *arguments), *wanted)


# --- run ---------------------------------------------------------------------------------------------------


def test_run(command, small_sweep, tmp_path):
    ended = command("run", small_sweep, "-o", tmp_path / "out" / "r.nc")
    assert ended.status == 0
    for text in ("44 designs", "best by step time", "5.82", "recomp %", "feasible: 16 of 44 designs", "designs/s"):
        assert text in ended.out
    assert "peak memory exceeds" in ended.out, "reasons are words"
    assert re.search(r"\n44 designs, [\d,]+ designs/s, [\d.]+ s in all\n", ended.out), "one figure of rate and time"
    again = command("run", small_sweep, "-o", tmp_path / "out" / "r.nc", "--show", "seconds").out
    for name in ("import", "trace", "compile", "run", "write"):
        assert f"{name} " in again.splitlines()[-6]
    *lines, more = ended.out.splitlines()
    assert more == "more: --show all, or some of reasons, seconds"
    assert lines[-3:] == [str(tmp_path / "out" / f"r.{ending}") for ending in ("nc", "png", "svg")]
    assert dse.open_results(tmp_path / "out" / "r.nc").sizes["mapping"] == 44
    assert (tmp_path / "out" / "r.png").stat().st_size > 10_000
    assert not (tmp_path / "out" / "r.nc.parts").exists()


def test_a_grid_of_machines_has_its_figures_and_those_of_the_model_the_same_again(command, small_sweep, tmp_path):
    text, output, drawn = small_sweep.read_text().replace("global_batch = 64\n", ""), tmp_path / "r.nc", []
    small_sweep.write_text(text.replace("[axes]\n", "[axes]\nglobal_batch = [64, 128]\n"))
    for _ in range(2):
        ended = command("run", small_sweep, "-o", output, "--fresh", "--json", "--keep", "best")
        figures = json.loads(ended.out)["figures"]
        drawn.append({path: Path(path).read_bytes() for path in figures})
    assert str(tmp_path / "r_bounds.svg") in figures and drawn[0] == drawn[1]


def test_closed_outputs_a_strange_backend_and_a_broken_matplotlib_end_in_no_traceback(small_sweep, tmp_path):
    broken = tmp_path / "broken" / "matplotlib"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('it is broken', name='matplotlib._path')")
    paths = os.pathsep.join(filter(None, [str(broken.parent), os.environ.get("PYTHONPATH")]))
    for given, shell, status in (({"MPLBACKEND": "nonsense"}, ">&- 2>&- <&-", 0), ({"PYTHONPATH": paths}, "", 2)):
        whole = os.environ | given
        line = f"exec {shlex.quote(sys.executable)} -m dse run {shlex.quote(str(small_sweep))} -o r.nc --fresh {shell}"
        ended = subprocess.run(["sh", "-c", line], cwd=tmp_path, env=whole, capture_output=True, text=True)
        assert ended.returncode == status and "Traceback" not in ended.stderr, ended.stderr
        assert ("it is broken" in ended.stderr) == ("feasible: 16 of 44 designs" in ended.stdout) == (status == 2)
        assert (tmp_path / "r.nc").exists() and (tmp_path / "r.png").exists()


def test_one_design_is_told_in_the_singular_and_drawn(command, small_sweep, tmp_path):
    """The best of one machine has no label at all: its figure is drawn without the table beside the bars."""
    one = "[axes]\ntp = [8]\npp = [1]\nrecompute = ['full']\n\n["
    small_sweep.write_text(re.sub(r"\[axes\].*?\n\[", one, small_sweep.read_text(), flags=re.S))
    for keep in ("all", "best"):
        ended = command("run", small_sweep, "-o", tmp_path / "r.nc", "--keep", keep)
        assert ended.status == 0, ended.err
        assert "1 mapping = 1 design, keeping" in ended.out and "feasible: 1 of 1 design" in ended.out
        assert not re.search(r"\b1 designs\b(?!/)", ended.out) and (tmp_path / "r.png").exists()


_ONE = ["--set", "concurrency=1", "--set", "osl=1", "--set", "cache_bytes=1", "--set", "chunk=1"]
_DRAFT = [*_ONE[:-1], "chunk=2", "--set", "drafts=1"]  # a step of one token holds no sequence with a draft


@pytest.mark.parametrize(
    "words",
    [
        ["evaluate", "-w", "llama-3-8b", "-s", "h100", "-n", 1, "--serving", *_ONE],
        ["evaluate", "-w", "bert-base", "-s", "h100", "-n", 1, "--set", "global_batch=1"],
        ["launch", "-w", "llama-3-8b", "-s", "h100", "-n", 1, "--for", "vllm", *_DRAFT],
        [
            "plan",
            "-w",
            "bert-base",
            "--tokens",
            "1e9",
            "--in",
            "300d",
            "--on",
            "h100",
            "--max-devices",
            8,
            "--global-batch",
            1,
        ],
    ],
    ids=lambda words: words[0],
)
def test_one_of_anything_is_told_in_the_singular(command, words):
    ended = command(*words)
    assert ended.status == 0, ended.err
    nouns = "devices|requests|tokens|sequences|drafts|bytes|layers|nodes"
    assert not re.search(rf"(?<![\d.,])1 (\w+ )?({nouns})\b(?!/)", ended.out), ended.out


def test_run_tells_what_the_stack_lacks(command, small_sweep, tmp_path):
    text = small_sweep.read_text().replace("any_option = true", "")
    small_sweep.write_text(text)
    arguments = ["run", small_sweep, "-o", tmp_path / "r.nc", "--no-figure"]
    ended = command(*arguments)
    assert ended.status == 0 and "24 designs" in ended.out
    assert "megatron-2022 lacks overlap_dp yes: left out (--any-option offers everything)" in ended.out
    whole = command(*arguments, "--any-option")
    assert whole.status == 0 and "44 designs" in whole.out and "lacks" not in whole.out
    assert json.loads(command(*arguments, "--json").out)["lacks"].startswith("megatron-2022 lacks overlap_dp")


def test_evaluate_tells_what_the_stack_lacks(command):
    asked = [*EVALUATE, "--set", "tp=8", "--set", "recompute=full", "--set", "overlap_tp=true"]
    ended = command(*asked)
    assert ended.status == 1 and "overlap_tp 1 of at most 0 (--any-option allows it)" in ended.out
    assert command(*asked, "--any-option").status == 0


def test_shards_with_any_option_merge(command, small_sweep, tmp_path):
    small_sweep.write_text(small_sweep.read_text().replace("any_option = true", ""))
    output = tmp_path / "r.nc"
    for shard in ("1/2", "2/2"):
        assert command("run", small_sweep, "-o", output, "--chunk", 4, "--any-option", "--shard", shard).status == 0
    merged = command("merge", output, "--no-figure")
    assert merged.status == 0 and "feasible: 16 of 44 designs" in merged.out


def test_run_prints_json_alone(command, small_sweep, tmp_path):
    ended = command("run", small_sweep, "-o", tmp_path / "r.nc", "--json", "--no-figure", "--fresh", "--chunk", 16)
    document = json.loads(ended.out)
    assert ended.status == 0
    assert (document["n_designs"], document["n_feasible"], document["figures"]) == (44, 16, [])
    assert document["best"][0]["labels"]["tp"] == 2
    assert {"import", "trace", "compile", "run", "write"} <= set(document["seconds"])


def test_a_finished_sweep_is_shown_again(command, small_sweep, tmp_path):
    arguments = ["run", small_sweep, "-o", tmp_path / "r.nc"]
    first = command(*arguments)
    (tmp_path / "r.png").unlink()
    again = command(*arguments)
    assert again.status == 0 and "computed by a run on 20" in again.out and "--fresh" in again.out
    told, told_again = (out.partition("\n44 designs, ")[0] for out in (first.out, again.out))
    assert told == told_again
    assert (tmp_path / "r.png").exists()
    assert "computed by a run" not in command(*arguments, "--fresh", "--no-figure").out


def test_a_finished_sweep_is_shown_where_nothing_can_be_written(command, small_sweep, tmp_path, monkeypatch):
    """The same table, no figures, nothing changed; what is not finished is refused."""
    arguments = ["run", small_sweep, "-o", tmp_path / "r.nc"]
    first = command(*arguments, "--no-figure")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode, **more: not mode & os.W_OK and access(path, mode, **more))
    again = command(*arguments)
    assert again.status == 0 and "no figures: a folder without write permission" in again.err, again.err
    told, told_again = (out.partition("\n44 designs")[0] for out in (first.out, again.out))
    assert told == told_again and "computed by a run on 20" in again.out
    assert json.loads(command(*arguments, "--json").out)["n_feasible"] == 16
    assert_four_parts(command("merge", tmp_path / "r.nc"), "a folder without write permission")
    for other in (["--fresh"], ["--keep", "best"], ["-o", tmp_path / "other.nc"]):
        ended = command(*arguments, *other)
        assert ended.status == 2 and "a folder without write permission" in ended.err, other
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_shards_and_merge(command, small_sweep, tmp_path):
    output = tmp_path / "r.nc"
    arguments = ["run", small_sweep, "-o", output, "--chunk", 4, "--shard"]
    assert_four_parts(command("merge", output), "no parts")
    assert_four_parts(command("merge", small_sweep), "small.toml", "the results file of the shards")
    first = command(*arguments, "1/2")
    assert first.status == 0 and f"shard 1/2; when all shards have run: dse merge {output}" in first.out
    assert_four_parts(command("merge", output), "r.nc", "missing shard")
    assert json.loads(command(*arguments, "2/2", "--json").out)["shard"] == "2/2"
    merged = command("merge", output)
    assert merged.status == 0 and "feasible: 16 of 44 designs" in merged.out
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        "r.nc",
        "r.nc.dse.json",
        "r.png",
        "r.svg",
        "small.toml",
    ]
    for wrong in ("3/2", "0/2", "1", "a/b"):
        assert_four_parts(command(*arguments, wrong), "--shard", repr(wrong))


def test_run_with_nothing_feasible(command, small_sweep, tmp_path):
    small_sweep.write_text(small_sweep.read_text().replace("tp = [1, 2, 8]", "tp = [1]"))
    ended = command("run", small_sweep, "-o", tmp_path / "r.nc")
    assert ended.status == 1
    assert "0 of " in ended.out and "peak memory exceeds" in ended.out and "best by" not in ended.out
    assert (tmp_path / "r.nc").exists() and not (tmp_path / "r.png").exists()


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ("tp = [1, 2, 8]", "tpp = [1, 2, 8]", ["axes", "'tpp'", "tp"]),
        ("tp = [1, 2, 8]", "tp = [1, 3]", ["axes.tp", "3"]),
        ("tp = [1, 2, 8]", 'memory.bandwidth = ["2 TB"]', ["'2 TB'", "B/s"]),
        ("tp = [1, 2, 8]", "tp = [1, 2", ["TOML"]),
        ('"gpt-3-13b"', '"gpt-3-175c"', ["'gpt-3-175c'", "gpt-3-175b"]),
        ("step_time", "step_tme", ["objective", "step_time"]),
    ],
)
def test_run_with_bad_input(command, small_sweep, tmp_path, old, new, wanted):
    small_sweep.write_text(small_sweep.read_text().replace(old, new))
    assert_four_parts(command("run", small_sweep, "-o", tmp_path / "r.nc"), *wanted)
    assert list(tmp_path.iterdir()) == [small_sweep], "nothing was written"


def test_run_of_a_missing_file(command, small_sweep):
    assert_four_parts(command("run", small_sweep.with_name("smal.toml")), "small.toml")


def test_run_into_a_place_that_cannot_be_written(command, small_sweep, tmp_path):
    (tmp_path / "file").write_text("")
    ended = command("run", small_sweep, "-o", tmp_path / "file" / "r.nc")
    assert ended.status == 2 and "Traceback" not in ended.err
    assert all(part in ended.err for part in ("where", "got", "allowed", "fix", "r.nc"))


@pytest.mark.filterwarnings("ignore::dse.errors.Notice")  # of the same file, where another entry is read first
def test_run_with_a_truncated_catalogue(command, small_sweep, tmp_path, monkeypatch):
    whole = dse.catalog.catalog_root() / "workloads" / "gpt-3-13b.toml"
    own = tmp_path / "own" / "workloads" / whole.name
    own.parent.mkdir(parents=True)
    own.write_text(whole.read_text()[:-40])
    monkeypatch.setenv("DSE_CATALOG", str(tmp_path / "own"))
    ended = command("run", small_sweep, "-o", tmp_path / "r.nc")
    assert_four_parts(ended, "gpt-3-13b.toml")


#: A sweep whose every block takes long; SIGINT is put back as it is in a terminal.
SLOW = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from dse.sweep.store.parts import PartStore
save = PartStore.save
def slow(self, block, part):
    save(self, block, part)
    time.sleep(0.5)
PartStore.save = slow
sys.argv[0] = "dse"
from dse.__main__ import main
main()
"""


def test_interruption_keeps_what_is_finished(command, small_sweep, tmp_path):
    output = tmp_path / "r.nc"
    arguments = ["run", str(small_sweep), "-o", str(output), "--chunk", "4"]
    running = subprocess.Popen(
        [sys.executable, "-c", SLOW, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    parts = Path(f"{output}.parts")
    deadline = time.monotonic() + 60
    while len(list(parts.glob("*.npz"))) < 2 and time.monotonic() < deadline and running.poll() is None:
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    assert "Traceback" not in err and "interrupted after" in err and str(parts) in err.replace("\n", "")
    assert not output.exists() and len(list(parts.glob("*.npz"))) >= 2
    ended = command(*arguments, "--json", "--no-figure")
    assert ended.status == 0
    document = json.loads(ended.out)
    assert 0 < document["resumed"] < document["n_designs"] == 44
    assert output.exists() and not parts.exists()


def piped(arguments, to_both=False):
    """(exit status, standard error) of a command whose reader goes before it prints."""
    reading, writing = os.pipe()
    os.close(reading)
    with tempfile.TemporaryFile("w+") as told:
        running = subprocess.run(
            [sys.executable, "-m", "dse", *map(str, arguments)],
            stdout=writing,
            stderr=writing if to_both else told,
            check=False,
        )
        os.close(writing)
        told.seek(0)
        return running.returncode, told.read()


@pytest.mark.parametrize(
    "arguments", [["catalog", "list"], ["--help"], [], ["run", "--help"], ["list", "leaves", "--json"]], ids=" ".join
)
def test_a_command_whose_reader_has_gone_ends_quietly(arguments):
    """As SIGPIPE ends others: a shell with pipefail must not take it for done."""
    assert piped(arguments) == (141, "")


@pytest.mark.parametrize("options", [[], slow(["--json"])], ids=str)
def test_a_difference_that_nobody_reads_is_no_answer(small_results, options):
    """Neither 0 for the same nor 1 for another."""
    assert piped(["diff", small_results[1], small_results[1], *options]) == (141, "")


@pytest.mark.parametrize("to_both", [False, slow(True)])
def test_an_error_is_told_on_the_other_stream_unless_that_has_gone_too(small_results, to_both):
    status, told = piped(["diff", small_results[1], "absent.nc"], to_both)
    assert status == 141 if to_both else status == 2 and "no such file" in told


# --- predict, validate -------------------------------------------------------------------------------------


@pytest.fixture
def cases(tmp_path) -> Path:
    path = tmp_path / "cases.csv"
    path.write_text(CASES)
    return path


def test_predict(command, cases, tmp_path):
    ended = command("predict", cases, "-o", tmp_path / "out.csv")
    assert ended.status == 0 and ended.out.startswith("1 of 2 rows predicted")
    header, _, bad = (tmp_path / "out.csv").read_text().splitlines()
    assert "pred_step_time" in header and "skipped" in header and "unheard-of" in bad


def test_predictions_are_one_json_document(command, cases, tmp_path):
    ended = command("predict", cases, "-o", tmp_path / "out.csv", "--json")
    document = json.loads(ended.out)
    good, bad = document["rows"]
    assert ended.status == 0 and document["all"]["n"] == 2 and document["all"]["predicted"] == 1
    assert good["pred_step_time"] > 0.0 and good["skipped"] is None and bad["pred_step_time"] is None
    assert list(document["all"]["skipped"].values()) == [1] and (tmp_path / "out.csv").exists()


@pytest.mark.parametrize("name", ["predict", "validate"])
def test_nothing_predicted_is_status_1(command, cases, tmp_path, name):
    """With the reason, and what the unknown word may have meant."""
    header, good, _ = CASES.splitlines()
    cases.write_text(f"{header}\n{good.replace('A100-SXM', 'A1000-SXM')}\n")
    ended = command(name, cases, "-o", tmp_path / "out.csv")
    assert ended.status == 1 and "device not in the catalogue" in ended.out
    assert "did you mean a100-sxm-80gb" in (tmp_path / "out.csv").read_text()


def test_predict_tells_misspelt_columns(command, cases, tmp_path):
    cases.write_text(CASES.replace("recompute", "recompue").replace("micro_batch", "mbs"))
    ended = command("predict", cases, "-o", tmp_path / "out.csv")
    told = " ".join(ended.err.split())
    assert "not read: " in told and "recompue (did you mean recompute?)" in told
    assert ("mbs (did you mean micro_batch?)" in told) == ("micro_batch" in CASES)


@pytest.mark.parametrize("name", ["predict", "validate"])
def test_columns_are_listed(command, name):
    ended = command(name, "--columns")
    assert ended.status == 0 and ended.err == ""
    for text in ("n_gpus, n_devices", "needed", "pred_<metric>", "skipped", "iteration_ms_measured", "bf16"):
        assert text in ended.out


def test_validate(command, cases):
    ended = command("validate", cases)
    assert ended.status == 0 and "Narayanan2021" in ended.out and "MAPE" in ended.out and "skipped" in ended.out
    document = json.loads(command("validate", cases, cases, "--json").out)
    assert document["all"]["step_time"]["predicted"] >= 1


def test_validate_tells_how_a_measured_column_is_called(command, tmp_path):
    path = tmp_path / "cases.csv"
    path.write_text(CASES.replace("iteration_ms_measured", "iter_ms"))
    assert_four_parts(command("validate", path), "iter_ms", "call the measured column iteration_ms_measured")


@pytest.mark.parametrize("name", ["predict", "validate"])
def test_cases_that_are_not_there(command, tmp_path, name):
    assert_four_parts(command(name, tmp_path / "none.csv", "-o", tmp_path / "out.csv"), "none.csv")


def test_predict_into_a_place_that_cannot_be_written(command, cases):
    assert_four_parts(command("predict", cases, "-o", cases / "out.csv"), "out.csv")


# --- catalog, plot -----------------------------------------------------------------------------------------


def test_catalog_list(command):
    assert "a100-sxm-80gb" in command("catalog", "list").out
    names = json.loads(command("catalog", "list", "workload", "--json").out)
    assert list(names) == ["workload"] and "megatron-1t" in names["workload"]
    assert_four_parts(command("catalog", "list", "workloads"), "workload")


def test_catalog_show(command):
    ended = command("catalog", "show", "A100")
    assert ended.status == 0 and "312 TFLOP/s" in ended.out and "datasheet" in ended.out and "[1] " in ended.out
    (entry,) = json.loads(command("catalog", "show", "A100", "--json").out)
    assert entry["values"]["matrix_rate.bf16"] == {
        "value": 312e12,
        "units": "FLOP/s",
        "text": "312 TFLOP/s",
        "confidence": "datasheet",
        "source": entry["values"]["matrix_rate.bf16"]["source"],
        "spread": 0.0,
    }
    assert_four_parts(command("catalog", "show", "a1000-sxm-80gb"), "a100-sxm-80gb")


def test_catalog_check(command, tmp_path):
    assert command("catalog", "check").status == 0
    (tmp_path / "workloads").mkdir()
    (tmp_path / "workloads" / "broken.toml").write_text('name = "brok')
    ended = command("catalog", "check", "--folder", tmp_path)
    assert ended.status == 2 and "broken.toml" in ended.out


def test_a_catalogue_of_nothing_is_no_catalogue(command, tmp_path):
    """Whoever names the wrong folder is not told that all is well."""
    assert_four_parts(command("catalog", "check", "--folder", tmp_path), f"{tmp_path}, which has no entries")
    (tmp_path / "my-chip.toml").write_text('name = "My chip"')  # one folder too high
    assert_four_parts(command("catalog", "check", "--folder", tmp_path), "accelerators/")


def test_plot(command, small_results, tmp_path):
    _, path = small_results
    for kind in ("breakdown", "pareto", "bounds"):
        ended = command("plot", path, "-o", tmp_path / f"{kind}.pdf", "--kind", kind)
        assert ended == (0, f"{tmp_path / kind}.pdf\n", "") and (tmp_path / f"{kind}.pdf").exists()
    (tmp_path / "r.nc").write_bytes(path.read_bytes())
    assert command("plot", tmp_path / "r.nc") == (0, f"{tmp_path / 'r.png'}\n", ""), "what the results are suited to"
    assert_four_parts(command("plot", path, "--kind", "shares"), "no axes other than the mapping", "--keep best")
    for ending in (".doc", ".eps", ""):
        assert_four_parts(command("plot", path, "-o", tmp_path / f"figure{ending}"), ".png .svg .pdf")
    assert_four_parts(command("plot", path, "--format", "eps"), "'eps'", "png svg pdf")
    assert_four_parts(command("plot", path, "--format", "svg", "-o", tmp_path / "figure.png"), "as -o ends")
    assert command("plot", tmp_path / "r.nc", "--format", "svg").out == f"{tmp_path / 'r.svg'}\n"
    assert_four_parts(command("plot", path.with_name("smal.nc")), "small.nc")
    assert_four_parts(command("plot", path, "-s", "eos"), "--kind collectives")


def test_plot_of_collectives(command, tmp_path):
    figure = tmp_path / "c.svg"
    ended = command("plot", "--kind", "collectives", "-s", "eos", "-s", "tpu-v4-pod", "-n", 8, "-o", figure)
    assert ended == (0, f"{figure}\n", "") and "tpu-v4-pod" in figure.read_text()
    assert_four_parts(command("plot"), "no results file", "--kind collectives")
    assert_four_parts(command("plot", figure, "--kind", "collectives"), "leave the file out")
    assert_four_parts(command("plot", "--kind", "collectives", "-s", "eoss", "-o", figure), "eos")


# --- units -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "units", "text"),
    [
        (312e12, "FLOP/s", "312 TFLOP/s"),
        (2.039e12, "B/s", "2.04 TB/s"),
        (80 * 2.0**30, "B", "80.0 GiB"),
        (4.0, "B", "4.00 B"),
        (5e-6, "s", "5.00 µs"),
        (63.25, "s", "63.2 s"),
        (0.0, "s", "0 s"),
        (0.85, "1", "0.85"),
        (1.008e12, "1", "1.01 T"),
    ],
)
def test_quantities(value, units, text):
    assert quantity(value, units) == text


def test_calibrate_refuses_a_table_of_something_else(command, tmp_path):
    table = tmp_path / "chiplets.csv"
    table.write_text("gpu,die0_area,metric,value\nA100,1,cost,1\n")
    assert_four_parts(command("calibrate", table, "-o", tmp_path / "fitted.toml"), "training rows")
    assert not (tmp_path / "fitted.toml").exists()


def test_a_number_without_its_unit_is_told_how_it_was_read(command):
    settings = ["--set", "power.tdp=300", "--set", "tp=8", "--set", "power.clock=1 GHz"]
    ended = command("evaluate", "-w", "gpt-3-13b", "-s", "selene", *settings, "--json")
    assert ended.err == "power.tdp = 300 has no unit: read as 300 W\n"
    assert json.loads(ended.out)["design"]["system.accelerator.power.tdp"] == 300.0


def test_devices_of_a_node_that_stay_unused_are_told(command):
    told = command("evaluate", "-w", "llama-3-70b", "-s", "eos", "-n", "68", "--set", "dp=68").out
    assert "68 devices leave 4 of the last node or rack of 8 unused: bought whole, they cost 5.9 % more" in told
    assert "unused" not in command("evaluate", "-w", "llama-3-70b", "-s", "eos", "-n", "64", "--set", "dp=64").out
