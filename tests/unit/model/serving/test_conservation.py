"""Serving: what is conserved of requests, weights, messages and energy whatever the load and the mapping."""

import itertools
import random

import pytest

import dse
from dse.model import Batch, stage_of
from dse.model.serving.step import layer_message_time
from dse.model.serving.work import dense_layers, ranks_of_experts, step_work
from dse.types import Infeasible, MessageKind
from tests.programs import served


def design(workload="llama-3-70b", system="h100", software="vllm", **settings):
    return dse.design(workload, system, software, any_option=True, **({"tp": 8} | settings))


def found(*names, **settings):
    metrics = served(design(**settings))
    return [float(getattr(metrics, name)) for name in names]


@pytest.mark.parametrize("capacity", ["120 GB", "140 GB", "160 GB", "190 GB", "220 GB"])
def test_littles_law_where_requests_wait_for_memory_and_for_prompts(capacity):
    """Who waits for a place does not wait for prompts of those that have one: the times add up."""
    rate, latency = found(
        "requests_per_second",
        "request_latency",
        concurrency=512,
        prompt_tokens=8192,
        output_tokens=256,
        **{"memory.capacity": capacity},
    )
    assert rate * latency == pytest.approx(512.0, rel=0.01)


def test_fewer_requests_than_ranks_leave_ranks_idle():
    """As many requests to 64 times the devices: nothing gets faster, the devices draw what they draw at rest."""
    one, many = (
        found(
            "output_tokens_per_second",
            "device_power",
            "energy_per_output_token_decode",
            tp=1,
            concurrency=1,
            workload="llama-3-8b",
            n_devices=n,
        )
        for n in (1, 64)
    )
    assert many[0] == pytest.approx(one[0], rel=1e-5) and many[2] == pytest.approx(one[2], rel=1e-5)
    assert many[1] < 0.4 * one[1]


