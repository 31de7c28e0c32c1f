"""Post-training by reinforcement learning: the best split of devices between rollout engines and a trainer.

One sweep lists the trainer's mappings on every number of devices, another one the replicas of the rollout engine. Each
pair of both is a step (:mod:`dse.lab.rl.step`): colocated on all devices, or split, with pools in turn or
with weights of a bounded staleness.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tomlkit

from dse.designs import catalog
from dse.errors import InputError
from dse.fleet import only_launched, swept_designs
from dse.io import counted
from dse.lab.rl.demand import RlDemand, check_demand
from dse.lab.rl.step import (
    PPO,
    RlWork,
    algorithm_work,
    answer_lengths,
    forward_time,
    rl_step,
    rollout_time,
    weights_time,
)
from dse.spec import sweep as specs
from dse.spec.document import errors_of_option, option_text
from dse.sweep.grid import compose, vendors
from dse.tools.runs import evaluate_by_mapping, stage_options

if TYPE_CHECKING:
    import xarray as xr

#: Trainer designs of each number of devices that are paired: the fastest of an update; most sizes of a trainer.
_FASTEST_PER_SIZE, _MAX_SIZES = 4, 32

#: A micro-batch is at most so many times what the longest answer needs; most devices of a replica of the engine.
_MAX_BATCH_FACTOR, _MAX_REPLICA = 8, 64

_TRAIN_LABELS = ("tp", "cp", "pp", "dp", "ep", "virtual_stages", "micro_batch", "recompute")
_ROLLOUT_LABELS = ("tp", "ep", "dp")

#: Names and units of the parts of a step.
PARTS = {
    "rollout": "rollout: prefill and decode to the last answer",
    "reward": "reward",
    "log_probs": "log-probabilities, old and of the reference",
    "critic": "critic: values and update",
    "training": "training: forward, backward, optimiser",
    "weights": "weights sent to the rollout engines",
    "switch": "training state moved to the host and back",
}


class PointVariable(NamedTuple):
    """A figure of a step, or a label of its split, of every split."""

    values: np.ndarray  #: [points]
    attrs: dict[str, str]  #: units and long name of a figure, empty for a label


class RlPlan(NamedTuple):
    """Steps of every split, the best step of each mode among them, and why other modes have none."""

    demand: RlDemand
    variables: dict[str, PointVariable]  #: labels, then figures; empty without splits
    best_points: list[int]  #: point of the best step of each mode
    without: dict[str, str]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The best step of each mode: label or figure → plain value."""
        columns = [variable.values[self.best_points].tolist() for variable in self.variables.values()]
        return [dict(zip(self.variables, row, strict=True)) for row in zip(*columns, strict=True)]

    @property
    def splits(self) -> xr.Dataset:
        """Steps of every split as a dataset [point], empty without splits."""
        import xarray as xr

        if not self.variables:
            return xr.Dataset()
        variables = {name: ("point", *variable) for name, variable in self.variables.items()}
        labels = {name: variables.pop(name) for name, variable in self.variables.items() if not variable.attrs}
        title = f"post-training of {self.demand.workload} on {self.demand.devices} {self.demand.system}"
        attributes = {"title": title, "demand": json.dumps(self.demand._asdict(), default=dict)}
        return xr.Dataset(variables, labels, attributes)

    @property
    def best(self) -> xr.Dataset:
        """The best step of each mode as a dataset [point], empty without splits."""
        return self.splits.isel(point=self.best_points) if self.variables else self.splits


class _Pool(NamedTuple):
    """Columns of the designs of a pool [designs]."""

    columns: dict[str, np.ndarray]
    designs: list[Any]


