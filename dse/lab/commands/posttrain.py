"""``dse posttrain``: reinforcement learning of a model, colocated or split between rollout engines and a trainer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from dse.cli import show
from dse.cli.options import Force, Json, System, Workload
from dse.cli.panels import Registration
from dse.cli.settings import settings_of
from dse.cli.status import NOTHING_FEASIBLE, report_errors
from dse.errors import InputError

if TYPE_CHECKING:
    from dse.lab.rl import RlPlan


@report_errors
def posttrain(
    workload: Workload,
    system: System,
    devices: Annotated[int, typer.Option("--n-devices", "-n", min=1, help="Devices of rollout and training.")],
    prompts: Annotated[int, typer.Option(min=1, metavar="N", help="Prompts per step.")] = 512,
    samples: Annotated[int, typer.Option(min=1, metavar="N", help="Answers per prompt.")] = 8,
    prompt_tokens: Annotated[float, typer.Option("--isl", metavar="N", help="Prompt tokens.")] = 1024.0,
    output_tokens: Annotated[float, typer.Option("--osl", metavar="N", help="Output tokens, mean.")] = 1024.0,
    longest: Annotated[
        float, typer.Option("--max-osl", metavar="N", help="Limit of an answer [default: 4 x osl].", show_default=False)
    ] = 0.0,
    spread: Annotated[
        float,
        typer.Option("--length-spread", metavar="CV", help="Relative standard deviation of answers, before the limit."),
    ] = 0.5,
    mode: Annotated[
        str, typer.Option(metavar="NAME,…", help="Modes: colocated, split, async.")
    ] = "colocated,split,async",
    staleness: Annotated[
        int, typer.Option(min=0, max=64, metavar="K", help="Async: steps by which the weights of rollouts may be old.")
    ] = 1,
    algorithm: Annotated[str, typer.Option(help="grpo, or ppo with a critic.")] = "grpo",
    reference: Annotated[bool, typer.Option(help="Log-probabilities of a reference (KL).")] = True,
    reward: Annotated[str, typer.Option(metavar="TIME", help="Reward, after the last answer.")] = "0 s",
    train_batch: Annotated[
        int, typer.Option(metavar="N", min=0, help="Answers per update [default: all].", show_default=False)
    ] = 0,
    trainers: Annotated[
        int, typer.Option(metavar="N", min=0, help="Devices of the trainer, split [default: best].", show_default=False)
    ] = 0,
    training: Annotated[
        list[str] | None, typer.Option("--train", metavar="NAME=VALUE", help="Fix the trainer's mapping: tp=4, …")
    ] = None,
    rollout: Annotated[
        list[str] | None, typer.Option("--rollout", metavar="NAME=VALUE", help="Fix the engine: tp=4, precision=fp8, …")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File of every split, .nc [default: none].")
    ] = None,
    figure: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Figure, .png, .svg or .pdf [default: none].")
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> int:
    """Split devices between rollout engines and a trainer (RL).

    Sweeps the mappings of both on every split, and prints the best step of each mode by part: all devices in turn
    (colocated), two pools in turn (split), two pools at once with weights of a bounded staleness (async).
    """
    from dse.designs import catalog
    from dse.io import check_output, replacing
    from dse.lab.rl import RlDemand, plan_rl

    if output and output.suffix.lower() != ".nc":
        raise InputError(f"output {output}", repr(output.suffix), ".nc", f"name {output.with_suffix('.nc')}")
    if figure:
        from dse.views.plot.style import check_ending

        check_ending(figure)
    for path in filter(None, (output, figure)):
        check_output(path, force, [])
    modes = tuple(name.strip() for name in mode.split(",") if name.strip())
    rl_plan = plan_rl(
        RlDemand(
            workload,
            system,
            devices,
            prompts,
            samples,
            prompt_tokens,
            output_tokens,
            spread,
            longest,
            staleness,
            algorithm,
            reference,
            catalog.quantity(reward, "s", "--reward"),
            train_batch,
            modes,
            trainers,
            _parse_settings(training, "--train", "training"),
            _parse_settings(rollout, "--rollout", "serving"),
        )
    )
    if output and rl_plan.variables:
        with replacing(output, force) as partial:
            rl_plan.splits.to_netcdf(partial, engine="netcdf4")
    if figure and rl_plan.variables:
        from dse.views import plot

        plot.save(plot.posttraining(rl_plan.best, rl_plan.splits), figure, force)
    if as_json:
        show.document(
            {
                "demand": rl_plan.demand._asdict(),
                "modes": rl_plan.rows,
                "without": rl_plan.without,
            }
        )
    else:
        _print(rl_plan)
    return 0 if rl_plan.rows else NOTHING_FEASIBLE


def _parse_settings(settings: list[str] | None, option: str, kind: str) -> dict[str, Any]:
    """Return name → value of a pool's settings ``NAME=VALUE``, integers for whole numbers."""
    from dse.doors import STUDIES

    values = settings_of(settings, STUDIES[kind], option, "state it by --rollout")
    return {
        name: int(value) if isinstance(value, float) and value.is_integer() else value for name, value in values.items()
    }


