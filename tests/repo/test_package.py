"""The package: lazy imports, functions that share a name with their module, the built wheel."""

from __future__ import annotations

import email
import importlib.metadata
import os
import re
import runpy
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import dse
from dse.io import install_extra
from dse.io.distribution import NAME, is_released
from tests.release import MOST

ROOT = Path(__file__).parents[2]


def run_python(code: str, **options) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_is_lazy():
    assert run_python("import sys, dse; print([m for m in ('jax', 'numpy') if m in sys.modules])") == "[]"


def test_functions_keep_their_names():
    code = """
import dse.designs.leaves, dse.doors.evaluation, dse.views.explanation, dse.measured.comparison, dse.sweep.run
from dse import design, evaluate
import dse.model.accounts.memory
assert all(callable(f) for f in (dse.design, dse.evaluate, dse.explain, dse.predict, dse.run)), dse.design
assert design is dse.design and evaluate is dse.evaluate
from dse.designs import leaves
"""
    run_python(code)


def test_everything_public_is_there():
    for name in dse.__all__:
        assert getattr(dse, name) is not None
    assert set(dse.__all__) <= set(dir(dse))
    with pytest.raises(AttributeError, match="nonsense"):
        _ = dse.nonsense


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The folder of an installation: what the wheel holds."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    assert wheel.stat().st_size < MOST[".whl"]
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


def as_installed(installed: Path) -> dict[str, str]:
    """An environment in which the installation is the package, and no checkout is."""
    compiled = {name: value for name, value in os.environ.items() if name.startswith(("JAX_", "XLA_", "DSE_CACHE"))}
    return {"PYTHONPATH": str(installed), "PATH": "", **compiled}


def test_wheel_holds_the_catalogue(tmp_path, installed):
    names = [path.relative_to(installed).as_posix() for path in installed.rglob("*") if path.is_file()]
    in_checkout = {
        p.relative_to(ROOT).as_posix() for folder in ("hw_catalog", "sweeps") for p in (ROOT / folder).rglob("*.toml")
    }
    assert {f"dse/{name}" for name in in_checkout} <= set(names)
    assets = ROOT / "dse" / "lab" / "page" / "assets"
    assert {p.relative_to(ROOT).as_posix() for p in assets.iterdir()} <= set(names)
    tables = {path.relative_to(ROOT).as_posix() for path in (ROOT / "dse").rglob("*.toml")}
    assert {"dse/measured/rules.toml", "dse/tools/tables/vllm.toml", "dse/lab/fits/parameters.toml"} <= tables
    assert tables <= set(names)
    assert not [name for name in names if not name.startswith(("dse/", "llm_dse-"))]
    code = """
import dse
design = dse.design(workload="gpt-3-13b", system="selene", tp=8)
print(dse.catalog.catalog_root(), float(dse.evaluate(design).step_time) > 0)
"""
    environment = as_installed(installed)
    told = run_python(code, cwd=tmp_path, env=environment)
    assert told == f"{installed / 'dse' / 'hw_catalog'} True"
    (tmp_path / "kernels.csv").write_text("system,dtype,m,n,k,latency_ms\nh100_sxm,bfloat16,4096,4096,4096,0.2\n")
    for words, wanted in (
        (["bench"], "a source checkout"),
        (["calibrate", "kernels.csv", "-o", "t.toml"], "from a checkout"),
    ):
        command = [sys.executable, "-m", "dse", *words]
        refused = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert refused.returncode == 2 and wanted in refused.stderr and "Traceback" not in refused.stderr


def test_examples_run_from_the_wheel(tmp_path, installed):
    """In an empty folder, where their results go."""

    def dse_of_the_wheel(*words):
        command = [sys.executable, "-m", "dse", *words]
        options = {"cwd": tmp_path, "env": as_installed(installed), "capture_output": True, "text": True}
        return subprocess.run(command, check=False, **options)

    listed = dse_of_the_wheel("examples")
    assert listed.returncode == 0 and "dse run example:megatron_1t_4096_a100\n" in listed.stdout
    done = dse_of_the_wheel("run", "example:megatron_1t_4096_a100", "--no-figure", "--keep", "top:3")
    assert done.returncode == 0 and "34,716 designs" in done.stdout, done.stderr
    assert (tmp_path / "results" / "megatron_1t_4096_a100.nc").is_file()
    wrong = dse_of_the_wheel("run", "example:megatron_1t_a100")
    assert wrong.returncode == 2 and "did you mean 'megatron_1t_4096_a100'" in wrong.stderr