def plan_rl(demand: RlDemand) -> RlPlan:
    """Return the best step of each mode that fits, those of every split, and why other modes have none.

    Args:
        demand: names of the catalogue and numbers.

    Returns:
        Modes that fit, with the reason of the others.

    Raises:
        InputError: for unknown names and numbers out of their range.
    """
    check_demand(demand)
    demand = demand._replace(workload=catalog.resolve("workload", demand.workload, "-w"))
    catalog.entry("system", demand.system, "-s")
    trainer, engine = _trainers(demand), _engines(demand)
    tables, without = list[dict[str, PointVariable]](), dict[str, str]()
    for mode in demand.modes:
        table = _best_pairs(demand, mode, trainer, engine) if trainer.designs and engine.designs else None
        if table is not None:
            tables.append(table)
        else:
            without[mode] = _reason(demand, mode, trainer, engine)
    if not tables:
        return RlPlan(demand, {}, [], without)
    variables = {
        name: variable._replace(values=np.concatenate([table[name].values for table in tables]))
        for name, variable in tables[0].items()
    }
    modes, seconds = variables["mode"].values, variables["step_time"].values
    best_points = [
        int(np.flatnonzero(modes == mode)[np.argmin(seconds[modes == mode])])
        for mode in demand.modes
        if mode not in without
    ]
    return RlPlan(demand, variables, best_points, without)


def _axes(fixed: Mapping[str, Any], axes: dict[str, Any]) -> dict[str, Any]:
    """Return name → list of values of the axes of a sweep, with stated values in place of listed ones."""
    return axes | {name: value if isinstance(value, list) else [value] for name, value in fixed.items()}


def _swept_pool(
    document: dict[str, Any],
    columns: Sequence[str],
    keep: Callable[[dict[str, np.ndarray]], np.ndarray],
    option: str,
    fixed: Mapping[str, Any],
) -> _Pool:
    """Return the feasible designs of a sweep at the indices that ``keep`` returns, with columns that results have."""
    with errors_of_option(option, fixed):
        grid = compose.build(specs.from_text(tomlkit.dumps(document), "posttrain"))
        vendors.check(grid)
    swept = swept_designs(grid, "feasible")
    if grid.spec.study.name == "serving":
        swept = only_launched(swept, option_text(option, fixed))
    values_by_column = swept.pick(columns)
    if not swept.size:
        return _Pool(values_by_column, [])
    rows = keep(values_by_column)
    return _Pool(_at(values_by_column, rows), swept.designs(rows))


