"""The registry of environments, by name."""

import difflib
from collections.abc import Mapping
from pathlib import Path

from openagent_jax.environments.crafting import make as crafting
from openagent_jax.environments.tools import make as tools
from openagent_jax.environments.tools.worlds import development, domain_file
from openagent_jax.environments.world import EnvironmentSpec, Settings, Spelling, World
from openagent_jax.types import Environment

# Any other name is a domain of the tool worlds: a builtin one, a JSON file, or a log.
SPECS: Mapping[str, EnvironmentSpec] = {
    "crafting": crafting.SPEC,
    "random": tools.RANDOM_WORLDS,
}


def check_name(domain: str) -> None:
    """Check that a name without a suffix is that of a kind of worlds or of a domain.

    Raises:
      ValueError: nothing is called that; the message names what there is.
    """
    name = domain.removesuffix(development.SUFFIX)
    known = [*SPECS, *domain_file.builtins()]
    if Path(name).suffix or Path(name).name != name or name in known:
        return
    close = difflib.get_close_matches(name, known, 1)
    hint = f'did you mean "{close[0]}"? ' if close else ""
    names = ", ".join(sorted(known))
    raise ValueError(
        f'there is no environment "{domain}"; {hint}known are {names}, and files that '
        "end with .json or .jsonl"
    )


def spec(domain: str) -> EnvironmentSpec:
    """Return the spec of the environment that a domain belongs to."""
    return SPECS.get(domain, tools.DOMAINS)


def make(settings: Settings, spelling: Spelling) -> World:
    """Return the world that `settings.domain` names.

    Args:
      settings: the settings of the environment.
      spelling: how its texts are written as tokens.

    Raises:
      ValueError: there is no such domain, its file has faults, the tokenizer cannot be
        used, or the environment is incomplete.
    """
    check_name(settings.domain)
    world = spec(settings.domain).make(settings, spelling)
    check(world.environment)
    return world


def check(environment: Environment) -> None:
    """Check that an environment has all required functions.

    Raises:
      ValueError: a function is missing.
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
