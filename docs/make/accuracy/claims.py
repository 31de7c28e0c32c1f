"""What is claimed of the model: published rows, and the errors that it must stay within. Tests hold it to them."""

from __future__ import annotations

from typing import NamedTuple

from dse.measured.comparison import Comparison


class Claim(NamedTuple):
    """Some rows of a table, how many there are, and the largest mean and single error, as fractions."""

    source: str  #: prefix
    metric: str
    heading: str  #: over the rows on the page; those without one are tested but not shown
    table: str  #: file in tests/published, without its ending
    rows: int
    mean: float
    worst: float
    experts: bool = False  #: whether its rows are those of mixtures of experts, which nothing is fitted to

    tuned: bool = False  #: whether they are those of fine-tuning, which nothing is fitted to either

    def covers(self, compared: Comparison) -> bool:
        """Whether a comparison is of its source, metric and kind of training."""
        design = compared.prediction.design
        experts = design is not None and design.workload.experts is not None
        tuned = design is not None and (design.workload.adapters or design.workload.packing) is not None
        of_source = compared.metric == self.metric and compared.source.startswith(self.source)
        return of_source and (experts, tuned) == (self.experts, self.tuned)


CLAIMS = (
    # Korthikanti et al., MLSys 2023 (arXiv 2205.05198), table 5: A100, four models, full and selective recompute.
    Claim(
        "Korthikanti2022_table5", "step_time", "Korthikanti et al. 2022, table 5: step time", "korthikanti_2022",
        rows=8, mean=0.025, worst=0.06,
    ),
    # Narayanan et al., SC 2021 (arXiv 2104.04473), table 1: micro-batch and interleaving are not published.
    Claim(
        "Narayanan2021_table1", "step_time", "Narayanan et al. 2021, table 1: step time", "narayanan_2021",
        rows=10, mean=0.04, worst=0.10,
    ),
    # The same, table 2, the rows with pipelines.
    Claim("Narayanan2021_table2", "step_time", "", "narayanan_2021", rows=6, mean=0.05, worst=0.10),
    # Dash et al. 2023 (arXiv 2312.12705) on Frontier: 22B and 175B, to which one number of its chip is fitted, and 1T.
    Claim("Dash2023", "step_time", "", "frontier_2023", rows=3, mean=0.05, worst=0.125),
    # Korthikanti et al., figure 1: computed by the paper's own formulas, so almost exact.
    Claim(
        "Korthikanti2022_fig1", "peak_memory_state", "Korthikanti et al. 2022, figure 1: model state of the layers",
        "korthikanti_2022", rows=8, mean=0.001, worst=0.001,
    ),
    Claim(
        "Korthikanti2022_fig1", "peak_memory_activations",
        "Korthikanti et al. 2022, figure 1: activations of the layers", "korthikanti_2022",
        rows=8, mean=0.001, worst=0.001,
    ),
    # Megatron-LM on 8 B200, allocator peak, published with SimuMax v1.2.
    Claim(
        "SimuMax", "peak_memory", "Megatron-LM on 8 B200 (with SimuMax): peak memory", "megatron_b200",
        rows=8, mean=0.003, worst=0.005,
    ),
    Claim(
        "SimuMax", "step_time", "Megatron-LM on 8 B200 (with SimuMax): step time", "megatron_b200",
        rows=8, mean=0.04, worst=0.08,
    ),
    # The same of DeepSeek-V2 cut to four layers, ep 4 and 8. Nothing is fitted to these rows.
    Claim(
        "SimuMax", "peak_memory", "DeepSeek-V2 on 8 B200 (with SimuMax): peak memory", "megatron_b200",
        rows=4, mean=0.005, worst=0.006, experts=True,
    ),
    Claim(
        "SimuMax", "step_time", "DeepSeek-V2 on 8 B200 (with SimuMax): step time", "megatron_b200",
        rows=4, mean=0.04, worst=0.085, experts=True,
    ),
    # NeMo 24.07 and Megatron-Bridge 26.06, performance summaries: LoRA and SFT, Llama-2 and -3 on H100 and GB200. What
    # recipes adapt and how long their documents are is known by rule (dse/measured/completion.py).
    Claim(
        "NeMo_24.07", "tokens_per_second_per_device", "NeMo 24.07, LoRA and SFT on H100: tokens per second",
        "fine_tuning", rows=9, mean=0.12, worst=0.15, tuned=True,
    ),
    Claim(
        "Megatron-Bridge_26.06", "tokens_per_second_per_device",
        "Megatron-Bridge 26.06, LoRA and SFT on H100 and GB200: tokens per second", "fine_tuning",
        rows=6, mean=0.12, worst=0.15, tuned=True,
    ),
    # torchtitan's own benchmark of December 2024, H100 of 96 GB: memory that the allocator reserved.
    Claim(
        "torchtitan_2024-12", "peak_memory", "torchtitan, FSDP on 8 to 512 H100: peak memory", "torchtitan_2024",
        rows=8, mean=0.10, worst=0.22,
    ),
    Claim(
        "torchtitan_2024-12", "tokens_per_second_per_device", "torchtitan, FSDP on 8 to 512 H100: tokens per second",
        "torchtitan_2024", rows=8, mean=0.08, worst=0.12,
    ),
)  # fmt: skip
