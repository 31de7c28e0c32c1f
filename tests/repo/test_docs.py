"""The pages for users: complete, up to date, and every block of them works as it stands."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

import dse
from docs.make import cost
from docs.make.energy.page import clock_range
from docs.make.markdown import fill, linked
from dse.designs import all_leaves, catalog, leaf_path
from dse.designs.catalog.schema import TableField, schemas
from dse.designs.catalog.value import CONFIDENCES
from dse.doors import SERVING, TRAINING
from dse.io import toml
from dse.optimizers import plan as plan_search
from dse.spec import output, pools, search, space, sweep
from dse.spec.axes import RANGE_KEYS, RULES
from dse.spec.codesign import Budget, CodesignSection
from dse.spec.continuous import ContinuousAxis
from dse.types import Recompute, choice_name
from dse.views.studies import presentation_of

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
REFERENCE = (DOCS / "reference.md").read_text(encoding="utf-8")

#: First line of a block that is a file of a catalogue.
FILE = re.compile(r"# ([a-z]+/[\w-]+\.toml)")


def blocks(page: str, language: str = "toml") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def place(text: str, folder: Path) -> Path:
    """A block that is a file of a catalogue, written there."""
    named = FILE.match(text)
    assert named, text
    path = folder / named[1]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_the_page_on_money_is_up_to_date():
    page = (DOCS / "cost.md").read_text(encoding="utf-8")
    assert linked(fill(page, cost.tables())) == page


def test_the_page_on_energy_says_how_far_the_best_clock_moves():
    """The sentence before the table of layers is of its clocks: small layers need some 50 MHz more than large ones."""
    with (DOCS / "tables" / "energy_layers.csv").open(encoding="utf-8") as lines:
        clocks = [1e6 * float(line["best clock"].removesuffix(" MHz")) for line in csv.DictReader(lines)]
    page = " ".join((DOCS / "energy.md").read_text(encoding="utf-8").split())
    assert f"The best clock of all sizes and lengths is {clock_range(clocks)}." in page
    assert 40e6 <= max(clocks) - min(clocks) <= 60e6


# --- reference.md -----------------------------------------------------------------------------------------

SPECIFICATIONS = [text for text in blocks(REFERENCE) if not FILE.match(text)]
ENTRIES = [text for text in blocks(REFERENCE) if FILE.match(text)]


def test_tables_are_up_to_date():
    from docs.make.reference import filled

    assert filled(REFERENCE) == REFERENCE, "run: python -m docs.make.reference docs/reference.md"


def known_keys() -> dict[str, set[str]]:
    """What the code knows, by where."""
    methods = {option for options in search.METHOD_OPTIONS.values() for option in options}
    own = set(search.SearchSection.model_fields) - set(search.METHOD_OPTIONS)
    continuous = {field.alias or name for name, field in ContinuousAxis.model_fields.items()}
    return {
        "sections": {"title"},
        **{section: set(keys) for section, keys in sweep.KEYS.items()},
        "names": set(space.CATALOGUE_KEYS),
        "ranges": set(RANGE_KEYS),
        "rules": {f'"{rule}"' for rule in RULES},
        "keep": {f'"{mode}"' for mode in output.KEEP_MODES if mode != "top"} | {'"top:100"'},
        "compression": {f'"{name}"' for name in output.COMPRESSIONS},
        "search": own,
        "methods": {*search.METHOD_OPTIONS, *methods},
        "continuous": continuous,
        "pools": set(pools.KEYS),
        "codesign": set(CodesignSection.model_fields),
        "budget": set(Budget.model_fields),
        "values": {"value", "source", "confidence", "spread", *CONFIDENCES, "n_experts", "sources", "aliases"},
        "folders": set(),
    }


@pytest.mark.parametrize("where", known_keys())
def test_every_key_is_on_the_page(where):
    prose = re.sub(r"```.*?```", "", REFERENCE, flags=re.DOTALL)
    marked = {name.strip() for code in re.findall(r"`([^`\n]+)`", prose) for name in (code, *code.split(","))}
    assert known_keys()[where] <= marked


def test_every_section_has_a_heading_and_an_example():
    for section in sweep.KEYS:
        assert f"### [{section}]\n" in REFERENCE
        _, _, after = REFERENCE.partition(f"### [{section}]\n")
        assert f"[{section}]" in blocks(after)[0]
    examples = {"search": "## Searches", "codesign": "## Co-design", "pools": "## Pools"}
    for section, heading in examples.items():
        assert f"[{section}]" in blocks(REFERENCE.partition(heading)[2])[0]
    for kind, folder in catalog.FOLDERS.items():
        assert f"### {folder}/\n" in REFERENCE and f"<!-- table: keys of {folder} -->" in REFERENCE, kind


def stated(section: str) -> set[str]:
    """Keys that a section names: those of its table, and of its lines on the leaves of a record."""
    keys = {key for row in re.findall(r"^\|(.*?)\|", section, re.MULTILINE) for key in re.findall(r"`([^`]+)`", row)}
    line = re.compile(r"^- (?:`([^`]*)…`: )?leaves of (.*?): (all but |all\b)?([^;\n]*)", re.MULTILINE)
    for at, records, is_most, names in line.findall(section):
        listed = set(re.findall(r"`(\w+)`", names))
        if is_most:
            record = re.findall(r"`([\w.]+)`", records)[0]
            leaves = {path.rpartition(".")[2] for path in all_leaves() if path.rpartition(".")[0] == record}
            assert listed <= leaves
            listed = leaves - listed
        keys |= {f"{at}{name}" for name in listed}
    return keys


def test_every_field_of_the_catalogue_is_in_the_reference():
    """In the section of its kind, or behind the line that stands for a table shown elsewhere."""
    from docs.make.catalog_keys import ELSEWHERE

    def paths(table: TableField, at: str = ""):
        for key, field in table.fields.items():
            yield from paths(field, f"{at}{key}.") if isinstance(field, TableField) else [(at, key, field)]

    for kind, table in schemas().items():
        keys = stated(REFERENCE.partition(f"<!-- table: keys of {catalog.FOLDERS[kind]} -->\n")[2].partition("<!--")[0])
        for at, key, field in paths(table):
            other = ELSEWHERE.get(f"{kind}.{at[:-1]}")
            shared = kind == "cost" and at.startswith("nodes.") and f"nodes.3nm.{key}" in keys
            assert shared or f"{at}{key}" in keys or (other and other[0].fields[key] == field), (kind, at, key)


@pytest.mark.parametrize("text", SPECIFICATIONS, ids=lambda text: text.strip().splitlines()[0])
def test_every_specification_plans(text):
    document = toml.parse(text, "reference.md")
    if "pools" in document:
        assert all(dse.sweep.plan(spec)[0].n_designs for spec in pools.from_text(text).specs.values())
    elif {"search", "codesign"} & document.keys():
        planned = plan_search(search.from_text(text))
        assert planned.grid.n_designs and (planned.descent is None or planned.descent.hardware.dimensions)
    else:
        grid, _ = dse.sweep.plan(sweep.from_text(text))
        assert grid.n_designs


def test_every_entry_is_one(tmp_path):
    for text in ENTRIES:
        place(text, tmp_path)
    assert catalog.check(tmp_path) == []
    shown = {path.parent.name for path in tmp_path.rglob("*.toml")}
    assert shown == {*catalog.FOLDERS.values()} - {"architectures", "cost"}


def test_stated_limits_are_those_of_the_code():
    from dse.spec.axes import _LONGEST
    from dse.spec.expression import _DEEPEST, _LONGEST as CHARACTERS
    from dse.sweep.grid.compose import _MOST_SHAPES
    from dse.sweep.grid.degrees import _MOST_MAPPINGS
    from dse.sweep.job import MOST_DESIGNS

    assert MOST_DESIGNS == 1e13 and "at most 1e13 designs" in REFERENCE
    numbers = (_LONGEST, CHARACTERS, _DEEPEST, _MOST_SHAPES, _MOST_MAPPINGS, output.DEFAULT_LIMIT)
    numbers += (search.DEFAULT_EVALUATIONS, search.MOST_SEEDS)
    assert all(f"{number:,}" in REFERENCE for number in numbers)
    assert f"{output.FEWEST_BINS} to {output.MOST_BINS}" in REFERENCE


# --- options.md -------------------------------------------------------------------------------------------

OPTIONS = (DOCS / "options.md").read_text(encoding="utf-8")


def test_options_are_up_to_date():
    from docs.make.options import filled

    assert filled(OPTIONS) == OPTIONS, "run: python -m docs.make.options docs/options.md"


def test_every_flag_of_every_capability_is_in_its_section():
    """As the command line reads them; those that all commands have stand above."""
    import typer.main

    from dse.cli import app
    from dse.reports.registry import capabilities

    commands = typer.main.get_command(app).commands
    shared = set(re.findall(r"`(--[a-z]+)\b", OPTIONS.partition("## dse ")[0]))
    for name, capability in capabilities().items():
        found = commands[name.split()[0]]
        found = found.commands[name.split()[1]] if " " in name else found
        section = OPTIONS.partition(f"## dse {name}\n")[2].partition("\n## ")[0]
        flags = {flag for param in found.params for flag in (*param.opts, *param.secondary_opts) if flag[0] == "-"}
        missing = {flag for flag in flags if f"`{flag}`" not in section} - shared - {"-h", "--help"}
        assert section and not missing, (name, missing)
        reasons = {parameter.reason_local for parameter in capability.parameters} | {capability.local}
        assert all(reason in section for reason in reasons if capability.local in ("", reason)), name


def test_names_of_python_and_http_differ_once():
    """``dse.catalog`` is the module of the catalogue."""
    from dse.reports.registry import remote_capabilities

    others = {one.key: one.python for one in remote_capabilities().values() if one.key != one.python}
    assert others == {"catalog": "catalog_list"} and "`dse.catalog_list`" in OPTIONS


# --- recipes.md -------------------------------------------------------------------------------------------

RECIPES = (DOCS / "recipes.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def kitchen(tmp_path_factory):
    """A folder in which the files of the recipes are."""
    folder = tmp_path_factory.mktemp("kitchen")
    for text in blocks(RECIPES):
        if FILE.match(text):
            place(text, folder / "my_catalog")
        else:
            (folder / "my_sweep.toml").write_text(text, encoding="utf-8")
    (config,) = blocks(RECIPES, "json")
    (folder / "config.json").write_text(config, encoding="utf-8")
    return folder


@pytest.fixture
def in_kitchen(kitchen, monkeypatch):
    monkeypatch.chdir(kitchen)
    monkeypatch.setenv("DSE_CATALOG", "my_catalog")


def commands(page: str, name: str) -> list[str]:
    return re.findall(rf"^\$ dse ({name}\b.*)$", page, re.MULTILINE)


@pytest.mark.usefixtures("in_kitchen")
def test_recipes_work():
    from typer.testing import CliRunner

    from dse.cli import app

    evaluated = commands(RECIPES, "evaluate")
    assert len(evaluated) == 5
    for line in [*commands(RECIPES, "catalog"), *(f"{line} --json" for line in evaluated)]:
        done = CliRunner().invoke(app, line.split())
        assert done.exit_code == 0, (line, done.output)
    assert catalog.check() == []


@pytest.mark.usefixtures("in_kitchen")
def test_the_sweep_of_the_recipes_has_a_million_designs():
    grid, keep = dse.sweep.plan("my_sweep.toml")
    assert 1e6 <= grid.n_designs <= 1e8 and str(keep) == "best"


def test_the_types_that_are_read_are_on_the_page():
    from dse.designs.catalog.huggingface import FAMILIES

    assert {f"`{name}`" for name in FAMILIES} <= set(re.findall(r"`\w+`", RECIPES))


# --- glossary.md ------------------------------------------------------------------------------------------


def test_the_glossary_has_every_word_of_tables():
    """Parts of a mapping, kinds of recompute, modes of keep, columns of tables of designs, confidences."""
    marked = set(re.findall(r"`([^`\n]+)`", (DOCS / "glossary.md").read_text(encoding="utf-8") + REFERENCE))
    presentation = presentation_of(TRAINING)
    words = {path.rpartition(".")[2] for path in all_leaves() if path.startswith("mapping.")}
    words |= {choice_name(one) for one in Recompute}
    words |= {mode if mode != "top" else "top:K" for mode in output.KEEP_MODES} | {
        *presentation.time_columns,
        *CONFIDENCES,
    }
    words |= {one.metric for one in presentation.columns} | {
        one.heading for one in presentation.columns if one.style != "percent"
    }
    assert words <= marked, words - marked


def test_metrics_and_leaves_of_the_glossary_exist():
    """Every name in the second column of its tables."""
    text = (DOCS / "glossary.md").read_text(encoding="utf-8").partition("## Sweeps, searches, accuracy")[0]
    rows = (row.strip("|").split("|") for row in text.splitlines() if row.startswith("|"))
    cells = [row[1] for row in rows if len(row) == 3]
    metrics = {*TRAINING.units, *SERVING.units}
    for name in {name for cell in cells for name in re.findall(r"`([\w.]+)`", cell)} - metrics:
        assert name in {*space.CATALOGUE_KEYS, "chip", "kernels"} or leaf_path(name)


# --- completion -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("typed", "offered"), [("dse ca", "catalog"), ("dse list le", "leaves")])
def test_shells_complete(typed, offered):
    """As the script that ``dse --install-completion`` installs in bash asks for it."""
    from typer.testing import CliRunner

    from dse.cli import app

    words = {"_DSE_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    assert offered in CliRunner().invoke(app, prog_name="dse", env=words).output.split()


# --- all --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", ["reference", "recipes", "glossary", "options", "programs"])
def test_links_of_pages_exist(page):
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (DOCS / link).exists(), link
