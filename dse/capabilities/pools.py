"""``dse pools``: matched prefill and decode pools, compared with mixed engines."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.text import Text

from dse.cli import show
from dse.cli.options import Force, Json
from dse.cli.status import NOTHING_FEASIBLE, report_errors
from dse.errors import InputError
from dse.io import replacing

if TYPE_CHECKING:
    from dse.fleet import Match, MatchedPools, PoolCandidate, PoolFleet


@report_errors
def pools(
    specification: Annotated[
        Path,
        typer.Argument(
            metavar="SPEC.toml",
            help="A sweep with sections [prefill], [decode] and [pools], or example:NAME.",
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File of all whole workers, .csv [default: none].")
    ] = None,
    figure: Annotated[
        Path | None,
        typer.Option(metavar="FILE.png", help="Figure of whole workers, .png, .svg or .pdf [default: none]."),
    ] = None,
    tool: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="TOOL",
            help="Print launch lines of whole workers: vllm, sglang, tensorrt-llm [default: none].",
        ),
    ] = None,
    pick: Annotated[
        int | None,
        typer.Option(min=1, help="Number of the workers that are launched, as listed [default: the most requests/s]."),
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> int:
    """Match prefill pools with decode pools.

    Sweeps each pool on its own, and prints the best pair of every two accelerators, and engines that do both. With
    n_devices under [pools] also finds whole workers: fronts of pools and of engines that do both over latency and rate.
    """
    from dse.fleet import match
    from dse.io import check_output

    if output and output.suffix.lower() != ".csv":
        raise InputError(f"output {output}", repr(output.suffix), ".csv", f"name {output.with_suffix('.csv')}")
    if figure:
        from dse.views.plot.style import check_ending

        check_ending(figure)
    for path in filter(None, (output, figure)):
        check_output(path, force, [specification])
    matched = match(specification)
    if (output or figure or tool) and not matched.fleets:
        raise InputError(
            f"{specification}: pools",
            "no whole workers",
            "n_devices that hold some",
            "write n_devices = 64 under [pools], or more",
        )
    fleet = _select_fleet(matched, pick, tool) if tool else None
    if output:
        _write(matched, output, force)
    if figure:
        from dse.views import plot

        plot.save(plot.fleets(matched), figure, force)
    if as_json:
        show.document(
            {
                "title": matched.title,
                "together": [_match_document(pair, matched) for pair in matched.together],
                "pools": [_match_document(pair, matched) for pair in matched.pools],
                "workers": [_fleet_row(fleet, matched) for fleet in matched.fleets],
                "interval_factors": _interval_factors(matched),
            }
        )
        return 0 if matched.pools else NOTHING_FEASIBLE
    _print(matched)
    if matched.fleets:
        _print_fleets(matched)
    if tool and fleet:
        _print_lines(matched, tool, fleet)
    return 0 if matched.pools else NOTHING_FEASIBLE


def _fleet_row(fleet: PoolFleet, matched: MatchedPools) -> dict[str, Any]:
    """Return column → value of a fleet for a CSV file, in SI units."""
    names, row = _PoolNames.from_pools(matched), dict[str, Any]()
    is_together = fleet.match.decode is None
    for role, part, count, headroom, wait in zip(
        ("together",) if is_together else ("prefill", "decode"),
        fleet.match.parts,
        fleet.workers,
        fleet.headroom,
        fleet.waits,
        strict=True,
    ):
        row |= {
            f"{role}_workers": count,
            f"{role}_design": names.name(part),
            f"{role}_headroom": headroom,
            f"{role}_wait": wait,
        }
    tokens = fleet.rate * matched.output_tokens
    return {"kind": "together" if is_together else "pools", **row} | {
        "n_devices": fleet.devices,
        "requests_per_second": fleet.rate,
        "time_to_first_token": fleet.first_token,
        "transfer_time": fleet.match.transfer,
        "time_per_output_token": fleet.token,
        "output_tokens_per_second_per_device": tokens / fleet.devices,
        "usd_per_hour": fleet.hourly or None,
    }


def _write(matched: MatchedPools, path: Path, force: bool) -> None:
    """Write the fleets to a CSV file, a line each."""
    rows = [_fleet_row(fleet, matched) for fleet in matched.fleets]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with replacing(path, force) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        lines = csv.DictWriter(file, columns, lineterminator="\n")
        lines.writeheader()
        lines.writerows(rows)


def _select_fleet(matched: MatchedPools, pick: int | None, tool: str) -> PoolFleet:
    """Return fleet number ``pick`` (from 1), else that of most requests/s; raise where the tool cannot launch it."""
    from dse.tools.runs import engine_degrees, engine_fault

    assert matched.designs is not None, "fleets have designs"
    if pick and pick > len(matched.fleets):
        raise InputError("--pick", str(pick), f"1 to {len(matched.fleets)}", "choose one of the list")
    fleet = matched.fleets[pick - 1] if pick else max(matched.fleets, key=lambda f: f.rate)
    for design in matched.designs(fleet):
        if fault := engine_fault(tool, engine_degrees(design)):
            raise InputError(f"--for {tool}", *fault)
    return fleet


#: Most rows of each front that are printed.
_ROWS = 8


def _print_fleets(matched: MatchedPools) -> None:
    """Print a table of at most ``_ROWS`` fleets of each front (pools, engines that do both), evenly thinned."""
    out, specification, names = show.console(), matched.spec, _PoolNames.from_pools(matched)
    assert specification is not None, "fleets have a specification"
    device_text = ", ".join(f"{count:,} {name}".rstrip() for name, count in specification.devices.items())
    show.heading(
        out, f"whole workers of {device_text} devices, at {100.0 * specification.utilisation:.0f} % of what they serve"
    )
    columns = [
        "",
        "workers",
        "prefill",
        "decode",
        "devices",
        "TTFT",
        "of it queue",
        "TPOT",
        "requests/s",
        "tok/s/device",
        "headroom",
    ]
    rows = []
    for is_together in (False, True):
        front = [
            (number, fleet)
            for number, fleet in enumerate(matched.fleets, 1)
            if (fleet.match.decode is None) is is_together
        ]
        step = max((len(front) - 1) / (_ROWS - 1), 1.0)
        for number, fleet in (front[round(k * step)] for k in range(min(len(front), _ROWS))):
            second = "the same" if is_together else names.name(fleet.match.parts[1])
            rows.append(
                [
                    str(number),
                    " + ".join(map(str, fleet.workers)),
                    names.name(fleet.match.prefill),
                    second,
                    str(fleet.devices),
                    show.seconds(fleet.first_token),
                    _wait_text(fleet.waits[0]),
                    show.seconds(fleet.token),
                    show.digits(fleet.rate),
                    show.digits(fleet.rate * matched.output_tokens / fleet.devices),
                    ", ".join(f"{100.0 * share:.0f} %" for share in fleet.headroom),
                ]
            )
    show.print_table(out, columns, rows, left=["prefill", "decode"], keys=2)
    if len(rows) < len(matched.fleets):
        out.print(f"{len(rows)} of {len(matched.fleets)}: -o has all")


def _wait_text(wait: float) -> str:
    """Format a wait in seconds, "0 s" below a microsecond."""
    return show.seconds(wait) if wait > 1e-6 else "0 s"


def _print_lines(matched: MatchedPools, tool: str, fleet: PoolFleet) -> None:
    """Print the launch lines of every role, of the router and of the benchmark, as shell text."""
    from dse.designs import replace
    from dse.doors import STUDIES
    from dse.tools import benchmark_lines, launch, router

    assert matched.designs is not None, "fleets have designs"
    designs = matched.designs(fleet)
    roles = ("",) if fleet.match.decode is None else ("prefill", "decode")
    notes: dict[str, None] = {}
    for role, part, count, design in zip(roles, fleet.match.parts, fleet.workers, designs, strict=True):
        sequences = math.ceil(float(part.labels.get("concurrency", 1.0)) / float(part.labels.get("dp", 1.0)))
        design = replace(design, {"software.engine.most_sequences": float(sequences)})
        stack = str(part.labels.get("software", ""))
        line = launch(design, tool, STUDIES["serving"], matched.workload, stack, role, system=part.accelerator)
        title = f"{role or 'engine'}: {show.counted(count, 'worker')} of {part.devices:g} {part.accelerator}"
        comments = "".join(f"\n# {text}" for text in line.comments)
        print(f"\n# {title}, the line on each{comments}\n{line.text}")
        notes |= dict.fromkeys(line.notes)
    if len(roles) > 1:
        print(f"\n# router\n{router(tool, *fleet.workers)}")
        if tool == "vllm":
            notes["set VLLM_NIXL_SIDE_CHANNEL_HOST of each worker to the address of its host"] = None
    requests = designs[-1].workload.requests
    assert requests is not None, "a design that serves"
    for name, text in benchmark_lines(requests, fleet.rate).items():
        print(
            f"\n# measures TTFT {show.seconds(fleet.first_token)}, TPOT {show.seconds(fleet.token)} at "
            f"{show.digits(fleet.rate)} requests/s: {name}\n{text}"
        )
    for text in notes:
        show.note(text)


def _match_document(pair: Match, matched: MatchedPools) -> dict[str, Any]:
    """Return the JSON-ready dictionary of a matched pair of pools, with its gains over engines that do both."""
    names = ("prefill", "decode") if pair.decode else ("together",)
    document: dict[str, Any] = {name: _pool_document(part) for name, part in zip(names, pair.parts, strict=True)}
    gains = {other.prefill.accelerator: pair.gain(other) for other in matched.together}
    return document | {
        "prefill_share_of_devices": pair.share,
        "requests_per_second_per_device": pair.rate,
        "time_to_first_token": pair.first_token,
        "transfer_time": pair.transfer,
        "time_per_output_token": pair.token,
        "usd_per_request": pair.price or None,
        "watts_per_request_per_second": pair.watts,
        "requests_per_second_over": {
            name: dict(zip(("at_equal_price", "at_equal_power", "at_both"), gain, strict=True))
            for name, gain in gains.items()
        },
    }


def _pool_document(part: PoolCandidate) -> dict[str, Any]:
    """Return the JSON-ready dictionary of a pool: accelerator, labels, requests/s, devices."""
    labels = {name: value.item() if hasattr(value, "item") else value for name, value in part.labels.items()}
    return {"accelerator": part.accelerator, **labels, "requests_per_second": part.rate, "n_devices": part.devices}


def _print(matched: MatchedPools) -> None:
    """Print the table of matched pools, and the factors of their 80 % intervals."""
    out = show.console()
    out.print(Text(matched.title))
    columns = ["prefill", "decode", "% prefill", "TTFT", "TPOT", "requests/s per device", "W per request/s"]
    has_prices = any(pair.price > 0.0 for pair in (*matched.together, *matched.pools))
    columns += ["USD per 1000 requests"] * has_prices
    baselines = [pair.prefill.accelerator for pair in matched.together]
    columns += [f"x {name} at equal {'price, power, both' if has_prices else 'power'}" for name in baselines]
    names = _PoolNames.from_pools(matched)
    rows = [_match_cells(pair, matched, has_prices, names) for pair in (*matched.together, *matched.pools)]
    show.print_table(out, columns, rows, left=columns[:2], keys=2)
    if not matched.pools:
        out.print("no pair of pools meets the constraints")
    for name, factors in _interval_factors(matched).items():
        out.print(
            Text(f"80 % intervals of {name}: {', '.join(f'{word} ÷× {f:.2f}' for word, f in factors.items())}"),
            soft_wrap=True,
        )


#: Word of a table → metric.
_WORDS = {"TTFT": "time_to_first_token", "TPOT": "time_per_output_token", "requests/s": "requests_per_second"}


def _interval_factors(matched: MatchedPools) -> dict[str, dict[str, float]]:
    """Return accelerator → "TTFT" etc. → upper end of the 80 % interval over the value; empty without a workload."""
    from dse.cli.limits import plan_intervals

    parts = {part.accelerator: part for pair in (*matched.together, *matched.pools) for part in pair.parts}
    factors_by_accelerator: dict[str, dict[str, float]] = {}
    for name, part in parts.items() if matched.workload else ():
        values = dict.fromkeys(_WORDS.values(), 1.0)
        intervals = plan_intervals(matched.workload, name, str(part.labels.get("software", "")), values, "serving")
        factors_by_accelerator[name] = {
            word: intervals[metric].high for word, metric in _WORDS.items() if metric in intervals
        }
    return factors_by_accelerator


def _match_cells(pair: Match, matched: MatchedPools, has_prices: bool, names: _PoolNames) -> list[str]:
    """Return the cells of a matched pair: pools, share of prefill, latencies, rate, power, price, gains."""
    second = "the same" if pair.decode is None else names.name(pair.decode)
    cells = [names.name(pair.prefill), second, f"{100.0 * pair.share:.0f}",
             show.seconds(pair.first_token), show.seconds(pair.token), show.digits(pair.rate),
             f"{pair.watts:,.0f}"]  # fmt: skip
    cells += [f"{1e3 * pair.price:.3f}"] * has_prices
    for other in matched.together:
        price_gain, power_gain, combined_gain = pair.gain(other)
        cells.append(f"{price_gain:.2f}, {power_gain:.2f}, {combined_gain:.2f}" if has_prices else f"{power_gain:.2f}")
    return cells


#: Labels of degrees, omitted at 1.
_DEGREES = ("tp", "pp", "dp", "ep")

#: Choice omitted where all pools have its usual value → that value.
_USUAL = {"precision": "bf16", "software": ""}


class _PoolNames(NamedTuple):
    """Labels that names of pools contain."""

    choices: tuple[str, ...]  #: labels that differ between the shown pools, or are unusual

    @classmethod
    def from_pools(cls, matched: MatchedPools) -> _PoolNames:
        """Collect the labels that differ between the shown pools, or are unusual."""
        parts = [part for pair in (*matched.together, *matched.pools) for part in pair.parts]
        values = {name: {str(part.labels.get(name, usual)) for part in parts} for name, usual in _USUAL.items()}
        return cls(
            tuple(
                name for name, usual in _USUAL.items() if len(values[name]) > 1 or (usual and values[name] != {usual})
            )
        )

    def name(self, part: PoolCandidate) -> str:
        """Name a pool by accelerator, devices, degrees above 1, differing choices, swept leaves and requests in flight.

        Pools of one device are ``h100-sxm-80gb, 4 in flight``.
        """
        count = f" x {part.devices:g}" if part.devices > 1 else ""
        names = [f"{name} {part.labels[name]}" for name in _DEGREES if part.labels.get(name, 1) > 1]
        names += [str(part.labels[name]) for name in self.choices if name in part.labels]
        skipped_labels = (*_DEGREES, *_USUAL, "concurrency")
        names += [f"{name} {value}" for name, value in part.labels.items() if name not in skipped_labels]
        return ", ".join([part.accelerator + count, *names, f"{part.labels.get('concurrency', 1)} in flight"])
