"""Attention apart on each rank; feed-forwards, shared experts and head in slices over ranks (SGLang's dp attention)."""

import itertools

import pytest

import dse
from dse.lab.simulator.run import simulate
from dse.lab.simulator.summary import statistics
from dse.model import Batch, kv_capacity, stage_of, weight_bytes
from dse.model.serving.stage_pass import stage_pass
from dse.model.serving.steady import prompt_coupling
from dse.model.serving.work import Rank, ranks_of_experts, step_work
from dse.model.work.ledger import sum_over_kernels
from dse.types import Infeasible, Serving
from tests.programs import served

R1 = dict(workload="deepseek-v3", precision="fp8", tp=1, dp=8, etp=8)
ALL = dict(dense_tp=8, shared_tp=8, head_tp=8)
DENSE = dict(workload="llama-3-70b", precision="fp8", tp=1, dp=8)


def design(workload="deepseek-v3", system="h200-sxm", software="sglang", **settings):
    return dse.design(workload, system, software, any_option=True, **settings)


def weights(**settings):
    made = design(**settings)
    stage = stage_of(made)
    return float(weight_bytes(stage.design, stage.layout, made.mapping.serving or Serving()))


def work_of(rows=64.0, **settings):
    """Stage, its work on so many sequences a rank, and the messages by name."""
    made = design(**settings)
    stage, batch = stage_of(made), Batch(rows, 1000.0, 0.0, 0.0)
    work = step_work(stage, ranks_of_experts(made), made.mapping.serving or Serving(), batch)
    return stage, work, {m.name: m for m in (*work.messages, *work.hand_over)}


#: Parameters of DeepSeek-R1: latent attention of a layer, an expert, the feed-forward of a dense layer, embedding.
ATTENTION = 7168 * (1536 + 576) + 1536 * 128 * 192 + 512 * 128 * (128 + 128) + 128 * 128 * 7168
EXPERT, DENSE_LAYER, EMBEDDING = 3 * 7168 * 2048, 3 * 7168 * 18432, 129280 * 7168
ROUTER = 7168 * 256


def test_deepseek_r1_on_eight_h200s_by_hand():
    """61 layers of attention whole; 58 x 257 experts, three dense layers and the head by eight: 95.8 GB in fp8."""
    whole = 61 * ATTENTION + 58 * ROUTER + 2 * EMBEDDING
    sliced = 58 * 257 * EXPERT + 3 * DENSE_LAYER + 2 * EMBEDDING
    assert weights(**R1, **ALL) == pytest.approx(whole + sliced / 8, rel=1e-4)
    assert whole + sliced / 8 == pytest.approx(95.81e9, rel=1e-4)
    assert weights(**R1) - weights(**R1, **ALL) == pytest.approx(
        (58 * EXPERT + 3 * DENSE_LAYER + 2 * EMBEDDING) * 7 / 8, rel=1e-3
    )
    found = served(design(**R1, **ALL, concurrency=256, chunk=1024, memory_share=0.85))
    assert found.feasible == 1.0 and found.peak_memory < 141e9
    # Latent attention has 512 + 64 columns a token and layer in 16 bits, whole on each rank: 1,536 tokens on average.
    rank = rank_of(**R1, **ALL)
    kv = kv_capacity(rank.stage, rank.requests, rank.serving, rank.engine)
    assert float(kv.cache_per_sequence) == pytest.approx(1536 * 61 * 576 * 2, rel=0.02)


def rank_of(**settings):
    made = design(**{"prompt_tokens": 1024, "output_tokens": 1024, "reserved_answer": 0.0} | settings)
    requests, serving, engine = made.workload.requests, made.mapping.serving, made.software.engine
    return Rank(stage_of(made), ranks_of_experts(made), requests, serving, engine)


