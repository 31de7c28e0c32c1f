"""The part of the page on serving that tells of power by phase, beside what POLCA found of inference clusters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

import dse
from docs.make.markdown import filed

#: Watts that a server of eight devices is rated for (data sheets: DGX A100 6.5 kW, DGX H100 10.2 kW).
RATED = {"a100-sxm-80gb": 6500.0, "h100-sxm-80gb": 10200.0}
_A_SERVER = 8
#: Servers of a row, and standard deviations that its peak lies above its mean.
_SERVERS, _SIGMAS = 40, 3.0

#: Requests in flight, tokens of a prompt and of an answer.
_LOADS = ((16, 1024, 256), (64, 2048, 512))


class Headroom(NamedTuple):
    """Watts of a device by phase, and provisioned over peak power of servers, each by a definition."""

    decode: float
    prefill: float
    average: float
    by_limits: float  #: limits of devices and hosts over all devices computing prompts at once
    by_rating: float  #: what the server is rated for over the same
    of_a_row: float  #: what the server is rated for over the peak of a row whose servers compute prompts apart


def headroom(device: str, workload: str, flight: int, prompt: int, answer: int, software: str = "vllm") -> Headroom:
    """Of a server of eight devices."""
    stated = dict(tp=_A_SERVER, concurrency=flight, prompt_tokens=prompt, output_tokens=answer, pue=1.0)
    found = dse.serve(dse.design(workload, device, software, any_option=True, **stated))
    rated = RATED[device]
    filling = float((found.device_power - found.decode_power) / max(found.prefill_power - found.decode_power, 1e-9))
    spread = float(found.prefill_power - found.decode_power) * np.sqrt(max(filling * (1.0 - filling), 0.0))
    row = float(found.average_power) + _SIGMAS * _A_SERVER * spread / np.sqrt(_SERVERS)
    return Headroom(
        float(found.decode_power),
        float(found.prefill_power),
        float(found.device_power),
        float(found.provisioned_power / found.peak_power),
        float(rated / found.peak_power),
        float(rated / row),
    )


TEXT = (
    "POLCA (Patel et al., ASPLOS 2024) adds 30 % more servers under the provisioned power: provisioned over peak is 1.30 "
    "or more, where a server is provisioned by its rating. *Limits over peak*: `provisioned_power` over `peak_power`. "
    "*Rating over peak*: the rating of the server (DGX A100 6.5 kW, DGX H100 10.2 kW) over the same. *Rating over a "
    f"row*: over the mean and three standard deviations of {_SERVERS} servers."
)


def _rows() -> Iterator[list[str]]:
    for device in RATED:
        for load in _LOADS:
            one = headroom(device, "llama-2-70b", *load)
            watts = [f"{value:.0f} W" for value in one[:3]]
            yield [device, *map(str, load), *watts, *(f"{ratio:.2f}" for ratio in one[3:])]


def section() -> list[str]:
    """The section."""
    header = (
        "device",
        "in flight",
        "prompt",
        "answer",
        "decode",
        "with prompts",
        "average",
        "limits over peak",
        "rating over peak",
        "rating over a row",
    )
    return ["## Power by phase", f"{TEXT} By load: {filed('serving_power', header, _rows())}"]
