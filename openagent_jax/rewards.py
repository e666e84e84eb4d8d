"""Rewards as data: what an episode earns is a weighted sum of components.

An environment pays each component in every step (`TimeStep.reward`), and a config
weighs them. What the components of an environment are, `Environment.rewards` says.
"""

from collections.abc import Collection, Mapping

import jax.numpy as jnp
from jaxtyping import Array, Float


def total(
    earned: Mapping[str, Float[Array, "*any"]], weights: Mapping[str, float]
) -> Float[Array, "*any"]:
    """The weighted sum of components; one without a weight counts nothing.

    Raises:
      ValueError: as `check`.

    >>> float(total({"outcome": jnp.float32(1), "step": jnp.float32(1)},
    ...             {"outcome": 1.0, "step": -0.25}))
    0.75
    """
    check(weights, earned)
    parts = [weight * earned[name] for name, weight in weights.items()]
    return jnp.sum(jnp.stack(parts), axis=0)


def check(weights: Mapping[str, float], components: Collection[str]) -> None:
    """
    Args:
      weights: of components, by name.
      components: names of those that the environment pays.

    Raises:
      ValueError: there is no weight, or one of no component, or no finite number.
    """
    if not weights:
        raise ValueError("reward: no component has a weight; set reward.outcome")
    for name, weight in weights.items():
        if name not in components:
            known = ", ".join(components)
            raise ValueError(f'reward "{name}" is not one of {known}')
        if not abs(weight) < float("inf"):
            raise ValueError(f"reward.{name}={weight} is not a finite number")
