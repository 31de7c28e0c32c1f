"""Energy of a step summed by hand, layer by layer and message by message, against the model's counts of them."""

import jax
import numpy as np
import pytest

import dse
from dse.doors.evaluation import evaluate
from dse.doors.serving import serve
from dse.model import Batch, Route, lay_out, operate, stage_of, training_work
from dse.model.choice import nothing
from dse.model.machine import collectives
from dse.model.machine.power import flop_energy, voltage
from dse.model.serving.pass_energy import joules_of
from dse.model.serving.work import ranks_of_experts, step_work
from dse.model.work.parameters import common_parameters, routed_parameters
from dse.model.work.state import optimizer_traffic
from dse.types import OperatorKind, Recompute, Scope, Serving
from tests.panel import PANEL


def dense():
    return (
        PANEL["dense, eager attention"]
        ._replace(settings=dict(n_devices=256, tp=8, pp=4, micro_batch=2, recompute="full", global_batch=64))
        .design()
    )


def experts():
    return (
        PANEL["experts, sharded, narrow formats"]
        ._replace(
            workload="deepseek-v2-lite", settings=dict(n_devices=64, ep=8, tp=2, global_batch=256, precision="bf16")
        )
        .design()
    )


def operator_joules(operator, one):
    """(matrix, vector, memory) of the forward of an operator and of its gradients, on a device for a micro-batch."""
    power = one.system.accelerator.power
    sixteen = max(float(power.matrix_energy), float(flop_energy(one.mapping.precision, power)))
    each = {
        OperatorKind.matrix: (float(flop_energy(one.mapping.precision, power)), 0.0),
        OperatorKind.grouped: (float(flop_energy(one.mapping.precision, power)), 0.0),
        OperatorKind.matrix_16: (sixteen, 0.0),
        OperatorKind.flash: (sixteen, 0.0),
        OperatorKind.context: (sixteen, 0.0),
        OperatorKind.vector: (0.0, float(power.vector_energy)),
    }[operator.kind]

    def joules(work):
        moved = float(work.bytes) * np.array([float(power.cache_energy), float(power.memory_energy)])
        return float(operator.present) * np.array([*(float(work.flops) * e for e in each), *moved])

    return joules(operator.forward), sum((joules(work) for work in operator.gradients if work is not None), np.zeros(4))


def message_joules(message, one):
    """Joules of a message that a device sends, all its times."""
    route = Route(message.group, one.system)
    if not nothing(message.inter_domain):
        joules = collectives.exchange_energy(message.size, message.inter_domain, route)
    else:
        joules = collectives.energy(message.kind, message.size, route)
    return float(message.mean_share) * float(message.times) * float(joules)


def layers_of(one, work):
    """(operators, scopes of messages) of every layer of the model."""
    for layer in range(int(one.workload.n_layers)):
        if one.workload.experts is None:
            yield work.layer, {Scope.layer}
        elif layer < int(one.workload.experts.first_dense):
            yield work.lists.first_layer, {Scope.layer}
        else:
            yield work.lists.mean_layer, {Scope.layer, Scope.expert_layer}


def once_a_step(one, layout, work):
    """(joules of the optimiser by unit, joules of the messages of weights) of all devices, parameter by parameter."""
    power, m = one.system.accelerator.power, one.mapping
    groups = [(common_parameters(one.workload), layout.groups.dp, m.dp * m.cp, Scope.weights, work.parameters)]
    if one.workload.experts is not None:
        edp = m.tp * m.cp * m.dp / (m.experts.ep * m.experts.etp)
        routed = routed_parameters(one.workload)
        groups.append((routed, layout.experts.replicas, edp, Scope.expert_weights, work.routed))
    moved = sent = 0.0
    for parameters, group, copies, scope, held in groups:
        moved += float(parameters) * float(copies) * float(optimizer_traffic(one, layout, group))
        messages = (message for message in work.messages if message.scope is scope)
        sent += float(parameters) / float(held) * float(copies) * sum(message_joules(m, one) for m in messages)
    tied = [message for message in work.messages if message.scope is Scope.tied_embedding]
    sent += 2.0 * m.dp * m.cp * m.tp * sum(message_joules(message, one) for message in tied)
    return np.array([0.0, 0.0, float(power.cache_energy) * moved, float(power.memory_energy) * moved]), float(sent)


