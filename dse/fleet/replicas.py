"""Cheapest replicas that serve a rate of requests within latency limits: engines that do prompts and answers.

One sweep lists every mapping of one replica and rate of Poisson arrivals at it. ``R = ceil(rate / r)`` replicas of
``n`` devices serve the rate, where one serves ``r`` requests/s within the limits, for ``R n c`` USD an hour at ``c``
USD per device-hour. Limits are of the mean or of a percentile.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tomlkit

from dse.designs import catalog
from dse.fleet.demand import DEGREES, Demand, Fleet, Workers, outside, precision_of
from dse.fleet.launched import launched
from dse.io.quantities import counted, seconds
from dse.spec import sweep as specs
from dse.sweep import execute
from dse.sweep.grid import compose

#: Replicas that share a rate, up to this multiple of the most devices, and higher rates for the margins.
_REPLICAS = sorted({*range(1, 17), *(round(2.0 ** (k / 4)) for k in range(81))})
_BEYOND, _MORE = 16, (1.1, 1.25, 1.5, 2.0)


def _specification(demand: Demand) -> str:
    """The sweep over the replicas of all accelerators."""
    sizes = [2**k for k in range(demand.max_devices.bit_length())]
    axes = {
        "accelerator": list(demand.accelerators),
        "n_devices": sizes,
        "tp": "divisors",
        "request_rate": [
            *(demand.rate / count for count in _REPLICAS if count <= _BEYOND * demand.max_devices),
            *(demand.rate * more for more in _MORE),
        ],
    }
    if catalog.is_mixture(demand.workload):
        axes["ep"] = "divisors"
    return tomlkit.dumps(
        {
            "workload": {"name": demand.workload},
            "system": {"name": demand.accelerators[0]},
            "serving": demand.lengths,
            "axes": axes,
            "output": {"keep": "all", "money": True, "tails": True},
        }
    )


def swept(demand: Demand) -> dict[str, dict[str, np.ndarray]]:
    """Accelerator → column → values of all replicas [designs]."""
    grid = compose.build(specs.from_text(_specification(demand), "plan"))
    data, _ = execute(grid, output=False)
    starts = launched(data, grid).variable
    possible = data.infeasible_reason.variable.astype(int) & ~int(grid.spec.study.hypothetical) == 0
    data["possible"], data["feasible"] = possible & starts, data.feasible.variable.astype(bool) & starts
    metrics = (
        "feasible",
        "possible",
        "requests_per_second",
        *demand.metrics,
        "cost_per_device_hour",
        "parameters",
        "requests_in_flight",
        "utilisation",
    )
    names = [*metrics, "n_devices", "request_rate", "software", *(name for name in DEGREES if name in data)]
    shape = data.requests_per_second.dims
    found = {}
    for slug in demand.accelerators:
        own = data.sel(accelerator=slug) if "accelerator" in shape else data
        like = own.requests_per_second
        found[slug] = {name: np.ravel(own[name].broadcast_like(like).transpose(*like.dims).values) for name in names}
        found[slug]["precision"] = np.full(like.size, precision_of(grid.base))
    return found


def cheapest(replicas: dict[str, np.ndarray], demand: Demand, accelerator: str) -> Fleet | str:
    """The cheapest fleet of one accelerator, or the reason for none."""
    if not replicas["possible"].any():
        devices = counted(demand.max_devices, "device")
        return f"no mapping of up to {devices} that {replicas['software'][0]} can be started with fits in memory"
    fits = replicas["feasible"].astype(bool)
    if not fits.any():
        return f"replicas need more than {_BEYOND * demand.max_devices:,} devices"
    first, token = (replicas[name] for name in demand.metrics)
    for what, values, limit in (("token", token, demand.token_limit), ("first token", first, demand.first_token_limit)):
        if not (fits & (values <= limit)).any():
            return f"replicas take {seconds(float(values[fits].min()))} of {seconds(limit)} to a {what}"
    fits &= (token <= demand.token_limit) & (first <= demand.first_token_limit)
    if not fits.any():
        return "no replica meets the limits"
    one = {name: values[fits] for name, values in replicas.items()}
    count = np.ceil(demand.rate / one["request_rate"] * (1.0 - 1e-6))
    devices = count * one["n_devices"]
    hourly = devices * one["cost_per_device_hour"]
    if not (devices <= demand.max_devices).any():
        return f"replicas need {counted(devices.min(), 'device')} of {demand.max_devices}"
    best = int(np.lexsort((one["n_devices"], np.where(devices <= demand.max_devices, hourly, np.inf)))[0])
    own = {name: values[best] for name, values in one.items()}
    first_token, each = (float(own[name]) for name in demand.metrics)
    degrees, software = {name: int(own[name]) for name in DEGREES if name in own}, str(own["software"])
    workers = Workers(
        "",
        int(count[best]),
        int(own["n_devices"]),
        degrees,
        float(own["requests_in_flight"]),
        float(own["utilisation"]),
    )
    return Fleet(
        accelerator,
        software,
        (workers,),
        first_token,
        each,
        float(count[best] * _highest(one, own)),
        float(hourly[best]),
        outside(accelerator, software, workers, float(own["parameters"]), demand),
        str(own["precision"]),
    )


def _highest(one: dict[str, np.ndarray], own: dict[str, Any]) -> float:
    """Highest rate of the replicas within the limits that are mapped as this one, requests/s."""
    same = np.full(one["request_rate"].shape, True)
    for name in ("n_devices", "software", *(name for name in DEGREES if name in own)):
        same &= one[name] == own[name]
    return float(one["request_rate"][same].max())
