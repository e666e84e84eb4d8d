"""PPO with a learned value function (Schulman et al., arXiv 1707.06347), over turns.

The value of a turn is the value estimate before its first sampled token, and the next
value is that of the next turn. Tokens of the environment have neither a value nor an
advantage.

An episode that was truncated has a next value too: that of the turn that would have
followed, read after the environment's text. There the value is trained, because other
episodes have turns that begin at such a place; at the end of an action it is not.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from openagent_jax import advantages
from openagent_jax.algorithms.policy_gradient import Learner
from openagent_jax.rollout import Rollout
from openagent_jax.types import (
    Algorithm,
    Batch,
    Metrics,
    Params,
    Tables,
    Task,
    TrainState,
)

VALUE = "value"  # branch of the parameters that holds the value head


class Critic(NamedTuple):
    """How values are learned and turned into advantages (static)."""

    # Per turn. At 1, nothing bounds the value that a truncated episode bootstraps from.
    discount: float = 0.95
    gae_lambda: float = 0.95  # per turn; see `advantages.gae`
    weight: float = 1.0  # of the value loss
    # Clips the change of a value from its value at sampling time; 0 turns it off.
    # Clipping slows learning down by an amount that depends on the scale of the reward
    # (arXiv 2006.05990, section 3.2).
    clip: float = 0.0
    # Whether the advantages of a batch are scaled to mean 0 and standard deviation 1.
    # This amplifies noise once nothing is left to learn.
    normalise: bool = False


class Values(NamedTuple):
    """What the value loss needs."""

    value: Float[Array, "B S"]  # at sampling time
    target: Float[Array, "B S"]  # advantage plus value, at sampled tokens


def with_value(params: Params, width: int) -> Params:
    """Return the parameters with a value head added, which predicts 0.

    >>> with_value({"embed": jnp.ones((5, 2))}, width=2)[VALUE]["weight"].tolist()
    [0.0, 0.0]
    """
    head = {"weight": jnp.zeros(width), "bias": jnp.zeros(())}
    return {**params, VALUE: head}


def ppo(learner: Learner, critic: Critic) -> Algorithm:
    """Return PPO as an `Algorithm`.

    Each task is played once, and actions that did better than their value estimate are
    reinforced.

    Args:
      learner: plays episodes and computes batches and losses.
      critic: how values are learned and used.
    """

    def value_of(params: Params, hidden: Float[Array, "*batch D"]):
        head = params[VALUE]
        return hidden.astype(jnp.float32) @ head["weight"] + head["bias"]

    def before(value: Float[Array, "B S"]) -> Float[Array, "B S"]:
        """Shift values by one token, to those estimated before each token."""
        return jnp.pad(value[:, :-1], ((0, 0), (1, 0)))

    @learner.local
    def read_values(params: Params, played: Rollout):
        """Return the values of tokens, of turns, and of what follows the last turn."""
        mask = played.sampled
        positions = jnp.broadcast_to(jnp.arange(mask.shape[1]), mask.shape)
        segments = played.valid.astype(jnp.int32)
        hidden = learner.policy.hidden(params, played.tokens, positions, segments)
        value = value_of(params, hidden)
        length = jnp.sum(played.valid, axis=1, keepdims=True)
        # Where the next turn would begin, if the episode was truncated.
        last = jnp.take_along_axis(value, length - 1, axis=1)[:, 0]
        value = before(value)
        # The value of each turn, at its first token.
        turn, rows = advantages.turn_index(mask), jnp.arange(mask.shape[0])[:, None]
        num_turns = played.trajectory.valid.shape[1]
        column = jnp.where(advantages.is_turn_start(mask), turn, num_turns)
        of_turn = jnp.zeros((len(mask), num_turns))
        return value, of_turn.at[rows, column].set(value, mode="drop"), last

    def make_batch(
        state: TrainState, tables: Tables, key: jax.Array, tasks: Task
    ) -> tuple[Batch, Metrics]:
        params = state.params
        played, reward, metrics = learner.play(
            params, tables, key, tasks, show_end=True
        )
        mask, episode = played.sampled, played.trajectory
        value, of_turn, last = read_values(params, played)
        ends = episode.timestep.terminated & episode.valid
        advantage = advantages.gae(
            reward,
            of_turn,
            episode.valid,
            jnp.where(jnp.any(ends, axis=1), 0, last),  # truncation bootstraps
            critic.discount,
            critic.gae_lambda,
        )
        target = advantages.broadcast_to_tokens(advantage + of_turn, mask)
        advantage = advantages.broadcast_to_tokens(advantage, mask)
        mask = mask & ~played.overflow[:, None]  # those that are trained on
        if critic.normalise:
            mean = jnp.mean(advantage, where=mask)
            std = jnp.std(advantage, where=mask)
            advantage = jnp.where(mask, (advantage - mean) / (std + 1e-6), 0)
        values = Values(value, target)
        batch, checked = learner.batch(params, played, mask, advantage, values)
        error = jnp.var(target - value, where=mask)
        spread = jnp.var(target, where=mask)
        # Targets without variance leave nothing to explain.
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
