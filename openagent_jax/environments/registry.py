"""The registry of environments, by name."""

import difflib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from openagent_jax.domains import development, domain_file
from openagent_jax.environments.crafting import make as crafting
from openagent_jax.environments.logs import logs
from openagent_jax.environments.logs import make as logged
from openagent_jax.environments.tools import make as tools
from openagent_jax.environments.world import (
    EnvironmentSpec,
    Settings,
    Spelling,
    Transcriber,
    World,
    names_of,
)
from openagent_jax.types import Environment

# Any other name is that of a log or of a domain of tools, builtin or a JSON file.
SPECS: Mapping[str, EnvironmentSpec] = {
    "crafting": crafting.SPEC,
    "random": tools.RANDOM_WORLDS,
}


def check_name(domain: str) -> None:
    """Check that names without a suffix are those of a kind of worlds or of a domain.

    Args:
      domain: a name, a file, or a list of domains of tools that are mixed.

    Raises:
      ValueError: no such name exists, or it cannot be mixed. The message names each
        such name.
    """
    names, faults, unknown = names_of(domain), list[str](), list[str]()
    known = [*SPECS, *domain_file.builtins()]
    for name in dict.fromkeys(names):
        if not name:
            faults.append("an empty name in the list; remove a comma")
        elif not _exists(name, known):
            close = difflib.get_close_matches(name, known, 1)
            hint = f'; did you mean "{close[0]}"?' if close else ";"
            unknown.append(f'there is no environment "{name}"{hint}')
        elif len(names) > 1 and (name in SPECS or logs.is_log(name)):
            what = "a log" if logs.is_log(name) else "another environment"
            faults.append(f'"{name}" is {what} and cannot be mixed; name it alone')
        if name and names.count(name) > 1:
            faults.append(f'"{name}" is named twice; remove one')
    if unknown:
        text = ", ".join(sorted(known))
        unknown[-1] += f" known are {text}, and files that end with .json or .jsonl"
    if faults or unknown:
        raise ValueError("; ".join([*faults, " ".join(unknown)]).removesuffix("; "))


def _exists(domain: str, known: Collection[str]) -> bool:
    name = domain.removesuffix(development.SUFFIX)
    is_file = bool(Path(name).suffix) or Path(name).name != name
    return is_file or name in known or domain_file.is_builtin(name)


def both(settings: Settings) -> str:
    """Return the list of the domains of both splits.

    >>> both(Settings("poi", test_domains="medical,poi"))
    'poi,medical'
    """
    names = names_of(settings.domain), names_of(settings.test_domains)
    new = [name for name in names[1] if name not in names[0]]
    return ",".join((*names[0], *new))


def left_out(domain: str) -> tuple[str, ...]:
    """Return the perturbations that have to be named to be played in a domain.

    In a user's own domain or log, `domain_transfer` would play tasks of another domain
    than theirs.

    >>> left_out("poi"), left_out("my_tools.json")
    ((), ('domain_transfer',))
    """
    return ("domain_transfer",) if is_own(domain) else ()


def is_own(domain: str) -> bool:
    """Return whether a domain, or one of a list, is a user's file.

    >>> is_own("poi:dev"), is_own("poi,my_tools.json")
    (False, True)
    """
    names = [name.removesuffix(development.SUFFIX) for name in names_of(domain)]
    return any(Path(name).suffix or Path(name).name != name for name in names)


def spec(domain: str) -> EnvironmentSpec:
    """Return the spec of the environment that a domain belongs to."""
    return SPECS.get(domain, logged.SPEC if logs.is_log(domain) else tools.DOMAINS)


def make(settings: Settings, spelling: Spelling) -> World:
    """Return the world that `settings.domain` names.

    Args:
      settings: the settings of the environment.
      spelling: how its texts are written as tokens.

    All other code works on the environment and its tables. In this example, the expert
    solves a task, and the transcriber then shows its tools:

    >>> import jax, tokenizers
    >>> from openagent_jax import expert
    >>> file = Path(__file__).parents[1] / "backbones/nano/tokenizer.json"
    >>> tokenizer = tokenizers.Tokenizer.from_file(str(file))
    >>> world = make(Settings("crafting"), Spelling(tokenizer))
    >>> environment, tables = world.environment, world.tables
    >>> @jax.jit
    ... def play(tables, key):
    ...     task = environment.sample(tables, key, "train")
    ...     episode = expert.demonstrate(environment, tables, task)
    ...     return task, environment.outcome(tables, task, episode.state)
    >>> task, outcome = play(tables, jax.random.key(0))
    >>> bool(outcome.success), int(outcome.num_calls) == int(outcome.fewest_calls)
    (True, True)
    >>> [tool["function"]["name"] for tool in world.transcriber.tools(task)]
    ['get', 'craft', 'inventory']

    Raises:
      ValueError: there is no such domain, its file has faults, the tokenizer cannot be
        used, or the environment or its transcriber is incomplete.
    """
    check_name(settings.domain)
    check_name(settings.transfer)
    check_name(both(settings))
    chosen = spec(settings.domain)
    if chosen is tools.DOMAINS and logs.is_log(settings.transfer):
        chosen = logged.SPEC
    world = chosen.make(settings, spelling)
    check(world)
    return world


def check(world: World) -> None:
    """Check that an environment and its transcriber have all required functions.

    Raises:
      ValueError: a function is missing.
    """
    environment = world.environment
    optional = ("name", "sizes", *Environment._field_defaults)
    needed = [name for name in Environment._fields if name not in optional]
    _check_callable(f'environment "{environment.name}"', environment, needed)
    needed = [name for name in vars(Transcriber) if not name.startswith("_")]
    whose = f'the transcriber of environment "{environment.name}"'
    _check_callable(whose, world.transcriber, needed)


def _check_callable(whose: str, owner: Any, names: Sequence[str]) -> None:
    lacks = [name for name in names if not callable(getattr(owner, name, None))]
    if lacks:
        definition = type(owner) if isinstance(owner, Environment) else Transcriber
        raise ValueError(
            f"{whose} lacks {', '.join(lacks)}; "
            f"{definition.__module__}.{definition.__name__} says what each is"
        )