def test_the_name_of_the_package_index_is_its_own(installed):
    """Import and command are ``dse``; the distribution of that name is another project's."""
    (folder,) = installed.glob("*.dist-info")
    told = email.message_from_string((folder / "METADATA").read_text(encoding="utf-8"))
    assert (told["Name"], told["Version"], told["License-Expression"]) == (NAME, dse.__version__, "Apache-2.0")
    assert "training and serving" in told["Summary"] and told["Author"] == "The dse authors"
    groups = {line.partition(" ::")[0] for line in told.get_all("Classifier")}
    assert {"Development Status", "Operating System", "Programming Language", "Topic", "Typing"} <= groups
    assert told["Description-Content-Type"] == "text/markdown" and "](docs/" not in told.get_payload()
    needed = told.get_all("Requires-Dist")  # extras that name others are those of this package, not of the other
    assert any(line.startswith("fastapi") and "'test'" in line for line in needed)
    assert not [line for line in needed if re.match(r"(llm-)?dse\b", line)]
    assert "dse = dse.__main__:main" in (folder / "entry_points.txt").read_text(encoding="utf-8")
    code = f"import importlib.metadata; print(importlib.metadata.version({NAME!r}))"
    assert run_python(code, env=as_installed(installed)) == dse.__version__


def test_links_and_pictures_of_the_readme_lead_to_the_repository():
    hook = pytest.importorskip("hatchling") and runpy.run_path(str(ROOT / "hatch_build.py"))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = hook["absolute"](readme, "https://host.example/dse", "1.2.3")
    found = re.findall(r"(!?)\[[^\]]*\]\(https://host\.example/dse/(raw|blob)/v1\.2\.3/([^)#]+)", shown)
    assert len(found) == len(re.findall(r"\]\((?!http)", readme)) > 20
    assert all((ROOT / path).is_file() and (kind == "raw") == bool(picture) for picture, kind, path in found)
    without = hook["absolute"](readme, "", "1.2.3")
    assert "](" not in without and "\n*The explorer that dse report writes" in without
    urls = hook["addresses"]("https://host.example/dse")
    assert len(urls) == 5 and all(url.startswith("https://host.example/dse") for url in urls.values())


def test_the_version_that_is_installed_is_that_of_the_package():
    try:
        assert importlib.metadata.version(NAME) == dse.__version__
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("runs from the sources")


#: What would install the other project: the name alone, or with an extra.
THEIRS = re.compile(r"""(?<![\w-])dse\[[a-z]|install(\s+-\S+(\s+\S+\.txt)?)*\s+['"]?dse(?![\w./-])""")
TELLING = ("pip install 'dse[report]'", "pip install -U dse", "install -c constraints.txt dse", "needs dse[dist]")


def test_no_file_tells_to_install_the_other_project():
    assert all(map(THEIRS.search, TELLING))
    assert not THEIRS.search(f"{install_extra('report')}, pip install ./dse-source, pip install bokeh; dse run")
    kinds = ("*.py", "*.md", "*.toml", "*.cff", "*.txt", "*.html", "*.js", "*.ipynb", "Makefile")
    named = ("dse", "docs", "hw_catalog", "sweeps", "notebooks", "benchmarks", "calibration", "tests")
    folders = [ROOT / name for name in named]
    files = {file for kind in kinds for folder in folders for file in folder.rglob(kind)}
    files |= {file for kind in kinds for file in ROOT.glob(kind)} - {ROOT / "CHANGELOG.md"}
    texts = {file: file.read_text(encoding="utf-8") for file in files - {Path(__file__)}}
    assert len(texts) > 500
    assert not {file.name: found[0] for file, text in texts.items() if (found := THEIRS.search(text))}
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["metadata"]
    if not settings["hooks"]["custom"]["repository"]:
        del texts[ROOT / "dse" / "io" / "distribution.py"]  # which writes the command once there is a release
        assert all(map(FROM_THE_INDEX.search, UNRELEASED))
        assert not {file.name: found[0] for file, text in texts.items() if (found := FROM_THE_INDEX.search(text))}


