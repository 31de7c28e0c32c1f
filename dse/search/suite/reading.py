"""What the record of the suite says: look-ups that page and figure share."""

from __future__ import annotations

import math
from typing import Any

from dse.search import suite
from dse.search.suite import exact
from dse.search.suite.exact import Optimum

#: Methods that follow gradients → evaluations that a step takes the time of, for each that it counts.
GRADIENT_COST = {"gumbel": 12}

#: Methods that learn nothing.
BASELINES = ("random", "sobol")

#: Evaluations at which methods are held against random search.
MARKS = (1_000, 5_000, 20_000)

#: Share of a space that a searcher may evaluate.
SHARE = 0.01


class Reading:
    """A record and the optima that it was measured against."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.optima: dict[str, Optimum] = exact.stored()
        self.spaces = [name for name in suite.names() if name in document["spaces"]]
        self.seeds = document["effort"]["seeds"]

    @property
    def single(self) -> list[str]:
        """Spaces of one objective."""
        return [name for name in self.spaces if not self.optima[name].front]

    @property
    def fronts(self) -> list[str]:
        """Spaces of several."""
        return [name for name in self.spaces if self.optima[name].front]

    def methods(self, space: str) -> dict[str, Any]:
        """Method → its figures on a space."""
        return self.document["spaces"][space]["methods"]

    def at(self, space: str, method: str, evaluations: float) -> dict[str, Any]:
        """Gaps (infinite where nothing fits) and shares of seeds after at most so many evaluations of a seed.

        Behind the budget of a method, what it had reached by then: a gap never grows.
        """
        found = self.methods(space)[method]
        known = [i for i, mark in enumerate(found["marks"]) if mark <= evaluations]
        if not known:
            return {"gap": [math.inf] * 3, "within_1": 0.0, "within_5": 0.0, "evaluations": 0}
        last = known[-1]
        gaps = [math.inf if gap is None else gap for gap in found["gap"][last]]
        shares = {key: found[key][last] for key in ("within_1", "within_5")}
        return {"gap": gaps, **shares, "evaluations": found["marks"][last]}

    def at_share(self, space: str, method: str, cost: int = 1) -> dict[str, Any]:
        """:meth:`at` one per cent of the designs, each step counted as so many evaluations."""
        return self.at(space, method, round(SHARE * self.optima[space].designs / cost))

    def meets(self, space: str, method: str, cost: int = 1) -> bool:
        """Whether the median seed is within 1 % and 95 % of the seeds within 5 %, at one per cent of the designs."""
        found = self.at_share(space, method, cost)
        return found["gap"][1] <= 0.01 and found["within_5"] >= 0.95

    def behind_random(self, space: str) -> list[tuple[str, int]]:
        """(method, evaluations) where the median seed is behind that of random search at equal evaluations."""
        behind = []
        for method in self.methods(space):
            for mark in MARKS:
                own, base = self.at(space, method, mark), self.at(space, "random", mark)
                if method != "random" and self.reached(space, method, mark) and own["gap"][1] > base["gap"][1]:
                    behind.append((method, mark))
        return behind

    def reached(self, space: str, method: str, evaluations: int) -> bool:
        """Whether a method was run so far."""
        return self.methods(space)[method]["budget"] >= evaluations

    def seconds_to_1(self, space: str, method: str) -> float | None:
        """Seconds of all seeds at once until half of them are within 1 %, the program being compiled."""
        found = self.methods(space).get(method)
        if not found or found["to_1"] is None:
            return None
        return found["to_1"] * self.seeds / found["rate"]

    def enumeration(self, space: str) -> float:
        """Seconds of enumeration, compilation apart."""
        return self.document["spaces"][space]["seconds"]["run"]
