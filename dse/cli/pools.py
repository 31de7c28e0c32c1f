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
from dse.io.outputs import replacing

if TYPE_CHECKING:
    from dse.fleet import Candidate, Match, MatchedPools, PoolFleet


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
    from dse.io.outputs import checked

    if output and output.suffix.lower() != ".csv":
        raise InputError(f"output {output}", repr(output.suffix), ".csv", f"name {output.with_suffix('.csv')}")
    if figure:
        from dse.views.plot.style import check_ending

        check_ending(figure)
    for path in filter(None, (output, figure)):
        checked(path, force, [specification])
    found = match(specification)
    if (output or figure or tool) and not found.fleets:
        raise InputError(
            f"{specification}: pools",
            "no whole workers",
            "n_devices that hold some",
            "write n_devices = 64 under [pools], or more",
        )
    picked = _picked(found, pick, tool) if tool else None
    if output:
        _write(found, output, force)
    if figure:
        from dse.views import plot

        plot.save(plot.fleets(found), figure, force)
    if as_json:
        show.document(
            {
                "title": found.title,
                "together": [_match_document(one, found) for one in found.together],
                "pools": [_match_document(one, found) for one in found.pools],
                "workers": [_fleet_row(one, found) for one in found.fleets],
                "interval_factors": _factors(found),
            }
        )
        return 0 if found.pools else NOTHING_FEASIBLE
    _print(found)
    if found.fleets:
        _print_fleets(found)
    if tool and picked:
        _print_lines(found, tool, picked)
    return 0 if found.pools else NOTHING_FEASIBLE


def _fleet_row(one: PoolFleet, found: MatchedPools) -> dict[str, Any]:
    """Whole workers as columns of a file; SI units."""
    names, row = _PoolNames.of(found), dict[str, Any]()
    both = one.match.decode is None
    for role, part, count, headroom, wait in zip(
        ("together",) if both else ("prefill", "decode"),
        one.match.parts,
        one.workers,
        one.headroom,
        one.waits,
        strict=True,
    ):
        row |= {
            f"{role}_workers": count,
            f"{role}_design": names.name(part),
            f"{role}_headroom": headroom,
            f"{role}_wait": wait,
        }
    tokens = one.rate * found.output_tokens
    return {"kind": "together" if both else "pools", **row} | {
        "n_devices": one.devices,
        "requests_per_second": one.rate,
        "time_to_first_token": one.first_token,
        "transfer_time": one.match.transfer,
        "time_per_output_token": one.token,
        "output_tokens_per_second_per_device": tokens / one.devices,
        "usd_per_hour": one.hourly or None,
    }


def _write(found: MatchedPools, path: Path, force: bool) -> None:
    """Write whole workers, a line each."""
    rows = [_fleet_row(one, found) for one in found.fleets]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with replacing(path, force) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        lines = csv.DictWriter(file, columns, lineterminator="\n")
        lines.writeheader()
        lines.writerows(rows)


def _picked(found: MatchedPools, pick: int | None, tool: str) -> PoolFleet:
    """The workers of a number in the list, or with the most requests/s; InputError unless the tool launches them."""
    from dse.tools.runs import engine_degrees, engine_fault

    assert found.designs is not None, "fleets have designs"
    if pick and pick > len(found.fleets):
        raise InputError("--pick", str(pick), f"1 to {len(found.fleets)}", "choose one of the list")
    fleet = found.fleets[pick - 1] if pick else max(found.fleets, key=lambda one: one.rate)
    for design in found.designs(fleet):
        if fault := engine_fault(tool, engine_degrees(design)):
            raise InputError(f"--for {tool}", *fault)
    return fleet


#: Most rows of each front that are printed.
_ROWS = 8


def _print_fleets(found: MatchedPools) -> None:
    """Both fronts, thinned evenly."""
    out, asked, names = show.console(), found.asked, _PoolNames.of(found)
    assert asked is not None, "fleets have a specification"
    have = ", ".join(f"{count:,} {name}".rstrip() for name, count in asked.devices.items())
    show.heading(out, f"whole workers of {have} devices, at {100.0 * asked.utilisation:.0f} % of what they serve")
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
    for kind in (False, True):
        front = [(place, one) for place, one in enumerate(found.fleets, 1) if (one.match.decode is None) is kind]
        step = max((len(front) - 1) / (_ROWS - 1), 1.0)
        for place, one in (front[round(k * step)] for k in range(min(len(front), _ROWS))):
            second = "the same" if kind else names.name(one.match.parts[1])
            rows.append(
                [
                    str(place),
                    " + ".join(map(str, one.workers)),
                    names.name(one.match.prefill),
                    second,
                    str(one.devices),
                    show.seconds(one.first_token),
                    _seconds(one.waits[0]),
                    show.seconds(one.token),
                    show.digits(one.rate),
                    show.digits(one.rate * found.output_tokens / one.devices),
                    ", ".join(f"{100.0 * share:.0f} %" for share in one.headroom),
                ]
            )
    show.print_table(out, columns, rows, left=["prefill", "decode"], keys=2)
    if len(rows) < len(found.fleets):
        out.print(f"{len(rows)} of {len(found.fleets)}: -o has all")


