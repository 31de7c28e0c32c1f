"""What engines tell of each other: prior means of an engine's parameters by those of its code base and its time.

Weights of engines with rows fall with the time between releases, ``exp(-|t - t'| / 3 months)``, and are a share of
that for other code bases, and for editions for another vendor's chips; the rest is that of the general priors. What one
source measured of a code base shares the weight of one engine, however many releases it is cut into: its hosts and
clients.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dse.designs import catalog

#: Years by which the weight of an engine in another one's prior falls to ``1 / e``, that of other code bases, and the
#: share of the general priors. Time and share: of 20 pairs those with the least loss of sources left out, the smallest
#: of both that were tried, and the same ones for 9 of the 11 sources by the other ten alone.
_ERA, _OTHER, _GENERAL = 0.25, 0.15, 0.1
#: Of the client of a benchmark, not of its engine; and of a host's code, which other code bases tell nothing of.
_CLIENT, OF_HOST = ("request_time",), ("host_step_time", "sequence_time", "rank_time", "host_overlap")


class Kin(NamedTuple):
    """How near engines are to each other (engines x engines)."""

    near: np.ndarray  #: weight by time and code base, 0 of itself
    related: np.ndarray  #: whether of one code base

    @classmethod
    def of(cls, stacks: Sequence[str]) -> Kin:
        """Engines of the catalogue."""
        entries = [catalog.entry("software", stack) for stack in stacks]
        released = [str(one.value("released", "2025-01")).split("-") for one in entries]
        years = np.array([float(year) + float(month) / 12.0 for year, month in released])
        lines = np.array([one.value("lineage", "") for one in entries])
        related = lines[:, None] == lines
        near = np.exp(-np.abs(years[:, None] - years) / _ERA) * np.where(related, 1.0, _OTHER)
        chips = [frozenset(one.value("vendors", ())) - {"NVIDIA"} for one in entries]  # most engines are measured there
        near *= np.array([[1.0 if one == other else _OTHER for other in chips] for one in chips])
        np.fill_diagonal(near, 0.0)
        return cls(near, related)

    def centres(self, found: Sequence[np.ndarray], sources: Sequence[str], names: Sequence[str]) -> np.ndarray:
        """Prior mean of each engine's ``z`` (engines x parameters).

        Args:
            found: ``z`` of each by its rows.
            sources: most of each one's rows; empty for one without rows, which tells nothing.
            names: of the parameters.
        """
        by = np.array(sources)
        has_rows = by != ""
        alike = (self.related & (by[:, None] == by) & has_rows[:, None]).sum(0)
        weights = self.near * has_rows / np.maximum(alike, 1)

        def mean(weights: np.ndarray) -> np.ndarray:
            shares = (1.0 - _GENERAL) * weights / np.maximum(weights.sum(1, keepdims=True), 1e-12)
            return np.asarray(shares @ np.array(found))

        centres = np.where(np.isin(names, OF_HOST), mean(weights * self.related), mean(weights))
        return np.where(np.isin(names, _CLIENT), 0.0, centres)


def main_source(sources: np.ndarray) -> str:
    """The source of most of some rows; empty without rows."""
    return str(Counter(sources.tolist()).most_common(1)[0][0]) if len(sources) else ""
