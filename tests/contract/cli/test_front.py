"""First impressions: what ``dse`` alone says can be pasted, and nothing heavy is imported to say it."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import dse
from dse.cli import app
from dse.cli.usage import PAGE
from dse.measured import read_cases
from dse.measured.completion import complete

#: The promises of user time in multiples of what importing what they rest on takes, and what a busy machine may add
#: to them here. Importing typer takes 0.2 to 0.25 s where help takes 0.5.
_HELP_RATIO, _IMPORT_RATIO, _SLACK = 2.5, 1.5, 2.0


def pasted() -> str:
    """The page's commands, as a shell gets them."""
    return "\n".join(line for line in PAGE.splitlines() if line.startswith("  "))


def shell(script, folder, **more):
    dse_here = f'dse() {{ "{sys.executable}" -m dse "$@"; }}\n'
    return subprocess.run(
        ["bash", "-ec", dse_here + script],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        **more,
    )


def processor_seconds(*arguments: str, times: int = 1) -> float:
    """The least of some times of the processor, its kernel's included: what else runs can only add to it.

    Of short processes the share of the kernel is a sample of a few ticks.
    """

    def spent() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    def once() -> float:
        before = spent()
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True, timeout=120)
        return spent() - before

    return min(once() for _ in range(times))


def test_it_shows_three_things():
    done = CliRunner().invoke(app, [])
    assert done.exit_code == 0 and done.output == PAGE
    assert re.findall(r"^  dse (\w+)", PAGE, re.MULTILINE) == ["run", "evaluate", "validate"]
    assert max(map(len, PAGE.splitlines())) <= 100


def test_its_lines_plan(tmp_path):
    """What they write is a sweep and a table that are read; the design is one."""
    files = "\n".join(line for line in pasted().splitlines() if not line.startswith("  dse"))
    assert shell(files, tmp_path).returncode == 0
    grid, _ = dse.sweep.plan(tmp_path / "my_sweep.toml")
    assert 100 < grid.n_designs < 10_000
    (case,) = read_cases(tmp_path / "my_runs.csv")
    assert complete(case)
    (line,) = re.findall(r"^  dse evaluate -w (\S+) -s (\S+) -n (\d+) (.*)$", PAGE, re.MULTILINE)
    settings = dict(one.split("=") for one in re.findall(r"--set (\S+)", line[3]))
    made = dse.design(
        line[0],
        line[1],
        n_devices=int(line[2]),
        **{name: float(text) if text.isdecimal() else text for name, text in settings.items()},
    )
    assert made.mapping.dp == 16.0


@pytest.mark.slow
def test_its_lines_run(tmp_path):
    done = shell(pasted(), tmp_path, timeout=600)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "results" / "my_sweep.nc").exists() and "my_runs" in done.stdout


def test_nothing_heavy_is_imported_for_help():
    code = "import sys; from dse.cli import app; print([m for m in ('jax', 'numpy', 'xarray') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("arguments", [[], ["--help"]], ids=["alone", "help"])
def test_help_takes_half_a_second(arguments):
    assert processor_seconds("-m", "dse", *arguments, times=3) < (
        _SLACK * _HELP_RATIO * processor_seconds("-c", "import typer", times=3)
    )


#: Questions that a warm cache answers without JAX, in the words of README where it has them.
_WITHOUT_JAX = {
    "training": "evaluate -w megatron-1t -s selene -n 3072 --set tp=8 --set pp=64 --set recompute=full",
    "serving": "evaluate --serving -w llama-3-70b -s h100 --set tp=8 --set concurrency=64",
    "generated chip": "evaluate -w llama-3-8b -s generated-h100 -n 8",  # cannot run: with its reasons
    "decision": "decide h100 dgx-b200 -w llama-3-8b --set tp=8 --set n_devices=8",
    "sweep": "run example:megatron_1t_4096_a100 --keep top:20 --fresh --force --no-figure -o best.nc",
}


@pytest.fixture(scope="module")
def warm(tmp_path_factory) -> dict[str, str]:
    """An environment whose cache has answers to all questions."""
    environment = os.environ | {"DSE_CACHE": str(tmp_path_factory.mktemp("cache"))}
    for command in _WITHOUT_JAX.values():
        done = subprocess.run(
            [sys.executable, "-m", "dse", *command.split()],
            env=environment,
            cwd=environment["DSE_CACHE"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in (0, 1), done.stderr
    return environment


@pytest.mark.parametrize("command", _WITHOUT_JAX.values(), ids=_WITHOUT_JAX)
def test_a_warm_question_imports_no_jax(command, warm):
    code = (
        "import sys; from dse.cli import app\n"
        "try: app()\n"
        "except SystemExit: pass\n"
        "print(*(name for name in ('jax', 'jaxlib', 'xarray', 'pandas', 'matplotlib') if name in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *command.split()],
        env=warm,
        cwd=warm["DSE_CACHE"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "", done.stdout[-200:]


@pytest.mark.parametrize("name", ["training", "serving", "decision"])
def test_a_warm_question_takes_less_than_the_import_of_jax(name, warm, monkeypatch):
    monkeypatch.setenv("DSE_CACHE", warm["DSE_CACHE"])
    asked = processor_seconds("-m", "dse", *_WITHOUT_JAX[name].split(), times=3)
    assert asked < _SLACK * processor_seconds("-c", "import jax", times=3)


def test_importing_all_doors_costs_what_jax_and_xarray_do():
    doors = "import dse; dse.design, dse.evaluate, dse.serve, dse.run, dse.open_results, dse.explain"
    assert processor_seconds("-c", doors) < _SLACK * _IMPORT_RATIO * processor_seconds("-c", "import jax, xarray")
