"""``dse.posttrain``: reinforcement learning of a model, colocated or split between rollout engines and a trainer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dse.capabilities.results import check_files
from dse.io import counted, digits, seconds
from dse.reports import Column, Line, Option, Report, Table, capability, caution
from dse.reports.options import Force, Settings, System, Workload
from dse.reports.report import NOTHING_FEASIBLE
from dse.reports.tables import Section

if TYPE_CHECKING:
    from dse.lab.rl import RlPlan


#: Values of a pool by name.
_Values = Mapping[str, Any] | Sequence[str] | None


def _pool(flag: str) -> Option:
    """Return the option of the settings of a pool."""
    return Option(flag=flag, metavar="NAME=VALUE", terminal=list[str])


@capability("Ask", details=("parts",))
def posttrain(
    workload: Workload,
    system: System,
    devices: Annotated[int, Option(flag="--n-devices", short="-n", low=1)],
    prompts: Annotated[int, Option(low=1, metavar="N")] = 512,
    samples: Annotated[int, Option(low=1, metavar="N")] = 8,
    prompt_tokens: Annotated[float, Option(flag="--isl", metavar="N")] = 1024.0,
    output_tokens: Annotated[float, Option(flag="--osl", metavar="N")] = 1024.0,
    longest: Annotated[float, Option(flag="--max-osl", metavar="N")] = 0.0,
    spread: Annotated[float, Option(flag="--length-spread", metavar="CV")] = 0.5,
    mode: Annotated[str | Sequence[str], Option(metavar="NAME,…", terminal=str)] = "colocated,split,async",
    staleness: Annotated[int, Option(low=0, high=64, metavar="K")] = 1,
    algorithm: str = "grpo",
    reference: bool = True,
    reward: Annotated[float | str, Option(metavar="TIME", terminal=str)] = "0 s",
    train_batch: Annotated[int, Option(metavar="N", low=0)] = 0,
    trainers: Annotated[int, Option(metavar="N", low=0)] = 0,
    training: Annotated[_Values, _pool("--train")] = None,
    rollout: Annotated[_Values, _pool("--rollout")] = None,
    output: Annotated[Path | None, Option(short="-o")] = None,
    figure: Annotated[Path | None, Option(metavar="FILE.png")] = None,
    force: Force = False,
) -> Report:
    """Split devices between rollout engines and a trainer (RL).

    Sweeps the mappings of both on every split, and has the best step of each mode by part: all devices in turn
    (colocated), two pools in turn (split), two pools at once with weights of a bounded staleness (async).

    Args:
        workload: Workload, by its name in the catalogue.
        system: System or accelerator, by its name in the catalogue.
        devices: Devices of rollout and training.
        prompts: Prompts per step.
        samples: Answers per prompt.
        prompt_tokens: Prompt tokens.
        output_tokens: Output tokens, mean.
        longest: Limit of an answer, 0 for 4 x osl.
        spread: Relative standard deviation of answers, before the limit.
        mode: Modes: colocated, split, async.
        staleness: Async: steps by which the weights of rollouts may be old.
        algorithm: grpo, or ppo with a critic.
        reference: Log-probabilities of a reference (KL).
        reward: Reward, after the last answer.
        train_batch: Answers per update, 0 for all.
        trainers: Devices of the trainer, split; 0 for the best.
        training: Fix the trainer's mapping: tp=4, …
        rollout: Fix the engine: tp=4, precision=fp8, …
        output: File of every split, .nc [default: none].
        figure: Figure, .png, .svg or .pdf [default: none].
        force: Replace a file that dse has not written.
    """
    from dse.designs import catalog
    from dse.io import replacing
    from dse.lab.rl import RlDemand, plan_rl

    files, figures = check_files(output, ".nc", figure, force)
    names = mode.split(",") if isinstance(mode, str) else mode
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
            catalog.quantity(reward, "s", "--reward") if isinstance(reward, str) else reward,
            train_batch,
            tuple(name.strip() for name in names if name.strip()),
            trainers,
            _parse_settings(training, "--train", "training"),
            _parse_settings(rollout, "--rollout", "serving"),
        )
    )
    document = {"demand": rl_plan.demand, "modes": rl_plan.rows, "without": rl_plan.without}
    sections = [*_sections(rl_plan)]
    if not rl_plan.rows:
        return Report(document, sections, status=NOTHING_FEASIBLE, load=lambda: rl_plan.splits)
    for path in files:
        with replacing(path, force) as partial:
            rl_plan.splits.to_netcdf(partial, engine="netcdf4")
    for path in figures:
        from dse.views import plot

        plot.save(plot.posttraining(rl_plan.best, rl_plan.splits), path, force)
    return Report(document, sections, [], figures, files, load=lambda: rl_plan.splits)


def _parse_settings(settings: Settings, option: str, kind: str) -> dict[str, Any]:
    """Return name → value of a pool's settings, integers for whole numbers."""
    from dse.capabilities.settings import settings_of
    from dse.doors import STUDIES

    values = settings_of(settings, STUDIES[kind], option, "state it by --rollout")
    return {
        name: int(value) if isinstance(value, float) and value.is_integer() else value for name, value in values.items()
    }