def _trainers(demand: RlDemand) -> _Pool:
    """Return mappings of the trainer, the fastest few of each number of devices."""
    mean = demand.prompt_tokens + demand.output_tokens
    batch = demand.train_batch or demand.answers
    longest = (demand.prompt_tokens + demand.most_tokens) / mean
    micro_batches = [1] if "micro_batch" in demand.training else _micro_batches(batch, longest)
    node = max(1, min(8, demand.devices // 4))
    step = node * math.ceil(demand.devices / node / _MAX_SIZES)
    sizes = sorted({*range(step, demand.devices, step), demand.devices})
    sizes = [demand.trainers, demand.devices] if demand.trainers else sizes
    axes: dict[str, Any] = {"n_devices": sizes, "tp": "divisors", "pp": "divisors", "cp": [1, 2, 4, 8]}
    axes |= {"micro_batch": micro_batches, "recompute": ["none", "selective", "full"]}
    if catalog.is_mixture(demand.workload):
        axes["ep"] = "divisors"
    document = {
        "workload": {"name": demand.workload, "seq_len": 128 * math.ceil(mean / 128), "global_batch": batch},
        "system": {"name": demand.system}, "axes": _axes(demand.training, axes),
        "constraints": {"all": ["fits_probability >= 0.9"]}, "output": {"keep": "feasible", "money": True},
    }  # fmt: skip
    memory = (f"peak_memory_{part}" for part in ("weights", "gradients", "optimizer", "embedding_and_head"))
    metrics = "step_time", "tokens_per_second", "cost_per_device_hour", "parameters", "n_devices", "software", *memory
    fastest = functools.partial(_fastest, demand)
    return _swept_pool(document, (*metrics, *_TRAIN_LABELS), fastest, "--train", demand.training)


def _micro_batches(batch: int, longest: float) -> list[int]:
    """Return one or two sizes of a micro-batch that divide a batch and hold the longest answer.

    Args:
        batch: answers per update.
        longest: tokens of the longest answer with its prompt over the mean.

    Raises:
        InputError: where none does.
    """
    smallest = 2 ** math.ceil(math.log2(longest) - 1e-9)
    candidates = {
        next((size for size in range(factor, min(batch, _MAX_BATCH_FACTOR * factor) + 1) if batch % size == 0), 0)
        for factor in (smallest, 2 * smallest)
    }
    if sizes := sorted(candidates - {0}):
        return sizes
    raise InputError(
        "--prompts, --samples, --train-batch",
        f"{counted(batch, 'answer')} per update",
        f"a multiple of {smallest}, which a micro-batch needs for the longest answer",
        f"write {smallest * -(-batch // smallest)}",
    )


def _stage_options(demand: RlDemand, columns: dict[str, np.ndarray]) -> list[str | None]:
    """Return the options, as text, by which each trainer has stages of unequal layers, None where its tool has none."""
    model = catalog.values("workload", demand.workload)
    paths = ("n_layers", "experts.n_predict")
    layers = {f"workload.{name}": float(model[name]) for name in paths if name in model}
    return evaluate_by_mapping(columns, lambda stack, degrees: stage_options(stack, layers | degrees))


def _fastest(demand: RlDemand, columns: dict[str, np.ndarray]) -> np.ndarray:
    """Return the indices of the fastest few designs of each number of devices whose stages their tool supports."""
    has_stages = ["pp" in demand.training or option is not None for option in _stage_options(demand, columns)]
    order = np.lexsort((columns["step_time"], columns["n_devices"]))
    order = order[np.array(has_stages)[order]]
    sizes = columns["n_devices"][order]
    rank = np.arange(order.size) - np.searchsorted(sizes, sizes)
    return order[rank < _FASTEST_PER_SIZE]


def _engines(demand: RlDemand) -> _Pool:
    """Return replicas of the rollout engine that hold a sequence, of dense models with one rank each."""
    mixture, fixed = catalog.is_mixture(demand.workload), dict(demand.rollout)
    max_devices = min(_MAX_REPLICA, demand.devices)
    sizes = [2**k for k in range(max_devices.bit_length())]
    axes: dict[str, Any] = {"n_devices": sizes, "tp": "divisors"} | ({"ep": "divisors"} if mixture else {})
    requests = {"prompt_tokens": float(demand.prompt_tokens), "output_tokens": float(demand.output_tokens),
                "load": "offline", "answer_spread": min(demand.length_spread, 1.0)}  # fmt: skip
    document = {
        "workload": {"name": demand.workload}, "system": {"name": demand.system}, "serving": requests,
        "axes": _axes(fixed, axes), "output": {"keep": "feasible"},
    }  # fmt: skip
    metrics = ("concurrency_limit", "peak_memory", "peak_memory_weights", "n_devices", "software", *_ROLLOUT_LABELS)

    def rows_to_keep(columns: dict[str, np.ndarray]) -> np.ndarray:
        """Return the rows of replicas with one rank, or of a mixture, that hold a sequence."""
        is_single_rank = np.full(columns["n_devices"].shape, mixture) | (columns.get("dp", np.ones(1)) == 1)
        return np.flatnonzero(is_single_rank & (columns["concurrency_limit"] >= 1.0))

    return _swept_pool(document, metrics, rows_to_keep, "--rollout", fixed)


def _best_pairs(demand: RlDemand, mode: str, trainer: _Pool, engine: _Pool) -> dict[str, PointVariable] | None:
    """Return labels and figures of the fastest step of each number of trainer devices, None where none fits."""
    engine_columns, devices, colocated = engine.columns, demand.devices, mode == "colocated"
    rows = np.flatnonzero((trainer.columns["n_devices"] == devices) == colocated)
    if not rows.size:
        return None
    columns, designs = _at(trainer.columns, rows), [trainer.designs[row] for row in rows]
    free_devices = np.full(rows.size, devices) if colocated else devices - columns["n_devices"]
    replica_devices = engine_columns["n_devices"].astype(float)
    replicas = np.minimum(np.floor(free_devices / replica_devices[:, None]), demand.answers)  # [engines, trainers]
    parts: tuple[Any, ...] = np.broadcast_arrays(
        _rollout_times(demand, engine, replicas, max(demand.staleness, 1) if mode == "async" else 1),
        demand.reward_time,
        *_trainer_times(demand, columns, designs),
        *_transfer_times(demand, columns, engine_columns, designs[0].system, colocated),
    )
    step = rl_step(RlWork(*parts), colocated, demand.staleness if mode == "async" else 0)
    seconds = np.where(replicas >= 1.0, np.asarray(step.total, np.float64), np.inf)
    best_engine = seconds.argmin(0)
    seconds = seconds.min(0)
    by_size = (np.flatnonzero(columns["n_devices"] == size) for size in np.unique(columns["n_devices"]))
    order = [same_size[seconds[same_size].argmin()] for same_size in by_size]
    trainer_rows = np.array([index for index in order if np.isfinite(seconds[index])], int)
    engine_rows = best_engine[trainer_rows]
    if not trainer_rows.size:
        return None
    values = {name: np.asarray(value, np.float64)[engine_rows, trainer_rows] for name, value in step._asdict().items()}
    columns, engine_columns = _at(columns, trainer_rows), _at(engine_columns, engine_rows)
    n_replicas = replicas[engine_rows, trainer_rows]
    counts = {"mode": np.full(trainer_rows.size, mode), "training_devices": columns["n_devices"]}
    counts |= {"rollout_devices": n_replicas * replica_devices[engine_rows], "rollout_replicas": n_replicas}
    labels = {f"training_{name}": columns[name] for name in (*_TRAIN_LABELS, "software") if name in columns}
    labels["training_stage_options"] = np.array([option or "" for option in _stage_options(demand, columns)])
    of_engine = (name for name in (*_ROLLOUT_LABELS, "software") if name in engine_columns)
    labels |= {f"rollout_{name}": engine_columns[name] for name in of_engine}
    return _point_variables(demand, values, counts | labels, columns["cost_per_device_hour"])


def _at(columns: dict[str, np.ndarray], rows: np.ndarray) -> dict[str, np.ndarray]:
    """Return the columns of designs at indices."""
    return {name: values[rows] for name, values in columns.items()}


def _rollout_times(demand: RlDemand, engine: _Pool, replicas: np.ndarray, batches: int) -> np.ndarray:
    """Return seconds [engine, trainer] of the rollout of a batch, where ``batches`` of them run through."""
    engine_columns = engine.columns
    ranks = engine_columns["dp"].astype(float) if "dp" in engine_columns else np.ones(len(engine.designs))
    max_sequences = np.maximum(np.floor(engine_columns["concurrency_limit"] / ranks), 1.0)
    total = float(batches * demand.answers)
    replica_counts, inverse = np.unique(replicas, return_inverse=True)
    answers = answer_lengths(float(demand.output_tokens), float(demand.length_spread), float(demand.most_tokens))
    answers_of_rank = total / np.maximum(replica_counts, 1.0) / ranks[:, None]
    prompt, samples = demand.prompt_tokens, float(demand.samples)
    seconds = rollout_time(engine.designs, max_sequences, answers_of_rank, answers, prompt, samples, total)
    return np.take_along_axis(seconds, inverse.reshape(replicas.shape), 1) / batches


def _trainer_times(demand: RlDemand, columns: dict[str, np.ndarray], designs: list[Any]) -> tuple[Any, Any, Any]:
    """Return seconds [trainer] of log-probabilities, of a critic with its state's moves, and of training."""
    steps = demand.tokens / (columns["tokens_per_second"] * columns["step_time"])
    update, forward = steps * columns["step_time"], steps * forward_time(designs)
    log_probs, critic = algorithm_work(demand.algorithm, demand.reference, forward, update)
    swapped = 2.0 * _state_bytes(columns) / float(designs[0].system.host.bandwidth) if demand.algorithm == PPO else 0.0
    return log_probs, critic + swapped, update


def _state_bytes(columns: dict[str, np.ndarray]) -> np.ndarray:
    """Return bytes [trainer] of weights and optimiser state of the most loaded device."""
    return columns["peak_memory_weights"] + columns["peak_memory_optimizer"] + columns["peak_memory_embedding_and_head"]


def _transfer_times(
    demand: RlDemand,
    columns: dict[str, np.ndarray],
    engine_columns: dict[str, np.ndarray],
    system: Any,
    colocated: bool,
) -> tuple[Any, Any]:
    """Return seconds [engine, trainer] of sending weights, and of moving the training state out and in.

    Weights cross the scale-out network, unless all devices, or the ranks that hold a copy of the model, share a domain.
    """
    shard, domain = engine_columns["peak_memory_weights"][:, None], float(system.scale_up.domain)
    copy_is_near = colocated & (columns.get("pp", np.ones(1)) == 1) & (columns.get("tp", np.ones(1)) <= domain)
    is_in_domain = copy_is_near | (demand.devices <= domain)
    bandwidth = np.where(is_in_domain, float(system.scale_up.bandwidth), float(system.scale_out.bandwidth))
    sizes = shard, 2.0 * columns["parameters"], columns["n_devices"], bandwidth
    bytes_and_links: tuple[Any, ...] = np.broadcast_arrays(*sizes)
    state, memory = _state_bytes(columns), float(system.accelerator.memory.capacity)
    memory_needed = state + columns["peak_memory_gradients"] + engine_columns["peak_memory"][:, None]
    switch = np.where((memory_needed > memory) & colocated, 2.0 * state / float(system.host.bandwidth), 0.0)
    return weights_time(*bytes_and_links), switch


def _point_variables(
    demand: RlDemand, step: dict[str, np.ndarray], labels: dict[str, np.ndarray], hourly: np.ndarray
) -> dict[str, PointVariable]:
    """Return labels and figures of the steps of a mode; takes ``total`` out of the seconds ``step``."""
    total = step.pop("total")
    variables = {"step_time": (total, "s", "step time")}
    variables |= {f"step_time_{name}": (step[name], "s", text) for name, text in PARTS.items()}
    variables |= {
        name: (step[name], "s", f"idle time of the {pool}")
        for name, pool in (("rollout_idle", "rollout engines"), ("training_idle", "trainer"))
    }
    hours = demand.devices * total / 3600.0
    variables |= {
        "tokens_per_second_per_device": (demand.tokens / total / demand.devices, "s-1", "trained tokens/s per device"),
        "samples_per_second": (demand.answers / total, "s-1", "answers/s"),
        "device_hours": (hours, "h", "device-hours of a step"),
        "cost_per_step": (hours * hourly, "USD", "cost of a step, of buying and running the devices"),
    }
    return {name: PointVariable(values, {}) for name, values in labels.items()} | {
        name: PointVariable(values, {"units": units, "long_name": text})
        for name, (values, units, text) in variables.items()
    }


def _reason(demand: RlDemand, mode: str, trainer: _Pool, engine: _Pool) -> str:
    """Return why a mode has no step, in words."""
    if not engine.designs:
        replica = f"replica of up to {counted(min(_MAX_REPLICA, demand.devices), 'device')}"
        return f"no {replica}{_fixed_remark('--rollout', demand.rollout)} runs the model and holds an answer"
    if not trainer.designs or mode == "colocated":
        mapping = f"mapping of {counted(demand.devices, 'device')}{_fixed_remark('--train', demand.training)}"
        return f"no {mapping} divides the batch and trains the model within their memory"
    fewest_devices = int(trainer.columns["n_devices"].min()), int(engine.columns["n_devices"].min())
    trainer_text = f"the trainer needs {counted(fewest_devices[0], 'device')}"
    return f"{trainer_text} and a rollout replica {fewest_devices[1]} of {demand.devices}"


def _fixed_remark(option: str, fixed: Mapping[str, Any]) -> str:
    """Return the settings that an option fixes as a remark, "" for none."""
    return f" ({option_text(option, fixed)})" if fixed else ""
