"""Who may know whom: imports point down, there are no circles, and nothing happens at import that belongs to a door."""

from __future__ import annotations

import ast
import functools
import itertools
from pathlib import Path

import pytest

from dse.io.files import computing

ROOT = Path(__file__).parents[1]

#: From the ground up. A module knows its own room and those below; rooms of one line do not know each other.
LEVELS: list[tuple[str, ...]] = [
    ("dse",),  # the package itself: public names, imported when they are asked for
    (
        "dse.io",
        "dse.designs",
        "dse.doors",
        "dse.views",  # the rooms themselves, which import nothing
        "dse.errors",
        "dse.io.distribution",
        "dse.io.environment",
        "dse.doors.equations",
        "dse.io.quantities",
        "dse.views.headings",
    ),
    ("dse.io.interruption", "dse.io.terminal"),
    ("dse.io.files", "dse.doors.recording"),
    ("dse.io.inputs", "dse.io.outputs", "dse.io.toml", "dse.io.cache", "dse.io.workers"),
    ("dse.types", "dse.io.chrome_trace", "dse.io.databases", "dse.io.examples"),
    ("dse.designs.catalog",),
    ("dse.designs.references",),
    ("dse.designs.records",),
    ("dse.designs.checks",),
    ("dse.designs.leaves",),
    ("dse.designs.calibrated", "dse.designs.composing", "dse.designs.priced"),
    ("dse.model",),  # small things that all rooms of the model share
    ("dse.model.layout",),
    ("dse.model.work",),
    ("dse.model.machine",),
    ("dse.model.parallel", "dse.model.money"),
    ("dse.model.steps",),
    ("dse.model.accounts",),
    ("dse.model.serving",),
    ("dse.doors.evaluation", "dse.doors.serving"),
    ("dse.doors.pools",),
    ("dse.doors.scalars",),
    ("dse.doors.ranges",),
    ("dse.doors.folding", "dse.doors.posttraining"),
    ("dse.doors.study",),
    ("dse.doors.study_training", "dse.doors.study_serving"),
    ("dse.doors.studies",),
    ("dse.views.trace", "dse.launch", "dse.simulate"),
    ("dse.spec",),
    ("dse.sweep.progress",),
    ("dse.sweep.grid",),
    ("dse.sweep.engine",),
    ("dse.sweep.reduce",),
    ("dse.sweep.store",),
    ("dse.sweep.results",),
    ("dse.sweep.job",),
    ("dse.sweep.evaluation",),
    ("dse.sweep.merging", "dse.sweep.shard"),
    ("dse.sweep.worker",),
    ("dse.sweep.cluster",),
    ("dse.sweep.run",),
    ("dse.sweep",),
    ("dse.views.explanation", "dse.measured", "dse.views.difference"),
    ("dse.search", "dse.calibrate", "dse.views.listing"),
    ("dse.views.plot",),
    ("dse.views.page",),
    ("dse.views.drawing",),
    ("dse.running",),
    ("dse.cli",),
    ("dse.__main__",),
]

#: What stands behind a door is asked of the study, here by all that must work for any kind of it.
_BEHIND_DOORS = (
    "dse.doors.evaluation", "dse.doors.serving", "dse.doors.study_training", "dse.doors.study_serving",
    "dse.types.Metrics", "dse.types.ServingMetrics", "dse.types.metrics.Metrics", "dse.types.serving.ServingMetrics",
    "dse.types.Infeasible",
    "dse.types.choices.Infeasible", "dse.types.INFEASIBLE_MEANING", "dse.model.layout", "dse.model.work",
    "dse.model.parallel", "dse.model.steps", "dse.model.accounts", "dse.model.serving",
)  # fmt: skip

#: Rooms that may not know these modules or names, whatever their level.
FORBIDDEN = {
    **dict.fromkeys(
        ("dse.spec", "dse.sweep", "dse.search", "dse.views.plot", "dse.views.page", "dse.views.difference"),
        _BEHIND_DOORS,
    ),
    "dse.model": ("dse.designs.catalog", "dse.designs.composing", "dse.designs.leaves"),
}


