"""Who may know whom: imports point down, there are no circles, and nothing happens at import that belongs to a door."""

from __future__ import annotations

import ast
import functools
import itertools
import re
from pathlib import Path

import pytest

from dse.io.files import result_sources

ROOT = Path(__file__).parents[2]

#: What stands behind a door is asked of the study, here by all that must work for any kind of it.
_BEHIND_DOORS = (
    "dse.doors.evaluation", "dse.doors.serving", "dse.doors.study_training", "dse.doors.study_serving",
    "dse.types.Metrics", "dse.types.ServingMetrics", "dse.types.metrics.Metrics", "dse.types.metrics.ServingMetrics",
    "dse.types.Infeasible",
    "dse.types.choices.Infeasible", "dse.types.INFEASIBLE_MEANING", "dse.model.layout", "dse.model.work",
    "dse.model.parallel", "dse.model.steps", "dse.model.accounts", "dse.model.serving",
)  # fmt: skip

#: Rooms that may not know these modules or names, whatever their level.
FORBIDDEN = {
    **dict.fromkeys(
        ("dse.spec", "dse.sweep", "dse.optimizers", "dse.views.plot", "dse.lab.page", "dse.views.difference"),
        _BEHIND_DOORS,
    ),
    "dse.model": ("dse.designs.catalog", "dse.designs.composing", "dse.designs.leaves"),
}


#: Rooms in a row, each of which imports the next, at most: what a reader of the first may have to know.
LONGEST_CHAIN = 9


def name_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {
    name_of(file): file
    for folder in ("dse", "calibration", "benchmarks", "docs/make")
    for file in sorted((ROOT / folder).rglob("*.py"))
}


def room_of(module: str) -> str:
    """``dse.sweep`` of ``dse.sweep.engine.chunks``, ``dse.lab.fits`` of ``dse.lab.fits.jobs``; "" of the package."""
    return ".".join(module.split(".")[: 3 if within(module, "dse.lab") else 2 if within(module, "dse") else 1])


@functools.cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(FILES[module].read_text(encoding="utf-8"))


