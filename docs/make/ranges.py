"""What measured rows cover, into the catalogue's stacks without a fit: ``python -m docs.make.ranges TABLES…``."""

from __future__ import annotations

import argparse
from pathlib import Path

from calibration import engines
from dse.lab.fits import ranges
from dse.measured import read_table, serving
from dse.measured.kinds import kind_of


def main() -> None:
    """Write them, and tell the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="+", help="measured rows of steps and of serving")
    parser.add_argument("--catalog", default="hw_catalog", type=Path, help="folder of the catalogue")
    asked = parser.parse_args()
    served = [table for table in asked.tables if kind_of(read_table(table)[0]) is serving.KIND]
    steps = [table for table in asked.tables if table not in served]
    for path in sorted(
        {
            *ranges.write_catalog(steps, asked.catalog),
            *ranges.write_catalog(served, asked.catalog, reader=engines.covered),
        }
    ):
        print(path)


if __name__ == "__main__":
    main()
