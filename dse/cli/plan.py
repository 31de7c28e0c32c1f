"""``dse plan``: the cheapest devices that serve a rate of requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from dse.cli import show
from dse.cli.options import Json, Workload
from dse.cli.status import NOTHING_FEASIBLE, report_errors
from dse.errors import InputError

if TYPE_CHECKING:
    from dse.sweep.provisioning import Fleet, Plan


@report_errors
def plan(
    workload: Workload,
    rate: Annotated[float, typer.Option(metavar="N", help="Requests/s.")],
    accelerators: Annotated[str, typer.Option("--on", metavar="NAME,…", help="Accelerators, joined by commas.")],
    first_token: Annotated[str, typer.Option("--ttft", metavar="TIME", help="Limit of the mean time to first token.")],
    token: Annotated[str, typer.Option("--tpot", metavar="TIME", help="Limit of the mean time per output token.")],
    prompt_tokens: Annotated[float, typer.Option("--isl", metavar="N", help="Prompt tokens, mean.")] = 1024.0,
    output_tokens: Annotated[float, typer.Option("--osl", metavar="N", help="Output tokens, mean.")] = 1024.0,
    max_devices: Annotated[int, typer.Option(metavar="N", help="Maximum number of devices.")] = 64,
    serving: Annotated[
        bool, typer.Option("--serving", help="Plan a service; dse search plans training.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Plan the cheapest replicas that serve a rate of requests.

    Prints configuration, cost and margins by accelerator, and what would change the cheapest: prices, limits, the rate.
    Costs are those of buying and running the system; latencies are means under a constant number in flight.
    """
    from dse.designs import catalog
    from dse.sweep.provisioning import Demand, provision

    if not serving:
        raise InputError("dse plan", "no --serving", "plans of a service", "add --serving; dse search plans training")
    first, each = catalog.quantity(first_token, "s", "--ttft"), catalog.quantity(token, "s", "--tpot")
    names = tuple(name.strip() for name in accelerators.split(",") if name.strip())
    model = catalog.resolve("workload", workload)
    found = provision(Demand(model, names, rate, prompt_tokens, output_tokens, first, each, max_devices))
    if as_json:
        show.document(_document(found))
    else:
        _print(found)
    return 0 if found.fleets else NOTHING_FEASIBLE


def _document(found: Plan) -> dict[str, Any]:
    fleets = [fleet._asdict() | {"margins": fleet.margins(found.demand)} for fleet in found.fleets]
    return {"demand": found.demand._asdict(), "fleets": fleets, "without": found.without, "changes": found.changes}


def _print(found: Plan) -> None:
    out, demand = show.console(), found.demand
    out.print(Text(
        f"{demand.workload}: {demand.rate:g} requests/s of {demand.prompt_tokens:g} prompt and "
        f"{demand.output_tokens:g} output tokens; TTFT up to {show.seconds(demand.first_token_limit)}, TPOT up to "
        f"{show.seconds(demand.token_limit)} (means); at most {demand.max_devices} devices\n"
    ), soft_wrap=True)  # fmt: skip
    columns = ["accelerator", "USD/h", "devices", "replicas", "mapping", "in flight", "TTFT", "TPOT", "requests/s",
               "margin: TTFT, TPOT, rate"]  # fmt: skip
    if found.fleets:
        rows = [_row(fleet, found) for fleet in found.fleets]
        show.print_table(out, columns, rows, left=["accelerator", "mapping"], prose=[])
    for fleet in found.fleets:
        if fleet.outside:
            words = f"{fleet.accelerator}: outside the calibrated range: {fleet.outside}"
            out.print(Text(words, "yellow"), soft_wrap=True)
    for name, reason in found.without.items():
        out.print(Text(f"{name}: {reason}", "yellow"), soft_wrap=True)
    if found.changes:
        show.heading(out, f"what would change it ({found.fleets[0].accelerator})")
        for text in found.changes:
            out.print(Text(text), soft_wrap=True)


def _row(fleet: Fleet, found: Plan) -> list[str]:
    degrees = " x ".join(f"{name} {value}" for name, value in fleet.degrees.items() if value > 1) or "1 device"
    margins = ", ".join(f"{100.0 * share:.0f} %" for share in fleet.margins(found.demand).values())
    return [
        fleet.accelerator, show.digits(fleet.hourly), str(fleet.replicas * fleet.devices),
        f"{fleet.replicas} of {fleet.devices}", f"{degrees}, {fleet.software}", f"{fleet.concurrency} each",
        show.seconds(fleet.first_token), show.seconds(fleet.token), show.digits(fleet.rate), margins,
    ]  # fmt: skip
