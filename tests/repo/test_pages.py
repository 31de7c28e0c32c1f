"""Every page: what its links, its references to code and tests, its commands and its Python name exists."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import importlib.util
import re
import shutil
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.pages import PAGES, ROOT, Block, Command, blocks, commands, missing

TEXTS = {page: page.read_text(encoding="utf-8") for page in PAGES}


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def prose(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(text: str) -> set[str]:
    """Anchors of the headings, as repositories and the site make them."""
    headings = re.findall(r"^#+ (.*)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_to_files_and_headings(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(TEXTS[page])):
        path, _, section = link.partition("#")
        if "://" in path or path.startswith("mailto:"):
            continue
        target = (page.parent / unquote(path)).resolve() if path else page
        assert target.exists(), link
        if section and target.suffix == ".md":
            assert section in anchors(target.read_text(encoding="utf-8")), link


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_code_and_tests_that_pages_name_exist(page):
    for file, name in re.findall(r"`((?:dse|tests|docs|benchmarks|calibration)/[\w/]+\.py)::(\w+)`", TEXTS[page]):
        defined = re.findall(r"^(?:def|class) (\w+)|^(\w+)\b.*? = ", (ROOT / file).read_text("utf-8"), re.MULTILINE)
        assert name in {one for pair in defined for one in pair}, f"{file}::{name}"


ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
WALKS = re.findall(r"^### (.*?)\n(.*?)^(\d+) files\.", ARCHITECTURE, re.MULTILINE | re.DOTALL)


def test_there_are_three_walks():
    assert len(WALKS) == 3


@pytest.mark.parametrize(("title", "steps", "count"), WALKS, ids=[title for title, _, _ in WALKS])
def test_walks_name_the_files_that_they_count(title, steps, count):
    files = set(re.findall(r"`([\w/.-]+\.(?:py|toml|csv))`", steps))
    assert len(files) == int(count)
    for file in files:
        assert (ROOT / file).exists() or (ROOT / "dse" / file).exists(), file


def test_the_table_of_rooms_is_up_to_date():
    from docs.make.architecture import filled

    assert filled(ARCHITECTURE) == ARCHITECTURE, "run: python -m docs.make.architecture docs/architecture.md"


def test_every_room_has_its_line():
    rooms = [path for path in (ROOT / "dse").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    names = {path.name for path in rooms} - {"__init__.py", "__main__.py"}
    assert not {name for name in names if f"dse/{name}" not in ARCHITECTURE}


# --- the pages of the model -------------------------------------------------------------------------------

ROOMS = sorted((ROOT / "docs" / "model").glob("*.md"))


def test_every_room_of_the_model_has_a_page():
    folders = {path.name for path in (ROOT / "dse" / "model").iterdir() if (path / "__init__.py").exists()}
    assert folders | {"layout"} == {page.stem for page in ROOMS}


@pytest.mark.parametrize("page", ROOMS, ids=named)
def test_pages_of_rooms_have_equations_sources_and_laws(page):
    text = TEXTS[page]
    sections = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert {"Sources", "Laws", "Not modelled"} <= set(sections)
    assert re.search(r"\$\$", text) and "`dse/" in text
    laws = text.partition("## Laws")[2].partition("## Not modelled")[0]
    for line in re.findall(r"^- .*$", laws, re.MULTILINE):
        assert "`tests/" in line, line


@pytest.mark.parametrize("page", ROOMS, ids=named)
def test_works_that_pages_of_rooms_cite_are_in_the_bibliography(page):
    works = (ROOT / "dse" / "designs" / "references.bib").read_text("utf-8")
    keys = set(re.findall(r"^@\w+\{(\w+),", works, re.MULTILINE))
    sources = TEXTS[page].partition("## Sources")[2].partition("## Laws")[0]
    assert set(re.findall(r"`([a-z]+\d{4}\w*)`", sources)) <= keys


# --- Python -----------------------------------------------------------------------------------------------

PYTHON = [(page, block.text) for page in PAGES for block in blocks(page, "python")]


@pytest.mark.parametrize(("page", "text"), PYTHON, ids=lambda one: named(one) if isinstance(one, Path) else "")
def test_python_names_what_exists(page, text):
    """Modules of ours that are imported and what is taken of them, in code that may take long to run."""
    tree = ast.parse(text, str(page))
    modules = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.asname or alias.name: alias.name for alias in node.names if alias.name.startswith("dse")}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dse"):
            module = importlib.import_module(node.module)
            for alias in node.names:
                if hasattr(module, "__path__") and importlib.util.find_spec(f"{node.module}.{alias.name}"):
                    modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                else:
                    assert hasattr(module, alias.name), f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            owner = importlib.import_module(modules[node.value.id])
            assert hasattr(owner, node.attr), f"{node.value.id}.{node.attr}"


@pytest.mark.parametrize(
    ("page", "text"),
    [
        (page, block.text)
        for page in (ROOT / "docs" / "concepts.md", ROOT / "docs" / "launch.md")
        for block in blocks(page, "python")
    ],
    ids=lambda one: named(one) if isinstance(one, Path) else "",
)
def test_python_that_takes_no_time_runs(page, text):
    """Other pages have tests of their own: test_readme.py, test_recipes.py, test_start.py."""
    exec(compile(text, str(page), "exec"), {})


# --- commands ---------------------------------------------------------------------------------------------


def said(page: Path) -> list[Command]:
    """Commands of dse on a page."""
    found = [command for block in blocks(page, "console") for command in commands(block)]
    return [command for command in found if command.words[:1] == ["dse"]]


#: Words of a command → the page that says it first, and how.
COMMANDS = {tuple(command.words[1:]): (page, command) for page in reversed(PAGES) for command in said(page)}

#: Commands of which only the first half is run: what they would do with the design or the specification takes long.
DESIGNS, SPECIFICATIONS = ("evaluate", "trace", "launch"), ("run", "search", "pools")


def at(block: Block) -> str:
    """Where a reader puts the file of a block: those of a catalogue into a folder of their own."""
    assert block.file
    return block.file if "/" not in block.file or block.file.startswith("my_") else f"my_catalog/{block.file}"


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder with every file that a page tells its reader to write, and the sweeps of a source checkout."""
    folder = tmp_path_factory.mktemp("desk")
    shutil.copytree(ROOT / "sweeps", folder / "sweeps")
    for block in (block for page in PAGES for block in blocks(page, "toml") if block.file):
        (folder / at(block)).parent.mkdir(parents=True, exist_ok=True)
        (folder / at(block)).write_text(block.text, encoding="utf-8")
    (config,) = blocks(ROOT / "docs" / "recipes.md", "json")
    (folder / "config.json").write_text(config.text, encoding="utf-8")
    return folder


