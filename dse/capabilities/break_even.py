"""``dse.break_even``: the rates of requests at which the fleets of two accelerators cost the same."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

from dse.capabilities.plan import FirstToken, OutputTokens, PromptTokens, Token, limit_of
from dse.errors import InputError
from dse.io import digits, percent
from dse.reports import Column, Line, Option, Report, Table, capability, caution
from dse.reports.options import Workload
from dse.reports.report import NOTHING_FEASIBLE

if TYPE_CHECKING:
    from dse.fleet import Fleet, Plan

#: Rates per factor of two that are compared; how often a crossing is narrowed, and by how much each time.
_STEPS, _ROUNDS, _PARTS = 2, 2, 10


class CostAtRate(NamedTuple):
    """Costs of the cheapest fleets of two accelerators at a rate."""

    rate: float  #: requests/s
    first: float  #: USD/h of the first accelerator; infinite where it does not serve the rate
    second: float
    first_devices: int | None
    second_devices: int | None

    @property
    def second_over_first(self) -> float | None:
        """Cost of the second over that of the first, less 1; None where one does not serve the rate."""
        ratio = self.second / self.first - 1.0 if math.isfinite(self.first) else math.inf
        return ratio if math.isfinite(ratio) else None

    @property
    def is_first_cheaper(self) -> bool:
        """True where the first accelerator costs less, or as much."""
        return self.first <= self.second


class Crossing(NamedTuple):
    """A rate at which the cheaper of two accelerators changes."""

    rate: float  #: requests/s
    below: str  #: the cheaper accelerator below the rate
    above: str
    cost: float  #: USD/h there


@capability("Serve", "break-even")
def break_even(
    workload: Workload,
    on: Annotated[str | Sequence[str], Option(flag="--on", terminal=list[str])],
    low: Annotated[float, Option(flag="--from", low=1e-3, high=1e6)] = 0.1,
    high: Annotated[float, Option(flag="--to", low=1e-3, high=1e6)] = 100.0,
    first_token: FirstToken = None,
    token: Token = None,
    prompt_tokens: PromptTokens = 1024.0,
    output_tokens: OutputTokens = 1024.0,
    max_devices: Annotated[int, Option(metavar="N", low=1)] = 512,
) -> Report:
    """Find the load at which two fleets cost the same.

    At each rate both have their cheapest fleet within the limits of latency, as dse plan --serving finds it, in whole
    devices: costs are steps, so that the cheaper one may change several times. Costs are those of buying and running.

    Args:
        workload: Workload, by its name in the catalogue.
        on: Two accelerators, one option each, or joined by a comma.
        low: Lowest rate, requests/s.
        high: Highest rate, requests/s.
        first_token: Serving: limit of time to first token: 1s, p95=1s; one of both is needed [default: none].
        token: Serving: limit of time per output token: 30ms, p95=30ms; one of both is needed [default: none].
        prompt_tokens: Serving: prompt tokens, mean.
        output_tokens: Serving: output tokens, mean.
        max_devices: Maximum number of devices.
    """
    from dse.designs.catalog import resolve
    from dse.fleet import ServiceDemand, provision

    names = on.split(",") if isinstance(on, str) else [name for text in on for name in text.split(",")]
    slugs = {resolve("accelerator", name, "--on") for name in names} if len(names) == 2 else set()
    if len(slugs) != 2:
        raise InputError("--on", ", ".join(names) or "none", "two accelerators", "write --on h100 --on b200")
    if not low < high:
        raise InputError("--from, --to", f"{low:g}, {high:g}", "a rate, and a higher one", "write --from 1 --to 100")
    limits = limit_of(first_token, "--ttft"), limit_of(token, "--tpot")
    demand = ServiceDemand(
        workload, tuple(names), high, prompt_tokens, output_tokens, limits[0][0], limits[1][0], max_devices,
        limits[0][1], limits[1][1],
    )  # fmt: skip
    plan = provision(demand._replace(further_rates=tuple(_rates(low, high))))
    first, second = plan.demand.accelerators

    def costs(plan: Plan, rates: Sequence[float]) -> list[CostAtRate]:
        return [_costs(plan, rate, (first, second)) for rate in rates]

    rows = [row for row in costs(plan, _rates(low, high)) if math.isfinite(min(row.first, row.second))]
    crossings = []
    for left, right in itertools.pairwise(rows):
        if left.is_first_cheaper != right.is_first_cheaper:
            for _ in range(_ROUNDS):
                ratio = (right.rate / left.rate) ** (1.0 / _PARTS)
                between = [left.rate * ratio**k for k in range(1, _PARTS)]
                finer = provision(demand._replace(rate=right.rate, further_rates=tuple(between)))
                steps = [left, *costs(finer, between), right]
                left, right = next(
                    pair for pair in itertools.pairwise(steps) if pair[0].is_first_cheaper != pair[1].is_first_cheaper
                )
            below, above = (first, second) if left.is_first_cheaper else (second, first)
            crossings.append(Crossing(right.rate, below, above, min(right.first, right.second)))
    document = {"demand": demand, "from": low, "to": high, "rates": rows, "break_even": crossings}
    status = 0 if rows else NOTHING_FEASIBLE
    notes = [caution(f"{name}: {reason}") for name, reason in plan.without.items()]
    return Report(
        document,
        [
            *_lines(crossings, rows, (first, second), (low, high)),
            *notes,
            *([_table(rows, first, second)] if rows else []),
        ],
        status=status,
    )


def _costs(plan: Plan, rate: float, names: tuple[str, str]) -> CostAtRate:
    """Return the costs of the cheapest fleets of two accelerators at a rate that a plan has swept."""
    cheapest: list[Fleet | None] = []
    for name in names:
        designs = plan.designs.get(name)
        fleets = designs.fleets(plan.demand._replace(rate=rate))[0] if designs else []
        cheapest.append(min(fleets, key=lambda fleet: fleet.hourly, default=None))
    first, second = (math.inf if fleet is None else fleet.hourly for fleet in cheapest)
    first_devices, second_devices = (None if fleet is None else fleet.devices for fleet in cheapest)
    return CostAtRate(rate, first, second, first_devices, second_devices)


def _rates(low: float, high: float) -> list[float]:
    """Return rates from ``low`` to ``high``, both included, in equal ratios."""
    count = max(1, round(_STEPS * math.log2(high / low)))
    return [low * (high / low) ** (k / count) for k in range(count)] + [high]


def _lines(
    crossings: Sequence[Crossing], rows: Sequence[CostAtRate], names: tuple[str, str], rates: tuple[float, float]
) -> Iterator[Line]:
    """Yield a line for each crossing, or one that says which is cheaper everywhere."""
    for crossing in crossings:
        yield Line(
            f"{digits(crossing.rate)} requests/s: {crossing.below} is cheaper below, {crossing.above} above, "
            f"at {digits(crossing.cost)} USD/h"
        )
    if not crossings:
        scope = f"from {rates[0]:g} to {rates[1]:g} requests/s"
        cheaper = names[0] if rows and rows[0].is_first_cheaper else names[1]
        yield Line(f"{cheaper} is the cheaper one {scope}" if rows else f"neither serves a rate {scope}")


def _table(rows: Sequence[CostAtRate], first: str, second: str) -> Table:
    """Return the table of rates: cost and devices of both."""

    def text(value: float) -> str:
        """Format a cost, a dash for none."""
        return digits(value) if math.isfinite(value) else "–"

    columns = [
        Column("requests/s", "rate", digits), Column(f"{first} USD/h", "first", text),
        Column("devices", "first_devices", "{:,}".format), Column(f"{second} USD/h", "second", text),
        Column("devices", "second_devices", "{:,}".format),
        Column("second over first", "second_over_first", percent, spare=True),
    ]  # fmt: skip
    return Table("rates", columns, rows)
