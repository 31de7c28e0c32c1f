"""A step of reinforcement learning from the seconds of its parts: colocated, split, and split with stale weights.

Colocated, all devices generate, change over and train: the step is the sum. Split, two pools take turns with
staleness 0; with a bound of ``k`` steps rollouts of ``k`` batches run through while the trainer works on earlier ones,
the weights are sent once for the ``k``, and the step is the longer pool's work: ``max(rollout + reward,
log-probabilities + critic + training) + weights / k`` (one step off policy with ``k = 1``: Noukhovitch et al. 2025). A
pool idles the rest of the step, so that the parts of each add up to it.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.types import Scalar

#: Algorithms: with a critic, and without.
PPO, GRPO = "ppo", "grpo"


class RlWork(NamedTuple):
    """Seconds of the parts of a step, each on its own pool; arrays of one shape."""

    rollout: Scalar  # of a batch, where several run through its share of them
    reward: Scalar
    log_probs: Scalar
    critic: Scalar
    training: Scalar
    weights: Scalar  # sent from the trainer to the rollout engines
    switch: Scalar  # moving the training state out and in again; of colocated devices


class RlStep(NamedTuple):
    """Seconds of a step and of its parts."""

    total: Scalar
    rollout: Scalar
    reward: Scalar
    log_probs: Scalar
    critic: Scalar
    training: Scalar
    weights: Scalar
    switch: Scalar
    rollout_idle: Scalar  # of the rollout pool, within the step
    training_idle: Scalar  # of the training pool


def rl_step(work: RlWork, colocated: bool, staleness: int) -> RlStep:
    """A step on all devices, or on two pools with weights at most ``staleness`` steps old."""
    trained = work.log_probs + work.critic + work.training
    generated = work.rollout + work.reward
    if colocated:
        total = generated + trained + work.weights + work.switch
        return RlStep(total, **work._asdict(), rollout_idle=work.reward, training_idle=work.reward)
    weights = work.weights / max(staleness, 1)
    total = (jnp.maximum(generated, trained) if staleness else generated + trained) + weights
    alone = work._replace(weights=weights, switch=0.0 * total)
    return RlStep(
        total, **alone._asdict(), rollout_idle=total - weights - work.rollout, training_idle=total - weights - trained
    )


def algorithm_work(algorithm: str, reference: bool, forward: Scalar, update: Scalar) -> tuple[Scalar, Scalar]:
    """Seconds of log-probabilities and of a critic as large as the policy.

    The policy's old log-probabilities and those of a reference are a forward pass each; a critic takes one for its
    values, and an update.
    """
    critic = forward + update if algorithm == PPO else 0.0 * update
    return (2.0 if reference else 1.0) * forward, critic


def weights_time(shard: Scalar, whole: Scalar, senders: Scalar, bandwidth: Scalar) -> Scalar:
    """Seconds of sending all weights once: each receiver takes its shard, and the senders share the whole.

    Pipelined broadcasts take the time of one copy whatever the number of replicas.

    Args:
        shard: bytes of a receiving device.
        whole: bytes of the model.
        senders: devices that hold it between them.
        bandwidth: of a device over the slowest network between them, B/s.
    """
    return jnp.maximum(shard, whole / senders) / bandwidth