def _mapping_text(row: dict[str, Any], pool: str) -> str:
    """Format the degrees above 1 of a pool, and the recompute of the trainer, "1 device" for none."""
    degrees = [
        f"{name} {row[key]:g}"
        for name in ("tp", "cp", "pp", "ep", "dp")
        if (value := row.get(key := f"{pool}_{name}", 1)) == value and value > 1
    ]
    if pool == "training" and row.get("training_recompute", "none") != "none":
        degrees.append(f"{row['training_recompute']} recompute")
    return " x ".join(degrees) or "1 device"


def _print(rl_plan: RlPlan) -> None:
    """Print the best plan of each mode, its seconds by part, and why others are not planned."""
    from dse.lab.rl import PARTS

    out, demand = show.console(), rl_plan.demand
    out.print(
        Text(
            f"{demand.workload}, {demand.algorithm}: {show.counted(demand.prompts, 'prompt')} x "
            f"{show.counted(demand.samples, 'answer')}, {demand.prompt_tokens:g} + {demand.output_tokens:g} tokens (up "
            f"to {demand.most_tokens:g}, spread {demand.length_spread:g}) on {demand.devices} {demand.system}\n"
        ),
        soft_wrap=True,
    )
    rows = rl_plan.rows
    if rows:
        columns = ["mode", "rollout engines", "trainer", "step", "tok/s/dev", "dev-h", "USD"]
        show.print_table(
            out,
            columns,
            [
                [
                    _mode_text(row, demand.staleness),
                    f"{row['rollout_replicas']:g} of {row['rollout_devices'] / row['rollout_replicas']:g}: "
                    f"{_mapping_text(row, 'rollout')}",
                    f"{row['training_devices']:g}: {_mapping_text(row, 'training')}",
                    show.seconds(row["step_time"]),
                    show.digits(row["tokens_per_second_per_device"]),
                    show.digits(row["device_hours"]),
                    show.digits(row["cost_per_step"]),
                ]
                for row in rows
            ],
            left=columns[:3],
            keys=1,
        )
        parts = [part for part in PARTS if any(row[f"step_time_{part}"] > 0.0 for row in rows)]
        show.heading(out, "seconds by part")
        columns = ["mode", *(part.replace("_", "-") for part in parts), "idle rollout %", "idle trainer %"]
        show.print_table(
            out,
            columns,
            [
                [
                    _mode_text(row, demand.staleness),
                    *(show.seconds(row[f"step_time_{part}"]) for part in parts),
                    *(f"{100.0 * row[f'{pool}_idle'] / row['step_time']:.0f}" for pool in ("rollout", "training")),
                ]
                for row in rows
            ],
            left=columns[:1],
            keys=1,
        )
        best = min(rows, key=lambda row: row["step_time"])
        out.print(Text(f"\n{_mode_text(best, demand.staleness)} is the fastest: {_bound_text(best)}"), soft_wrap=True)
    for row in rows:
        if row["training_stage_options"]:
            text = f"{_mode_text(row, demand.staleness)}: pp {row['training_pp']:g} by {row['training_stage_options']}"
            out.print(Text(text), soft_wrap=True)
    for name, reason in rl_plan.without.items():
        out.print(Text(f"{name}: {reason}", "yellow"), soft_wrap=True)


def _mode_text(row: dict[str, Any], staleness: int) -> str:
    """Format the mode of a row, with the staleness (steps) where it is "async"."""
    return f"async, staleness {staleness}" if row["mode"] == "async" else str(row["mode"])


def _bound_text(row: dict[str, Any]) -> str:
    """Return a clause on what bounds a step: a pool where it is "async", else the longest part."""
    if row["mode"] == "async":
        idle = {"rollout engines": row["rollout_idle"], "trainer": row["training_idle"]}
        bound, other = sorted(idle, key=lambda name: idle[name])
        bounds, idles = ("bounds", "idle") if bound == "trainer" else ("bound", "idles")
        return f"the {bound} {bounds} it, the {other} {idles} {100.0 * idle[other] / row['step_time']:.0f} % of it"
    from dse.lab.rl import PARTS

    part = max(PARTS, key=lambda name: row[f"step_time_{name}"])
    return f"{part.replace('_', '-')} takes {100.0 * row[f'step_time_{part}'] / row['step_time']:.0f} % of it"


REGISTRATION = Registration("Ask", posttrain)
