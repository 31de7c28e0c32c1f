"""The browser of the tests of the explorer, and pages that compute."""

from __future__ import annotations

import pytest

from dse.doors.studies import STUDIES
from dse.views import live
from tests.live.designs import start
from tests.report.conftest import browser, visit  # noqa: F401  fixtures

NAMES = {
    "training": live.Named(
        "llama-3-70b", "h100", "megatron-bridge", "h100-sxm-80gb", ("-w", "llama-3-70b", "-s", "h100")
    ),
    "serving": live.Named(
        "llama-3-70b", "h100", "vllm", "h100-sxm-80gb", ("-w", "llama-3-70b", "-s", "h100", "--software", "vllm")
    ),
}


@pytest.fixture(scope="session")
def pages(tmp_path_factory):
    """Kind of study → its page."""
    folder = tmp_path_factory.mktemp("live")
    for kind, names in NAMES.items():
        live.write(STUDIES[kind], start(kind), names, folder / f"{kind}.html")
    return {kind: folder / f"{kind}.html" for kind in NAMES}