@pytest.mark.parametrize("make", [dense, experts])
def test_operators_and_messages_of_every_layer_add_up(make):
    """Each layer of the model by its own list, each device, each micro-batch: no count of the model's is used."""
    with jax.enable_x64(True):
        one = jax.tree.map(np.float64, make())
        layout, found = lay_out(one), jax.tree.map(float, evaluate(one))
        work = training_work(one, layout)
        spent, sent = np.zeros(4), 0.0
        for operators, scopes in layers_of(one, work):
            repeats = 1.0 if one.mapping.recompute == float(Recompute.full) else 0.0
            for forward, backward in (operator_joules(o, one) for o in operators):
                spent += (1.0 + repeats) * forward + backward
            for message in (message for message in work.messages if message.scope in scopes):
                sent += message_joules(message, one) * (1.0 + repeats * message.repeated)
        spent += sum(sum(operator_joules(o, one)) for o in (*work.embedding, *work.head))
        borders = 2 * (int(one.mapping.pp * one.mapping.virtual_stages) - 1)
        once = {Scope.embedding: 1, Scope.head: 1, Scope.stage_boundary: borders}
        sent += sum(once.get(message.scope, 0) * message_joules(message, one) for message in work.messages)
        updated, exchanged = once_a_step(one, layout, work)
        m = one.mapping
        often = int(m.dp * m.cp * m.tp) * int(one.workload.global_batch / (m.dp * m.micro_batch))
        dynamic = float(voltage(operate(one, layout, work).ratio, one.system.accelerator.power)) ** 2
    matrix, vector, cache, memory = often * spent + updated
    assert found.energy_per_step_matrix == pytest.approx(dynamic * matrix, rel=1e-9)
    assert found.energy_per_step_vector == pytest.approx(dynamic * vector, rel=1e-9)
    assert found.energy_per_step_memory == pytest.approx(dynamic * cache + memory, rel=1e-9)
    assert found.energy_per_step_network == pytest.approx(often * sent + exchanged, rel=1e-9)


#: Designs that answer a batch of requests of which the prompts are one token: all steps decode.
SERVED = {
    "dense, stages": ("llama-3-70b", dict(tp=4, pp=4)),
    "first layers dense": ("deepseek-v3", dict(tp=8, pp=2, ep=8, precision="fp8")),
    "layers with a state": ("nemotron-nano-9b-v2", dict(tp=2, pp=2)),
}
#: Requests of the batch, and tokens of an answer.
REQUESTS, ANSWER = 64.0, 2001.0  # as few tokens of prompts as can be


@pytest.mark.parametrize(("workload", "mapping"), SERVED.values(), ids=SERVED)
def test_operators_and_messages_of_every_pass_add_up(workload, mapping):
    """Each layer of each stage, the head once, each message of a layer and of a border: of the tokens of a step."""
    with jax.enable_x64(True):
        one = jax.tree.map(
            np.float64,
            dse.design(
                workload,
                "h200",
                "vllm",
                kind="serving",
                any_option=True,
                load="static",
                concurrency=REQUESTS,
                prompt_tokens=1,
                output_tokens=ANSWER,
                kernel_energy=1.0,
                **mapping,
            ),
        )
        stage, m = stage_of(one), one.mapping
        serving, engine = m.serving or Serving(), one.software.engine
        batch = Batch(REQUESTS / m.pp, 1.0 + 0.5 * ANSWER, 0.0, 0.0)
        work = step_work(stage, ranks_of_experts(one), serving, batch, engine, is_mean=True)
        first = 0 if one.workload.experts is None else int(one.workload.experts.first_dense)
        spent, sent = sum(operator_joules(o, one)[0] for o in work.head), 0.0
        for layer in range(int(one.workload.blocks)):
            operators = work.dense_layer if layer < first else work.layer
            spent = spent + sum(operator_joules(o, one)[0] for o in operators)
            sent += sum(message_joules(message, stage.design) for message in work.messages)
        sent += sum(m.pp * message_joules(message, stage.design) for message in work.hand_over)
        sent = float(sent)
        found = jax.tree.map(float, serve(one))
        network = float(m.pp * joules_of(stage, ranks_of_experts(one), serving, engine, batch).network)
    assert network == pytest.approx(sent, rel=1e-9), "messages alone, which are little of the whole"
    passes = float(m.tp * m.pp) / REQUESTS  # a token's share, on every device of a stage
    expected = passes * (spent.sum() + sent)
    # The step of the first tokens leaves that much less time for others.
    assert found.energy_per_output_token_decode == pytest.approx(expected, rel=4e-4)
