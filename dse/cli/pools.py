"""``dse pools``: matched prefill and decode pools, compared with mixed engines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from dse.cli import show
from dse.cli.options import Json
from dse.cli.status import NOTHING_FEASIBLE, report_errors

if TYPE_CHECKING:
    from dse.sweep.pools import Candidate, Match, MatchedPools


@report_errors
def pools(
    specification: Annotated[
        Path,
        typer.Argument(
            metavar="SPEC.toml", help="A sweep with sections [prefill], [decode] and [pools], or example:NAME.",
        ),
    ],
    as_json: Json = False,
) -> int:
    """Match prefill pools with decode pools.

    Sweeps each pool on its own, and prints the best pair of every two accelerators, and engines that do both.
    """
    from dse.sweep.pools import match

    found = match(specification)
    if as_json:
        show.document({"title": found.title, "together": [_match_document(one, found) for one in found.together],
                       "pools": [_match_document(one, found) for one in found.pools]})  # fmt: skip
    else:
        _print(found)
    return 0 if found.pools else NOTHING_FEASIBLE


def _match_document(one: Match, found: MatchedPools) -> dict[str, Any]:
    names = ("prefill", "decode") if one.decode else ("together",)
    document: dict[str, Any] = {name: _design(part) for name, part in zip(names, one.parts, strict=True)}
    gains = {other.prefill.accelerator: one.gain(other) for other in found.together}
    return document | {
        "prefill_share_of_devices": one.share, "requests_per_second_per_device": one.rate,
        "time_to_first_token": one.first_token, "transfer_time": one.transfer,
        "time_per_output_token": one.token, "usd_per_request": one.price or None,
        "watts_per_request_per_second": one.watts,
        "requests_per_second_over": {
            name: dict(zip(("at_equal_price", "at_equal_power", "at_both"), gain, strict=True))
            for name, gain in gains.items()
        },
    }  # fmt: skip


def _design(part: Candidate) -> dict[str, Any]:
    labels = {name: value.item() if hasattr(value, "item") else value for name, value in part.labels.items()}
    return {"accelerator": part.accelerator, **labels, "requests_per_second": part.rate, "n_devices": part.devices}


def _print(found: MatchedPools) -> None:
    out = show.console()
    out.print(found.title)
    columns = ["prefill", "decode", "% prefill", "TTFT", "TPOT", "requests/s per device",
               "W per request/s"]  # fmt: skip
    has_prices = any(one.price > 0.0 for one in (*found.together, *found.pools))
    columns += ["USD per 1000 requests"] * has_prices
    against = [one.prefill.accelerator for one in found.together]
    columns += [f"x {name} at equal {'price, power, both' if has_prices else 'power'}" for name in against]
    names = _PoolNames.of(found)
    rows = [_row(one, found, has_prices, names) for one in (*found.together, *found.pools)]
    show.print_table(out, columns, rows, left=columns[:2], keys=2)
    if not found.pools:
        out.print("no pair of pools meets the constraints")


def _row(one: Match, found: MatchedPools, has_prices: bool, names: _PoolNames) -> list[str]:
    second = "the same" if one.decode is None else names.name(one.decode)
    cells = [names.name(one.prefill), second, f"{100.0 * one.share:.0f}",
             show.seconds(one.first_token), show.seconds(one.token), show.digits(one.rate),
             f"{one.watts:,.0f}"]  # fmt: skip
    cells += [f"{1e3 * one.price:.3f}"] * has_prices
    for other in found.together:
        price, power, both = one.gain(other)
        cells.append(f"{price:.2f}, {power:.2f}, {both:.2f}" if has_prices else f"{power:.2f}")
    return cells


#: Labels of degrees, omitted at 1.
_DEGREES = ("tp", "pp", "dp", "ep")

#: Choice omitted where all pools have its usual value → that value.
_USUAL = {"precision": "bf16", "software": ""}


class _PoolNames(NamedTuple):
    """Parts of the name of a pool that identify it."""

    choices: tuple[str, ...]  #: labels that differ between the shown pools, or are unusual

    @classmethod
    def of(cls, found: MatchedPools) -> _PoolNames:
        parts = [part for one in (*found.together, *found.pools) for part in one.parts]
        values = {name: {str(part.labels.get(name, usual)) for part in parts} for name, usual in _USUAL.items()}
        return cls(tuple(
            name for name, usual in _USUAL.items() if len(values[name]) > 1 or (usual and values[name] != {usual})
        ))  # fmt: skip

    def name(self, part: Candidate) -> str:
        """Accelerator, devices, degrees above 1, differing choices, swept leaves, requests in flight.

        Pools of one device are ``h100-sxm-80gb, 4 in flight``.
        """
        count = f" x {part.devices:g}" if part.devices > 1 else ""
        names = [f"{name} {part.labels[name]}" for name in _DEGREES if part.labels.get(name, 1) > 1]
        names += [str(part.labels[name]) for name in self.choices if name in part.labels]
        others = (*_DEGREES, *_USUAL, "concurrency")
        names += [f"{name} {value}" for name, value in part.labels.items() if name not in others]
        return ", ".join([part.accelerator + count, *names, f"{part.labels.get('concurrency', 1)} in flight"])
