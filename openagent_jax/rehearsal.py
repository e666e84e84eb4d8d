"""A domain rehearsed: its tasks as the oracle plays them, clean and perturbed.

What comes of it is for whoever writes a domain: goals that cannot be solved,
perturbations that find nothing to change, and texts that have no room.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from openagent_jax import evaluate, perturb
from openagent_jax.rollout import Sizes
from openagent_jax.sandbox import demonstrate, lexicon, oracle, render
from openagent_jax.sandbox.domain_spec import DomainSpec
from openagent_jax.types import Limits, Task
from openagent_jax.worlds import Worlds

NUM_TASKS = 256  # of each scenario
NUM_DRAWN = 2048  # of which as many of each goal are taken as there are
SCENARIOS = (evaluate.CLEAN, *perturb.CATALOGUE)
TRAINED = tuple(
    name
    for name in SCENARIOS
    if name == evaluate.CLEAN or perturb.CATALOGUE[name].family == "train"
)


class Rehearsed(NamedTuple):
    """What was seen of each task. Lengths are in tokens."""

    goal: Int[Array, "B"]
    changed: Bool[Array, "B"]
    solvable: Bool[Array, "B"]
    success: Bool[Array, "B"]  # of the oracle, in the turns that there are
    prompt: Int[Array, "B"]
    action: Int[Array, "B"]  # the longest
    result: Int[Array, "B"]  # the longest
    episode: Int[Array, "B"]


def rehearse(
    worlds: Worlds,
    max_turns: int,
    seed: int,
    scenarios: Sequence[str] = SCENARIOS,
    split: str = "test",
) -> dict[str, Rehearsed]:
    """The same tasks under each scenario, at full strength, as many of each goal; the
    first scenario is the clean one."""
    draw = evaluate.make_draw(worlds, scenarios[1:], split)

    @jax.jit
    def goals(keys):
        return jax.vmap(lambda key: worlds.sample(key, split).goal.family)(keys)

    @jax.jit
    def play(scenario, keys):
        def one(key):
            task, changed = draw(scenario, key, jnp.float32(1))
            return _measure(worlds.lexicon, task, changed, max_turns)

        return jax.vmap(one)(keys)

    keys = evaluate.task_keys(jax.random.key(seed), 0, NUM_DRAWN)
    keys = keys[_evenly(np.asarray(goals(keys)))]
    return {
        name: jax.device_get(play(jnp.int32(i), keys))
        for i, name in enumerate(scenarios)
    }


def _evenly(goals: np.ndarray) -> np.ndarray:
    """Places of the first task of each goal, then of the second of each, and so on."""
    order = np.argsort(goals, kind="stable")
    rank = np.empty_like(order)
    _, first, size = np.unique(goals[order], return_index=True, return_counts=True)
    rank[order] = np.arange(len(goals)) - np.repeat(first, size)
    return np.argsort(rank, kind="stable")[:NUM_TASKS]


def _measure(
    lexicon_: lexicon.Lexicon, task: Task, changed: Array, max_turns: int
) -> Rehearsed:
    style = lexicon_.style
    episode = demonstrate.demonstrate(lexicon_, task, max_turns)

    def length(pieces):
        return lexicon.write(lexicon_, pieces, 1)[2]

    def said(action):
        return length(render.action(style, task, action))

    def seen(result):
        return length(render.observation(style, task, result))

    def longest(sizes):
        return jnp.max(jnp.where(episode.valid, sizes, 0))

    return Rehearsed(
        goal=task.goal.family,
        changed=changed,
        solvable=oracle.solvable(task),
        success=episode.state.success,
        prompt=length(render.prompt(style, task)),
        action=longest(jax.vmap(said)(episode.action)),
        result=longest(jax.vmap(seen)(episode.result)),
        episode=render.trajectory(lexicon_, episode, 1)[3],
    )


def troubles(
    spec: DomainSpec,
    seen: dict[str, Rehearsed],
    sizes: Sizes,
    limits: Limits,
    num_visible: int,
) -> Iterator[str]:
    """What does not work as whoever wrote the domain may think."""
    clean = seen[evaluate.CLEAN]
    for number, goal in enumerate(spec.goals):
        tasks, at = clean.goal == number, f"goals[{number}] ({goal.name})"
        if not np.all(clean.solvable[tasks]):
            yield f"{at}: the oracle cannot solve it; look at what its tools need"
        elif not np.all(clean.success[tasks]):
            turns = f"sandbox.max_turns={sizes.max_turns} turns"
            yield f"{at}: the oracle does not solve it in {turns}; raise them"
    for name in perturb.CATALOGUE:
        # Other values are drawn even where none are unfamiliar.
        familiar = name == "entity_shift" and not _entities(spec)
        if familiar or not np.any(seen[name].changed):
            why = _why(name, spec, limits, num_visible)
            yield f"{name} changes nothing here{why and f': {why}'}"


def rooms(
    seen: dict[str, Rehearsed],
    trained: dict[str, Rehearsed],
    sizes: Sizes,
    num_tokens: int,
) -> Iterator[tuple[str, int, int, str]]:
    """`(key, its value, tokens, scenario)` of each room that is too small.

    Args:
      seen: what was rehearsed for the test.
      trained: the same for training.
      sizes: of an episode.
      num_tokens: of a row that a demonstration is trained in.
    """
    both = [*seen.items(), *trained.items()]
    for among, field, key, room in (
        (both, "prompt", "sandbox.prompt_tokens", sizes.prompt_tokens),
        (both, "action", "sandbox.action_tokens", sizes.action_tokens),
        (both, "result", "sandbox.result_tokens", sizes.result_tokens),
        (both, "episode", "sandbox.context_tokens", sizes.context_tokens),
        (trained.items(), "episode", "algorithm.num_tokens", num_tokens),
    ):
        lengths = [(int(getattr(one, field).max()), name) for name, one in among]
        longest, name = max(lengths, key=lambda x: x[0])
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
        "semantic_trap": (num_tools < 2, "there is one tool alone"),
        "tool_order": (num_tools < 2, "there is one tool alone"),
        "argument_renaming": (
            not any(tool.arguments for tool in spec.tools),
            "no tool takes arguments",
        ),
        "query_underspecified": (
            not any(goal.constants for goal in spec.goals),
            "no request holds a value",
        ),
        "entity_shift": (not _entities(spec), "no type is an entity"),
        "logic_inversion": (
            True,
            "no tool needs the code of another (code_from), and no goal has two steps "
            "that do not feed each other",
        ),
        **dict.fromkeys(
            ("dependency_extension", "rule_shift", "tool_redirection", "contradiction"),
            (num_tools >= limits.num_tools, f"{full}; raise it"),
        ),
    }
    holds, why = found.get(name, (False, ""))
    return why if holds else ""
