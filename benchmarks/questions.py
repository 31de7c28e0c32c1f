"""``python -m benchmarks.questions``: seconds of a question, in units of ``import jax``, each in a process of its own.

Machines and their other work differ by more than any change here: every round runs ``import jax`` once and each
question once, and a question counts by its fastest round over the fastest import. Warm questions are asked once
before, so that programs, equations and bytecode are there; cold ones have an empty cache in each round. Printed are
JSON and the table of ``docs/benchmarks.md``, which takes what ``--write`` keeps.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.rates.sweeps import ROOT
from docs.make.markdown import table

#: What was measured last, for the page.
RECORD = ROOT / "docs" / "questions.json"

#: The unit.
IMPORT = "import jax"


class Question(NamedTuple):
    """A command of ``dse``, and the imports of JAX that it may take; seconds for cold ones."""

    name: str
    command: str
    bound: str
    cold: bool = False


QUESTIONS = (
    Question(
        "`evaluate`", "evaluate -w megatron-1t -s selene -n 3072 --set tp=8 --set pp=64 --set recompute=full", "≤ 1.0"
    ),
    Question(
        "`evaluate --serving`", "evaluate --serving -w llama-3-70b -s h100 --set tp=8 --set concurrency=64", "≤ 1.0"
    ),
    Question("`decide` of two", "decide h100 dgx-b200 -w llama-3-8b --set tp=8 --set n_devices=8", "≤ 1.0"),
    Question(
        "`run` of 3.5e4 designs by NumPy, without figure",
        "run example:megatron_1t_4096_a100 --keep best --fresh --force --no-figure -o best.nc",
        "≤ 1.0",
    ),
    Question(
        "– README's, 100 designs kept and judged, with figure",
        "run example:megatron_1t_4096_a100 --keep top:100 --fresh --force -o top.nc",
        "",
    ),
    Question("`pools`", "pools sweeps/splitwise_pools.toml", "≤ 3"),
    Question(
        "`posttrain`",
        "posttrain -w llama-3-70b -s h100 -n 128 --prompts 512 --samples 8 --isl 1024 --osl 4096",
        "≤ 3",
    ),
    Question(
        "`page` of a design", "page -w llama-3-70b -s h100 -n 512 --set tp=8 --set pp=4 -o page.html --force", "≤ 3"
    ),
    Question("`simulate`", "simulate -w llama-3-70b -s h100 --set tp=8 --set request_rate=4", "≤ 3"),
    Question(
        "`measure`",
        "measure h100 mi300x --serving -w llama-3-70b --set tp=4 --set concurrency=64 --on mi300x",
        "≤ 3",
    ),
    Question(
        "`plan --serving` over four chips",
        "plan --serving -w deepseek-v3 --rate 20 --ttft p95=1s --tpot 30ms --on h100,h200,b200,gb200",
        "≤ 6",
    ),
    Question(
        "cold `run` of README's sweep",
        "run example:megatron_1t_4096_a100 --keep top:100 --fresh --force -o cold.nc",
        "≤ 2 s",
        cold=True,
    ),
    Question(
        "cold `run` of a mixture of experts, 1.7e7 designs",
        "run sweeps/deepseek_v3_2048_h800.toml --fresh --force -o mixture.nc",
        "≤ 4 s",
        cold=True,
    ),
)


def main() -> None:
    """Measure the questions and print what was found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.questions", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often each is asked [default: 5]")
    parser.add_argument("--only", default="", help="text in the commands of the questions to ask")
    parser.add_argument("--write", action="store_true", help=f"keep what is measured in {RECORD.relative_to(ROOT)}")
    options = parser.parse_args()
    record = measure([one for one in QUESTIONS if options.only in one.command], options.rounds)
    text = json.dumps(record, indent=2, ensure_ascii=False)
    print(text, seconds_table(record), sep="\n\n")
    if options.write:
        RECORD.write_text(text + "\n", encoding="utf-8")


def measure(questions: list[Question], rounds: int) -> dict[str, Any]:
    """Return the date, the fastest import of JAX in s, and name → seconds and imports of each question."""
    seconds: dict[str, list[float]] = {name: [] for name in (IMPORT, *(one.name for one in questions))}
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder)
        for one in questions:
            _ask(one, files)
        for _ in range(rounds):
            seconds[IMPORT].append(_run(["-c", IMPORT], files, files / "cache"))
            for one in questions:
                seconds[one.name].append(_ask(one, files))
    unit = min(seconds[IMPORT])
    return {
        "date": date.today().isoformat(),
        "rounds": rounds,
        "import_seconds": round(unit, 3),
        "questions": {
            one.name: {
                "seconds": round(min(seconds[one.name]), 3),
                "imports": round(min(seconds[one.name]) / unit, 2),
                "bound": one.bound,
                "command": f"dse {one.command}",
            }
            for one in questions
        },
    }


def _ask(question: Question, folder: Path) -> float:
    """Return the seconds of a question, with the cache of the folder, or an empty one where it is cold."""
    if not question.cold:
        return _run(["-m", "dse", *shlex.split(question.command)], folder, folder / "cache")
    with tempfile.TemporaryDirectory(dir=folder) as cache:
        return _run(["-m", "dse", *shlex.split(question.command)], folder, Path(cache))


def _run(arguments: list[str], folder: Path, cache: Path) -> float:
    """Return the seconds of a process of Python, in which modules have their bytecode."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"DSE_CACHE": str(cache), "PYTHONPATH": str(ROOT)}
    if not (folder / "sweeps").exists():
        (folder / "sweeps").symlink_to(ROOT / "sweeps")
    start = time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, check=False)
    seconds = time.perf_counter() - start
    if done.returncode:
        raise RuntimeError(f"{shlex.join(arguments)}: {done.stderr.decode(errors='replace')[-2000:]}")
    return seconds


def seconds_table(record: dict[str, Any]) -> str:
    """Return the table of the seconds of questions in Markdown."""
    rows = [
        [name, f"{one['imports']:.1f}", f"{one['seconds']:.1f} s", one["bound"]]
        for name, one in record["questions"].items()
    ]
    return table(["question", "imports of jax", "seconds", "must be"], rows)


def section() -> str:
    """Return the section of ``docs/benchmarks.md``, "" where nothing was measured yet."""
    if not RECORD.exists():
        return ""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    return "\n\n".join(
        [
            "## Seconds of a question",
            f"Each in a process of its own, measured on {record['date']} in units of `import jax` "
            f"({record['import_seconds']:.1f} s there), the fastest of {record['rounds']} rounds of both "
            "(`python -m benchmarks.questions --write`). The cache of programs and equations is warm unless a line "
            "says cold; with a warm one, what NumPy evaluates does not import JAX.",
            seconds_table(record),
        ]
    )


if __name__ == "__main__":
    main()
