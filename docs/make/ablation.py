"""What single options do: one reference design each, the published claim beside our own number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import dse
from docs.make.markdown import filed
from dse.types import Metrics

#: Metrics of what a device keeps between steps.
STATE = tuple(f"peak_memory_{part}" for part in ("weights", "gradients", "optimizer", "embedding_and_head"))


class Ablation(NamedTuple):
    """An option switched on in a reference design."""

    option: str
    design: tuple[str, str, str]  #: workload, system, software
    settings: Mapping[str, Any]  #: of the design without it
    change: Mapping[str, Any]  #: what switches it on
    published: str
    source: str
    low: float  #: bounds of what the publication says of ``ratio``
    high: float
    metrics: tuple[str, ...] = ("step_time",)  #: their sum
    remark: str = ""

    @property
    def label(self) -> str:
        """Workload, chips, and what differs from the system as it is."""
        workload, system, _ = self.design
        return f"{workload}, {self.settings['n_devices']} devices of {system}"

    def both(self) -> tuple[Metrics, Metrics]:
        """Metrics of the design without the option, and with it."""
        both = (self.settings, {**self.settings, **self.change})
        made = (dse.design(*self.design, any_option=True, **settings) for settings in both)
        without, having = (dse.evaluate(design) for design in made)
        return without, having

    def ratio(self) -> float:
        """The metric without the option over that with it: above 1 it gains."""
        without, having = (sum(float(getattr(metrics, name)) for name in self.metrics) for metrics in self.both())
        return without / having


_NARAYANAN = dict(n_devices=96, tp=8, pp=12, micro_batch=1, recompute="full")
_KORTHIKANTI = dict(recompute="full", sequence_parallel=0)
_SELECTIVE = dict(recompute="selective", sequence_parallel=1)

#: 24 nodes of 16 V100, of whose eight 100 Gb/s ports one is used (Wang et al. 2023, section 5.1).
_ONE_PORT = {
    "n_devices": 384,
    "global_batch": 384,
    "micro_batch": 1,
    "recompute": "full",
    "zero_stage": 3,
    "precision": "fp16",
    "seq_len": 2048,
    "overlap_dp": 1,
    "scale_up.domain": 16,
    "scale_out.bandwidth": 100e9 / 8 / 16,
}
_ZERO_PLUS_PLUS = dict(weights_over=16, secondary=1, gathered_bytes=1.0, scattered_bytes=0.5)
#: The same on nodes of eight, and what a partition without it has in its place.
ON_EIGHT = {**_ZERO_PLUS_PLUS, "weights_over": 8}
_NEITHER = dict(secondary=0, gathered_bytes=2.0, scattered_bytes=2.0)

_STATE_OF_64 = dict(n_devices=64, gradient_bytes=2.0, global_batch=64, micro_batch=1, zero_stage=0)
_EIGHT_STAGES = dict(n_devices=8, pp=8, micro_batch=1, global_batch=24, n_layers=46, schedule="1f1b")
_GPT_3 = dict(n_devices=96, tp=8, pp=12, micro_batch=1, global_batch=64, precision="fp16", recompute="full")
_ON_QKV = dict(rank=4.0, projection=0, feed_forward=0)

#: DeepSeek-V3 as it was trained, but for the schedule (DeepSeek-AI 2024, section 3).
_DEEPSEEK = dict(
    n_devices=2048,
    pp=16,
    ep=64,
    micro_batch=1,
    precision="fp8-block",
    dispatch_precision="fp8-block",
    recompute="norms",
    all_to_all="by-node",
    zero_stage=1,
    overlap_dp=1,
    n_predict=1,
    global_batch=15360,
)


def _korthikanti(workload: str, published: str, gain: float, **settings: Any) -> Ablation:
    """Throughput over full recompute alone: 29.0 to 32.1 % (their table 5)."""
    return Ablation(
        "sequence parallelism and selective recompute for full",
        (workload, "selene", "megatron-2022"),
        {**_KORTHIKANTI, "micro_batch": 1, **settings},
        _SELECTIVE,
        published,
        "Korthikanti et al. 2022, table 5",
        gain - 0.03,
        gain + 0.03,
    )


ABLATIONS = (
    Ablation(
        "interleaved schedule, two chunks a stage", ("gpt-3-175b", "selene", "megatron-2021"),
        {**_NARAYANAN, "global_batch": 60}, {"virtual_stages": 2}, "10 % or more, less as the batch grows",
        "Narayanan et al. 2021, section 5.3.2", 1.05, 1.3,
    ),
    Ablation(
        "scatter/gather of stage outputs", ("gpt-3-175b", "selene", "megatron-2021"),
        {**_NARAYANAN, "global_batch": 12, "virtual_stages": 2, "scatter_gather": 0.0}, {"scatter_gather": 1.0},
        "up to 11 %", "Narayanan et al. 2021, section 5.7", 1.0, 1.12,
    ),
    _korthikanti("megatron-22b", "29.0 %", 1.29, n_devices=8, tp=8, micro_batch=4, global_batch=4),
    _korthikanti("gpt-3-175b", "31.8 %", 1.318, n_devices=64, tp=8, pp=8, virtual_stages=3, global_batch=64),
    _korthikanti("mt-nlg-530b", "29.7 %", 1.297, n_devices=280, tp=8, pp=35, virtual_stages=3, global_batch=280),
    _korthikanti("megatron-1t", "32.1 %", 1.321, n_devices=512, tp=8, pp=64, global_batch=512),
    Ablation(
        "ZeRO 1 for none: bytes of the state", ("megatron-7-5b", "selene", "fsdp"),
        _STATE_OF_64, {"zero_stage": 1},
        "120 to 31.4 GB: 3.8", "Rajbhandari et al. 2020, figure 1", 3.6, 4.0, STATE,
    ),
    Ablation(
        "ZeRO 3 for none: bytes of the state", ("megatron-7-5b", "selene", "fsdp"),
        _STATE_OF_64, {"zero_stage": 3},
        "120 to 1.9 GB: 64", "Rajbhandari et al. 2020, figure 1", 63.0, 65.0, STATE,
    ),
    Ablation(
        "ZeRO++ behind one port of 100 Gb/s a node", ("megatron-18-4b", "v100-sxm-32gb", "fsdp"),
        _ONE_PORT, _ZERO_PLUS_PLUS, "up to 2.2", "Wang et al. 2023, section 5.2", 1.5, 2.4,
        remark="casts take the time of their bytes; messages alone give 4",
    ),
    Ablation(
        "weights over a module's two GCDs, gradients over a node, for ZeRO++",
        ("gpt-3-20b", "frontier", "deepspeed-zero-2021"),
        dict(
            n_devices=384, micro_batch=1, global_batch=384 * 16, recompute="full", zero_stage=3, seq_len=2048,
            overlap_dp=1, matrix_slowdown=1.0, **ON_EIGHT,
        ),
        {**_NEITHER, "weights_over": 2, "gradients_over": 8}, "1.71 of 20B",
        "Xu et al. 2025 (low-bandwidth partitioning)", 1.28, 2.14,
        remark="batch and micro-batch are ours; the stack is DeepSpeed's of 2021, whose gathers have the rate of one "
        "link, with the products of the chip's own stack",
    ),
    Ablation(
        "zero bubble for 1F1B: ZB-H1", ("gpt-3-13b", "selene", "megatron-core-te"),
        _EIGHT_STAGES, {"schedule": "zb-h1"},
        "up to 23 % at the same memory", "Qi et al. 2024, abstract", 1.0, 1.25,
    ),
    Ablation(
        "zero bubble for 1F1B: ZB-V", ("gpt-3-13b", "selene", "megatron-core-te"),
        _EIGHT_STAGES,
        {"schedule": "zb-v", "virtual_stages": 2}, "up to 23 % at the same memory", "Qi et al. 2024, abstract",
        1.0, 1.25,
    ),
    Ablation(
        "DualPipe for 1F1B", ("deepseek-v3", "h800-cluster", "deepseek-dualpipe"), {**_DEEPSEEK, "schedule": "1f1b"},
        {"schedule": "dualpipe"}, "messages between experts nearly hidden, no figure",
        "DeepSeek-AI 2024, section 3.2.1", 1.0, 2.0,
        remark="takes 82 of 78 GiB here: 16-bit moments of Adam are not modelled",
    ),
    Ablation(
        "a token sent once to a node, not once an expert", ("deepseek-v3", "h800-cluster", "deepseek-dualpipe"),
        {**_DEEPSEEK, "all_to_all": "pairwise"}, {"all_to_all": "by-node"}, "no figure",
        "DeepSeek-AI 2024, section 3.2.2", 1.0, 2.0, remark="nothing hidden",
    ),
    Ablation(
        "heads for sequence, not a ring of keys and values", ("llama-3-8b", "eos", "megatron-core-te"),
        dict(n_devices=8, cp=8, micro_batch=1, global_batch=8, seq_len=131072, recompute="full"),
        {"cp_comm_type": "a2a"}, "within 0.5 % inside a node", "runs of Megatron-Bridge", 0.99, 1.01,
        remark="kernels of a ring are shorter (flash_sequence), 6 %, and their outputs summed, 2 %",
    ),
    Ablation(
        "low-rank adapters, rank 4 on queries, keys and values", ("gpt-3-175b", "v100-sxm-32gb", "fsdp"),
        _GPT_3,
        _ON_QKV, "25 % more tokens a second", "Hu et al. 2021, section 4.2",
        1.15, 1.35,
    ),
    Ablation(
        "the same: memory", ("gpt-3-175b", "v100-sxm-32gb", "fsdp"),
        _GPT_3,
        _ON_QKV, "1.2 TB to 350 GB: 3.4", "Hu et al. 2021, section 4.2",
        2.5, 5.0, ("peak_memory",),
    ),
    Ablation(
        "a tenth of the optimiser updated on the host, not all of it", ("llama-13b", "h100-sxm-80gb", "fsdp"),
        dict(
            n_devices=4, global_batch=4, micro_batch=1, seq_len=2048, zero_stage=3, recompute="full",
            offload_optimizer=1.0, host_update=1.0,
        ),
        {"host_update": 0.1}, "up to 2.5", "Maurya et al. 2024, abstract", 1.3, 2.8,
    ),
)  # fmt: skip


def is_published(ablation: Ablation, ratio: float) -> bool:
    """Whether our ratio is what the publication says."""
    return ablation.low <= ratio <= ablation.high


_ABOUT = (
    "One design without and with an option: how many times less time or memory it takes with it, against what a "
    "publication says. *Agrees*: a stated gain within three points, “up to” as at most an eighth more."
)


def section() -> list[str]:
    """Return the section of the page of studies."""
    lines = list(_lines())
    agreeing = sum(line[4] == "yes" for line in lines)
    header = ["option", "design", "published", "ours", "agrees", "remark", "source"]
    count = f"{agreeing} of {len(lines)} agree: {filed('studies_options', header, lines)}"
    return ["## What single options do", f"{_ABOUT} {count}"]


def _lines() -> Iterator[list[str]]:
    for one in ABLATIONS:
        ratio = one.ratio()
        agrees = "yes" if is_published(one, ratio) else "no"
        yield [one.option, one.label, one.published, f"{ratio:.2f}", agrees, one.remark, one.source]
