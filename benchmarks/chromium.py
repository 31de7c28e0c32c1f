"""A Chromium without a screen, which times and tests of pages drive.

``DSE_CHROMIUM`` names the browser where it is not on the path.
"""

from __future__ import annotations

import os
import shutil

CHROMIUM = os.environ.get("DSE_CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