@pytest.fixture
def at_desk(desk, monkeypatch):
    monkeypatch.chdir(desk)
    monkeypatch.setenv("DSE_CATALOG", "my_catalog")
    small = desk / "my_catalog" / "workloads" / "small-llama.toml"
    if not small.exists():  # a page makes it by a command
        run(("catalog", "from-config", "config.json", "-o", str(small)))


def run(words: tuple[str, ...]):
    """A command as it ends."""
    from typer.testing import CliRunner

    from dse.cli import app

    return CliRunner().invoke(app, list(words))


def parsed(words: tuple[str, ...]):
    """The command's name, and its options as its function gets them."""
    import typer.main

    from dse.cli import app

    name, *rest = words
    found = typer.main.get_command(app).commands[name]
    while hasattr(found, "commands") and rest[:1] and rest[0] in found.commands:
        sub, *rest = rest
        name, found = f"{name} {sub}", found.commands[sub]
    return name, found.make_context(name, rest).params


def about(words: object) -> str:
    return " ".join(words) if isinstance(words, tuple) else ""


@pytest.mark.usefixtures("at_desk")
@pytest.mark.parametrize("words", [words for words in COMMANDS if not words[0].startswith("-")], ids=about)
def test_commands_parse_and_name_what_exists(words):
    name, options = parsed(words)
    fails = COMMANDS[words][1].printed[:1] == ("error",)
    if name in DESIGNS and not fails:
        from dse.capabilities.designs import DesignOptions
        from dse.doors import STUDIES

        serving = options.get("serving") or options.get("tool") in ("vllm", "sglang", "tensorrt-llm")
        stated = {field.name: options.get(field.name) for field in dataclasses.fields(DesignOptions)}
        assert DesignOptions(**stated).request(STUDIES["serving" if serving else "training"])
    if name in SPECIFICATIONS:
        values = map(str, options.values())
        read(name, next(value for value in values if value.endswith(".toml") or value.startswith("example:")))


@functools.cache
def read(name: str, file: str) -> None:
    """A specification read with all its names; one of a sweep is planned too, and none evaluated."""
    import dse
    from dse.optimizers import plan
    from dse.spec import pools, search
    from dse.spec.sweep import text_of

    text = text_of(file)
    if name == "run":
        assert dse.sweep.plan(file)[0].n_designs
    elif name == "pools":
        assert pools.from_text(text).specs
    else:
        assert plan(search.from_text(text)).grid.n_designs


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_commands_in_running_text_exist(page):
    import typer.main

    from dse.cli import app

    known = typer.main.get_command(app).commands
    for name in re.findall(r"`dse ([a-z]+(?:-[a-z]+)*)\b", prose(TEXTS[page])):
        assert name in known, name
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    asked = [
        command.words[1]
        for block in blocks(page, "console")
        for command in commands(block)
        if command.words[0] == "make"
    ]
    for target in [*re.findall(r"`make ([a-z-]+)", prose(TEXTS[page])), *asked]:
        assert target in targets, target


