"""Tables as CSV, in SI units."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dse.reports.tables import Table
from dse.reports.values import plain_values


def csv_text(table: Table) -> str:
    """Return a table as CSV text with a line of keys; values in SI units, empty for None."""
    keys = [key for column in table.columns for key in column.keys]
    return rows_text(plain_values(table.values()), keys)


def rows_text(rows: Sequence[Mapping[str, Any]], keys: Iterable[str] = ()) -> str:
    """Return rows as CSV text with a line of keys; empty for None and for keys that a row lacks.

    Args:
        rows: key → value.
        keys: of the columns, by default those of the rows in the order of their first appearance.
    """
    out = io.StringIO()
    header = list(keys) or list(dict.fromkeys(key for row in rows for key in row))
    lines = csv.DictWriter(out, header, lineterminator="\n")
    lines.writeheader()
    lines.writerows(rows)
    return out.getvalue()
