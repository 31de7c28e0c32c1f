"""What is private in files of people does not reach rows."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from dse.cli import app
from dse.measured.profiles.private import PATTERNS, public_text
from tests.unit.measured import profiles as files
from tests.unit.measured.test_profiles import put  # noqa: F401 - a fixture

#: Kind of what is private → an example, made up.
EXAMPLES = {
    "key": "-----BEGIN OPENSSH PRIVATE KEY-----",
    "token": "hf_0123456789abcdefghijABCDEFGHIJ0123",
    "variable": "WANDB_API_KEY=0123456789abcdef0123",
    "setting": "'api_key': 'abcd-efgh-ijkl'",
    "bearer": "Authorization: Bearer abcdef0123456789abcdef",
    "mail": "someone@example.org",
    "address": "10.20.30.40",
    "host": "ip-10-20-30-40.ec2.internal",
    "home": "/home/someone",
}


@pytest.mark.parametrize("kind", PATTERNS)
def test_each_kind_is_stripped(kind):
    text = EXAMPLES[kind]
    assert PATTERNS[kind].search(text)
    for around in (text, f"model={text} tp=8", f"['{text}']"):
        assert not any(pattern.search(public_text(around)) for pattern in PATTERNS.values())


@pytest.mark.parametrize(
    "text",
    ["meta-llama/Llama-3.1-8B-Instruct", "prompt_tokens = 1024", "0.11.0", "12.4.1", "127.0.0.1", "a100-sxm-80gb",
     "693.5 W a device, mean of 8", "median of 3 lines; 2 tokens/s", "static batch", "bf16"],
)  # fmt: skip
def test_what_is_public_stays(text):
    assert public_text(text) == text


def test_rows_of_files_have_nothing_private(put, tmp_path):  # noqa: F811
    """A model in someone's folder on someone's host, with a token in the server's arguments."""
    folder = f"{EXAMPLES['home']}/hub/models--meta-llama--Llama-3.1-8B-Instruct/snapshots/0123abcd"
    start = files.VLLM_START.replace("'model': 'meta-llama/Llama-3.1-8B-Instruct'", f"'model': '{folder}'")
    start = "".join(f"{text}\n" for text in EXAMPLES.values()) + start.replace(
        "model='meta-llama", "served='meta-llama"
    )
    result = files.VLLM | {"model_id": folder, "tokenizer_id": folder, "api_key": "abcd-efgh-ijkl"}
    result |= {"accelerator": "ip-10-20-30-40.ec2.internal"}
    paths = [str(put(start, "start.log")), str(put(result, "result.json")), str(put(files.nvidia_smi(), "smi.csv"))]
    done = CliRunner().invoke(
        app, ["validate", "--profile", *paths, "-s", "h100", "--rows", str(tmp_path / "rows.csv")]
    )
    text = (tmp_path / "rows.csv").read_text()
    assert "meta-llama/Llama-3.1-8B-Instruct" in text and "result.json" in text, done.output
    assert str(tmp_path) not in text and "someone" not in text
    assert not [kind for kind, pattern in PATTERNS.items() if pattern.search(text)]
