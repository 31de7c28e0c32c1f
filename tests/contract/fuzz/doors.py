"""What users' documents go through, up to where designs would be evaluated; and what may come of it."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from dse.errors import InputError

#: Seconds of the processor, and bytes, that no document may take before it is refused or understood.
LONGEST, LARGEST = 10.0, 2 * 2**30


def sweep(path: Path) -> None:
    """A sweep, as far as ``dse run`` looks before it computes."""
    from dse.sweep import RunOptions
    from dse.sweep.job import prepare_job

    prepare_job(path, RunOptions(output=False))


def search(path: Path) -> None:
    """A search or a co-design, as far as ``dse search`` looks before it computes."""
    from dse import optimizers as searches

    searches.plan(path)


def accelerator(path: Path) -> None:
    """An accelerator of a user's catalogue, as ``dse catalog check`` and ``dse evaluate`` read it."""
    from dse.designs import catalog

    folder = path.parent / "catalog"
    (folder / "accelerators").mkdir(parents=True, exist_ok=True)
    shutil.copy(path, folder / "accelerators" / "my-chip.toml")
    try:
        catalog.values("system", "my-chip", folder=folder)
    finally:
        shutil.rmtree(folder)


def settings(path: Path) -> None:
    """Lines of NAME=VALUE, as they stand after ``dse evaluate --set``, as far as they make a design."""
    from dse.designs import design

    lines = (line.partition("=") for line in path.read_text().split("\n") if "=" in line)
    values: dict[str, object] = {name.strip(): text.strip() for name, _, text in lines}
    for name, text in values.items():
        with contextlib.suppress(ValueError):
            values[name] = float(str(text))
    own = {"workload": "llama-3-8b", "system": "h100", "where": "--set"}
    design(**own, **{name: value for name, value in values.items() if name not in own})  # type: ignore[arg-type]


def arguments(path: Path) -> None:
    """A list of arguments of the tool that the file is named after, as ``dse launch --arguments`` reads it."""
    from dse.designs import leaf_path, leaf_value
    from dse.io import inputs
    from dse.tools import read_arguments

    found = read_arguments(path.stem, inputs.text(path, "a text of options"))
    for name, value in found.settings.items():
        leaf_value(leaf_path(name), value, "--set")


def table(path: Path) -> None:
    """Measured rows, as far as they become designs."""
    from dse.measured import read_cases
    from dse.measured.kinds import KINDS
    from dse.measured.names import Lookup
    from dse.measured.table import Skip

    lookup = Lookup()
    for case in read_cases(path, measured=False):
        with contextlib.suppress(Skip):
            KINDS[case.kind].complete(case, lookup)


def fault_of(door: Callable[[Path], None], path: Path, leaves: bool = False) -> str:
    """What is wrong with how a door took a document: "" when it was understood, or refused in four parts.

    Args:
        door: what reads it.
        path: of the document.
        leaves: whether files may be new beside it.
    """
    before, peak, there = time.process_time(), _peak(), _listing(path.parent)
    told = ""
    try:
        with _at_most(6 * LONGEST):  # by the clock: other processes may keep the machine busy
            door(path)
    except InputError as error:
        told = _untold(error)
    except BaseException as error:  # a fault, whatever it is
        if isinstance(error, KeyboardInterrupt):
            raise
        told = f"{type(error).__name__}: {error}"[:300]
    if time.process_time() - before > LONGEST:
        told += f"; took {time.process_time() - before:.1f} s"
    if _peak() - peak > LARGEST:
        told += f"; took {(_peak() - peak) / 2**30:.1f} GiB"
    if not leaves and _listing(path.parent) != there:
        told += f"; left {_listing(path.parent) - there}"
    return told


@contextlib.contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Gives up what has not ended by then."""

    def give_up(*_: object) -> None:
        raise TimeoutError(f"not done after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def _untold(error: InputError) -> str:
    """What an error lacks: each of its four parts is a text that a terminal can show."""
    parts = (error.where, error.got, error.allowed, error.fix)
    if not all(isinstance(part, str) and part.strip() for part in parts):
        return f"a part is missing: {parts}"
    if any(len(part) > 2000 for part in parts):
        return f"a part of {max(map(len, parts)):,} characters"
    return "" if all(part.isprintable() for part in parts) else f"a part that no terminal can show: {parts}"


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _listing(folder: Path) -> set[str]:
    return set(os.listdir(folder))