def name_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {name_of(file): file for file in sorted((ROOT / "dse").rglob("*.py"))}


@functools.cache
def imported(module: str) -> frozenset[str]:
    """Full names that a module imports, wherever in it: inside functions and for type checkers too."""
    found = set()
    for node in ast.walk(ast.parse(FILES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(name for name in found if name.partition(".")[0] == "dse")


@functools.cache
def modules(module: str) -> frozenset[str]:
    """Modules behind the imported names."""
    return frozenset(name if name in FILES else name.rpartition(".")[0] for name in imported(module)) - {module}


def within(module: str, room: str) -> bool:
    return module == room or module.startswith(f"{room}.")


def level_of(module: str) -> tuple[int, str]:
    """(level, room) of a module: of the longest name that holds it."""
    rooms = [(room, level) for level, listed in enumerate(LEVELS) for room in listed if room != "dse"]
    fitting = [(len(room), level, room) for room, level in rooms if within(module, room)]
    if not fitting:
        assert module == "dse", f"{module} is in no room of LEVELS"
        return 0, "dse"
    return max(fitting)[1:]


@pytest.mark.parametrize("module", [name for name in FILES if name != "dse"])
def test_imports_point_down(module):
    level, room = level_of(module)
    for other in modules(module):
        below, other_room = level_of(other)
        assert below < level or room == other_room, f"{module} ({room}) imports {other} ({other_room})"


def test_there_are_no_circles():
    state: dict[str, int] = {}

    def visit(module: str, path: tuple[str, ...]) -> None:
        if state.get(module) == 1:
            raise AssertionError(" → ".join((*path[path.index(module) :], module)))
        if module in state:
            return
        state[module] = 1
        for other in sorted(modules(module)):
            if other != "dse":
                visit(other, (*path, module))
        state[module] = 2

    for module in FILES:
        if module != "dse":
            visit(module, ())


@pytest.mark.parametrize(("room", "name"), [(r, n) for r, names in FORBIDDEN.items() for n in names])
def test_rooms_do_not_know_what_is_not_theirs(room, name):
    knowing = [m for m in FILES if within(m, room) and any(within(found, name) for found in imported(m))]
    assert not knowing, f"{', '.join(knowing)} import {name}"


@pytest.mark.parametrize("door", ["dse.doors.studies", "dse.doors.scalars", "dse.sweep.run"])
def test_what_a_sweep_imports_counts_in_the_digest_of_its_code(door):
    """What was kept by other code is not taken up: parts of sweeps, compiled programs."""
    waiting, found = [door], set[str]()
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting += modules(module) - {"dse"}
    assert {FILES[module] for module in found} <= set(computing()), "add the room to dse.io.files.computing"


def test_the_package_imports_nothing_that_the_wheel_leaves_out():
    """``dse bench`` and ``dse calibrate`` find theirs by name, and refuse where there is no checkout."""
    left_out = {"benchmarks", "calibration", "docs", "tests"}
    for module, file in FILES.items():
        nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
        names = [alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names]
        names += [str(n.module) for n in nodes if isinstance(n, ast.ImportFrom)]
        assert not left_out & {name.partition(".")[0] for name in names}, module


def test_importing_changes_no_environment():
    for module, file in FILES.items():
        statements = ast.parse(file.read_text(encoding="utf-8")).body
        outside = [s for s in statements if not isinstance(s, ast.FunctionDef | ast.ClassDef)]
        for node in itertools.chain.from_iterable(map(ast.walk, outside)):
            called = isinstance(node, ast.Call) and ast.unparse(node.func)
            assert not called or not called.endswith(
                (
                    "environ.setdefault",
                    "environ.update",
                    "putenv",
                    "config.update",
                    "fuse_outputs",
                )
            ), f"{module}: {ast.unparse(node)}"
            if isinstance(node, ast.Assign):
                assert not any("environ" in ast.unparse(t) for t in node.targets), f"{module}: {ast.unparse(node)}"
