"""Search for the causes of a gap: ranks, kernels, recompute, links, the host, the order of the passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np

from dse.lab.evidence.matching import MatchedTrace
from dse.lab.evidence.ranks import (
    FAMILIES,
    RankParts,
    exposed_sums,
    family_seconds,
    kernel_gaps,
    paid_delays,
    short_gap_seconds,
    steady_ratio,
)
from dse.lab.evidence.state import MeasuredState, SavedTime
from dse.measured.profiles.kernels import MESSAGE_CLASS

#: A cause is named from this share of the step on; kernels, links and ranks also from these factors on.
MIN_STEP_SHARE, MIN_KERNEL_FACTOR, MIN_LINK_FACTOR, MIN_RANK_FACTOR, MIN_REPEATED_SHARE = 0.015, 1.06, 1.25, 1.04, 0.03

#: What all kernels, or all messages, may differ by before it counts as a fault of some of them.
MAX_BASE_DEVIATION = 0.06

#: Share of the time that a rank is predicted to run no kernel by which that may be longer.
MIN_EXTRA_IDLE = 0.15

#: Difference of the factors of two families of compute-bound kernels that one clock explains, and the share of it
#: by which kernels bound by memory may be slower too.
_MAX_CLOCK_DIFFERENCE, _MAX_MEMORY_BOUND_SHARE = 0.035, 0.4

#: Share of the kernels' time from which on a family tells the base.
_MIN_WEIGHT = 0.01


class Cause(NamedTuple):
    """A part of the gap between measured and predicted step time, with its evidence."""

    kind: str  #: ``clock``, ``kernels``, ``recompute``, ``link``, ``rank``, ``host``, ``order``, or ``base``, ``rest``
    name: str
    seconds: float  #: by which the step is longer
    evidence: str
    named: bool  #: whether it stands out from what predictions err by


class CauseSearch:
    """Search for the causes one after the other."""

    def __init__(self, state: MeasuredState) -> None:
        self.state, self.step_seconds = state, state.measured
        self.slow_rank, self.slow_factor = self._slow_rank()
        other_ranks = [rank for i, rank in enumerate(state.ranks) if i != self.slow_rank]
        self.ranks = other_ranks or state.ranks
        self.ratios = self._family_ratios(self.ranks)
        self.steady = {name: steady_ratio(self.ranks, name) for name in self.ratios}
        weighty = [name for name, (_, weight) in self.ratios.items() if weight > _MIN_WEIGHT and name != "optimizer"]
        self.base = self._base([self.steady[name] for name in weighty])

    def causes(self) -> list[Cause]:
        """Return all causes in order of the search, with the base and last the rest; their seconds sum to the gap."""
        repeated, links = self._recompute(), self._links()
        causes = [*self._rank(), *repeated, *self._kernels(), *links, *self._host(bool(repeated))]
        causes = [*self._with_waits(causes), *self._base_causes()]
        unexplained = self.step_seconds - self.state.step.total - sum(cause.seconds for cause in causes)
        evidence = "of the schedule, of parts that cancel, and of what no part explains"
        return [*causes, Cause("rest", "not explained", unexplained, evidence, False)]

    @staticmethod
    def _base(ratios: list[float]) -> float:
        """Return the least of some ratios, within 1 ± ``MAX_BASE_DEVIATION``; 1 for none."""
        return min(max(min(ratios, default=1.0), 1.0 - MAX_BASE_DEVIATION), 1.0 + MAX_BASE_DEVIATION)

    def _cause(self, kind: str, name: str, saved: SavedTime, evidence: str) -> Cause:
        """Return a cause worth what a step saves without it, named where that stands out of the measured step."""
        seconds = self.state.cause_seconds(saved)
        return Cause(kind, name, seconds, evidence, bool(seconds > MIN_STEP_SHARE * self.step_seconds))

    # Ranks

    @staticmethod
    def _family_ratios(ranks: Sequence[RankParts]) -> dict[str, tuple[float, float]]:
        """Return family → (measured over predicted seconds, share of predicted seconds), of families that ran."""
        sums = {name: np.sum([family_seconds(rank, name) for rank in ranks], axis=0) for name in FAMILIES}
        total = sum(float(predicted) for _, predicted in sums.values()) or 1.0
        return {name: (float(m / p), float(p) / total) for name, (m, p) in sums.items() if p > 0.0 and m > 0.0}

    def _slow_rank(self) -> tuple[int, float]:
        """Return index of the slowest rank and its factor over the others, or (-1, 1.0) up to ``MIN_RANK_FACTOR``."""
        ranks = self.state.ranks
        if len(ranks) < 2:
            return -1, 1.0
        ratios_by_rank = [self._family_ratios([rank]) for rank in ranks]
        factors = []
        for rank, ratios in zip(ranks, ratios_by_rank, strict=True):
            others = {
                name: [
                    steady_ratio([other], name)
                    for other, r in zip(ranks, ratios_by_rank, strict=True)
                    if other is not rank and name in r
                ]
                for name in ratios
            }
            weights = {name: weight for name, (_, weight) in ratios.items() if others[name]}
            weighted = (weight * steady_ratio([rank], name) / median(others[name]) for name, weight in weights.items())
            factors.append(sum(weighted) / (sum(weights.values()) or 1.0))
        slowest = int(np.argmax(factors))
        return (slowest, factors[slowest]) if factors[slowest] > MIN_RANK_FACTOR else (-1, 1.0)

    def _rank(self) -> list[Cause]:
        """Return a cause for the slow rank, [] where there is none."""
        if self.slow_rank < 0:
            return []
        rank = self.state.ranks[self.slow_rank]
        share = 1.0 - 1.0 / self.slow_factor
        shares = np.where(rank.trace.labels == MESSAGE_CLASS, 0.0, share)
        in_passes, after_passes = self._net_savings(rank, shares)
        saved = SavedTime({rank.stage: in_passes}, after_passes, everywhere=False)
        waiting = [
            float(np.minimum(other.trace.seconds - other.wire, other.exposed).sum()) / other.trace.n_steps
            for i, other in enumerate(self.state.ranks)
            if i != self.slow_rank
        ]
        other_ranks = f"{len(waiting)} other rank{'s' * (len(waiting) != 1)}"
        text = (
            f"kernels of rank {rank.trace.rank} take {_percent(self.slow_factor)} longer than those of {other_ranks}, "
            f"which wait up to {_ms(max(waiting))} in messages"
        )
        return [self._cause("rank", f"rank {rank.trace.rank} is slow", saved, text)]

    # Kernels

    def _kernels(self) -> list[Cause]:
        """Return causes of slow kernels: a lower clock if it explains products and attention, one per other family."""
        factors = {name: ratio / self.base for name, (ratio, _) in self.ratios.items()}
        steady = {name: self.steady[name] / self.base for name in factors}
        bound = [name for name in ("matrix", "attention") if name in factors and self.ratios[name][1] > _MIN_WEIGHT]
        clocks = []
        if self._is_clock(steady, bound):
            weights = [self.ratios[name][1] for name in bound]
            factor = float(np.average([steady[name] for name in bound], weights=weights))
            text = (
                f"{' and '.join(_FAMILY_NAMES[name] for name in bound)} take {_percent(factor)} longer alike, "
                f"kernels bound by memory {_percent(steady['elementwise'])}"
            )
            name = f"clock about {100.0 * (1.0 - 1.0 / factor):.0f} % lower"
            saved = self._saved_by_families({family: steady[family] for family in bound})
            clocks = [self._cause("clock", name, saved, text)]
            factors = {name: factor for name, factor in factors.items() if name not in bound}
        slow_kernels = [
            self._cause(
                "kernels",
                f"{_FAMILY_NAMES[name]} slower than the catalogue",
                self._saved_by_families({name: factor}),
                f"{_percent(factor)} longer than predicted: {self._worst(name)}",
            )
            for name, factor in factors.items()
            if factor > MIN_KERNEL_FACTOR
        ]
        return clocks + [cause for cause in slow_kernels if cause.named]

    def _is_clock(self, factors: Mapping[str, float], compute_bound: Sequence[str]) -> bool:
        """Return True where compute-bound families are slower alike and those bound by memory hardly.

        ``factors``: family → its time over that of all kernels alike.
        """
        least, most = (pick((factors[name] for name in compute_bound), default=1.0) for pick in (min, max))
        if len(compute_bound) < 2 or "elementwise" not in factors or least < MIN_KERNEL_FACTOR:
            return False
        is_alike = most / least - 1.0 < _MAX_CLOCK_DIFFERENCE
        return is_alike and factors["elementwise"] - 1.0 < _MAX_MEMORY_BOUND_SHARE * (least - 1.0)

    def _saved_by_families(self, factors: Mapping[str, float]) -> SavedTime:
        """Return what a step saves where kernels of each family are shorter by its factor (family → factor)."""

        def shares(rank: RankParts) -> np.ndarray:
            """Return the share of its time that each kernel of a rank saves [kernels]."""
            families = rank.matched.of_classes("family")
            return rank.matched.of_kernels([1.0 - 1.0 / factors.get(family, 1.0) for family in families], 0.0)

        return self._saved_by_shares(shares)

    def _saved_by_shares(self, shares_of: Callable[[RankParts], np.ndarray]) -> SavedTime:
        """Return what a step saves where kernels are shorter by a share, less the messages then exposed.

        ``shares_of``: rank → share of its time that each kernel saves [kernels].
        """
        passes, after_passes = dict[int, list[float]](), dict[int, float]()
        for rank in self.ranks:
            in_passes, late_seconds = self._net_savings(rank, shares_of(rank))
            passes.setdefault(rank.stage, []).append(in_passes)
            after_passes[id(rank)] = late_seconds
        return SavedTime(self.state.stage_means(passes), self.state.last_rank_value(after_passes))

    def _net_savings(self, rank: RankParts, shares: np.ndarray) -> tuple[float, float]:
        """Return the s a step saved in the passes and after them, less the messages then exposed.

        ``shares``: share of its time that each kernel saves [kernels].
        """
        saved, hidden = shares * rank.trace.seconds / rank.trace.n_steps, self._hidden_seconds(rank)
        is_optimizer = rank.matched.of_kernels(rank.matched.is_family("optimizer"))
        in_passes = float(saved[~is_optimizer].sum())
        return in_passes - min(hidden[0], in_passes), float(saved[is_optimizer].sum()) - min(hidden[1], in_passes)

    def _hidden_seconds(self, rank: RankParts) -> list[float]:
        """Return the s a step of messages that longer passes hide: [in the passes, after them]."""
        return [max(float(seconds), 0.0) for seconds in self._expected_exposed(rank) - exposed_sums(rank)]

    def _expected_exposed(self, rank: RankParts) -> np.ndarray:
        """Return exposed s a step of measured messages behind predicted kernels, in and after passes [2]."""
        predicted, matched = self.state.predicted[rank.stage], rank.matched
        exposed_seconds = exposed_sums(predicted)
        is_late = matched.of_classes("is_after_passes")
        counts = matched.is_family("message") & (matched.launches > 0.0) & (exposed_seconds > 1e-7)[is_late.astype(int)]
        counts &= is_late | (predicted.matched.sums(predicted.exposed) > 1e-7)
        extra_seconds = matched.sums(rank.wire) - matched.expected
        sums = [extra_seconds[counts & ~is_late].sum(), extra_seconds[counts & is_late].sum()]
        return np.asarray(exposed_seconds + np.array(sums))

    def _worst(self, family: str) -> str:
        """Return as text up to three operators of a family that lose most, with measured and expected time."""
        seconds_by_name, matched = dict[str, tuple[float, float]](), self.ranks[0].matched
        for i in np.flatnonzero(matched.is_family(family) & (matched.launches > 0.0)):
            seconds, expected = seconds_by_name.get(matched.classes[i].name, (0.0, 0.0))
            seconds_by_name[matched.classes[i].name] = seconds + matched.seconds[i], expected + matched.expected[i]
        worst = sorted(seconds_by_name.items(), key=lambda pair: pair[1][1] - pair[1][0])[:3]
        return ", ".join(f"{name} {_ms(seconds)} instead of {_ms(expected)}" for name, (seconds, expected) in worst)

    def _recompute(self) -> list[Cause]:
        """Return a cause for forwards beyond those of the mapping, [] where they take hardly any of the time."""
        extra_and_total, repeated_by_stage = np.zeros(2), dict[int, list[float]]()
        has_slow_links = any(ratio > MIN_LINK_FACTOR for ratio in self._level_ratios().values())
        for rank in self.ranks:
            repeated, matched = self._launch_gap_seconds(rank), rank.matched
            extra_exposed = exposed_sums(rank) - exposed_sums(self.state.predicted[rank.stage])
            shares = _repeated_class_shares(matched)
            if has_slow_links:
                repeated += float((shares * matched.sums(rank.exposed))[matched.is_family("message")].sum())
            else:  # messages take what is predicted, so that what is exposed more is of repeated ones
                repeated += max(float(extra_exposed[0]), 0.0)
            computes = matched.of_classes("has_forward") & ~matched.is_family("wait", "message")
            extra_and_total += (shares * matched.seconds)[computes].sum(), matched.seconds[computes].sum()
            repeated_by_stage.setdefault(rank.stage, []).append(repeated)
        share = extra_and_total[0] / max(extra_and_total[1], 1e-12)
        if share < MIN_REPEATED_SHARE:
            return []
        saved = self._saved_by_shares(_repeated_shares)
        messages = self.state.stage_means(repeated_by_stage)
        passes = {stage: seconds + messages.get(stage, 0.0) for stage, seconds in saved.passes.items()}
        text = f"{100.0 * share:.0f} % of the time of forward kernels is of more of them than the mapping asks for"
        saved = saved._replace(passes=passes)
        return [self._cause("recompute", "recompute that was not asked for", saved, text)]

    def _launch_gap_seconds(self, rank: RankParts) -> float:
        """Return the seconds a step of short gaps between kernels beyond those predicted."""
        predicted_gaps = kernel_gaps(self.state.predicted[rank.stage])
        reference_gaps = predicted_gaps if len(predicted_gaps) else kernel_gaps(rank)
        longest = 5.0 * float(np.median(reference_gaps)) if len(reference_gaps) else 0.0
        return max(short_gap_seconds(rank, longest) - float(predicted_gaps.sum()), 0.0)

    # Messages

    def _links(self) -> list[Cause]:
        """Return a cause per network whose messages are slower than predicted, as far as it stands out."""
        levels = self._level_ratios()
        base = self._base([*levels.values()]) if len(levels) > 1 else 1.0
        causes = [
            self._cause(
                "link",
                f"{level} links slower than predicted",
                self._saved_by_link(level, base, ratio / base),
                f"{self._messages_of(level)} take {ratio:.2f} times as long as predicted",
            )
            for level, ratio in levels.items()
            if ratio / base > MIN_LINK_FACTOR
        ]
        return [cause for cause in causes if cause.named]

    def _level_ratios(self) -> dict[str, float]:
        """Return network → time of its messages on the wire over the predicted one."""
        sums: dict[str, list[float]] = {}
        for rank in self.ranks:
            for index in np.flatnonzero(rank.matched.is_family("message") & (rank.matched.launches > 0.0)):
                kernel_class, is_of_class = rank.matched.classes[index], rank.matched.class_index == index
                level_sums = sums.setdefault(kernel_class.level, [0.0, 0.0])
                level_sums[0] += is_of_class.sum() * float(np.median(rank.wire[is_of_class]))
                level_sums[1] += is_of_class.sum() * kernel_class.seconds_per_kernel
        return {level: seconds / expected for level, (seconds, expected) in sums.items() if expected}

    def _saved_by_link(self, level: str, base: float, ratio: float) -> SavedTime:
        """Return what a step saves where messages of a network take ``base`` times the predicted time.

        ``ratio``: by which messages between stages become shorter, if they are of this network.
        """
        passes, after_passes, message_factor = dict[int, list[float]](), dict[int, float](), 1.0
        for rank in self.ranks:
            matched = rank.matched
            is_of_level = (
                matched.is_family("message") & (matched.of_classes("level") == level) & (matched.launches > 0.0)
            )
            is_output = np.array(["stage_output" in kernel_class.name for kernel_class in matched.classes], bool)
            if (is_of_level & is_output).any():
                message_factor = max(ratio, 1.0)
            is_slow = matched.of_kernels(is_of_level & ~is_output)
            expected_seconds = matched.of_kernels(matched.of_classes("seconds_per_kernel"), 0.0)
            is_after_passes = is_slow & matched.of_kernels(matched.of_classes("is_after_passes"))
            paid_seconds = paid_delays(rank, np.where(is_slow, rank.wire - base * expected_seconds, 0.0))
            in_passes = float(paid_seconds[~is_after_passes].sum()) / rank.trace.n_steps
            passes.setdefault(rank.stage, []).append(in_passes)
            after_passes[id(rank)] = float(paid_seconds[is_after_passes].sum()) / rank.trace.n_steps - min(
                self._hidden_seconds(rank)[1], in_passes
            )
        return SavedTime(self.state.stage_means(passes), self.state.last_rank_value(after_passes), message_factor)

    def _messages_of(self, level: str) -> str:
        """Return as text up to three names of messages of a network, and how many more there are."""
        names = dict.fromkeys(
            kernel_class.name
            for rank in self.ranks
            for kernel_class, launches in zip(rank.matched.classes, rank.matched.launches, strict=True)
            if kernel_class.family == "message" and kernel_class.level == level and launches
        )
        listing = ", ".join([*names][:3])
        return f"{listing} and {len(names) - 3} more" if len(names) > 3 else listing

    # The host and the schedule

    def _host(self, subtract_launches: bool = False) -> list[Cause]:
        """Return a cause for time without a kernel beyond the predicted one, [] where there is hardly any.

        ``subtract_launches``: leave out short gaps, which another cause has.
        """
        gaps = dict[int, list[float]]()
        for rank in self.state.ranks:
            predicted_idle = self.state.predicted[rank.stage].idle
            extra_idle = rank.idle - predicted_idle - (self._launch_gap_seconds(rank) if subtract_launches else 0.0)
            gaps.setdefault(rank.stage, []).append(extra_idle if extra_idle > MIN_EXTRA_IDLE * predicted_idle else 0.0)
        saved = SavedTime({stage: max(max(stage_gaps), 0.0) for stage, stage_gaps in gaps.items()}, everywhere=False)
        if max(saved.passes.values()) < 1e-4 * self.step_seconds:
            return []
        worst_rank = max(self.state.ranks, key=lambda rank: rank.idle)
        predicted_idle = self.state.predicted[worst_rank.stage].idle
        text = (
            f"rank {worst_rank.trace.rank} runs no kernel for {_ms(worst_rank.idle)} a step, "
            f"{_ms(predicted_idle)} predicted{self._longest_gap(worst_rank)}"
        )
        return [self._cause("host", "the host lets the device wait", saved, text)]

    @staticmethod
    def _longest_gap(rank: RankParts) -> str:
        """Return as text, after a comma, the longest gap between kernels of a rank; "" without gaps."""
        gaps = kernel_gaps(rank)
        return f", at most {_ms(float(gaps.max()))} at once" if len(gaps) else ""

    def _with_waits(self, causes: list[Cause]) -> list[Cause]:
        """Return the causes with what stages wait for each other longer than their schedule has.

        Where as many messages are received as predicted, that belongs to slow messages between stages, or to a host
        that stalls single passes, if either is found; else to the order of the passes.
        """
        order = self._order()
        uneven = {"link"} if self.state.message_factor > MIN_LINK_FACTOR else set()
        owner = next((cause for cause in causes if cause.kind in uneven | {"host"} and cause.named), None)
        if not order or owner is None or self._received_text():
            return [*causes, *order]
        merged = owner._replace(seconds=owner.seconds + order[0].seconds)
        return [merged if cause is owner else cause for cause in causes]

    def _order(self) -> list[Cause]:
        """Return a cause for waits between stages that no pass explains, [] for one stage or where it is small."""
        if len(self.state.step.plan.orders) == 1:
            return []
        seconds = self.step_seconds - self.state.total()
        waiting = sum(rank.waits for rank in self.state.ranks) / len(self.state.ranks)
        predicted_waits = sum(self.state.predicted[rank.stage].waits for rank in self.state.ranks) / len(
            self.state.ranks
        )
        text = (
            f"stages wait {_ms(waiting)} for each other, {_ms(predicted_waits)} predicted{self._received_text()}, "
            "beyond what their passes explain"
        )
        is_long = seconds > MIN_STEP_SHARE * self.step_seconds
        name = "the bubble is larger than that of the schedule"
        return [Cause("order", name, seconds, text, True)] if is_long else []

    def _received_text(self) -> str:
        """Return a remark on messages from other stages where there are not as many as predicted, else ""."""
        matched = self.state.ranks[0].matched
        for kernel_class, launches in zip(matched.classes, matched.launches, strict=True):
            if kernel_class.key == ("recv",) and round(launches) != kernel_class.n_kernels:
                return (
                    f" (a stage receives {launches:.0f} messages instead of {kernel_class.n_kernels}: "
                    "are the virtual stages as stated?)"
                )
        return ""

    def _base_causes(self) -> list[Cause]:
        """Return one cause for what all kernels differ by."""
        saved = self._saved_by_families(dict.fromkeys(self.ratios, self.base))
        text = f"all families of kernels at {100.0 * (self.base - 1.0):+.1f} % of the catalogue"
        return [self._cause("base", "all kernels alike", saved, text)._replace(named=False)]


def _repeated_class_shares(matched: MatchedTrace) -> np.ndarray:
    """Return the share of the kernels of each class of a forward that are beyond the predicted number [classes]."""
    counts = np.maximum(matched.launches, 1e-30)
    has_repeats = matched.of_classes("has_forward") & (matched.launches > 0.0)
    return np.where(has_repeats, 1.0 - matched.of_classes("n_kernels") / counts, 0.0)


def _repeated_shares(rank: RankParts) -> np.ndarray:
    """Return the share of each forward kernel that is beyond the predicted number, 0 for other kernels [kernels]."""
    shares = np.maximum(_repeated_class_shares(rank.matched), 0.0)
    return rank.matched.of_kernels(
        np.where(rank.matched.is_family("matrix", "attention", "elementwise"), shares, 0.0), 0.0
    )


#: Families in words.
_FAMILY_NAMES = {
    "matrix": "matrix products",
    "attention": "attention kernels",
    "elementwise": "element-wise kernels",
    "optimizer": "kernels of the optimiser",
}


def _percent(factor: float) -> str:
    """Return as text by how many % a factor exceeds 1."""
    return f"{100.0 * (factor - 1.0):.1f} %"


def _ms(seconds: float) -> str:
    """Return seconds as text in ms."""
    return f"{1e3 * seconds if abs(seconds) >= 1e-6 else 0.0:.4g} ms"  # below the resolution of a profiler
