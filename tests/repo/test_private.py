"""Nothing private is kept: credentials, variables of the environment, hosts and folders of people."""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path

import pytest

from dse.measured import profiles
from dse.measured.profiles.run import PRIVATE, public_text
from tests.unit.measured import profiles as files

ROOT = Path(__file__).parents[2]

#: Files that state the patterns, or texts made to be refused.
_OF_PATTERNS = {"tests/repo/test_private.py", "dse/measured/profiles/run.py"}

#: One text of each kind, written so that no pattern finds it here.
SAMPLES = {
    "credential": "hf" + "_" + "a" * 34,
    "variable": "WANDB" + "_API_KEY=0123456789abcdef",
    "address": "10." + "12.13.14",
    "host": "gpu-node-7." + "corp",
    "home": "/home" + "/ann",
}


def kept_files():
    try:
        listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no checkout of git")
    return [ROOT / name for name in listed.splitlines() if name not in _OF_PATTERNS and (ROOT / name).is_file()]


def test_no_file_of_the_repository_has_anything_private():
    found = []
    for path in kept_files():
        content = path.read_bytes()
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8", "replace")
        found += [(str(path.relative_to(ROOT)), kind, m[0]) for kind, p in PRIVATE.items() if (m := p.search(text))]
    assert not found


@pytest.mark.parametrize("kind", PRIVATE)
def test_each_kind_is_found_and_taken_out(kind):
    text = f"a run of {SAMPLES[kind]} today"
    assert PRIVATE[kind].search(text) and not any(pattern.search(public_text(text)) for pattern in PRIVATE.values())


def test_rows_of_a_file_keep_nothing_private(tmp_path):
    path = tmp_path / "result.json"
    secret = " ".join(SAMPLES.values())
    told = {"model_id": f"/lustre/people/ann/{'Llama-3-8B'}", "endpoint_type": secret, "backend": "vllm"}
    path.write_text(json.dumps(files.VLLM | told), encoding="utf-8")
    (rows,) = profiles.read([path]).tables.values()
    for row in rows:
        text = " ".join(row.values())
        assert not any(pattern.search(text) for pattern in PRIVATE.values())
        assert str(tmp_path) not in text and "lustre" not in text and row["url_or_repo_path"] == "result.json"


def test_urls_relative_paths_and_shares_stay():
    for text in (
        "https://github.com/a/b/blob/main/c.json",
        "profiles/cpu/a.json.gz",
        "meta-llama/Llama-3-8B",
        "3 / 4 GB/s",
    ):
        assert public_text(text) == text
