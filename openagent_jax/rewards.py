"""Rewards: a weighted sum of components.

An environment returns every component at every step (`TimeStep.reward`), and the config
gives their weights. `Environment.rewards` lists the components of an environment.
"""

from collections.abc import Collection, Mapping

import jax.numpy as jnp
from jaxtyping import Array, Float


def total(
    earned: Mapping[str, Float[Array, "*any"]], weights: Mapping[str, float]
) -> Float[Array, "*any"]:
    """Return the weighted sum of reward components.

    Args:
      earned: the reward of each component, by name; all have the same shape.
      weights: the weight of each component, by name; a component without one counts 0.

    Raises:
      ValueError: see `check`.

    >>> float(total({"outcome": jnp.float32(1), "step": jnp.float32(1)},
    ...             {"outcome": 1.0, "step": -0.25}))
    0.75
    """
    check(weights, earned)
    parts = [weight * earned[name] for name, weight in weights.items()]
    return jnp.sum(jnp.stack(parts), axis=0)


def check(weights: Mapping[str, float], components: Collection[str]) -> None:
    """Check the weights of the reward components.

    Args:
      weights: the weight of each component, by name.
      components: the names of the components that the environment has.

    Raises:
      ValueError: there are no weights, a weight is for an unknown component, or a
        weight is not a finite number.
    """
    if not weights:
        raise ValueError("reward: no component has a weight; set reward.outcome")
    for name, weight in weights.items():
        if name not in components:
            known = ", ".join(components)
            raise ValueError(f'reward "{name}" is not one of {known}')
        if not abs(weight) < float("inf"):
            raise ValueError(f"reward.{name}={weight} is not a finite number")