def _for_type_checkers(tree: ast.AST) -> set[int]:
    """Nodes of imports under ``if TYPE_CHECKING``."""
    blocks = [n for n in ast.walk(tree) if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    return {id(node) for block in blocks for statement in block.body for node in ast.walk(statement)}


@functools.cache
def imported(module: str, types: bool = True) -> frozenset[str]:
    """Full names that a module imports, inside functions too; ``types``: those for type checkers alone as well."""
    tree = tree_of(module)
    skipped = set() if types else _for_type_checkers(tree)
    names = set[str]()
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(name for name in names if name.partition(".")[0] in ("dse", "calibration", "benchmarks", "docs"))


@functools.cache
def modules(module: str, types: bool = True) -> frozenset[str]:
    """Modules behind the imported names."""
    names = {name if name in FILES else name.rpartition(".")[0] for name in imported(module, types)}
    return frozenset(names - {module})


def within(module: str, room: str) -> bool:
    return module == room or module.startswith(f"{room}.")


def rooms(types: bool = True) -> dict[str, set[str]]:
    """Room → rooms that it imports; the package itself, which only names what others hold, is none."""
    found: dict[str, set[str]] = {room_of(module): set() for module in FILES if module != "dse"}
    for module in FILES:
        if module != "dse":
            found[room_of(module)] |= {room_of(other) for other in modules(module, types) if other != "dse"}
    return {room: others - {room} for room, others in found.items()}


def circle(graph: dict[str, set[str]]) -> list[str]:
    """A circle of a graph; empty where there is none."""
    state: dict[str, int] = {}

    def visit(node: str, path: tuple[str, ...]) -> list[str]:
        if state.get(node) == 1:
            return [*path[path.index(node) :], node]
        if node in state:
            return []
        state[node] = 1
        for other in sorted(graph.get(node, ())):
            if turns := visit(other, (*path, node)):
                return turns
        state[node] = 2
        return []

    return next((turns for node in sorted(graph) if (turns := visit(node, ()))), [])


def longest(graph: dict[str, set[str]]) -> list[str]:
    """The longest chain of a graph without circles."""

    @functools.cache
    def below(node: str) -> tuple[str, ...]:
        return (node, *max((below(other) for other in sorted(graph.get(node, ()))), key=len, default=()))

    return [*max(map(below, sorted(graph)), key=len)]


def test_circles_and_chains_are_seen():
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert not circle({"a": {"b", "c"}, "b": {"c"}})
    assert longest({"a": {"b", "c"}, "b": {"c"}}) == ["a", "b", "c"]


def test_rooms_have_no_circles():
    assert not (turns := circle(rooms())), " → ".join(turns)


def test_chains_of_rooms_are_short():
    """Of those that run: an import for type checkers alone does not count."""
    chain = longest({room: others for room, others in rooms(types=False).items() if within(room, "dse")})
    assert len(chain) <= LONGEST_CHAIN, " → ".join(chain)


def test_the_core_does_not_know_the_lab():
    knowing = [
        f"{module} imports {other}"
        for module in FILES
        if within(module, "dse") and not within(module, "dse.lab")
        for other in modules(module)
        if within(other, "dse.lab")
    ]
    assert not knowing, ", ".join(knowing)


def test_modules_have_no_circles():
    assert not (turns := circle({m: set(modules(m)) - {"dse"} for m in FILES if m != "dse"})), " → ".join(turns)


PACKAGES = [name for name, file in FILES.items() if file.name == "__init__.py" and name not in ("dse", "dse.lab")]


@pytest.mark.parametrize("package", PACKAGES)
def test_parts_of_a_package_have_no_circles(package):
    """Its modules and its packages: whoever reads one of them may have to know those below, never itself again."""
    depth = package.count(".") + 2
    inside = [module for module in FILES if module.startswith(f"{package}.")]
    graph: dict[str, set[str]] = {}
    for module in inside:
        part = ".".join(module.split(".")[:depth])
        others = {".".join(other.split(".")[:depth]) for other in modules(module) if other in inside}
        graph[part] = graph.get(part, set()) | (others - {part})
    assert not (turns := circle(graph)), " → ".join(turns)


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
    assert {FILES[module] for module in found} <= set(result_sources()), "add the room to dse.io.files.result_sources"


def test_the_package_imports_and_names_nothing_that_the_wheel_leaves_out():
    """The checkout names the programs of ``dse bench`` and ``dse calibrate``, which refuse where there is none."""
    left_out = {"benchmarks", "calibration", "docs", "tests"}
    for module in filter(lambda name: within(name, "dse"), FILES):
        nodes = list(ast.walk(tree_of(module)))
        names = [alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names]
        names += [str(n.module) for n in nodes if isinstance(n, ast.ImportFrom)]
        public = {
            id(c)
            for n in nodes
            if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "__all__"
            for c in ast.walk(n)
        }
        texts = [n for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in public]
        names += [n.value for n in texts]
        names = [name for name in names if re.fullmatch(r"\w+(\.\w+)*", name)]
        assert not left_out & {name.partition(".")[0] for name in names}, module
        assert not [n for n in nodes if isinstance(n, ast.Attribute) and ast.unparse(n) == "sys.path"], module


#: Programs outside of the wheel, from the ground up.
PROGRAMS = ("calibration", "benchmarks", "docs", "tests")


def test_imports_of_programs_outside_of_the_wheel_point_down():
    """A program may know those before it."""
    for level, program in enumerate(PROGRAMS):
        for file in sorted((ROOT / program).rglob("*.py")):
            nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
            names = [alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names]
            names += [str(n.module) for n in nodes if isinstance(n, ast.ImportFrom)]
            above = [name for name in names if name.partition(".")[0] in PROGRAMS[level + 1 :]]
            assert not above, f"{file.relative_to(ROOT)} imports {', '.join(above)}"


def test_importing_changes_no_environment():
    for module in filter(lambda name: within(name, "dse"), FILES):
        statements = tree_of(module).body
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


def test_heavy_files_exist():
    from tests.conftest import HEAVY

    root = Path(__file__).parents[1]
    assert not [name for name in HEAVY if not (root / name).is_file()] and all(
        name.startswith("unit/") for name in HEAVY
    )
