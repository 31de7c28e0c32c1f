"""Tables as CSV, in SI units."""

from __future__ import annotations

import csv
import io

from dse.reports.tables import Table
from dse.reports.values import plain_values


def csv_text(table: Table) -> str:
    """Return a table as CSV text with a line of keys; values in SI units, empty for None."""
    out = io.StringIO()
    lines = csv.DictWriter(out, [column.key for column in table.columns if not column.bar], lineterminator="\n")
    lines.writeheader()
    lines.writerows(plain_values(table.values()))
    return out.getvalue()
