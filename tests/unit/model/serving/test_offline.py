"""Offline queues: prompts of answers that end together, and steps in captured graphs."""

import dataclasses

import pytest

import dse
from dse.designs.records import with_serving_defaults
from dse.doors import serve
from dse.lab.simulator.run import simulate
from dse.lab.simulator.summary import statistics
from dse.model.serving.intake import idle_rows
from dse.types import Engine, Serving


def design(workload="llama-3-8b", system="h100-sxm-80gb", software="vllm", **settings):
    settings = dict(load="offline", prompt_tokens=128, output_tokens=1024, chunk=2048, reserved_answer=1) | settings
    return with_serving_defaults(dse.design(workload, system, software, any_option=True, **settings))


@pytest.mark.parametrize(
    "settings",
    [
        dict(queue=2000, most_sequences=500),
        dict(queue=2000, most_sequences=500, whole_prompts=1),
        dict(queue=1500, most_sequences=500, prompt_tokens=500, output_tokens=2000),
        dict(workload="mixtral-8x7b", tp=2, queue=1000, most_sequences=300, prompt_tokens=1000, chunk=8192),
    ],
)
def test_prompts_of_answers_that_end_together_come_in_full_steps(settings):
    """The simulator, request by request; prompts one by one hold up more steps, which then run without a graph."""
    settings = settings | dict(launch_ratio=80)
    one = design(**settings)
    simulated = statistics(simulate(one, count=settings["queue"]))["output_tokens_per_second"]
    assert serve(one).output_tokens_per_second == pytest.approx(simulated, rel=0.02)
    assert serve(design(**settings, answer_spread=1e-6)).output_tokens_per_second < 0.97 * simulated


def test_graphs_are_captured_for_powers_of_two_and_multiples_up_to_four_steps():
    """The sizes that the benchmark of TensorRT-LLM 1.0 asks for, the last one as many as the engine has at most."""
    sizes = [1, 2, 4, 8, 16, 32, 64, 128, 256, 384, 512, 1024, 1792]
    engine = dataclasses.replace(Engine(), most_sequences=1792.0)
    for n in (1, 2, 3, 100, 128, 129, 256, 257, 384, 385, 512, 513, 1024, 1025, 1792):
        idle = idle_rows(Serving(graph_step=128.0), engine, float(n))
        assert n + float(idle) == next(size for size in sizes if size >= n), n
    assert idle_rows(Serving(), engine, 100.0) == 0.0
    assert idle_rows(Serving(graph_step=128.0, drafts=3.0), engine, 100.0) == 4.0 * 28.0


def test_a_step_takes_as_long_as_the_graph_that_it_runs_in():
    """Matrices work on all rows, attention on the sequences; a graph of as many sequences as run costs nothing."""

    def token(n, **settings):
        found = serve(design(load="static", concurrency=n, **settings))
        return found.time_per_output_token_matrix, found.time_per_output_token_attention

    padded, whole = token(600, graph_step=128), token(1024)
    assert padded[0] == pytest.approx(whole[0]) and padded[1] == pytest.approx(token(600)[1])
    assert padded[0] > 1.1 * token(600)[0]
    assert token(512, graph_step=128) == pytest.approx(token(512))
    names = ("energy_per_output_token", "time_to_first_token")
    less, more = (serve(design(load="static", concurrency=600, **given)) for given in ({}, dict(graph_step=128)))
    assert getattr(more, names[0]) > getattr(less, names[0])
    assert getattr(more, names[1]) == pytest.approx(getattr(less, names[1]))  # prompts run without a graph