def _seconds(wait: float) -> str:
    return show.seconds(wait) if wait > 1e-6 else "0 s"


def _print_lines(found: MatchedPools, tool: str, fleet: PoolFleet) -> None:
    """Launch lines of every role, of the router and of the benchmark."""
    from dse.designs.leaves import replace
    from dse.doors.studies import STUDIES
    from dse.tools import benchmark_lines, launch, router

    assert found.designs is not None, "fleets have designs"
    designs = found.designs(fleet)
    roles = ("",) if fleet.match.decode is None else ("prefill", "decode")
    notes: dict[str, None] = {}
    for role, part, count, design in zip(roles, fleet.match.parts, fleet.workers, designs, strict=True):
        at_once = math.ceil(float(part.labels.get("concurrency", 1.0)) / float(part.labels.get("dp", 1.0)))
        design = replace(design, {"software.engine.most_sequences": float(at_once)})
        stack = str(part.labels.get("software", ""))
        line = launch(design, tool, STUDIES["serving"], found.workload, stack, role, system=part.accelerator)
        named = f"{role or 'engine'}: {show.counted(count, 'worker')} of {part.devices:g} {part.accelerator}"
        comments = "".join(f"\n# {text}" for text in line.comments)
        print(f"\n# {named}, the line on each{comments}\n{line.text}")
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


def _match_document(one: Match, found: MatchedPools) -> dict[str, Any]:
    names = ("prefill", "decode") if one.decode else ("together",)
    document: dict[str, Any] = {name: _design(part) for name, part in zip(names, one.parts, strict=True)}
    gains = {other.prefill.accelerator: one.gain(other) for other in found.together}
    return document | {
        "prefill_share_of_devices": one.share,
        "requests_per_second_per_device": one.rate,
        "time_to_first_token": one.first_token,
        "transfer_time": one.transfer,
        "time_per_output_token": one.token,
        "usd_per_request": one.price or None,
        "watts_per_request_per_second": one.watts,
        "requests_per_second_over": {
            name: dict(zip(("at_equal_price", "at_equal_power", "at_both"), gain, strict=True))
            for name, gain in gains.items()
        },
    }


def _design(part: Candidate) -> dict[str, Any]:
    labels = {name: value.item() if hasattr(value, "item") else value for name, value in part.labels.items()}
    return {"accelerator": part.accelerator, **labels, "requests_per_second": part.rate, "n_devices": part.devices}


def _print(found: MatchedPools) -> None:
    out = show.console()
    out.print(Text(found.title))
    columns = ["prefill", "decode", "% prefill", "TTFT", "TPOT", "requests/s per device", "W per request/s"]
    has_prices = any(one.price > 0.0 for one in (*found.together, *found.pools))
    columns += ["USD per 1000 requests"] * has_prices
    against = [one.prefill.accelerator for one in found.together]
    columns += [f"x {name} at equal {'price, power, both' if has_prices else 'power'}" for name in against]
    names = _PoolNames.of(found)
    rows = [_row(one, found, has_prices, names) for one in (*found.together, *found.pools)]
    show.print_table(out, columns, rows, left=columns[:2], keys=2)
    if not found.pools:
        out.print("no pair of pools meets the constraints")
    for name, factors in _factors(found).items():
        out.print(
            Text(f"80 % intervals of {name}: {', '.join(f'{word} ÷× {f:.2f}' for word, f in factors.items())}"),
            soft_wrap=True,
        )


#: Word of a table → metric.
_WORDS = {"TTFT": "time_to_first_token", "TPOT": "time_per_output_token", "requests/s": "requests_per_second"}


def _factors(found: MatchedPools) -> dict[str, dict[str, float]]:
    """Accelerator of a pool → word → factor of the 80 % interval to either side."""
    from dse.cli.limits import sure_of

    parts = {part.accelerator: part for one in (*found.together, *found.pools) for part in one.parts}
    known: dict[str, dict[str, float]] = {}
    for name, part in parts.items() if found.workload else ():
        values = dict.fromkeys(_WORDS.values(), 1.0)
        sure = sure_of(found.workload, name, str(part.labels.get("software", "")), values, "serving")
        known[name] = {word: sure[metric].high for word, metric in _WORDS.items() if metric in sure}
    return known


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
        return cls(
            tuple(
                name for name, usual in _USUAL.items() if len(values[name]) > 1 or (usual and values[name] != {usual})
            )
        )

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
