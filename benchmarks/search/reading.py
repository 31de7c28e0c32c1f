"""What the record of the suite says: look-ups that page and figure share."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.search import exact, suite
from benchmarks.search.exact import Optimum

#: Methods that follow gradients → the method whose evaluations tell what time an evaluation of theirs takes.
GRADIENT = {"relaxed": "annealing"}

#: Methods that learn nothing.
BASELINES = ("random",)

#: Chance of a verdict by luck alone where two methods are alike: there are some hundred comparisons.
LUCK = 0.001

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

    def at_share(self, space: str, method: str, cost: float = 1.0) -> dict[str, Any]:
        """:meth:`at` one per cent of the designs, each step counted as so many evaluations."""
        return self.at(space, method, round(SHARE * self.optima[space].designs / cost))

    def meets(self, space: str, method: str, cost: float = 1.0) -> bool:
        """Whether the median seed is within 1 % and 95 % of the seeds within 5 %, at one per cent of the designs."""
        found = self.at_share(space, method, cost)
        return found["gap"][1] <= 0.01 and found["within_5"] >= 0.95

    def behind_random(self, space: str) -> Iterator[tuple[str, int, bool]]:
        """(method, evaluations, sure) where the median seed is behind that of random search at equal evaluations.

        Sure where two methods that are alike would seldom differ so: one-sided Mann-Whitney test over the seeds.
        """
        import scipy.stats  # a second

        base = self.methods(space)["random"]["seeds"]
        for method, found in self.methods(space).items():
            for mark, gaps in ((m, g) for m, g in found["seeds"].items() if m in base):
                own, random = restored(gaps), restored(base[mark])
                if np.median(own) > np.median(random):
                    chance = scipy.stats.mannwhitneyu(own, random, alternative="greater").pvalue
                    yield method, int(mark), bool(chance < LUCK)

    def fronts_behind_random(self, space: str) -> Iterator[tuple[int, str]]:
        """(evaluations, method) where all seeds together have less of the exact volume than those of random search."""
        methods = self.methods(space)
        base = dict(zip(methods["random"]["marks"], methods["random"]["together"], strict=True))
        for method, found in methods.items():
            for mark, volume in zip(found["marks"], found["together"], strict=True):
                if mark in (1_000, 5_000) and volume < base.get(mark, 0.0) - 1e-9:
                    yield mark, method

    def compared(self) -> int:
        """Comparisons with random search: methods x marks x spaces."""
        found = (each for space in self.single for name, each in self.methods(space).items() if name != "random")
        return sum(len(each["seeds"]) for each in found)

    def cost(self, space: str, method: str) -> float:
        """Evaluations without a gradient that an evaluation of this method takes the time of."""
        found, plain = self.methods(space), GRADIENT.get(method)
        return max(1.0, found[plain]["rate"] / found[method]["rate"]) if plain in found else 1.0

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


def restored(stored: list[float | None]) -> np.ndarray:
    """Numbers of a record: infinite where it has none, as JSON has no infinity."""
    return np.array([math.inf if gap is None else gap for gap in stored])
