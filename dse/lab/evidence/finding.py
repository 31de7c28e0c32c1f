"""Search for the causes of a gap: ranks, kernels, recompute, links, the host, the order of the passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np

from dse.lab.evidence.ranks import (
    FAMILIES,
    RankParts,
    exposed_sums,
    family_seconds,
    gaps_of,
    gaps_up_to,
    paid_delays,
    steady_ratio,
)
from dse.lab.evidence.state import MeasuredState, SavedTime
from dse.lab.evidence.traces import OF_MESSAGES

#: A cause is named from this share of the step on; kernels, links and ranks also from these factors on.
SHARE, SLOWER, SLOWER_LINK, SLOWER_RANK, REPEATED = 0.015, 1.06, 1.25, 1.04, 0.03

#: What all kernels, or all messages, may differ by before it counts as a fault of some of them.
BASE = 0.06

#: Share of the time that a rank is predicted to run no kernel by which that may be longer.
HOST = 0.15

#: Difference of the factors of two families of compute-bound kernels that one clock explains, and the share of it
#: by which kernels bound by memory may be slower too.
_SAME, _UNBOUND = 0.035, 0.4

#: Share of the kernels' time from which on a family tells the base.
_TELLS = 0.01


class Cause(NamedTuple):
    """A part of the gap."""

    kind: str  #: ``clock``, ``kernels``, ``recompute``, ``link``, ``rank``, ``host``, ``order``, or ``base``, ``rest``
    name: str
    seconds: float  #: by which the step is longer
    evidence: str
    named: bool  #: whether it stands out from what predictions err by


class CauseSearch:
    """Finds the causes one after the other."""

    def __init__(self, state: MeasuredState) -> None:
        self.state, self.length = state, state.measured
        self.slow, self.slower = self._slow_rank()
        others = [one for i, one in enumerate(state.ranks) if i != self.slow]
        self.ranks = others or state.ranks
        self.ratios = self._family_ratios(self.ranks)
        self.steady = {name: steady_ratio(self.ranks, name) for name in self.ratios}
        self.base = self._base(
            [self.steady[name] for name, (_, weight) in self.ratios.items() if weight > _TELLS and name != "optimizer"]
        )

    def found(self) -> list[Cause]:
        """All causes, with the base and the rest."""
        repeated, links = self._recompute(), self._links()
        listed = [*self._rank(), *repeated, *self._kernels(), *links, *self._host(bool(repeated))]
        listed = [*self._with_waits(listed), *self._of_base()]
        rest = self.length - self.state.step.total - sum(one.seconds for one in listed)
        about = "of the schedule, of parts that cancel, and of what no part explains"
        return [*listed, Cause("rest", "not explained", rest, about, False)]

    @staticmethod
    def _base(ratios: list[float]) -> float:
        """Factor of all kernels, or of all messages, within what they may differ by."""
        return min(max(min(ratios, default=1.0), 1.0 - BASE), 1.0 + BASE)

    def _named(self, seconds: float) -> bool:
        return seconds > SHARE * self.length

    # Ranks

    @staticmethod
    def _family_ratios(ranks: Sequence[RankParts]) -> dict[str, tuple[float, float]]:
        """Family → measured over predicted seconds of its kernels, and its share of them."""
        sums = {name: np.sum([family_seconds(one, name) for one in ranks], axis=0) for name in FAMILIES}
        whole = sum(float(predicted) for _, predicted in sums.values()) or 1.0
        return {name: (float(m / p), float(p) / whole) for name, (m, p) in sums.items() if p > 0.0 and m > 0.0}

    def _slow_rank(self) -> tuple[int, float]:
        """The slowest rank among several and its factor over the others, family by family; -1 for none."""
        ranks = self.state.ranks
        if len(ranks) < 2:
            return -1, 1.0
        own = [
            {name: (steady_ratio([one], name), weight) for name, (_, weight) in self._family_ratios([one]).items()}
            for one in ranks
        ]
        factors = []
        for i, mine in enumerate(own):
            weights = {name: weight for name, (_, weight) in mine.items()}
            over = {
                name: mine[name][0] / median(other[name][0] for j, other in enumerate(own) if j != i and name in other)
                for name in mine
                if any(name in other for j, other in enumerate(own) if j != i)
            }
            whole = sum(weights[name] for name in over) or 1.0
            factors.append(sum(weights[name] * factor for name, factor in over.items()) / whole)
        slowest = int(np.argmax(factors))
        return (slowest, factors[slowest]) if factors[slowest] > SLOWER_RANK else (-1, 1.0)

    def _rank(self) -> list[Cause]:
        if self.slow < 0:
            return []
        one = self.state.ranks[self.slow]
        share = 1.0 - 1.0 / self.slower
        shares = np.where(one.trace.labels == OF_MESSAGES, 0.0, share)
        last = np.array([item.family == "optimizer" for item in one.matched.classes] + [False])[one.matched.of]
        in_passes, late = self._net(one, shares, last)
        saved = SavedTime({one.stage: in_passes}, late, everywhere=False)
        waiting = [
            float(np.minimum(o.trace.seconds - o.wire, o.exposed).sum()) / o.trace.steps
            for i, o in enumerate(self.state.ranks)
            if i != self.slow
        ]
        seconds = self.state.worth(saved)
        others = f"{len(waiting)} other rank{'s' * (len(waiting) != 1)}"
        text = (
            f"kernels of rank {one.trace.rank} take {_percent(self.slower)} longer than those of {others}, which "
            f"wait up to {_ms(max(waiting))} in messages"
        )
        return [Cause("rank", f"rank {one.trace.rank} is slow", seconds, text, self._named(seconds))]

    # Kernels

    def _kernels(self) -> list[Cause]:
        over = {name: ratio / self.base for name, (ratio, _) in self.ratios.items()}
        found: list[Cause] = []
        bound = [name for name in ("matrix", "attention") if name in over and self.ratios[name][1] > _TELLS]
        alike = {name: self.steady[name] / self.base for name in over}
        if self._is_clock(alike, bound):
            factor = sum(alike[n] * self.ratios[n][1] for n in bound) / sum(self.ratios[n][1] for n in bound)
            seconds = self.state.worth(self._saved_of({name: alike[name] for name in bound}))
            text = (
                f"{' and '.join(_WORDS[n] for n in bound)} take {_percent(factor)} longer alike, kernels bound by "
                f"memory {_percent(alike['elementwise'])}"
            )
            found.append(
                Cause(
                    "clock",
                    f"clock about {100.0 * (1.0 - 1.0 / factor):.0f} % lower",
                    seconds,
                    text,
                    self._named(seconds),
                )
            )
            over = {name: factor for name, factor in over.items() if name not in bound}
        for name, factor in over.items():
            seconds = self.state.worth(self._saved_of({name: factor}))
            stands_out = factor > SLOWER and self._named(seconds)
            if not stands_out:
                continue
            found.append(
                Cause(
                    "kernels",
                    f"{_WORDS[name]} slower than the catalogue",
                    seconds,
                    f"{_percent(factor)} longer than predicted: {self._worst(name)}",
                    True,
                )
            )
        return found

    def _is_clock(self, over: Mapping[str, float], bound: Sequence[str]) -> bool:
        if len(bound) < 2 or "elementwise" not in over or min(over[name] for name in bound) < SLOWER:
            return False
        least, most = min(over[name] for name in bound), max(over[name] for name in bound)
        return most / least - 1.0 < _SAME and over["elementwise"] - 1.0 < _UNBOUND * (least - 1.0)

    def _saved_of(self, over: Mapping[str, float]) -> SavedTime:
        """What a step saves where kernels of some families take no longer than the others."""

        def shares(one: RankParts) -> np.ndarray:
            found = [1.0 - 1.0 / over.get(item.family, 1.0) for item in one.matched.classes]
            return np.array([*found, 0.0])[one.matched.of]

        return self._shorter(shares)

    def _shorter(self, shares_of: Callable[[RankParts], np.ndarray]) -> SavedTime:
        """What a step saves where kernels are shorter by a share, less the messages that they hide no longer."""
        passes, after = dict[int, list[float]](), dict[int, float]()
        for one in self.ranks:
            shares = shares_of(one)
            last = np.array([item.family == "optimizer" for item in one.matched.classes] + [False])[one.matched.of]
            in_passes, late = self._net(one, shares, last)
            passes.setdefault(one.stage, []).append(in_passes)
            after[id(one)] = late
        return SavedTime(self.state.mean(passes), self.state.at_last(after))

    def _net(self, one: RankParts, shares: np.ndarray, last: np.ndarray) -> tuple[float, float]:
        """Seconds a step that shorter kernels save in the passes and after them, less what they hide no longer."""
        saved, hidden = shares * one.trace.seconds / one.trace.steps, self._hidden(one)
        in_passes = float(saved[~last].sum())
        return in_passes - min(hidden[0], in_passes), float(saved[last].sum()) - min(hidden[1], in_passes)

    def _hidden(self, one: RankParts) -> list[float]:
        """Seconds a step of messages that longer passes hide, in the passes and after them."""
        return [max(float(seconds), 0.0) for seconds in self._expected(one) - exposed_sums(one)]

    def _expected(self, one: RankParts) -> np.ndarray:
        """Exposed seconds a step, in the passes and after them, of the measured messages behind predicted kernels."""
        usual = self.state.predicted[one.stage]
        found = exposed_sums(usual)
        exposed = found > 1e-7
        for at, item in enumerate(one.matched.classes):
            own, theirs = one.matched.of == at, usual.matched.of == at
            if item.family != "message" or not own.any() or not exposed[int(item.after)]:
                continue
            if item.after or usual.exposed[theirs].sum() > 1e-7:
                sent = float(one.wire[own].sum()) / one.trace.steps
                found[int(item.after)] += sent - item.each * one.matched.times(at)
        return np.asarray(found)

    def _worst(self, family: str) -> str:
        """The operators of a family that lose most."""
        lost: dict[str, tuple[float, float]] = {}
        one = self.ranks[0]
        for at, item in enumerate(one.matched.classes):
            if item.family == family and (count := one.matched.times(at)):
                seconds, expected = one.matched.seconds(at), count * item.each
                before = lost.get(item.name, (0.0, 0.0))
                lost[item.name] = before[0] + seconds, before[1] + expected
        worst = sorted(lost.items(), key=lambda pair: pair[1][1] - pair[1][0])[:3]
        return ", ".join(f"{name} {_ms(seconds)} instead of {_ms(expected)}" for name, (seconds, expected) in worst)

    def _recompute(self) -> list[Cause]:
        """Forwards beyond those that the mapping asks for."""
        counts, sent = [0.0, 0.0], dict[int, list[float]]()
        slow = any(ratio > SLOWER_LINK for ratio in self._levels().values())
        for one in self.ranks:
            repeated, more = self._launches(one), exposed_sums(one) - exposed_sums(self.state.predicted[one.stage])
            if not slow:  # messages take what is predicted, so that what is exposed more is of repeated ones
                repeated += max(float(more[0]), 0.0)
            for at, item in enumerate(one.matched.classes):
                count = one.matched.times(at)
                if not item.forward or not count:
                    continue
                extra = (count - item.number) / count
                if item.family == "message" and slow:
                    repeated += extra * float(one.exposed[one.matched.of == at].sum()) / one.trace.steps
                elif item.family not in ("wait", "message"):
                    counts[0] += extra * one.matched.seconds(at)
                    counts[1] += one.matched.seconds(at)
            sent.setdefault(one.stage, []).append(repeated)
        share = counts[0] / max(counts[1], 1e-12)
        if share < REPEATED:
            return []
        saved = self._shorter(_repeated)
        messages = self.state.mean(sent)
        passes = {stage: seconds + messages.get(stage, 0.0) for stage, seconds in saved.passes.items()}
        seconds = self.state.worth(saved._replace(passes=passes))
        text = f"{100.0 * share:.0f} % of the time of forward kernels is of more of them than the mapping asks for"
        return [Cause("recompute", "recompute that was not asked for", seconds, text, self._named(seconds))]

    def _launches(self, one: RankParts) -> float:
        """Seconds a step of short gaps beyond those predicted: between kernels that the host launches too slowly."""
        usual = gaps_of(self.state.predicted[one.stage])
        own = usual if len(usual) else gaps_of(one)
        longest = 5.0 * float(np.median(own)) if len(own) else 0.0
        return max(gaps_up_to(one, longest) - float(usual.sum()), 0.0)

    # Messages

    def _links(self) -> list[Cause]:
        levels = self._levels()
        base = self._base([*levels.values()]) if len(levels) > 1 else 1.0
        found = []
        for level, ratio in levels.items():
            seconds = self.state.worth(self._saved_of_link(level, base, ratio / base))
            stands_out = ratio / base > SLOWER_LINK and self._named(seconds)
            if stands_out:
                text = f"{self._messages_of(level)} take {ratio:.2f} times as long as predicted"
                found.append(Cause("link", f"{level} links slower than predicted", seconds, text, True))
        return found

    def _levels(self) -> dict[str, float]:
        """Network → time of its messages on the wire over the predicted one, by medians of equal messages."""
        sums: dict[str, list[float]] = {}
        for one in self.ranks:
            for at, item in enumerate(one.matched.classes):
                own = one.matched.of == at
                if item.family == "message" and own.any():
                    each = item.each
                    both = sums.setdefault(item.level, [0.0, 0.0])
                    both[0] += own.sum() * float(np.median(one.wire[own]))
                    both[1] += own.sum() * each
        return {level: seconds / expected for level, (seconds, expected) in sums.items() if expected}

    def _saved_of_link(self, level: str, base: float, ratio: float) -> SavedTime:
        passes, after, between = dict[int, list[float]](), dict[int, float](), 1.0
        for one in self.ranks:
            longer, later = np.zeros(len(one.wire)), np.zeros(len(one.wire), bool)
            for at, item in enumerate(one.matched.classes):
                own = one.matched.of == at
                if item.family != "message" or item.level != level or not own.any():
                    continue
                if "stage_output" in item.name:
                    between = max(ratio, 1.0)
                    continue
                longer[own] = one.wire[own] - base * item.each
                later[own] = item.after
            paid = paid_delays(one, longer)
            in_passes = float(paid[~later].sum()) / one.trace.steps
            passes.setdefault(one.stage, []).append(in_passes)
            after[id(one)] = float(paid[later].sum()) / one.trace.steps - min(self._hidden(one)[1], in_passes)
        return SavedTime(self.state.mean(passes), self.state.at_last(after), between)

    def _messages_of(self, level: str) -> str:
        names = dict.fromkeys(
            item.name
            for one in self.ranks
            for at, item in enumerate(one.matched.classes)
            if item.family == "message" and item.level == level and one.matched.times(at)
        )
        shown = ", ".join([*names][:3])
        return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown

    # The host and the schedule

    def _host(self, launches: bool = False) -> list[Cause]:
        """Time without a kernel; ``launches``: but for that between kernels which should not be there."""
        gaps = dict[int, list[float]]()
        for one in self.state.ranks:
            usual = self.state.predicted[one.stage].idle
            more = one.idle - usual - (self._launches(one) if launches else 0.0)
            gaps.setdefault(one.stage, []).append(more if more > HOST * usual else 0.0)
        saved = SavedTime({stage: max(max(own), 0.0) for stage, own in gaps.items()}, everywhere=False)
        if max(saved.passes.values()) < 1e-4 * self.length:
            return []
        seconds = self.state.worth(saved)
        worst = max(self.state.ranks, key=lambda one: one.idle)
        usual = self.state.predicted[worst.stage].idle
        text = (
            f"rank {worst.trace.rank} runs no kernel for {_ms(worst.idle)} a step, {_ms(usual)} predicted"
            f"{self._longest_gap(worst)}"
        )
        return [Cause("host", "the host lets the device wait", seconds, text, self._named(seconds))]

    @staticmethod
    def _longest_gap(one: RankParts) -> str:
        gaps = gaps_of(one)
        return f", at most {_ms(float(gaps.max()))} at once" if len(gaps) else ""

    def _with_waits(self, found: list[Cause]) -> list[Cause]:
        """The causes with what stages wait for each other longer than their schedule has.

        Where as many messages are received as predicted, that belongs to slow messages between stages, or to a host
        that stalls single passes, if either is found; else to the order of the passes.
        """
        order = self._order()
        uneven = {"link"} if self.state.between > SLOWER_LINK else set()
        owner = next((one for one in found if one.kind in uneven | {"host"} and one.named), None)
        if not order or owner is None or self._received():
            return [*found, *order]
        merged = owner._replace(seconds=owner.seconds + order[0].seconds)
        return [merged if one is owner else one for one in found]

    def _order(self) -> list[Cause]:
        if len(self.state.step.plan.orders) == 1:
            return []
        seconds = self.length - self.state.total()
        waiting = sum(one.waits for one in self.state.ranks) / len(self.state.ranks)
        usual = sum(self.state.predicted[one.stage].waits for one in self.state.ranks) / len(self.state.ranks)
        text = (
            f"stages wait {_ms(waiting)} for each other, {_ms(usual)} predicted{self._received()}, beyond what "
            "their passes explain"
        )
        named = self._named(seconds)
        return [Cause("order", "the bubble is larger than that of the schedule", seconds, text, named)] if named else []

    def _received(self) -> str:
        """Messages from other stages, where there are not as many as predicted."""
        one = self.state.ranks[0]
        for at, item in enumerate(one.matched.classes):
            if item.key == ("recv",) and round(one.matched.times(at)) != item.number:
                return (
                    f" (a stage receives {one.matched.times(at):.0f} messages instead of {item.number}: are the "
                    "virtual stages as stated?)"
                )
        return ""

    def _of_base(self) -> list[Cause]:
        """What all kernels differ by."""
        over = dict.fromkeys(self.ratios, self.base)
        seconds = self.state.worth(self._saved_of(over))
        text = f"all families of kernels at {100.0 * (self.base - 1.0):+.1f} % of the catalogue"
        return [Cause("base", "all kernels alike", seconds, text, False)]


def _repeated(one: RankParts) -> np.ndarray:
    """Share of each kernel of a forward that is beyond those asked for."""
    counts = [(item, one.matched.times(at)) for at, item in enumerate(one.matched.classes)]
    computes = ("matrix", "attention", "elementwise")
    shares = [
        max(1.0 - item.number / count, 0.0) if item.forward and item.family in computes and count else 0.0
        for item, count in counts
    ]
    return np.array([*shares, 0.0])[one.matched.of]


#: Families in words.
_WORDS = {
    "matrix": "matrix products",
    "attention": "attention kernels",
    "elementwise": "element-wise kernels",
    "optimizer": "kernels of the optimiser",
}


def _percent(factor: float) -> str:
    return f"{100.0 * (factor - 1.0):.1f} %"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds if abs(seconds) >= 1e-6 else 0.0:.4g} ms"  # below the resolution of a profiler
