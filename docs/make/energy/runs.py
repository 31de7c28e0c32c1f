"""Whole training runs whose time and energy are published or bounded, beside what the model says of them."""

from __future__ import annotations

from typing import Any, NamedTuple

from docs.make.markdown import table
from dse.designs import design
from dse.doors.evaluation import evaluate
from dse.types import Metrics

DAY, MWH = 86400.0, 3.6e9


class Run(NamedTuple):
    """A run: how it is modelled, and what is known of it."""

    name: str
    workload: str
    system: str
    settings: dict[str, Any]
    days: float
    energy: float  #: MWh; at most so many where it is a bound
    bound: bool  #: whether the energy is a bound
    source: str


RUNS = (
    Run(
        "GPT-3 175B on 10,000 V100",
        "gpt-3-175b",
        "v100-sxm-32gb",
        dict(
            n_devices=10240,
            tp=8,
            pp=16,
            micro_batch=1,
            recompute="full",
            precision="fp16",
            global_batch=1600,
            run_tokens=300e9,
            pue=1.1,
        ),
        14.8,
        1287.0,
        False,
        "Patterson et al. 2021 (arXiv 2104.10350), table 4, from memory: 24.6 TFLOP/s and 330 W a V100, PUE 1.10; the "
        "mapping is not published, the one here is that of Megatron-LM of the time, on 10,240",
    ),
    Run(
        "Megatron-1T on 3,072 A100",
        "megatron-1t",
        "selene",
        dict(
            n_devices=3072,
            tp=8,
            pp=64,
            micro_batch=1,
            virtual_stages=2,
            recompute="full",
            precision="fp16",
            global_batch=3072,
            software="megatron-2021",
            run_tokens=450e9,
            pue=1.1,
        ),
        84.0,
        384 * 6.5e-3 * 84 * 24 * 1.1,
        True,
        "days: Narayanan et al. 2021, section 5.1, an estimate of the authors from 163 TFLOP/s a GPU; energy: 384 DGX "
        "A100 at their nameplate of 6.5 kW all the time, PUE 1.1, which no training reaches",
    ),
)


def modelled(run: Run) -> Metrics:
    """What the model says of a run."""
    settings = dict(run.settings)
    software, n_devices = settings.pop("software", None), settings.pop("n_devices")
    return evaluate(design(run.workload, run.system, software, n_devices, **settings))


def _plug(run: Run, found: Metrics) -> float:
    """Mean power of a device with its share of the host in W, before the facility."""
    return float(found.average_power) / run.settings["pue"] / run.settings["n_devices"]


def section() -> tuple[str, str]:
    """Title and text of a part of a page: time, energy, power of the runs, and where the energy goes."""
    rows, shares = [], []
    for run in RUNS:
        found = modelled(run)
        days, energy = float(found.run_time) / DAY, float(found.run_energy) / MWH
        rows.append(
            [
                run.name,
                f"{run.days:g}",
                f"{days:.1f}",
                f"{'≤ ' if run.bound else ''}{run.energy:,.0f}",
                f"{energy:,.0f}",
                f"{float(found.device_power):.0f} W",
                f"{_plug(run, found):.0f} W",
                f"{1e-6 * float(found.average_power):.2f} MW",
                f"{1e-6 * float(found.peak_power):.2f} MW",
                f"{1e-6 * float(found.provisioned_power):.2f} MW",
            ]
        )
        parts = ("matrix", "memory", "network", "control", "leakage", "uncore", "host", "facility")
        spent = [float(getattr(found, f"energy_per_step_{part}")) / float(found.energy_per_step) for part in parts]
        shares.append([run.name, *(f"{100 * share:.0f} %" for share in spent)])
    columns = [
        "run",
        "days published",
        "modelled",
        "MWh published",
        "modelled",
        "a device, mean",
        "with host",
        "system, mean",
        "peak",
        "provisioned",
    ]
    known = "\n".join(f"- {run.name}: {run.source}." for run in RUNS)
    text = (
        "No parameter was fitted to a run, but the mapping and the stack of the first and the hosts of both are "
        "choices: hosts draw 45 % of the devices' limit, an estimate; with 30 % or 60 % the energy of GPT-3 is 12 % "
        "lower or higher. *With host* is what the system draws a device before the facility: 330 W are published for "
        "GPT-3. *Peak* is while every device runs layers, *provisioned* every device at its limit: what lies between "
        "is what over-subscription may use.\n\n"
        f"{table(columns, rows)}\n\n{known}\n\n"
        f"{table(['share of the energy', *parts], shares)}\n"
    )
    return "Training runs", text
