"""Advantages: how much better an action was than expected.

Two estimators turn rewards into advantages. Group-relative advantages compare each of G
episodes of the same task with the others (GRPO, arXiv 2402.03300). Generalised
advantage estimation compares each turn with a learned value (GAE, arXiv 1506.02438).
Time is counted in turns, not tokens: tokens of the environment between two actions
neither receive nor discount an advantage.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

# A group whose largest absolute advantage is at most this counts as having equal
# rewards: there is nothing to learn from it.
ZERO_TOLERANCE = 1e-6
STD_OVER = ("none", "group", "batch")


def group_relative(reward: Float[Array, "P G"]) -> Float[Array, "P G"]:
    """Subtract from each reward the mean reward of its group.

    The result is not divided by the standard deviation, which would give a group more
    weight the more alike its rewards are (Dr. GRPO, arXiv 2503.20783). `scale_by_std`
    does that where it is wanted.

    Args:
      reward: one for each of the G episodes of P groups.

    >>> group_relative(jnp.array([[1.0, 0.0], [2.0, 2.0]])).tolist()
    [[0.5, -0.5], [0.0, 0.0]]
    """
    return reward - jnp.mean(reward, axis=1, keepdims=True)


def scale_by_std(
    advantage: Float[Array, "P G"],
    reward: Float[Array, "P G"],
    over: str,
    epsilon: float = 1e-4,
) -> Float[Array, "P G"]:
    """Divide advantages by a standard deviation of the rewards.

    Args:
      advantage: the result of `group_relative`.
      reward: the rewards it was computed from.
      over: which rewards the standard deviation is taken over: "none" leaves the
        advantages as they are, "group" uses each group (arXiv 2402.03300), "batch"
        uses all groups together (arXiv 2508.08221).
      epsilon: added to the standard deviation.

    Raises:
      ValueError: `over` is not one of `STD_OVER`.

    >>> reward = jnp.array([[3.0, -1.0]])
    >>> scale_by_std(group_relative(reward), reward, "group", epsilon=0.0).tolist()
    [[1.0, -1.0]]
    """
    if over == "none":
        return advantage
    if over == "group":
        return advantage / (jnp.std(reward, axis=1, keepdims=True) + epsilon)
    if over == "batch":
        return advantage / (jnp.std(reward) + epsilon)
    raise ValueError(f'std over "{over}" is not one of {", ".join(STD_OVER)}')


def has_variance(advantage: Float[Array, "P G"]) -> Bool[Array, "P"]:
    """Tell which groups have rewards that differ, so that they teach something.

    Dynamic sampling trains on these groups only (DAPO, arXiv 2503.14476).

    >>> has_variance(jnp.array([[0.5, -0.5], [0.0, 0.0]])).tolist()
    [True, False]
    """
    return jnp.max(jnp.abs(advantage), axis=1) > ZERO_TOLERANCE


def best_in_blocks(score: Int[Array, "P"], block: int) -> Int[Array, "Q"]:
    """Return where the best entry of each block of consecutive entries is.

    This is dynamic sampling with fixed shapes: more groups are sampled than are needed,
    and the most useful one of each block is kept, the first of equally useful ones.
    Since no block competes with another, what is kept of a mix of tasks has the shares
    of the mix if each block holds tasks of one kind, and nothing moves between devices.

    Args:
      score: how useful each entry is.
      block: number of entries of a block; it divides P.

    Returns:
      The place within its block of the entry that is kept, for each of the Q = P /
      block blocks.

    >>> best_in_blocks(jnp.array([0, 1, 0, 0, 1, 1]), block=2).tolist()
    [1, 0, 0]
    """
    return jnp.argmax(score.reshape(-1, block), axis=1)


def gae(
    reward: Float[Array, "B T"],
    value: Float[Array, "B T"],
    valid: Bool[Array, "B T"],
    last_value: Float[Array, "B"],
    discount: float,
    gae_lambda: float,
) -> Float[Array, "B T"]:
    """Compute generalised advantage estimates over turns (arXiv 1506.02438).

    With `delta[t] = reward[t] + discount * value[t + 1] - value[t]`, the advantage is
    `advantage[t] = delta[t] + discount * gae_lambda * advantage[t + 1]`.

    Args:
      reward: the reward for the action of each turn.
      value: the value estimate before that action.
      valid: turns that were played; the others have an advantage of 0.
      last_value: the value estimate after the last valid turn: 0 where the episode
        terminated, the value of the final state where it was truncated.
      discount: discount factor per turn, called gamma in the paper.
      gae_lambda: decay per turn, called lambda in the paper: 0 relies on the value
        estimates, 1 on the rewards.

    >>> reward, value = jnp.array([[0.0, 1.0]]), jnp.array([[0.25, 0.5]])
    >>> valid, last_value = jnp.array([[True, True]]), jnp.zeros(1)
    >>> gae(reward, value, valid, last_value, discount=1.0, gae_lambda=0.5).tolist()
    [[0.5, 0.5]]
    """

    def backward(carry, turn):
        next_value, next_advantage = carry
        reward, value, valid = turn
        delta = reward + discount * next_value - value
        advantage = delta + discount * gae_lambda * next_advantage
        carry = jax.tree.map(
            lambda new, old: jnp.where(valid, new, old), (value, advantage), carry
        )
        return carry, jnp.where(valid, advantage, 0)

    turns = jax.tree.map(lambda x: x.T, (reward, value, valid))
    initial = last_value, jnp.zeros_like(last_value)
    _, advantage = lax.scan(backward, initial, turns, reverse=True)
    return advantage.T


def broadcast_to_tokens(
    per_turn: Float[Array, "B T"], sampled: Bool[Array, "B S"]
) -> Float[Array, "B S"]:
    """Give every sampled token the value of its turn; other tokens get 0.

    Args:
      per_turn: one value for each turn.
      sampled: tokens that the policy sampled. Those of one turn are contiguous; tokens
        of the environment separate the turns.

    >>> sampled = jnp.array([[False, True, True, False, True]])
    >>> broadcast_to_tokens(jnp.array([[5.0, 7.0]]), sampled).tolist()
    [[0.0, 5.0, 5.0, 0.0, 7.0]]
    """
    turn = jnp.maximum(turn_index(sampled), 0)
    return jnp.where(sampled, jnp.take_along_axis(per_turn, turn, axis=1), 0)


def is_turn_start(sampled: Bool[Array, "B S"]) -> Bool[Array, "B S"]:
    """Mark the first sampled token of each turn.

    >>> is_turn_start(jnp.array([[False, True, True, False, True]])).tolist()
    [[False, True, False, False, True]]
    """
    return sampled & ~jnp.pad(sampled[:, :-1], ((0, 0), (1, 0)))


def turn_index(sampled: Bool[Array, "B S"]) -> Int[Array, "B S"]:
    """Number the turns: at each token, the index of the latest turn that has started.

    Turns count from 0; tokens before the first turn have -1.

    >>> turn_index(jnp.array([[False, True, True, False, True]])).tolist()
    [[-1, 0, 0, 0, 1]]
    """
    return jnp.cumsum(is_turn_start(sampled), axis=1) - 1