@pytest.mark.parametrize("plain", [R1, R1 | dict(etp=1, ep=8), DENSE, R1 | dict(tp=2, dp=4, ep=4, etp=2)], ids=str)
def test_sizes_of_one_are_those_of_tp(plain):
    for sizes in (dict(dense_tp=1), dict(dense_tp=1, shared_tp=1, head_tp=1)):
        assert weights(**plain, **sizes) == weights(**plain)
        before, after = (served(design(**plain, **some, concurrency=128)) for some in ({}, sizes))
        for name in ("time_per_output_token", "time_to_first_token", "energy_per_output_token", "peak_memory"):
            assert float(getattr(after, name)) == pytest.approx(float(getattr(before, name)), rel=1e-5), name


def test_all_ranks_together_do_what_they_did_apart():
    """Products of a slice have the rows of all ranks and a share of the columns: FLOPs per device stay."""

    def flops(**settings):
        stage, work, _ = work_of(**settings)
        return sum_over_kernels(
            stage_pass(stage, work, Batch(64.0, 1000.0, 0.0, 0.0)).phase.runs,
            lambda kind, work: work.flops if "matrix" in kind.name else 0.0,
        )

    for plain, sizes in itertools.product((R1, DENSE), (dict(dense_tp=8), dict(dense_tp=2, head_tp=8), ALL)):
        assert float(flops(**plain, **sizes)) == pytest.approx(float(flops(**plain)), rel=1e-4)


def test_tokens_are_gathered_and_sums_scattered_around_what_is_in_slices():
    """Of 64 tokens of 7,168 values each, seven copies in 16 bits, twice in each of three layers of 61."""
    _, _, found = work_of(**R1, dense_tp=8)
    around = found["dense_gather_and_scatter"]
    assert float(around.size) == pytest.approx(7 * 64 * 7168 * 2) and float(around.group.size) == 8.0
    assert float(around.times) == pytest.approx(2 * 3 / 61)
    # Slices of routed experts bring all tokens to all ranks, those of the shared one included.
    _, _, found = work_of(**R1, **ALL)
    assert float(found["shared_gather_and_scatter"].times) == 0.0
    _, _, found = work_of(**R1 | dict(ep=8, etp=1), **ALL)
    assert float(found["shared_gather_and_scatter"].times) == pytest.approx(2 * 58 / 61)
    _, _, found = work_of(**R1 | dict(ep=8, etp=1), all_to_all="gather", **ALL)
    assert float(found["shared_gather_and_scatter"].times) == 0.0
    # The head: rows of 7,168 values, then logits of 129,280 columns.
    head = found["head_gather"]
    assert float(head.size) == pytest.approx(7 * 64 * (7168 + 129280) * 2, rel=1e-5) and float(head.times) == 1.0
    # A dense model exchanges in all of its layers, and in pairs of a tp group each device sends half.
    _, _, found = work_of(**DENSE | dict(tp=2, dp=4), dense_tp=8)
    around = found["dense_gather_and_scatter"]
    assert float(around.size) == pytest.approx(3 * 64 * 8192 * 2 / 2) and float(around.times) == 2.0
    assert float(found["forward_all_reduce"].times) == 1.5  # after attention, and half for the gather in the tp group


@pytest.mark.parametrize("plain", [R1, DENSE], ids=["mixture", "dense"])
def test_weights_fall_and_room_grows_with_the_slices(plain):
    sizes = [dict(dense_tp=n, shared_tp=n, head_tp=n) for n in (1, 2, 4, 8)]
    found = [served(design(**plain, **some, concurrency=64, chunk=1024)) for some in sizes]
    memory, limit = ([float(getattr(one, name)) for one in found] for name in ("peak_memory", "concurrency_limit"))
    assert memory == sorted(memory, reverse=True) and limit == sorted(limit) and memory[0] > memory[-1]


def test_of_a_large_batch_slices_cost_messages_and_of_a_small_one_they_save_reads():
    """A dense model of 70 GB in fp8: a rank reads all of it for each step, or an eighth of its feed-forward."""

    def token(concurrency, **settings):
        return float(served(design(**DENSE, **settings, concurrency=concurrency)).time_per_output_token)

    assert token(8, dense_tp=8) < 0.6 * token(8)
    parts = served(design(**DENSE, dense_tp=8, concurrency=8)), served(design(**DENSE, concurrency=8))
    assert parts[0].time_per_output_token_communication > parts[1].time_per_output_token_communication == 0.0


