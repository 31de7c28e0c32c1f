"""Options common to several commands."""

from __future__ import annotations

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Force = Annotated[bool, typer.Option("--force", help="Replace a file that dse has not written.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Start over, without results of an earlier run.")]
Figure = Annotated[bool, typer.Option(help="Draw the figures that suit the results.")]
OfferAny = Annotated[
    bool,
    typer.Option("--any-option", help="Offer mapping options that the stack lacks, and stacks of other vendors."),
]

#: Options of the design.
Workload = Annotated[str, typer.Option("--workload", "-w", help="Workload, by its name in the catalogue.")]
System = Annotated[str, typer.Option("--system", "-s", help="System or accelerator, by its name in the catalogue.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Set any value of the design: tp=8, recompute=full, …"),
]
Devices = Annotated[
    int | None, typer.Option("--n-devices", "-n", help="Number of devices [default: tp x cp x pp x dp].")
]
Stack = Annotated[
    str | None, typer.Option("--software", help="Software stack [default: by chip, kind of model and measured rows].")
]
AnyOption = Annotated[
    bool, typer.Option("--any-option", help="Allow mapping options that the stack lacks, and stacks of another vendor.")
]

#: Arguments of a decision between designs.
Designs = Annotated[
    list[str],
    typer.Argument(
        metavar="A B …", help="Designs: SYSTEM, SYSTEM,tp=8,… or tp=8,… each; or a results file, for its best."
    ),
]
CommonWorkload = Annotated[
    str | None, typer.Option("--workload", "-w", help="Workload of designs without their own [default: none].")
]
CommonSystem = Annotated[
    str | None, typer.Option("--system", "-s", help="System of designs without their own [default: none].")
]
Serving = Annotated[bool, typer.Option("--serving", help="Serve requests instead of training.")]
