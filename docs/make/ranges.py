"""What measured rows cover, into the catalogue's stacks without a fit: ``python -m docs.make.ranges TABLES…``."""

from __future__ import annotations

import argparse
from pathlib import Path

from dse.calibrate import ranges


def main() -> None:
    """Write them, and tell the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="+", help="measured rows of steps and of serving")
    parser.add_argument("--catalog", default="hw_catalog", type=Path, help="folder of the catalogue")
    asked = parser.parse_args()
    for path in ranges.write_catalog(asked.tables, asked.catalog):
        print(path)


if __name__ == "__main__":
    main()
