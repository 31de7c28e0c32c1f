"""Command lines that people write by mistake or by malice, each with the exit status that it should end in.

``python -m tests.contract.fuzz.hand`` starts each as a process of its own, as a terminal does; the test runs all in
one.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.conftest import SMALL_SWEEP

ROOT = Path(__file__).parents[3]

#: Seconds that a command line may take before it is refused.
LONGEST = 10.0

SEARCH = f"""{SMALL_SWEEP.replace("a small sweep", "a small search")}
[search]
method = "random"
evaluations = 2000
seeds = 1
"""

CASES = """\
source,model,gpu,n_gpus,tp,pp,dp,micro_batch,global_batch,seq_len,precision,recompute,iteration_ms_measured
Narayanan2021,gpt-3-13b,A100-SXM-80GB,16,8,1,2,1,64,2048,fp16,full,6000
"""

#: Inputs that no command can use, by the name that command lines below have for them.
STRANGE = (
    "absent.toml", "empty", "binary", "latin.toml", "folder", "pipe", "broken", "loop", "/dev/zero", "/dev/null",
    "huge.toml", "bom.toml", "nul.toml", "''", "a\\\\\\nb", "'\\x1b[31mred'", "/proc/self/mem",
    "stranger.txt", "'n*m[e].toml'", "-", "small.toml/inside",
)  # fmt: skip

_RUN = "run small.toml"
_SEARCH = "search search.toml"
_EVALUATE = "evaluate -w gpt-3-13b -s selene"
_PREDICT = "predict cases.csv"

#: Places where no output belongs.
OUTPUTS = (
    "small.toml", "search.toml", "cases.csv", "stranger.txt", "folder", "pipe", "/dev/null", "/dev/full", "/dev/zero",
    "loop", "small.toml/r.nc", "''", "/", "link-to-stranger", f"{'n' * 300}.nc", "stranger.txt/deep/r.nc",
)  # fmt: skip

#: Numbers that no option is glad of.
NUMBERS = ("0", "-1", "x", "''", "nan", "inf", "1e400", "1.5", str(10**30), "0x10", "1_0", "١٢")

#: Everything that ends in 2, and in four parts.
REFUSED = (
    *(f"run {name}" for name in STRANGE),
    *(f"search {name}" for name in STRANGE),
    *(f"predict {name} -o p.csv" for name in STRANGE),
    *(f"validate {name}" for name in STRANGE),
    *(f"calibrate {name} -o fit.toml" for name in STRANGE),
    *(f"plot {name}" for name in STRANGE),
    *(f"merge {name}" for name in STRANGE),
    *(f"{_RUN} -o {name}" for name in OUTPUTS),
    *(f"{_SEARCH} -o {name}" for name in OUTPUTS),
    *(f"{_PREDICT} -o {name}" for name in OUTPUTS),
    *(f"validate cases.csv -o {name}" for name in OUTPUTS),
    # An empty folder becomes a catalogue with a stack of one's own.
    *(f"calibrate cases.csv -o {name}" for name in OUTPUTS if name != "folder"),
    *(f"{_RUN} --chunk {n}" for n in (*NUMBERS, 2**40) if n != "1_0"),
    *(f"{_SEARCH} --evaluations {n}" for n in NUMBERS if n != "1_0"),
    *(f"{_SEARCH} --seconds {n}" for n in ("0", "-1", "x", "nan", "-inf")),
    *(f"{_EVALUATE} -n {n}" for n in NUMBERS if n != "1_0"),
    *(
        f"{_EVALUATE} --set tp={n}"
        for n in (*NUMBERS, "1e30", "'8 GB'", "full", "true", "[1]", "{}")
        if n not in ("1_0", "١٢")
    ),
    *(f"calibrate cases.csv -o fit.toml --folds {n}" for n in (*NUMBERS, "21", "1000") if n not in ("0", "1_0")),
    *(
        f"{_RUN} --shard {text}"
        for text in (
            "0/0",
            "0/1",
            "2/1",
            "1",
            "1/",
            "/1",
            "a/b",
            "-1/2",
            "1/2/3",
            "1/1e5",
            "''",
            "1/100000",
            f"1/{10**30}",
            "1.5/2",
            "1/١",
        )
    ),
    *(
        f"{_RUN} --keep {text}"
        for text in (
            "top:0",
            "top:-1",
            "top:x",
            "top:",
            "top",
            "top:1e3",
            f"top:{10**30}",
            "''",
            "al",
            "best,top:3",
            "pareto",
            "top:1.5",
            "top:nan",
            "'all '",
            "ALLL",
        )
    ),
    *(
        f"{_EVALUATE} --set {text}"
        for text in (
            "''",
            "tp",
            "tp=",
            "=8",
            "=",
            "nope=1",
            "gpus=8",
            "world_size=8",
            "mbs=1",
            "gbs=8",
            "__class__=1",
            "mapping.__class__=1",
            "'tp =8 x'",
            "recompute=fulll",
            "recompute=9",
            "recompute=-1",
            "recompute=1.5",
            "memory.bandwidth=-1",
            "memory.bandwidth=0",
            "memory.bandwidth=inf",
            "'memory.bandwidth=9**9**9 B/s'",
            "'memory.capacity=400 Gb/s'",
            "'memory.capacity=80 furlong'",
            "'memory.capacity=__import__(0)'",
            "'memory.capacity=1e400 B'",
            f"memory.capacity={10**60}",
            f"memory.capacity={'9' * 5000}",
            "'power.limit=300 GB'",
            "zero_stage=4",
            "zero_stage=0.5",
            "sequence_parallel=maybe",
            "precision=fp7",
            "global_batch=0",
            "seq_len=-5",
            "seq_len=nan",
            "global_batch=1e300",
            "micro_batch=0.5",
            "virtual_stages=0",
            "hidden=nan",
            "'tp=8' --set tp",
            "workload=gpt-3-13b",
            "system=selene",
            "where=here",
            "folder=/etc",
            "any_option=1",
            "software=nope",
            "software=1",
            "n_devices=nan",
            "n_devices=x",
            "step_time=1",
            "peak_memory=1",
        )
    ),
    "evaluate",
    "evaluate -w gpt-3-13b",
    "evaluate -s selene",
    "evaluate -w '' -s selene",
    "evaluate -w x -s ''",
    "evaluate -w gpt-3-13b -s nope",
    "evaluate -w nope -s selene",
    "evaluate -w ../../etc/passwd -s selene",
    "evaluate -w /dev/zero -s selene",
    "evaluate -w gpt-3-13b -s ../accelerators/h100",
    "evaluate -w small.toml -s selene",
    "evaluate -w selene -s gpt-3-13b",
    f"{_EVALUATE} --software nope",
    f"{_EVALUATE} --software ''",
    f"{_EVALUATE} --software deepspeed-x",
    f"{_EVALUATE} --metric nope",
    f"{_EVALUATE} --metric ''",
    f"{_EVALUATE} --metric throughput",
    *(
        f"trace -w gpt-3-13b -s selene {rest}"
        for rest in (
            "",
            "-o",
            "-o folder",
            "-o /dev/null",
            "-o pipe",
            "-o stranger.png",
            "-o t.json --set schedule=zb",
            "-o t.json --set schedule=9",
            "-o t.json --set schedule=zb-v --set pp=4",
            "-o t.json --set global_batch=1000000",
            "-o t.json --set nope=1",
            "-o t.json -n 3 --set tp=2",
        )
    ),
    f"{_EVALUATE} --metric __class__",
    f"{_EVALUATE} --gpus 8",
    f"{_EVALUATE} extra",
    f"{_EVALUATE} -n",
    "-x",
    "nope",
    "runn small.toml",
    "Run small.toml",
    "--help-me",
    "run",
    "run small.toml extra",
    "run small.toml --nope",
    f"{_RUN} --output",
    f"{_RUN} -o a.png",
    f"{_RUN} -o a.svg",
    f"{_RUN} --json=maybe",
    "search",
    "search small.toml --whole-stacks",
    "search search.toml --keep all",
    f"{_SEARCH} --shard 1/2",
    "predict",
    "predict cases.csv",
    "predict -o p.csv",
    "predict small.toml -o p.csv",
    "predict search.toml -o p.csv",
    "validate",
    "validate small.toml",
    "validate cases.csv nothing.csv",
    "calibrate",
    "calibrate cases.csv",
    "calibrate cases.csv -o fit.toml --catalog small.toml",
    "calibrate cases.csv -o fit.toml --catalog /dev/null",
    "calibrate cases.csv -o fit.toml --catalog absent",
    "calibrate small.toml -o fit.toml",
    "plot",
    "plot small.toml",
    "plot cases.csv",
    "plot small.nc --kind nope",
    "plot small.nc --kind ''",
    "plot small.nc --format exe",
    "plot small.nc --format ''",
    "plot small.nc -o small.nc",
    "plot small.nc -o a.exe",
    "plot small.nc -o a",
    "plot small.nc -o folder",
    "plot small.nc -o /dev/null",
    "plot small.nc -o stranger.png",
    "plot small.nc -o a.png --format svg",
    "plot small.nc --kind clock",
    "plot small.nc --kind shares",
    "plot damaged.nc",
    "plot cut.nc",
    "plot stranger.nc",
    "plot renamed.nc",
    "merge",
    "merge small.nc",
    "merge nothing.nc",
    "merge folder",
    "merge .",
    "merge /",
    "merge ''",
    "merge stranger.nc",
    "run example:nope",
    "run example:",
    "search example:../sweeps",
    "examples nope",
    "examples show",
    "examples show nope",
    "examples show ../../etc/passwd",
    "examples show long_context -o stranger.txt",
    "list nope",
    "list ''",
    "list leaves a b",
    "catalog nope",
    "catalog list nope",
    "catalog list ''",
    "catalog list ../systems",
    "catalog show",
    "catalog show ''",
    "catalog show nope",
    "catalog show ../../etc/passwd",
    "catalog show /dev/zero",
    "catalog show selene --kind nope",
    "catalog show selene --kind ''",
    "catalog show h100 --kind workload",
    "catalog list --folder absent",
    "catalog list --folder small.toml",
    "catalog list --folder /dev/null",
    "catalog show h100 --folder absent",
    "catalog check --folder absent",
    "catalog check --folder small.toml",
    "catalog check --folder bad-catalog",
    "catalog check --folder pipe",
    "catalog check --folder device-catalog",
    "catalog check --folder pipe-catalog",
    "catalog show my-chip --folder pipe-catalog",
    "catalog show my-chip --folder device-catalog",
    "bench --nope",
    "bench extra",
)

#: Command line → exit status, of those that are meant.
MEANT = {
    "": 0, "--help": 0, "--version": 0, "run --help": 0, "catalog list": 0, "catalog show h100 --json": 0,
    "list leaves 'nothing at all'": 1, "list leaves '['": 1, "list leaves tp": 0, "list metrics '*'": 0,
    "list": 0, "examples": 0, "list leaves '(((((((((((((((((a'": 1,
    "predict no-rows.csv -o p.csv": 2, "predict header.csv -o p.csv": 1, "validate no-rows.csv": 2,
    "predict words.csv -o p.csv": 1, "validate words.csv": 1,
    f"{_EVALUATE} --set tp=8 --set tp=4": 2, f"{_EVALUATE} -n 16 -n 8 --set tp=8": 0,
    f"{_EVALUATE} --set ' tp = 8 '": 0,
    f"{_EVALUATE} --set TP=8": 2,
    f"{_EVALUATE} --set tp=1 -n 1 --set 'memory.capacity=1 GB'": 1,
    f"{_EVALUATE} --set tp=8 --set recompute=2 --json": 0,
    f"{_EVALUATE} --set tp=8 --set 'hidden=5120'": 0,
    "run small.toml -o a.nc --keep top:3 --no-figure": 0, "run small.toml -o 'n*m[e].nc' --no-figure": 0,
    "run small.toml -o -- --no-figure": 0, "run small.toml -o a.nc -o b.nc --no-figure": 0,
    "run small.toml -o stranger.txt --force --no-figure": 0, "run small.toml -o link-to-new --no-figure": 0,
    "run small.toml -o a.nc --chunk 1 --keep best --no-figure": 0, "run infeasible.toml -o a.nc": 1,
    "plot small.nc -o a.svg": 0, "plot small.nc --kind breakdown --format pdf": 0, "catalog check": 0,
    "run small.toml -o new/deep/a.nc --no-figure": 0, "run 'sp ace.toml' -o 'sp ace.nc' --no-figure": 0,
}  # fmt: skip


def prepare(folder: Path, results: Path | None = None) -> None:
    """Everything that the command lines name, in an empty folder; ``results`` are those of the small sweep."""

    def write(name: str, content: str | bytes) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    write("small.toml", SMALL_SWEEP)
    write("sp ace.toml", SMALL_SWEEP)
    write("infeasible.toml", SMALL_SWEEP.replace("[1, 2, 8]", "[1]") + '\n[constraints]\nall = ["peak_memory < 1"]\n')
    write("search.toml", SEARCH)
    write("cases.csv", CASES)
    write("no-rows.csv", CASES.splitlines()[0] + "\n")
    write("header.csv", "colour,shape\nred,round\n")
    write("words.csv", CASES.replace("gpt-3-13b", "gpt-99").replace("16,8", "many,8"))
    write("empty", "")
    write("binary", bytes(range(256)) * 40)
    write("latin.toml", 'title = "Zürich"\n'.encode("latin-1") + SMALL_SWEEP.encode())
    write("bom.toml", b"\xff\xfe" + SMALL_SWEEP.encode("utf-16-le"))
    write("nul.toml", SMALL_SWEEP + "\0")
    write("stranger.txt", "a thesis\n")
    write("stranger.nc", "a thesis\n")
    write("stranger.png", "a photograph\n")
    write("bad-catalog/accelerators/my-chip.toml", "name = 3\n[[[")
    for name in ("folder", "pipe-catalog/accelerators", "device-catalog/accelerators"):
        (folder / name).mkdir(parents=True)
    os.mkfifo(folder / "pipe")
    os.mkfifo(folder / "pipe-catalog/accelerators/my-chip.toml")
    (folder / "device-catalog/accelerators/my-chip.toml").symlink_to("/dev/zero")
    (folder / "broken").symlink_to("nowhere/at/all")
    (folder / "loop").symlink_to("loop")
    (folder / "link-to-stranger").symlink_to("stranger.txt")
    (folder / "link-to-new").symlink_to("new.nc")
    with (folder / "huge.toml").open("wb") as file:
        file.truncate(1 << 40)
    if results:
        content = results.read_bytes()
        write("small.nc", content)
        write("damaged.nc", content[:5000] + bytes([content[5000] ^ 4]) + content[5001:])
        write("cut.nc", content[: len(content) // 2])
        write("renamed.nc", (folder / "small.toml").read_bytes())


def state(folder: Path) -> dict[str, str]:
    """Every path of a folder with what is there."""

    def what(path: Path) -> str:
        if path.is_symlink():
            return f"link {os.readlink(path)}"
        if not path.is_file():
            return "folder" if path.is_dir() else "strange"
        return "huge" if path.stat().st_size > 1 << 30 else hashlib.sha256(path.read_bytes()).hexdigest()

    return {str(path.relative_to(folder)): what(path) for path in folder.rglob("*")}


def arguments(line: str) -> list[str]:
    r"""A command line as a shell gives it, with ``\n``, ``\x1b`` and the like."""
    return [
        one.encode("latin-1", "backslashreplace").decode("unicode_escape") if "\\" in one else one
        for one in shlex.split(line)
    ]


def fault_of(line: str, wanted: int, status: int, out: str, err: str, changed: set[str]) -> str:
    """What is wrong with how a command line ended, "" for nothing."""
    if "Traceback" in out + err:
        return "traceback: " + err.strip().splitlines()[-1][:300]
    if status != wanted:
        return f"exit status {status} in place of {wanted}: {(err or out).strip()[-300:]}"
    if status != 2:
        return ""
    lines = [text.strip().partition(" ")[0] for text in err.splitlines()]
    if [one for one in lines if one in ("where", "got", "allowed", "fix")] != ["where", "got", "allowed", "fix"] and (
        "catalog check" not in line
    ):
        return f"not in four parts: {err.strip()[-300:]!r}"
    return f"changed {sorted(changed)[:5]}" if changed else ""


def command_lines() -> dict[str, int]:
    """Every command line with its exit status."""
    return dict.fromkeys(REFUSED, 2) | MEANT


def main() -> int:
    """Each in a process; a line for every fault."""
    wanted = sys.argv[1:] or [""]
    found = tried = 0
    with tempfile.TemporaryDirectory() as name:
        folder, whole = Path(name) / "here", Path(name) / "small.nc"
        (Path(name) / "small.toml").write_text(SMALL_SWEEP)
        command = [sys.executable, "-m", "dse"]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        subprocess.run(
            [*command, "run", "small.toml", "-o", whole, "--no-figure"],
            cwd=name,
            env=environment,
            check=True,
            capture_output=True,
        )
        for line, status in command_lines().items():
            if not any(word in line for word in wanted):
                continue
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            prepare(folder, whole)
            before, began = state(folder), time.monotonic()
            try:
                done = subprocess.run(
                    [*command, *arguments(line)],
                    cwd=folder,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=6 * LONGEST,
                    stdin=subprocess.DEVNULL,
                )
                changed = {path for path, what in state(folder).items() ^ before.items()}
                fault = fault_of(line, status, done.returncode, done.stdout, done.stderr, changed)
            except subprocess.TimeoutExpired:
                fault = "hangs"
            seconds, tried = time.monotonic() - began, tried + 1
            if not fault and status == 2 and seconds > 3 * LONGEST:  # other processes may keep the machine busy
                fault = f"took {seconds:.1f} s"
            if fault:
                found += 1
                print(f"{line[:150]}\n    {fault}", flush=True)
    print(f"{tried} command lines, {found} faults")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
