"""How well a stack of one's own predicts what it was not fitted to: ``python -m calibration.own_stacks TABLES``.

Of each source and accelerator with several dense rows, the neutral stack is fitted to few rows, drawn several times,
and predicts the others: as of a stack and a cluster that nobody has measured.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dse.lab.fits import own_fit
from dse.lab.fits.step_rows import is_plain
from dse.lab.fits.steps import mean_error
from dse.measured import predict_cases, read_cases
from dse.measured.comparison import Comparison, compare_predictions, is_timed
from dse.measured.uncertainty.parts import quantile

#: Rows of a set at least and at most; rows of a fit; draws of them.
LEAST, LARGEST, COUNTS, DRAWS = 6, 40, (1, 2, 4), 5

BASE = "neutral"


def sets(tables: Sequence[str]) -> list[list[Comparison]]:
    """Compared rows by source and accelerator, predicted by the neutral stack."""
    found: dict[tuple[str, str], list[Comparison]] = {}
    for table in tables:
        with open(table, newline="", encoding="utf-8") as file:
            lines = [line | {"software": BASE} for line in csv.DictReader(file)]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "rows.csv")
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, list(lines[0]))
                writer.writeheader()
                writer.writerows(lines)
            compared = compare_predictions(predict_cases(read_cases(path)))
        for c in compared:
            if is_timed(c) and c.prediction.stack == BASE and is_plain(c.prediction.chosen.workload):
                found.setdefault((c.source, c.prediction.case.row.get("gpu")), []).append(c)
    return [rows[:LARGEST] for rows in found.values() if len(rows) >= LEAST]


def unseen(compared: Sequence[Comparison], count: int, rng: np.random.Generator) -> np.ndarray:
    """Mean error of unseen rows before and after a fit to ``count`` rows, and the share within 80 % intervals."""
    rows = own_fit.stack_rows(compared, "")
    paths, widths = own_fit.informed_values(rows, own_fit.priors_of(BASE, rows.designs))
    kept = np.zeros((DRAWS, len(compared)), bool)
    for one in kept:
        one[rng.choice(len(compared), count, replace=False)] = True
    before = own_fit.errors_at(rows, paths, np.zeros((1, len(paths) + 1)))[0][: len(compared)]
    lines = []
    for one, fit in zip(kept, own_fit.solve(rows, paths, widths, list(kept)), strict=True):
        steps = 0.02 * np.append(widths, 1.0)
        moved = own_fit.errors_at(rows, paths, fit.logs + np.diag(steps))[:, : len(compared)] - fit.errors
        spread = np.sqrt(
            (((moved / steps[:, None]) * fit.conditional_spreads[:, None]) ** 2).sum(axis=0)
            + fit.configuration_spread**2
        )
        held = np.abs(fit.errors) <= quantile() * spread
        lines.append([mean_error(before[~one]), mean_error(fit.errors[~one]), held[~one].mean()])
    return np.mean(lines, axis=0)


def main() -> None:
    """Print the errors by number of rows."""
    found, rng = sets(sys.argv[1:]), np.random.default_rng(0)
    print(f"{len(found)} sets of {LEAST} rows or more")
    for count in COUNTS:
        before, after, held = np.mean([unseen(rows, count, rng) for rows in found], axis=0)
        print(f"fitted to {count}: unseen rows {before:.1%} before, {after:.1%} after, {held:.0%} in 80 % intervals")


if __name__ == "__main__":
    main()
