"""What a step of post-training is asked to do, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dse.designs import catalog
from dse.designs.calibrated import ENGINES
from dse.errors import InputError, unknown_name
from dse.io import counted
from dse.lab.rl.step import GRPO, PPO
from dse.spec.document import option_text

#: Modes and algorithms, in the order of tables.
MODES, ALGORITHMS = ("colocated", "split", "async"), (GRPO, PPO)

_MAX_VALUE = 1e9  #: limit of each number


class RlDemand(NamedTuple):
    """A step of post-training: model, machine, prompts, answers and algorithm."""

    workload: str
    system: str
    devices: int
    prompts: int
    samples: int  #: answers per prompt
    prompt_tokens: float = 1024.0
    output_tokens: float = 1024.0  #: mean of answers, after the cut
    length_spread: float = 0.5  #: relative standard deviation of answers, before the cut
    longest: float = 0.0  #: most tokens of an answer; 0: four times the mean
    staleness: int = 1  #: steps by which weights of rollouts may be old, async
    algorithm: str = GRPO
    reference: bool = True  #: whether log-probabilities of a reference are computed
    reward_time: float = 0.0  #: s, after the rollout
    train_batch: int = 0  #: answers per update; 0: all of a step
    modes: tuple[str, ...] = MODES
    trainers: int = 0  #: devices of the trainer, split; 0: any
    training: Mapping[str, Any] = {}  #: fixed values of the trainer's mapping
    rollout: Mapping[str, Any] = {}  #: of the engine's

    @property
    def answers(self) -> int:
        """Count of answers of a step."""
        return self.prompts * self.samples

    @property
    def most_tokens(self) -> float:
        """Most tokens of an answer."""
        return self.longest or 4.0 * self.output_tokens

    @property
    def tokens(self) -> float:
        """Tokens that a step trains on."""
        return self.answers * (self.prompt_tokens + self.output_tokens)


_OPTIONS = {
    "devices": "--n-devices",
    "prompts": "--prompts",
    "samples": "--samples",
    "prompt_tokens": "--isl",
    "output_tokens": "--osl",
    "most_tokens": "--max-osl",
    "length_spread": "--length-spread",
}


def check_demand(demand: RlDemand) -> None:
    """Raise InputError for numbers out of their range, unknown choices, and stacks of the other kind."""
    for name, option in _OPTIONS.items():
        value = getattr(demand, name)
        minimum = 0.0 if name == "length_spread" else 1.0
        if not minimum <= value < _MAX_VALUE:
            raise InputError(option, f"{value:g}", f"{minimum:g} or more, less than {_MAX_VALUE:g}", "check the number")
    if demand.most_tokens <= demand.output_tokens:
        raise InputError(
            "--max-osl",
            f"{demand.most_tokens:g}",
            f"more than the mean, {demand.output_tokens:g}",
            f"write {4 * demand.output_tokens:g}",
        )
    modes = (("--mode", mode, MODES) for mode in demand.modes)
    for option, value, allowed in (("--algorithm", demand.algorithm, ALGORITHMS), *modes):
        if value not in allowed:
            raise unknown_name(option, value, allowed, "names")
    _check_stack(demand.training, "--train", "--rollout", False)
    _check_stack(demand.rollout, "--rollout", "--train", True)
    trainers, batch, reward = demand.trainers, demand.train_batch, demand.reward_time
    fewer = f"fewer than the {counted(demand.devices, 'device')}"
    divisors, batch_fix = f"divisors of the {counted(demand.answers, 'answer')}", f"write {demand.answers}"
    seconds = f"0 s or more, less than {_MAX_VALUE:g}"
    for is_valid, *message in (
        (demand.modes, "--mode", "none", ", ".join(MODES), "write --mode async"),
        (not trainers or trainers < demand.devices, "--trainers", str(trainers), fewer, "leave it out"),
        (not batch or demand.answers % batch == 0, "--train-batch", str(batch), divisors, batch_fix),
        (0 <= demand.staleness <= 64, "--staleness", str(demand.staleness), "0 to 64 steps", "write 1"),
        (0.0 <= reward < _MAX_VALUE, "--reward", f"{reward:g} s", seconds, "write '20 s'"),
    ):
        if not is_valid:
            raise InputError(*message)


def _check_stack(fixed: Mapping[str, Any], option: str, other: str, serves: bool) -> None:
    """Raise InputError for a stack that serves as trainer, or one that trains as engine."""
    if "software" not in fixed:
        return
    where = option_text(option, {"software": fixed["software"]})
    slug = catalog.resolve("software", str(fixed["software"]), where)
    if bool(catalog.serving_defaults(slug)) != serves:
        kind, usual = "serving", "stacks of training: megatron-core, megatron-bridge, torchtitan, …"
        if serves:
            kind, usual = "training", f"engines: {', '.join(ENGINES)}"
        raise InputError(where, f"{slug}, of {kind}", usual, f"write {other} software={slug}, or leave it out")
