"""Commands in processes of their own, as a terminal starts them."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import netCDF4

#: What starts tests may have their processes ignore Ctrl-C; a terminal does not.
_COMMAND = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
sys.argv[0] = "dse"
from dse.__main__ import main
main()
"""


def start(
    *arguments: object, kept: Path, first: str = "", group: bool = False, **environment: str
) -> subprocess.Popen[str]:
    """``dse`` with these arguments and this folder of kept programs, which it has for its own.

    Args:
        arguments: of the command line.
        kept: the folder.
        first: Python that the process runs before the command.
        group: whether it is the first of a group of processes, as a terminal has it.
        **environment: what it finds there besides what the tests have.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    return subprocess.Popen(
        [sys.executable, "-c", first + _COMMAND, *map(str, arguments)],
        start_new_session=group,
        text=True,
        env=inherited | {"DSE_CACHE": str(kept)} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def assert_completes(arguments: Iterable[object], kept: Path, output: Path, data: str) -> None:
    """The same command, now that nothing is in its way, ends well, with these data, and leaves nothing else behind."""
    running = start(*arguments, kept=kept)
    _, err = running.communicate(timeout=300)
    assert running.returncode == 0 and "Traceback" not in err, err
    assert data_of(output) == data
    left = {path.name for path in output.parent.iterdir()} - {output.name, f"{output.name}.dse.json"}
    assert not any(name.startswith((output.name, f".{output.name}")) for name in left), left


def data_of(results: Path) -> str:
    """Digest of the numbers in a results file."""
    with netCDF4.Dataset(results) as file:
        file.set_auto_maskandscale(False)
        numbers = [name for name in sorted(file.variables) if file[name].dtype is not str]
        return hashlib.sha256(b"".join(file[name][...].tobytes() for name in numbers)).hexdigest()
