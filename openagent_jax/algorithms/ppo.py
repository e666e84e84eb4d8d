"""PPO with a learned value (Schulman et al., arXiv 1707.06347), over turns.

Tokens of the environment have neither value nor credit: the value of a turn is that
before its first sampled token, and the next value is that of the next turn.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from openagent_jax import advantages
from openagent_jax.algorithms.policy_gradient import Learner
from openagent_jax.types import (
    Algorithm,
    Batch,
    Metrics,
    Params,
    Tables,
    Task,
    TrainState,
)

VALUE = "value"  # the branch of the parameters that is the value head


class Critic(NamedTuple):
    """The learned value and its advantages (static)."""

    # Of each turn. At 1 a truncated episode may be expected to earn anything.
    discount: float = 0.95
    gae_lambda: float = 0.95  # of a turn
    weight: float = 1.0  # of the loss of the value
    # How far a value may move from its old one; 0 is no bound. A bound slows learning
    # down by an amount that depends on the scale of the reward (arXiv 2006.05990, 3.2).
    clip: float = 0.0
    # Scale the advantages of a batch to mean 0 and deviation 1. Where nothing is left
    # to learn this amplifies noise.
    normalise: bool = False


class Values(NamedTuple):
    """What the loss of the value needs."""

    value: Float[Array, "B S"]  # when the episode was played
    target: Float[Array, "B S"]


def with_value(params: Params, width: int) -> Params:
    """The parameters with a value head that predicts 0."""
    head = {"weight": jnp.zeros(width), "bias": jnp.zeros(())}
    return {**params, VALUE: head}


def ppo(learner: Learner, critic: Critic) -> Algorithm:
    """Play each task once, and reinforce actions that did better than their value.

    Args:
      learner: plays, and computes batch and loss.
      critic: how values are learned and used.
    """

    def value_of(params: Params, hidden: Float[Array, "*batch D"]):
        head = params[VALUE]
        return hidden.astype(jnp.float32) @ head["weight"] + head["bias"]

    def before(value: Float[Array, "B S"]) -> Float[Array, "B S"]:
        """The value at each token, of the tokens before it."""
        return jnp.pad(value[:, :-1], ((0, 0), (1, 0)))

    def make_batch(
        state: TrainState, tables: Tables, key: jax.Array, tasks: Task
    ) -> tuple[Batch, Metrics]:
        params = state.params
        played, reward, metrics = learner.play(params, tables, key, tasks)
        mask, episode = played.sampled, played.trajectory
        positions = jnp.broadcast_to(jnp.arange(mask.shape[1]), mask.shape)
        segments = played.valid.astype(jnp.int32)
        hidden = learner.policy.hidden(params, played.tokens, positions, segments)
        value = value_of(params, hidden)
        length = jnp.sum(played.valid, axis=1, keepdims=True)
        last = jnp.take_along_axis(value, length - 1, axis=1)[:, 0]
        value = before(value)

        # The value of each turn, at its first token.
        turn, rows = advantages.turn_index(mask), jnp.arange(mask.shape[0])[:, None]
        column = jnp.where(advantages.is_turn_start(mask), turn, reward.shape[1])
        of_turn = jnp.zeros_like(reward).at[rows, column].set(value, mode="drop")
        ends = episode.timestep.terminated & episode.valid
        advantage = advantages.gae(
            reward,
            of_turn,
            episode.valid,
            jnp.where(jnp.any(ends, axis=1), 0, last),  # truncated is not terminated
            critic.discount,
            critic.gae_lambda,
        )
        target = advantages.broadcast_to_tokens(advantage + of_turn, mask)
        advantage = advantages.broadcast_to_tokens(advantage, mask)
        if critic.normalise:
            mean = jnp.mean(advantage, where=mask)
            std = jnp.std(advantage, where=mask)
            advantage = jnp.where(mask, (advantage - mean) / (std + 1e-6), 0)
        values = Values(value, target)
        batch, checked = learner.batch(params, played, mask, advantage, values)
        error = jnp.var(target - value, where=mask)
        spread = jnp.var(target, where=mask)
        # Targets that are all the same leave nothing to explain.
        explained = jnp.where(spread > 1e-4, 1 - error / jnp.maximum(spread, 1e-4), 0)
        return batch, metrics | checked | {"explained_variance": explained}

    def loss_fn(params: Params, batch: Batch, divisor: jax.Array):
        hidden = learner.policy.hidden(
            params, batch.tokens, batch.positions, batch.segments
        )
        loss, metrics = learner.loss(params, batch, divisor, hidden)
        value, (old, target) = before(value_of(params, hidden)), batch.extra.critic
        error = jnp.square(value - target)
        if critic.clip:
            near = old + jnp.clip(value - old, -critic.clip, critic.clip)
            error = jnp.maximum(error, jnp.square(near - target))
        error = jnp.where(batch.loss_mask, 0.5 * error, 0)
        metrics["value_loss"] = jnp.sum(error)
        error = jnp.sum(batch.extra.weight[:, None] * error) / divisor
        return loss + critic.weight * error, metrics

    return Algorithm(make_batch, loss_fn)
