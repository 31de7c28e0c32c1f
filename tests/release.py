"""``python -m tests.release [listed|tried]``: what a release needs, and the next step by hand. Nothing is uploaded.

Without an argument what docs/release.md asks of the checkout, a line each, and the step that follows. ``listed`` tells
what ``dist/`` holds, by folder, within :data:`MOST`; ``tried`` installs the wheel into an environment of its own and
does there what the README says, in an empty folder.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections import Counter
from pathlib import Path

import dse
from dse.io.distribution import NAME

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"

#: Largest wheel and source distribution, B: the catalogue is half of the one, pages and notebooks of the other.
MOST = {".whl": 2_500_000, ".gz": 8_000_000}

#: Extras that the trial installs, and its commands; what a server needs to be asked follows in :func:`asked`.
EXTRAS = ("api", "report", "recipes")
COMMANDS = (
    "dse --version",
    "dse examples",
    "dse run example:megatron_1t_4096_a100 --keep top:100 -o best.nc",
    "dse evaluate -w megatron-1t -s selene -n 3072 --set tp=8 --set pp=64 --set recompute=full",
    "dse report best.nc --live -o best.html",
    "dse page -w llama-3-70b -s h100 -n 512 --set tp=8 --set pp=4 -o design.html",
    "dse catalog show h100",
    "dse launch -w llama-3-70b -s eos --for maxtext --format file --set tp=8 -n 512",
    "python readme.py",
    "python ask.py",
)

#: Asks a server of HTTP, and one of MCP as an agent does.
_ASK = """
import json, subprocess, time, urllib.error, urllib.request
import anyio
from mcp import Client, StdioServerParameters

design = {"workload": "llama-2-7b", "system": "h100", "n_devices": 8}
header = {"Content-Type": "application/json"}
asked = urllib.request.Request("http://127.0.0.1:8799/evaluate", json.dumps(design).encode(), header)
with subprocess.Popen(["dse", "serve-api", "--port", "8799"]) as server:
    for _ in range(600):
        try:
            found = json.load(urllib.request.urlopen(asked))
            break
        except urllib.error.URLError:
            time.sleep(0.1)
    server.terminate()
print("HTTP:", found["document"]["metrics"]["step_time"])

async def agent():
    async with Client(StdioServerParameters(command="dse", args=["mcp"])) as client:
        return (await client.call_tool("evaluate", design)).structured_content

assert anyio.run(agent)["document"] == found["document"]
"""


def members(archive: Path) -> dict[str, int]:
    """Files of a wheel or source distribution, with their bytes; the folder around a source distribution left out."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return {one.filename: one.file_size for one in wheel.infolist()}
    with tarfile.open(archive) as source:
        return {one.name.partition("/")[2]: one.size for one in source.getmembers()}


def listed(folder: Path = DIST) -> None:
    """Print what the archives hold.

    Raises:
        SystemExit: where one is missing, or larger than :data:`MOST`.
    """
    for suffix, most in MOST.items():
        (archive,) = folder.glob(f"{NAME.replace('-', '_')}-{dse.__version__}*{suffix}") or sys.exit("run make dist")
        held, size = members(archive), archive.stat().st_size
        print(f"\n{archive.name}: {size:,} B of at most {most:,}, {len(held):,} files")
        sizes, files = Counter[str](), Counter[str]()
        for name, bytes_ in held.items():
            place = "/".join(name.split("/")[:-1][:2]) or "."
            sizes[place] += bytes_
            files[place] += 1
        for place, bytes_ in sorted(sizes.items()):
            print(f"{bytes_:>11,} B {files[place]:>5} files  {place}")
        if size > most:
            sys.exit(f"{archive.name} is larger than {most:,} B")


def git(*words: str) -> str:
    """What git prints."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def needed() -> dict[str, tuple[bool, str]]:
    """What a release needs, in the order of docs/release.md: whether it holds, and what to do where not."""
    version, tag = dse.__version__, f"v{dse.__version__}"
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    unreleased = re.search(r"^## Unreleased\n(.*?)^## ", changes, re.DOTALL | re.MULTILINE)
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["metadata"]
    return {
        "the changelog has this version with a date, and nothing unreleased": (
            bool(re.search(rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$", changes, re.MULTILINE))
            and unreleased is not None
            and not unreleased[1].strip(),
            "close Unreleased of CHANGELOG.md, raise __version__ of dse/__init__.py",
        ),
        "CITATION.cff has this version": (f"\nversion: {version}\n" in citation, "write it there"),
        "the address of the repository is stated": (
            bool(settings["hooks"]["custom"]["repository"]),
            "write repository in pyproject.toml, as in CITATION.cff",
        ),
        "nothing is left to commit": (not git("status", "--porcelain"), "commit it"),
        "the commit has its tag": (
            tag in git("tag", "--points-at", "HEAD").split(),
            f"git tag -a {tag} -m 'dse {version}'",
        ),
        "wheel and source distribution are built": (
            len([*DIST.glob(f"{NAME.replace('-', '_')}-{version}*")]) == 2,
            "make dist, then make dist-try",
        ),
    }


def main() -> int:
    """Print what holds; the exit status says whether all does."""
    found = needed()
    for what, (holds, _) in found.items():
        print(f"{'yes' if holds else 'NO ':3} {what}")
    missing = [todo for holds, todo in found.values() if not holds]
    after = f"git push origin v{dse.__version__}: the index takes what the workflow of docs/release.md builds of it"
    print(f"\nnext, by hand: {missing[0] if missing else after}\n(docs/release.md; nothing was uploaded)")
    return int(bool(missing))


def tried() -> None:
    """Install the wheel with extras into a new environment, and do what the README says in an empty folder.

    Raises:
        subprocess.CalledProcessError: of the first command that fails.
    """
    (wheel,) = DIST.glob("*.whl")
    (python,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    with tempfile.TemporaryDirectory(prefix="dse-release-") as name:
        env, empty = Path(name, "env"), Path(name, "empty")
        empty.mkdir()
        environment = {"PATH": f"{env / 'bin'}:/usr/bin:/bin", "HOME": name, "DSE_CACHE": f"{name}/cache"}
        subprocess.run([sys.executable, "-m", "venv", env], check=True)
        constraints = ["-c", ROOT / "constraints.txt"]
        install = [env / "bin" / "python", "-m", "pip", "install", "--quiet", *constraints]
        subprocess.run([*install, f"{wheel}[{','.join(EXTRAS)}]"], check=True)
        (empty / "readme.py").write_text(python, encoding="utf-8")
        (empty / "ask.py").write_text(_ASK, encoding="utf-8")
        for command in COMMANDS:
            print(f"$ {command}", flush=True)
            subprocess.run(command.split(), cwd=empty, env=environment, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit({"": main, "listed": listed, "tried": tried}[" ".join(sys.argv[1:])]())
