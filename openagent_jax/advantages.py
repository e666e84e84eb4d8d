"""How much better an action was than expected: from rewards to advantages.

Groups: of G episodes of one task, each is compared with the others (GRPO,
arXiv 2402.03300). Turns: a learned value is what was expected (GAE, arXiv 1506.02438);
what the environment says between two actions has no part in it.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

# Rewards of a group that are closer than this are the same: it teaches nothing.
NO_VARIANCE = 1e-6
STD_OVER = ("none", "group", "batch")


def group_relative(reward: Float[Array, "P G"]) -> Float[Array, "P G"]:
    """Reward less the mean of the group: of P groups of G episodes.

    Not divided by the standard deviation, which weighs a group more the more alike its
    rewards are (Dr. GRPO, arXiv 2503.20783); see `scale_by_std`.
    """
    return reward - jnp.mean(reward, axis=1, keepdims=True)


def scale_by_std(
    advantage: Float[Array, "P G"],
    reward: Float[Array, "P G"],
    over: str,
    epsilon: float = 1e-4,
) -> Float[Array, "P G"]:
    """Advantages in standard deviations of the rewards.

    Args:
      advantage: see `group_relative`.
      reward: as there.
      over: "none", "group" (arXiv 2402.03300) or "batch" (arXiv 2508.08221).
      epsilon: added to the deviation.
    """
    if over == "none":
        return advantage
    if over == "group":
        return advantage / (jnp.std(reward, axis=1, keepdims=True) + epsilon)
    if over == "batch":
        return advantage / (jnp.std(reward) + epsilon)
    raise ValueError(f'std over "{over}" is not one of {", ".join(STD_OVER)}')


def has_variance(advantage: Float[Array, "P G"]) -> Bool[Array, "P"]:
    """Groups with something to learn from (dynamic sampling, arXiv 2503.14476)."""
    return jnp.max(jnp.abs(advantage), axis=1) > NO_VARIANCE


def best_groups(useful: Bool[Array, "P"], num: int) -> Int[Array, "num"]:
    """Indices of `num` groups, useful ones first, else in their order: more are
    sampled than needed, and these are kept, in fixed shapes."""
    return jnp.argsort(~useful, stable=True)[:num]


def gae(
    reward: Float[Array, "B T"],
    value: Float[Array, "B T"],
    valid: Bool[Array, "B T"],
    last_value: Float[Array, "B"],
    discount: float,
    trace: float,
) -> Float[Array, "B T"]:
    """Generalised advantage estimation over turns (arXiv 1506.02438).

    Args:
      reward: for the action of each turn.
      value: expected before it.
      valid: turns that were played; the others have no advantage.
      last_value: expected after the last of them: 0 if the episode was over
        (termination), the value of what it came to if it was cut (truncation).
      discount: of a turn; often called gamma.
      trace: of a turn; often called lambda.
    """

    def back(carry, turn):
        next_value, next_advantage = carry
        reward, value, valid = turn
        error = reward + discount * next_value - value
        advantage = error + discount * trace * next_advantage
        carry = jax.tree.map(
            lambda new, old: jnp.where(valid, new, old), (value, advantage), carry
        )
        return carry, jnp.where(valid, advantage, 0)

    turns = jax.tree.map(lambda x: x.T, (reward, value, valid))
    first = last_value, jnp.zeros_like(last_value)
    _, advantage = lax.scan(back, first, turns, reverse=True)
    return advantage.T


def by_token(
    of_turn: Float[Array, "B T"], sampled: Bool[Array, "B S"]
) -> Float[Array, "B S"]:
    """What each turn has, at each of the tokens that the policy sampled in it.

    The sampled tokens of a turn stand together, those of two turns do not.
    """
    turn = turn_of(sampled)
    spread = jnp.take_along_axis(of_turn, jnp.maximum(turn, 0), axis=1)
    return jnp.where(sampled, spread, 0)


def starts_turn(sampled: Bool[Array, "B S"]) -> Bool[Array, "B S"]:
    """The first of the sampled tokens of each turn."""
    return sampled & ~jnp.pad(sampled[:, :-1], ((0, 0), (1, 0)))


def turn_of(sampled: Bool[Array, "B S"]) -> Int[Array, "B S"]:
    """Turns so far at each token, counted from 0; -1 before the first."""
    return jnp.cumsum(starts_turn(sampled), axis=1) - 1
