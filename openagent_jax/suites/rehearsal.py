"""Rehearse a domain: the expert plays its tasks, clean and perturbed.

The result tells the author of a domain which goals cannot be solved, which
perturbations find nothing to change, and which texts do not fit.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from openagent_jax import expert, fast_compile
from openagent_jax.curriculum import draw
from openagent_jax.domains.domain_spec import DomainSpec, GoalSpec
from openagent_jax.domains.limits import Limits
from openagent_jax.environments.tools import perturb
from openagent_jax.environments.tools.types import Task
from openagent_jax.environments.world import SPLITS, World
from openagent_jax.types import Environment, Sizes, Tables

NUM_TASKS = 256  # tasks of each scenario
NUM_DRAWN = 2048  # tasks that are drawn, from which goals are chosen evenly
NUM_NAMED = 3  # sampled goals with the same problem that are named
SCENARIOS = (draw.CLEAN, *(entry.name for entry in perturb.CATALOGUE))
TRAINED = (draw.CLEAN, *dict.fromkeys(perturb.TRAINING_MIX))


class Rehearsed(NamedTuple):
    """Measurements of each of B tasks."""

    goal: Int[Array, "B"]  # index into the goals of the domain
    changed: Bool[Array, "B"]  # whether the scenario changed the task
    solvable: Bool[Array, "B"]
    success: Bool[Array, "B"]  # of the expert, within the turns of an episode
    lengths: expert.Lengths  # of the expert's episode


def rehearse(
    world: World,
    seed: int,
    scenarios: Mapping[str, Sequence[str]],
    began: Callable[[str], None] = lambda split: None,
    played: Callable[[str], None] = lambda name: None,
) -> dict[str, dict[str, Rehearsed]]:
    """Play the same tasks of a split under each scenario, at full strength.

    Args:
      world: the world of the domain.
      seed: the seed of the tasks, of which each goal has the same number if possible.
      scenarios: for each split, the names of its scenarios, the clean one first.
      began: called with the name of each split before its tasks are played.
      played: called with the name of each scenario once its tasks are played.

    Returns:
      The measurements for each split and scenario, in NumPy.
    """
    environment = world.environment
    names = [*dict.fromkeys(name for some in scenarios.values() for name in some)]

    @fast_compile.jit
    def goals(tables, keys, split):
        sample = jax.vmap(lambda key: environment.sample(tables, key, split))
        return sample(keys).goal.kind

    @fast_compile.jit
    def play(tables, scenario, keys, split):  # the splits share a program
        one = draw.make_draw(environment, names[1:], split)

        def measure(key, edit_key):
            task, _, changed = one(tables, key, edit_key, jnp.float32(1), scenario)
            return _measure(environment, tables, task, changed)

        return jax.vmap(measure)(keys, draw.edit_keys(keys))

    keys, tables = draw.task_keys(jax.random.key(seed), 0, NUM_DRAWN), world.tables
    measured = {}
    for split, some in scenarios.items():
        began(split)
        index = jnp.int32(SPLITS.index(split))
        chosen = keys[_evenly(np.asarray(goals(tables, keys, index)))]
        measured[split] = {}
        for name in some:
            scenario = jnp.int32(names.index(name))
            found = jax.device_get(play(tables, scenario, chosen, index))
            measured[split][name] = found
            played(name)
    return measured


def _evenly(goals: np.ndarray) -> np.ndarray:
    """Return `NUM_TASKS` indices: the first task of each goal, then the second, etc."""
    order = np.argsort(goals, kind="stable")
    rank = np.empty_like(order)
    _, first, size = np.unique(goals[order], return_index=True, return_counts=True)
    rank[order] = np.arange(len(goals)) - np.repeat(first, size)
    return np.argsort(rank, kind="stable")[:NUM_TASKS]


def _measure(
    environment: Environment, tables: Tables, task: Task, changed: Array
) -> Rehearsed:
    episode = expert.demonstrate(environment, tables, task)
    outcome = environment.outcome(tables, task, episode.state)
    return Rehearsed(
        goal=task.goal.kind,
        changed=changed,
        solvable=outcome.solvable,
        success=outcome.success,
        lengths=expert.lengths(environment, tables, episode),
    )


def troubles(
    spec: DomainSpec,
    seen: dict[str, Rehearsed],
    sizes: Sizes,
    limits: Limits,
    num_visible: int,
    sampled: Sequence[GoalSpec] = (),
) -> Iterator[str]:
    """Yield warnings of what may not work as the author of the domain expects.

    Args:
      spec: the domain.
      seen: the measurements that `rehearse` returned for all of `SCENARIOS`.
      sizes: the sizes of an episode.
      limits: the sizes of the arrays of a task.
      num_visible: the number of tools that a task shows (`sandbox.num_visible`).
      sampled: the goals of the world that were sampled, which follow those of `spec`.
    """
    clean, goals = seen[draw.CLEAN], (*spec.goals, *sampled)
    turns = f"sandbox.max_turns={sizes.max_turns} turns"
    unsolvable, too_long = [], []
    for number in range(len(goals)):
        tasks = clean.goal == number
        if not np.all(clean.solvable[tasks]):
            unsolvable.append(number)
        elif not np.all(clean.success[tasks]):
            too_long.append(number)
    for found, problem in (
        (unsolvable, "the oracle cannot solve it; look at what its tools need"),
        (too_long, f"the oracle does not solve it in {turns}; raise them"),
    ):
        authored = [x for x in found if x < len(spec.goals)]
        others = found[len(authored) :]
        for number in authored:
            yield f"goals[{number}] ({goals[number].name}): {problem}"
        for number in others[:NUM_NAMED]:
            calls = ", then ".join(name for name, _ in goals[number].steps)
            yield f"a sampled goal ({calls}): {problem}"
        if (num := len(others) - NUM_NAMED) > 0:
            yield f"{num} more sampled goals: {problem.replace(' it', ' them', 1)}"
    for name in SCENARIOS[1:]:
        # This perturbation draws other values even if no type has unfamiliar ones.
        familiar = name == "entity_shift" and not _entities(spec)
        if familiar or not np.any(seen[name].changed):
            why = _why(name, replace(spec, goals=goals), limits, num_visible)
            yield f"{name} changes nothing here{why and f': {why}'}"


def rooms(
    seen: dict[str, Rehearsed],
    trained: dict[str, Rehearsed],
    sizes: Sizes,
    num_tokens: int,
) -> Iterator[tuple[str, int, int, str]]:
    """Yield `(key, value, tokens, scenario)` for each setting that is too small.

    `tokens` is the length that is needed, and `scenario` is where it occurs.

    Args:
      seen: the measurements of tasks of the test split.
      trained: the measurements of tasks of the train split.
      sizes: the sizes of an episode.
      num_tokens: tokens of a row in supervised training (`algorithm.num_tokens`).
    """
    both = [*seen.items(), *trained.items()]
    for among, field, key, room in (
        (both, "prompt", "sandbox.prompt_tokens", sizes.prompt_tokens),
        (both, "action", "sandbox.action_tokens", sizes.action_tokens),
        (both, "result", "sandbox.result_tokens", sizes.result_tokens),
        (both, "episode", "sandbox.context_tokens", sizes.context_tokens),
        (trained.items(), "episode", "algorithm.num_tokens", num_tokens),
    ):
        maxima = ((int(getattr(x.lengths, field).max()), name) for name, x in among)
        longest, name = max(maxima, key=lambda x: x[0])
        if longest > room:
            yield key, room, longest, name


def _entities(spec: DomainSpec) -> list[str]:
    return [kind.name for kind in spec.types if kind.kind == "entity"]


def _why(name: str, spec: DomainSpec, limits: Limits, num_visible: int) -> str:
    num_tools = len(spec.tools)
    full = f"sandbox.num_tools={limits.num_tools} has no row for another tool"
    found = {
        "distractor_tools": (
            num_tools <= num_visible,
            f"all {num_tools} tools are shown already (sandbox.num_visible="
            f"{num_visible})",
        ),
        "tool_removal": (True, "no tool is shown that is not needed"),
        "tool_addition": (
            num_tools + 2 > limits.num_tools,
            f"sandbox.num_tools={limits.num_tools} has no rows for two more tools; "
            "raise it",
        ),
        "query_evolution": (
            True,
            "no value of a request can change without an effect or a record that would "
            "have to be undone",
        ),
        "semantic_trap": (num_tools < 2, "there is one tool alone"),
        "tool_order": (num_tools < 2, "there is one tool alone"),
        "argument_renaming": (
            not any(tool.arguments for tool in spec.tools),
            "no tool takes arguments",
        ),
        **dict.fromkeys(
            ("query_underspecified", "query_ambiguous"),
            (
                not any(goal.constants for goal in spec.goals),
                "no request holds a value",
            ),
        ),
        "entity_shift": (not _entities(spec), "no type is an entity"),
        "knowledge_update": (
            True,
            "no goal without changes of records passes one text of a list of four or "
            "more to a tool",
        ),
        "logic_inversion": (
            True,
            "no tool needs the code of another (code_from), and no goal has two steps "
            "that do not feed each other",
        ),
        "stale_value": (
            True,
            "no goal uses a value that a call without an effect has found, and that "
            "can be another",
        ),
        "missing_values": (True, "all tools of the goals have an effect"),
        "dependency_rewire": (
            True,
            "no goal has two steps that do not feed each other, and no tool without "
            "arguments is shown",
        ),
        "cross_domain_composition": (
            True,
            "no task of sandbox.transfer fits beside one of these; they have too many "
            "tools, steps or values together, or tools of one name",
        ),
        **dict.fromkeys(
            (
                "dependency_extension",
                "rule_shift",
                "verification_code_change",
                "incomplete_information",
                "tool_redirection",
                "tool_deprecation",
                "schema_drift",
                "fatal_error",
                "error_with_alternative",
                "contradiction",
                "spare_contradiction",
                "conflicting_sources",
            ),
            (num_tools >= limits.num_tools, f"{full}; raise it"),
        ),
    }
    holds, why = found.get(name, (False, ""))
    return why if holds else ""
