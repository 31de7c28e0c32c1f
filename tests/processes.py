"""Commands in processes of their own, as a terminal starts them."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
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


def start(*arguments: object, kept: Path) -> subprocess.Popen[str]:
    """``dse`` with these arguments and this folder of kept programs, which it has for its own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    return subprocess.Popen(
        [sys.executable, "-c", _COMMAND, *map(str, arguments)], env=environment | {"DSE_CACHE": str(kept)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def data_of(results: Path) -> str:
    """Digest of the numbers in a results file."""
    with netCDF4.Dataset(results) as file:
        file.set_auto_maskandscale(False)
        numbers = [name for name in sorted(file.variables) if file[name].dtype is not str]
        return hashlib.sha256(b"".join(file[name][...].tobytes() for name in numbers)).hexdigest()