@pytest.mark.parametrize("count", [63, 64, 65, 100, 128, 129])
def test_waves_answer_all_in_the_time_of_all_waves(count):
    waves = -(-count // 64)
    settings = dict(load="waves", most_sequences=64, prompt_tokens=512, output_tokens=128, request_time=0.0)
    (rate,) = found("requests_per_second", concurrency=count, **settings)
    (alone,) = found("requests_per_second", concurrency=count / waves, **settings)
    assert rate == pytest.approx(alone, rel=1e-5)  # of one wave after the other, all alike


@pytest.mark.parametrize("pp", [2, 4, 8])
def test_a_sequence_alone_has_the_weights_read_once_whatever_the_stages(pp):
    one, staged = (
        found("energy_per_output_token_decode", tp=2, pp=n, precision="fp8", concurrency=1)[0] for n in (1, pp)
    )
    assert staged == pytest.approx(one, rel=0.01)


def test_rereads_are_paid_for_in_energy():
    less, more = (
        found(
            "energy_per_output_token_decode",
            workload="llama-2-70b",
            concurrency=64,
            prompt_tokens=3000,
            cache_rereads=power,
        )[0]
        for power in (0.0, 0.9)
    )
    assert more > 1.2 * less


def test_tokens_drawn_by_top_p_pay_for_passes_over_all_logits_on_every_rank():
    """By their share, in proportion to the vocabulary, whatever the tp; in energy too."""
    names = ("time_per_output_token_matrix", "energy_per_output_token_decode")

    def more(share=1.0, **settings):
        drawn, greedy = (found(*names, load="static", sampled=x, **settings) for x in (share, 0.0))
        assert greedy == pytest.approx(found(*names, load="static", **settings), rel=1e-6)
        return [a - b for a, b in zip(drawn, greedy, strict=True)]

    whole = more()
    assert whole[0] > 0.0 and whole[1] > 0.0
    assert more(0.5)[0] == pytest.approx(0.5 * whole[0], rel=1e-2)
    assert more(sampler_bytes=400.0)[0] == pytest.approx(2.0 * more(sampler_bytes=200.0)[0], rel=1e-2)
    assert more(tp=4)[0] == pytest.approx(whole[0], rel=1e-2)


def test_of_every_other_layer_with_experts_half_the_layers_are_dense():
    stage = stage_of(design("llama-4-maverick", "h200", ep=8))
    assert float(dense_layers(stage)) == pytest.approx(0.5 * float(stage.layout.layers))
    some, all_ = (
        found(
            "time_per_output_token_matrix",
            "energy_per_output_token_decode",
            workload="llama-4-maverick",
            system="h200",
            ep=8,
            precision="fp8",
            concurrency=64,
            moe_every=every,
        )
        for every in (2, 1)
    )
    assert some[0] < 0.8 * all_[0] and some[1] < 0.8 * all_[1]


def test_uneven_experts_cost_time_and_hardly_energy():
    even, uneven = (
        found(
            "time_per_output_token",
            "energy_per_output_token_decode",
            workload="deepseek-v3",
            system="h200",
            ep=8,
            precision="fp8",
            concurrency=512,
            imbalance=n,
        )
        for n in (1.0, 1.8)
    )
    assert uneven[0] > 1.01 * even[0] and uneven[1] == pytest.approx(even[1], rel=0.02)


def _cut(parts, *names, **settings):
    """Metrics of steps in so many parts."""
    return found(*names, **({"precision": "fp8"} | settings), nano_batches=parts)


def test_parts_of_a_batch_pay_for_the_weights_that_each_reads():
    """Each part more costs a reading more in energy, and in time once memory is the busiest."""
    names = "energy_per_output_token_decode", "time_per_output_token"
    load = dict(load="static", concurrency=512, prompt_tokens=1024)
    whole, *parts = (_cut(n, *names, **load) for n in (1, 2, 3))
    assert whole[0] < parts[0][0] and parts[0][1] < whole[1]
    assert parts[1][0] - parts[0][0] == pytest.approx(parts[0][0] - whole[0], rel=1e-3)
    assert parts[1][1] > parts[0][1]


@pytest.mark.parametrize("count", [1, 8, 512])
def test_a_batch_is_cut_where_that_pays_alone(count):
    """No time is lost to parts, and no energy to those that there are not; no device draws more than its limit."""
    names = "time_per_output_token", "energy_per_output_token"
    drawn = "device_power", "decode_power", "prefill_power"
    whole = found(*names, precision="fp8", concurrency=count, prompt_tokens=2048)
    for parts, limit in itertools.product((1, 2, 8, 64, 1000), (400.0, 700.0)):
        settings = dict(concurrency=count, prompt_tokens=2048, **{"power.limit": limit})
        time, energy, *watts = _cut(parts, *names, *drawn, **settings)
        assert max(watts) <= 1.001 * limit  # within what the solve of the clock leaves
        if limit == 700.0:
            assert time <= whole[0] * (1.0 + 1e-5)
        if limit == 700.0 and parts in (1, 1000):
            assert (time, energy) == pytest.approx(whole, rel=1e-5)


def test_experts_that_are_split_over_replicas_gather_their_tokens():
    """Ranks of one tp group have the same tokens; those of other replicas gather them, and scatter the sums."""
    inside, some, all_ = (
        found(
            "time_per_output_token_communication",
            workload="deepseek-v3",
            system="h200",
            precision="fp8",
            concurrency=512,
            tp=tp,
            n_devices=8,
            ep=1,
            etp=etp,
        )[0]
        for tp, etp in ((4, 4), (4, 8), (1, 8))
    )
    assert some > inside and all_ > 0.0
    # Of 64 tokens of 8 ranks each gathers seven eighths, in 16 bits, whatever the tp inside of etp.
    for tp in (1, 2, 4):
        work = messages(tp=tp, dp=8 // tp, ep=1, etp=8)[1].messages[-1]
        assert float(work.group.size) == 8 / tp
        assert float(work.size) == pytest.approx((1.0 - tp / 8.0) * 64.0 * 2.0 * 7168.0)
        assert float(work.inter_domain) == 0.0


def messages(workload="deepseek-v3", concurrency=64, **settings):
    """Kind → (times, bytes) of the messages of a layer of so many sequences over all ranks."""
    made = design(workload, "h200", precision="fp8", **settings)
    stage, m = stage_of(made), made.mapping
    work = step_work(stage, ranks_of_experts(made), m.serving, Batch(concurrency / m.dp, 1000.0, 0.0, 0.0))
    return {m.kind: (float(m.times), float(m.size)) for m in work.messages}, work, made


def test_ranks_of_one_group_sum_what_their_experts_give_and_exchange_nothing():
    for workload in ("deepseek-v3", "qwen3-235b-a22b", "mixtral-8x7b"):
        found, *_ = messages(workload, ep=8)
        assert found[MessageKind.all_reduce][0] == 2.0 and found[MessageKind.all_to_all][0] == 0.0, workload


def test_tokens_that_ranks_exchange_are_those_of_the_batch_whatever_the_tp():
    """Ranks of a tp group have the same tokens: each sends its share."""
    sent = {tp: messages(tp=tp, dp=16 // tp, ep=16)[0][MessageKind.all_to_all][1] for tp in (1, 2, 4, 8)}
    assert all(size == pytest.approx(sent[1]) for size in sent.values())


def test_small_sums_are_of_kernels_of_the_engine_and_large_ones_of_the_library():
    """Beyond what its own kernels take, and of an engine without any, a sum takes as long as the library's."""

    def seconds(rows, own):
        _, work, made = messages("llama-3-70b", rows, own_message_bytes=own)
        return float(layer_message_time(made, made.software.engine, work))

    assert seconds(64, 8e6) < seconds(64, 0.0)
    assert seconds(8192, 8e6) == seconds(8192, 0.0) != seconds(8192, 1e9)
    assert seconds(8192, 8e6) > seconds(64, 8e6)


def test_sums_in_one_shot_read_all_messages_whole_and_end_the_earlier_the_more_sum():
    """``(n - 1)`` messages each, up to 4 MB over n members and 16 MB between two; larger ones by the library."""

    def seconds(tp, rows, **settings):
        settings = dict(small_message_time=0.0, own_message_bytes=16e6) | settings
        made = design("llama-3-70b", "a100-sxm-80gb", tp=tp, **settings)
        work = step_work(stage_of(made), ranks_of_experts(made), made.mapping.serving, Batch(rows, 1000.0, 0.0, 0.0))
        return float(layer_message_time(made, made.software.engine, work))

    one = dict(one_shot_bytes=4e6)
    for tp, rows in ((2, 976), (4, 61), (8, 30)):  # 16,384 bytes each
        assert seconds(tp, rows, **one) == pytest.approx(0.5 * tp * seconds(tp, rows)), tp
        assert seconds(tp, rows + 1, **one) == seconds(tp, rows + 1, own_message_bytes=0.0), tp
        assert seconds(tp, rows + 1, **one) > 2.0 * seconds(tp, rows, **one), tp


def test_behind_shared_bridges_and_without_a_switch_all_sums_are_of_the_library():
    """Whatever an engine could sum itself; the measured sums of vLLM on L40S are as slow as NCCL's, 8.17 ms of 8 MB."""

    def seconds(system, own, rows=1024, **settings):
        made = design("llama-3-8b", system, own_message_bytes=own, small_message_time=0.0, **settings)
        work = step_work(stage_of(made), ranks_of_experts(made), made.mapping.serving, Batch(rows, 1000.0, 0.0, 0.0))
        return float(layer_message_time(made, made.software.engine, work))

    for system in ("l40s", "l40s-shared-root", "rtx-pro-6000-server", "tpu-v5e"):
        assert seconds(system, 1e9) == seconds(system, 0.0), system
    for system, settings in (("h100", {}), ("mi300x", {}), ("l40s", {"system.scale_up.bridged": 0.0})):
        assert seconds(system, 1e9, **settings) < seconds(system, 0.0, **settings), system
    sums = 2.0  # of 1,024 rows of 4,096 values in bf16: 8 MiB
    assert seconds("l40s-shared-root", 8e6) / sums == pytest.approx(8.17e-3, rel=0.15)
    assert seconds("l40s-shared-root", 8e6, tp=4, rows=2048) / sums == pytest.approx(6.68e-3, rel=0.35)


@pytest.mark.parametrize("tp", [2, 4, 8])
@pytest.mark.parametrize("system", ["l40s", "rtx-4090", "rtx-pro-6000-server", "l4"])
def test_more_users_shorter_answers_and_better_drafts_never_lower_what_cards_on_pcie_answer(system, tp):
    """An engine's own sums end at 8 MB, with a step in time that such hosts do not have."""
    rates = {
        "concurrency": [
            found(
                "output_tokens_per_second",
                workload="qwen3-1.7b",
                system=system,
                tp=tp,
                concurrency=users,
                prompt_tokens=512,
                output_tokens=256,
            )[0]
            for users in (8, 64, 128, 200, 256, 300, 320, 500, 640, 1000)
        ],
        "answers": [
            found(
                "requests_per_second",
                workload="qwen3-1.7b",
                system=system,
                tp=tp,
                concurrency=256,
                prompt_tokens=512,
                output_tokens=tokens,
            )[0]
            for tokens in (256, 64, 32, 16, 8, 4, 2, 1)
        ],
        "drafts": [
            found(
                "output_tokens_per_second",
                workload="qwen3-1.7b",
                system=system,
                tp=tp,
                concurrency=256,
                prompt_tokens=512,
                output_tokens=256,
                drafts=3,
                acceptance=share,
            )[0]
            for share in (0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
        ],
    }
    for what, rate in rates.items():
        assert rate[0] > 0.0
        assert all(after >= before * (1.0 - 1e-4) for before, after in itertools.pairwise(rate)), (what, rate)


def test_a_replica_fails_with_any_device_that_has_some_of_its_experts():
    apart, whole = (
        found("time_between_failures", workload="deepseek-v3", system="h200", tp=tp, dp=16 // tp, ep=16, etp=1)[0]
        for tp in (1, 16)
    )
    assert apart == pytest.approx(whole, rel=1e-5)


@pytest.mark.parametrize("chunk", [512, 2048])
def test_more_requests_in_flight_never_lower_what_is_answered(chunk):
    """A full step has the share of prompts that a request has of them, however many wait: a few per cent are rounds."""
    rates = [
        found(
            "output_tokens_per_second",
            workload="llama-3-8b",
            tp=1,
            concurrency=n,
            prompt_tokens=1024,
            output_tokens=256,
            chunk=chunk,
        )[0]
        for n in (32, 64, 128, 256, 512, 1024)
    ]
    best = 0.0
    for rate in rates:
        assert rate > 0.9 * best
        best = max(best, rate)


@pytest.mark.parametrize(("prompt", "answer"), [(128, 32), (512, 64), (4096, 16), (1024, 1024)])
@pytest.mark.parametrize("count", [1, 16, 256])
def test_littles_law_of_short_answers(prompt, answer, count):
    """Who waits to be seen, or is outside of the engine, asks for no other request."""
    rate, latency = found(
        "requests_per_second",
        "request_latency",
        workload="llama-3-8b",
        tp=1,
        concurrency=count,
        prompt_tokens=prompt,
        output_tokens=answer,
    )
    assert rate * latency == pytest.approx(count, rel=1e-4)


def test_drafts_take_a_layer_and_the_head_each():
    """None of which is accepted: a step is longer by so much, and by the rows that it checks."""
    none, *drafted = (found("time_per_output_token", concurrency=1, drafts=n, acceptance=1e-6)[0] for n in (0, 1, 4, 8))
    assert all(1.0 + n / 80.0 < time / none < 1.0 + n / 20.0 for n, time in zip((1, 4, 8), drafted, strict=True))
    rates = [
        found("output_tokens_per_second", concurrency=1, drafts=n, acceptance=0.6)[0] for n in (0, 1, 2, 3, 4, 8, 16)
    ]
    assert max(rates) not in (rates[0], rates[-1])  # there is a best number


def test_copies_by_node_and_in_eight_bits_spare_the_network():
    """DeepSeek-V3 over eight nodes of eight: of 8 copies a token sends one to every node but its own (DeepEP)."""
    pairwise, by_node, narrow = (
        messages(tp=1, dp=64, ep=64, **how)[1].messages[-1]
        for how in ({}, {"all_to_all": "by-node"}, {"all_to_all": "by-node", "dispatch_precision": "fp8"})
    )
    assert float(pairwise.inter_domain) == pytest.approx(2.0 * 7168.0 * 8.0 * 56.0 / 64.0)  # of each of its tokens
    assert float(by_node.inter_domain) <= 2.0 * 7168.0 * 4.0  # tokens meet four groups of experts at most
    assert float(narrow.inter_domain) == pytest.approx(0.75 * float(by_node.inter_domain))
    seconds = [
        found(
            "time_per_output_token_communication",
            workload="deepseek-v3",
            system="h200",
            precision="fp8",
            tp=1,
            n_devices=64,
            ep=64,
            concurrency=8192,
            **how,
        )[0]
        for how in ({}, {"all_to_all": "by-node", "dispatch_precision": "fp8"})
    ]
    assert seconds[1] < 0.6 * seconds[0]


def test_ranks_of_two_nodes_exchange_over_the_network_between_them():
    """However many there are: two ranks of tp 8 are in two nodes of eight."""
    slow, fast = (
        found(
            "time_per_output_token_communication",
            workload="mixtral-8x7b",
            tp=8,
            dp=2,
            ep=1,
            etp=16,
            concurrency=256,
            **{"scale_out.bandwidth": f"{rate} GB/s"},
        )[0]
        for rate in (5, 50)
    )
    assert slow > 2.0 * fast


def test_links_bound_what_pools_serve():
    """A device that answers receives all keys and values of its requests, whatever their senders are."""
    settings = dict(workload="llama-3-8b", prompt_tokens=4096, output_tokens=64, **{"scale_out.bandwidth": "1.56 GB/s"})
    pools = dse.serve_pools(
        design(tp=8, concurrency=8, **settings), design(tp=1, n_devices=8, concurrency=64, **settings)
    )
    size = 2.0 * 2.0 * 8.0 * 128.0 * 32.0 * 4096.0
    assert float(pools.transfer_time) == pytest.approx(size / 1.56e9, rel=1e-4)
    assert float(pools.requests_per_second) <= 8.0 * 1.56e9 / size * (1 + 1e-5)
    assert max(float(pools.prefill_load), float(pools.decode_load)) == pytest.approx(1.0)


def _of_prompts(name, values, *metrics, **settings):
    """Metrics of a model whose prompts are most of its work, by values of one setting."""
    of = dict(prompt_tokens=2048, concurrency=64, output_tokens=64) | settings
    return list(zip(*(found(*metrics, **{**of, name: value}) for value in values), strict=True))


def _rises(values, within=1e-3):
    return all(later >= (1.0 - within) * earlier for earlier, later in itertools.pairwise(values))


@pytest.mark.parametrize("mixed", [0, 1])
@pytest.mark.parametrize("answer", [4, 64, 1000])
def test_more_users_are_never_answered_less(mixed, answer):
    """From idle to saturated by prompts: requests a second, and the time of each, never fall."""
    users = [1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 128, 256, 512]
    rate, first, whole = _of_prompts(
        "concurrency",
        users,
        "requests_per_second",
        "time_to_first_token",
        "request_latency",
        output_tokens=answer,
        mixed=mixed,
    )
    assert _rises(rate) and _rises(first) and _rises(whole)


@pytest.mark.parametrize("mixed", [0, 1])
@pytest.mark.parametrize("count", [8, 64, 256])
def test_longer_answers_never_take_less_time(mixed, count):
    """More work a request: fewer of them a second, each later, and less waiting for the prompts of others."""
    answers = [1, 2, 4, 8, 16, 32, 48, 64, 80, 96, 128, 256, 512]
    rate, first, whole = _of_prompts(
        "output_tokens",
        answers,
        "requests_per_second",
        "time_to_first_token",
        "request_latency",
        concurrency=count,
        mixed=mixed,
    )
    assert _rises(rate[::-1]) and _rises(whole) and _rises(first[::-1], 0.01)


@pytest.mark.parametrize("answer", [16, 64])
def test_a_longer_chunk_takes_the_prompts_that_wait(answer):
    chunks = [512, 1024, 2048, 2112, 4096, 8192, 32768]
    rate, first = _of_prompts("chunk", chunks, "requests_per_second", "time_to_first_token", output_tokens=answer)
    assert _rises(rate, 2e-3)
    # Prompts that share a step end with the last of them: the simulator below has 0.35 s at 4096, 0.37 s at 8192 for
    # answers of 64 tokens.
    assert _rises(first[:5][::-1], 2e-3) and _rises(first[::-1], 0.15)
    assert rate[-1] > 1.1 * rate[0] and first[-1] < 0.5 * first[0]


def _simulated(users, answer, chunk, base, sequence, prompt, outside):
    """Requests a second and time to the first token of a closed loop, step by step: answers first, then prompts.

    ``prompt``: seconds of a prompt in a step that has room for ``chunk`` of them; answers are of lengths spread evenly
    in half of their mean about it.
    """
    rng = random.Random(1)
    now, done, firsts, decoding = 0.0, 0, [], []
    queue, coming = [], sorted(0.1 * users * rng.random() for _ in range(users))
    for count in range(6000):
        if count == 2000:
            start, done, firsts = now, 0, []
        while coming and coming[0] <= now:
            queue.append([coming.pop(0), 1.0])
        if not queue and not decoding:
            now = coming[0]
            continue
        room, left = chunk, []
        for one in queue:
            taken = min(one[1], room)
            one[1], room = one[1] - taken, room - taken
            left += [one] if one[1] > 0.0 else []
        now += base + sequence * len(decoding) + prompt * (chunk - room)
        finished = [one for one in queue if one[1] <= 0.0]
        firsts += [now - one[0] + outside for one in finished]
        decoding = [tokens - 1 for tokens in decoding]
        ended = decoding.count(0)
        done, coming = done + ended, sorted(coming + ended * [now + outside])
        decoding = [tokens for tokens in decoding if tokens > 0]
        decoding += [max(round(rng.uniform(0.5, 1.5) * answer) - 1, 1) for _ in finished]
        queue = left
    return done / (now - start), sum(firsts) / len(firsts)


@pytest.mark.parametrize(
    ("users", "answer", "chunk", "first_within"),
    [(8, 2, 8192, 0.25), (8, 4, 8192, 0.2), (8, 8, 8192, 0.2), (8, 64, 8192, 0.1), (16, 4, 8192, 0.15),
     (16, 16, 8192, 0.15), (32, 8, 8192, 0.1), (32, 16, 8192, 0.15), (64, 4, 8192, 0.03), (64, 8, 8192, 0.05),
     (64, 16, 8192, 0.15), (64, 32, 8192, 0.12), (64, 64, 4096, 0.15), (64, 64, 8192, 0.1), (64, 64, 32768, 0.1),
     (64, 128, 8192, 0.05), (128, 64, 8192, 0.15), (256, 32, 8192, 0.05), (256, 256, 8192, 0.1)],
)  # fmt: skip
def test_a_loop_that_is_simulated_step_by_step(users, answer, chunk, first_within):
    """From idle to saturated, of the shortest answers too, the closed form gives what a simulator of the steps counts.

    Its worst are a few users whose answers take two to eight steps: all then move at once. Two runs of the simulator
    differ by up to 7 % near saturation. Times outside of the engine that are all equal may fall into step with those
    inside: at 70 ms the first tokens of 32 users with 16 tokens each come 30 % later than the closed form has them, and
    as it has them where the times spread. So this one is stated in steps, whatever engine was fitted last.
    """
    tokens = 2048
    settings = dict(prompt_tokens=tokens, chunk=chunk, output_tokens=answer)
    step = served(design(load="static", concurrency=1, **settings))
    settings["request_time"] = 3.25 * float(step.time_per_output_token)
    step = served(design(load="static", concurrency=1, **settings))
    many = served(design(load="static", concurrency=users, **settings))
    outside = float(step.time_to_first_token_request)
    sequence = float(many.time_per_output_token - step.time_per_output_token) / max(users - 1, 1)
    base = float(step.time_per_output_token) - sequence
    prompt = float(served(design(load="static", concurrency=4, **settings)).time_to_first_token_prefill) - base
    rate, first = _simulated(users, answer, chunk / tokens, base, sequence, prompt / 4.0, outside)
    ours = found("requests_per_second", "time_to_first_token", concurrency=users, **settings)
    assert ours[0] == pytest.approx(rate, rel=0.04)
    assert ours[1] == pytest.approx(first, rel=first_within)


def _admitted(users, room, prompt, answer, turns=8):
    """Of a closed loop the requests that wait for their first token, and those that run.

    A prompt is admitted, first come, first served, where it fits beside what is cached now; whoever came last gives
    its memory back as answers grow, and comes first of those that wait. Answers spread evenly by half of their mean.
    """
    rng = random.Random(2)

    def new():
        return [0, round(answer * rng.uniform(0.5, 1.5))]

    running, waiting, counted = [], [new() for _ in range(users)], []
    for one in waiting:
        one[0] = round(rng.random() * one[1])
    for step in range(turns * answer):
        used = sum(prompt + done for done, _ in running)
        while waiting and used + prompt + waiting[0][0] <= room - len(running):
            running.append(waiting.pop(0))
            used += prompt + running[-1][0]
        running = [[done + 1, most] for done, most in running]
        ended = sum(done >= most for done, most in running)
        running = [one for one in running if one[0] < one[1]]
        waiting += [new() for _ in range(ended)]
        while sum(prompt + done for done, _ in running) > room - len(running):
            waiting.insert(0, running.pop())
        if step > 0.4 * turns * answer:
            counted.append((sum(done == 0 for done, _ in waiting), len(running)))
    return [sum(column) / len(counted) for column in zip(*counted, strict=True)]


@pytest.mark.parametrize(
    ("prompt", "answer", "users"), [(920, 7370, 150), (920, 7370, 220), (2048, 2048, 220), (7370, 920, 90)]
)
def test_prompts_are_admitted_before_there_is_memory_for_their_answers(prompt, answer, users):
    """Of those beyond the room of memory a share has its first token already, as a simulator of admissions counts."""
    settings = dict(prompt_tokens=prompt, output_tokens=answer, concurrency=users, tp=4)
    names = "concurrency_limit", "requests_per_second", "time_per_output_token_preempted"
    limit, rate, preempted = found(*names, **settings)
    first, running = _admitted(users, int(limit * (prompt + 0.5 * answer) / 10), prompt // 10, answer // 10)
    ours = 1.0 - preempted * (answer - 1) * rate / (users - limit)
    assert users > limit and ours == pytest.approx(first / (users - running), abs=0.12)


def test_memory_that_admission_keeps_free():
    """Kept free for whole answers, no one is preempted; in between, the room and who waits for a first token move."""
    names = "concurrency_limit", "time_per_output_token_preempted", "request_latency", "time_to_first_token"
    settings = dict(prompt_tokens=1024, output_tokens=8192, concurrency=96, tp=4)
    rows = [found(*names, reserved_answer=share, **settings) for share in (0.0, 0.3, 0.7, 1.0)]
    limit, preempted, whole, first = zip(*rows, strict=True)
    assert _rises(limit[::-1]) and limit[0] > 1.5 * limit[-1] and min(preempted[:3]) > 0.0 and preempted[3] == 0.0
    assert _rises(whole) and _rises(first)
    assert found(*names, paged=0, **settings) == pytest.approx(rows[-1])
    # Where an engine takes no more at once than memory holds, the same wait comes before the first token.
    capped = found(*names, most_sequences=round(limit[0] - 0.5), **settings)
    assert capped[1] == 0.0 and capped[3] > first[0] and capped[2] == pytest.approx(whole[0], rel=0.05)


def test_an_offline_queue_that_ends():
    """Steps empty as answers end: 48 of 64 answers end after 341 tokens, the others after 1024; the mean is 512."""
    settings = dict(load="offline", prompt_tokens=64, output_tokens=512)
    rate, endless, long, alike = (
        found("requests_per_second", **settings, **more)[0]
        for more in (
            dict(queue=64, longest_answer=1024),
            dict(most_sequences=64),
            dict(queue=1e7, longest_answer=1024),
            dict(queue=64),
        )
    )
    many, few = (
        found("time_per_output_token", load="static", prompt_tokens=64, output_tokens=512, concurrency=n)[0]
        for n in (64, 16)
    )
    assert 64.0 / rate == pytest.approx(341.3 * many + 682.7 * few, rel=0.03)
    assert rate < 0.8 * endless and alike == pytest.approx(endless, rel=1e-4) and long > endless


def test_the_last_wave_of_a_queue():
    """160 equal requests, 64 at a time: two full waves and one of 32; a queue of whole waves loses little."""
    settings = dict(load="offline", prompt_tokens=8, output_tokens=512, most_sequences=64)
    rate, whole, endless = (
        found("requests_per_second", **settings, **more)[0] for more in (dict(queue=160), dict(queue=128), {})
    )
    full, half = (
        found("time_per_output_token", load="static", prompt_tokens=8, output_tokens=512, concurrency=n)[0]
        for n in (64, 32)
    )
    assert 160.0 / rate == pytest.approx(512.0 * (2.0 * full + half), rel=0.05)
    assert rate < whole <= endless and whole == pytest.approx(endless, rel=0.05)


def test_ranks_with_equal_requests_take_prompts_in_the_same_steps():
    """Offline requests of one length keep ranks in phase; without balance others wait for each other's prompts."""
    settings = dict(
        workload="deepseek-v3",
        system="b200-sxm-180gb",
        precision="fp8",
        tp=1,
        dp=8,
        ep=8,
        n_devices=8,
        load="offline",
        most_sequences=128,
        prompt_tokens=4096,
        output_tokens=512,
        prompt_balance=0,
    )
    equal, unequal = (found("requests_per_second", **settings, **more)[0] for more in ({}, dict(answer_spread=0.01)))
    assert 1.05 * unequal < equal


def test_copies_of_experts():
    """72 ranks hold 256 experts with 32 copies as 64 ranks hold them without, and lighten what the busiest does."""
    names = ("infeasible_reason", "peak_memory_weights", "time_per_output_token", "requests_per_second")

    def wide(ranks, **settings):
        of = dict(tp=1, dp=ranks, n_devices=ranks, ep=ranks, precision="fp8", concurrency=64 * ranks, expert_skew=0)
        of |= dict(redundant_experts=0, step_overlap=0)
        return found(*names, workload="deepseek-v3", system="gb200", software="sglang", **(of | settings))

    plain, refused, copied = wide(64), wide(72), wide(72, redundant_experts=32)
    assert refused[0] == Infeasible.experts_not_divisible and copied[0] == plain[0] == 0.0
    assert copied[1] == pytest.approx(plain[1], rel=1e-6) and copied[1] > refused[1]
    assert wide(64, redundant_experts=32)[0] == Infeasible.experts_not_divisible
    assert wide(72, redundant_experts=-1) == copied  # chosen: as many as the ranks need
    assert wide(72, redundant_experts=-1, expert_balance="off") == wide(72, redundant_experts=32, expert_balance="off")
    # As many tokens a rank choose among as many experts of its own.
    assert copied[2] == pytest.approx(plain[2], rel=0.02)
    uneven = [wide(64, imbalance=2.0, redundant_experts=copies) for copies in (0, 64, 128, 256)]
    _, weights, token, rate = zip(*uneven, strict=True)
    # Each copy is read as an expert is: what balances the ranks pays, many more cost.
    assert _rises(weights) and rate[0] < min(rate[1:]) and token[0] > token[1] > wide(64, redundant_experts=64)[2]
    assert _rises([wide(64, redundant_experts=copies)[2] for copies in (0, 64, 128)])


@pytest.mark.parametrize("share", [1.0, 0.7, 0.5])
@pytest.mark.parametrize(
    ("chip", "mapping", "requests"),
    [
        ("a100", dict(tp=1, pp=4), dict(concurrency=512, prompt_tokens=65536, output_tokens=1024)),
        ("a100", dict(tp=4, pp=2, dp=2), dict(concurrency=32, prompt_tokens=8192, output_tokens=128)),
        ("b200", dict(tp=1), dict(concurrency=128, prompt_tokens=8192, output_tokens=128, load="offline")),
        ("b200", dict(tp=2), dict(concurrency=2048, prompt_tokens=16, output_tokens=16)),
        ("mi300x", dict(tp=8), dict(concurrency=128, prompt_tokens=8192, output_tokens=128)),
        ("h200", dict(tp=4), dict(concurrency=8, prompt_tokens=128, output_tokens=2, load="waves")),
        ("h100", dict(tp=8, dp=8), dict(concurrency=8, prompt_tokens=16, output_tokens=16, load="static")),
    ],
)
def test_a_device_draws_no_more_in_the_mean_than_at_its_peak_and_then_than_its_limit(chip, mapping, requests, share):
    """Whatever the load: steps take no more time than there is, and none draws more than the limit."""
    stated = dict(workload="llama-3-70b", system=chip, software=None, **mapping, **requests)
    sold = float(design(**stated).system.accelerator.power.tdp)
    drawn = served(design(**stated, **{"power.limit": share * sold}))
    assert float(drawn.device_power) <= max(float(drawn.decode_power), float(drawn.prefill_power)) * (1.0 + 1e-5)
    assert float(drawn.device_power) <= share * sold * (1.0 + 1e-5)
    assert float(drawn.average_power) <= float(drawn.peak_power) * (1.0 + 1e-5)
    assert float(drawn.peak_power) <= float(drawn.provisioned_power) * (1.0 + 1e-5)
