"""The figure of a sweep, drawn by a second process that imports matplotlib while the sweep runs.

Importing it and loading its fonts take longer than a sweep does; here they cost a second core and no time.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from dse.errors import InputError
from dse.io import interruption, outputs
from dse.io.distribution import install_extra

#: For screens and for papers.
ENDINGS = (".png", ".svg")

#: Kinds of figures that a grid of machines alone is suited to (:func:`dse.views.plot.suited`).
_OF_MACHINES = ("shares", "energy", "clock", "bounds")


class FigureProcess:
    """The second process. Without it, figures are drawn in this one."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        # -P: modules are those of this process, not what lies in the folder where the user works.
        own_path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "dse.views.drawing"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, text=True, env=os.environ | {"PYTHONPATH": own_path},
            )  # fmt: skip

    def __enter__(self) -> FigureProcess:
        if self._process:
            interruption.CHILDREN.append(self._process)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process:
            interruption.CHILDREN.remove(self._process)
            self._process.kill()
            self._process.communicate()

    def draw(self, results: Path, force: bool = False) -> list[Path]:
        """The figures that suit the results, next to them; ``force`` replaces files that dse has not written."""
        process = self._process
        if process and process.stdin and process.stdout:
            try:
                print(json.dumps([str(results), force]), file=process.stdin, flush=True)
                return list(map(Path, json.loads(process.stdout.readline())))
            except (OSError, ValueError):
                pass  # whatever went wrong there goes wrong here again, and is reported
        return draw(results, force)


def lacking() -> InputError | None:
    """What is missing to draw, in four parts; None where figures can be drawn."""
    if importlib.util.find_spec("matplotlib"):
        return None
    fix = f"{install_extra('plot')}, or --no-figure"
    return InputError("figures", "no matplotlib", "an installation with it", fix)


def check(results: Path, force: bool, machines: bool, front: bool = False) -> None:
    """InputError where results must not be written, or a figure that may be drawn next to them.

    Args:
        results: file of the results, which need not be there yet.
        force: replace files that dse has not written.
        machines: whether these are results of a grid of machines, which have figures of several kinds.
        front: whether they hold the front of several objectives, which is drawn too.
    """
    outputs.checked(results, force)
    for kind in ("breakdown", *_OF_MACHINES * machines, *("pareto",) * front):
        for ending in ENDINGS:
            path = figure_path(results, kind, ending)
            if path == results:
                raise InputError(
                    f"output {results}", f"the name of a figure ({ending})", "a results file (.nc)",
                    f"write {results.with_suffix('.nc')}",
                )  # fmt: skip
            outputs.checked(path, force)


def draw(results: Path, force: bool = False, by_two: bool = False) -> list[Path]:
    """Draw the figures that suit a results file, next to it; ``by_two`` lets a second process draw some."""
    from dse.sweep.results.files import open_results
    from dse.views import plot

    with open_results(results) as dataset:
        kinds = plot.suited(dataset)
    by_two = by_two and len(kinds) > 1 and hasattr(os, "fork")
    other = _forked(lambda: _draw(results, kinds[1::2], force)) if by_two else 0
    _draw(results, kinds[::2] if by_two else kinds, force)
    if other and os.waitpid(other, 0)[1]:
        _draw(results, kinds[1::2], force)  # what went wrong there is reported here
    return [figure_path(results, kind, ending) for kind in kinds for ending in ENDINGS]


def _draw(results: Path, kinds: Sequence[str], force: bool) -> None:
    """Draw and write figures of these kinds. Each process opens the file itself: a handle has one place in it."""
    from dse.sweep.results.files import open_results
    from dse.views import plot

    with open_results(results) as dataset:
        for kind in kinds:
            figure = plot.KINDS[kind](dataset)
            for ending in ENDINGS:
                plot.save(figure, figure_path(results, kind, ending), force, [results])


def _forked(work: Callable[[], None]) -> int:
    """Identifier of a copy of this process that does this and ends: 0 where all is well. Threads are not copied."""
    process = os.fork()
    if not process:
        status = 1
        with contextlib.suppress(Exception):
            work()
            status = 0
        os._exit(status)
    return process


def figure_path(results: Path, kind: str, ending: str) -> Path:
    """The file of a kind of figure next to its results; the breakdown has their name."""
    return results.with_name(results.stem + ("" if kind == "breakdown" else f"_{kind}") + ending)


def _warm_up() -> None:
    """Draw two made-up designs, so that modules are imported, fonts loaded and file formats known."""
    import io

    import xarray as xr

    from dse.views import plot

    names = ("step_time", "peak_memory", "mfu", "step_time_forward", "step_time_data_parallel", "tp", "pp")
    sample = {name: ("mapping", [1.0, 2.0]) for name in names} | {"feasible": ("mapping", [True, True])}
    figure = plot.breakdown(xr.Dataset(sample).set_coords(["tp", "pp"]))
    for ending in ENDINGS:
        figure.savefig(io.BytesIO(), format=ending[1:])
    xr.backends.list_engines()


def _asked() -> bool:
    """Whether a request waits on standard input: then drawing something else first would only take time."""
    with contextlib.suppress(OSError, ValueError):  # not every system can tell of a pipe
        return bool(select.select([sys.stdin], [], [], 0.0)[0])
    return False


def main() -> None:
    """Warm up, wait for the path of a results file on standard input, draw, print where."""
    sys.modules["dask"] = None  # type: ignore[assignment]  # where it is installed xarray takes a second to import it
    import matplotlib.backends.backend_agg
    import matplotlib.backends.backend_svg  # noqa: F401

    from dse.views import plot  # noqa: F401

    if not _asked():
        _warm_up()
    request = sys.stdin.readline()
    if request:
        results, force = json.loads(request)
        print(json.dumps(list(map(str, draw(Path(results), force, by_two=True)))), flush=True)


if __name__ == "__main__":
    main()
