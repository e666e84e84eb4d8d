"""Environments by name: one line for each of them."""

from collections.abc import Mapping

from openagent_jax.environments.crafting import make as crafting
from openagent_jax.environments.tools import make as tools
from openagent_jax.environments.world import EnvironmentSpec, Settings, Spelling, World
from openagent_jax.types import Environment

# Any other name is a domain of tool worlds: a builtin one, a JSON file, or a log.
SPECS: Mapping[str, EnvironmentSpec] = {
    "crafting": crafting.SPEC,
    "random": tools.RANDOM_WORLDS,
}


def spec(domain: str) -> EnvironmentSpec:
    """What is known of the environment that a domain belongs to."""
    return SPECS.get(domain, tools.DOMAINS)


def make(settings: Settings, spelling: Spelling) -> World:
    """The environment that `settings.domain` names.

    Args:
      settings: what a config says of it.
      spelling: how its texts become tokens.

    Raises:
      ValueError: there is no such environment, or it is incomplete.
    """
    world = spec(settings.domain).make(settings, spelling)
    check(world.environment)
    return world


def check(environment: Environment) -> None:
    """Whether an environment has all that others call.

    Raises:
      ValueError: names what it lacks.
    """
    optional = Environment._field_defaults
    lacks = [
        name
        for name in Environment._fields
        if name not in ("name", "sizes", *optional)
        and not callable(getattr(environment, name))
    ]
    if lacks:
        raise ValueError(
            f'environment "{environment.name}" lacks {", ".join(lacks)}; '
            "openagent_jax.types.Environment says what each is"
        )
