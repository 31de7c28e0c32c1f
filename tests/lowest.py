"""``python -m tests.lowest [lowest-direct|highest] [PYTHON]``: the built package with other versions of what it needs.

Makes an environment with uv (the lower bound of every dependency on Python 3.11, or the newest of all on the newest
Python that is found: the newest JAX wants one), installs the wheel that the source distribution builds, and runs a few
tests there from another folder, where the checkout cannot be imported. Nothing may fall back to a slower path.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]

#: Tests that meet every dependency: netCDF and xarray, pydantic and typer, JAX and optax and pymoo, figures.
SMOKE = (
    "tests/unit/doors/test_scalars.py", "tests/unit/sweep/test_few.py", "tests/unit/sweep/test_dataset.py",
    "tests/unit/measured/test_chiplets.py",
    "tests/unit/views/test_difference.py", "tests/contract/cli/test_tables.py", "tests/contract/cli/test_front.py",
    "tests/unit/sweep/test_spec.py",
    "tests/unit/designs/test_own_folder.py", "tests/unit/tools/test_arguments.py", "tests/contract/sweep/test_run.py",
    "tests/unit/optimizers/test_methods.py", "tests/unit/views/test_papers.py", "tests/unit/lab/fits/test_writing.py",
)  # fmt: skip

#: What the tests read beside the package.
BESIDE = ("tests", "sweeps", "hw_catalog", "docs", "notebooks", "README.md", "Makefile", "pyproject.toml")

#: Pythons that the newest versions are tested with, the newest first.
NEWEST = [f"3.{minor}" for minor in range(14, 10, -1)]


def newest_python() -> str:
    """The newest Python of the path, or that pyenv has."""
    folders = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for version in NEWEST:
        for python in (shutil.which(f"python{version}"), *folders.glob(f"{version}.*/bin/python")):
            if python and subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0:
                return str(python)
    return sys.executable


def run(*command: str | Path, folder: Path = ROOT, **more: str) -> None:
    """Run a command; ends in an exception where it fails."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | more
    subprocess.run(list(map(str, command)), cwd=folder, check=True, env=environment)


def main() -> None:
    """Build, install, test; the folder of it all is removed at the end."""
    resolution = sys.argv[1] if len(sys.argv) > 1 else "lowest-direct"
    wanted = "3.11" if resolution == "lowest-direct" else newest_python()
    wanted = sys.argv[2] if len(sys.argv) > 2 else wanted
    uv = shutil.which("uv") or sys.exit("uv is not there: pip install uv")
    with tempfile.TemporaryDirectory(prefix="dse-versions-") as name:
        folder = Path(name)
        run(uv, "build", "-q", "-o", folder / "dist", ROOT)  # the sdist, and of that the wheel
        (wheel,) = (folder / "dist").glob("*.whl")
        python = folder / "env" / "bin" / "python"
        run(uv, "venv", "-q", "--python", wanted, folder / "env")
        versions = folder / "versions.txt"
        extras = [word for extra in ("search", "plot", "test") for word in ("--extra", extra)]
        run(
            uv,
            "pip",
            "compile",
            "-q",
            "--python",
            python,
            "--resolution",
            resolution,
            *extras,
            "-o",
            versions,
            ROOT / "pyproject.toml",
        )
        run(uv, "pip", "install", "-q", "--python", python, "-r", versions)
        run(uv, "pip", "install", "-q", "--python", python, "--no-deps", wheel)
        run(uv, "pip", "list", "--python", python)
        (folder / "elsewhere").mkdir()
        for one in BESIDE:
            copy = shutil.copytree if (ROOT / one).is_dir() else shutil.copy
            copy(ROOT / one, folder / "elsewhere" / one)
        # Older versions warn of what newer Pythons deprecate: that is theirs to mend. What dse notes is ours.
        run(
            python,
            "-m",
            "pytest",
            "-q",
            "-o",
            "filterwarnings=default",
            "-W",
            "error::dse.errors.Notice",
            *SMOKE,
            folder=folder / "elsewhere",
            DSE_CACHE=str(folder / "cache"),
        )


if __name__ == "__main__":
    main()
