"""PPO with a learned value (Schulman et al., arXiv 1707.06347), over turns.

What the environment says has neither value nor credit: a turn's value is that before
its first token, and the next value after its action is that of the next turn.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from openagent_jax import advantages, types
from openagent_jax.algorithms.policy_gradient import Learner
from openagent_jax.types import Algorithm, Batch, Metrics, Params, Task, TrainState

VALUE = "value"  # of the parameters: the head that they get


class Critic(NamedTuple):
    """How much is expected, and how far ahead (static)."""

    # Of a turn. At 1 an episode that is cut may hope for anything.
    discount: float = 0.95
    trace: float = 0.95  # of a turn
    weight: float = 1.0  # of the value's loss
    # Values learn so far from what they were; 0 is any distance. A bound slows them
    # down, by how much depends on the scale of the reward (arXiv 2006.05990, 3.2).
    clip: float = 0.0
    # Advantages of a batch to mean 0, deviation 1: noise too, where nothing is left to
    # learn.
    normalise: bool = False


class Expected(NamedTuple):
    """What the loss of the value needs."""

    value: Float[Array, "B S"]  # as it was
    target: Float[Array, "B S"]


def with_value(params: Params, width: int) -> Params:
    """The parameters, and a head that expects nothing yet."""
    head = {"weight": jnp.zeros(width), "bias": jnp.zeros(())}
    return {**params, VALUE: head}


def ppo(learner: Learner, critic: Critic) -> Algorithm:
    """Play each task once, and reinforce what did better than was expected."""

    def value_of(params: Params, hidden: Float[Array, "*batch D"]):
        head = params[VALUE]
        return hidden.astype(jnp.float32) @ head["weight"] + head["bias"]

    def before(value: Float[Array, "B S"]) -> Float[Array, "B S"]:
        """At each token what was expected just before it."""
        return jnp.pad(value[:, :-1], ((0, 0), (1, 0)))

    def make_batch(
        state: TrainState, key: jax.Array, tasks: Task
    ) -> tuple[Batch, Metrics]:
        params = state.params
        played, reward, metrics = learner.play(params, key, tasks)
        mask, episode = played.sampled, played.trajectory
        positions = jnp.broadcast_to(jnp.arange(mask.shape[1]), mask.shape)
        segments = played.valid.astype(jnp.int32)
        hidden = learner.policy.hidden(params, played.tokens, positions, segments)
        value = value_of(params, hidden)
        length = jnp.sum(played.valid, axis=1, keepdims=True)
        last = jnp.take_along_axis(value, length - 1, axis=1)[:, 0]
        value = before(value)

        # Of each turn, at its first token.
        turn, rows = advantages.turn_of(mask), jnp.arange(mask.shape[0])[:, None]
        spot = jnp.where(advantages.starts_turn(mask), turn, reward.shape[1])
        of_turn = jnp.zeros_like(reward).at[rows, spot].set(value, mode="drop")
        kind = episode.action.kind
        ends = ((kind == types.ANSWER) | (kind == types.REFUSE)) & episode.valid
        advantage = advantages.gae(
            reward,
            of_turn,
            episode.valid,
            jnp.where(jnp.any(ends, axis=1), 0, last),  # truncated is not terminated
            critic.discount,
            critic.trace,
        )
        target = advantages.by_token(advantage + of_turn, mask)
        advantage = advantages.by_token(advantage, mask)
        if critic.normalise:
            mean = jnp.mean(advantage, where=mask)
            std = jnp.std(advantage, where=mask)
            advantage = jnp.where(mask, (advantage - mean) / (std + 1e-6), 0)
        expected = Expected(value, target)
        batch, checked = learner.batch(params, played, mask, advantage, expected)
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