def _mapping_text(row: Mapping[str, Any], pool: str) -> str:
    """Format the degrees above 1 of a pool, and the recompute of the trainer, "1 device" for none."""
    degrees = [
        f"{name} {row[key]:g}"
        for name in ("tp", "cp", "pp", "ep", "dp")
        if (value := row.get(key := f"{pool}_{name}", 1)) == value and value > 1
    ]
    if pool == "training" and row.get("training_recompute", "none") != "none":
        degrees.append(f"{row['training_recompute']} recompute")
    return " x ".join(degrees) or "1 device"


def _sections(rl_plan: RlPlan) -> Iterator[Section]:
    """Yield the fastest mode, the table of the best step of each, its seconds by part, and why others have none."""
    from dse.lab.rl import PARTS

    demand = rl_plan.demand
    yield Line(
        f"{demand.workload}, {demand.algorithm}: {counted(demand.prompts, 'prompt')} x "
        f"{counted(demand.samples, 'answer')}, {demand.prompt_tokens:g} + {demand.output_tokens:g} tokens (up "
        f"to {demand.most_tokens:g}, spread {demand.length_spread:g}) on {demand.devices} {demand.system}\n"
    )
    rows = [
        {
            **row,
            "mode": _mode_text(row, demand.staleness),
            "engines": f"{row['rollout_replicas']:g} of {row['rollout_devices'] / row['rollout_replicas']:g}: "
            f"{_mapping_text(row, 'rollout')}",
            "trainer": f"{row['training_devices']:g}: {_mapping_text(row, 'training')}",
            **{f"{pool}_idle_share": row[f"{pool}_idle"] / row["step_time"] for pool in ("rollout", "training")},
        }
        for row in rl_plan.rows
    ]
    if rows:
        best = min(range(len(rows)), key=lambda i: rows[i]["step_time"])
        yield Line(f"{rows[best]['mode']} is the fastest: {_bound_text(rl_plan.rows[best])}")
        yield Line("")
        mode = Column("mode", "mode", left=True)
        columns = [
            Column("rollout engines", "engines", left=True, prose=True),
            Column("trainer", "trainer", left=True, prose=True),
            Column("step", "step_time", seconds),
            Column("tok/s/dev", "tokens_per_second_per_device", digits, spare=True),
            Column("dev-h", "device_hours", digits, spare=True),
            Column("USD", "cost_per_step", digits),
        ]
        yield Table("modes", [mode, *columns], rows)
        parts = [part for part in PARTS if any(row[f"step_time_{part}"] > 0.0 for row in rows)]
        columns = [Column(part.replace("_", "-"), f"step_time_{part}", seconds) for part in parts]
        columns += [
            Column(f"idle {word}", f"{pool}_idle_share", lambda share: f"{100.0 * share:.0f} %")
            for word, pool in (("rollout", "rollout"), ("trainer", "training"))
        ]
        yield Table("parts", [mode, *columns], rows, "seconds by part", "parts")
    for row in rows:
        if row["training_stage_options"]:
            yield Line(f"{row['mode']}: pp {row['training_pp']:g} by {row['training_stage_options']}")
    for name, reason in rl_plan.without.items():
        yield caution(f"{name}: {reason}")


def _mode_text(row: Mapping[str, Any], staleness: int) -> str:
    """Format the mode of a row, with the staleness (steps) where it is "async"."""
    return f"async, staleness {staleness}" if row["mode"] == "async" else str(row["mode"])


def _bound_text(row: Mapping[str, Any]) -> str:
    """Return a clause on what bounds a step: a pool where it is "async", else the longest part."""
    if row["mode"] == "async":
        idle = {"rollout engines": row["rollout_idle"], "trainer": row["training_idle"]}
        bound, other = sorted(idle, key=lambda name: idle[name])
        bounds, idles = ("bounds", "idle") if bound == "trainer" else ("bound", "idles")
        return f"the {bound} {bounds} it, the {other} {idles} {100.0 * idle[other] / row['step_time']:.0f} % of it"
    from dse.lab.rl import PARTS

    part = max(PARTS, key=lambda name: row[f"step_time_{name}"])
    return f"{part.replace('_', '-')} takes {100.0 * row[f'step_time_{part}'] / row['step_time']:.0f} % of it"