#: What would install whatever somebody registers as ``llm-dse``, before there is a release.
FROM_THE_INDEX = re.compile(r"""install\s(?:(?!dist/|\n\n)[^`#;])*?(?<![\w./-])llm-dse(?![\w-])""")
UNRELEASED = ("pip install 'llm-dse[report]'", "pip install -U llm-dse==1.0", "pip install\n -c some.txt llm-dse")


def test_an_extra_is_installed_from_a_checkout_or_a_wheel_until_there_is_a_release(monkeypatch):
    """A release states the address of its repository, which the metadata of an installation have."""
    stated = email.message_from_string(f"Name: {NAME}\nProject-URL: Repository, https://host.example/dse\n\n")
    for urls, wanted in ((email.message_from_string(f"Name: {NAME}\n\n"), False), (stated, True)):
        monkeypatch.setattr(importlib.metadata, "metadata", lambda name, found=urls: found)
        assert is_released() == wanted
        text = install_extra("report")
        assert "the extra report" in text and ("pip install 'llm-dse[report]'" in text) == wanted
        assert ("pip install -e '.[report]'" in text and "'dist/llm_dse-…whl[report]'" in text) != wanted

    def lacking(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "metadata", lacking)
    assert not is_released()


def test_every_extra_that_an_error_names_exists():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    texts = [file.read_text(encoding="utf-8") for file in (ROOT / "dse").rglob("*.py")]
    named = {name for text in texts for name in re.findall(r"""(?<!def )install_extra\(["'](\w+)""", text)}
    assert named >= {"api", "dist", "plot", "recipes", "search"} and named <= set(extras)


def test_source_distribution_holds_what_the_wheel_leaves_out(tmp_path):
    pytest.importorskip("hatchling")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (source,) = tmp_path.glob("*.tar.gz")
    assert source.stat().st_size < MOST[".gz"]
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "benchmarks/rates/__main__.py",
        "benchmarks/search/optima.json",
        "benchmarks/search/spaces/gpt3_selene.toml",
        "calibration/jobs.py",
        "hatch_build.py",
        "CITATION.cff",
        "README.md",
        "docs/make/markdown.py",
        "docs/accuracy.md",
        "tests/repo/test_package.py",
    } <= names


@pytest.mark.slow
def test_the_source_distribution_builds_the_same_wheel(tmp_path):
    """And its tests run: nothing that they need is left out."""
    pytest.importorskip("hatchling")

    def build(folder, kind, target):
        command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(target)]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        (made,) = target.iterdir()
        return made

    with tarfile.open(build(ROOT, "sdist", tmp_path / "source")) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    wheels = [build(ROOT, "wheel", tmp_path / "one"), build(unpacked, "wheel", tmp_path / "other")]
    contents = []
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            contents.append({name: archive.read(name) for name in archive.namelist()})
    assert contents[0] == contents[1]
    files = ["tests/unit/views/test_difference.py", "tests/unit/tools/test_arguments.py"]
    smoke = [sys.executable, "-m", "pytest", "-q", *files]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        smoke,
        cwd=unpacked,
        env=environment | {"PYTHONPATH": str(unpacked)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]


def test_pages_need_no_matplotlib():
    """Their colours and designs are those of figures, which are imported without it."""
    blocked = "import sys; sys.modules['matplotlib'] = None\n"
    code = "import dse.lab.page\nfrom dse.lab.page.parts import part\nprint(part('host').label)"
    assert run_python(blocked + code) == "host launches"


def test_without_matplotlib_a_sweep_says_so_and_a_plot_is_refused(monkeypatch, tmp_path):
    from typer.testing import CliRunner

    from dse.capabilities.best import draw_figures
    from dse.cli import app
    from dse.views import figures

    monkeypatch.setattr(figures.importlib.util, "find_spec", lambda name: None)
    paths, (note,), status = draw_figures(tmp_path / "r.nc", False)
    assert not paths and not status and install_extra("plot") in note
    refused = CliRunner().invoke(app, ["plot", "r.nc"])
    assert refused.exit_code == 2 and install_extra("plot") in refused.output