def test_slices_of_all_experts_need_tokens_whatever_the_exchange():
    """No rank has whole experts to send rows to: an engine's kind of exchange changes nothing."""
    found = [served(design(**R1, **ALL, concurrency=256, all_to_all=kind)) for kind in ("pairwise", "gather")]
    for name in ("time_per_output_token", "time_to_first_token", "energy_per_output_token"):
        assert float(getattr(found[0], name)) == pytest.approx(float(getattr(found[1], name)), rel=1e-6), name


def test_slices_that_do_not_divide_are_infeasible():
    def reasons(**settings):
        return Infeasible(int(served(design(**settings, concurrency=64)).infeasible_reason))

    assert not reasons(**R1, **ALL)
    for sizes in (dict(dense_tp=16), dict(dense_tp=3), dict(shared_tp=5), dict(head_tp=16)):
        assert reasons(**R1, **sizes) == Infeasible.width_not_divisible, sizes
    assert reasons(**R1 | dict(tp=2, dp=4), dense_tp=2) == Infeasible(0)  # that of tp


def test_copies_that_do_not_fit_are_told_how_they_would():
    """A line of SGLang leaves the degrees of experts to it; a design that has none holds all experts on each rank."""
    settings = dict(n_devices=8, tp=1, dp=8, precision="fp8")
    report = dse.evaluate("deepseek-v3", "h200-sxm", software="sglang", serving=True, **settings).to_dict()
    assert not report["feasible"] and "etp=8" in [change["change"] for change in report["changes"]]


@pytest.mark.parametrize(
    "line",
    [
        "python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-R1 --tp 8 --dp 8 --enable-dp-attention",
        "vllm serve deepseek-ai/DeepSeek-R1 --data-parallel-size 8",
        "trtllm-serve deepseek-ai/DeepSeek-R1 --tp_size 8 --enable_attention_dp true --moe_tensor_parallel_size 8",
    ],
)
def test_lines_with_attention_apart_and_slices_of_experts_fit_on_eight_h200s(tmp_path, line):
    """As they do: 671 GB of weights in fp8, of 8 x 141 GB; with scales of blocks 98 to 104 GB a device."""
    path = tmp_path / "run.sh"
    path.write_text(line + "\n")
    report = dse.read(str(path), system="h200-sxm").to_dict()
    assert report["feasible"] and 97e9 < report["metrics"]["peak_memory_weights"] < 105e9


def test_what_ranks_have_in_common_does_not_wait_for_the_slowest():
    """Of FLOPs of prompts: routed experts, and what is in slices; of a dense model its feed-forwards."""

    def share(**settings):
        return float(prompt_coupling(rank_of(**settings, prompt_balance=0))[1])

    assert share(**R1) < share(**R1, dense_tp=8) < share(**R1, **ALL) < 1.0
    assert prompt_coupling(rank_of(**DENSE, prompt_balance=0)) == (None, 0.0)
    ranks, part = prompt_coupling(rank_of(**DENSE, dense_tp=8, prompt_balance=0))
    assert float(ranks) == 8.0 and 0.6 < float(part) < 0.85  # 3 x 28,672 of 3 x 28,672 + 18,432 columns, and attention


def test_the_simulator_takes_the_same_costs():
    """Request by request, of answers and prompts of one length: the closed form within 10 %, and what slices gain."""
    gains = []
    for sizes in ({}, ALL):
        settings = dict(concurrency=64, prompt_tokens=512, output_tokens=128, chunk=1024, memory_share=0.85)
        made = design(**R1, **sizes, **settings)
        closed, simulated = served(made), statistics(simulate(made, count=1500))
        gains.append((float(closed.time_per_output_token), simulated["mean_time_per_output_token"]))
        assert gains[-1][0] == pytest.approx(gains[-1][1], rel=0.1)
    before, after = gains
    assert before[0] / after[0] == pytest.approx(before[1] / after[1], rel=0.02) and after[0] < before[0]
