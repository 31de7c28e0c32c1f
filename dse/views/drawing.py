"""Figures of a results file, written next to it."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from dse.errors import InputError
from dse.io import interruption, outputs
from dse.io.distribution import install_extra
from dse.io.environment import processors
from dse.io.files import unique_suffix

if TYPE_CHECKING:
    import xarray as xr

#: For screens and for papers.
ENDINGS = (".png", ".svg")

#: Kinds of figures for a grid of machines only (:func:`dse.views.plot.suited`).
_OF_MACHINES = ("shares", "energy", "clock", "bounds")


def lacking() -> InputError | None:
    """Missing requirement of figures, in four parts; None where figures can be drawn."""
    if importlib.util.find_spec("matplotlib"):
        return None
    fix = f"{install_extra('plot')}, or --no-figure"
    return InputError("figures", "no matplotlib", "an installation with it", fix)


def check(results: Path, force: bool, machines: bool, front: bool = False) -> None:
    """InputError where results, or figures next to them, must not be written.

    Args:
        results: file of the results, which may not exist yet.
        force: replace files that dse has not written.
        machines: whether the results are of a grid of machines, with several kinds of figures.
        front: whether they hold the front of several objectives, which is drawn too.
    """
    outputs.checked(results, force)
    for kind in ("breakdown", *_OF_MACHINES * machines, *("pareto",) * front):
        for ending in ENDINGS:
            path = figure_path(results, kind, ending)
            if path == results:
                raise InputError(
                    f"output {results}",
                    f"the name of a figure ({ending})",
                    "a results file (.nc)",
                    f"write {results.with_suffix('.nc')}",
                )
            outputs.checked(path, force)


def draw(results: Path, force: bool = False, process: DrawingProcess | None = None) -> list[Path]:
    """Draw the figures that suit a results file next to it; ``force`` replaces other files. Returns their paths.

    ``process`` draws them, where there is one and nothing fails.
    """
    return (process.draw(results, force) if process else None) or _drawn(results, force)


def _drawn(results: Path, force: bool, kinds: Iterable[str] = ()) -> list[Path]:
    """Figures of these kinds, or of all that suit the results."""
    with _without(*_UNUSED):
        from dse.sweep.results.files import open_results
        from dse.views import plot

        with open_results(results) as dataset:
            each = (_saving(dataset, kind, results, force) for kind in kinds or plot.suited(dataset))
            return [save() for saving in each for save in saving.values()]


def _saving(dataset: xr.Dataset, kind: str, results: Path, force: bool) -> dict[Path, Callable[[], Path]]:
    """File of a figure → what writes it."""
    from dse.views import plot

    figure, paths = plot.KINDS[kind](dataset), [figure_path(results, kind, ending) for ending in ENDINGS]
    return {path: functools.partial(plot.save, figure, path, force, [results]) for path in paths}


class DrawingProcess:
    """A process that imports what figures need while results are computed, and then draws them.

    It computes nothing and does without JAX, which takes a third of a second: figures that need the model are drawn
    here meanwhile, and all of them, with their errors, where it fails at anything. In a session of its own it hears no
    Ctrl-C; an interrupted command ends it.
    """

    def __init__(self) -> None:
        self._told = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM, str(Path(__file__).parents[2])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._told,
            start_new_session=True,
        )
        interruption.CHILDREN.append(self)
        self._folder: Path | None = None  #: of the figures

    def ask(self, results: Path, force: bool) -> None:
        """Let it draw a results file."""
        self._folder = results.absolute().parent
        with contextlib.suppress(OSError), self._process.stdin as asking:  # type: ignore[union-attr]
            asking.write(json.dumps([str(results), force]).encode())

    def draw(self, results: Path, force: bool) -> list[Path] | None:
        """What it was asked, as :func:`draw`; None where something fails."""
        answers = self._process.stdout
        assert answers is not None  # it is a pipe
        try:
            left = json.loads(answers.readline())
        except (OSError, ValueError):
            return None
        try:
            own = _drawn(results, force, left) if left else []
        finally:
            drawn = self._answered(answers)
        return None if drawn is None else [*drawn, *own]

    def _answered(self, answers: Iterable[bytes]) -> list[Path] | None:
        """The figures that it has drawn; None where something failed."""
        drawn: list[Path] = []
        with contextlib.suppress(OSError, ValueError):
            for line in answers:
                drawn.append(Path(json.loads(line)))
                interruption.complete(drawn[-1])
        if self._process.wait():
            return None
        self._told.seek(0)
        sys.stderr.write(self._told.read().decode(errors="replace"))
        return drawn

    def kill(self) -> None:
        """End it with its copy, and remove what they have half written."""
        pid, pids = self._process.pid, [self._process.pid]
        with contextlib.suppress(OSError):
            pids += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        if self._process.returncode is None:
            if sys.platform == "linux":  # it has copies there, all in its session
                with contextlib.suppress(OSError):
                    os.killpg(pid, signal.SIGKILL)
            else:
                self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(2.0)
        for half in (path for one in pids if self._folder for path in self._folder.glob(f".*{unique_suffix(one)}")):
            half.unlink(missing_ok=True)

    def close(self) -> None:
        """End it."""
        if self in interruption.CHILDREN:
            interruption.CHILDREN.remove(self)
            with self._told, self._process:
                self.kill()


@contextlib.contextmanager
def drawing_process(wanted: bool) -> Iterator[DrawingProcess | None]:
    """A process for figures, where they are wanted and can be drawn, and there is a second processor for it."""
    process = None
    if wanted and processors() > 1 and not lacking():
        with contextlib.suppress(OSError):
            process = DrawingProcess()
    try:
        yield process
    finally:
        if process:
            process.close()


#: What the process runs; the folder of the package comes last among those that are searched.
_PROGRAM = "import sys; sys.path.append(sys.argv[1]); from dse.views.drawing import serve; serve()"

#: What figures of stored results need.
_NEEDED = (
    "dse.sweep.results.files",
    "dse.sweep.results.cautioned",
    "dse.views.plot",
    "dse.spec.sweep",
    "netCDF4",
    "matplotlib.figure",
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_svg",
)


def serve() -> None:
    """In the process: import what figures need, wait for the name of a results file, draw and name its figures."""
    gc.set_threshold(50_000, 20, 100)  # as in dse.__main__
    no_pytrees = types.SimpleNamespace(register_dataclass=lambda record: record)
    sys.modules["jax"] = types.SimpleNamespace(Array=float, tree_util=no_pytrees)  # type: ignore[assignment]
    importlib.import_module("dse.types")
    sys.modules["jax"] = None  # type: ignore[assignment]
    with _without(*_UNUSED):
        for name in _NEEDED:
            importlib.import_module(name)
        from dse.sweep.results.files import open_results
        from dse.views import plot

        if asked := sys.stdin.read():
            name, force = json.loads(asked)
            with open_results(name) as dataset:
                kinds = plot.suited(dataset)
                print(json.dumps([kind for kind in kinds if kind in plot.COMPUTED]), flush=True)
                for kind in kinds:
                    if kind not in plot.COMPUTED:
                        saving = _saving(dataset, kind, Path(name), force)
                        _side_by_side(*saving.values())
                        for path in saving:
                            print(json.dumps(str(path)), flush=True)
    interruption.end(0)


def _side_by_side(one: Callable[[], Path], other: Callable[[], Path]) -> None:
    """Call both; the second in a copy of this process, where copies are safe."""
    copy = os.fork() if sys.platform == "linux" else None
    if copy == 0:
        with contextlib.suppress(Exception):
            other()
            os._exit(0)
        os._exit(1)
    one()
    if copy is None:
        other()
    elif os.waitpid(copy, 0)[1]:
        raise ChildProcessError(f"pid {copy} failed")


#: What xarray imports where it is installed and no figure needs: dask takes a third of a second, pint a fifth.
_UNUSED = ("dask", "pint")


@contextlib.contextmanager
def _without(*names: str) -> Iterator[None]:
    """Hide modules from a first import of xarray, and from what it asks for when it reads the first array."""
    hidden = [] if "xarray" in sys.modules else [name for name in names if name not in sys.modules]
    sys.modules |= dict.fromkeys(hidden)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


def figure_path(results: Path, kind: str, ending: str) -> Path:
    """File of a kind of figure next to its results; the breakdown has the name of the results."""
    return results.with_name(results.stem + ("" if kind == "breakdown" else f"_{kind}") + ending)
