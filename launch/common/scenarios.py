"""Choose the scenarios of an evaluation from `eval.scenarios`.

The key names perturbations, groups of them, or one suite (`suites/scenario_suites.py`).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from launch.common import errors
from launch.common.errors import UsageError
from openagent_jax import perturb
from openagent_jax.curriculum import draw
from openagent_jax.environments.world import World
from openagent_jax.suites import scenario_suites

KEY = "eval.scenarios"


class Chosen(NamedTuple):
    """The scenarios of an evaluation."""

    names: tuple[str, ...]  # without the clean one, each once
    about: dict[str, Any]  # what a report says of them


class Drawn(NamedTuple):
    """Tasks of several scenarios; see `draw`."""

    names: tuple[str, ...]  # of perturbations
    split: str
    seed: int
    num_tasks: int  # of each scenario
    strength: float
    repeats: int = 1  # episodes of each task


def choose(
    environment: perturb.HasCatalogue,
    names: Sequence[str],
    default: str,
    exclude: Collection[str] = (),
) -> Chosen:
    """Return the scenarios that a config names.

    Args:
      environment: an environment, or the spec of one.
      names: the value of `eval.scenarios`.
      default: what "default" stands for; see `draw.expand`.
      exclude: perturbations that are left out unless they are named themselves.

    Raises:
      UsageError: a name is unknown, they cannot be used as they are, or a suite is
        named beside other things or cannot be played.
    """
    suites = [name for name in names if scenario_suites.is_suite(name)]
    if suites and len(names) > 1:
        raise UsageError(
            f"{KEY}: {suites[0]} is a suite, which is played as it is; name it alone"
        )
    if suites:
        with errors.blame(KEY):
            suite = scenario_suites.load(suites[0])
            groups = suite.groups(environment, exclude)
        chosen = tuple(name for some in groups.values() for name in some)
        return Chosen(chosen, suite.described(groups))
    check_names(KEY, names, environment, scenario_suites.builtins())
    with errors.blame(KEY):
        chosen = (*dict.fromkeys(draw.expand(environment, names, default, exclude)),)
    return Chosen(chosen, draw.described(environment, chosen, exclude))


def check_names(
    key: str,
    names: Sequence[str],
    environment: perturb.HasCatalogue,
    others: Collection[str] = (),
) -> None:
    """Check that all names, and those of the parts of compositions, are known.

    Args:
      key: the config key, for error messages.
      names: its value.
      environment: an environment, or the spec of one.
      others: further names that are known.

    Raises:
      UsageError: a name is unknown, or a strength is not from 0 to 1.
    """
    with errors.blame(key):
        parts = [part for name in names for part in perturb.part_names(name)]
    known = [*draw.GROUPS, *others, *perturb.catalogue(environment)]
    errors.check_names(key, parts, known)


def check_compositions(
    entries: Mapping[str, perturb.Entry],
    changed: Collection[str],
    tasks: str,
    key: str = KEY,
) -> None:
    """Check that each composition changes some task.

    Args:
      entries: the perturbations of the scenarios, by name.
      changed: the scenarios that change a task.
      tasks: which tasks these are, for error messages.
      key: the config key that names the scenarios, for error messages.

    Raises:
      UsageError: one changes none, because its parts do not go together there.
    """
    for name, entry in entries.items():
        if entry.parts and name not in changed:
            raise UsageError(
                f'{key}: "{name}" changes none of {tasks}: its parts do not apply '
                "together there; name other parts"
            )


def changed_by_compositions(world: World, drawn: Drawn, batch_size: int) -> set[str]:
    """Return the compositions that change some of the tasks.

    Args:
      world: the world of the tasks.
      drawn: the tasks, and the names of the scenarios.
      batch_size: the number of tasks that are drawn at once.
    """
    environment, repeats, found = world.environment, drawn.repeats, set[str]()
    entries = perturb.entries(environment, drawn.names)
    if not any(entry.parts for entry in entries.values()):
        return found
    batch = draw.make_batch(environment, drawn.names, drawn.split, batch_size, repeats)
    key, num = jax.random.key(drawn.seed), drawn.num_tasks * repeats
    strength = jnp.float32(drawn.strength)
    for i, name in enumerate(drawn.names, 1):
        for start in range(0, num if entries[name].parts else 0, batch_size):
            place = jnp.int32(i), key, jnp.int32(start)
            edited, _ = batch(world.tables, *place, strength)
            if edited.changed[: num - start].any():
                found.add(name)
                break
    return found