@pytest.mark.usefixtures("at_desk")
@pytest.mark.parametrize("words", [words for words in COMMANDS if words[0] in ("catalog", "list")], ids=about)
def test_commands_of_names_end_well(words):
    done = run(words if words[1] != "from-config" else (*words, "--force"))
    assert done.exit_code == 0, done.output


@pytest.mark.slow
@pytest.mark.usefixtures("at_desk")
@pytest.mark.parametrize("words", [words for words in COMMANDS if words[0] in DESIGNS], ids=about)
def test_commands_of_one_design_end_well(words, desk, monkeypatch):
    (desk / "train.sh.txt").write_text(
        "--tensor-model-parallel-size 8 --micro-batch-size 1 --use-distributed-optimizer --sequence-parallel "
        "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
        encoding="utf-8",
    )
    (desk / "job.toml").write_text("[parallelism]\ntensor_parallel_degree = 8\n", encoding="utf-8")
    monkeypatch.setenv("COLUMNS", "120")
    done = run(words)
    expected = 2 if COMMANDS[words][1].printed[:1] == ("error",) else 0
    assert done.exit_code == expected, (about(words), done.output)
    assert missing(done.output, COMMANDS[words][1]) is None, done.output


# --- figures ----------------------------------------------------------------------------------------------

#: What the comparison says → the page that it is taken from, and where in it.
FIGURES = {
    "854 designs of 2,249": ("accuracy.md", r"854 of 2249 rows"),
    "times is 3.6 %, the\nmedian 1.8 %": ("accuracy.md", r"854 of .*median .* 1\.8 %, mean 3\.6 %"),
    "2.5 % for unseen configurations and 2.1 % for fitted rows": (
        "accuracy.md", r"table 5: step time\|8\|5\.4 %\|2\.5 %\|2\.07 %",
    ),
    "ours are 3.3 % and\n0.5 %": (
        "tables/accuracy_sources.csv", r"SimuMax .*,peak_memory,14,.*,0\.5 %,.*\n.*SimuMax .*,step_time,14,14,0,3\.3 %",
    ),
    "ours are 8.7 % and 7.3 %": (
        "tables/calibration_sources.csv", r"vTrain_multi,.*,8\.7 %,.*\nvTrain_single,.*,7\.3 %"
    ),
    "mean error of 6.8 %, ours 16.5 %": ("showdown.md", r"SimuMax\|14\|913\|.* / 6\.8 %\|–\|.* / 16\.5 %"),
    "it expresses 2,124": ("showdown.md", r"aiconfigurator\|0\.12\.0\|2124"),
    "11.8 % and 20.2 %, ours on\nthe same rows, publication unseen, 12.5 % and 19.5 %": (
        "showdown.md", r"time per output token\|aiconfigurator\|.*11\.8 % / 20\.2 %\|–\|12\.5 % / 19\.5 %",
    ),
    "45.4 % and 44.7 %, ours 21.8 % and 34.3 %": (
        "showdown.md", r"first token\|aiconfigurator\|.*45\.4 % / 44\.7 %\|–\|21\.8 % / 34\.3 %",
    ),
    "it expresses 681": ("showdown.md", r"llm-analysis, training\|681\|913\|0\.31\|.*43\.4 %"),
    "21.5 % and 13.0 %": ("tables/calibration_sources.csv", r"vTrain_multi,55,21\.5 %,.*\nvTrain_single,418,13\.0 %"),
}  # fmt: skip


@pytest.mark.parametrize("said", FIGURES)
def test_figures_of_the_comparison_are_those_of_their_pages(said):
    page, found = FIGURES[said]
    assert said in TEXTS[ROOT / "docs" / "comparison.md"]
    assert re.search(found, (ROOT / "docs" / page).read_text(encoding="utf-8")), found


def test_peers_differ_by_no_more_than_the_comparison_says():
    table = (ROOT / "docs" / "tables" / "systems_peers.csv").read_text(encoding="utf-8")
    for phase, most in (("prefill", 5.0), ("decode", 0.4)):
        rows = re.findall(rf"^(?:GenZ|LLM-Viewer),{phase},.*,([+-][\d.]+) %$", table, re.MULTILINE)
        assert rows and max(abs(float(row)) for row in rows) == most


def test_the_api_page_has_every_public_name():
    import dse

    text = TEXTS[ROOT / "docs" / "api.md"]
    documented = set(re.findall(r"^\.\. auto\w+:: dse\.(?:types\.)?(\w+)$", text, re.MULTILINE))
    assert set(dse.__all__) <= documented | set(re.findall(r"`dse\.(\w+)`", text))
