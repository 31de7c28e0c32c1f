"""``dse.pools``: matched prefill and decode pools, compared with mixed engines."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from dse.capabilities.plan import whole_percent
from dse.capabilities.results import check_files
from dse.errors import InputError
from dse.io import counted, digits, seconds
from dse.reports import Column, Line, Option, Report, Table, capability, verbatim
from dse.reports.options import Force, Specification
from dse.reports.report import NOTHING_FEASIBLE
from dse.reports.tables import Section

if TYPE_CHECKING:
    from dse.fleet import Match, MatchedPools, PoolCandidate, PoolFleet

#: What two services have in equal measure where their requests/s are compared.
_KINDS = ("price", "power", "both")

#: Most rows of each front that are shown.
_ROWS = 8


@capability("Serve", details=("latencies", "gains", "intervals"))
def pools(
    specification: Specification,
    output: Annotated[Path | None, Option(short="-o")] = None,
    figure: Annotated[Path | None, Option(metavar="FILE.png")] = None,
    tool: Annotated[str | None, Option(flag="--for", metavar="TOOL")] = None,
    pick: Annotated[int | None, Option(low=1)] = None,
    force: Force = False,
) -> Report:
    """Match prefill pools with decode pools.

    Sweeps each pool on its own, and has the best pair of every two accelerators, and engines that do both. The
    specification is a sweep with sections [prefill], [decode] and [pools]. With n_devices under [pools] also finds
    whole workers: fronts of pools and of engines that do both over latency and rate.

    Args:
        specification: Specification, or example:NAME; in Python and requests its sections as a dictionary.
        output: File of all whole workers, .csv [default: none].
        figure: Figure of whole workers, .png, .svg or .pdf [default: none].
        tool: Print launch lines of whole workers: vllm, sglang, tensorrt-llm [default: none].
        pick: Number of the workers that are launched, as listed [default: the most requests/s].
        force: Replace a file that dse has not written.
    """
    from dse.fleet import match
    from dse.measured.comparison import write_lines
    from dse.spec.sweep import name_of

    inputs = [Path(specification)] if isinstance(specification, str | Path) else []
    files, figures = check_files(output, ".csv", figure, force, inputs)
    matched = match(specification)
    if (output or figure or tool) and not matched.fleets:
        raise InputError(
            f"{name_of(specification, 'pools')}: pools",
            "no whole workers",
            "n_devices that hold some",
            "write n_devices = 64 under [pools], or more",
        )
    fleet = _select_fleet(matched, pick, tool) if tool else None
    names = _PoolNames.from_pools(matched)
    rows = [_fleet_row(fleet, matched, names) for fleet in matched.fleets]
    if output:
        write_lines(output, rows, force)
    if figure:
        from dse.views import plot

        plot.save(plot.fleets(matched), figure, force)
    factors = _interval_factors(matched)
    document = {
        "title": matched.title,
        "together": [_match_document(pair, matched) for pair in matched.together],
        "pools": [_match_document(pair, matched) for pair in matched.pools],
        "workers": rows,
        "interval_factors": factors,
    }
    sections: list[Section] = [Line(matched.title), *_match_sections(matched, names)]
    if matched.fleets:
        sections += _fleet_sections(matched, names)
    for name, words in factors.items():
        texts = ", ".join(f"{word} ÷× {factor:.2f}" for word, factor in words.items())
        sections.append(Line(f"80 % intervals of {name}: {texts}", show="intervals"))
    notes: list[str] = []
    if tool and fleet:
        lines, notes = _launch_lines(matched, tool, fleet)
        sections += lines
    return Report(document, sections, notes, figures, files, status=0 if matched.pools else NOTHING_FEASIBLE)


def _fleet_row(fleet: PoolFleet, matched: MatchedPools, names: _PoolNames) -> dict[str, Any]:
    """Return column → value of a fleet for a CSV file, in SI units."""
    designs = map(names.name, fleet.match.parts)
    columns = {"workers": fleet.workers, "design": designs, "headroom": fleet.headroom, "wait": fleet.waits}
    values = [dict(zip(fleet.match.roles, column, strict=True)) for column in columns.values()]
    row = {f"{role}_{name}": of[role] for role in fleet.match.roles for name, of in zip(columns, values, strict=True)}
    tokens = fleet.rate * matched.output_tokens
    return {"kind": "together" if fleet.match.decode is None else "pools", **row} | {
        "n_devices": fleet.devices,
        "requests_per_second": fleet.rate,
        "time_to_first_token": fleet.first_token,
        "transfer_time": fleet.match.transfer,
        "time_per_output_token": fleet.token,
        "output_tokens_per_second_per_device": tokens / fleet.devices,
        "usd_per_hour": fleet.hourly or None,
    }


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


def _fleet_sections(matched: MatchedPools, names: _PoolNames) -> Iterator[Section]:
    """Yield the table of at most ``_ROWS`` fleets of each front (pools, engines that do both), evenly thinned."""
    specification = matched.spec
    assert specification is not None, "fleets have a specification"
    device_text = ", ".join(f"{count:,} {name}".rstrip() for name, count in specification.devices.items())
    fronts = itertools.groupby(enumerate(matched.fleets, 1), key=lambda pair: pair[1].match.decode is None)
    shown = [pair for _, front in fronts for pair in _thinned([*front])]
    rows = [
        {
            **_fleet_row(fleet, matched, names),
            "number": number,
            "workers": " + ".join(map(str, fleet.workers)),
            "prefill": names.short(fleet.match.prefill),
            "decode": "the same" if fleet.match.decode is None else names.short(fleet.match.parts[1]),
            "queue_time": fleet.waits[0],
            "headroom": ", ".join(map(whole_percent, fleet.headroom)),
        }
        for number, fleet in shown
    ]
    columns = [
        Column("", "number"),
        Column("workers", "workers"),
        Column("prefill", "prefill", left=True, prose=True),
        Column("decode", "decode", left=True, prose=True),
        Column("devices", "n_devices", spare=True),
        Column("TTFT", "time_to_first_token", seconds),
        Column("of it queue", "queue_time", lambda wait: seconds(wait) if wait > 1e-6 else "0 s", spare=True),
        Column("TPOT", "time_per_output_token", seconds),
        Column("requests/s", "requests_per_second", digits),
        Column("tok/s/device", "output_tokens_per_second_per_device", digits, spare=True),
        Column("headroom", "headroom", spare=True),
    ]
    share = f"{100.0 * specification.utilisation:.0f} %"
    yield Table("workers", columns, rows, f"whole workers of {device_text} devices, at {share} of what they serve")
    if len(rows) < len(matched.fleets):
        yield Line(f"{len(rows)} of {len(matched.fleets)}: -o has all")


def _thinned(front: list[tuple[int, PoolFleet]]) -> list[tuple[int, PoolFleet]]:
    """Return at most ``_ROWS`` of a front, evenly spaced, with both ends."""
    step = max((len(front) - 1) / (_ROWS - 1), 1.0)
    return [front[round(k * step)] for k in range(min(len(front), _ROWS))]


def _launch_lines(matched: MatchedPools, tool: str, fleet: PoolFleet) -> tuple[list[Section], list[str]]:
    """Return the launch lines of every role, of the router and of the benchmark, as shell text, and their notes."""
    from dse.designs import replace
    from dse.doors import STUDIES
    from dse.tools import benchmark_lines, launch, router

    assert matched.designs is not None, "fleets have designs"
    designs = matched.designs(fleet)
    roles = ("",) if fleet.match.decode is None else fleet.match.roles
    texts, notes = list[str](), dict[str, None]()
    for role, part, count, design in zip(roles, fleet.match.parts, fleet.workers, designs, strict=True):
        sequences = math.ceil(float(part.labels.get("concurrency", 1.0)) / float(part.labels.get("dp", 1.0)))
        design = replace(design, {"software.engine.most_sequences": float(sequences)})
        stack = str(part.labels.get("software", ""))
        line = launch(design, tool, STUDIES["serving"], matched.workload, stack, role, system=part.accelerator)
        title = f"{role or 'engine'}: {counted(count, 'worker')} of {part.devices:g} {part.accelerator}"
        comments = "".join(f"\n# {text}" for text in line.comments)
        texts.append(f"\n# {title}, the line on each{comments}\n{line.text}")
        notes |= dict.fromkeys(line.notes)
    if len(roles) > 1:
        texts.append(f"\n# router\n{router(tool, *fleet.workers)}")
        if tool == "vllm":
            notes["set VLLM_NIXL_SIDE_CHANNEL_HOST of each worker to the address of its host"] = None
    requests = designs[-1].workload.requests
    assert requests is not None, "a design that serves"
    measures = f"TTFT {seconds(fleet.first_token)}, TPOT {seconds(fleet.token)} at {digits(fleet.rate)} requests/s"
    for name, text in benchmark_lines(requests, fleet.rate).items():
        texts.append(f"\n# measures {measures}: {name}\n{text}")
    return [verbatim(text) for text in texts], [*notes]


def _match_document(pair: Match, matched: MatchedPools) -> dict[str, Any]:
    """Return the document of a matched pair of pools, with its gains over engines that do both."""
    document: dict[str, Any] = {name: _pool_document(part) for name, part in zip(pair.roles, pair.parts, strict=True)}
    gains = {other.prefill.accelerator: pair.gain(other) for other in matched.together}
    keys = ("at_equal_price", "at_equal_power", "at_both")
    over = {name: dict(zip(keys, gain, strict=True)) for name, gain in gains.items()}
    return document | _match_values(pair) | {"requests_per_second_over": over}


def _pool_document(part: PoolCandidate) -> dict[str, Any]:
    """Return the document of a pool: accelerator, labels, requests/s, devices."""
    return {"accelerator": part.accelerator, **part.labels, "requests_per_second": part.rate, "n_devices": part.devices}


def _match_sections(matched: MatchedPools, names: _PoolNames) -> Iterator[Section]:
    """Yield what the best pair gains, the table of matched pools, and those of latencies and gains as details."""
    pairs = [*matched.together, *matched.pools]
    has_prices = any(pair.price > 0.0 for pair in pairs)
    if matched.pools:
        yield Line(_gain_text(matched, has_prices))
    else:
        yield Line("no pair of pools meets the constraints")
    if names.common:
        yield Line(f"all pools: {names.common}")
    rows = [_match_row(number, pair, matched, names) for number, pair in enumerate(pairs, 1)]
    number = Column("pair", "pair")
    columns = [
        Column("prefill", "prefill", left=True, prose=True),
        Column("decode", "decode", left=True, prose=True),
        Column("req/s/dev", "requests_per_second_per_device", digits),
    ]
    price = Column("USD/1k req", "usd_per_request", lambda price: f"{1e3 * price:.3f}")
    power = Column("W per req/s", "watts_per_request_per_second", "{:,.0f}".format)
    yield Line("")
    yield Table("pools", [number, *columns, *([price] if has_prices else [power])], rows)
    latencies = [
        Column("% prefill", "prefill_share", lambda share: f"{100.0 * share:.0f}"),
        Column("TTFT", "time_to_first_token", seconds),
        Column("TPOT", "time_per_output_token", seconds),
        Column("transfer", "transfer_time", seconds),
    ]
    yield Table("latencies", [number, *latencies, power], rows, "latencies and power", "latencies")
    gains = [
        Column(f"x {name}, equal {kind}", f"gain_{name}_at_{kind}", "{:.2f}".format)
        for name in (pair.prefill.accelerator for pair in matched.together)
        for kind in (_KINDS if has_prices else _KINDS[1:2])
    ]
    if gains:
        yield Table("gains", [number, *gains], rows, "requests/s over engines that do both", "gains")


def _gain_text(matched: MatchedPools, has_prices: bool) -> str:
    """Return a line on the best pair, by price where there are prices, else by power, and what it gains."""
    best = min(matched.pools, key=lambda pair: pair.price if has_prices else pair.watts)
    kind = _KINDS[0 if has_prices else 1]
    gains = [
        f"{best.gain(other)[_KINDS.index(kind)]:.2f} times the requests/s of {other.prefill.accelerator} alone"
        for other in matched.together
    ]
    receiver = best.prefill if best.decode is None else best.decode
    text = f"best at equal {kind}: {best.prefill.accelerator} for prompts ({100.0 * best.share:.0f} % of devices), "
    return f"{text}{receiver.accelerator} for answers{': ' * bool(gains)}{', '.join(gains)}"


def _match_row(number: int, pair: Match, matched: MatchedPools, names: _PoolNames) -> dict[str, Any]:
    """Return the row of a matched pair: pools, share of prefill, latencies, rate, power, price, gains."""
    decode = "the same" if pair.decode is None else names.short(pair.decode)
    row = {"pair": number, "prefill": names.short(pair.prefill), "decode": decode, "prefill_share": pair.share}
    row |= _match_values(pair)
    for other in matched.together:
        key = f"gain_{other.prefill.accelerator}_at"
        row |= {f"{key}_{kind}": gain for kind, gain in zip(_KINDS, pair.gain(other), strict=True)}
    return row


def _match_values(pair: Match) -> dict[str, Any]:
    """Return the values of a matched pair by name."""
    return {
        "prefill_share_of_devices": pair.share,
        "requests_per_second_per_device": pair.rate,
        "time_to_first_token": pair.first_token,
        "transfer_time": pair.transfer,
        "time_per_output_token": pair.token,
        "usd_per_request": pair.price or None,
        "watts_per_request_per_second": pair.watts,
    }


#: Word of a table → metric.
_WORDS = {"TTFT": "time_to_first_token", "TPOT": "time_per_output_token", "requests/s": "requests_per_second"}


def _interval_factors(matched: MatchedPools) -> dict[str, dict[str, float]]:
    """Return accelerator → "TTFT" etc. → upper end of the 80 % interval over the value; empty without a workload."""
    from dse.measured.decisions.plans import plan_intervals

    parts = {part.accelerator: part for pair in (*matched.together, *matched.pools) for part in pair.parts}
    factors_by_accelerator: dict[str, dict[str, float]] = {}
    for name, part in parts.items() if matched.workload else ():
        values = dict.fromkeys(_WORDS.values(), 1.0)
        intervals = plan_intervals(matched.workload, name, str(part.labels.get("software", "")), values, "serving")
        factors_by_accelerator[name] = {
            word: intervals[metric].high for word, metric in _WORDS.items() if metric in intervals
        }
    return factors_by_accelerator


#: Labels of degrees, omitted at 1.
_DEGREES = ("tp", "pp", "dp", "ep")

#: Choice omitted where all pools have its usual value → that value.
_USUAL = {"precision": "bf16", "software": ""}


class _PoolNames(NamedTuple):
    """Names of pools, with the labels that differ between them or are unusual."""

    choices: tuple[str, ...]  #: labels that names contain
    common: str  #: what all names of matched pools have in common

    @classmethod
    def from_pools(cls, matched: MatchedPools) -> _PoolNames:
        """Collect the labels that differ between the shown pools, or are unusual, and what names have in common."""
        pairs = [*matched.together, *matched.pools, *(fleet.match for fleet in matched.fleets)]
        matched_parts = [part for pair in (*matched.together, *matched.pools) for part in pair.parts]
        values = {name: {str(part.labels.get(name, usual)) for part in matched_parts} for name, usual in _USUAL.items()}
        choices = tuple(
            name for name, usual in _USUAL.items() if len(values[name]) > 1 or (usual and values[name] != {usual})
        )
        words = [cls(choices, "").name(part).split(", ") for pair in pairs for part in pair.parts]
        common = [word for word in words[0][:-1] if all(word in other for other in words)] if words else []
        return cls(choices, ", ".join(common))

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

    def short(self, part: PoolCandidate) -> str:
        """Name a pool without what all have in common."""
        common = self.common.split(", ")
        return ", ".join(word for word in self.name(part).split(", ") if word not in common)
