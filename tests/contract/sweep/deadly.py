"""Loaded by workers under test when they start: blocks that a file lists kill them, fail, or take a while.

Lines of the file ``$DSE_TEST_DEADLY``: first and last outer index, and ``kill``, ``once`` (kill, but only the first
time), ``fail``, ``slow`` or ``wait`` (for the file to go).
"""

import os
import signal
import time
from pathlib import Path

from dse.sweep.evaluation import Computation


def dask_setup(worker=None):
    """Dask calls this in every worker that starts, also in one that takes the place of a dead one."""
    part = Computation.part

    def deadly(self, block):
        path = Path(os.environ["DSE_TEST_DEADLY"])
        for line in path.read_text().splitlines() if path.exists() else []:
            first, last, what = line.split()
            if block.start <= int(last) and int(first) < block.stop:
                if what == "fail":
                    raise RuntimeError("poisoned")
                if what == "once":
                    path.unlink()
                time.sleep(0.5)  # a worker that dies as it starts is not replaced at once
                while what == "wait" and path.exists():
                    time.sleep(0.05)
                if what in ("kill", "once"):
                    os.kill(os.getpid(), signal.SIGKILL)
        return part(self, block)

    Computation.part = deadly
